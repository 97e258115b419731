"""Whatever is wrong with a command line, a config or data ends with status 2 and one message that names it."""

import json
import math
import shutil
from pathlib import Path
from typing import get_args

import pytest
import typer
import yaml
from command_lines import COMMANDS

from mt_cli.config.base import Section
from mt_cli.config.sections import Config
from mt_cli.errors import InputError


@pytest.fixture
def fails(mt, tmp_path):
    """Runs a command that must fail with exit status 2, one clear message, and nothing written but prepared data."""

    def files():
        return sorted(path for path in tmp_path.rglob("*") if path.is_file() and ".cache" not in path.parts)

    def run(*arguments):
        before = files()
        status, out, err = mt(*arguments)
        assert (status, out) == (2, ""), (status, err)
        assert "Traceback" not in err and "Error:" not in err
        assert [line[:4] for line in err.splitlines()].count("mt: ") == 1
        assert files() == before
        return err

    return run


@pytest.fixture
def bad_files(tmp_path, corpus, trained):
    """Files and run directories that cannot be used."""
    lines = (corpus / "train.xx").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "train.en").write_bytes((corpus / "train.en").read_bytes())
    (tmp_path / "short.xx").write_text("".join(lines[:120] + lines[121:]), encoding="utf-8")
    texts = {"text": "one.\n", "text.en": "one.\n", "text.xx": "ONE.\n", "blank": "\n\n \n", "empty": ""}
    for name, text in {**texts, "pairs.tsv": "a\tb\nc\n", "broken.yaml": "name: ["}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "latin").write_bytes(b"good\nbad \xe9 line\n")
    for folder in ("hub", "empty_run", "unfinished", "damaged/checkpoints"):
        (tmp_path / folder).mkdir(parents=True)
    for path in trained.glob("*.*"):
        for folder in ("unfinished", "damaged"):
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    (tmp_path / "damaged" / "checkpoints" / "best.safetensors").write_bytes(b"no safetensors")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ("train --config none.yaml", "none.yaml"),
        ("train --config broken.yaml", "broken.yaml, line 1"),
        ("train --config tiny.yaml --set nonsense", "--set nonsense"),
        *((f"train --config tiny.yaml --set name='{name}'", "name") for name in ("../elsewhere", "/elsewhere", "a/b")),
        ("train --config tiny.yaml --set training.device=cuda:99", "cuda:99"),
        ("train --config tiny.yaml --set corpus.max_tokens=1", "corpus.max_tokens 1"),
        ("translate hello --run none", "none"),
        ("translate hello --run empty_run", "config.yaml"),
        ("translate hello --run unfinished", "unfinished"),
        ("translate hello --run damaged", "best.safetensors"),
        ("translate hello", "run"),
        ("translate a --input b --run RUN", "--input"),
        ("translate a b --attention c.png --run RUN", "--attention"),
        ("translate --input none --run RUN", "none"),
        ("translate --input . --run RUN", "mt: .: "),
        ("translate --input latin --run RUN", "latin, line 2, byte 5"),
        ("translate --input /dev/zero --run RUN", "/dev/zero: "),
        ("translate a --device tpu --run RUN", "'tpu'"),
        ("translate --input text --output text --run RUN", "--input and --output"),
        ("tokenize", "sentences"),
        ("tokenize a --side middle --run RUN", "--side middle"),
        ("tokenize a --config tiny.yaml", "--config"),
        ("evaluate --source text", "--source and --reference"),
        ("evaluate --run RUN --against none", "--against none"),
        ("evaluate --run RUN --split none", "--split none"),
        ("score a --run RUN", "1"),
    ],
)
def test_a_wrong_command_line_names_what_is_wrong(fails, trained, tiny_config, bad_files, arguments, key):
    assert key in fails(*arguments.replace("RUN", str(trained)).replace("'", "").split())


