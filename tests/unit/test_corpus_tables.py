"""Tables: quotation marks of spreadsheets, rows with other numbers of cells, columns, JSON arrays, given formats."""

import csv
import gzip
import io
import json
import tracemalloc

import pytest
from formats import ENDINGS, each_time_a_folder, packed, read
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import FileSource, FolderSource
from mt_cli.corpus import lines, tables
from mt_cli.corpus.formats import NAMED_FORMATS, names_in, read_file
from mt_cli.corpus.quoting import quoting_of
from mt_cli.corpus.sources import notes_on_files
from mt_cli.errors import ColumnError, CorpusError

CELL = st.text(st.sampled_from('ab",\t\n '), max_size=8)


def as_spreadsheet(rows, separator="\t", quoting=csv.QUOTE_MINIMAL):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, quoting=quoting).writerows(rows)
    return text.getvalue()


def write(path, rows, separator="\t"):
    text = rows if isinstance(rows, str) else "".join(separator.join(row) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8", newline="")
    return path


@each_time_a_folder
@given(st.lists(st.tuples(CELL, CELL), max_size=10), ENDINGS)
def test_what_a_spreadsheet_wrote_is_read_without_its_quotation_marks(tmp_path, pairs, ending):
    proof = ('He says: "Stop".', 'Dice: "Ferma".')
    path = packed(tmp_path / "a.tsv", as_spreadsheet([*pairs, proof]).encode(), ending)
    for name in ("tsv", "quoted_tsv"):
        # A blank row is a blank pair.
        rows = [pair if "".join(pair).strip() else ("", "") for pair in read(path, format_name=name)]
        assert rows == [pair if "".join(pair).strip() else ("", "") for pair in [*pairs, proof]]


SENTENCES = [(f"one {number}", f"uno {number}") for number in range(30)]


@pytest.mark.parametrize(
    ("rows", "quoting"),
    [
        ([("en", "it"), *SENTENCES, ('say "a"', 'di "a"')], csv.QUOTE_MINIMAL),
        (SENTENCES, csv.QUOTE_ALL),
        ([("en", "it"), *SENTENCES], csv.QUOTE_ALL),
        ([(*pair, number) for number, pair in enumerate(SENTENCES)], csv.QUOTE_NONNUMERIC),
        ([*SENTENCES, ("a", "line\nbreak")], csv.QUOTE_MINIMAL),
        ([*SENTENCES, ("a", "tab\tinside")], csv.QUOTE_MINIMAL),
    ],
)
def test_each_reason_to_quote_cells_is_recognised(tmp_path, rows, quoting):
    path = write(tmp_path / "a.tsv", as_spreadsheet(rows, quoting=quoting))
    assert quoting_of(path).is_quoted
    assert read(path) == [row[:2] for row in rows if row != ("en", "it")]


def test_one_column_in_quotation_marks_is_quoted(tmp_path):
    rows = [("en", "it"), *((source, f'"{target}"') for source, target in SENTENCES)]
    assert read(write(tmp_path / "a.tsv", rows)) == SENTENCES
    assert read(write(tmp_path / "b.tsv", [*rows, ("a", "b")]))[0] == ("one 0", '"uno 0"')


def test_a_program_that_quotes_cells_with_commas_is_recognised(tmp_path):
    rows = [(f'"yes, {number}"', f'"sì, {number}"') for number in range(5)]
    assert read(write(tmp_path / "a.tsv", [*SENTENCES, *rows]))[-1] == ("yes, 4", "sì, 4")
    rows = [*rows, ("no, never", "no, mai")]
    assert read(write(tmp_path / "b.tsv", [*SENTENCES, *rows]))[-2] == ('"yes, 4"', '"sì, 4"')


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
    ],
)
def test_quotation_marks_that_no_spreadsheet_would_write_are_text(tmp_path, rows):
    path = write(tmp_path / "a.tsv", rows)
    assert not quoting_of(path).is_quoted
    assert read(path) == rows
    assert read(path, format_name="plain_tsv") == rows


