import json
import math
import shutil
from pathlib import Path
from typing import get_args

import pytest
import typer
import yaml

from mt_cli.cli import main as cli
from mt_cli.config.checks import Section
from mt_cli.config.sections import Config


@pytest.fixture
def fails(mt, tmp_path):
    """Runs a command that must fail with exit status 2, one clear message, and nothing written but prepared data."""

    def files():
        return sorted(path for path in tmp_path.rglob("*") if path.is_file() and ".cache" not in path.parts)

    def run(*arguments):
        before = files()
        status, out, err = mt(*arguments)
        assert status == 2, (status, err)
        assert out == ""
        assert "Traceback" not in err and "Error:" not in err
        assert [line[:4] for line in err.splitlines()].count("mt: ") == 1
        assert files() == before
        return err

    return run


def with_corpus(tree, tmp_path, **changes):
    tree["corpus"].update(changes)
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


def test_a_missing_config(fails):
    assert "none.yaml: no such config file" in fails("train", "--config", "none.yaml")


def test_broken_yaml(fails, tmp_path):
    (tmp_path / "c.yaml").write_text("name: [", encoding="utf-8")
    assert "c.yaml, line 1" in fails("train", "--config", "c.yaml")


def test_several_wrong_values_at_once(fails, tiny_config):
    err = fails("train", "--config", tiny_config, "--set", "model.num_head=2", "--set", "model.dropout=3.0")
    assert "2 problems" in err
    assert "did you mean `num_heads`?" in err


def test_files_of_different_length(fails, tiny_tree, tmp_path, corpus):
    lines = (corpus / "train.xx").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "short.xx").write_text("".join(lines[:120] + lines[121:]), encoding="utf-8")
    files = {"files": [str(corpus / "train.en"), str(tmp_path / "short.xx")]}
    err = fails("train", "--config", with_corpus(tiny_tree, tmp_path, train=files))
    assert "400 lines" in err
    assert "399" in err
    # Line 121 has lost its translation; line 122 is the first with a wrong translation.
    assert "near line 121" in err or "near line 122" in err


def test_a_file_that_is_not_utf8(fails, tiny_tree, tmp_path, corpus):
    (tmp_path / "latin.en").write_bytes(b"good\nbad \xe9 line\n")
    files = {"files": [str(tmp_path / "latin.en"), str(corpus / "train.xx")]}
    err = fails("train", "--config", with_corpus(tiny_tree, tmp_path, train=files))
    assert "latin.en, line 2, byte 5: not UTF-8 (found 0xE9)" in err


@pytest.mark.parametrize("content", ["", "\n\n \n"])
def test_an_empty_corpus(fails, tiny_tree, tmp_path, content):
    (tmp_path / "e.txt").write_text(content, encoding="utf-8")
    files = {"files": [str(tmp_path / "e.txt"), str(tmp_path / "e.txt")]}
    assert "corpus.train: the corpus is empty" in fails(
        "train", "--config", with_corpus(tiny_tree, tmp_path, train=files)
    )


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ({"file": "pairs.tsv"}, "pairs.tsv, line 2: has 1 cell, and the others have 2"),
        ({"file": "pairs.docx"}, "unknown format"),
        ({"files": ["none.en", "none.xx"]}, "none.en: no such file"),
        ({"files": [".", "."]}, "is a directory"),
        ({"builtin": "reverse-words", "split": "exam"}, "there is no split 'exam'"),
        ({"dataset": "hub", "split": "train"}, "dataset hub: has no files that `datasets` can read"),
    ],
)
def test_a_corpus_that_cannot_be_read(fails, tiny_tree, tmp_path, source, part):
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\n", encoding="utf-8")
    (tmp_path / "hub").mkdir()
    assert part in fails("train", "--config", with_corpus(tiny_tree, tmp_path, train=source))


