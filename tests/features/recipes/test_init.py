import gzip
import json
import re
import signal
from types import SimpleNamespace

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from mt_cli.cli import init as beginning
from mt_cli.config.loading import load_config
from mt_cli.config.sources import FolderSource, HeldOut
from mt_cli.corpus.cache import Cache
from mt_cli.errors import MtError
from mt_cli.features.recipes.auto import resolve_preset


@pytest.fixture(autouse=True)
def without_bf16(monkeypatch):
    """Models of presets are trained in fp32: bf16 takes minutes where an environment variable limits the kernels."""
    for module in ("machine.devices", "training.optimizer"):
        monkeypatch.setattr(f"mt_cli.{module}.has_fast_bf16", lambda device: False)


@pytest.fixture
def auto(tiny_tree, corpus, tmp_path):
    """A config with `preset: auto`, of two epochs in small batches of 120 pairs."""
    for side in ("en", "xx"):
        lines = (corpus / f"train.{side}").read_text(encoding="utf-8").splitlines(keepends=True)[:120]
        (tmp_path / f"train.{side}").write_text("".join(lines), encoding="utf-8")
    del tiny_tree["model"], tiny_tree["corpus"]["test"]
    tiny_tree["corpus"]["train"] = {"files": ["train.en", "train.xx"]}
    tiny_tree |= {"preset": "auto", "decoding": {"beam_size": 1, "max_length": 8}}
    tiny_tree["training"] = {"max_epochs": 2, "batch_tokens": 400, "log_every_steps": 1, "device": "cpu"}
    tiny_tree["training"]["num_pictures"] = 0
    (tmp_path / "auto.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    return "auto.yaml"


def test_a_run_of_preset_auto_says_what_it_chose_and_has_plain_values(mt, auto, tmp_path):
    status, _, err = mt("train", "--config", auto)
    assert status == 0, err
    assert re.search(r"preset auto: 1\d\d pairs", err)
    for words in (
        "tokenizer  algorithm bpe",
        "model      d_model 128",
        "of the config  training.max_epochs 2",
        "expect ",
    ):
        assert f"\n  {words}" in err
    path = tmp_path / "runs/tiny/config.yaml"
    config = load_config(path)
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["preset"] is None
    assert (config.tokenizer.algorithm, config.tokenizer.shared, config.model.d_model) == ("bpe", True, 128)
    assert (config.training.max_epochs, config.training.batch_tokens) == (2, 400)
    status, _, err = mt("train", "--config", "runs/tiny/config.yaml")
    assert (status, "preset" in err, "This run is finished" in err) == (0, False, True)


def test_a_run_of_preset_auto_resumes_with_the_values_it_began_with(mt, auto, tmp_path, assert_same_run):
    common = ("train", "--config", auto, "--set", "training.schedule=constant")
    assert mt(*common)[0] == 0
    for name, stopped_by in (("epochs", "training.max_epochs=1"), ("minutes", "training.max_minutes=0.001")):
        assert mt(*common, "--set", f"name={name}", "--set", stopped_by)[0] == 0
        status, _, err = mt(*common, "--set", f"name={name}")
        assert status == 0, err
        assert "Resuming from step" in err and "preset" not in err
        assert_same_run(tmp_path / "runs" / name, tmp_path / "runs/tiny")


def test_every_command_with_a_config_reads_preset_auto(mt, auto):
    for command in (("tokenize",), ("data", "check"), ("data", "show")):
        status, out, err = mt(*command, "--config", auto)
        assert status == 0, err
        # Pairs are shown without the values that their preset stands for.
        assert ("preset auto: 1" in err) == ("  expect " in err) == (command != ("data", "show"))
        assert "preset" not in out


ENGLISH = ["the", "dog", "and", "a", "cat", "of", "two", "are", "in", "on", "with", "house", "who"]
GERMAN = ["der", "Hund", "und", "eine", "Katze", "von", "zwei", "sind", "in", "auf", "mit", "Haus", "wer"]


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
    write_files(folder / "data", "val", pairs(9, 100))
    write_files(folder / "data", "test_2016", pairs(9, 120))
    write_files(folder / "data", "test_2017", pairs(9, 140))
    write_files(folder / "data", "test_2018", pairs(9, 160), ("en", "fr"))
    return ("--files", "data/train.en", "data/train.de"), {
        "train": {"files": ["data/train.en", "data/train.de"]},
        "valid": {"files": ["data/val.en", "data/val.de"]},
        "test": {"files": ["data/test_2016.en", "data/test_2016.de"]},
        "extra_tests": {"test_2017": {"files": ["data/test_2017.en", "data/test_2017.de"]}},
    }


def compressed_files(folder):
    write_files(folder, "pairs", pairs(90), ("en.gz", "de.gz"))
    return ("--files", "pairs.en.gz", "pairs.de.gz"), {"train": {"files": ["pairs.en.gz", "pairs.de.gz"]}}


def files_named_after_nothing(folder):
    write_files(folder, "left", pairs(90), ("txt", "ref"))
    return ("--files", "left.txt", "left.ref"), {"train": {"files": ["left.txt", "left.ref"]}}


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
    arguments = ("--file", "t.tsv.gz", "--source-language", "en")
    return arguments, {"train": {"file": "t.tsv.gz"}}


def table_with_other_heading(folder):
    (folder / "train.csv").write_text("".join(f"{a},{b}\n" for a, b in [("source", "target"), *pairs(90)]))
    (folder / "dev.csv").write_text("".join(f"{a},{b}\n" for a, b in [("source", "target"), *pairs(9, 100)]))
    columns = {"columns": ["source", "target"]}
    return ("--file", "train.csv"), {"train": {"file": "train.csv", **columns}, "valid": {"file": "dev.csv", **columns}}


def table_without_heading(folder):
    (folder / "t.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs(90)))
    return ("--file", "t.tsv"), {"train": {"file": "t.tsv"}}


def lines_of_json(folder):
    rows = [{"id": str(n), "translation": {"en": a, "de": b}} for n, (a, b) in enumerate(pairs(90))]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ("--file", "t.jsonl"), {"train": {"file": "t.jsonl"}}


def parquet_of_two_columns(folder):
    sources, targets = zip(*pairs(90), strict=True)
    parquet.write_table(pa.table({"question": sources, "answer": targets}), folder / "t.parquet")
    return ("--file", "t.parquet"), {"train": {"file": "t.parquet", "columns": ["question", "answer"]}}


def hub_folder(folder):
    """As `Helsinki-NLP/opus_books` is laid out, with more splits."""
    (folder / "books" / "en-de").mkdir(parents=True)
    splits = {"train": pairs(90), "validation": pairs(9, 100), "test": pairs(9, 120)}
    for split, rows in splits.items():
        tree = [{"id": str(n), "translation": {"en": a, "de": b}} for n, (a, b) in enumerate(rows)]
        parquet.write_table(pa.Table.from_pylist(tree), folder / f"books/en-de/{split}-00000-of-00001.parquet")
    data = {"dataset": "books", "subset": "en-de"}
    return ("--dataset", "books", "--subset", "en-de"), {
        "train": {**data, "split": "train"},
        "valid": {**data, "split": "validation"},
        "test": {**data, "split": "test"},
    }


@pytest.mark.parametrize(
    "make",
    [
        files_with_neighbours,
        memory,
        table_with_languages,
        hub_folder,
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in (
                compressed_files,
                files_named_after_nothing,
                table_with_other_heading,
                table_without_heading,
                lines_of_json,
                parquet_of_two_columns,
            )
        ),
    ],
)
def test_what_init_wrote_trains_without_an_edit(mt, tmp_path, make):
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
        found = corpus[key]
        assert found == value or found | {"split": "train"} == value
    assert corpus.keys() == (given | expected).keys()
    briefly = ("training.max_steps=1", "decoding.beam_size=1", "decoding.max_length=5", "training.num_pictures=0")
    status, _, err = mt("train", "--config", "new.yaml", *(part for each in briefly for part in ("--set", each)))
    assert status == 0, err
    assert "preset" not in err


def test_init_writes_what_preset_auto_chooses(mt, tmp_path):
    write_files(tmp_path, "train", pairs(90))
    assert mt("init", "--files", "train.en", "train.de", "--output", "here.yaml", "--name", "new")[0] == 0
    tree = {
        "name": "new",
        "preset": "auto",
        "corpus": yaml.safe_load((tmp_path / "here.yaml").read_text(encoding="utf-8"))["corpus"],
    }
    (tmp_path / "auto.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    config, _ = resolve_preset(load_config(tmp_path / "auto.yaml"), Cache(tmp_path / "cache"))
    assert config == load_config(tmp_path / "here.yaml")


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
        assert (status, out) == (2, "")
        assert "exists already and is not overwritten" in err
        assert "reading" not in err
    assert (tmp_path / "new.yaml").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "missing").exists()


def test_init_takes_other_files_for_evaluation_and_one_for_each_side(mt, tmp_path):
    sources, targets = zip(*pairs(90), strict=True)
    for names in (("books.en.txt", "books.de.txt"), ("test.en", "test.de")):
        for name, lines in zip(names, (sources, targets), strict=True):
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "dev.txt").write_text("one file\n" * 90)
    for names in (("books.en.txt", "books.de.txt"), ("test.en", "test.de")):
        assert mt("init", "--files", *names, "--output", f"{names[0]}.yaml", "--name", "new")[0] == 0
        corpus = yaml.safe_load((tmp_path / f"{names[0]}.yaml").read_text(encoding="utf-8"))["corpus"]
        assert set(corpus) == {"source", "target", "train", "valid"}
        assert corpus["valid"] == {"fraction": 0.1, "seed": 1}