def corpus_of(source):
    return CorpusConfig.model_validate(
        {"source": "en", "target": "it", "train": source, "valid": {"fraction": 0.1}}, strict=False
    )


def test_users_are_told_how_quotation_marks_are_read_and_of_files_that_are_mixed(tmp_path):
    quoted = write(tmp_path / "q.tsv", as_spreadsheet([("a", "b"), ('c "d"', "e")]))
    plain = write(tmp_path / "p.tsv", [('"Come here.', "Vieni"), ('a 3" nail', "un chiodo")])
    mixed = write(tmp_path / "m.tsv", [("a", "b"), ('"c ""d"""', "e"), ('a 3" nail', "f")])
    (note,) = notes_on_files(corpus_of({"file": str(quoted)}))
    assert note.endswith(
        "q.tsv: quoted as spreadsheets do (1 cell, the first in line 2); read without the quotation marks"
    )
    assert notes_on_files(corpus_of({"file": str(plain)})) == []
    (note,) = notes_on_files(corpus_of({"file": str(mixed)}))
    assert "(1 cell, the first in line 2) and others with marks are not (1, the first in line 3)" in note
    assert "set `format: quoted_tsv`" in note
    assert read(mixed, format_name="quoted_tsv") == [("a", "b"), ('c "d"', "e"), ('a 3" nail', "f")]
    for name in ("plain_tsv", "quoted_tsv"):
        assert notes_on_files(corpus_of({"file": str(mixed), "format": name})) == []
    write(tmp_path / "r.tsv", as_spreadsheet([('c "d"', "e")]))
    (note,) = notes_on_files(corpus_of({"folder": str(tmp_path), "pattern": "[qr].tsv"}))
    assert "q.tsv: quoted as spreadsheets do" in note and "(likewise 1 more of the folder)" in note


def test_users_are_told_of_cells_between_marks_that_are_not_doubled(tmp_path):
    """So writes `write.table` of R."""
    rows = [(f'"say \\"{source}\\""', f'"{target}"') for source, target in SENTENCES]
    (note,) = notes_on_files(corpus_of({"file": str(write(tmp_path / "a.tsv", rows))}))
    assert "(60 cells, the first in line 1) and others with marks are not (30, the first in line 1)" in note


def test_an_open_quotation_mark_does_not_swallow_the_lines_after_it(tmp_path):
    rows = [*SENTENCES[:9], ('"open', "aperto"), *SENTENCES[9:]]
    path = write(tmp_path / "a.tsv", rows)
    assert read(path) == rows
    with pytest.raises(CorpusError, match=r"line 10: not valid TSV with quotation marks: .*set `format: plain_tsv`"):
        read(path, format_name="quoted_tsv")


def test_the_search_for_quotation_marks_takes_constant_memory(tmp_path):
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(('"open\tx\n' + "one two\tuno due\n" * 300_000).encode()))
    tracemalloc.start()
    assert not quoting_of(path).is_quoted
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


RAGGED = {
    "a tab inside a sentence": ([("en", "it"), ("a", "b"), ("c", "d", "e"), ("f", "g")], 3, "3 cells"),
    "without a heading": ([("a", "b"), ("c", "d"), ("e", "f", "g")], 3, "3 cells"),
    "far below": ([("a", "b")] * 99 + [("c", "d", "e")], 100, "3 cells"),
    "a missing tab": ([("en", "it", "score"), ("a", "b", "1"), ("a b", "2")], 3, "2 cells"),
    "a note that others lack": ([("en", "it"), ("a", "b"), ("c", "d", "note")], 3, "3 cells"),
    "an empty column beside it": ([("a", "b", "")] * 9 + [("c", "d", "e", "")], 10, "4 cells"),
    "columns by number": ([("1", "a", "b")] * 9 + [("1", "c", "d", "e")], 10, "4 cells"),
}


@pytest.mark.parametrize("separator", ["\t", ","])
@pytest.mark.parametrize("case", RAGGED)
def test_a_row_with_another_number_of_cells_is_refused_since_its_pair_may_be_shifted(tmp_path, case, separator):
    rows, line, found = RAGGED[case]
    path = write(tmp_path / ("a.tsv" if separator == "\t" else "a.csv"), rows, separator)
    columns = ("2", "3") if case == "columns by number" else None
    with pytest.raises(CorpusError, match=rf"line {line}: has {found}, and the (heading has|others have) \d; .*repair"):
        read(path, columns=columns)


