"""`mt init`: columns and languages of files, memories, catalogues and tables."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from mt_cli.advice.sides import resolve_sides
from mt_cli.config.sources import FilesSource, HeldOut
from mt_cli.errors import InputError

ENGLISH = [f"the open window of the house {n} is near the river" for n in range(40)]
ITALIAN = [f"la finestra aperta della casa {n} è vicino al fiume" for n in range(40)]
PORTUGUESE = [f"a janela aberta da casa {n} fica perto do rio" for n in range(40)]
MADE_UP = [f"xq zv wum {n}" for n in range(40)]
PAIRS = list(zip(ENGLISH, ITALIAN, strict=True))
HELD = [(f"yes, {a}", f"sì, {b}") for a, b in PAIRS]
EN_IT = ("--source-language", "en", "--target-language", "it")


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_table(path, rows, heading=None):
    write(path, map("\t".join, [*([heading] if heading else []), *rows]))


def write_memory(path, **texts):
    """A translation memory; each keyword is a language code with `_` for `-`, and its segments."""
    units = zip(*([f'<tuv xml:lang="{code.replace("_", "-")}"><seg>{text}</seg></tuv>' for text in side]
                  for code, side in texts.items()), strict=True)  # fmt: skip
    write(path, [f"<tmx><body>{''.join(f'<tu>{unit}</tu>' for unit in map(''.join, units))}</body></tmx>"])


def write_catalogue(path, language, sources, targets):
    messages = (f'msgid "{one}"\nmsgstr "{other}"\n' for one, other in zip(sources, targets, strict=True))
    write(path, [f'msgid ""\nmsgstr ""\n"Language: {language}\\n"\n\n' + "\n".join(messages)])


def test_a_memory_of_two_varieties_asks_which_is_meant(init, pairs_of, tmp_path):
    write_memory(tmp_path / "m.tmx", en=ENGLISH, pt_BR=PORTUGUESE, pt_PT=MADE_UP)
    assert "en (40 segments), pt-BR (40 segments), pt-PT (40 segments); choose" in init("--file", "m.tmx")[0]
    _, corpus = init("--file", "m.tmx", "--target-language", "pt_PT")
    assert corpus.languages == ("en", "pt_PT") and pairs_of(corpus)[0] == (ENGLISH[0], MADE_UP[0])
    write_memory(tmp_path / "m.tmx", EN_us=ENGLISH, sr_Latn_RS=MADE_UP)  # One variety, in an unlikely script.
    assert init("--file", "m.tmx")[1].languages == ("en", "sr_Latn")


def test_catalogues_are_reversed_if_the_languages_are(init, pairs_of, tmp_path):
    write_catalogue(tmp_path / "po/a.po", "it", ENGLISH, ITALIAN)
    write_catalogue(tmp_path / "held/b.po", "it", *zip(*HELD, strict=True))
    for arguments in ("--source-language it --target-language en", "--source-language it", "--target-language en"):
        err, corpus = init("po", *arguments.split(), "--valid", "held")
        assert corpus.languages == ("it", "en") and corpus.train[0].reverse and corpus.valid[0].reverse
        assert "the translations are the source, the messages the target" in err
        assert pairs_of(corpus)[0] == (ITALIAN[0], ENGLISH[0])


@pytest.mark.parametrize(
    ("files", "given", "expected"),
    [
        (("a/train.en.gz", "b/train.yor.zst"), (None, None), ("en", "yor")),
        (("news.en-yo.yo", "news.en-yo.en"), (None, None), ("yo", "en")),
        (("train.en", "train.txt"), (None, "xqz"), ("en", "xqz")),
        (("train.en", "train.xqz"), (None, None), "--target-language"),
        (("dev-es.txt", "dev-aym.txt"), (None, None), "--source-language and --target-language"),
        (("train.eng", "train.en"), (None, None), "one language, eng and en"),
        (("train.en", "train.it"), ("it", None), "are in en and it by their names"),
    ],
)
def test_languages_are_options_or_suffixes_and_never_guessed(files, given, expected):
    source = FilesSource(files=files)
    if isinstance(expected, tuple):
        assert resolve_sides(source, given).languages == expected
    else:
        with pytest.raises(InputError, match=expected):
            resolve_sides(source, given)


def test_the_header_of_a_catalogue_names_its_target_language(init, tmp_path):
    for number in range(8):
        rows = ENGLISH[number * 5 : number * 5 + 5], MADE_UP[number * 5 : number * 5 + 5]
        write_catalogue(tmp_path / f"po/{number}.po", "it_CH" if number in (0, 7) else "it", *rows)
    err, corpus = init("po")
    assert corpus.languages == ("en", "it")
    # An option is above a header, which may be wrong.
    err, corpus = init("po", "--source-language", "en", "--target-language", "gn")
    assert corpus.target == "gn" and not corpus.train[0].reverse and "the headers say it; check" in err
    write_catalogue(tmp_path / "po/gn.po", "gn", ENGLISH, MADE_UP)
    write_catalogue(tmp_path / "po/gn_2.po", "gn", *zip(*HELD, strict=True))
    assert "translations into it" in init("po")[0]
    err, corpus = init("po", "--target-language", "gn")
    assert corpus.languages == ("en", "gn") and "the headers say" not in err, err
    write_catalogue(tmp_path / "c.po", "", ENGLISH, MADE_UP)
    err, corpus = init("c.po")
    assert corpus is None and "c.po: no name tells the language of the target" in err


def test_columns_are_chosen_by_number(init, pairs_of, tmp_path):
    for name, pairs in (("a", PAIRS), ("held", HELD)):
        write_table(tmp_path / f"{name}.tsv", [(str(n), a, f"x{n}", b) for n, (a, b) in enumerate(pairs)])
    _, corpus = init("--file", "a.tsv", "--columns", "2", "4", "--valid", "held.tsv", *EN_IT)
    assert (pairs_of(corpus), pairs_of(corpus, "valid")) == (PAIRS, HELD)
    for options, named in ((("--columns", "2", "5"), "no column 5"), ((), "--columns")):
        err, corpus = init("--file", "a.tsv", *options, *EN_IT)
        assert corpus is None and named in err


def test_a_given_format_is_also_that_of_evaluation_text(init, pairs_of, tmp_path):
    for name, rows in (("pairs", PAIRS), ("held.txt", HELD), ("train.txt", PAIRS), ("valid.txt", HELD)):
        write_table(tmp_path / name, rows)
    assert "--format" in init("pairs", *EN_IT)[0]
    _, corpus = init("pairs", "--format", "tsv", "--valid", "held.txt", *EN_IT)
    assert pairs_of(corpus) == PAIRS and pairs_of(corpus, "valid") == HELD
    _, corpus = init("train.txt", "--format", "plain_tsv", *EN_IT)
    assert (corpus.valid[0].file, corpus.valid[0].format) == ("valid.txt", "plain_tsv")


def test_headings_name_languages_and_others_are_refused(init, pairs_of, tmp_path):
    write_table(tmp_path / "a.tsv", [(a, b, f"{b} x") for a, b in PAIRS], ("en", "it-IT", "it-CH"))
    err, corpus = init("--file", "a.tsv", "--target-language", "fr")
    assert corpus is None and "choose with --source-language and --target-language" in err
    for target, column in (("it", "it-IT"), ("it_CH", "it-CH")):
        assert init("--file", "a.tsv", "--target-language", target)[1].train[0].columns == ("en", column)
    write_table(tmp_path / "b.tsv", [("1", a, b) for a, b in PAIRS], ("id", "sentence_eng_Latn", "sentence_ita_Latn"))
    _, corpus = init("--file", "b.tsv")
    assert corpus.languages == ("eng_Latn", "ita_Latn") and pairs_of(corpus) == PAIRS


def write_columns(path, rows):
    """A file of records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        write(path, map(json.dumps, rows))
    else:
        write(path, [",".join(map(str, row)) for row in [[*rows[0]], *(row.values() for row in rows)]])


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_columns_are_given_or_named_by_role_or_language(init, pairs_of, tmp_path, kind):
    languages = ("--source-language", "en", "--target-language", "xqz")
    pairs = list(zip(ENGLISH, MADE_UP, strict=True))
    for columns in (("src", "trg"), ("en", "xqz"), ("question", "answer")):
        rows = [{"id": n, **dict(zip(columns, pair, strict=True))} for n, pair in enumerate(pairs)]
        write_columns(tmp_path / f"t.{kind}", rows)
        given = ("--columns", *columns) if "question" in columns else ()
        _, corpus = init("--file", f"t.{kind}", *given, *languages)
        assert corpus.train[0].columns == (None if "en" in columns else columns)
        assert pairs_of(corpus) == pairs
    if kind != "csv":  # The first line of a table may be text.
        err, corpus = init("--file", f"t.{kind}", *languages)
        assert corpus is None and "question, answer; name the two columns with --columns" in err