def test_a_config_that_cannot_be_written_leaves_no_file(tmp_path):
    resource = pytest.importorskip("resource", reason="this system has no limits of file sizes")
    former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
        with pytest.raises(MtError, match=r"file too large; give another file with --output") as raised:
            beginning._write(tmp_path / "new.yaml", "x" * 100_000)
        assert raised.value.exit_code == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, former)
    assert not (tmp_path / "new.yaml").exists()


def test_a_folder_of_catalogues_is_a_corpus(mt, tmp_path):
    for name, rows in {"one": pairs(60), "more/two": pairs(40, 60)}.items():
        path = tmp_path / f"po/{name}.po"
        path.parent.mkdir(parents=True, exist_ok=True)
        messages = (f'msgid "{source}"\nmsgstr "{target}"\n' for source, target in rows)
        path.write_text("\n".join(messages), encoding="utf-8")
    status, out, err = mt("init", "po")
    assert status == 0, err
    corpus = load_config(tmp_path / out.strip()).corpus
    assert (corpus.source, corpus.target) == ("en", "de")
    assert corpus.train[0] == FolderSource(folder="po", pattern="**/*.po")
    for arguments in (("po",), ("--config", out.strip())):
        status, out_of_check, err = mt("data", "check", *arguments, "--json")
        assert status == 0, err
        assert next(row for row in json.loads(out_of_check)["corpora"])["num_read"] == 100
    shown = mt("data", "show", "po", "-n", "100")[1]
    assert "po, one.po, line 1\n" in shown and "po, more/two.po, line 1\n" in shown
    (tmp_path / "po/a.tsv").write_text("a\tb\n", encoding="utf-8")
    assert "several formats (2 .po, 1 .tsv)" in mt("init", "po")[2]
    (tmp_path / "empty").mkdir()
    assert "empty: has no files with both sides" in mt("init", "empty")[2]
    assert "none: no such folder" in mt("data", "check", "none")[2]