def test_rows_with_other_numbers_of_cells_are_counted_and_the_advice_works(tmp_path, run):
    rows = [("en", "it"), *([("a", "b"), ("c", "d", "e")] * 7)]
    path = write(tmp_path / "a b.tsv", rows)
    with pytest.raises(CorpusError, match=r"7 such rows \(lines 3, 5, 7, 9, 11, \.\.\.\)") as caught:
        read(path)
    command = str(caught.value).partition("leave them out: ")[2]
    run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert read(tmp_path / "repaired.tsv") == [("a", "b")] * 7
    path = write(tmp_path / "c.tsv", [("en", "it", "note"), ("a", "b", "n"), ("c", "d")])
    with pytest.raises(CorpusError, match="only cells at the end are missing") as caught:
        read(path)
    run(["sh", "-c", str(caught.value).partition("keep the pair alone: ")[2]], cwd=tmp_path, check=True)
    assert read(tmp_path / "pairs.tsv") == [("a", "b"), ("c", "d")]


def test_a_heading_without_the_name_of_the_first_column_is_refused(tmp_path):
    path = write(tmp_path / "a.tsv", [("en", "it"), ("1", "a", "b"), ("2", "c", "d")])
    with pytest.raises(CorpusError, match=r"line 2: has 3 cells, and the heading has 2; .* repair the heading"):
        read(path)


@pytest.mark.parametrize("separator", ["\t", ","])
@pytest.mark.parametrize(
    "rows",
    [
        [("en", "it"), ("a", "b"), ("",), ("c", "d")],
        [("",), ("a", "b"), ("  ",), ("c", "d")],
        [("a", "b"), ("", "", ""), ("c", "d", ""), (" ", "", "", " ")],
        [("en", "it", ""), ("a", "b"), ("", ""), ("c", "d", "note")],
        [("a", "b", "1"), ("c", "d", "2"), ("", "", "")],
        [("a", "b", ""), ("c", "d"), ("",)],
    ],
)
def test_blank_lines_are_blank_pairs_and_empty_cells_at_the_end_do_no_harm(tmp_path, rows, separator):
    path = write(tmp_path / ("a.tsv" if separator == "\t" else "a.csv"), rows, separator)
    pairs = read(path)
    assert [pair for pair in pairs if "".join(pair).strip()] == [("a", "b"), ("c", "d")]
    assert len(pairs) == len(rows) - (rows[0][:2] == ("en", "it"))


@pytest.mark.parametrize("separator", ["\t", ","])
def test_columns_are_counted_from_1(tmp_path, separator):
    path = tmp_path / ("a.tsv" if separator == "\t" else "a.csv")
    rows = [("7", "one", "x", "uno"), ("8", "two", "y", "due")]
    assert read(write(path, rows, separator), columns=("2", "4")) == [("one", "uno"), ("two", "due")]
    assert read(write(path, rows, separator), columns=("4", "2")) == [("uno", "one"), ("due", "two")]
    for heading in (("id", "en", "n", "it"), ("id", "English", "n", "Italian"), ("id", "source", "n", "target")):
        assert read(write(path, [heading, *rows], separator), columns=("2", "4")) == [("one", "uno"), ("two", "due")]
    named = [("2", "x", "4", "y"), ("a", "b", "c", "d")]
    assert read(write(path, named, separator), columns=("2", "4")) == [("a", "c")]
    for column, message in (("5", "no column 5: the line has 4 columns, counted from 1"), ("0", "no column 0")):
        with pytest.raises(ColumnError, match=rf"line 1: {message}"):
            read(write(path, rows, separator), columns=("2", column))
    with pytest.raises(ColumnError, match="no column '2' among 'en', 'it'"):
        read(write(tmp_path / "a.jsonl", '{"en": "a", "it": "b"}\n'), columns=("2", "4"))


