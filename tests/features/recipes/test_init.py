"""`mt init`: what it writes, and what it refuses."""

import gzip
import json
import random
import signal

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from mt_cli.config.loading import load_config
from mt_cli.config.sources import FolderSource, HeldOut
from mt_cli.corpus.cache import Cache
from mt_cli.features.recipes.auto import resolve_preset
from mt_cli.features.recipes.init import write_config
from mt_cli.features.recipes.request import Request

LANGUAGES = ("--source-language", "en", "--target-language", "de")
ENGLISH = ["the", "dog", "and", "a", "cat", "of", "two", "are", "in", "on", "with", "house", "who"]
GERMAN = ["der", "Hund", "und", "eine", "Katze", "von", "zwei", "sind", "in", "auf", "mit", "Haus", "wer"]


@pytest.fixture(autouse=True)
def without_bf16(monkeypatch):
    """Models of presets are trained in fp32: bf16 takes minutes where an environment variable limits the kernels."""
    for module in ("machine.devices", "training.optimizer"):
        monkeypatch.setattr(f"mt_cli.{module}.has_fast_bf16", lambda device: False)


def pairs(number, first=0):
    chosen = [[(index * 7 + offset * (1 + index % 5)) % 13 for offset in range(5 + index % 9)] for index in range(200)]
    return [
        tuple(" ".join(words[each] for each in row) + f" {index}" for words in (ENGLISH, GERMAN))
        for index, row in enumerate(chosen)
    ][first : first + number]


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


def table_with_languages(folder):
    rows = [("de", "note", "en"), *((target, "x", source) for source, target in pairs(90))]
    (folder / "t.tsv.gz").write_bytes(gzip.compress("".join("\t".join(row) + "\n" for row in rows).encode()))
    return ("--file", "t.tsv.gz", "--source-language", "en"), {"train": {"file": "t.tsv.gz"}}


def hub_folder(folder):
    """Files as `Helsinki-NLP/opus_books` has them, with more splits."""
    (folder / "books" / "en-de").mkdir(parents=True)
    for split, rows in {"train": pairs(90), "validation": pairs(9, 100), "test": pairs(9, 120)}.items():
        tree = [{"id": str(n), "translation": {"en": a, "de": b}} for n, (a, b) in enumerate(rows)]
        parquet.write_table(pa.Table.from_pylist(tree), folder / f"books/en-de/{split}-00000-of-00001.parquet")
    data = {"dataset": "books", "subset": "en-de"}
    splits = {"train": "train", "valid": "validation", "test": "test"}
    return ("--dataset", "books", "--subset", "en-de"), {role: {**data, "split": s} for role, s in splits.items()}


@pytest.mark.parametrize("make", [files_with_neighbours, memory, table_with_languages, hub_folder])
def test_the_config_that_init_wrote_trains_without_an_edit(mt, tmp_path, make):
    arguments, expected = make(tmp_path)
    status, out, err = mt("init", *arguments, "--name", "new")
    assert status == 0, err
    assert (out, "Next:  mt train --config new.yaml" in err) == ("new.yaml\n", True)
    text = (tmp_path / "new.yaml").read_text(encoding="utf-8")
    values = [line for line in text.partition("tokenizer:")[2].splitlines() if line.startswith("  ")]
    assert len(values) > 12 and all("  # " in line for line in values)
    corpus = yaml.safe_load(text)["corpus"]
    given = {"source": "en", "target": "de", "valid": {"fraction": 0.1, "seed": 1}}
    for key, value in (given | expected).items():
        assert corpus[key] == value or corpus[key] | {"split": "train"} == value
    assert corpus.keys() == (given | expected).keys()
    briefly = ("training.max_steps=1", "decoding.beam_size=1", "decoding.max_length=5", "training.num_pictures=0")
    status, _, err = mt("train", "--config", "new.yaml", *(part for each in briefly for part in ("--set", each)))
    assert status == 0, err
    assert "preset" not in err


