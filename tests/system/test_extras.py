"""Extras can be taken away: the core works without all of them, and without any one."""

import ast
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXTRAS = sorted(path.stem for path in (ROOT / "mt_cli/extras").iterdir() if not path.name.startswith("__"))
TINY = {
    "model": {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
    "training": {"max_epochs": None, "warmup_steps": 2, "device": "cpu"},
    "decoding": {"beam_size": 1, "max_length": 10},
    "evaluation": {"num_resamples": 10},
}
SETTINGS = [
    f"{section}.{key}={'null' if value is None else value}"
    for section, values in TINY.items()
    for key, value in values.items()
]
OF_THE_WHOLE = ("test_architecture.py", "test_docs.py", "test_readme.py")
"""Tests of what is written about the package with all its extras."""


@pytest.fixture
def python(run, tmp_path):
    """Runs Python with a copy of the package that lacks some extras; returns the finished process."""

    def python_without(*names):
        package = tmp_path / "package/mt_cli"
        shutil.copytree(ROOT / "mt_cli", package, ignore=shutil.ignore_patterns("__pycache__"))
        for name in names:
            path = package / "extras" / name
            shutil.rmtree(path) if path.is_dir() else path.with_suffix(".py").unlink()
        environment = os.environ | {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        (tmp_path / "work").mkdir()

        def call(*arguments, timeout=300):
            command = [sys.executable, *map(str, arguments)]
            options = {"capture_output": True, "encoding": "utf-8", "timeout": timeout}
            return run(command, cwd=tmp_path / "work", env=environment, **options)

        found = call("-c", "import mt_cli; print(mt_cli.__file__)").stdout.strip()
        assert Path(found) == package / "__init__.py"
        missing = [f"mt_cli.extras.{name}" for name in names]
        program = f"from importlib.util import find_spec; print([each for each in {missing} if find_spec(each)])"
        assert call("-c", program).stdout.strip() == "[]"
        return call

    return python_without


@pytest.fixture
def core(python, tmp_path):
    """Runs `mt` without the whole of `extras`: (exit status, standard output, standard error)."""
    call = python()
    shutil.rmtree(tmp_path / "package/mt_cli/extras")

    def mt(*arguments):
        done = call("-m", "mt_cli", *arguments)
        return done.returncode, done.stdout, done.stderr

    return mt


def train(mt, *settings):
    overrides = [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]
    return mt("train", "--config", ROOT / "configs/quickstart.yaml", *overrides)


def test_the_core_trains_resumes_and_translates_alone(core, tmp_path):
    status, out, err = core("--help")
    commands = re.findall(r"^  ([a-z]+)  +[A-Z]", out.partition("\nOptions:")[0], flags=re.MULTILINE)
    assert (status, commands) == (0, ["train", "translate", "evaluate", "score", "tokenize"]), err
    status, _, err = train(core, "training.max_steps=3")
    assert status == 0 and "tensorboard --logdir" in err and "mt report" not in err, err
    status, _, err = train(core, "training.max_steps=4")
    assert status == 0 and "Resuming from step 3." in err, err
    status, out, err = core("translate", "The old doctor sleeps.")
    assert status == 0 and out.count("\n") == 1, err
    status, _, err = core("evaluate", "--split", "valid")
    assert status == 0, err
    missing = "which this installation lacks"
    for option, extra, arguments in (
        ("--attention", "inspection", ("translate", "The old doctor sleeps.", "--attention", "a.png")),
        ("--engine ctranslate2", "exchange", ("translate", "The old doctor sleeps.", "--engine", "ctranslate2")),
        ("--comet", "comet", ("evaluate", "--comet", "Unbabel/wmt22-comet-da")),
    ):
        status, out, err = core(*arguments)
        assert (status, out) == (2, "")
        assert err.endswith(f"mt: {option}: needs mt_cli.extras.{extra}, {missing}\n"), err
        assert err.count("\n") <= 2  # The other line names the run.


@pytest.mark.parametrize(
    ("settings", "option", "extra"),
    [
        (["init.run=runs/another"], "init.run", "fine_tuning"),
        (["preset=auto"], "preset: auto", "recipes"),
        (
            ["tokenizer.algorithm=bpe", "tokenizer.vocab_size=500", "tokenizer.bpe_dropout=0.1"],
            "tokenizer.bpe_dropout or tokenizer.unigram_alpha",
            "subword_sampling",
        ),
        (
            ["training.concatenated_pairs=0.5"],
            "training.concatenated_pairs or training.inserted_words",
            "augmentation",
        ),
        (["training.average_checkpoints=2"], "training.average_checkpoints", "averages"),
        (["training.tune_decoding=true"], "training.tune_decoding", "tuning"),
        (["corpus.train={file: a.tmx}"], "a .tmx file", "localisation"),
        (["corpus.train={file: a.po}"], "a .po file", "localisation"),
    ],
)
def test_an_option_of_a_missing_extra_is_refused_before_a_run_begins(core, tmp_path, settings, option, extra):
    for name in ("a.tmx", "a.po"):
        (tmp_path / "work" / name).write_text("", encoding="utf-8")
    status, out, err = train(core, *settings, "training.max_steps=3")
    message = f"mt: {option}: needs mt_cli.extras.{extra}, which this installation lacks"
    assert (status, out, err.splitlines()[-1]) == (2, "", message)
    assert not list((tmp_path / "work").glob("runs/*"))  # `.cache` does not match.


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (name for alias in node.names for name in (node.module, f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def files_that_reach_hooks():
    """The files of `tests/unit` that import no extra, but something that may call one."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.glob("mt_cli/**/*.py")}
    for path in sorted((ROOT / "tests/unit").glob("test_*.py")):
        seen, left = set(), list(imports_of(path))
        if path.name in OF_THE_WHOLE or any(name.startswith("mt_cli.extras") for name in left):
            continue
        while left:
            name = left.pop()
            if name in modules and name not in seen and not name.startswith("mt_cli.extras"):
                seen.add(name)
                left += imports_of(modules[name]) if name != "mt_cli.hooks" else ()
        if "mt_cli.hooks" in seen:
            yield path


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_core_keeps_its_laws_without_any_one_extra(python, extra):
    call = python(extra)
    done = call("-m", "mt_cli", "--help")
    assert done.returncode == 0 and "  train " in done.stdout, done.stderr
    files = list(files_that_reach_hooks())
    assert len(files) > 5
    done = call("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--rootdir", ROOT, *files, timeout=1200)
    assert done.returncode == 0, done.stdout[-3000:]
