"""Tables: quotation marks of spreadsheets, rows with other numbers of cells, columns, given formats."""

import json
from typing import get_args

import pytest
from formats import packed, read

from mt_cli.config.sources import FileSource, FormatName
from mt_cli.corpus.formats.table import read_file
from mt_cli.corpus.rows import ReadReport
from mt_cli.errors import ColumnError, CorpusError

SEPARATORS = {"tsv": "\t", "csv": ","}


def write(path, rows):
    separator = SEPARATORS.get(path.suffix[1:], "\t")
    text = "".join(separator.join(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8", newline="")
    return path


SENTENCES = [(f"one {number}", f"uno {number}") for number in range(30)]


@pytest.mark.parametrize(
    "rows",
    [
        [('"Come here."', '"Vieni qui."')] * 9 + SENTENCES,
        [('"Come here.', '"Vieni qui.'), ('Now."', 'Adesso."')] * 9,
        [('a 3" nail', 'un chiodo da 3"')],
        [('"He ""stops"""', "Si ferma"), ('a 3" nail', "un chiodo")],
    ],
)
def test_quotation_marks_that_no_spreadsheet_would_write_are_text(tmp_path, rows):
    path = write(tmp_path / "a.tsv", rows)
    assert read(path) == read(path, format_name="plain_tsv") == rows


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([("en", "it"), ("a", "b"), ("c", "d", "e"), ("f", "g")], 3),
        ([("a", "b")] * 99 + [("c", "d", "e")], 100),
        ([("en", "it", "score"), ("a", "b", "1"), ("a b", "2")], 3),
        (["ab", "c"], 2),
        ([("en", "it"), ("1", "a", "b"), ("2", "c", "d")], 2),
    ],
)
@pytest.mark.parametrize("kind", SEPARATORS)
def test_a_row_whose_pair_may_be_shifted_is_refused(tmp_path, rows, line, kind):
    path = write(tmp_path / f"a b.{kind}", rows)
    with pytest.raises(CorpusError, match=f"line {line}: "):
        read(path)


@pytest.mark.parametrize(
    "rows",
    [
        [("",), ("a", "b"), ("  ",), ("c", "d")],
        [("a", "b"), ("", "", ""), ("c", "d", ""), (" ", "", "", " ")],
        [("en", "it", ""), ("a", "b"), ("", ""), ("c", "d", "note")],
        [("a", "b", "1"), ("c", "d", "2"), ("", "", "")],
    ],
)
@pytest.mark.parametrize("kind", SEPARATORS)
def test_blank_lines_are_blank_pairs_and_empty_last_cells_harmless(tmp_path, rows, kind):
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
    for header in (("id", "en", "n", "it"), ("id", "English", "n", "Italian"), ("id", "source", "n", "target")):
        for columns in (numbers, (header[1], header[3]), None):
            assert read(write(path, [header, *rows]), columns=columns) == pairs
    assert read(write(path, [("2", "x", "4", "y"), ("a", "b", "c", "d")]), columns=numbers) == [("a", "c")]
    for columns in (("2", "5"), ("2", "0"), "xy"):
        with pytest.raises(ColumnError, match=f"line 1: .*{columns[1]}"):
            read(write(path, rows), columns=columns)


@pytest.mark.parametrize(
    ("header", "languages", "expected"),
    [
        ("English Italian", "it en", "1 0"),
        ("id sentence_por_Latn sentence_eng_Latn", "eng_Latn por_Latn", "2 1"),
        ("pt_PT pt_BR en", "pt_BR en", "1 2"),
        ("no x", "en it", "no x"),  # Sentences like codes.
        ("Target Source", "en it", "1 0"),
        ("Src Trg", "en it", "0 1"),
        ("Italian_text English_text", "en it", "1 0"),
        ("nb-NO id en", "en no", "2 0"),
    ],
)
@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl"])
def test_columns_named_like_the_sides_are_found(tmp_path, header, languages, expected, kind):
    names = header.split()
    if kind == ".jsonl":
        if expected != header:
            (tmp_path / "a.jsonl").write_text(json.dumps(dict(zip(names, "012", strict=False))), encoding="utf-8")
            assert read(tmp_path / "a.jsonl", languages.split()) == [tuple(expected.split())]
        return
    path = write(tmp_path / f"a{kind}", [names, [str(number) for number in range(len(names))]])
    assert read(path, languages.split())[0] == tuple(expected.split())


@pytest.mark.parametrize(
    ("header", "languages"),
    [
        ("en it", "no it"),
        ("sentence_por_Latn sentence_eng_Latn", "eng_Latn spa_Latn"),
        ("pt_BR pt_PT en", "pt en"),
    ],
)
def test_a_header_with_other_languages_is_no_pair(tmp_path, header, languages):
    names, (source, target) = header.split(), languages.split()
    path = write(tmp_path / "a.tsv", [names, ["a"] * len(names)])
    with pytest.raises(ColumnError, match=f"line 1: .*{source} and {target}.*`columns`"):
        read(path, (source, target))


@pytest.mark.parametrize(("first", "is_noted"), [("Español;हिन्दी;", True), ("Gracias.;Aguyje.;", False)])
def test_a_first_line_like_a_header_is_noted(tmp_path, first, is_noted):
    path = tmp_path / "a.csv"
    path.write_text("\n".join([first, *["uno dos tres cuatro;peteĩ mokõi mbohapy irundy;"] * 20]), encoding="utf-8")
    report = ReadReport()
    assert len([*read_file(path, ("es", "gn"), None, None, report)]) == 21
    assert [*report.notes()] == is_noted * [
        f"{path}, line 1: seems to be a header, and is read as a pair; if it is one: columns: [Español, हिन्दी]"
    ]


def test_a_file_is_read_in_the_given_format(tmp_path):
    texts = {
        "tsv": "a\tb\nc\td\n",
        "plain_tsv": "a\tb\nc\td\n",
        "csv": "a,b\nc,d\n",
        "json": '{"en": "a", "it": "b"}\n{"en": "c", "it": "d"}\n',
    }
    assert list(texts) == list(get_args(FormatName))
    for ending in ("", ".gz"):
        for format_name, text in texts.items():
            path = packed(tmp_path / "a.txt", text.encode(), ending)
            assert read(path, format_name=format_name) == [("a", "b"), ("c", "d")]
            with pytest.raises(CorpusError, match=rf"{path.name}: .*--format\) to .*{format_name}"):
                read(path)
