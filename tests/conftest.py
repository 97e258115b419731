"""Fixtures of all tests. Imports neither torch nor datasets: what tests a config shall not wait for them."""

import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
import yaml
from child_processes import Children, ForkServer
from filelock import FileLock
from hypothesis import HealthCheck, settings
from run_content import some_known_lines, write_lines
from texts import TEXTS

from mt_cli.cli import main as cli

ROOT = Path(__file__).parent.parent

settings.register_profile(
    "any machine", deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_addoption(parser):
    group = parser.getgroup("mt", "the slow tests, and the fuzzer, tests/system/test_hostile_input.py")
    group.addoption("--slow-minutes", type=float, help="skip the slow tests that would end after these minutes")
    group.addoption("--fuzz-seed", type=int, default=0, help="the first seed of each family")
    group.addoption("--fuzz-cases", type=int, help="how many seeds of each family")
    group.addoption("--fuzz-minutes", type=float, help="run each family for this long instead")


@pytest.hookimpl(trylast=True)
def pytest_configure(config):
    """Keep all that tests and their processes write in pytest's folder, also where the home cannot be written to."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Background jobs inherit SIG_IGN from the shell.
    config.stash[STARTED] = time.monotonic()
    folder = config._tmp_path_factory.getbasetemp() / "machine"
    for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "HF_HOME"):
        (folder / variable).mkdir(parents=True, exist_ok=True)
        os.environ[variable] = str(folder / variable)
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    tempfile.tempdir = None  # Read from TMPDIR again.


STARTED = pytest.StashKey[float]()


def pytest_runtest_setup(item):
    minutes, mark = item.config.getoption("--slow-minutes"), item.get_closest_marker("slow")
    if minutes is None or mark is None:
        return
    left = minutes - (time.monotonic() - item.config.stash[STARTED]) / 60
    if left < (needed := mark.kwargs.get("minutes", 1)):
        pytest.skip(f"needs up to {needed} minutes of the {minutes:g} for slow tests")


@pytest.fixture(autouse=True)
def one_seed_and_one_thread():
    """With tensors this small, more threads only wait for each other; a test before may have changed their number."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
        torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def few_resamples():
    from mt_cli.evaluation import scores

    scores.NUM_RESAMPLES = 30  # The smallest p-value is 1/31.


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def real_text():
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs real text in ../shared/data")
    return folder


@pytest.fixture(scope="session", params=["own", pytest.param("flores", marks=pytest.mark.slow)])
def texts(request):
    """The same sentences in nineteen languages, by language code: eight of `texts.py`, or a thousand of FLORES-200."""
    if request.param == "own":
        return {code: text.split("\n") for code, text in TEXTS.items()}
    paths = sorted((request.getfixturevalue("real_text") / "flores200").glob("*.devtest"))
    return {path.stem: path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths}


@pytest.fixture(scope="session")
def assert_same_run():
    """A function that compares two finished runs bit by bit."""
    from run_content import assert_same_run

    return assert_same_run


WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """A function that makes a folder once for all workers of a session: `once(name, make)` is the path of the folder.

    `make` gets the path of an empty folder, in the first process that asks for the name; others wait and read it only.
    """
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "once"
    shared.mkdir(exist_ok=True)

    def folder_of(name, make):
        folder, finished = shared / name, shared / f"{name}.finished"
        with FileLock(shared / f"{name}.lock"):
            if not finished.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                finished.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session")
def corpus(once):
    """Four hundred training pairs and forty test pairs: words, and the same words in capitals."""
    return once("corpus", write_corpus)


def write_corpus(folder):
    generator = random.Random(1)
    sentences: dict[str, None] = {}
    while len(sentences) < 440:
        sentences[" ".join(generator.choices(WORDS, k=generator.randrange(1, 6))) + "."] = None
    for name, some in (("train", list(sentences)[:400]), ("test", list(sentences)[400:])):
        write_lines(folder / f"{name}.en", some)
        write_lines(folder / f"{name}.xx", [sentence.upper() for sentence in some])


def new_tiny_tree(corpus):
    return {
        "name": "tiny",
        "corpus": {
            "source": "en",
            "target": "xx",
            "train": {"files": [str(corpus / "train.en"), str(corpus / "train.xx")]},
            "valid": {"fraction": 0.0935},  # Holds out exactly 40 pairs.
            "test": {"files": [str(corpus / "test.en"), str(corpus / "test.xx")]},
        },
        "model": {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {
            "max_epochs": 2,
            "batch_tokens": 200,
            "warmup_steps": 2,
            "log_every_steps": 1,
            "device": "cpu",
        },
        "decoding": {"beam_size": 2},
    }


@pytest.fixture
def tiny_tree(corpus):
    return new_tiny_tree(corpus)


@pytest.fixture
def tiny_config(tiny_tree, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    return path


@pytest.fixture
def mt(tmp_path, monkeypatch, capsys):
    """Runs the command line in an empty folder: (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mt_cli.runtime.console._mode", "auto")  # `--progress` sets it for one command only.

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def children():
    """Processes of the test, which end with it."""
    children = Children()
    yield children
    children.end()


@pytest.fixture
def start(children):
    """Starts a command as `subprocess.Popen` does; it ends with the test, with all that it has started."""
    return children.start


@pytest.fixture
def run(children):
    """Runs a command as `subprocess.run` does; it ends with the test, with all that it has started."""
    return children.run


@pytest.fixture(scope="session")
def started_fork_server():
    server = ForkServer()
    yield server
    server.stop()


@pytest.fixture
def fork_server(started_fork_server):
    yield started_fork_server
    started_fork_server.end()


@pytest.fixture
def forked(fork_server, tmp_path, monkeypatch):
    """Runs the command line in a process of its own, in an empty folder: (exit status, standard output and error).

    `streams` gives the state of standard input, output and error: "there", "full", or "left" by its reader.
    `encoding` is the encoding that Python assumes for them. The process ends itself at a `crash_point`.
    """
    monkeypatch.chdir(tmp_path)

    def run(*arguments, **options):
        fork_server.start(tmp_path, arguments, **options)
        [status] = fork_server.wait()
        return status, *((tmp_path / f"stream.{number}").read_bytes().decode("utf-8") for number in (1, 2))

    return run


@pytest.fixture
def offline(monkeypatch):
    """Data sets of the hub are looked for in the cache alone, so no test waits for a network."""
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def hub():
    """A hub on loopback, which clients find if `HF_ENDPOINT` is its `endpoint` when they are imported."""
    from hub_server import Hub

    with Hub() as hub:
        yield hub


@pytest.fixture
def mt_from_hub(hub, forked, tmp_path):
    """Runs `mt` with an empty cache of the hub's clients: (exit status, standard output, standard error)."""

    def run(*arguments, **environment):
        settings = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
        return forked(*arguments, environment=settings | {"NO_PROXY": "", "no_proxy": ""} | environment)

    return run


PROGRAM = """
import os, torch
from mt_cli.errors import InputError
from mt_cli.runtime import group as groups
from mt_cli.runtime import launcher
from mt_cli.runtime.launcher import launched_group

{body}
"""


@pytest.fixture
def run_together(fork_server, tmp_path):
    """Runs a program in several processes as a launcher would; returns the status, output and errors of each."""

    def run(body, number=2, restarts=0):
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.format(body=body), encoding="utf-8")
        fork_server.start(tmp_path, number=number, restarts=restarts, program=str(program))
        outputs = [[tmp_path / f"stream.{rank}.{stream}" for stream in (1, 2)] for rank in range(number)]
        statuses = fork_server.wait()
        return [(status, *map(Path.read_text, files)) for status, files in zip(statuses, outputs, strict=True)]

    return run


@pytest.fixture(scope="session")
def one_thread():
    """For fixtures that train: those of a session are made before the fixture of each test that sets the number."""
    import torch

    torch.set_num_threads(1)


def train_well(corpus, runs, max_tokens, **sections):
    """Train the tiny config in a folder until it translates its training text; `sections` are added to the config."""
    from mt_cli.config.loading import parse_config
    from mt_cli.run.train import train

    tree = new_tiny_tree(corpus) | sections
    tree["corpus"]["max_tokens"] = max_tokens
    tree["model"] |= {"d_model": 32, "d_ff": 64, "dropout": 0.0}
    tree["training"] |= {"max_epochs": 30, "warmup_steps": 20, "learning_rate": 0.01, "schedule": "linear"}
    tree["training"] |= {"validate_every_steps": 100, "log_every_steps": 10}
    del tree["decoding"]
    train(parse_config(tree, "fixture"), runs)


@pytest.fixture(scope="session")
def trained(corpus, one_thread, once):
    """A finished tiny run with vocabularies of words. All workers share it: copy it before you change it."""
    return once("trained", lambda runs: train_well(corpus, runs, 6)) / "tiny"


@pytest.fixture(scope="session")
def trained_subwords(corpus, one_thread, once):
    """A finished tiny run with a shared vocabulary of subwords. All workers share it: copy it before you change it."""
    tokenizer = {"algorithm": "bpe", "vocab_size": 340, "shared": True}
    return once("trained_subwords", lambda runs: train_well(corpus, runs, 24, tokenizer=tokenizer)) / "tiny"


@pytest.fixture(scope="session")
def run_with_quality(trained, once):
    """A run whose estimate is fitted to references that lines with unknown words miss. Copy it before you change it."""

    def make(folder):
        from mt_cli.checkpoint.directory import RunDirectory
        from mt_cli.config.loading import load_config
        from mt_cli.evaluation.quality import fit_quality
        from mt_cli.translation.translator import Translator

        run = shutil.copytree(trained, folder / "tiny")
        sources = [*some_known_lines(150, seed=1)]
        pairs = [(text, "?" if "zebra" in text else text.upper()) for text in sources]
        translator = Translator.load(run, "cpu", "fp32")
        fit_quality(RunDirectory(run), load_config(run / "config.yaml"), translator, pairs, [])

    return once("quality", make) / "tiny"


@pytest.fixture(scope="session")
def served(trained, once):
    """Export of the run `trained` to CTranslate2."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.exchange.ctranslate2 import export_ctranslate2

    def make(folder):
        export_ctranslate2(TrainedRun.load(trained), folder / "model", "float32", ["one two.", "ten."])

    return once("served", make) / "model"


@pytest.fixture
def quick_tree(tiny_tree, tmp_path):
    """The tiny config with 11 steps an epoch, and only a few sentences to validate and test."""
    for side, lines in (("en", "one.\ntwo six.\nten.\n"), ("xx", "ONE.\nTWO SIX.\nTEN.\n")):
        (tmp_path / f"test.{side}").write_text(lines, encoding="utf-8")
    tiny_tree["corpus"] |= {"valid": {"fraction": 0.0282}, "test": {"files": ["test.en", "test.xx"]}}
    tiny_tree["training"]["batch_tokens"] = 220
    return tiny_tree


@pytest.fixture
def quick_train(mt, quick_tree, tmp_path):
    """A function that takes options of `training`; returns one that runs `mt train` under a name, with more options."""

    def configured(**training):
        quick_tree["training"] |= training
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(quick_tree), encoding="utf-8")
        return run

    def run(name, *arguments, **training):
        """Options with a dot are of other sections."""
        keys = {key if "." in key else f"training.{key}": value for key, value in training.items()}
        changes = [f"name={name}", *(f"{key}={value}" for key, value in keys.items())]
        return mt("train", "--config", "tiny.yaml", *(part for each in changes for part in ("--set", each)), *arguments)

    return configured


@pytest.fixture
def begin(train, once, tmp_path):
    """Trains as `train` of a test file does, but once for all tests, which get a copy of the run; returns its path.

    `tiny.yaml` and what a test gives are all that the run may depend on.
    """

    def run(name, *arguments, **training):
        def make(folder):
            status, _, err = train(name, *arguments, **training)
            assert status == 0, err
            shutil.move(tmp_path / "runs" / name, folder / name)

        config = (tmp_path / "tiny.yaml").read_text(encoding="utf-8")
        key = hashlib.sha256(repr((config, name, arguments, training)).encode("utf-8")).hexdigest()
        shutil.copytree(once(key, make) / name, tmp_path / "runs" / name)
        return tmp_path / "runs" / name

    return run
