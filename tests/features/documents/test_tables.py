import csv
import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_trips import read, texts_of, translated

from mt_cli.features.documents.document import DocumentError

CSV = 'id,text,note\r\n1,Hello,a\r\n2,"Good ""day"", sir","b, c"\r\n\r\n3,"two\nlines",\n4,,x\n5, 12 ,"y"'
PLAIN = 'id\ttext\n1\tHe said "no"\n2\t"Yes\n\n3\t  \n'
QUOTED = 'id\ttext\r\n1\t"He said ""no"""\r\n2\tYes\r\n'


def rows(content, separator=","):
    return list(csv.reader(io.StringIO(content, newline=""), delimiter=separator, strict=True))


def test_only_cells_of_the_column_are_replaced(tmp_path):
    document = read(tmp_path, ".csv", CSV, "text")
    assert texts_of(document) == [("Hello",), ('Good "day", sir',), ("two\nlines",)]
    assert document.counts == {"without_text": 2}
    expected = CSV.replace("Hello", "HELLO").replace('Good ""day"", sir', 'GOOD ""DAY"", SIR')
    assert translated(document, str.upper).decode() == expected.replace("two\nlines", "TWO\nLINES")


def test_numbers_of_columns_are_for_tables_without_heading(tmp_path):
    assert texts_of(read(tmp_path, ".csv", CSV, "2"))[0] == ("text",)
    assert texts_of(read(tmp_path, ".csv", "1,2\na,b\n", "1")) == [("a",)]
    assert texts_of(read(tmp_path, ".csv", "2,1\na,b\n", "1")) == [("b",)]


def test_cells_are_quoted_as_before_or_where_needed(tmp_path):
    document = read(tmp_path, ".csv", 'text,note\n"a",1\nb,2\nc,3\nd,4\n', "text")
    written = dict(zip("abcd", ["x", "x, y", 'x "y"', "x\ny"], strict=True))
    expected = 'text,note\n"x",1\n"x, y",2\n"x ""y""",3\n"x\ny",4\n'
    assert translated(document, written.get).decode() == expected


def test_semicolons_separate_if_the_heading_has_no_comma(tmp_path):
    content = '"id, no";text\n1;a, b\n'
    document = read(tmp_path, ".csv", content, "text")
    assert texts_of(document) == [("a, b",)]
    assert translated(document, lambda text: "a;b").decode() == '"id, no";text\n1;"a;b"\n'


def test_quotation_marks_of_tsv_are_text_unless_a_spreadsheet_wrote_them(tmp_path):
    plain = read(tmp_path, ".tsv", PLAIN, "text")
    assert texts_of(plain) == [('He said "no"',), ('"Yes',)]
    assert translated(plain, lambda text: f"{text}\t\n!").decode() == PLAIN.replace("no", 'no" !').replace(
        '" !"', '" !'
    ).replace("Yes", "Yes !")
    quoted = read(tmp_path, ".tsv", QUOTED, "text")
    assert texts_of(quoted) == [('He said "no"',), ("Yes",)]
    assert translated(quoted, lambda text: f'{text}"').decode() == QUOTED.replace('no""', 'no""""').replace(
        "Yes", '"Yes"""'
    )


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(("suffix", "content"), [(".csv", CSV), (".tsv", PLAIN), (".tsv", QUOTED)])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n\n"])
def test_identity_keeps_each_byte(tmp_path, suffix, content, mark, end):
    raw = mark + (content + end).encode()
    assert translated(read(tmp_path, suffix, raw, "text")) == raw


