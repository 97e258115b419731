"""Whatever is wrong with a command line, a config or data ends with status 2 and one message that names it."""

import gzip
import json
import shutil

import pytest
import typer
from command_lines import COMMANDS

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
    contents = {"latin": b"good\nbad \xe9 line\n", "mac.txt": b"one.\rtwo.\rthree.\r", "plain.gz": b"one.\n"}
    for name, content in (contents | {"packed.txt": gzip.compress(b"one.\n")}).items():
        (tmp_path / name).write_bytes(content)
    for folder in ("hub", "empty_run", "unfinished", "damaged/checkpoints", "runs/quick"):
        (tmp_path / folder).mkdir(parents=True)
    for path in trained.glob("*.*"):
        for folder in ("unfinished", "damaged"):
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    config = shutil.copytree(trained, tmp_path / "other") / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("target: xx", "target: yy"), encoding="utf-8")
    (tmp_path / "damaged" / "checkpoints" / "best.safetensors").write_bytes(b"no safetensors")


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("train --config none.yaml", "none.yaml"),
        ("train --config broken.yaml", "broken.yaml, line 1"),
        ("train --config tiny.yaml --set nonsense", "--set nonsense"),
        *((f"train --config tiny.yaml --set name={name}", "name") for name in ("../elsewhere", "/elsewhere", "a/b")),
        ("train --config tiny.yaml --set training.device=cuda:99", "cuda:99"),
        ("train --config tiny.yaml --set corpus.max_tokens=1", "corpus.max_tokens 1"),
        ("train --config tiny.yaml --progress loud", "use auto, bar, plain, none"),
        ("translate hello --run none", "none"),
        ("translate hello --run quik", "did you mean runs/quick?"),
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
        ("translate --input mac.txt --run RUN", "mac.txt"),
        ("translate --input plain.gz --run RUN", "plain.gz"),
        ("translate --input packed.txt --run RUN", "packed.txt"),
        ("translate a --device tpu --run RUN", "'tpu'"),
        ("translate a --interactive --run RUN", "--interactive"),
        ("translate a --engine marian --run RUN", "ctranslate2"),
        ("translate a --unk guess --run RUN", "copy"),
        ("translate a --seed 3 --run RUN", "seed"),
        ("translate a --set decoding.top_k=3 --run RUN", "--sample"),
        ("translate a --set decoding.topk=3 --run RUN", "`top_k`"),
        ("translate a --set decoding.top_k=few --sample --run RUN", "top_k"),
        ("translate a --set training.seed=3 --run RUN", "decoding"),
        ("translate a --set decoding.min_length=5 --set decoding.max_length=3 --run RUN", "min_length"),
        ("tokenize", "sentences"),
        ("tokenize a --side middle --run RUN", "--side middle"),
        ("tokenize a --config tiny.yaml", "--config"),
        ("evaluate --source text --run RUN", "--reference"),
        ("evaluate --run RUN --against none", "--against none"),
        ("evaluate --run RUN --against blank", "3 lines for 40 sentences"),
        ("evaluate --run RUN --against other", "other: translates en to yy"),
        ("evaluate --run RUN --split exam", "only valid, test"),
        ("evaluate --run RUN --num-resamples 0", "--num-resamples"),
        ("evaluate --run RUN --num-resamples 100001", "--num-resamples"),
        ("score --run RUN", "--source"),
        ("score a --run RUN", "a sentence and its translation"),
        ("score a b c --run RUN", "3"),
        ("score --source text --run RUN", "--target"),
        ("score --source text --target blank --run RUN", "text has 1 lines and blank 3"),
    ],
)
def test_a_wrong_command_line_names_what_is_wrong(fails, trained, tiny_config, bad_files, command, key):
    assert key in fails(*command.replace("RUN", str(trained)).split())


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
        ({"files": ["a\0b", "c"]}, "corpus.train.files: found a NUL character"),
        ({"file": "a\0.tsv"}, "corpus.train.file: found a NUL character"),
        ({"dataset": "a\0b"}, "corpus.train.dataset: found a NUL character"),
    ],
)
def test_a_corpus_that_cannot_be_read_is_named(fails, offline, tiny_config, bad_files, source, key):
    assert key in fails("train", "--config", tiny_config, "--set", f"corpus.train={json.dumps(source)}")


def test_a_missing_corpus_says_from_which_folder_its_path_is_read(fails, offline, tiny_config, tmp_path):
    command = ("train", "--config", tiny_config, "--set")
    for source in ("{files: [a.en, a.xx]}", "{file: a.parquet}"):
        assert f"; relative paths are read from {tmp_path}\n" in fails(*command, f"corpus.train={source}")
    assert "relative" not in fails(*command, f"corpus.train={{file: {tmp_path}/a.tsv}}")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ("translate --input latin --run RUN", "latin, line 2"),
        ("translate --run RUN", "--input"),
        ("translate --input text --run none", "none"),
        ("translate --input text --run RUN --checkpoint other", "checkpoint other"),
        ("translate --input text --run RUN --device tpu", "'tpu'"),
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
