import csv
import gzip
import io
import json
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mt_cli.corpus.formats import read_file
from mt_cli.corpus.lines import count_lines, opened, read_lines
from mt_cli.errors import CorpusError

LANGUAGES = ("en", "it")

ANY = st.characters(exclude_categories=["Cs"])
TEXT = st.text(ANY, max_size=20)
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=20)
CELL = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t"), max_size=20)
XML = st.text(
    st.one_of(
        st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"),
        st.sampled_from("\t\n"),
    ),
    max_size=20,
)

each_time_a_folder = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path, languages=LANGUAGES, columns=None):
    return [row[1:] for row in read_file(path, languages, columns)]


def packed(path, content, ending):
    """Writes bytes as they are, or packed; gives the path."""
    path = path.with_name(path.name + ending)
    if ending == ".gz":
        content = gzip.compress(content)
    elif ending == ".zst":
        content = pa.compress(content, "zstd", asbytes=True)
    path.write_bytes(content)
    return path


def without_mark(pairs):
    """A byte order mark at the start of a file belongs to the file."""
    return [(a.removeprefix("\ufeff") if number == 0 else a, b) for number, (a, b) in enumerate(pairs)]


ENDINGS = st.sampled_from(["", ".gz", ".zst"])


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
    content = "".join(f"{source}\t{target}\n" for source, target in pairs)
    path = packed(tmp_path / "pairs.tsv", content.encode(), ending)
    if pairs and {"en", "it"} <= set(pairs[0]):
        return  # That is a heading.
    assert read(path) == without_mark(pairs)


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


@each_time_a_folder
@given(st.lists(st.tuples(XML, XML)), ENDINGS, st.sampled_from(["utf-8", "utf-16"]))
def test_tmx_gives_back_any_pairs_that_xml_can_hold(tmp_path, pairs, ending, encoding):
    units = "".join(
        f'<tu><tuv xml:lang="EN-us"><seg>{escape(source)}</seg></tuv>'
        f'<tuv lang="it"><seg>{escape(target)}</seg></tuv></tu>'
        for source, target in pairs
    )
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><body>{units}</body></tmx>'
    )
    assert read(packed(tmp_path / "memory.tmx", text.encode(encoding), ending)) == pairs


def quoted(text):
    """Text as gettext writes it: a line of the text in a line of the file."""
    for character, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(character, escaped)
    return '""\n' + "\n".join(f'"{part}"' for part in text.replace("\\n", "\\n\0").split("\0"))


@each_time_a_folder
@given(st.lists(st.tuples(TEXT.filter(len), TEXT)), ENDINGS)
def test_po_gives_back_any_pairs(tmp_path, pairs, ending):
    pairs = [tuple(text.replace("\0", "") for text in pair) for pair in pairs]
    messages = (f"msgctxt {quoted('c')}\nmsgid {quoted(source)}\nmsgstr {quoted(target)}\n" for source, target in pairs)
    assert read(packed(tmp_path / "it.po", "\n".join(messages).encode(), ending)) == pairs


def test_rows_are_numbered_by_the_line_where_they_begin(tmp_path):
    (tmp_path / "a.csv").write_text('en,it\r\n"one\r\ntwo",due\r\n\r\nthree,tre\r\n', encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"en": "a", "it": "b"}\n\n{"en": "c", "it": null}\n', encoding="utf-8")
    (tmp_path / "a.po").write_text('\n# note\nmsgid "a"\nmsgstr "b"\n\nmsgid "c"\nmsgstr "d"\n', encoding="utf-8")
    tmx = '<tmx>\n<body>\n<tu><tuv lang="en"><seg>a</seg></tuv>\n<tuv lang="it"><seg>b</seg></tuv></tu>\n</body></tmx>'
    (tmp_path / "a.tmx").write_text(tmx, encoding="utf-8")
    rows = {path.suffix: list(read_file(path, LANGUAGES)) for path in tmp_path.iterdir()}
    assert rows[".csv"] == [(2, "one\r\ntwo", "due"), (5, "three", "tre")]
    assert rows[".jsonl"] == [(1, "a", "b"), (3, "c", "")]
    assert rows[".po"] == [(3, "a", "b"), (6, "c", "d")]
    assert rows[".tmx"] == [(3, "a", "b")]


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
    with pytest.raises(CorpusError, match="line 2: found 1 column"):
        rows("ab", "c")


@pytest.mark.parametrize(
    ("wanted", "found"), [("en", "american"), ("en-GB", "british"), ("EN_au", "american"), ("fr", ""), ("e", "")]
)
def test_languages_of_a_translation_memory_are_matched_loosely(tmp_path, wanted, found):
    variants = "".join(
        f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>'
        for code, text in (("it", "x"), ("en-US", "american"), ("en-GB", "british"))
    )
    (tmp_path / "a.tmx").write_text(f"<tmx><body><tu>{variants}</tu></body></tmx>", encoding="utf-8")
    assert read(tmp_path / "a.tmx", (wanted, "it-CH")) == [(found, "x")]