def test_init_writes_what_preset_auto_chooses(mt, tmp_path):
    write_files(tmp_path, "train", pairs(90))
    assert mt("init", "train.en", "train.de", "--output", "here.yaml", "--name", "new")[0] == 0
    corpus = yaml.safe_load((tmp_path / "here.yaml").read_text(encoding="utf-8"))["corpus"]
    tree = {"name": "new", "preset": "auto", "corpus": corpus}
    (tmp_path / "auto.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    config, _ = resolve_preset(load_config(tmp_path / "auto.yaml"), Cache(tmp_path / "cache"))
    assert config == load_config(tmp_path / "here.yaml")


def test_one_function_writes_the_config_of_the_command(mt, tmp_path):
    write_files(tmp_path, "train", pairs(90))
    path, files = tmp_path / "a.yaml", {"files": ("train.en", "train.de")}
    assert write_config(files, ("en", None), {}, tmp_path / "runs", Request(name="new"), path) == path
    assert mt("init", "--files", "train.en", "train.de", "--name", "new", "--output", "b.yaml")[0] == 0
    assert load_config(tmp_path / "a.yaml") == load_config(tmp_path / "b.yaml")


def test_init_never_overwrites_a_file(mt, tmp_path):
    write_files(tmp_path, "train", pairs(90))
    (tmp_path / "new.yaml").write_text("mine")
    (tmp_path / "quickstart.yaml").symlink_to("missing")
    for arguments in (
        ("--files", "train.en", "train.de", "--name", "new"),
        ("--files", "train.en", "train.de", "--output", "new.yaml"),
        ("--example", "quickstart"),
    ):
        status, out, err = mt("init", *arguments)
        assert (status, out, "reading" in err) == (2, "", False) and ".yaml: exists already" in err
    assert (tmp_path / "new.yaml").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "missing").exists()