@pytest.mark.parametrize("source", ["{files: [a.en, a.xx]}", "{file: a.tsv}", "{file: a.parquet}", "{file: b/a.tmx}"])
def test_a_missing_corpus_says_from_which_folder_its_path_is_read(fails, offline, tiny_config, tmp_path, source):
    folder = f"relative paths are read from {tmp_path}"
    command = ("train", "--config", tiny_config, "--set")
    assert f"no such file or directory; {folder}\n" in fails(*command, f"corpus.train={source}")
    assert folder not in fails(*command, f"corpus.train={{file: {tmp_path}/a.tsv}}")
    assert folder in fails(*command, "corpus.train={dataset: a/b}")


def test_a_hub_id_without_network(fails, offline, tiny_tree, tmp_path):
    path = with_corpus(tiny_tree, tmp_path, train={"dataset": "org/nothing", "subset": "en-xx", "split": "train"})
    err = fails("train", "--config", path)
    assert "dataset org/nothing: is not downloaded, and HF_HUB_OFFLINE is set" in err


@pytest.mark.parametrize("name", ["../elsewhere", "/elsewhere", "a/b", "..", ""])
def test_a_name_that_leaves_the_runs(fails, tiny_config, name):
    assert "name:" in fails("train", "--config", tiny_config, "--set", f"name='{name}'")


