import gzip
import io
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mt_cli.corpus.documents import document_by_content, document_by_name
from mt_cli.corpus.plain_text import check_plain_text, input_lines
from mt_cli.errors import InputError

DOCUMENTS = {
    "a gettext catalogue": ['# A comment.\n#\n\nmsgid ""\nmsgstr ""', 'msgctxt "menu"\nmsgid "Open"'],
    "an XLIFF file": [
        '<?xml version="1.0"?>\n<xliff version="1.2">\n<file>',
        '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0">',
    ],
    "a translation memory": ['<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">'],
    "a document with markup": [
        *("<!DOCTYPE html>\n<p>It rains.", "<!-- draft -->\n<HTML lang=en>", "\n<html><body>It rains."),
        "% draft\n\\documentclass{article}",
    ],
    "a file of texts for a program": [
        '<?xml version="1.0"?>\n<resources>\n<string name="a">Open</string>',
        "<!DOCTYPE TS>\n<TS>",
        '{\n  "menu": "Open"\n}',
        '[\n  {"text": "Open"}\n]',
        '/* Menu. ** */\n// More.\n"menu.open" = "Open";',
    ],
    "a file of subtitles": [
        "1\n00:00:01,000 --> 00:00:02,500\nIt rains.",
        "WEBVTT\n\n00:01.000 --> 00:02.000\nIt rains.",
        "WEBVTT - first part\n\nSTYLE\n\n00:01.000 --> 00:02.000",
        "[Script Info]\nTitle: Rain",
    ],
    "a table": ["It rains.\tPiove.\nIt snows.\tNevica.\nWho is it?\tChi è?"],
    "JSON lines": ['{"text": "It rains."}\n{"text": "It snows."}'],
    "a PDF": ["%PDF-1.7"],
    "an office document": ["{\\rtf1\\ansi"],
}
"""Beginnings of each kind of document that can be recognised without its name."""
PLAIN = [
    *("It rains.", "<b>It</b> rains.", "<html5> is a name, but <p> is a tag.", "1\nIt rains.\n2\nIt snows.", ""),
    *("msgid is a word.\nSo is msgstr.", "WEBVTT is a format.\nSRT is another one.", '"Open" = open', "{}"),
    *("{name} rains.\n{0}\n{}\n[x]", "[\nIt rains.", "# Not a heading\nIt rains.", "It rains.\tPiove.", "%s rains."),
    *("It rains.\tPiove.\nIt snows.\nWho is it?\tChi è?", "\tIt rains.\n\tIt snows.\n\tWho is it?"),
    "---\nIt rains: often.",
]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in DOCUMENTS.items() for text in texts])
def test_a_document_is_recognised_by_its_first_lines(kind, text):
    document = document_by_content(text.split("\n"))
    assert document is not None and document.name == kind


@pytest.mark.parametrize("text", PLAIN)
def test_plain_text_with_some_markup_is_no_document(text):
    assert document_by_content(text.split("\n")) is None


@given(st.lists(st.text('ab <>/!#{}[]"=;*\\\t1:,%-', max_size=60), max_size=9))
@example(["/**/" * 3_000 + "x"])
@example(["<!--" + "-->" * 3_000])
@example(["\n" * 9_000, "{", " " * 9_000])
@example(["WEBVTT "] * 32)
def test_any_lines_are_recognised_or_not(lines):
    document_by_content(lines)


@pytest.mark.parametrize(
    ("is_document", "names"),
    [
        (True, "a.po A.PO a.xlf a.xliff a.sdlxliff a.mqxliff a.html a.htm a.xml a.srt a.vtt a.ass a.tsv a.csv a.tmx"),
        (True, "a.json a.jsonl a.md a.docx a.odt a.xlsx a.pptx a.epub a.pdf a.rst a.yaml a.yml a.properties a.strings"),
        (True, "a.resx a.arb a.tex a.po.gz a.tsv.zst folder.en/a.it.html"),
        (False, "a a.txt a.en a.ts a.pot a.po.txt train.it.gz a.html.en .po"),  # `pot` and `ts` are codes of languages.
    ],
)
def test_a_document_is_recognised_by_its_suffix(is_document, names):
    for name in names.split():
        assert (document_by_name(Path(name)) is not None) == is_document, name


def test_a_document_is_refused_with_a_way_out_and_read_as_lines_if_asked(tmp_path):
    path = tmp_path / "it's.tsv"
    path.write_text("It rains.\tPiove.\n", encoding="utf-8")
    for read in (lambda: list(input_lines(path)), lambda: check_plain_text(path)):
        with pytest.raises(InputError, match=r"a table.*cut -f1.*--as-lines") as found:
            read()
        assert "'\"'\"'" in str(found.value)  # The command can be copied.
    assert list(input_lines(path, as_lines=True)) == ["It rains.\tPiove."]
    check_plain_text(path, as_lines=True)


@pytest.mark.parametrize("name", ["lines.txt", "train.ts", "train.pot", "lines.txt.gz"])
def test_a_document_with_another_name_is_refused_by_its_content(tmp_path, name):
    path = tmp_path / name
    content = b'# Header.\nmsgid ""\nmsgstr ""\n'
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(InputError, match="a gettext catalogue"):
        check_plain_text(path)


def test_a_stream_is_refused_at_the_line_that_tells_and_read_no_further(monkeypatch):
    read = io.BytesIO(b"1\n00:00:01,000 --> 00:00:02,500\n" + b"It rains.\n" * 9_000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(read, encoding="utf-8"))
    lines = input_lines(None)
    assert next(lines) == "1"
    with pytest.raises(InputError, match="standard input: a file of subtitles"):
        next(lines)