def test_code_within_a_segment_is_left_out_and_marked_text_kept(tmp_path):
    segment = "Press <bpt i='1'>&lt;b&gt;</bpt><hi>OK</hi><ept i='1'>&lt;/b&gt;</ept>, <ph>{0}<sub>x</sub></ph>then go"
    text = f'<tmx><tu><tuv lang="en"><seg>{segment}</seg></tuv><tuv lang="it"><seg>y</seg></tuv></tu></tmx>'
    (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
    assert read(tmp_path / "a.tmx") == [("Press OK, then go", "y")]


def test_xml_entities_are_never_expanded(tmp_path):
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    for declarations in (f'<!ENTITY l0 "ha">{laughs}', f'<!ENTITY l9 SYSTEM "{tmp_path / "secret"}">'):
        body = '<tmx><tu><tuv lang="en"><seg>&l9;</seg></tuv></tu></tmx>'
        (tmp_path / "a.tmx").write_text(f"<!DOCTYPE tmx [{declarations}]>{body}", encoding="utf-8")
        with pytest.raises(CorpusError, match="declares XML entities"):
            read(tmp_path / "a.tmx")


def test_a_catalogue_gives_plurals_and_leaves_out_what_is_fuzzy_or_obsolete(tmp_path):
    (tmp_path / "it.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d documento"\nmsgstr[1] "%d documenti"\n\n'
        '#, fuzzy\nmsgid "doubtful"\nmsgstr "dubbio"\n\n#~ msgid "old"\n#~ msgstr "vecchio"\n',
        encoding="utf-8",
    )
    assert read(tmp_path / "it.po") == [("%d file", "%d documento"), ("%d files", "%d documenti"), ("doubtful", "")]


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
        ("a.tsv", b"\xe9\tb\n", r"line 1, byte 1: not UTF-8 \(found 0xE9\); convert the file"),
        ("a.csv", b"a,b\n" + LATIN + b",b\n", r"a\.csv, line 2, byte 6: not UTF-8 \(found 0xE9\)"),
        ("a.csv", b'a,b\n"c,d\n', r"a\.csv, line 2: not valid CSV"),
        ("a.jsonl", b'{"en": "a", "it": "b"}\n{"en": \n', r"a\.jsonl, line 2: not valid JSON"),
        ("a.jsonl", b'{"en": "a", "de": "b"}\n', r"line 1: no column 'it' among 'en', 'de'; set `columns`"),
        ("a.jsonl", b'{"en": "a", "it": 3}\n', r"line 1: 'it' holds 3, not text"),
        ("a.jsonl", b'["a", "b"]\n', r'line 1: found a JSON array; write .* \{"en": \.\.\., "it": \.\.\.\}'),
        ("a.jsonl", b'{"a":' * 100_000 + b"\n", r"line 1: not valid JSON"),
        ("a.parquet", b"PAR1 or not", r"a\.parquet: not a readable Parquet file"),
        ("a.po", b'msgid "a"\nmsgstr "b\n', r"a\.po, line 2: not a line of a gettext catalogue: 'msgstr"),
        ("a.tmx", b"<tmx><body>\n<tu></body></tmx>", r"a\.tmx, line 2: not well-formed XML: mismatched tag"),
        ("a.tmx", b"<tmx>\n<body>" + LATIN, r"a\.tmx, line 2: not well-formed XML"),
        ("a.tsv.gz", b"not packed", r"a\.tsv\.gz: not packed with gzip, in spite of its name"),
        ("a.tsv.gz", gzip.compress(b"a\tb\n" * 10_000)[:-20], r"a\.tsv\.gz: truncated"),
        ("a.tsv.zst", b"not packed", r"a\.tsv\.zst: not packed with zstd, in spite of its name"),
        ("a.docx", b"", r"unknown kind of file; .* \.tsv, \.csv, \.jsonl, \.parquet, \.tmx, \.po"),
        ("a.parquet.gz", b"", r"unknown kind of file"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / name)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    for path, message in ((tmp_path / "none.tsv", "none.tsv: no such file"), (tmp_path, "is a directory")):
        with pytest.raises(CorpusError, match=message), opened(path):
            raise AssertionError("it opened")


def test_columns_of_a_parquet_file_must_be_there_and_hold_text(tmp_path):
    pq.write_table(pa.table({"en": ["a"], "it": [1]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="column 'it': holds int64, not text"):
        read(tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="no column 'de' among 'en', 'it'; set `columns`"):
        read(tmp_path / "a.parquet", ("en", "de"))
    pq.write_table(pa.table({"translation": [{"en": "a", "fr": "b"}]}), tmp_path / "b.parquet")
    with pytest.raises(CorpusError, match="column 'translation': no language 'it' among 'en', 'fr'"):
        read(tmp_path / "b.parquet")