@pytest.mark.parametrize("device", ["tpu", "cuda:99"])
def test_an_unknown_device(fails, tiny_config, device):
    assert "device" in fails("train", "--config", tiny_config, "--set", f"training.device={device}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("translate --input none --run RUN", "none: no such file"),
        ("translate --input . --run RUN", "is a directory"),
        ("translate --input latin --run RUN", "latin, line 1, byte 1: not UTF-8"),
        ("translate --run RUN", "several processes cannot share a stream"),
        ("translate --input text --run none", "none: no such run directory"),
        ("translate --input text --run RUN --checkpoint other", "no checkpoint other"),
        ("translate --input text --run RUN --device tpu", "unknown device 'tpu'"),
        ("translate --input text --run RUN --precision fp8", "unknown precision 'fp8'"),
        ("translate --input text --run RUN --engine marian", "--engine marian"),
        ("translate --input text --run RUN --set decoding.beam_size=0", "beam_size: found 0"),
        ("translate --input text --run RUN --output none/out", "there is no folder none"),
        ("translate --input text --run RUN", "use at most"),
        ("train --config none", "none: no such config file"),
        ("train --config tiny.yaml", "use at most"),
    ],
)
def test_no_process_is_started_for_a_command_that_is_wrong_or_for_more_than_the_machine_has(
    fails, trained, tiny_config, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", None)
    (tmp_path / "text").write_text("one.\n", encoding="utf-8")
    (tmp_path / "latin").write_bytes(b"\xe9\n")
    assert words in fails(*arguments.replace("RUN", str(trained)).split(), "--devices", "100000")


def test_run_directories_without_a_model(fails, tmp_path, trained):
    (tmp_path / "empty").mkdir()
    assert "no such run directory" in fails("translate", "hello", "--run", "none")
    assert "there is no config.yaml in it" in fails("translate", "hello", "--run", "empty")
    assert "no trained run" in fails("translate", "hello")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    for path in trained.glob("*.*"):
        (unfinished / path.name).write_bytes(path.read_bytes())
    assert "has not saved a model yet" in fails("translate", "hello", "--run", "unfinished")
    (unfinished / "checkpoints").mkdir()
    (unfinished / "checkpoints" / "best.safetensors").write_bytes(b"no safetensors")
    assert "damaged checkpoint" in fails("translate", "hello", "--run", "unfinished")


@pytest.mark.parametrize(
    "arguments",
    [
        ("translate", "a", "--input", "b"),
        ("translate", "a", "b", "--attention", "c.png"),
        ("translate", "--input", "none.txt"),
        ("translate", "a", "--beam-size", "0"),
        ("translate", "a", "--device", "tpu"),
        ("tokenize",),
        ("tokenize", "a", "--side", "middle"),
        ("tokenize", "a", "--config", "c.yaml"),
        ("evaluate", "--source", "a.txt"),
        ("train",),
        ("train", "--config", "c.yaml", "--set", "nonsense"),
        ("dance",),
    ],
)
def test_invalid_command_lines(fails, trained, tmp_path, arguments):
    (tmp_path / "c.yaml").write_text("{}", encoding="utf-8")
    extra = ("--run", trained) if arguments[0] == "translate" and "--attention" not in arguments else ()
    assert fails(*arguments, *extra)


def test_translate_input_that_is_not_utf8(mt, trained, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"three.\n\xff\n")
    status, _, err = mt("translate", "--run", trained, "--input", "in.txt")
    assert status == 2
    assert "in.txt, line 2, byte 1: not UTF-8" in err


def test_a_line_without_end_is_not_read_to_its_end(mt, trained):
    status, out, err = mt("translate", "--run", trained, "--input", "/dev/zero")
    assert (status, out) == (2, "") and "/dev/zero, line 1: longer than" in err


def test_pairs_that_are_all_too_long(fails, tiny_config):
    err = fails("train", "--config", tiny_config, "--set", "corpus.max_tokens=1")
    assert "corpus.train: every pair has more than corpus.max_tokens 1" in err


@pytest.mark.parametrize(
    "option",
    ["decoding.temperature=1e-40", "model.dropout=0.9999", "model.attention_dropout=0.999999"],
)
def test_numbers_that_floats_cannot_compute_with_are_refused(fails, tiny_config, option):
    options = ("--set", option, "--set", "decoding.sample=true")
    assert f"{option.partition('=')[0]}: found" in fails("train", "--config", tiny_config, *options)


def text_options():
    """The name of every command, and its options and arguments that take text, with the number of their values."""
    commands = {(name,): command for name, command in typer.main.get_command(cli.app).commands.items()}
    for group in [key for key, command in commands.items() if hasattr(command, "commands")]:
        commands |= {(*group, name): command for name, command in commands.pop(group).commands.items()}
    for key, command in commands.items():
        for each in command.params:
            kinds = {str, Path} & {each.type_descriptor.annotation, *get_args(each.type_descriptor.annotation)}
            if kinds and not each.is_eager:
                option = each.opts[0] if each.opts[0].startswith("-") else None
                yield " ".join(key), option, max(1, each.nargs)


@pytest.mark.parametrize("command", [command for command, option, _ in text_options() if option == "--progress"])
def test_an_unknown_way_to_show_progress_is_refused_by_every_command(fails, command):
    assert "--progress loud: use auto, bar, plain, none" in fails(*command.split(), "--progress", "loud")


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
PATHS = ["x" * 300, "loop", "loop/below", "text.en/below", "nul\0", "", "~", "none/below", "dangling", "."]
CASES = [(*option, path) for option in dict.fromkeys(text_options()) for path in PATHS]


@pytest.mark.parametrize(
    ("command", "option", "number", "path"),
    [pytest.param(*case, marks=() if place % 31 == 0 else pytest.mark.slow) for place, case in enumerate(CASES)],
)
def test_no_text_in_the_place_of_a_path_is_a_traceback(
    mt, offline, trained, tiny_config, tmp_path, command, option, number, path
):
    (tmp_path / "loop").symlink_to("back")
    (tmp_path / "back").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "text.en").write_text("one.\n", encoding="utf-8")
    (tmp_path / "text.xx").write_text("ONE.\n", encoding="utf-8")
    (tmp_path / "runs").mkdir()
    run = tmp_path / "runs" / "tiny"
    shutil.copytree(trained, run)
    usual = USUAL[command].replace("RUN", str(run)).split()
    status, _, err = mt(*command.split(), *usual, *([] if option is None else [option]), *[path] * number)
    assert status in (0, 1, 2) and "Traceback" not in err and (status == 0 or "mt: " in err), (status, err)


