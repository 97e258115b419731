"""`mt init`: what it writes, and what it refuses."""

import gzip
import json
import re

import pyarrow as pa
import pytest
import yaml
from corpora import sentences
from pyarrow import parquet

from mt_cli.config.loading import load_config
from mt_cli.config.sources import FolderSource, HeldOut


def pairs(number, first=0):
    return sentences(200)[first : first + number]


def write_files(folder, name, rows, suffixes=("en", "de")):
    folder.mkdir(exist_ok=True)
    for side, suffix in enumerate(suffixes):
        text = "".join(row[side] + "\n" for row in rows).encode()
        path = folder / f"{name}.{suffix}"
        path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)


def files_with_neighbours(folder):
    write_files(folder / "data", "train", pairs(90))
    for name, first in (("val", 100), ("test", 120), ("test_2017", 140)):
        write_files(folder / "data", name, pairs(9, first))
    return ("--files", "data/train.en", "data/train.de"), {
        "train": {"files": ["data/train.en", "data/train.de"]},
        "valid": {"files": ["data/val.en", "data/val.de"]},
        "test": {"files": ["data/test.en", "data/test.de"]},
    }


def memory(folder):
    def unit(row):
        sides = zip(("en-US", "de-DE"), row, strict=True)
        return "<tu>" + "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in sides) + "</tu>"

    units = "".join(map(unit, pairs(90)))
    (folder / "m.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>', encoding="utf-8")
    return ("--file", "m.tmx"), {"train": {"file": "m.tmx"}}


def hub_folder(folder):
    """Files as `Helsinki-NLP/opus_books` has them, with more splits."""
    (folder / "books" / "en-de").mkdir(parents=True)
    for split, rows in {"train": pairs(90), "validation": pairs(9, 100), "test": pairs(9, 120)}.items():
        tree = [{"id": str(n), "translation": {"en": a, "de": b}} for n, (a, b) in enumerate(rows)]
        parquet.write_table(pa.Table.from_pylist(tree), folder / f"books/en-de/{split}-00000-of-00001.parquet")
    data = {"dataset": "books", "subset": "en-de"}
    splits = {"train": "train", "valid": "validation", "test": "test"}
    return ("--dataset", "books", "--subset", "en-de"), {role: {**data, "split": s} for role, s in splits.items()}


@pytest.mark.parametrize("make", [files_with_neighbours, memory, hub_folder])
def test_init_writes_the_corpus_and_values_with_reasons(mt, tmp_path, make):
    arguments, expected = make(tmp_path)
    status, out, err = mt("init", *arguments, "--name", "new")
    assert status == 0, err
    assert (out, "Next:  mt data check --config new.yaml" in err) == ("new.yaml\n", True)
    text = (tmp_path / "new.yaml").read_text(encoding="utf-8")
    values = [line for line in text.partition("tokenizer:")[2].splitlines() if line.startswith("  ")]
    assert len(values) > 12 and all("  # " in line for line in values)
    corpus = yaml.safe_load(text)["corpus"]
    given = {"source": "en", "target": "de", "valid": {"fraction": 0.1}}
    for key, value in (given | expected).items():
        assert corpus[key] == value or corpus[key] | {"split": "train"} == value
    assert corpus.keys() == (given | expected).keys()
    config = load_config(tmp_path / "new.yaml")
    assert (config.tokenizer.algorithm, config.tokenizer.shared, config.model.d_model) == ("bpe", True, 128)


@pytest.mark.slow
def test_a_config_of_init_trains_as_long_as_it_says(mt, tmp_path, monkeypatch):
    for module in ("runtime.devices", "training.optimizer"):
        monkeypatch.setattr(f"mt_cli.{module}.has_fast_bf16", lambda device: False)
    arguments, _ = files_with_neighbours(tmp_path)
    assert mt("init", *arguments, "--name", "new")[0] == 0
    planned = re.search(r"max_epochs: \d+  # ([\d,]+) updates", (tmp_path / "new.yaml").read_text(encoding="utf-8"))
    changes = ("training.patience=null", "training.tune_decoding=false", "decoding.beam_size=1", "model.d_model=16")
    changes += ("model.d_ff=16", "decoding.max_length_ratio=0.1")
    status, _, err = mt("train", "--config", "new.yaml", *(part for each in changes for part in ("--set", each)))
    assert status == 0, err
    report = json.loads((tmp_path / "runs/new/report.json").read_text(encoding="utf-8"))
    assert report["stopped_because"].startswith("max_epochs") and f"{report['num_steps']:,}" == planned[1]


def test_init_never_overwrites_a_file(mt, tmp_path):
    write_files(tmp_path, "train", pairs(90))
    (tmp_path / "new.yaml").write_text("mine")
    (tmp_path / "quickstart.yaml").symlink_to("missing")
    for arguments in (("train.en", "train.de", "--name", "new"), ("--example", "quickstart")):
        status, out, err = mt("init", *arguments)
        assert (status, out, "reading" in err) == (2, "", False) and ".yaml: exists already" in err
    assert (tmp_path / "new.yaml").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "missing").exists()