def write_nested(path, keys, sides=(ENGLISH, MADE_UP)):
    write_columns(path, [{"translation": dict(zip(keys, pair, strict=True))} for pair in zip(*sides, strict=True)])


@pytest.mark.parametrize(
    ("kind", "keys", "given", "expected"),
    [
        ("jsonl", ("en", "xyz"), (None, None), ("en", "xyz")),
        ("parquet", ("en", "xyz"), ("xyz", None), ("xyz", "en")),
        ("parquet", ("src", "tgt"), ("en", "xx"), ("en", "xx")),
        ("jsonl", ("en", "xyz", "uvw"), (None, None), None),
    ],
)
def test_the_keys_of_a_translation_are_languages(init, pairs_of, tmp_path, kind, keys, given, expected):
    write_nested(tmp_path / f"t.{kind}", keys, (ENGLISH, *[MADE_UP] * (len(keys) - 1)))
    options = zip(("--source-language", "--target-language"), given, strict=True)
    _, corpus = init("--file", f"t.{kind}", *(part for pair in options if pair[1] for part in pair))
    assert (corpus and corpus.languages) == expected
    if corpus:
        assert pairs_of(corpus)[0] == ((MADE_UP[0], ENGLISH[0]) if given[0] == "xyz" else (ENGLISH[0], MADE_UP[0]))


def test_a_split_or_a_nested_file_is_evaluation_text(init, tmp_path):
    for name in ("train", "dev"):
        sides = [[f"{line} {name}" for line in side] for side in (ENGLISH, MADE_UP)]
        write_nested(tmp_path / f"lafand/en-yor/{name}.jsonl", ("en", "yor"), sides)
    write_nested(tmp_path / "other.jsonl", ("eng", "yo"))
    _, corpus = init("--dataset", "lafand", "--subset", "en-yor", "--test", "other.jsonl")
    assert (corpus.languages, corpus.valid[0].split) == (("en", "yor"), "validation")
    assert (corpus.test[0].file, corpus.test[0].columns) == ("other.jsonl", ("eng", "yo"))
    _, corpus = init("--dataset", "lafand", "--subset", "en-yor", "--split", "validation")
    assert corpus.train[0].split == "validation" and isinstance(corpus.valid[0], HeldOut)