def test_two_files_are_two_sides_and_one_file_has_both(init, tmp_path):
    for name, first in (("train", 0), ("mine", 60), ("test", 80)):
        write_files(tmp_path, name, pairs(60 if name == "train" else 20, first))
    rows = [f"{a}\t{b}" for a, b in pairs(20, 120)]
    (tmp_path / "other.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    files = ("--files", "train.en", "train.de")
    err, corpus = init(*files, "--valid", "mine.en", "--valid", "mine.de", "--test", "other.tsv")
    for line in (
        "languages: en to de (en from a name, de from a name)",
        "train: train.en and train.de",
        "valid: mine.en and mine.de, from --valid",
        "test: other.tsv, from --test",
    ):
        assert line in err.splitlines()
    assert (corpus.valid[0].files, corpus.test[0].file) == (("mine.en", "mine.de"), "other.tsv")
    err, corpus = init(*files)
    assert "test: test.en and test.de, found by its name" in err and isinstance(corpus.valid[0], HeldOut)
    _, corpus = init(*files, "--valid", "test.en", "--valid", "test.de")
    assert corpus.test is None, "a text is for validation or for the test"


def test_a_folder_of_catalogues_is_a_corpus(mt, tmp_path):
    for name, rows in {"one": pairs(60), "more/two": pairs(40, 60)}.items():
        path = tmp_path / f"po/{name}.po"
        path.parent.mkdir(parents=True, exist_ok=True)
        messages = (f'msgid "{source}"\nmsgstr "{target}"\n' for source, target in (("", "Language: de\\n"), *rows))
        path.write_text("\n".join(messages), encoding="utf-8")
    (tmp_path / "po/package.json").write_text('{"name": "x"}', encoding="utf-8")
    status, out, err = mt("init", "po")
    assert status == 0, err
    corpus = load_config(tmp_path / out.strip()).corpus
    assert corpus.languages == ("en", "de") and corpus.train == (FolderSource(folder="po", pattern="**/*.po"),)
    status, out_of_check, err = mt("data", "check", "--config", out.strip(), "--json")
    assert status == 0, err
    assert next(row for row in json.loads(out_of_check)["corpora"])["num_read"] == 100
    assert "po, more/two.po, line 4\n" in mt("data", "show", "--config", out.strip(), "-n", "100")[1]
    memory(tmp_path / "po")
    assert "several formats (.po, .tmx)" in mt("init", "po")[2]


def test_init_takes_the_columns_the_split_and_the_files_that_it_is_given(init, tmp_path):
    (tmp_path / "books").mkdir()
    for name, rows in (("books/dev.tsv", pairs(90)), ("books/test.tsv", pairs(9, 120)), ("pairs.tsv", pairs(90))):
        lines = ["en\tde\tid\n", *(f"{a}\t{b}\t{number}\n" for number, (a, b) in enumerate(rows))]
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    _, corpus = init("--file", "pairs.tsv", "--columns", "de", "en")
    assert (corpus.languages, corpus.train[0].columns) == (("de", "en"), ("de", "en"))
    given = ("--split", "validation", "--data-files", "dev.tsv", "--columns", "en", "de")
    _, corpus = init("--dataset", "books", *given)
    assert (corpus.train[0].split, corpus.train[0].data_files) == ("validation", "dev.tsv")
    assert isinstance(corpus.valid[0], HeldOut), "a split is for training or for validation"
    _, corpus = init("--dataset", "books", "--split", "validation")
    assert isinstance(corpus.valid[0], HeldOut) and corpus.test[0].split == "test"


def test_every_shipped_config_can_be_written_as_an_example(mt, root, tmp_path):
    for path in (root / "configs").glob("*.yaml"):
        status, out, err = mt("init", "--example", path.stem)
        assert (status, out) == (0, f"{path.name}\n"), err
        assert load_config(tmp_path / path.name) == load_config(path)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "FOLDER"),
        (("a.en", "a.de"), "a.en"),
        (("a.en", "--dataset", "x"), "a.en"),
        (("train.en", "train.de", "train.fr"), "train.fr"),
        (("--files", "train.en", "train.de", "--valid", "v.en", "v.de"), "repeat the option"),
        (("--files", "train.en"), "--files"),
        (("--file", "a.tsv", "--example", "quickstart"), "--example"),
        (("--file", "a.tsv", "--subset", "x"), "unknown key `subset`"),
        (("--files", "train.en", "train.de", "--columns", "a", "b"), "unknown key `columns`"),
        (("--file", "numbers.csv", "--columns", "2", "2"), "columns: both are '2'"),
        (("--files", "train.en", "train.de", "--format", "tsv"), "unknown key `format`"),
        (("--file", "numbers.csv", "--format", "xlsx"), "found 'xlsx'"),
        (("--file", "three.jsonl", "--columns", "en", "it", "--target-language", "it"), "'it'"),
        (("--example", "quickstart", "--name", "x"), "--example"),
        (("--example", "fastest"), "--example fastest"),
        (("--files", "a b.po", "b.po"), "give it alone"),
        (("train.en", "de.tmx.gz"), "de.tmx.gz: a .tmx.gz file holds both languages"),
        (("--files", "train.en", "train.de", "--output", "none/c.yaml"), "none"),
        (("--files", "train.en", "short.de"), "short.de has 89"),
        (("--files", "empty.en", "empty.de"), "empty.en and empty.de"),
        (("--file", "train.en"), "train.en"),
        (("--file", "missing.tmx"), "missing.tmx"),
        (("--file", ""), "corpus.train.file"),
        (("--files", "train.en", "train.de", "--name", "a b"), "name: 'a b' is not a directory name"),
        (("--files", "few.en", "few.de"), "few.en and few.de: 3 pairs"),
        (("--files", "long.en", "long.de"), "corpus.max_tokens"),
        (("--dataset", "nowhere"), "dataset nowhere"),
        (("--files", "train.en", "strange.x"), "--target-language"),
        (("--files", "train.en", "same.de"), "same text"),
        (("--file", "three.jsonl"), "en, de, fr; choose with --source-language"),
        (("--file", "odd.jsonl"), "a, b, c"),
        (("--file", "numbers.csv", *LANGUAGES), "numbers.csv: the source has no letters"),
        (("--file", "m.tmx", "--source-language", "en", "--target-language", "fr"), "fr"),
        (("--files", "train.en", "train.de", "--source-language", "english"), "--source-language english"),
        (("--files", "train.en", "train.de", "--valid", "short.en"), "short.en: unknown format"),
        (("--files", "train.en", "train.de", *("--valid", "short.en") * 3), "--valid short.en"),
        (("--files", "train.en", "train.de", "--test", ""), "corpus.test.file"),
        (("--files", "train.en", "train.de", "--valid", "a.tsv", "--valid", "b.tsv"), "(--valid 'a.tsv')"),
        (("--files", "train.en", "train.de", "--valid", "train.en", "--valid", "train.de"), "train.en and train.de"),
    ],
)
def test_text_and_options_that_init_cannot_use_are_an_error_that_names_them(mt, offline, tmp_path, arguments, named):
    for name, rows in (("train", pairs(90)), ("short", pairs(89)), ("empty", []), ("few", pairs(3))):
        write_files(tmp_path, name, rows)
    write_files(tmp_path, "strange", [("x", f"zyx {n} vut") for n in range(90)], ("y", "x"))
    write_files(tmp_path, "same", [row[:1] * 2 for row in pairs(90)])
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghij", k=5)) for _ in range(5_000)]
    long = [" ".join(generator.choices(words, k=300)) for _ in range(40)] if "long.en" in arguments else ["x"] * 40
    write_files(tmp_path, "long", list(zip(long[:20], long[20:], strict=True)))
    memory(tmp_path)
    (tmp_path / "numbers.csv").write_text("".join(f"{n},{a},{b}\n" for n, (a, b) in enumerate(pairs(90))))
    for name, keys in (("three", ("en", "de", "fr")), ("odd", ("a", "b", "c"))):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(dict.fromkeys(keys, "text")) + "\n")
    status, out, err = mt("init", *arguments)
    assert (status, out) == (2, "")
    assert named in err
    assert not list(tmp_path.glob("*.yaml"))


