import gzip
import io
import sys

import pytest

from mt_cli.corpus.plain_text import check_plain_text, input_lines
from mt_cli.errors import InputError

REFUSED = r"a document.*--as-lines"


@pytest.mark.parametrize(
    "text",
    [
        'msgctxt "menu"\nmsgid "Open"',
        '<?xml version="1.0"?>\n<xliff version="1.2">\n<file>',
        "\n<html><body>It rains.",
        "% draft\n\\documentclass{article}",
        '{\n  "menu": "Open"\n}',
        '/* Menu. ** */\n// More.\n"menu.open" = "Open";',
        "1\n00:00:01,000 --> 00:00:02,500\nIt rains.",
        "%PDF-1.7",
    ],
)
def test_a_document_is_recognised_by_its_first_lines(tmp_path, text):
    for name, content in (("train.pot", text.encode()), ("a.txt.gz", gzip.compress(text.encode()))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=REFUSED):
            check_plain_text(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        "<b>It</b> rains.\n<html5> is a name, but <p> is a tag.",
        "1\nIt rains.\n2\nIt snows.",
        "msgid is a word.\nSo is msgstr.",
        "WEBVTT is a format.\nSRT is another one.",
        '"Open" = open\n{name} rains.\n{0}\n{}\n[x]',
        "# Not a heading\nIt rains.\tPiove.",
    ],
)
def test_plain_text_with_some_markup_is_no_document(tmp_path, text):
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert list(input_lines(tmp_path / "a.txt")) == text.split("\n")


def test_a_document_is_recognised_by_its_suffix(tmp_path):
    for name in ("A.PO", "a.xlf", "a.htm", "a.srt", "a.csv", "a.json", "a.docx", "a.tsv.zst", "a.it.html"):
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=REFUSED):
            check_plain_text(tmp_path / name)
    for name in ("a", "a.txt", "a.en", "a.ts", "b.pot", "a.po.txt", ".po"):  # `pot` and `ts` are codes of languages.
        (tmp_path / name).touch()
        check_plain_text(tmp_path / name)


def test_a_document_is_read_as_lines_if_asked(tmp_path):
    path = tmp_path / "it's.tsv"
    path.write_text("It rains.\tPiove.\n", encoding="utf-8")
    for read in (lambda: list(input_lines(path)), lambda: check_plain_text(path)):
        with pytest.raises(InputError, match=r"cut -f1.*'\"'\"'.*--as-lines"):  # The command can be copied.
            read()
    assert list(input_lines(path, as_lines=True)) == ["It rains.\tPiove."]
    check_plain_text(path, as_lines=True)


def test_a_stream_is_refused_at_the_line_that_tells(monkeypatch):
    text = io.BytesIO(b"1\n00:00:01,000 --> 00:00:02,500\n" + b"It rains.\n" * 9_000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(text, encoding="utf-8"))
    lines = input_lines(None)
    assert next(lines) == "1"
    with pytest.raises(InputError, match="standard input, line 2: "):
        next(lines)
