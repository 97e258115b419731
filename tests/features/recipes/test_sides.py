"""`mt init`: columns and languages of files, memories, catalogues and tables."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from mt_cli.config.sources import FilesSource
from mt_cli.errors import InputError
from mt_cli.features.recipes.sides import resolve_sides

ENGLISH = [f"the open window of the house {n} is near the river" for n in range(40)]
ITALIAN = [f"la finestra aperta della casa {n} è vicino al fiume" for n in range(40)]
PORTUGUESE = [f"a janela aberta da casa {n} fica perto do rio" for n in range(40)]
MADE_UP = [f"xq zv wum {n}" for n in range(40)]
PAIRS = list(zip(ENGLISH, ITALIAN, strict=True))
HELD = [(f"yes, {a}", f"sì, {b}") for a, b in PAIRS]


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


def test_a_memory_with_two_varieties_asks_which_one_is_meant(init, pairs_of, tmp_path):
    write_memory(tmp_path / "m.tmx", en=ENGLISH, pt_BR=PORTUGUESE, pt_PT=MADE_UP)
    err, _ = init("--file", "m.tmx")
    assert "en (40 segments), pt-BR (40), pt-PT (40); choose" in err and "such as pt_BR" in err
    assert "pt-BR (40), pt-PT (40); choose" in init("--file", "m.tmx", "--target-language", "pt")[0]
    err, corpus = init("--file", "m.tmx", "--target-language", "pt_PT")
    assert corpus.languages == ("en", "pt_PT") and pairs_of(corpus)[0] == (ENGLISH[0], MADE_UP[0])
    assert "note: m.tmx: `pt_PT` is read from pt-PT" in err
    write_memory(tmp_path / "tm/a.tmx", en=ENGLISH[:20], pt_BR=PORTUGUESE[:20])
    write_memory(tmp_path / "tm/b.tmx", en=ENGLISH[20:], pt_PT=MADE_UP[20:])
    assert "pt-BR (20), pt-PT (20); choose with --source-language and --target-language" in init("tm")[0]
    assert init("tm", "--target-language", "pt_BR")[1].languages == ("en", "pt_BR")


def test_a_memory_of_one_variety_is_called_by_its_language_and_unlikely_script(init, tmp_path):
    write_memory(tmp_path / "m.tmx", EN_us=ENGLISH, sr_Latn_RS=MADE_UP)
    assert init("--file", "m.tmx")[1].languages == ("en", "sr_Latn")
    write_memory(tmp_path / "m.tmx", pt_BR=PORTUGUESE, pt_PT=MADE_UP)
    assert init("--file", "m.tmx", "--source-language", "pt_PT")[1].languages == ("pt_PT", "pt_BR")


def test_catalogues_are_reversed_if_the_languages_are_given_in_the_other_order(init, pairs_of, tmp_path):
    write_catalogue(tmp_path / "po/a.po", "it", ENGLISH, ITALIAN)
    write_catalogue(tmp_path / "held/b.po", "it", *zip(*HELD, strict=True))
    for arguments in ("--source-language it --target-language en", "--source-language it", "--target-language en"):
        err, corpus = init("po", *arguments.split(), "--valid", "held")
        assert corpus.languages == ("it", "en") and corpus.train[0].reverse and corpus.valid[0].reverse
        assert "the translations are the source, the messages the target (`reverse: true`)" in err
        assert pairs_of(corpus)[0] == (ITALIAN[0], ENGLISH[0])


FILES = [
    (("train.es", "train.aym"), (None, None), ("es", "aym")),
    (("a/train.en.gz", "b/train.yor.zst"), (None, None), ("en", "yor")),
    (("news.en-yo.yo", "news.en-yo.en"), (None, None), ("yo", "en")),
    (("train.eng_Latn", "train.zho_Hans"), (None, None), ("eng_Latn", "zho_Hans")),
    (("train.pt_BR", "train.pt_PT"), (None, None), ("pt_BR", "pt_PT")),
    (("train.en", "train.txt"), (None, "xqz"), ("en", "xqz")),
    (("train.en", "train.de"), ("en_GB", None), ("en_GB", "de")),
    (("train.eng", "train.en"), ("en_US", "en_GB"), ("en_US", "en_GB")),
    (("train.src", "train.out"), ("en", "de"), ("en", "de")),
    # Not clear.
    (("train.en", "train.xqz"), (None, None), "--target-language"),
    (("train.src", "train.tgt"), (None, None), "--source-language and --target-language"),
    (("dev-es.txt", "dev-aym.txt"), (None, None), "--source-language and --target-language"),
    (("train.eng", "train.en"), (None, None), "one language, eng and en"),
    (("train.en", "train.it"), ("it", "en"), "are in en and it by their names"),
    (("train.en", "train.it"), ("it", None), "are in en and it by their names"),
    (("train.en", "train.it"), (None, "en"), "are in en and it by their names"),
]


@pytest.mark.parametrize(("files", "given", "expected"), FILES)
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
    assert "(en usual in catalogues, it from the header)" in err
    assert "note: po (**/*.po): 6 of 8 headers say it, the others 2 it_CH" in err
    # An option is above a header, which may be wrong.
    err, corpus = init("po", "--source-language", "en", "--target-language", "gn")
    assert corpus.target == "gn" and not corpus.train[0].reverse and "the headers say it; check" in err
    write_catalogue(tmp_path / "sr.po", "sr@latin", ENGLISH, [f"kuća je {n}" for n in range(40)])
    assert init("sr.po")[1].target == "sr_Latn"
    write_catalogue(tmp_path / "po/de.po", "de", ENGLISH, MADE_UP)
    err, corpus = init("po", "--target-language", "de")
    assert corpus is None and "has translations into it, it_CH, de" in err
    write_catalogue(tmp_path / "c.po", "", ENGLISH, MADE_UP)
    err, corpus = init("c.po")
    assert corpus is None and "c.po: no name tells the language of the target" in err


def test_columns_are_chosen_by_number(init, pairs_of, tmp_path):
    for name, pairs in (("a", PAIRS), ("held", HELD)):
        write_table(tmp_path / f"{name}.tsv", [(str(n), a, f"x{n}", b) for n, (a, b) in enumerate(pairs)])
    languages = ("--source-language", "en", "--target-language", "it")
    _, corpus = init("--file", "a.tsv", "--columns", "2", "4", "--valid", "held.tsv", *languages)
    assert (pairs_of(corpus), pairs_of(corpus, "valid")) == (PAIRS, HELD)
    write_memory(tmp_path / "held.tmx", **dict(zip(("en", "it"), zip(*HELD, strict=True), strict=True)))
    given = ("--columns", "2", "4", "--valid", "held.tmx", *languages)
    assert init("--file", "a.tsv", *given)[1].valid[0].columns is None
    for columns, named in ((("2", "5"), "column 5"), (("0", "2"), "column 0"), (("x", "2"), "column 'x'")):
        err, corpus = init("--file", "a.tsv", "--columns", *columns, *languages)
        assert corpus is None and f"no {named}" in err
    err, corpus = init("--file", "a.tsv", *languages)
    assert corpus is None and "--columns SOURCE TARGET" in err
    err, corpus = init("--file", "a.tsv", "--columns", "2,4", *languages)
    assert corpus is None and "--columns: give 2 values, SOURCE TARGET" in err
    write_table(tmp_path / "b.tsv", [(str(n), b, a) for n, (a, b) in enumerate(PAIRS)], ("id", "ita", "eng"))
    _, corpus = init("--file", "b.tsv", "--columns", "3", "2")
    assert corpus.languages == ("eng", "ita") and pairs_of(corpus) == PAIRS


def test_a_given_format_is_also_the_format_of_the_text_for_evaluation(init, pairs_of, tmp_path):
    for name, rows in (("pairs", PAIRS), ("held.txt", HELD), ("train.txt", PAIRS), ("valid.txt", HELD)):
        write_table(tmp_path / name, rows)
    languages = ("--source-language", "en", "--target-language", "it")
    err, corpus = init("pairs", *languages)
    assert corpus is None and "(mt init --format) to tsv" in err
    _, corpus = init("pairs", "--format", "tsv", "--valid", "held.txt", *languages)
    assert pairs_of(corpus) == PAIRS and pairs_of(corpus, "valid") == HELD
    _, corpus = init("train.txt", "--format", "plain_tsv", *languages)
    assert (corpus.valid[0].file, corpus.valid[0].format) == ("valid.txt", "plain_tsv")


@pytest.mark.parametrize(
    ("heading", "languages"),
    [
        (("id", "sentence_eng_Latn", "sentence_ita_Latn"), ("eng_Latn", "ita_Latn")),
        (("id", "text_en", "text_it"), ("en", "it")),
        (("n", "en-GB", "it-IT"), ("en-GB", "it-IT")),
        (("German", "English", "Italian"), None),
    ],
)
def test_headings_name_the_languages(init, pairs_of, tmp_path, heading, languages):
    rows = [(str(n), a, b) for n, (a, b) in enumerate(PAIRS)]
    write_table(tmp_path / "a.tsv", rows, heading)
    write_table(tmp_path / "hub/train.tsv", rows, heading)
    for given in (("--file", "a.tsv"), ("--dataset", "hub")):
        err, corpus = init(*given)
        if languages is None:  # Three languages.
            assert corpus is None and "choose with --source-language" in err
        else:
            assert corpus.languages == languages and pairs_of(corpus) == PAIRS


def test_languages_that_a_table_does_not_have_are_refused_and_varieties_never_mixed(init, pairs_of, tmp_path):
    write_table(tmp_path / "a.tsv", [(a, b, f"{b} x") for a, b in PAIRS], ("en", "it-IT", "it-CH"))
    write_table(tmp_path / "b.tsv", PAIRS, ("en", "it-IT"))
    for name, source, target in (("b", "no", "it"), ("a", "en", "it"), ("b", "en", "fr")):
        err, corpus = init("--file", f"{name}.tsv", "--source-language", source, "--target-language", target)
        assert corpus is None and "choose with --source-language and --target-language" in err
    _, corpus = init("--file", "a.tsv", "--source-language", "en_GB", "--target-language", "it_CH")
    assert corpus.languages == ("en_GB", "it_CH") and pairs_of(corpus) == [(a, f"{b} x") for a, b in PAIRS]


def write_columns(path, columns):
    """A file of columns by name."""
    rows = list(zip(*columns.values(), strict=True))
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        write(path, [json.dumps(dict(zip(columns, row, strict=True))) for row in rows])
    else:
        write(path, [",".join(map(str, row)) for row in [[*columns], *rows]])


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_columns_are_given_called_by_their_role_or_by_the_languages(init, pairs_of, tmp_path, kind):
    languages = ("--source-language", "en", "--target-language", "xqz")
    for columns in (("source", "target"), ("src", "trg"), ("en", "xqz")):
        write_columns(
            tmp_path / f"t.{kind}", {"id": list(range(40)), **dict(zip(columns, (ENGLISH, MADE_UP), strict=True))}
        )
        _, corpus = init("--file", f"t.{kind}", *languages)
        assert corpus.train[0].columns == (None if "en" in columns else columns)
        assert pairs_of(corpus) == list(zip(ENGLISH, MADE_UP, strict=True))
    write_columns(tmp_path / f"u.{kind}", {"question": ENGLISH, "answer": MADE_UP})
    if kind != "csv":  # The first line of a table may be text.
        err, corpus = init("--file", f"u.{kind}", *languages)
        assert corpus is None and "its columns are question, answer; name the two columns with --columns" in err
    _, corpus = init("--file", f"u.{kind}", "--columns", "question", "answer", *languages)
    assert pairs_of(corpus) == list(zip(ENGLISH, MADE_UP, strict=True))


def write_nested(path, keys, sides=(ENGLISH, MADE_UP)):
    rows = [{"translation": dict(zip(keys, pair, strict=True))} for pair in zip(*sides, strict=True)]
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        write(path, [json.dumps(row) for row in rows])


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("keys", "given", "expected"),
    [
        (("en", "xyz"), (None, None), ("en", "xyz")),
        (("en", "xyz"), ("xyz", None), ("xyz", "en")),
        (("en", "xyz"), ("en", "xx"), None),
        (("eng", "xyz"), ("en", "xyz"), ("en", "xyz")),
        (("src", "tgt"), ("en", "xx"), ("en", "xx")),
        (("src", "tgt"), (None, "xx"), None),
        (("en", "xyz", "uvw"), (None, None), None),
        (("en", "xyz", "uvw"), ("en", "uvw"), ("en", "uvw")),
    ],
)
def test_the_keys_of_a_translation_are_languages(init, pairs_of, tmp_path, kind, keys, given, expected):
    write_nested(tmp_path / f"t.{kind}", keys, (ENGLISH, *[MADE_UP] * (len(keys) - 1)))
    options = zip(("--source-language", "--target-language"), given, strict=True)
    _, corpus = init("--file", f"t.{kind}", *(part for pair in options if pair[1] for part in pair))
    if expected is None:
        assert corpus is None
        return
    assert corpus.languages == expected
    sides = (ENGLISH, MADE_UP) if given[0] != "xyz" else (MADE_UP, ENGLISH)
    assert pairs_of(corpus) == list(zip(*sides, strict=True))


def test_a_split_or_another_file_of_the_nested_form_is_text_for_evaluation(init, tmp_path):
    for name in ("train", "dev"):
        sides = [[f"{line} {name}" for line in side] for side in (ENGLISH, MADE_UP)]
        write_nested(tmp_path / f"lafand/en-yor/{name}.jsonl", ("en", "yor"), sides)
    write_nested(tmp_path / "other.jsonl", ("eng", "yo"))
    _, corpus = init("--dataset", "lafand", "--subset", "en-yor", "--test", "other.jsonl")
    assert (corpus.languages, corpus.valid[0].split) == (("en", "yor"), "validation")
    assert (corpus.test[0].file, corpus.test[0].columns) == ("other.jsonl", ("eng", "yo"))
