import csv
import gzip
import io
import json
import os
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from formats import ENDINGS, LANGUAGES, TEXT, each_time_a_folder, packed, read
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.formats import read_file
from mt_cli.corpus.lines import count_lines, foreign_kind, opened, read_lines
from mt_cli.errors import CorpusError

ANY = st.characters(exclude_categories=["Cs"])


LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=20)
CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t"), max_size=20)


def without_mark(pairs):
    """A byte order mark at the start of a file belongs to the file."""
    return [(a.removeprefix("\ufeff") if number == 0 else a, b) for number, (a, b) in enumerate(pairs)]


@each_time_a_folder
@given(st.lists(LINE, max_size=20), st.sampled_from(["\n", "\r\n"]), st.booleans(), ENDINGS)
def test_lines_end_at_line_feeds_and_nowhere_else(tmp_path, lines, end, ends_last, ending):
    if lines and not lines[-1] and not ends_last:
        lines = [*lines, "last"]  # Without its end an empty last line cannot be told from none.
    text = end.join(lines) + (end if ends_last and lines else "")
    if foreign_kind(text.encode()):
        return  # With NUL characters in the right places it is UTF-16.
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
    if (pairs and {"en", "it"} <= set(pairs[0])) or foreign_kind(content.encode()):
        return  # That is a heading, or UTF-16.
    # A blank row is a blank pair.
    expected = [pair if "".join(pair).strip() else ("", "") for pair in without_mark(pairs)]
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
    columns = (
        {"translation": pa.StructArray.from_arrays(sides, ["en", "it"])}
        if is_nested
        else dict(zip(LANGUAGES, sides, strict=True))
    )
    pq.write_table(pa.table(columns), tmp_path / "pairs.parquet")
    assert read(tmp_path / "pairs.parquet") == pairs


def test_rows_are_numbered_by_the_line_where_they_begin(tmp_path):
    (tmp_path / "a.csv").write_text('en,it\r\n"one\r\ntwo",due\r\n\r\nthree,tre\r\n', encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"en": "a", "it": "b"}\n\n{"en": "c", "it": null}\n', encoding="utf-8")
    rows = {path.suffix: list(read_file(path, LANGUAGES)) for path in tmp_path.iterdir()}
    assert rows[".csv"] == [(2, "one\r\ntwo", "due"), (4, "", ""), (5, "three", "tre")]
    assert rows[".jsonl"] == [(1, "a", "b"), (3, "c", "")]


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_table_is_read_by_its_heading_or_else_its_first_columns(tmp_path, ending):
    mark = "," if ending == "csv" else "\t"
    path = tmp_path / f"a.{ending}"

    def rows(*lines, columns=None):
        path.write_text("".join(mark.join(line) + "\n" for line in lines), encoding="utf-8")
        return read(path, columns=columns)

    assert rows("ab", "cd") == [("a", "b"), ("c", "d")]
    assert rows(["it", "n", "en"], "a1b") == [("b", "a")]
    assert rows(["x", "y", "z"], "abc", columns=("z", "x")) == [("c", "a")]
    with pytest.raises(CorpusError, match="line 1: no column 'w' among 'x', 'y'; set `columns`"):
        rows("xy", "ab", columns=("x", "w"))
    with pytest.raises(CorpusError, match="line 2: has 1 cell, and the others have 2"):
        rows("ab", "c")


def test_halves_of_surrogate_pairs_become_replacement_characters(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"en": "x \\ud83d y", "it": "\\ud83d\\ude00"}\n', encoding="utf-8")
    assert read(tmp_path / "a.jsonl") == [("x \ufffd y", "😀")]