def test_two_files_are_two_sides_and_one_has_both(init, tmp_path):
    for name, first in (("train", 0), ("mine", 60), ("test", 80)):
        write_files(tmp_path, name, pairs(60 if name == "train" else 20, first))
    (tmp_path / "other.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs(20, 120)), encoding="utf-8")
    files = ("--files", "train.en", "train.de")
    _, corpus = init(*files, "--valid", "mine.en", "--valid", "mine.de", "--test", "other.tsv")
    assert (corpus.valid[0].files, corpus.test[0].file) == (("mine.en", "mine.de"), "other.tsv")
    err, corpus = init(*files)
    assert "test: {files: [test.en, test.de]}" in err and isinstance(corpus.valid[0], HeldOut)
    _, corpus = init(*files, "--valid", "test.en", "--valid", "test.de")
    assert corpus.test is None, "a text is for validation or for the test"


def test_a_folder_of_catalogues_is_a_corpus(mt, tmp_path):
    for name, rows in {"one": pairs(60), "more/two": pairs(40, 60)}.items():
        path = tmp_path / f"po/{name}.po"
        path.parent.mkdir(parents=True, exist_ok=True)
        messages = (f'msgid "{source}"\nmsgstr "{target}"\n' for source, target in (("", "Language: de\\n"), *rows))
        path.write_text("\n".join(messages), encoding="utf-8")
    status, out, err = mt("init", "po")
    assert status == 0, err
    corpus = load_config(tmp_path / out.strip()).corpus
    assert corpus.languages == ("en", "de") and corpus.train == (FolderSource(folder="po"),)
    assert "po, more/two.po, line 4\n" in mt("data", "show", "--config", out.strip(), "-n", "100")[1]


def test_every_shipped_config_can_be_written_as_an_example(mt, root, tmp_path):
    for path in (root / "configs").glob("*.yaml"):
        status, out, err = mt("init", "--example", path.stem)
        assert (status, out) == (0, f"{path.name}\n"), err
        assert load_config(tmp_path / path.name) == load_config(path)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("--files train.en short.de", "short.de has 89"),
        ("--files few.en few.de", "few.en and few.de: 3 pairs"),
        ("--files long.en long.de", "corpus.max_tokens"),
        ("--files train.en same.de", "same text"),
        ("--file numbers.csv --source-language en --target-language de", "numbers.csv: the source has no letters"),
        ("--files train.en train.de --valid train.en --valid train.de", "train.en and train.de"),
        ("train.en de.tmx.gz", "de.tmx.gz"),
        ("nowhere", "nowhere: no such file or folder; relative paths"),
        ("train.en train.de --valid short.en", "short.en: not a file with both sides"),
        ("--file empty.jsonl", "empty.jsonl: the file is empty"),
        ("empty.tmx.gz", "empty.tmx.gz: the file is empty"),
        ("table.xlsx", "table.xlsx: is a spreadsheet; save it as CSV"),
        ("numbers.csv --format xml", "--format xml: use tsv, "),
        ("numbers.csv --columns 1 9", "numbers.csv: no column 9 among '0', "),
        ("--files train.en train.de --columns a b", "columns"),
    ],
)
def test_text_that_cannot_be_used_is_named(mt, tmp_path, arguments, named):
    for name, rows in (("train", pairs(90)), ("short", pairs(89)), ("few", pairs(3))):
        write_files(tmp_path, name, rows)
    write_files(tmp_path, "same", [row[:1] * 2 for row in pairs(90)])
    long = [f"{'word ' * 300}{side}{n}" for side in "ab" for n in range(20)]
    write_files(tmp_path, "long", list(zip(long[:20], long[20:], strict=True)))
    for file, content in (("empty.jsonl", b"\n"), ("empty.tmx.gz", gzip.compress(b"")), ("table.xlsx", b"PK\x03\x04")):
        (tmp_path / file).write_bytes(content)
    (tmp_path / "numbers.csv").write_text("".join(f"{n},{a},{b}\n" for n, (a, b) in enumerate(pairs(90))))
    status, out, err = mt("init", *arguments.split())
    assert (status, out) == (2, "") and named in err
    assert not list(tmp_path.glob("*.yaml"))