def test_a_config_that_cannot_be_written_leaves_no_file(mt, tmp_path):
    resource = pytest.importorskip("resource", reason="this system has no limits of file sizes")
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        status, _, err = mt("init", "--example", "quickstart")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)
    assert status == 1 and "quickstart.yaml" in err and not (tmp_path / "quickstart.yaml").exists()


@pytest.mark.parametrize("name", ["1e3", "1_0.5e5", "2026-01-01", "null", "yes"])
def test_a_name_like_a_number_stays_a_name(mt, tmp_path, name):
    write_files(tmp_path, "train", pairs(90))
    assert mt("init", "train.en", "train.de", "--name", name, "--output", "new.yaml")[0] == 0
    assert load_config(tmp_path / "new.yaml").name == name


def test_files_with_odd_names_are_the_files_of_the_config(mt, tmp_path):
    for name in ("a\x85b", "c\u2028 b", "d: #b", "[1e3]", "'\"", "\U0001f600 {x}", "en-\x85name: x", "日本語" * 26):
        write_files(tmp_path, name, pairs(90))
        files = f"{name}.en", f"{name}.de"
        status, _, err = mt("init", *files, "--output", f"{len(name)}.yaml")
        assert status == 0, err
        config = load_config(tmp_path / f"{len(name)}.yaml")
        assert config.corpus.train[0].files == files
        (tmp_path / "runs" / config.name).mkdir()
        (tmp_path / f"{len(name)}.yaml").unlink()


def test_a_part_in_another_orthography_is_left_out_and_named(init, tmp_path):
    generator = random.Random(1)

    def words(number, letters):
        return ["".join(generator.choices(letters, k=12)) for _ in range(number)]

    modern, old = "kwaeiosnt", "cuaeiosnq"
    for name, target in {"train": [*words(1000, modern), *words(500, old)], "dev": words(300, modern)}.items():
        spanish = [f"{word} y una frase" for word in words(len(target), "abcdefghilmnoprstu")]
        write_files(tmp_path, name, list(zip(spanish, target, strict=True)), ("es", "shp"))
    err, corpus = init("--files", "train.es", "train.shp")
    assert "note: train.shp, lines 1,001 to 1,500: letters in shp unlike those of valid" in err
    assert corpus.filters.other_orthography
    comment = "other_orthography: true}  # leaves out train.shp, lines 1,001 to 1,500: spelled otherwise than valid"
    assert comment in (tmp_path / "new.yaml").read_text(encoding="utf-8")
    # Most of `train` is never left out.
    (tmp_path / "dev.shp").write_text("".join(f"{line}\n" for line in words(300, old + "xyz")), encoding="utf-8")
    err, corpus = init("--files", "train.es", "train.shp")
    assert "not left out, as it is most of train" in err and not corpus.filters.other_orthography