LATIN = "perché".encode("latin-1")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.tsv",
            b"a\tb\n" + LATIN + b"\tb\n",
            r"a\.tsv, line 2, byte 6: not UTF-8 \(found 0xE9\); it looks like windows-1252 .*; convert",
        ),
        ("a.tsv", b"\xef\xbb\xbfa\xe9\tb\n", r"line 1, byte 5: not UTF-8 \(found 0xE9\)"),
        ("a.csv", b"a,b\n" + LATIN + b",b\n", r"a\.csv, line 2, byte 6: not UTF-8 \(found 0xE9\)"),
        ("a.csv", b'a,b\n"c,d\n', r"a\.csv, line 2: not valid CSV"),
        ("a.jsonl", b'{"en": "a", "it": "b"}\n{"en": \n', r"a\.jsonl, line 2: not valid JSON"),
        ("a.jsonl", b'{"en": "a", "de": "b"}\n', r"line 1: no column 'it' among 'en', 'de'; set `columns`"),
        ("a.jsonl", b'{"en": "a", "it": 3}\n', r"line 1: 'it' holds 3, not text"),
        ("a.jsonl", b'["a", "b"]\n', r'line 1: found .* in a JSON array; write .* \{"en": \.\.\., "it": \.\.\.\}'),
        ("a.jsonl", b'{"a":' * 100_000 + b"\n", r"line 1: not valid JSON"),
        ("a.parquet", b"PAR1 or not", r"a\.parquet: not a readable Parquet file"),
        ("a.tsv.gz", b"not packed", r"a\.tsv\.gz: not compressed with gzip, in spite of its name"),
        ("a.tsv.gz", gzip.compress(b"a\tb\n" * 10_000, mtime=0)[:-20], r"a\.tsv\.gz: truncated"),
        ("a.tsv.zst", b"not packed", r"a\.tsv\.zst: not compressed with zstd, in spite of its name"),
        ("a.csv", b"a,b\nc\rd,e\n", r"a\.csv, line 2: not valid CSV: new-line character"),
        ("a.csv", b"en,it,en\na,b,c\n", r"a\.csv, line 1: the column 'en' occurs 2 times; keep one"),
        ("a.csv", b"sep=,\na,b\n", r"a\.csv, line 1: found 'sep=', which is a note to Excel; remove"),
        ("a.csv", b"sep=;\na;b\n", r"a\.csv, line 1: found 'sep=;', which is a note to Excel; remove"),
        ("a.jsonl", b'{"en": "a", "it": "b", "en": "c"}\n', r"line 1: not valid JSON: a key occurs twice"),
        (
            "a.tsv",
            gzip.compress(b"a\tb\n", mtime=0),
            r"a\.tsv: it is compressed with gzip; its name should end in \.gz",
        ),
        ("a.csv", b"PK\x03\x04...", r"a\.csv: it is a ZIP archive, as \.xlsx"),
        ("a.tsv", b"a\tb\rc\td\r", r"a\.tsv: its lines end at carriage returns alone"),
        ("a.csv", b"a,b\rc,d\r", r"a\.csv: its lines end at carriage returns alone"),
        ("a.docx", b"", r"unknown format; .* \.tsv, \.csv, \.jsonl, \.json, \.parquet, \.tmx, \.po"),
        ("a.parquet.gz", b"", r"unknown format"),
    ],
)
def test_the_error_of_a_damaged_file_names_the_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / name)


WIDE = {"utf-16": "UTF-16", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "utf-32": "UTF-32", "utf-32-le": "UTF-32"}
WHOLE = {
    "a.tsv": "{}\t{}\n",
    "a.csv": '"{}","{}"\n',
    "a.jsonl": '{{"en": "{}", "it": "{}"}}\n',
    "a.po": 'msgid "{}"\nmsgstr "{}"\n\n',
}
"""A pair in each format that is always UTF-8."""


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.po"])
@pytest.mark.parametrize("pair", [("one two", "uno due"), ("один два", "ένα δύο"), ("一二三", "テストです")])
@pytest.mark.parametrize("encoding", WIDE)
def test_text_of_two_or_four_bytes_a_character_is_refused(tmp_path, name, pair, encoding):
    (tmp_path / name).write_bytes((WHOLE[name].format(*pair) * 20).encode(encoding))
    with pytest.raises(CorpusError, match=rf"{name}: not UTF-8 but {WIDE[encoding]}; convert the file to UTF-8"):
        read(tmp_path / name)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.po"])
