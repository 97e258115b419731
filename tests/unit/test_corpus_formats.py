"""Files of each format give back any pairs, and damage is an error with its place."""

import csv
import gzip
import io
import json
import os
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from formats import ENDINGS, LANGUAGES, TEXT, each_time_a_folder, numbered, packed, read
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.lines import count_lines, opened, read_lines
from mt_cli.errors import CorpusError

LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r"), max_size=20)
CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\n\r\t"), max_size=20)


@each_time_a_folder
@given(st.lists(LINE, max_size=20), st.sampled_from(["\n", "\r\n"]), st.booleans(), ENDINGS)
def test_lines_end_at_line_feeds_and_nowhere_else(tmp_path, lines, end, ends_last, ending):
    if lines and not lines[-1] and not ends_last:
        lines = [*lines, "last"]  # Without its end an empty last line cannot be told from none.
    text = end.join(lines) + (end if ends_last and lines else "")
    path = packed(tmp_path / "text", text.encode(), ending)
    expected = [line.removeprefix("\ufeff") if number == 0 else line for number, line in enumerate(lines)]
    assert list(read_lines(path)) == expected
    assert count_lines(path) == len(expected)


@each_time_a_folder
@given(st.lists(st.tuples(CELL, CELL)), ENDINGS)
def test_tsv_gives_back_any_pairs(tmp_path, pairs, ending):
    """With quotation marks as `plain_tsv`, because pairs may look as if a spreadsheet wrote them."""
    content = "".join(f"{source}\t{target}\n" for source, target in pairs)
    path = packed(tmp_path / "pairs.tsv", content.encode(), ending)
    if pairs and {"en", "it"} <= set(pairs[0]):
        return  # That is a heading.
    # A byte order mark at the start belongs to the file; a blank row is a blank pair.
    pairs = [(pairs[0][0].removeprefix("\ufeff"), pairs[0][1]), *pairs[1:]] if pairs else []
    expected = [pair if "".join(pair).strip() else ("", "") for pair in pairs]
    for name in ("plain_tsv", *["tsv"] * ('"' not in content)):
        rows = [pair if "".join(pair).strip() else ("", "") for pair in read(path, format_name=name)]
        assert rows == expected


@each_time_a_folder
@given(st.lists(st.tuples(TEXT, TEXT)), ENDINGS, st.booleans())
def test_csv_gives_back_any_pairs(tmp_path, pairs, ending, has_heading):
    # The csv module itself does not write NUL bytes in a way that it reads on every version of Python.
    pairs = [(source.replace("\0", ""), target.replace("\0", "")) for source, target in pairs]
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "en", "it")] * has_heading)
    writer.writerows([(number, *pair) if has_heading else pair for number, pair in enumerate(pairs)])
    path = packed(tmp_path / "pairs.csv", text.getvalue().encode(), ending)
    if not has_heading and pairs and {"en", "it"} <= set(pairs[0]):
        return
    assert read(path) == pairs


@each_time_a_folder
@given(st.lists(st.tuples(TEXT, TEXT)), ENDINGS, st.booleans(), st.booleans())
def test_jsonl_gives_back_any_pairs(tmp_path, pairs, ending, is_ascii, is_nested):
    records = [{"en": source, "it": target, "n": 1} for source, target in pairs]
    records = [{"translation": record} for record in records] if is_nested else records
    content = "".join(json.dumps(record, ensure_ascii=is_ascii) + "\n" for record in records)
    assert read(packed(tmp_path / "pairs.jsonl", content.encode(), ending)) == pairs


@each_time_a_folder
@given(st.lists(st.tuples(TEXT, TEXT)), st.booleans())
def test_parquet_gives_back_any_pairs(tmp_path, pairs, is_nested):
    sides = [pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1)]
    pq.write_table(pa.table(as_struct(sides) if is_nested else as_columns(sides)), tmp_path / "pairs.parquet")
    assert read(tmp_path / "pairs.parquet") == pairs


def test_rows_are_numbered_by_the_line_where_they_begin(tmp_path):
    (tmp_path / "a.csv").write_text('en,it\r\n"one\r\ntwo",due\r\n\r\nthree,tre\r\n', encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"en": "a", "it": "b"}\n\n{"en": "c", "it": null}\n', encoding="utf-8")
    assert numbered(tmp_path / "a.csv")[0] == [(2, "one\r\ntwo", "due"), (4, "", ""), (5, "three", "tre")]
    assert numbered(tmp_path / "a.jsonl")[0] == [(1, "a", "b"), (3, "c", "")]


def test_halves_of_surrogate_pairs_become_replacement_characters(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"en": "x \\ud83d y", "it": "\\ud83d\\ude00"}\n', encoding="utf-8")
    assert read(tmp_path / "a.jsonl") == [("x \ufffd y", "😀")]