@pytest.mark.parametrize(
    ("suffix", "content", "column", "message"),
    [
        (".csv", CSV, None, "they are 1 'id', 2 'text', 3 'note'"),
        (".csv", CSV, "txt", "no column 'txt'; its columns are 1 'id', 2 'text', 3 'note'"),
        (".csv", CSV, "4", "no column '4'"),
        (".csv", "a,a\n1,2\n", "a", "several columns are named 'a'"),
        (".csv", 'a,b\n1,"2\n3,4\n', "b", "line 2: not valid CSV: a quotation mark is never closed"),
        (".csv", 'a,b\n1,"2"3\n', "b", "line 2: not valid CSV: text follows"),
        (".csv", "a,b\n1,2,3\n", "b", "line 2: has 3 cells, and the first line has 2"),
        (".csv", b"a,b\n1,\xe4\n", "b", "line 2: not utf-8"),
        (".tsv", b"a\tb\n1\t\xe4\n", "b", "line 2: not utf-8"),
        (".tsv", "a\tb\n1\t2\t3\n", "b", "line 2: has 3 cells"),
        (".tsv", "a\tb\n".encode("utf-16"), "b", "UTF-16"),
    ],
)
def test_damaged_tables_and_missing_columns_are_refused(tmp_path, suffix, content, column, message):
    with pytest.raises(DocumentError, match=message):
        read(tmp_path, suffix, content, column)


def test_empty_tables_have_no_units(tmp_path):
    for suffix in (".csv", ".tsv"):
        for content in ("", "\n", "a\n", "a", "a\n\n"):
            document = read(tmp_path, suffix, content, "a")
            assert not document.units and translated(document) == content.encode()


cells = st.text(st.sampled_from('ab ,;"\t\\\n\ré😀\u2028'), max_size=12) | st.text(max_size=12)
keeping_the_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@keeping_the_folder
@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=4), st.sampled_from([",", ";"]), st.sampled_from([0, 1]))
def test_any_text_comes_back_from_csv(tmp_path, pairs, separator, quoting):
    table = io.StringIO()
    writer = csv.writer(table, delimiter=separator, quoting=quoting)
    writer.writerows([("key", "text"), *(("k" + key, "x") for key, _ in pairs)])
    raw = table.getvalue().encode()
    document = read(tmp_path, ".csv", raw, "text")
    assert translated(document) == raw and len(document.units) == len(pairs)
    parts = {index: unit.write([pairs[index][1]], False) for index, unit in enumerate(document.units)}
    expected = [["key", "text"], *(["k" + key, text] for key, text in pairs)]
    assert rows(document.replaced(parts).decode(), separator) == expected


@keeping_the_folder
@given(st.lists(cells, min_size=1, max_size=4))
def test_a_table_of_one_column_keeps_its_records(tmp_path, texts):
    document = read(tmp_path, ".csv", "text\n" + "x\n" * len(texts), "text")
    parts = {index: unit.write([texts[index]], False) for index, unit in enumerate(document.units)}
    assert rows(document.replaced(parts).decode()) == [["text"], *([text] for text in texts)]


@keeping_the_folder
@given(st.lists(cells.filter(str.strip), min_size=1, max_size=4))
def test_any_cells_are_read_as_the_csv_module_reads_them(tmp_path, texts):
    table = io.StringIO()
    csv.writer(table, lineterminator="\r\n").writerows([("n", "text"), *(("1", f"x{text}") for text in texts)])
    document = read(tmp_path, ".csv", table.getvalue().encode(), "text")
    assert [text for (text,) in texts_of(document)] == [f"x{text}".strip() for text in texts]


@keeping_the_folder
@given(st.lists(cells, min_size=1, max_size=4))
def test_translations_never_add_cells_or_lines_to_tsv(tmp_path, texts):
    document = read(tmp_path, ".tsv", "n\ttext\n" + "1\tx\n" * len(texts), "text")
    parts = {index: unit.write([texts[index]], False) for index, unit in enumerate(document.units)}
    lines = document.replaced(parts).decode().split("\n")
    assert len(lines) == len(texts) + 2 and all(line.count("\t") == 1 for line in lines[:-1])


def test_large_tables_are_read_in_linear_time(tmp_path):
    for content in ("a,b\n" + '1,"x ""y"""\n' * 100_000, 'a,b\n1,"' + '""' * 1_000_000 + 'x"\n'):
        assert translated(read(tmp_path, ".csv", content, "b")) == content.encode()