@pytest.mark.parametrize("name", sorted(COMMANDS), ids=" ".join)
def test_an_unknown_way_to_show_progress_is_refused_by_every_command(name):
    has_progress = "progress" in [parameter.name for parameter in COMMANDS[name].params]
    with pytest.raises(InputError if has_progress else typer.BadParameter.__base__, match="--progress"):
        COMMANDS[name].make_context(name[-1], ["--progress", "loud"])


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ({"files": ["train.en", "short.xx"]}, "near line 12"),  # Line 121 has lost its translation.
        ({"files": ["latin", "train.en"]}, "latin, line 2, byte 5"),
        ({"files": ["empty", "empty"]}, "corpus.train"),
        ({"files": ["blank", "blank"]}, "corpus.train"),
        ({"file": "pairs.tsv"}, "pairs.tsv, line 2"),
        ({"file": "pairs.docx"}, "pairs.docx"),
        ({"files": ["none.en", "none.xx"]}, "none.en"),
        ({"files": [".", "."]}, "mt: .: "),
        ({"builtin": "reverse-words", "split": "exam"}, "'exam'"),
        ({"dataset": "hub", "split": "train"}, "dataset hub"),
        ({"dataset": "org/nothing", "subset": "en-xx"}, "HF_HUB_OFFLINE"),
        ({"files": ["x" * 300, "x" * 300]}, "mt: xxxxxxxxxx"),
    ],
)
def test_a_corpus_that_cannot_be_read_is_named(fails, offline, tiny_config, bad_files, source, key):
    assert key in fails("train", "--config", tiny_config, "--set", f"corpus.train={json.dumps(source)}")


@pytest.mark.parametrize("source", ["{files: [a.en, a.xx]}", "{file: a.tsv}", "{file: a.parquet}", "{file: b/a.tmx}"])
def test_a_missing_corpus_says_from_which_folder_its_path_is_read(fails, offline, tiny_config, tmp_path, source):
    command = ("train", "--config", tiny_config, "--set")
    assert f"; relative paths are read from {tmp_path}\n" in fails(*command, f"corpus.train={source}")
    assert "relative" not in fails(*command, f"corpus.train={{file: {tmp_path}/a.tsv}}")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ("translate --input none --run RUN", "none"),
        ("translate --input . --run RUN", "mt: .: "),
        ("translate --input latin --run RUN", "latin, line 2"),
        ("translate --run RUN", "--input"),
        ("translate --input text --run none", "none"),
        ("translate --input text --run RUN --checkpoint other", "checkpoint other"),
        ("translate --input text --run RUN --device tpu", "'tpu'"),
        ("translate --input text --run RUN --precision fp8", "'fp8'"),
        ("translate --input text --run RUN --engine marian", "--engine marian"),
        ("translate --input text --run RUN --set decoding.beam_size=0", "beam_size"),
        ("translate --input text --run RUN --output none/out", "none/out"),
        ("translate --input text --run RUN", "at most"),
        ("train --config none", "none"),
        ("train --config tiny.yaml", "at most"),
    ],
)
def test_no_process_is_started_for_a_command_that_is_wrong_or_for_more_than_the_machine_has(
    fails, trained, tiny_config, bad_files, monkeypatch, arguments, key
):
    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", None)
    assert key in fails(*arguments.replace("RUN", str(trained)).split(), "--devices", "100000")


def text_options():
    """The name of every command, and its options and arguments that take text, with the number of their values."""
    for name, command in COMMANDS.items():
        for parameter in command.params:
            kinds = {str, Path} & {
                parameter.type_descriptor.annotation,
                *get_args(parameter.type_descriptor.annotation),
            }
            if kinds and not parameter.is_eager:
                option = parameter.opts[0] if parameter.opts[0].startswith("-") else None
                yield " ".join(name), option, max(1, parameter.nargs)


USUAL = {
    "train": "--config tiny.yaml --set training.max_steps=1",
    "init": "--files text.en text.xx",
    "translate": "one. --run RUN",
    "score": "one. ONE. --run RUN",
    "evaluate": "--run RUN --source text.en --reference text.xx",
    "tune-decoding": "--run RUN --beam-sizes 1 --dry-run",
    "inspect": "--run RUN",
    "report": "--run RUN",
    "import": "RUN --output runs/new",
    "tokenize": "one. --run RUN",
    "export": "--run RUN --format bundle --output new",
    "average": "--run RUN",
    "data check": "--config tiny.yaml",
    "data show": "--config tiny.yaml",
}
"""A command line of each command that takes text. An option that is given again replaces the one here."""
PATHS = ["x" * 300, "loop", "loop/below", "text.en/below", "", "~", "none/below", "dangling", "."]
CASES = [(*option, path) for option in dict.fromkeys(text_options()) for path in PATHS]