def test_nul_characters_within_other_text_are_text(tmp_path):
    (tmp_path / "a.tsv").write_text("one\0two three\tuno\n\0\tdue e\0tre\n" * 3, encoding="utf-8")
    assert read(tmp_path / "a.tsv") == [("one\0two three", "uno"), ("\0", "due e\0tre")] * 3


LATIN = "perché".encode("latin-1")


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.tsv", b"a\tb\n" + LATIN + b"\tb\n", ", line 2, byte 6: not UTF-8 .*0xE9.* windows-1252"),
        ("a.tsv", b"\xef\xbb\xbfa\xe9\tb\n", ", line 1, byte 5: not UTF-8"),
        ("a.tsv", "perché città\t".encode() + b"\xe9\n", r", line 1, byte 16: not UTF-8 \(found 0xE9\); convert"),
        ("a.csv", b'a,b\n"c,d\n', ", line 2: not valid CSV"),
        ("a.csv", b"a,b\nc\rd,e\n", ", line 2: not valid CSV"),
        ("a.csv", b"en,it,en\na,b,c\n", ", line 1: the column 'en' .*2 times"),
        ("a.csv", b"sep=;\na;b\n", ", line 1: found 1 column.*semicolons"),
        ("a.jsonl", b'{"en": "a", "it": "b"}\n{"en": \n', ", line 2: not valid JSON"),
        ("a.jsonl", b'{"en": "a", "de": "b"}\n', ", line 1: no column 'it' among 'en', 'de'; set `columns`"),
        ("a.jsonl", b'{"en": "a", "it": 3}\n', ", line 1: 'it' holds 3"),
        ("a.jsonl", b'["a", "b"]\n', ", line 1: found"),
        ("a.jsonl", b'{"a":' * 100_000 + b"\n", ", line 1: not valid JSON"),
        ("a.jsonl", b'{"en": "a", "it": "b", "en": "c"}\n', ", line 1: .*a key occurs twice"),
        ("a.parquet", b"PAR1 or not", ": not a readable Parquet file"),
        ("a.tsv.gz", b"not packed", ": .*incorrect header"),
        ("a.tsv.gz", gzip.compress(b"a\tb\n" * 10_000, mtime=0)[:-20], ": truncated"),
        ("a.tsv.zst", b"not packed", ": zstd"),
        ("a.tsv", gzip.compress(b"a\tb\n", mtime=0), r": it is compressed with gzip; .*\.gz"),
        ("a.csv", b"PK\x03\x04...", ": it is a ZIP archive"),
        ("a.tsv", b"a\tb\rc\td\r", ": .*carriage returns alone"),
        ("a.docx", b"", r": unknown format; .* \.tsv, \.csv, \.jsonl, \.json, \.parquet, \.tmx, \.xlf, \.xliff, \.po"),
    ],
)
def test_the_error_of_a_damaged_file_names_the_place(tmp_path, name, content, place):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=f"^{tmp_path / name}{place}"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "row"),
    [("a.csv", '"{}","{}"\n'), ("a.jsonl", '{{"en": "{}", "it": "{}"}}\n'), ("a.po", 'msgid "{}"\nmsgstr "{}"\n')],
)
@pytest.mark.parametrize("pair", [("one two", "uno due"), ("один два", "ένα δύο"), ("一二三", "テストです")])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le"])
def test_text_of_two_or_four_bytes_a_character_is_refused(tmp_path, name, row, pair, encoding):
    (tmp_path / name).write_bytes((row.format(*pair) * 20).encode(encoding))
    with pytest.raises(CorpusError, match=f"{name}.*: not UTF-8"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
@pytest.mark.parametrize("heading", [["en", "it"], []])
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize(("mark", "separator"), [("\t", "tab"), (",", "comma"), (";", "semicolon"), ("|", "bar")])
def test_another_separator_is_recognised(tmp_path, name, heading, quote, mark, separator):
    rows = [heading] * bool(heading) + [["one", "uno"], ["Hello you", "Ciao"]]
    lines = (mark.join(f"{quote}{cell}{quote}" for cell in row) + "\n" for row in rows)
    (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    if (name, mark) in (("a.tsv", "\t"), ("a.csv", ",")):
        assert len(read(tmp_path / name)) >= 2
    elif (name, quote) != ("a.csv", '"'):  # The csv module refuses these.
        with pytest.raises(CorpusError, match=rf"{name}, line 1: .* separated by {separator}s"):
            read(tmp_path / name)


@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl", ".po", ".tmx", ".parquet", ".tsv.gz"])
def test_anything_but_a_file_is_refused_at_once(tmp_path, kind):
    (tmp_path / f"folder{kind}").mkdir()
    os.mkfifo(tmp_path / f"pipe{kind}")
    (tmp_path / f"loop{kind}").symlink_to(f"loop{kind}")
    names = {"none": "no such file", "folder": "is a directory", "pipe": "a device or a pipe"}
    names |= {"loop": "symbolic links", "x" * 300: "name too long", "a\0b": r"'.*\\x00.*': not a file name"}
    for name, message in names.items():
        with pytest.raises(CorpusError, match=message):
            read(tmp_path / f"{name}{kind}")
        with pytest.raises(CorpusError, match=message), opened(tmp_path / f"{name}{kind}"):
            raise AssertionError("it opened")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.po", "a.tmx"])
def test_endless_lines_are_not_held_in_memory(tmp_path, name):
    beginnings = {"a.csv": '"', "a.jsonl": '{"en": "', "a.po": 'msgid "', "a.tmx": "<tmx><tu><tuv><seg>"}
    content = beginnings.get(name, "").encode() + b"word " * 10_000_000
    path = packed(tmp_path / name, content, ".gz")
    del content
    tracemalloc.start()
    with pytest.raises(CorpusError, match=r"line 1: .*10,000,000"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()


TEXTS = [("a", "b"), (None, "é"), ("c", None), (None, None), ("d", "")]


def as_columns(sides):
    return dict(zip(LANGUAGES, sides, strict=True))


def as_struct(sides):
    return {"translation": pa.StructArray.from_arrays(sides, list(LANGUAGES))}


def as_map(sides):
    rows = [
        list(zip(LANGUAGES, texts, strict=True)) for texts in zip(*(side.to_pylist() for side in sides), strict=True)
    ]
    return {"translation": pa.array(rows, pa.map_(sides[0].type, sides[0].type))}


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
@pytest.mark.parametrize("shape", [as_columns, as_struct, as_map])
def test_text_of_every_type_is_read_from_parquet_and_nulls_are_blank(tmp_path, kind, shape):
    if shape is as_map and str(kind) not in ("string", "large_string"):
        return  # Arrow makes no such maps.
    sides = [pa.array([pair[side] for pair in TEXTS], pa.string()).cast(kind) for side in (0, 1)]
    pq.write_table(pa.table(shape(sides)), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [(a or "", b or "") for a, b in TEXTS]


def map_of(*rows):
    return pa.table({"translation": pa.array(rows, pa.map_("string", "string"))})


def test_a_null_translation_is_a_blank_pair(tmp_path):
    rows = pa.array([None, {"en": "a", "it": "b"}], pa.struct([("en", "string"), ("it", "string")]))
    for table in (pa.table({"translation": rows}), map_of(None, [("en", "a"), ("it", "b")])):
        pq.write_table(table, tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet") == [("", ""), ("a", "b")]


GOOD = pa.array(["a", "b", "c"])
BAD = pa.Array.from_buffers(pa.string(), 3, [None, GOOD.buffers()[1], pa.py_buffer(b"a\xe9c")])


@pytest.mark.parametrize(
    ("table", "place"),
    [
        (pa.table({"en": GOOD, "it": [1.0, 2.0, 3.0]}), "row 1: 'it' holds 1.0.*; set `columns`"),
        (pa.table([GOOD] * 3, names=["en", "it", "en"]), "column 'en' .*2 times"),
        (pa.table({"en": GOOD, "it": BAD}), "after row 0: not UTF-8"),
        (pa.table({"en": GOOD, "de": GOOD}), "no column 'it' among 'en', 'de'; set `columns`"),
        (pa.table({"translation": GOOD}), "no column 'en' among 'translation'"),
        (pa.table(as_struct([GOOD, BAD])), "after row 0: not UTF-8"),
        (pa.table({"translation": [{"en": "a", "it": 3}]}), "row 1, `translation`: 'it' holds 3"),
        (pa.table({"translation": [{"en": "a", "fr": "b"}]}), "`translation`: no column 'it' .*'fr'"),
        (pa.table({"translation": [[1]]}), r"row 1, `translation`: holds \[1\]"),
        (map_of([("en", "a"), ("it", "b")], [("en", "a")]), "row 2, `translation`: no column 'it'"),
        (map_of([("en", "a"), ("it", "b"), ("en", "c")]), "row 1, `translation`: .*a key occurs twice"),
        (pa.table({}), "no column 'en' among nothing"),
    ],
)
def test_the_error_of_a_parquet_file_names_the_column(tmp_path, table, place):
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=rf"a\.parquet.*{place}"):
        read(tmp_path / "a.parquet")


def test_a_damaged_page_of_parquet_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"en": [f"house {n}" for n in range(50)], "it": [f"casa {n}" for n in range(50)]})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    path.write_bytes(path.read_bytes().replace(b"house 7", b"horse 7"))
    with pytest.raises(CorpusError, match="Parquet"):
        read(path)


@pytest.mark.parametrize("name", ["a.tsv.gz", "a.jsonl.zst"])
def test_a_compressed_file_without_content_is_refused(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(CorpusError, match="no content"):
        read(tmp_path / name)
