"""`mt init` with `--valid` and `--test`, and with names that text contradicts."""

import json

import pytest
from texts import TEXTS

from mt_cli.config.sources import HeldOut

LINES = {code.partition("_")[0]: text.split("\n") for code, text in TEXTS.items()}
MADE_UP = [f"zyx vut srq pon {n}" for n in range(8)]


def write(folder, name, lines, times=4):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line} {n} {name}\n" for n in range(times) for line in lines), encoding="utf-8")


def write_nested(folder, name, keys=("en", "yor")):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    sides = [[f"{line} {n} {name}" for n in range(4) for line in lines] for lines in (LINES["eng"], MADE_UP)]
    rows = [json.dumps({"translation": dict(zip(keys, pair, strict=True))}) for pair in zip(*sides, strict=True)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_two_files_are_two_sides_and_one_file_has_both(init, tmp_path):
    for name in ("train", "mine", "test"):
        write(tmp_path, f"{name}.en", LINES["eng"])
        write(tmp_path, f"{name}.aym", MADE_UP)
    rows = [f"{a} x\t{b} x" for a, b in zip(LINES["eng"], MADE_UP, strict=True)]
    (tmp_path / "own.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    files = ("--files", "train.en", "train.aym")
    err, corpus = init(*files, "--valid", "mine.en", "--valid", "mine.aym", "--test", "own.tsv")
    assert "languages: en to aym (en from a name, aym from a name)" in err
    assert "valid: mine.en and mine.aym, from --valid" in err
    assert "test: own.tsv, from --test" in err
    assert (corpus.valid[0].files, corpus.test[0].file) == (("mine.en", "mine.aym"), "own.tsv")
    err, corpus = init(*files)
    assert "test: test.en and test.aym, found by its name" in err
    assert isinstance(corpus.valid[0], HeldOut)
    _, corpus = init(*files, "--valid", "test.en", "--valid", "test.aym")
    assert corpus.test is None, "a text is for validation or for the test"


def test_a_folder_or_a_table_with_the_columns_of_train_is_for_evaluation(init, tmp_path):
    both = list(zip(LINES["eng"], LINES["deu"], strict=True))
    for name in ("train.tsv", "other.tsv", "memories/one.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        rows = [f"{n}\t{a} {n} {name}\t{b} {n} {name}" for n in range(4) for a, b in both]
        (tmp_path / name).write_text("\n".join(["number\tquestion\tanswer", *rows]) + "\n", encoding="utf-8")
    given = ("--file", "train.tsv", "--columns", "question", "answer", "--valid", "other.tsv", "--test", "memories")
    err, corpus = init(*given)
    assert "languages: en to de" in err
    assert corpus.valid[0].columns == corpus.test[0].columns == ("question", "answer")
    assert corpus.test[0].folder == "memories"


def test_the_nested_form_of_the_hub_is_found_in_a_folder_named_by_the_direction(init, tmp_path):
    for name in ("train", "dev"):
        write_nested(tmp_path, f"lafand/en-yor/{name}.jsonl")
    err, corpus = init("--file", "lafand/en-yor/train.jsonl")
    assert "languages: en to yor (en from a name, yor from a name)" in err
    assert "valid: lafand/en-yor/dev.jsonl, found by its name" in err
    assert corpus.valid[0].file == "lafand/en-yor/dev.jsonl"
    err, corpus = init("--dataset", "lafand", "--subset", "en-yor")
    assert (corpus.languages, corpus.valid[0].split) == (("en", "yor"), "validation")
    err, corpus = init("--dataset", "lafand", "--subset", "en-yor", "--test", "validation")
    assert isinstance(corpus.valid[0], HeldOut) and corpus.test[0].split == "validation"
    write_nested(tmp_path, "other.jsonl", ("eng", "yo"))
    _, corpus = init("--dataset", "lafand", "--subset", "en-yor", "--test", "other.jsonl")
    assert (corpus.test[0].file, corpus.test[0].columns) == ("other.jsonl", ("eng", "yo"))


def test_a_direction_names_languages_that_text_does_not_show(init, tmp_path):
    rows = [f"{a} {n}\t{b} {n}" for n in range(4) for a, b in zip(MADE_UP, LINES["eng"], strict=True)]
    (tmp_path / "news.en-aym.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    err, corpus = init("--file", "news.en-aym.tsv")
    assert corpus.languages == ("aym", "en"), "text says that the order is another one"
    assert "(aym from a name, en from a name)" in err


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (("eng", "deu"), "the target looks like en, not deu"),
        (("hin", "eng"), None),
        (("mar", "eng"), "the source looks like hi, not mar"),
        (("aym", "eng"), None),
    ],
)
def test_a_suffix_that_the_text_contradicts_is_noted(init, tmp_path, names, note):
    texts = {"deu": LINES["eng"][::-1], "mar": LINES["hin"], "aym": MADE_UP}
    for name in names:
        write(tmp_path, f"t.{name}", texts.get(name, LINES.get(name)))
    err, corpus = init("--files", *(f"t.{name}" for name in names))
    assert corpus.languages == names
    assert (
        f"note: {' and '.join(f't.{name}' for name in names)}: {note}; check the files" in err
        if note
        else ("looks like" not in err)
    )


def test_text_that_filters_drop_since_it_is_in_another_language_is_named(init, tmp_path):
    write(tmp_path, "t.en", LINES["eng"])
    write(tmp_path, "t.am", LINES["ell"])
    err, _ = init("--files", "t.en", "t.am")
    assert "the corpus is empty (dropped: 32 min_script_share); t.en and t.am: the target looks like el, not am" in err


def test_a_suffix_in_no_registry_is_taken_with_a_note(init, tmp_path):
    write(tmp_path, "t.en", LINES["eng"])
    write(tmp_path, "t.qq", MADE_UP)
    err, corpus = init("--files", "t.en", "t.qq")
    assert corpus.languages == ("en", "qq")
    assert "note: qq is in no registry of languages; taken from the suffix" in err


@pytest.mark.parametrize("code", ["amh", "arb", "heb", "hin", "khm", "mya", "jpn", "rus", "tha"])
def test_text_without_a_name_is_recognised(init, tmp_path, code):
    write(tmp_path, "t.src", LINES["eng"])
    write(tmp_path, "t.tgt", LINES[code])
    err, _ = init("--files", "t.src", "t.tgt")
    assert "recognised by its words" in err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--valid", "v.en"), "--valid v.en: is one side, or of an unknown format; of two files"),
        (("--valid", "v.en", "--valid", "v.aym", "--valid", "v.en"), "--valid v.en: give one file with both sides, or"),
        (("--test", ""), "--test: a name is empty"),
        (("--valid", "a.tsv", "--valid", "b.tsv"), "--valid a.tsv: has both sides; give it alone"),
        (("--valid", "missing.tsv"), "missing.tsv: no such file"),
        (("--valid", "t.en", "--valid", "t.aym"), "t.en and t.aym: is the text to train on; give other text"),
        (("--valid", "empty.tsv"), "empty.tsv: the corpus is empty"),
    ],
)
def test_text_for_evaluation_that_cannot_be_used_is_refused(init, tmp_path, given, message):
    for name in ("t", "v"):
        write(tmp_path, f"{name}.en", LINES["eng"])
        write(tmp_path, f"{name}.aym", MADE_UP)
    (tmp_path / "empty.tsv").touch()
    err, corpus = init("--files", "t.en", "t.aym", *given)
    assert corpus is None
    assert message in err