def test_lines_about_choices_are_broken_between_words_on_a_terminal_alone(monkeypatch):
    line = "  model      d_model 128 (size tiny: fits this number of pairs); tie_embeddings all (one vocabulary)"
    assert beginning._fitted_to_terminal(line) == line
    monkeypatch.setattr(beginning.sys, "stderr", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("COLUMNS", "60")
    first, *others = beginning._fitted_to_terminal(line).splitlines()
    assert first.startswith("  model      d_model") and all(each.startswith(" " * 13) for each in others)
    assert max(map(len, [first, *others])) <= 60
    assert " ".join([first.strip(), *(each.strip() for each in others)]).split() == line.split()


def test_files_need_no_option(mt, tmp_path):
    write_files(tmp_path, "train", pairs(90))
    table_with_languages(tmp_path)
    assert mt("init", "train.en", "train.de", "--output", "a.yaml")[0] == 0
    assert mt("init", "--files", "train.en", "train.de", "--output", "b.yaml")[0] == 0
    assert load_config(tmp_path / "a.yaml") == load_config(tmp_path / "b.yaml")
    status, _, err = mt("init", "train.en", "train.de", "train.fr")
    assert status == 2 and "train.fr: give a FOLDER, or one of --files" in err


def test_init_takes_the_columns_the_split_and_the_files_that_it_is_given(mt, tmp_path):
    (tmp_path / "books").mkdir()
    for name, rows in (("books/dev.tsv", pairs(90)), ("books/test.tsv", pairs(9, 120)), ("pairs.tsv", pairs(90))):
        lines = ["en\tde\tid\n", *(f"{a}\t{b}\t{number}\n" for number, (a, b) in enumerate(rows))]
        (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    assert mt("init", "--file", "pairs.tsv", "--columns", "de", "en", "--output", "a.yaml")[0] == 0
    corpus = load_config(tmp_path / "a.yaml").corpus
    assert (corpus.source, corpus.target, corpus.train[0].columns) == ("de", "en", ("de", "en"))
    given = ("--split", "validation", "--data-files", "dev.tsv", "--columns", "en", "de")
    assert mt("init", "--dataset", "books", *given, "--output", "b.yaml")[0] == 0
    corpus = load_config(tmp_path / "b.yaml").corpus
    assert (corpus.train[0].split, corpus.train[0].data_files) == ("validation", "dev.tsv")
    assert isinstance(corpus.valid[0], HeldOut), "a split is for training or for validation"
    assert mt("init", "--dataset", "books", "--split", "validation", "--output", "c.yaml")[0] == 0
    corpus = load_config(tmp_path / "c.yaml").corpus
    assert isinstance(corpus.valid[0], HeldOut) and corpus.test[0].split == "test"


def test_every_shipped_config_can_be_written_as_an_example(mt, root, tmp_path):
    for path in (root / "configs").glob("*.yaml"):
        status, out, err = mt("init", "--example", path.stem)
        assert (status, out) == (0, f"{path.name}\n"), err
        assert load_config(tmp_path / path.name) == load_config(path)
    status, _, err = mt("init", "--example", "fastest")
    assert status == 2
    assert "--example fastest: unknown; there are multi30k_en_de, my_files" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a FOLDER, or one of --files"),
        (("a.en", "a.de"), "a.en: no such file"),
        (("a.en", "--dataset", "x"), "a.en: give a FOLDER, or one of --files"),
        (
            ("--files", "a.en", "a.it", "--valid", "v.en", "v.it"),
            "--example NAME; for a second file, repeat the option: --valid v.it",
        ),
        (("--files", "a.en", "--name"), "give two files"),
        (("--files", "a.en", "--name", "x"), "--files a.en --name: give two files"),
        (("--files", "a.en", "-h"), "--files a.en -h: give two files"),
        (("--file", "a.tsv", "--example", "quickstart"), "give a FOLDER, or one of --files"),
        (("--file", "a.tsv", "--subset", "x"), "--subset: only a --dataset has it"),
        (
            ("--files", "train.en", "train.de", "--columns", "a", "b"),
            "--columns: only a --file or a --dataset has columns",
        ),
        (("--file", "three.jsonl", "--columns", "en", "it"), "three.jsonl: no column 'it' among en, de, fr"),
        (("--example", "quickstart", "--name", "x"), "--example: an example has a name"),
        (("--files", "missing.en", "missing.de"), "missing.en: no such file"),
        (("--files", "train.en"), "requires 2 arguments"),
        (("--files", "a b.po", "b.po"), "a .po file holds both languages; type mt init --file 'a b.po' for this file"),
        (("train.en", "de.tmx.gz"), "a .tmx file holds both languages; type mt init --file de.tmx.gz for"),
        (("--files", "train.en", "train.de", "--output", "none/c.yaml"), "none: no such folder"),
        (("--files", "train.en", "short.de"), "train.en has 90 lines and short.de has 89"),
        (("--files", "empty.en", "empty.de"), "empty.en and empty.de: the corpus is empty"),
        (("--file", "train.en"), "train.en: unknown format; use one of .tsv"),
        (("--file", "missing.tmx"), "missing.tmx: no such file"),
        (("--file", ""), "--file: a name is empty"),
        (("--dataset", ""), "--dataset: a name is empty"),
        (("--files", "train.en", "train.de", "--name", ""), "--name '': use letters, digits"),
        (("--files", "train.en", "train.de", "--name", "a b"), "--name 'a b': use letters, digits"),
        (("--files", "few.en", "few.de"), "few.en and few.de: 3 pairs are too few to hold some of them out"),
        (("--dataset", "nowhere"), "dataset nowhere: is not downloaded"),
        (("--files", "train.en", "strange.x"), "the language of the target is neither in names nor recognised"),
        (("--file", "three.jsonl"), "there are the languages en, de, fr; choose with --source-language and --target"),
        (("--file", "odd.jsonl"), "which of its columns a, b, c are source and target is not clear"),
        (("--file", "numbers.csv"), "numbers.csv: the source has no letters in the first 90 pairs; if the file has"),
        (("--file", "m.tmx", "--source-language", "en", "--target-language", "fr"), "fr: there is no text in it"),
        (("--files", "swapped.en", "swapped.de"), "the source seems to be de and the target en; exchange them"),
        (("--files", "train.en", "train.de", "--source-language", "english"), "english: not a language code"),
    ],
)
def test_what_init_cannot_use_or_know_is_an_error_that_says_what_to_give(mt, offline, tmp_path, arguments, message):
    write_files(tmp_path, "train", pairs(90))
    write_files(tmp_path, "short", pairs(89))
    write_files(tmp_path, "empty", [])
    write_files(tmp_path, "few", pairs(3))
    write_files(tmp_path, "strange", [("x", f"zyx {n} vut") for n in range(90)], ("y", "x"))
    write_files(tmp_path, "swapped", [row[::-1] for row in pairs(90)])
    memory(tmp_path)
    (tmp_path / "numbers.csv").write_text("".join(f"{n},{a},{b}\n" for n, (a, b) in enumerate(pairs(90))))
    for name, keys in (("three", ("en", "de", "fr")), ("odd", ("a", "b", "c"))):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(dict.fromkeys(keys, "text")) + "\n")
    status, out, err = mt("init", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert not list(tmp_path.glob("*.yaml"))


def test_a_heading_may_have_the_english_names_of_the_languages(mt, tmp_path):
    lines = ["German,English", *(f"der Hund {number} und ich,the dog {number} and I" for number in range(30))]
    (tmp_path / "pairs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ("init", "--file", "pairs.csv", "--source-language", "en", "--target-language", "de", "--name", "t")
    status, _, err = mt(*command)
    assert status == 0, err
    config = load_config(tmp_path / "t.yaml")
    assert config.corpus.languages == ("en", "de")
    assert config.corpus.train[0].columns == ("English", "German")
    assert mt("init", "--file", "pairs.csv", "--name", "u")[0] == 0
    assert load_config(tmp_path / "u.yaml").corpus.languages == ("de", "en")


def test_the_same_text_on_both_sides_is_refused(mt, tmp_path):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("the same\n" * 20, encoding="utf-8")
    status, _, err = mt("init", "--files", "a.en", "a.de")
    assert (status, "both sides are the same text" in err) == (2, True), err


def write_catalogue(path, language, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = f'msgid ""\nmsgstr ""\n"Language: {language}\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    messages = (f'msgid "{source}"\nmsgstr "{target}"\n' for source, target in rows)
    path.write_text(header + "\n".join(messages), encoding="utf-8")


def test_the_header_of_a_catalogue_names_its_target_language(mt, tmp_path):
    rows = [(f"the open window of house {n}", f"xq zv {n}") for n in range(40)]
    write_catalogue(tmp_path / "po/ay.po", "ay", rows)
    status, _, err = mt("init", "po", "--name", "first")
    assert status == 0 and "languages: en to ay (en recognised by its words, ay from the header)" in err
    assert mt("init", "--file", "po/ay.po", "--name", "second", "--target-language", "qu")[0] == 0
    assert load_config(tmp_path / "second.yaml").corpus.target == "qu", (
        "an option is above a header, which may be wrong"
    )


def test_the_modifier_of_a_locale_is_a_script(mt, tmp_path):
    write_catalogue(
        tmp_path / "sr.po", "sr@latin", [(f"the open window of house {n}", f"kuća je {n}") for n in range(40)]
    )
    assert "sr_Latn from the header" in mt("init", "--file", "sr.po", "--name", "sr")[2]


def test_one_wrong_header_among_many_catalogues_is_ignored(mt, tmp_path):
    for number, language in enumerate([*["de"] * 60, "it"]):
        write_catalogue(tmp_path / f"po/{number}.po", language, pairs(3, number * 3))
    assert "de from the header" in mt("init", "po")[2]


def test_catalogues_of_several_languages_are_no_corpus(mt, tmp_path):
    for number, language in enumerate(["de", "de_DE", *["it"] * 30]):
        write_catalogue(tmp_path / f"po/{language}/{number}.po", language, pairs(3, number * 3))
    for arguments in (("po",), ("po", "--target-language", "de")):
        status, _, err = mt("init", *arguments)
        assert status == 2 and "has translations into" in err and "it" in err.split("into")[1]
    assert mt("init", "po/de", "--name", "x", "--source-language", "en")[0] in (0, 2)
    assert "has translations into" not in mt("init", "po/de", "--name", "y", "--source-language", "en")[2]
