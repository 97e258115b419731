"""Laws of all formats: any pairs are read as they were written, and damage is one error with its place."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from formats import ENDINGS, LANGUAGES, TEXT, assert_refused, each_time_a_folder, numbered, packed, read
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.formats.table import names_in, read_file
from mt_cli.corpus.lines import count_lines, opened, read_lines
from mt_cli.errors import CorpusError

FIRST = ('The first "sentence"', 'La prima "frase"')
"""No header, and a cell that a spreadsheet writes between quotation marks."""


def texts_without(characters, **options):
    allowed = st.characters(exclude_categories=["Cs"], exclude_characters=characters, **options)
    return st.text(allowed, max_size=20)


def as_lines(pairs, variant):
    rows = [*[("en", "it")] * variant, *pairs]
    return "".join(f"{source}\t{target}\n" for source, target in rows)


def as_spreadsheet(pairs, variant):
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t", quoting=csv.QUOTE_ALL if variant else csv.QUOTE_MINIMAL).writerows(pairs)
    return text.getvalue()


def as_csv(pairs, variant):
    text = io.StringIO(newline="")
    rows = [(number, *pair) for number, pair in enumerate(pairs)] if variant else pairs
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, delimiter=";" if variant else ",")
    writer.writerows([*[("id", "en", "it")] * variant, *rows])
    return text.getvalue()


def as_json_lines(pairs, variant):
    return "".join(json.dumps(record, ensure_ascii=variant) + "\n" for record in records_of(pairs, variant))


def as_json_array(pairs, variant):
    return json.dumps(records_of(pairs, variant), ensure_ascii=variant, indent=2 if variant else None)


def records_of(pairs, is_nested):
    records = [{"it": target, "n": [1, {}], "en": source} for source, target in pairs]
    return [{"id": 1, "translation": record} for record in records] if is_nested else records


def as_tmx(pairs, variant):
    units = "".join(
        f'<tu><tuv xml:lang="EN-us"><seg>{escape(source)}</seg></tuv>'
        f'<tuv lang="it" x:y="z"><seg>{escape(target)}</seg></tuv></tu>'
        for source, target in pairs
    )
    return with_declaration(f'<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx xmlns:x="x">{units}</tmx>', variant)


def as_tbx(pairs, is_of_2019):
    entry, section, group = ("conceptEntry", "langSec", "termSec") if is_of_2019 else ("termEntry", "langSet", "tig")
    entries = "".join(
        f'<{entry}><{section} xml:lang="it"><{group}><term>{escape(target)}</term></{group}></{section}>'
        f'<{section} xml:lang="en-GB"><{group}><term>{escape(source)}</term></{group}></{section}></{entry}>'
        for source, target in pairs
    )
    return with_declaration(f"<tbx><text><body>{entries}</body></text></tbx>", is_of_2019)


def as_xliff(pairs, is_version_1):
    units = "".join(
        f"<segment><source>{escape(source)}</source><target>{escape(target)}</target></segment>"
        for source, target in pairs
    )
    if is_version_1:
        units = units.replace("segment>", "trans-unit>")
        codes = 'source-language="en-US" target-language="it"'
        text = f'<xliff version="1.2"><file {codes}><body>{units}</body></file></xliff>'
    else:
        text = f'<xliff version="2.1" srcLang="en" trgLang="it-IT"><file><unit>{units}</unit></file></xliff>'
    return with_declaration(text, is_version_1)


def with_declaration(text, is_wide):
    encoding = "utf-16" if is_wide else "utf-8"
    return f'<?xml version="1.0" encoding="{encoding}"?>{text}'.encode(encoding)


def as_catalogue(pairs, is_escaped):
    spelled = as_escapes if is_escaped else as_gettext
    return "\n".join(
        f"msgctxt {spelled('c')}\nmsgid {spelled(source)}\nmsgstr {spelled(target)}\n" for source, target in pairs
    )


def as_gettext(text):
    """Text as gettext writes it: a line of the text in a line of the file."""
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(character, escaped)
    return '""\n' + "\n".join(f'"{part}"' for part in text.replace("\\n", "\\n\0").split("\0"))


def as_escapes(text):
    """Text as bytes, every second of them octal."""
    escapes = (("\\{:03o}", "\\x{:02X}")[place % 2].format(byte) for place, byte in enumerate(text.encode()))
    return f'"{"".join(escapes)}"'


XML = texts_without("\ufffe\uffff", min_codepoint=32)
FORMATS = {
    "tsv": ("a.tsv", None, as_lines, texts_without('\0\n\r\t"\ufeff')),
    "plain_tsv": ("a.txt", "plain_tsv", as_lines, texts_without("\0\n\r\t\ufeff")),
    "spreadsheet": ("a.tsv", None, as_spreadsheet, st.text('ab", ', max_size=8)),
    "csv": ("a.csv", None, as_csv, texts_without("\0")),
    "jsonl": ("a.jsonl", None, as_json_lines, TEXT),
    "json": ("a.json", None, as_json_array, TEXT),
    "tmx": ("a.tmx", None, as_tmx, XML),
    "tbx": ("a.tbx", None, as_tbx, XML),
    "xliff": ("a.xlf", None, as_xliff, XML),
    "po": ("a.po", None, as_catalogue, texts_without("\0")),
}


@pytest.mark.parametrize("name", FORMATS)
@each_time_a_folder
@given(data=st.data(), ending=ENDINGS, variant=st.booleans())
def test_any_pairs_are_read_as_they_were_written(tmp_path, name, data, ending, variant):
    file_name, format_name, write, texts = FORMATS[name]
    sources = texts.filter(str.strip) if name == "po" else texts
    pairs = data.draw(st.lists(st.tuples(sources, texts), max_size=10))
    first = tuple(text.replace('"', "") for text in FIRST) if name == "tsv" else FIRST
    pairs = [first, *(pair if "".join(pair).strip() else ("", "") for pair in pairs)]  # As a blank row of a table.
    content = write(pairs, variant)
    path = packed(tmp_path / file_name, content if isinstance(content, bytes) else content.encode(), ending)
    assert read(path, format_name=format_name) == pairs


@each_time_a_folder
@given(st.lists(texts_without("\0\n\r")), st.sampled_from(["\n", "\r\n"]), st.booleans(), ENDINGS)
def test_lines_end_at_line_feeds_and_nowhere_else(tmp_path, lines, end, ends_last, ending):
    if lines and not lines[-1] and not ends_last:
        lines = [*lines, "last"]  # Without its end an empty last line cannot be told from none.
    text = end.join(lines) + (end if ends_last and lines else "")
    path = packed(tmp_path / "text", text.encode(), ending)
    expected = [line.removeprefix("\ufeff") if number == 0 else line for number, line in enumerate(lines)]
    assert list(read_lines(path)) == expected
    assert count_lines(path) == len(expected)


def test_rows_are_numbered_by_the_line_where_they_begin(tmp_path):
    (tmp_path / "a.csv").write_text('en,it\r\n"one\r\ntwo",due\r\n\r\nthree,tre\r\n', encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"en": "a", "it": "b"}\n\n{"en": "c", "it": null}\n', encoding="utf-8")
    assert numbered(tmp_path / "a.csv")[0] == [(2, "one\r\ntwo", "due"), (4, "", ""), (5, "three", "tre")]
    assert numbered(tmp_path / "a.jsonl")[0] == [(1, "a", "b"), (3, "c", "")]
    array = '\n[\n {"en": "a", "it": "b"},\n {\n"en": "c",\n"it": "d"}, {"en": "e", "it": null}\n]\n'
    (tmp_path / "a.json").write_text(array, encoding="utf-8")
    assert numbered(tmp_path / "a.json")[0] == [(1, "a", "b"), (2, "c", "d"), (3, "e", "")]


def test_odd_characters_are_text(tmp_path):
    for end in ("\n", "\r\n"):
        (tmp_path / "a.tsv").write_text(f"one\tuno\rdue{end}two\r\t\rtre{end}", encoding="utf-8", newline="")
        assert read(tmp_path / "a.tsv") == [("one", "uno\rdue"), ("two\r", "\rtre")]
    (tmp_path / "a.jsonl").write_text('{"en": "x \\ud83d y", "it": "\\ud83d\\ude00"}\n', encoding="utf-8")
    assert read(tmp_path / "a.jsonl") == [("x \ufffd y", "😀")]
    (tmp_path / "a.tsv").write_text("one\0two three\tuno\n\0\tdue e\0tre\n" * 3, encoding="utf-8")
    assert read(tmp_path / "a.tsv") == [("one\0two three", "uno"), ("\0", "due e\0tre")] * 3


LATIN = "perché".encode("latin-1")


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.tsv", b"a\tb\n" + LATIN + b"\tb\n", ", line 2, byte 6"),
        ("a.tsv.gz", gzip.compress(b"a\tb\n" * 10_000, mtime=0)[:-20], ": cannot be decompressed"),
        ("a.tsv.xz", lzma.compress(b"a\tb\n" * 10_000)[:-20], ": cannot be decompressed: it is no xz"),
        ("a.tsv.bz2", bz2.compress(b"a\tb\n" * 10_000)[:-20], ": cannot be decompressed: it is no bz2"),
        ("a.zip", b"PK", ": is a ZIP archive; unpack it"),
        ("a.tsv.gz", b"", ": cannot be decompressed: it is no gzip"),
        ("a.tsv", b"a\tb\rc\td\r", ": its lines end at carriage returns alone"),
        ("a.tsv", gzip.compress(b"a\tb\n", mtime=0), r": .*\.gz"),
        ("a.csv", b"PK\x03\x04...", ": .*ZIP"),
        ("a.csv", ('"one two","uno due"\n' * 20).encode("utf-16"), ".*UTF-8"),
        ("a.docx", b"", r": .*\.tsv, \.csv, \.jsonl, \.json, \.parquet, \.tmx, \.xlf, \.xliff, \.tbx, \.po"),
    ],
)
def test_bytes_that_are_no_text_are_refused(tmp_path, name, content, place):
    assert_refused(tmp_path / name, content, place)


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.csv", b'a,b\n"c,d\n', "line 2"),
        ("a.csv", b"a|b\nc|d\n", "line 1: found 1 column"),
        ("a.jsonl", b'{"en": "a", "it": "b"}\n{"en": \n', "line 2"),
        ("a.jsonl", b'{"en": "a", "de": "b"}\n', "row 1: .*'it'.*`columns`"),
        ("a.jsonl", b'{"en": "a", "it": "b"}\n{"en": "a"}\n', "row 2: .*repair this row"),
        ("a.csv", b"en,it,it\na,b,c\n", "line 1: the column 'it' occurs 2 times"),
        ("a.jsonl", b'{"a":' * 100_000 + b"\n", "line 1"),
        ("a.json", b'[{"en": "a",\n "it"}]', "line 2"),
        ("a.json", b'[\n{"en": "a", "it": "b"},\n\n{"en": "c"}]', "row 2: no column 'it'"),
    ],
)
def test_damaged_tables_and_json_name_the_line(tmp_path, name, content, place):
    assert_refused(tmp_path / name, content, f", {place}")


def test_the_two_columns_differ(tmp_path):
    (tmp_path / "a.tsv").write_text("one\tuno\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="are both 1"):
        read(tmp_path / "a.tsv", columns=("1", "1"))


@pytest.mark.parametrize("kind", [".tsv", ".po", ".tmx", ".parquet", ".tsv.gz"])
def test_anything_but_a_file_is_refused_at_once(tmp_path, kind):
    (tmp_path / f"folder{kind}").mkdir()
    os.mkfifo(tmp_path / f"pipe{kind}")
    (tmp_path / f"loop{kind}").symlink_to(f"loop{kind}")
    for name in ("none", "folder", "pipe", "loop", "x" * 300):
        with pytest.raises(CorpusError):
            read(tmp_path / f"{name}{kind}")
        with pytest.raises(CorpusError), opened(tmp_path / f"{name}{kind}"):
            raise AssertionError("it opened")


TEXTS = [("a", "b"), (None, "é"), ("c", None), (None, None), ("d", "")]


def as_columns(sides):
    return dict(zip(LANGUAGES, sides, strict=True))


def as_struct(sides):
    return {"translation": pa.StructArray.from_arrays(sides, list(LANGUAGES))}


def as_map(sides):
    rows = [list(zip(LANGUAGES, texts, strict=True)) for texts in zip(*map(pa.Array.to_pylist, sides), strict=True)]
    return {"translation": pa.array(rows, pa.map_(sides[0].type, sides[0].type))}


def map_of(*rows):
    return pa.table({"translation": pa.array(rows, pa.map_("string", "string"))})


@pytest.mark.parametrize("shape", [as_columns, as_struct, as_map])
def test_text_of_every_type_is_read_from_parquet(tmp_path, shape):
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        if shape is as_map and str(kind) not in ("string", "large_string"):
            continue  # Arrow makes no such maps.
        sides = [pa.array([pair[side] for pair in TEXTS], pa.string()).cast(kind) for side in (0, 1)]
        pq.write_table(pa.table(shape(sides)), tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet") == [(a or "", b or "") for a, b in TEXTS]
    pq.write_table(map_of(None, [("en", "a"), ("it", "b")]), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [("", ""), ("a", "b")]


GOOD = pa.array(["a", "b", "c"])


@pytest.mark.parametrize(
    ("table", "place"),
    [
        (pa.table({"en": GOOD, "it": [1.0, 2.0, 3.0]}), "row 1: 'it'.*; set `columns`"),
        (pa.table({"en": GOOD, "de": GOOD}), "'it' among 'en', 'de'; set `columns`"),
        (pa.table({"translation": [{"en": "a", "fr": "b"}]}), "`translation`: .*'it' .*'fr'"),
        (map_of([("en", "a"), ("it", "b")], [("en", "a")]), "row 2, `translation`: .*'it'"),
    ],
)
def test_the_error_of_a_parquet_file_names_the_column(tmp_path, table, place):
    pq.write_table(table, tmp_path / "a.parquet")
    assert_refused(tmp_path / "a.parquet", None, f".*{place}")


def test_a_parquet_column_called_translation_may_be_text(tmp_path):
    pq.write_table(pa.table({"source": ["a"], "translation": ["b"]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", columns=("source", "translation")) == [("a", "b")]
    assert names_in(tmp_path / "a.parquet").names == ["source", "translation"]
    assert_refused(tmp_path / "a.parquet", None, ": no column 'en' among 'source', 'translation'")


def test_a_table_gives_its_first_rows_before_all_is_read(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"one two\tuno due\n" * 20_000 + b"\xff\tdue\n")
    rows = read_file(path, LANGUAGES, None)
    assert next(rows) == (1, "one two", "uno due")
    with pytest.raises(CorpusError, match="line 20,001"):
        list(rows)


def test_a_damaged_parquet_file_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"en": [f"house {n}" for n in range(50)], "it": [f"casa {n}" for n in range(50)]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    assert_refused(path, path.read_bytes().replace(b"house 7", b"horse 7"), ".*Parquet")
    assert_refused(path, b"PAR1 or not", ".*Parquet")
