"""Whatever is wrong with a command line, a config or data ends with status 2 and one message that names it."""

import gzip
import json
import shutil

import pytest


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
        assert [line[:4] for line in err.splitlines()].count("mt: ") == 1, err
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
    (tmp_path / "packed.txt").write_bytes(gzip.compress(b"one.\n"))
    for folder in ("empty_run", "unfinished", "damaged/checkpoints"):
        (tmp_path / folder).mkdir(parents=True)
    for path in trained.glob("*.*"):
        for folder in ("unfinished", "damaged"):
            (tmp_path / folder / path.name).write_bytes(path.read_bytes())
    config = shutil.copytree(trained, tmp_path / "other") / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("target: xx", "target: yy"), encoding="utf-8")
    (tmp_path / "damaged" / "checkpoints" / "best.safetensors").write_bytes(b"no safetensors")


TRAIN = {
    "--config none.yaml": "none.yaml",
    "--config broken.yaml": "broken.yaml, line 1",
    "--config tiny.yaml --set nonsense": "--set nonsense",
    "--config tiny.yaml --set name=../elsewhere": "name",
    "--config tiny.yaml --set training.device=cuda:99": "cuda:99",
    "--config tiny.yaml --set corpus.max_tokens=1": "corpus.max_tokens 1",
}
RUNS = {
    "a --run none": "none",
    "a --run empty_run": "config.yaml",
    "a --run unfinished": "unfinished",
    "a --run damaged": "best.safetensors",
    "a": "run",
}
INPUTS = {
    "a --input b": "--input",
    "--input .": "mt: .: ",
    "--input latin": "latin, line 2, byte 5",
    "--input /dev/zero": "/dev/zero: ",
    "--input packed.txt": "packed.txt",
}
OPTIONS = {
    "--device tpu": "'tpu'",
    "--interactive": "--interactive",
    "--engine marian": "ctranslate2",
    "--seed 3": "seed",
    "--set decoding.topp=0.3": "`top_p`",
    "--set decoding=5": "decoding",
    "--set decoding.top_p=few --sample": "top_p",
}
EVALUATE = {
    "--source text": "--reference",
    "--against none": "--against none",
    "--against blank": "3 lines for 40 sentences",
    "--against other": "other: translates en to yy",
    "--split exam": "only valid, test",
}
SCORE = {
    "": "--source",
    "a": "a sentence and its translation",
    "a b c": "in quotation marks",
    "--source text": "--target",
    "--source text --target blank": "text has 1 lines and blank 3",
}
TOKENIZE = {"": "sentences", "a --side middle": "--side middle", "a --config tiny.yaml": "--config"}
COMMAND_LINES = {
    "train": TRAIN,
    "translate": RUNS,
    "translate --run RUN": INPUTS,
    "translate a --run RUN": OPTIONS,
    "evaluate --run RUN": EVALUATE,
    "score --run RUN": SCORE,
    "tokenize --run RUN": TOKENIZE,
}


@pytest.mark.parametrize("command", COMMAND_LINES)
def test_a_wrong_command_line_names_what_is_wrong(fails, trained, tiny_config, bad_files, command):
    for words, key in COMMAND_LINES[command].items():
        assert key in fails(*command.replace("RUN", str(trained)).split(), *words.split()), words


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ({"files": ["train.en", "short.xx"]}, "near line 12"),  # Line 121 has lost its translation.
        ({"files": ["latin", "train.en"]}, "latin, line 2, byte 5"),
        ({"files": ["empty", "empty"]}, "corpus.train"),
        ({"file": "pairs.tsv"}, "pairs.tsv, line 2"),
        ({"file": "pairs.docx"}, "pairs.docx"),
        ({"dataset": "org/nothing", "subset": "en-xx"}, "HF_HUB_OFFLINE"),
    ],
)
def test_a_corpus_that_cannot_be_read_is_named(fails, offline, tiny_config, bad_files, source, key):
    assert key in fails("train", "--config", tiny_config, "--set", f"corpus.train={json.dumps(source)}")


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ("translate --input latin --run RUN", "latin, line 2"),
        ("translate --input text --run RUN --output none/out", "none/out"),
        ("translate --input text --run RUN", "at most"),
        ("train --config tiny.yaml", "at most"),
    ],
)
def test_a_wrong_command_starts_no_processes(fails, trained, tiny_config, bad_files, monkeypatch, arguments, key):
    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", None)
    assert key in fails(*arguments.replace("RUN", str(trained)).split(), "--devices", "100000")