@pytest.mark.parametrize(
    ("text", "encoding", "guess"),
    [
        ("perché la città è più", "windows-1252", "it looks like windows-1252"),
        ("“Größe” – süß, créée", "windows-1252", "it looks like windows-1252"),
        ("これはテストです", "shift_jis", "it looks like Shift_JIS"),
        ("世界你好", "gb18030", "it looks like an East Asian encoding such as GB18030"),
        ("これはテストです", "euc_jp", "it looks like an East Asian encoding such as .*EUC-JP"),
        ("Привет мир", "windows-1251", r"not UTF-8 \(found 0x..\); convert"),
        ("Привет мир", "koi8-r", r"not UTF-8 \(found 0x..\); convert"),
    ],
)
def test_an_encoding_is_named_only_if_it_is_likely(tmp_path, name, text, encoding, guess):
    (tmp_path / name).write_bytes(WHOLE[name].format("an ordinary line", text).encode(encoding))
    with pytest.raises(CorpusError, match=rf"{name}, line [12], byte \d+: .*{guess}"):
        read(tmp_path / name)


def test_a_damaged_line_of_utf8_is_given_no_other_encoding(tmp_path):
    (tmp_path / "a.tsv").write_bytes("perché città\t".encode() + b"\xe9\n")
    with pytest.raises(CorpusError, match=r"found 0xE9\); convert"):
        read(tmp_path / "a.tsv")


def test_nul_characters_within_other_text_are_text(tmp_path):
    (tmp_path / "a.tsv").write_text("one\0two three\tuno\n\0\tdue e\0tre\n" * 3, encoding="utf-8")
    assert read(tmp_path / "a.tsv") == [("one\0two three", "uno"), ("\0", "due e\0tre")] * 3


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
@pytest.mark.parametrize("heading", [["en", "it"], []])
@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("mark", ["\t", ",", ";", "|", "    "])
def test_another_separator_is_recognised(tmp_path, name, heading, quote, mark):
    separator = {"\t": "tab", ",": "comma", ";": "semicolon", "|": "bar", "    ": "space"}[mark]
    rows = [heading] * bool(heading) + [["one", "uno"], ["Hello you", "Ciao"]]
    lines = (mark.join(f"{quote}{cell}{quote}" for cell in row) + "\n" for row in rows)
    (tmp_path / name).write_text("".join(lines), encoding="utf-8")
    if (name, mark) in (("a.tsv", "\t"), ("a.csv", ",")):
        assert len(read(tmp_path / name)) >= 2
    elif (name, mark, quote) != ("a.csv", "    ", '"'):
        with pytest.raises(CorpusError, match=rf"{name}, line 1: .* the columns seem to be separated by {separator}s"):
            read(tmp_path / name)