def test_numbers_of_columns_may_be_numbers_in_a_config():
    assert FileSource.model_validate({"file": "a.tsv", "columns": [2, 4]}).columns == ("2", "4")
    with pytest.raises(ValueError, match="both are '2'"):
        FileSource.model_validate({"file": "a.tsv", "columns": [2, 2]})
    for columns in ([True, 2], [1.0, 2], [2], 2):
        with pytest.raises(ValueError, match="columns"):
            FileSource.model_validate({"file": "a.tsv", "columns": columns})


@pytest.mark.parametrize(
    ("heading", "languages", "expected"),
    [
        ("English Italian", ("it", "en"), ("1", "0")),
        ("eng ita", ("en", "it"), ("0", "1")),
        ("target source", ("en", "it"), ("1", "0")),
        ("id sentence_por_Latn sentence_eng_Latn", ("eng_Latn", "por_Latn"), ("2", "1")),
        ("text_it text_en", ("en", "it"), ("1", "0")),
        ("it-IT en-US", ("en", "it"), ("1", "0")),
        ("pt_PT pt_BR en", ("pt_BR", "en"), ("1", "2")),
        ("zh-CN zh-TW en", ("zh_Hant", "en"), ("1", "2")),
    ],
)
def test_columns_named_like_the_languages_in_another_spelling_are_found(tmp_path, heading, languages, expected):
    names = heading.split()
    path = write(tmp_path / "a.tsv", [names, [str(number) for number in range(len(names))]])
    assert read(path, languages) == [expected]


@pytest.mark.parametrize(
    ("heading", "languages"),
    [
        ("en it", ("no", "it")),
        ("en it", ("de", "fr")),
        ("English Italian", ("en", "de")),
        ("sentence_por_Latn sentence_eng_Latn", ("eng_Latn", "spa_Latn")),
        ("zh_Hans en", ("zh_Hant", "en")),
        ("sr_Cyrl en", ("sr_Latn", "en")),
        ("sr en score", ("sr_Latn", "en")),
        ("hau en", ("yor", "en")),
        ("pt_BR pt_PT en", ("pt", "en")),
        ("en-GB en-US it", ("en", "it")),
    ],
)
def test_a_heading_with_other_languages_is_no_pair_of_sentences(tmp_path, heading, languages):
    path = write(tmp_path / "a.tsv", [heading.split(), ["a"] * len(heading.split())])
    with pytest.raises(ColumnError, match=rf"line 1: the heading names .*{languages[0]} and {languages[1]}; set `col"):
        read(path, languages)


@pytest.mark.parametrize(
    "first", [("no", "no"), ("It is", "È"), ("he said", "lui"), ("en", "Il"), ("is", "è"), ("a", "b")]
)
def test_sentences_that_are_like_codes_are_no_heading(tmp_path, first):
    assert read(write(tmp_path / "a.tsv", [first, ("x", "y")])) == [first, ("x", "y")]


RECORDS = st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9)), max_size=9)


@each_time_a_folder
@given(RECORDS, st.sampled_from([None, 2]), st.booleans(), ENDINGS, st.integers(1, 40), st.booleans())
def test_an_array_of_objects_is_read_as_json_lines_are(tmp_path, pairs, indent, is_ascii, ending, size, is_nested):
    rows = [{"it": target, "n": [1, {}], "en": source} for source, target in pairs]
    rows = [{"id": 1, "translation": row} for row in rows] if is_nested else rows
    whole = packed(tmp_path / "a.json", json.dumps(rows, indent=indent, ensure_ascii=is_ascii).encode(), ending)
    single = "".join(json.dumps(row) + "\n" for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "CHUNK_BYTES", size)
        assert read(whole) == pairs
    if rows:
        assert read(packed(tmp_path / "b.json", single.encode(), ending)) == pairs
        assert names_in(whole).are_languages == is_nested


