import gzip
from pathlib import Path

import pytest

from mt_cli.corpus.plain_text import check_plain_text, input_lines
from mt_cli.errors import InputError

REFUSED = r"--as-lines"


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
    for name, content in (("train.ts", text.encode()), ("a.txt.gz", gzip.compress(text.encode()))):
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


def test_only_suffixes_of_plain_text_are_read_as_lines(tmp_path):
    names = [
        "A.PO",
        "a.docx",
        "a.tsv.zst",
        "a.it.html",
        "a.tex",
        "a.org",
        "a.vue",
        "a.SFM",
        "a.yml",
        "a.gz.ini",
        "a.text",
        "a.strange",
    ]
    for name in names:
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=REFUSED) as refusal:
            check_plain_text(tmp_path / name)
        assert Path(name.removesuffix(".zst")).suffix in str(refusal.value) and "\n" not in str(refusal.value)
        check_plain_text(tmp_path / name, as_lines=True)
    for name in ("a", "a.txt", "a.en", "a.deu", "a.ts", "a.pt-BR", "a.po.txt", "a.quy_Latn", "a.aym", ".po"):
        (tmp_path / name).touch()
        check_plain_text(tmp_path / name)