@pytest.mark.parametrize(
    ("command", "option", "number", "path"),
    [pytest.param(*case, marks=() if place % 31 == 0 else pytest.mark.slow) for place, case in enumerate(CASES)],
)
def test_no_text_in_the_place_of_a_path_is_a_traceback(
    mt, offline, trained, tiny_config, tmp_path, command, option, number, path
):
    for link, target in {"loop": "back", "back": "loop", "dangling": "nothing"}.items():
        (tmp_path / link).symlink_to(target)
    for name, text in {"text.en": "one.\n", "text.xx": "ONE.\n"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    run = shutil.copytree(trained, tmp_path / "runs" / "tiny")
    usual = USUAL[command].replace("RUN", str(run)).split()
    status, _, err = mt(*command.split(), *usual, *([] if option is None else [option]), *[path] * number)
    assert status in (0, 1, 2) and "Traceback" not in err and (status == 0 or "mt: " in err), (status, err)


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "override",
    [
        *('corpus.train={file: "PATH"}', 'corpus.train={file: "PATH.tsv"}', 'corpus.train={file: "PATH.parquet"}'),
        *('corpus.train={files: ["PATH", "PATH"]}', 'corpus.train={dataset: "PATH"}', 'init.run="PATH"'),
        *('corpus.valid={files: ["PATH", "PATH"]}', 'corpus.test={file: "PATH.tsv"}'),
        *('corpus.train={file: "PATH.tmx.gz"}', 'corpus.extra_tests={more: {file: "PATH.jsonl"}}'),
        'corpus={train: {file: "PATH.tsv", streaming: true}, valid: {builtin: reverse-words, split: valid}}',
    ],
)
def test_no_path_of_a_config_is_a_traceback(mt, offline, tiny_tree, tmp_path, override, path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "text.en").write_text("one.\n", encoding="utf-8")
    key, _, value = override.replace("PATH", json.dumps(path).strip('"')).partition("=")
    section, _, name = key.partition(".")
    tree = yaml.safe_load(value)
    tiny_tree[section] = tiny_tree.get(section, {}) | ({name: tree} if name else tree)
    tiny_tree["training"] |= {"validate_every_steps": 1, "max_steps": 1}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    for command in (["data", "check"], ["train"]):
        status, _, err = mt(*command, "--config", "c.yaml")
        assert status == 2 and "Traceback" not in err and err.count("mt: ") == 1, (status, err)


def numbers_of(section, name=""):
    """The key of each number of a section of the config, with its limits, and its type."""
    for key, field in section.model_fields.items():
        kinds = {field.annotation, *get_args(field.annotation)}
        dotted = f"{name}.{key}".removeprefix(".")
        for inner in [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)]:
            yield from numbers_of(inner, dotted)
        if kinds & {int, float}:
            limits = [getattr(item, mark) for item in field.metadata for mark in LIMITS if hasattr(item, mark)]
            yield dotted, limits, float if float in kinds else int


LIMITS = ("ge", "gt", "le", "lt")
NEEDED = {
    "tokenizer.bpe_dropout": "tokenizer.algorithm=bpe tokenizer.vocab_size=300",
    "tokenizer.unigram_alpha": "tokenizer.algorithm=unigram tokenizer.vocab_size=300",
    "training.inserted_words": "tokenizer.algorithm=bpe tokenizer.vocab_size=300",
    "training.muon_learning_rate": "training.optimizer=muon",
    "training.weight_decay": "training.optimizer=muon training.learning_rate=1e30",
    "training.learning_rate": "training.weight_decay=1e6",
    **{f"decoding.{key}": "decoding.sample=true" for key in ("temperature", "top_k", "top_p", "seed")},
    **{
        f"init.{key}": "init.run=RUN init.adapter_rank=2"
        for key in ("adapter_alpha", "max_new_entries", "adapter_rank")
    },
    "model.max_positions": "model.positions=learned",
}
"""What makes a number count."""


@pytest.mark.slow
@pytest.mark.parametrize(("key", "limits", "kind"), list(numbers_of(Config)), ids=lambda item: str(item)[:40])
def test_any_number_ends_a_run_with_a_message_or_not_at_all(mt, trained, tiny_config, key, limits, kind):
    if key in ("training.num_threads", "model.num_encoder_layers", "model.num_decoder_layers", "decoding.beam_size"):
        pytest.skip("a thousand threads, layers or beams take minutes")
    near = [math.nextafter(limit, side) for limit in limits for side in (0, math.inf)] if kind is float else []
    numbers = [*limits, *near, *((1e-320, 1e-30) if kind is float else (2**31 - 1, 1))]
    needed = NEEDED.get(key, "").replace("RUN", str(trained)).split()
    for index, number in enumerate(numbers):
        short = ("training.max_steps=2", "training.log_every_steps=1", f"name=run{index}")
        changes = [part for change in (*short, *needed, f"{key}={number!r}") for part in ("--set", change)]
        status, _, err = mt("train", "--config", tiny_config, *changes)
        assert status in (0, 1, 2) and "Traceback" not in err, (number, err)
        assert status == 0 or err.count("mt: ") == 1, (number, err)
