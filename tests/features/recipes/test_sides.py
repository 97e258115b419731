"""`mt init`: columns and languages of memories, catalogues and tables, and names that the text contradicts."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet
from texts import TEXTS

from mt_cli.features.recipes.sides import languages_of_headers
from mt_cli.features.recipes.texts import is_reversed

ENGLISH = [f"the open window of the house {n} is near the river" for n in range(40)]
ITALIAN = [f"la finestra aperta della casa {n} è vicino al fiume" for n in range(40)]
PORTUGUESE = [f"a janela aberta da casa {n} fica perto do rio" for n in range(40)]
MADE_UP = [f"xq zv wum {n}" for n in range(40)]
LIKE_ITALIAN = [f"da se non lo mi {word} {n}" for n in range(8) for word in ("la", "le", "ci", "gli", "per")]
PAIRS = list(zip(ENGLISH, ITALIAN, strict=True))
HELD = [(f"yes, {a}", f"sì, {b}") for a, b in PAIRS]
LINES = {code.partition("_")[0]: text.split("\n") for code, text in TEXTS.items()}


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
    assert "en (40 segments), pt-BR (40), pt-PT (40); choose with --target-language, such as pt_BR" in err
    assert "pt-BR (40 segments), pt-PT (40)" in init("--file", "m.tmx", "--target-language", "pt")[0]
    err, corpus = init("--file", "m.tmx", "--target-language", "pt_PT")
    assert corpus.languages == ("en", "pt_PT") and pairs_of(corpus)[0] == (ENGLISH[0], MADE_UP[0])
    assert "note: m.tmx: `pt_PT` is read from pt-PT" in err


def test_a_memory_of_one_variety_is_called_by_its_language_and_unlikely_script(init, tmp_path):
    write_memory(tmp_path / "m.tmx", EN_us=ENGLISH, sr_Latn_RS=MADE_UP)
    assert init("--file", "m.tmx")[1].languages == ("en", "sr_Latn")
    write_memory(tmp_path / "m.tmx", pt_BR=PORTUGUESE, pt_PT=MADE_UP)
    assert init("--file", "m.tmx", "--source-language", "pt_PT")[1].languages == ("pt_PT", "pt_BR")


def test_a_variety_in_a_folder_of_memories_is_chosen_for_all_files(init, tmp_path):
    write_memory(tmp_path / "tm/a.tmx", en=ENGLISH[:20], pt_BR=PORTUGUESE[:20])
    write_memory(tmp_path / "tm/b.tmx", en=ENGLISH[20:], pt_PT=MADE_UP[20:])
    assert "pt-BR (20), pt-PT (20); choose with --target-language" in init("tm")[0]
    assert init("tm", "--target-language", "pt_BR")[1].languages == ("en", "pt_BR")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--source-language", "it", "--target-language", "en"),
        ("--source-language", "it"),
        ("--target-language", "en"),
    ],
)
def test_catalogues_are_reversed_if_the_languages_are_given_in_the_other_order(init, pairs_of, tmp_path, arguments):
    write_catalogue(tmp_path / "po/a.po", "it", ENGLISH, ITALIAN)
    write_catalogue(tmp_path / "held/b.po", "it", *zip(*HELD, strict=True))
    err, corpus = init("po", *arguments, "--valid", "held")
    assert corpus.languages == ("it", "en") and corpus.train[0].reverse and corpus.valid[0].reverse
    assert "is en to it; `reverse: true` exchanges its sides" in err
    assert pairs_of(corpus)[0] == (ITALIAN[0], ENGLISH[0])


def test_files_and_tables_are_reversed_with_the_text_for_evaluation(init, pairs_of, tmp_path):
    for name, (english, other) in {"train": (ENGLISH, MADE_UP), "valid": (ENGLISH[::-1], MADE_UP[::-1])}.items():
        write(tmp_path / f"{name}.en", [f"{line} {name}" for line in english])
        write(tmp_path / f"{name}.qq", [f"{line} {name}" for line in other])
    _, corpus = init("--files", "train.en", "train.qq", "--source-language", "qq", "--target-language", "en")
    assert corpus.train[0].reverse and corpus.valid[0].reverse
    assert pairs_of(corpus)[0] == (f"{MADE_UP[0]} train", f"{ENGLISH[0]} train")
    _, corpus = init("--files", "train.en", "train.qq", "--valid", "valid.qq", "--valid", "valid.en")
    assert not corpus.train[0].reverse and corpus.valid[0].reverse
    for name, pairs in (("a", PAIRS), ("held", HELD)):
        write_table(tmp_path / f"{name}.tsv", [(str(n), *pair) for n, pair in enumerate(pairs)])
    given = ("--columns", "2", "3", "--source-language", "it", "--target-language", "en", "--valid", "held.tsv")
    _, corpus = init("--file", "a.tsv", *given)
    assert pairs_of(corpus) == [(b, a) for a, b in PAIRS] and pairs_of(corpus, "valid") == [(b, a) for a, b in HELD]


@pytest.mark.parametrize(
    ("given", "names", "words", "expected"),
    [
        (("it", "en"), ("en", "it"), (None, None), True),
        (("it", "en"), (None, "it"), (None, None), True),
        (("it", None), (None, "it"), (None, None), True),
        ((None, "en"), (None, "it"), ("en", None), True),
        (("pt_PT", "pt_BR"), ("pt-BR", "pt-PT"), ("pt", "pt"), True),
        (("pt_BR", "pt_PT"), ("pt-BR", "pt-PT"), ("pt", "pt"), False),
        (("it", "en"), ("en", "it"), ("it", "en"), False),  # The names are wrong.
        (("en", "it"), ("en", "it"), ("en", "it"), False),
        (("en", "gl"), (None, "es"), ("en", "es"), False),
        ((None, None), ("en", "it"), ("it", "en"), False),
        (("it", "fr"), (None, None), ("en", "it"), False),
        (("it", "en"), (None, None), (None, None), False),
        (("en", "it"), (None, None), ("en", "en"), False),
    ],
)
def test_sides_are_exchanged_only_if_words_or_names_say_so(given, names, words, expected):
    assert is_reversed(given, names, words) is expected


@pytest.mark.parametrize(
    ("counts", "languages"),
    [
        ({"es": 353, "es_CO": 13}, ["es"]),
        ({"es_CO": 13, "es": 353}, ["es"]),
        ({"es_CO": 5, "es": 5}, ["es"]),
        ({"es": 10, "es_ES": 90}, ["es_ES"]),
        ({"de": 60, "fr": 1}, ["de"]),
        ({"it": 30, "de": 1, "de_DE": 1}, ["it", "de", "de_DE"]),
        ({"pt_BR": 60, "pt_PT": 40}, ["pt_BR", "pt_PT"]),
        ({"sr": 50, "sr_Latn": 50}, ["sr", "sr_Latn"]),
        ({}, []),
    ],
)
def test_the_language_of_most_headers_is_the_language_of_a_folder(counts, languages):
    assert languages_of_headers(counts) == languages


def test_the_header_of_a_catalogue_names_its_target_language(init, tmp_path):
    for number in range(8):
        rows = ENGLISH[number * 5 : number * 5 + 5], MADE_UP[number * 5 : number * 5 + 5]
        write_catalogue(tmp_path / f"po/{number}.po", "it_CH" if number in (0, 7) else "it", *rows)
    err, corpus = init("po")
    assert corpus.languages == ("en", "it")
    assert "(en recognised by its words, it from the header)" in err
    assert "note: po (**/*.po): 6 of 8 headers say it, the others 2 it_CH" in err
    # An option is above a header, which may be wrong.
    err, corpus = init("po", "--source-language", "en", "--target-language", "gn")
    assert corpus.target == "gn" and not corpus.train[0].reverse and "the headers say it, and neither en nor gn" in err
    write_catalogue(tmp_path / "sr.po", "sr@latin", ENGLISH, [f"kuća je {n}" for n in range(40)])
    assert init("sr.po")[1].target == "sr_Latn"
    write_catalogue(tmp_path / "po/de.po", "de", ENGLISH, MADE_UP)
    err, corpus = init("po", "--target-language", "de")
    assert corpus is None and "has translations into it, de" in err


def test_columns_are_chosen_by_number(init, pairs_of, tmp_path):
    for name, pairs in (("a", PAIRS), ("held", HELD)):
        write_table(tmp_path / f"{name}.tsv", [(str(n), a, f"x{n}", b) for n, (a, b) in enumerate(pairs)])
    _, corpus = init("--file", "a.tsv", "--columns", "2", "4", "--valid", "held.tsv")
    assert corpus.languages == ("en", "it")
    assert (pairs_of(corpus), pairs_of(corpus, "valid")) == (PAIRS, HELD)
    write_memory(tmp_path / "held.tmx", **dict(zip(("en", "it"), zip(*HELD, strict=True), strict=True)))
    assert init("--file", "a.tsv", "--columns", "2", "4", "--valid", "held.tmx")[1].valid[0].columns is None
    for columns, named in ((("2", "5"), "column 5"), (("0", "2"), "column 0"), (("x", "2"), "column 'x'")):
        err, corpus = init("--file", "a.tsv", "--columns", *columns)
        assert corpus is None and f"no {named}" in err
    err, corpus = init("--file", "a.tsv")
    assert corpus is None and "--columns SOURCE TARGET" in err
    write_table(tmp_path / "b.tsv", [(str(n), b, a) for n, (a, b) in enumerate(PAIRS)], ("id", "ita", "eng"))
    _, corpus = init("--file", "b.tsv", "--columns", "3", "2")
    assert corpus.languages == ("eng", "ita") and pairs_of(corpus) == PAIRS


@pytest.mark.parametrize("name", ["pairs.txt", "pairs"])
def test_a_given_format_is_also_the_format_of_the_text_for_evaluation(init, pairs_of, tmp_path, name):
    write_table(tmp_path / name, PAIRS)
    write_table(tmp_path / "held.txt", HELD)
    err, corpus = init(name)
    assert corpus is None and "(mt init --format) to tsv" in err
    _, corpus = init(name, "--format", "tsv", "--valid", "held.txt")
    assert pairs_of(corpus) == PAIRS and pairs_of(corpus, "valid") == HELD
    write_table(tmp_path / "train.txt", PAIRS)
    write_table(tmp_path / "valid.txt", HELD)
    _, corpus = init("train.txt", "--format", "plain_tsv")
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
    for name, source, target, options in (
        ("b", "no", "it", "--source-language"),
        ("a", "en", "it", "--target-language, such as it_IT"),
        ("b", "en", "it_CH", "--target-language"),
    ):
        err, corpus = init("--file", f"{name}.tsv", "--source-language", source, "--target-language", target)
        assert corpus is None and options in err
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
        mark = {".tsv": "\t", ".csv": ","}[path.suffix]
        write(path, [mark.join(map(str, row)) for row in [[*columns], *rows]])


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "tsv", "csv"])
def test_words_never_overrule_a_column_like_a_code(init, pairs_of, tmp_path, kind):
    write_columns(tmp_path / f"t.{kind}", {"en": ENGLISH, "xqz": LIKE_ITALIAN})
    err, corpus = init("--file", f"t.{kind}")
    assert corpus.languages == ("en", "xqz") and "note: xqz is in no registry of languages" in err
    assert pairs_of(corpus) == list(zip(ENGLISH, LIKE_ITALIAN, strict=True))
    write_columns(tmp_path / f"u.{kind}", {"id": list(range(40)), "en": ENGLISH, "xqz": MADE_UP})
    err, corpus = init("--file", f"u.{kind}")
    assert corpus is None and "columns id, en, xqz" in err
    _, corpus = init("--file", f"u.{kind}", "--source-language", "en", "--target-language", "xqz")
    assert corpus.train[0].columns is None and corpus.languages == ("en", "xqz")


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_columns_are_called_by_their_role_or_the_only_two(init, pairs_of, tmp_path, kind):
    for columns in (("source", "target"), ("src", "trg"), ("question", "answer")):
        if kind != "csv" or columns[0] != "question":  # The first line of a table may be text.
            write_columns(tmp_path / f"t.{kind}", dict(zip(columns, (ENGLISH, ITALIAN), strict=True)))
            _, corpus = init("--file", f"t.{kind}")
            assert (corpus.languages, corpus.train[0].columns) == (("en", "it"), columns)
            assert pairs_of(corpus) == PAIRS


def test_one_of_two_columns_tells_the_other(init, tmp_path):
    write_columns(tmp_path / "a.jsonl", {"xqz": MADE_UP, "en": ENGLISH})
    _, corpus = init("--file", "a.jsonl", "--target-language", "xq")
    assert (corpus.languages, corpus.train[0].columns) == (("en", "xq"), ("en", "xqz"))
    write_columns(tmp_path / "b.csv", {"German": MADE_UP, "English": ENGLISH})
    _, corpus = init("--file", "b.csv", "--source-language", "en")
    assert (corpus.languages, corpus.train[0].columns) == (("en", "de"), ("English", "German"))
    write_columns(tmp_path / "c.jsonl", {"id": list(range(40)), "en": ENGLISH})
    err, corpus = init("--file", "c.jsonl")
    assert corpus is None and "the columns id, en" in err


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
        (("en", "xyz"), ("en", "xx"), ("en", "xx")),
        (("eng", "xyz"), ("en", "xyz"), ("en", "xyz")),
        (("src", "tgt"), (None, "xx"), ("en", "xx")),
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


def test_the_nested_form_of_the_hub_is_found_in_a_folder_named_by_the_direction(init, tmp_path):
    for name in ("train", "dev"):
        sides = [[f"{line} {name}" for line in side] for side in (ENGLISH, MADE_UP)]
        write_nested(tmp_path / f"lafand/en-yor/{name}.jsonl", ("en", "yor"), sides)
    _, corpus = init("--file", "lafand/en-yor/train.jsonl")
    assert (corpus.languages, corpus.valid[0].file) == (("en", "yor"), "lafand/en-yor/dev.jsonl")
    _, corpus = init("--dataset", "lafand", "--subset", "en-yor")
    assert (corpus.languages, corpus.valid[0].split, corpus.test) == (("en", "yor"), "validation", None)
    write_nested(tmp_path / "other.jsonl", ("eng", "yo"))
    _, corpus = init("--dataset", "lafand", "--subset", "en-yor", "--test", "other.jsonl")
    assert (corpus.test[0].file, corpus.test[0].columns) == ("other.jsonl", ("eng", "yo"))


def test_a_direction_names_languages_that_text_does_not_show(init, tmp_path):
    write_table(tmp_path / "news.en-aym.tsv", zip(MADE_UP, ENGLISH, strict=True))
    _, corpus = init("--file", "news.en-aym.tsv")
    assert corpus.languages == ("aym", "en"), "text says that the order is another one"


@pytest.mark.parametrize(
    ("names", "sides", "note"),
    [
        (("eng", "deu"), ("eng", "eng"), "the target looks like en, not deu"),
        (("mar", "eng"), ("hin", "eng"), "the source looks like hi, not mar"),
        (("hin", "eng"), ("hin", "eng"), None),
        (("aym", "eng"), (None, "eng"), None),
    ],
)
def test_a_suffix_that_the_text_contradicts_is_noted(init, tmp_path, names, sides, note):
    for name, side, step in zip(names, sides, (1, -1), strict=True):
        write(
            tmp_path / f"t.{name}",
            [f"{line} {n}" for n in range(4) for line in (LINES[side] if side else MADE_UP[:8])[::step]],
        )
    err, corpus = init("--files", *(f"t.{name}" for name in names))
    assert corpus.languages == names
    assert note in err if note else "looks like" not in err


def test_text_that_filters_drop_since_it_is_in_another_language_is_named(init, tmp_path):
    write(tmp_path / "t.en", LINES["eng"] * 4)
    write(tmp_path / "t.am", LINES["ell"] * 4)
    err, corpus = init("--files", "t.en", "t.am")
    assert corpus is None and "the target looks like el, not am" in err


@pytest.mark.parametrize("code", ["amh", "arb", "heb", "hin", "khm", "mya", "jpn", "rus", "tha"])
def test_text_without_a_name_is_recognised(init, tmp_path, code):
    for name, lines in (("src", LINES["eng"]), ("tgt", LINES[code])):
        write(tmp_path / f"t.{name}", [f"{line} {n}" for n in range(4) for line in lines])
    err, _ = init("--files", "t.src", "t.tgt")
    assert "recognised by its words" in err


def test_no_language_is_suggested_for_text_that_may_be_in_any(init, tmp_path):
    write_table(tmp_path / "a.tsv", zip(ENGLISH, MADE_UP, strict=True))
    err, corpus = init("--file", "a.tsv")
    assert corpus is None and err.endswith("give its code with --target-language\n")


def test_one_language_twice_is_refused_unless_two_varieties_are_given(init, tmp_path):
    write(tmp_path / "train.eng", ENGLISH)
    write(tmp_path / "train.en", [f"{line} x" for line in ENGLISH])
    files = ("--files", "train.eng", "train.en")
    assert "one language, eng and en" in init(*files)[0]
    assert init(*files, "--source-language", "en", "--target-language", "eng")[1] is None
    _, corpus = init(*files, "--source-language", "en-US", "--target-language", "en-GB")
    assert corpus.languages == ("en-US", "en-GB")