@pytest.mark.parametrize("path", [pytest.param(each, marks=pytest.mark.slow) for each in PATHS])
@pytest.mark.parametrize(
    "override",
    [
        *('corpus.train={file: "PATH"}', 'corpus.train={file: "PATH.tsv"}', 'corpus.train={file: "PATH.parquet"}'),
        *(
            'corpus.train={files: ["PATH", "PATH"]}',
            'corpus.train={dataset: "PATH"}',
            'corpus.train={file: "PATH.tmx.gz"}',
        ),
        *('corpus.valid={files: ["PATH", "PATH"]}', 'corpus.test={file: "PATH.tsv"}', 'init.run="PATH"'),
        *('corpus.train={file: "PATH.tsv", streaming: true}', 'corpus.extra_tests={more: {file: "PATH.jsonl"}}'),
    ],
)
def test_no_path_of_a_config_is_a_traceback(mt, offline, tiny_config, tmp_path, override, path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "text.en").write_text("one.\n", encoding="utf-8")
    changes = ("--set", override.replace("PATH", json.dumps(path).strip('"')))
    options = ("--set", "training.validate_every_steps=1", "--set", "training.max_steps=1")
    if "streaming" in override:
        options += ("--set", "corpus.valid={builtin: reverse-words, split: valid}")
    for command in (["data", "check"], ["train"]):
        status, _, err = mt(*command, "--config", tiny_config, *changes, *options)
        assert status == 2 and "Traceback" not in err and err.count("mt: ") == 1, (status, err)


@pytest.mark.parametrize("override", ['corpus.train={files: ["PATH", "PATH"]}', 'init.run="PATH"'])
def test_a_path_of_a_config_that_is_too_long_is_named(fails, tiny_config, override):
    err = fails("train", "--config", tiny_config, "--set", override.replace("PATH", "x" * 300))
    assert err.startswith("mt: xxxxxxxxxx") and "file name too long" in err


def numbers_of(section, name=""):
    """The key of each number of a section of the config, with its limits and the limits of the machine between them."""
    for key, field in section.model_fields.items():
        kinds = {field.annotation, *get_args(field.annotation)}
        dotted = f"{name}.{key}".removeprefix(".")
        for inner in [each for each in kinds if isinstance(each, type) and issubclass(each, Section)]:
            yield from numbers_of(inner, dotted)
        if kinds & {int, float}:
            limits = {mark: getattr(each, mark) for each in field.metadata for mark in LIMITS if hasattr(each, mark)}
            yield dotted, [*limits.values()], float if float in kinds else int


LIMITS = ("ge", "gt", "le", "lt")
NUMBERS = list(numbers_of(Config))
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
@pytest.mark.parametrize(("key", "limits", "kind"), NUMBERS, ids=lambda each: each if isinstance(each, str) else "")
def test_any_number_ends_a_run_with_a_message_or_not_at_all(mt, trained, tiny_config, tmp_path, key, limits, kind):
    if key in ("training.num_threads", "model.num_encoder_layers", "model.num_decoder_layers", "decoding.beam_size"):
        pytest.skip("a thousand threads, layers or beams take minutes")
    near = [math.nextafter(limit, side) for limit in limits for side in (0, math.inf)] if kind is float else []
    numbers = [*limits, *near, *((1e-320, 1e-30) if kind is float else (2**31 - 1, 1))]
    needed = NEEDED.get(key, "").replace("RUN", str(trained)).split()
    for index, number in enumerate(numbers):
        limits = ("training.max_steps=2", "training.log_every_steps=1", f"name=run{index}")
        changes = (*limits, *needed, f"{key}={number!r}")
        status, _, err = mt("train", "--config", tiny_config, *(part for each in changes for part in ("--set", each)))
        assert status in (0, 1, 2) and "Traceback" not in err, (number, err)
        assert status == 0 or err.count("mt: ") == 1, (number, err)