def test_a_missing_tab_is_not_taken_for_another_separator(tmp_path):
    (tmp_path / "a.tsv").write_text("Hello, you\nno mark here\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"line 1: found 1 column; each line needs a source, a tab and a target$"):
        read(tmp_path / "a.tsv")


@pytest.mark.parametrize("kind", [".tsv", ".csv", ".jsonl", ".po", ".tmx", ".parquet", ".tsv.gz"])
def test_anything_but_a_file_is_refused_at_once(tmp_path, kind):
    (tmp_path / f"folder{kind}").mkdir()
    os.mkfifo(tmp_path / f"pipe{kind}")
    (tmp_path / f"loop{kind}").symlink_to(f"loop{kind}")
    names = {"none": "no such file", "folder": "is a directory", "pipe": "not a file but a device or a pipe"}
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
    with pytest.raises(CorpusError, match=r"line 1: .*10,000,000 bytes"):
        read(path)
    assert tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()


TEXTS = [("a", "b"), (None, "é"), ("c", None), (None, None), ("d", "")]


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
@pytest.mark.parametrize("shape", [lambda sides: dict(zip(LANGUAGES, sides, strict=True)), as_struct, as_map])
def test_text_of_every_type_is_read_from_parquet_and_nulls_are_blank(tmp_path, kind, shape):
    if shape is as_map and str(kind) not in ("string", "large_string"):
        return  # Arrow makes no such maps.
    sides = [pa.array([pair[side] for pair in TEXTS], pa.string()).cast(kind) for side in (0, 1)]
    pq.write_table(pa.table(shape(sides)), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == [(a or "", b or "") for a, b in TEXTS]


def test_a_null_translation_is_a_blank_pair(tmp_path):
    kinds = {pa.struct([("en", "string"), ("it", "string")]): dict, pa.map_("string", "string"): list}
    for kind, form in kinds.items():
        rows = pa.array([None, form([("en", "a"), ("it", "b")])], kind)
        pq.write_table(pa.table({"translation": rows}), tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet") == [("", ""), ("a", "b")]


GOOD = pa.array(["a", "b", "c"])
BAD = pa.Array.from_buffers(pa.string(), 3, [None, GOOD.buffers()[1], pa.py_buffer(b"a\xe9c")])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (pa.table({"en": GOOD, "it": [1.0, 2.0, 3.0]}), "column 'it': holds double, not text; set `columns`"),
        (pa.table({"en": GOOD, "it": [b"a", b"b", b"c"]}), "column 'it': holds binary, not text; set `columns`"),
        (pa.table([GOOD] * 3, names=["en", "it", "en"]), "the column 'en' occurs 2 times; keep one"),
        (pa.table({"en": GOOD, "it": BAD}), r"column 'it', row 2: not UTF-8 \(found 0xE9\)"),
        (pa.table({"translation": GOOD}), "column 'translation': holds string, not {language: text}"),
        (pa.table(as_struct([GOOD, BAD])), "'translation', language 'it', row 2: not UTF-8"),
        (
            pa.table(
                {"translation": pa.array([[("en", "a"), ("it", "b")], [("en", "a")]], pa.map_("string", "string"))}
            ),
            "column 'translation', row 2: no language 'it' among 'en'",
        ),
        (
            pa.table({"translation": pa.array([[("en", "a"), ("it", "b"), ("en", "c")]], pa.map_("string", "string"))}),
            "column 'translation', row 1: the language 'en' occurs 2 times",
        ),
        (pa.table({"translation": [{"en": "a", "it": 3}]}), "language 'it': holds int64, not text"),
        (pa.table({}), "no column 'en' among nothing"),
    ],
)
def test_the_error_of_a_parquet_file_names_the_column(tmp_path, table, message):
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=rf"a\.parquet.*{message}"):
        read(tmp_path / "a.parquet")


def test_columns_of_a_parquet_file_must_exist_and_hold_text(tmp_path):
    pq.write_table(pa.table({"en": ["a"], "it": [1]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="column 'it': holds int64, not text"):
        read(tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="no column 'de' among 'en', 'it'; set `columns`"):
        read(tmp_path / "a.parquet", ("en", "de"))
    pq.write_table(pa.table({"translation": [{"en": "a", "fr": "b"}]}), tmp_path / "b.parquet")
    with pytest.raises(CorpusError, match="column 'translation': no language 'it' among 'en', 'fr'"):
        read(tmp_path / "b.parquet")


def test_semicolons_next_to_commas_are_recognised(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("".join(f"one, two {number};eins {number}\n" for number in range(9)), encoding="utf-8")
    with pytest.raises(CorpusError, match="one semicolon; the columns seem to be separated by semicolons"):
        list(read_file(path, ("en", "de")))
    path.write_text("".join(f"one {number},eins; zwei {number}\n" * (number + 1) for number in range(4)), "utf-8")
    with pytest.raises(CorpusError, match="semicolons"):
        list(read_file(path, ("en", "de")))
    path.write_text("".join(f"one {number},eins{';' * (number % 3)}\n" for number in range(9)), encoding="utf-8")
    assert len(list(read_file(path, ("en", "de")))) == 9
