"""Accelerators of labels: a model does not see their signs, and each comes back once, before a letter."""

import pytest
from round_trips import new_job

from mt_cli.documents.accelerators import Accelerator, accelerators_in
from mt_cli.documents.translate import translated
from mt_cli.translation.inline_marks import PLACEHOLDERS, InlineMarks

MARKS = InlineMarks(PLACEHOLDERS)


@pytest.mark.parametrize(
    ("lines", "plain"),
    [
        (["&File", "E&xit", "Save &as...", "&Öffnen"], ["File", "Exit", "Save as...", "Öffnen"]),
        (["Open _Recent", "S_ave", "Select a_ll", "(_New)"], ["Open Recent", "Save", "Select all", "(New)"]),
        (["~File", "Save ~As", "Rep~lace"], ["File", "Save As", "Replace"]),
        (
            ["&File", "Q&A", "Cut && &Paste", "a &amp; b", "&nbsp;x", "Tom & Anna", "?a=1&Name=2"],
            ["File", "Cut && Paste"],
        ),
        (["_File", "user_name", "the user_name here", "_a_ b", "MENU_OPEN", "x_y_z"], ["File"]),
        (["_Remove {app_name}", "<b>_Bold</b>", "文件(_F)"], ["Remove {app_name}", "<b>Bold</b>", "文件"]),
        (["a _lower case", "R&b", "~user"], []),
    ],
)
def test_labels_lose_the_sign_of_their_document(lines, plain):
    assert [label.plain for label in accelerators_in(lines, lines, MARKS).values()] == plain


def test_labels_that_have_a_translation_tell_the_sign_of_the_others():
    assert [*accelerators_in(["Re&name the dog"], ["&File", "Re&name the dog"], MARKS)] == ["Re&name the dog"]


@pytest.mark.parametrize(
    ("translation", "expected"),
    [
        ("Alles auflösen", "Alles au&flösen"),
        ("alte Datei", "&alte Datei"),
        ("Die Form", "Die &Form"),
        ("{Foo} Neues", "{Foo} &Neues"),
        ("文件", "文件(&F)"),
        ("열기...", "열기(&F)..."),
        ("Файл", "&Файл"),
        ("%s", "%s"),
    ],
)
def test_the_sign_comes_back_before_a_letter_of_the_translation(translation, expected):
    assert Accelerator("File", "&", "F").put_back(translation, MARKS) == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.po", 'msgid "_Old %s"\nmsgstr "X"\n\nmsgid "_Old file"\nmsgstr "X"\n'),
        ("a.properties", "a = _Old file\n"),
        ("a.json", '{"a": "_Old file"}'),
        ("a.xlf", '<xliff version="1.2"><file><trans-unit><source>_Old file</source></trans-unit></file></xliff>'),
    ],
)
def test_a_model_gets_labels_without_signs(tmp_path, name, content):
    (tmp_path / name).write_text(content.replace('"X"', '""'), encoding="utf-8")
    job = new_job(lambda text: text.replace("Old file", "neue Datei Otto"))
    assert "neue Datei _Otto" in translated(tmp_path / name, job).decode()
    assert "Old file" in job.translator.seen
