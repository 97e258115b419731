import gzip
import io
import sys

import pytest

from mt_cli.corpus.plain_text import check_plain_text, input_lines
from mt_cli.errors import InputError

DOCUMENTS = [
    '# A comment.\n#\n\nmsgid ""\nmsgstr ""',
    'msgctxt "menu"\nmsgid "Open"',
    '<?xml version="1.0"?>\n<xliff version="1.2">\n<file>',
    '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0">',
    "<!DOCTYPE html>\n<p>It rains.",
    "\n<html><body>It rains.",
    "% draft\n\\documentclass{article}",
    '{\n  "menu": "Open"\n}',
    '[\n  {"text": "Open"}\n]',
    '/* Menu. ** */\n// More.\n"menu.open" = "Open";',
    "1\n00:00:01,000 --> 00:00:02,500\nIt rains.",
    "WEBVTT\n\n00:01.000 --> 00:02.000\nIt rains.",
    '{"text": "It rains."}\n{"text": "It snows."}',
    "%PDF-1.7",
    "{\\rtf1\\ansi",
]
"""Beginnings of documents that can be recognised without their names."""
PLAIN = [
    "It rains.",
    "<b>It</b> rains.",
    "<html5> is a name, but <p> is a tag.",
    "1\nIt rains.\n2\nIt snows.",
    "msgid is a word.\nSo is msgstr.",
    "WEBVTT is a format.\nSRT is another one.",
    '"Open" = open',
    "{name} rains.\n{0}\n{}\n[x]",
    "# Not a heading\nIt rains.",
    "It rains.\tPiove.",
    "%s rains.",
    "",
]


@pytest.mark.parametrize("text", DOCUMENTS)
def test_a_document_is_recognised_by_its_first_lines(tmp_path, text):
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"a document.*--as-lines"):
        check_plain_text(tmp_path / "a.txt")


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_with_some_markup_is_no_document(tmp_path, text):
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert list(input_lines(tmp_path / "a.txt")) == (text.split("\n") if text else [])


@pytest.mark.parametrize(
    "name",
    [
        *("a.po", "A.PO", "a.xlf", "a.xliff", "a.sdlxliff", "a.mqxliff", "a.html", "a.htm", "a.xml", "a.srt", "a.vtt"),
        *("a.ass", "a.tsv", "a.csv", "a.tmx", "a.json", "a.jsonl", "a.md", "a.docx", "a.odt", "a.xlsx", "a.pptx"),
        *("a.epub", "a.pdf", "a.rst", "a.yaml", "a.yml", "a.properties", "a.strings", "a.resx", "a.arb", "a.tex"),
        *("a.po.gz", "a.tsv.zst", "a.it.html"),
    ],
)
def test_a_document_is_recognised_by_its_suffix(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"a document.*--as-lines"):
        check_plain_text(tmp_path / name)


@pytest.mark.parametrize("name", ["a", "a.txt", "a.en", "a.ts", "a.pot", "a.po.txt", "a.html.en", ".po"])
def test_other_suffixes_name_no_document(tmp_path, name):
    """`pot` and `ts` are codes of languages."""
    (tmp_path / name).touch()
    check_plain_text(tmp_path / name)


def test_a_document_is_refused_with_a_way_out_and_read_as_lines_if_asked(tmp_path):
    path = tmp_path / "it's.tsv"
    path.write_text("It rains.\tPiove.\n", encoding="utf-8")
    for read in (lambda: list(input_lines(path)), lambda: check_plain_text(path)):
        with pytest.raises(InputError, match=r"a document.*cut -f1.*--as-lines") as caught:
            read()
        assert "'\"'\"'" in str(caught.value)  # The command can be copied.
    assert list(input_lines(path, as_lines=True)) == ["It rains.\tPiove."]
    check_plain_text(path, as_lines=True)


@pytest.mark.parametrize("name", ["train.pot", "lines.txt.gz"])
def test_a_document_with_another_name_is_refused_by_its_content(tmp_path, name):
    path = tmp_path / name
    content = b'# Header.\nmsgid ""\nmsgstr ""\n'
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InputError, match="line 2: a document"):
        check_plain_text(path)


def test_a_stream_is_refused_at_the_line_that_tells_and_read_no_further(monkeypatch):
    read = io.BytesIO(b"1\n00:00:01,000 --> 00:00:02,500\n" + b"It rains.\n" * 9_000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(read, encoding="utf-8"))
    lines = input_lines(None)
    assert next(lines) == "1"
    with pytest.raises(InputError, match="standard input, line 2: a document"):
        next(lines)