def test_an_object_of_an_array_has_the_number_of_its_line(tmp_path):
    text = '\n[\n {"en": "a", "it": "b"},\n {\n"en": "c",\n"it": "d"}, {"en": "e", "it": null}\n]\n'
    rows = list(read_file(write(tmp_path / "a.json", text), ("en", "it")))
    assert rows == [(3, "a", "b"), (4, "c", "d"), (6, "e", "")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"en": "a", "it": "b"}\n{"en"', "line 2: found '{\"en\"' in a JSON array"),
        ('[{"en": "a", "it": "b"},\n', "line 2: not valid JSON: the array does not end"),
        ('[{"en": "a",\n "it"}]', "line 1: not valid JSON: Expecting ':' delimiter"),
        ('[{"en": "a", "it": "b"}] x', "line 1: found 'x' in a JSON array"),
        ('[\n["a", "b"]]', r"line 2: found '\[\"a\""),
        ('[{"en": "a", "de": "b"}]', "line 1: no column 'it' among 'en', 'de'"),
        ('[{"en": "a", "it": 3}]', "'it' holds 3, not text"),
        ('[{"en": "a", "en": "b"}]', "a key occurs twice"),
        (
            '{\n"data": []}',
            r"line 1: not valid JSON: .*; if an object holds the array: jq -c '\.KEY\[\]' a\.json > pairs\.jsonl",
        ),
        ("[" + '{"a":' * 100_000, "line 1: not valid JSON"),
    ],
)
def test_the_error_of_a_damaged_array_names_the_line(tmp_path, content, message):
    with pytest.raises(CorpusError, match=rf"a\.json, {message}" if message.startswith("line") else message):
        read(write(tmp_path / "a.json", content))


def test_an_array_is_not_held_in_memory(tmp_path):
    path = tmp_path / "a.json.gz"
    row = json.dumps({"en": "one two three " * 20, "it": "uno due tre"})
    path.write_bytes(gzip.compress(f"[{', '.join([row] * 60_000)}]".encode(), 1))
    tracemalloc.start()
    assert sum(1 for _ in tables.read_json(path, ("en", "it"), None)) == 60_000
    assert tracemalloc.get_traced_memory()[1] < 8_000_000
    tracemalloc.stop()


def test_a_text_that_is_not_utf8_is_named_in_an_array_too(tmp_path):
    (tmp_path / "a.json").write_bytes(b'[{"en": "a",\n "it": "perch\xe9"}]')
    with pytest.raises(CorpusError, match=r"a\.json, line 2: not UTF-8 \(found 0xE9\)"):
        read(tmp_path / "a.json")


@pytest.mark.parametrize("name", ["a.txt", "a", "a.txt.gz"])
def test_a_file_whose_name_says_no_format_is_read_in_the_given_one(tmp_path, name):
    ending = ".gz" if name.endswith(".gz") else ""
    for format_name, text in {
        "tsv": "a\tb\nc\td\n",
        "plain_tsv": "a\tb\nc\td\n",
        "quoted_tsv": '"a"\tb\nc\td\n',
        "csv": "a,b\nc,d\n",
        "json": '{"en": "a", "it": "b"}\n{"en": "c", "it": "d"}\n',
    }.items():
        path = packed(tmp_path / name.removesuffix(ending), text.encode(), ending)
        assert read(path, format_name=format_name) == [("a", "b"), ("c", "d")]
        with pytest.raises(CorpusError, match="unknown format; ") as caught:
            read(path)
        if format_name in ("tsv", "json"):
            assert f"set `format: {format_name}` (mt init: --format {format_name})" in str(caught.value)
        assert FileSource.model_validate({"file": name, "format": format_name}).format == format_name
    for source in (FileSource, FolderSource):
        in_config = source.model_json_schema()["properties"]["format"]["anyOf"][0]["enum"]
        assert in_config == [*NAMED_FORMATS] == ["tsv", "plain_tsv", "quoted_tsv", "csv", "json"]


def test_sentences_alone_are_not_taken_for_tables(tmp_path):
    path = write(tmp_path / "a.txt", "one\ntwo\n")
    with pytest.raises(
        CorpusError, match=r"use one of \.tsv, .*, or set `format` to tsv, .*; of two files .* give both"
    ):
        read(path)
