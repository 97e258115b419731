"""Tables: quotation marks of spreadsheets, rows with other numbers of cells, columns, JSON arrays, given formats."""

import csv
import io
import json
from typing import get_args

import pytest
from formats import ENDINGS, each_time_a_folder, numbered, packed, read
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import FileSource, FolderSource, FormatName
from mt_cli.corpus.delimited import is_quoted
from mt_cli.corpus.formats import names_in
from mt_cli.corpus.sources import notes_on_files
from mt_cli.errors import ColumnError, CorpusError

CELL = st.text(st.sampled_from('ab", '), max_size=8)
SEPARATORS = {"tsv": "\t", "csv": ","}


def as_spreadsheet(rows, quoting=csv.QUOTE_MINIMAL):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t", quoting=quoting).writerows(rows)
    return text.getvalue()


def write(path, rows):
    separator = SEPARATORS.get(path.suffix[1:], "\t")
    text = rows if isinstance(rows, str) else "".join(separator.join(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8", newline="")
    return path


@each_time_a_folder
@given(st.lists(st.tuples(CELL, CELL), max_size=10), ENDINGS)
def test_what_a_spreadsheet_wrote_is_read_without_its_quotation_marks(tmp_path, pairs, ending):
    pairs = [*pairs, ('He says: "Stop".', 'Dice: "Ferma".')]
    path = packed(tmp_path / "a.tsv", as_spreadsheet(pairs).encode(), ending)
    expected = [pair if "".join(pair).strip() else ("", "") for pair in pairs]  # A blank row is a blank pair.
    for name in ("tsv", "quoted_tsv"):
        rows = [pair if "".join(pair).strip() else ("", "") for pair in read(path, format_name=name)]
        assert rows == expected


SENTENCES = [(f"one {number}", f"uno {number}") for number in range(30)]


@pytest.mark.parametrize(
    ("rows", "quoting"),
    [
        ([("en", "it"), *SENTENCES, ('say "a"', 'di "a"')], csv.QUOTE_MINIMAL),
        (SENTENCES, csv.QUOTE_ALL),
        ([("en", "it"), *SENTENCES], csv.QUOTE_ALL),
    ],
)
def test_each_reason_to_quote_cells_is_recognised(tmp_path, rows, quoting):
    path = write(tmp_path / "a.tsv", as_spreadsheet(rows, quoting))
    assert is_quoted(path)
    assert read(path) == [row[:2] for row in rows if row != ("en", "it")]


@pytest.mark.parametrize(
    "rows",
    [
        [('"', '"')],
        [('"Come here."', '"Vieni qui."')] * 9 + SENTENCES,
        [('"Come here.', "Vieni qui."), ('Now."', "Adesso.")] * 9,
        [('"Come here.', '"Vieni qui.'), ('Now."', 'Adesso."')] * 9,
        [('a 3" nail', 'un chiodo da 3"')],
        [('"He ""stops"""', "Si ferma"), ('a 3" nail', "un chiodo")],
        [('"One" and "two"', '"Uno" e "due"')],
        [('""Quoted""', "x")],
        [*SENTENCES[:9], ('"open', "aperto"), *SENTENCES[9:]],
    ],
)
def test_quotation_marks_that_no_spreadsheet_would_write_are_text(tmp_path, rows):
    path = write(tmp_path / "a.tsv", rows)
    assert not is_quoted(path)
    assert read(path) == read(path, format_name="plain_tsv") == rows


def test_an_open_quotation_mark_is_an_error_with_its_line_if_marks_are_not_text(tmp_path):
    path = write(tmp_path / "a.tsv", [*SENTENCES[:9], ('"open', "aperto"), *SENTENCES[9:]])
    with pytest.raises(CorpusError, match=r"line 10: .*`format: plain_tsv`"):
        read(path, format_name="quoted_tsv")


def corpus_of(source):
    return CorpusConfig.model_validate(
        {"source": "en", "target": "it", "train": source, "valid": {"fraction": 0.1}}, strict=False
    )


def test_users_are_told_that_quotation_marks_are_removed(tmp_path):
    quoted = write(tmp_path / "q.tsv", as_spreadsheet([("a", "b"), ('c "d"', "e")]))
    mixed = write(tmp_path / "m.tsv", [("a", "b"), ('"c ""d"""', "e"), ('a 3" nail', "f")])
    (note,) = notes_on_files(corpus_of({"file": str(quoted)}))
    assert "q.tsv: quoted as spreadsheets do" in note
    assert notes_on_files(corpus_of({"folder": str(tmp_path), "pattern": "[mq].tsv"})) == [note]
    assert notes_on_files(corpus_of({"file": str(mixed)})) == []
    assert read(mixed, format_name="quoted_tsv") == [("a", "b"), ('c "d"', "e"), ('a 3" nail', "f")]
    for name in ("plain_tsv", "quoted_tsv"):
        assert notes_on_files(corpus_of({"file": str(quoted), "format": name})) == []


RAGGED = {
    "a separator inside a sentence": ([("en", "it"), ("a", "b"), ("c", "d", "e"), ("f", "g")], 3, 3),
    "without a heading": ([("a", "b"), ("c", "d"), ("e", "f", "g")], 3, 3),
    "far below": ([("a", "b")] * 99 + [("c", "d", "e")], 100, 3),
    "a missing separator": ([("en", "it", "score"), ("a", "b", "1"), ("a b", "2")], 3, 2),
    "columns by number": ([("1", "a", "b")] * 9 + [("1", "c", "d", "e")], 10, 4),
    "one cell": (["ab", "c"], 2, 1),
    "a heading without its first name": ([("en", "it"), ("1", "a", "b"), ("2", "c", "d")], 2, 3),
}


@pytest.mark.parametrize("kind", SEPARATORS)
@pytest.mark.parametrize("case", RAGGED)
def test_a_row_with_another_number_of_cells_is_refused_since_its_pair_may_be_shifted(tmp_path, case, kind):
    rows, line, number = RAGGED[case]
    path = write(tmp_path / f"a b.{kind}", rows)
    columns = ("2", "3") if case == "columns by number" else None
    with pytest.raises(CorpusError, match=rf"line {line}: has {number} cells?, and the (heading|others) .*repair"):
        read(path, columns=columns)


@pytest.mark.parametrize("kind", SEPARATORS)
@pytest.mark.parametrize(
    "rows",
    [
        [("",), ("a", "b"), ("  ",), ("c", "d")],
        [("a", "b"), ("", "", ""), ("c", "d", ""), (" ", "", "", " ")],
        [("en", "it", ""), ("a", "b"), ("", ""), ("c", "d", "note")],
        [("a", "b", "1"), ("c", "d", "2"), ("", "", "")],
    ],
)
def test_blank_lines_are_blank_pairs_and_empty_cells_at_the_end_do_no_harm(tmp_path, rows, kind):
    pairs = read(write(tmp_path / f"a.{kind}", rows))
    assert [pair for pair in pairs if "".join(pair).strip()] == [("a", "b"), ("c", "d")]
    assert len(pairs) == len(rows) - (rows[0][:2] == ("en", "it"))


@pytest.mark.parametrize("kind", SEPARATORS)
def test_columns_are_found_by_name_or_counted_from_1(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    rows = [("7", "one", "x", "uno"), ("8", "two", "y", "due")]
    pairs = [("one", "uno"), ("two", "due")]
    numbers = FileSource.model_validate({"file": "a.tsv", "columns": [2, 4]}).columns
    assert read(write(path, rows), columns=numbers) == pairs
    assert read(path, columns=("4", "2")) == [pair[::-1] for pair in pairs]
    for heading in (("id", "en", "n", "it"), ("id", "English", "n", "Italian"), ("id", "source", "n", "target")):
        for columns in (numbers, (heading[1], heading[3]), None):
            assert read(write(path, [heading, *rows]), columns=columns) == pairs
    assert read(write(path, [("2", "x", "4", "y"), ("a", "b", "c", "d")]), columns=numbers) == [("a", "c")]
    for columns, problem in ((("2", "5"), "no column 5: .*4 columns"), (("2", "0"), "no column 0"), ("xy", "'x'")):
        with pytest.raises(ColumnError, match=rf"line 1: .*{problem}"):
            read(write(path, rows), columns=columns)


@pytest.mark.parametrize(
    ("heading", "languages", "expected"),
    [
        ("English Italian", "it en", "1 0"),
        ("target source", "en it", "1 0"),
        ("id sentence_por_Latn sentence_eng_Latn", "eng_Latn por_Latn", "2 1"),
        ("text_it text_en", "en it", "1 0"),
        ("it-IT en-US", "en it", "1 0"),
        ("pt_PT pt_BR en", "pt_BR en", "1 2"),
        ("zh-CN zh-TW en", "zh_Hant en", "1 2"),
        *((f"{text} x", "en it", f"{text} x") for text in ("no", "It", "he", "a")),  # Sentences like codes.
    ],
)
def test_columns_named_like_the_languages_in_another_spelling_are_found(tmp_path, heading, languages, expected):
    names = heading.split()
    path = write(tmp_path / "a.tsv", [names, [str(number) for number in range(len(names))]])
    assert read(path, languages.split())[0] == tuple(expected.split())


@pytest.mark.parametrize(
    ("heading", "languages"),
    [
        ("en it", "no it"),
        ("English Italian", "en de"),
        ("sentence_por_Latn sentence_eng_Latn", "eng_Latn spa_Latn"),
        ("zh_Hans en", "zh_Hant en"),
        ("sr en score", "sr_Latn en"),
        ("pt_BR pt_PT en", "pt en"),
    ],
)
def test_a_heading_with_other_languages_is_no_pair_of_sentences(tmp_path, heading, languages):
    path, (source, target) = (
        write(tmp_path / "a.tsv", [heading.split(), ["a"] * len(heading.split())]),
        languages.split(),
    )
    with pytest.raises(ColumnError, match=rf"line 1: .*{source} and {target}; set `columns`"):
        read(path, (source, target))


RECORDS = st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=9)


@each_time_a_folder
@given(RECORDS, st.sampled_from([None, 2]), st.booleans(), ENDINGS, st.booleans())
def test_an_array_of_objects_is_read_as_json_lines_are(tmp_path, pairs, indent, is_ascii, ending, is_nested):
    rows = [{"it": target, "n": [1, {}], "en": source} for source, target in pairs]
    rows = [{"id": 1, "translation": row} for row in rows] if is_nested else rows
    whole = packed(tmp_path / "a.json", json.dumps(rows, indent=indent, ensure_ascii=is_ascii).encode(), ending)
    assert read(whole) == pairs
    if rows:
        single = "".join(json.dumps(row) + "\n" for row in rows)
        assert read(packed(tmp_path / "b.json", single.encode(), ending)) == pairs
        assert names_in(whole).are_languages == is_nested


def test_an_object_of_an_array_has_its_number(tmp_path):
    text = '\n[\n {"en": "a", "it": "b"},\n {\n"en": "c",\n"it": "d"}, {"en": "e", "it": null}\n]\n'
    assert numbered(write(tmp_path / "a.json", text))[0] == [(1, "a", "b"), (2, "c", "d"), (3, "e", "")]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ('[{"en": "a", "it": "b"}\n{"en"', "line 2: not valid JSON"),
        ('[{"en": "a", "it": "b"},\n', "line 2: not valid JSON"),
        ('[{"en": "a",\n "it"}]', "line 2: not valid JSON"),
        ('[{"en": "a", "it": "b"}] x', "line 1: not valid JSON"),
        ('[\n["a", "b"]]', r"line 1: found '\[\"a\""),
        ('[{"en": "a", "de": "b"}]', "line 1: no column 'it'"),
        ('[{"en": "a", "it": 3}]', "line 1: 'it' holds 3"),
        ('[{"en": "a", "en": "b"}]', "line 1: .*a key occurs twice"),
        ('{\n"data": []}', r"line 1: .*jq -c '\.KEY\[\]' a\.json"),
        ("[" + '{"a":' * 100_000, "line 1: not valid JSON"),
        (b'[{"en": "a",\n "it": "perch\xe9"}]', "line 1: not valid JSON: 'utf-8'"),
    ],
)
def test_the_error_of_a_damaged_array_names_the_line(tmp_path, content, place):
    (tmp_path / "a.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(CorpusError, match=rf"a\.json, {place}"):
        read(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["a.txt", "a", "a.txt.gz"])
def test_a_file_whose_name_says_no_format_is_read_in_the_given_one(tmp_path, name):
    ending = ".gz" if name.endswith(".gz") else ""
    texts = {
        "tsv": "a\tb\nc\td\n",
        "plain_tsv": "a\tb\nc\td\n",
        "quoted_tsv": '"a"\tb\nc\td\n',
        "csv": "a,b\nc,d\n",
        "json": '{"en": "a", "it": "b"}\n{"en": "c", "it": "d"}\n',
    }
    assert list(texts) == list(get_args(FormatName))
    for format_name, text in texts.items():
        path = packed(tmp_path / name.removesuffix(ending), text.encode(), ending)
        assert read(path, format_name=format_name) == [("a", "b"), ("c", "d")]
        with pytest.raises(CorpusError, match=rf"unknown format; .*--format\) to .*{format_name}"):
            read(path)
        assert FileSource(file=name, format=format_name).format == format_name
        assert FolderSource(folder=".", pattern=name, format=format_name).format == format_name
