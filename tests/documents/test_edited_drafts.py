"""Edited drafts of any format are compared with what was written."""

import json
import shutil

import pytest
from round_trips import read, translated

from mt_cli.documents.corrections import compare_with_drafts
from mt_cli.errors import InputError

SOURCES = ["one", "two", "one", "three", "four"]
EDITED = [("one", "uno", "ONE"), ("one", "un", "ONE"), ("four", "quattro", "FOUR")]
XLIFF_1 = '<xliff version="1.2"><file source-language="en" target-language="it">\n%s</file></xliff>'
XLIFF_2 = '<xliff version="2.0" srcLang="en" trgLang="it"><file>\n%s</file></xliff>'


def rows(form, head="%s"):
    return head % "".join(form.format(source) for source in SOURCES)


FORMATS = {
    ".po": rows('msgid "{0}"\nmsgstr ""\n\n'),
    ".xlf": rows("<trans-unit><source>{0}</source></trans-unit>\n", XLIFF_1),
    ".xliff": rows("<unit><segment><source>{0}</source></segment></unit>\n", XLIFF_2),
    ".tsv": rows("{0}\t{0}\n", "en\tit\n%s"),
    ".csv": rows("{0},{0}\n", "en,it\n%s"),
}


@pytest.fixture(params=FORMATS)
def drafts(request, tmp_path):
    """File of drafts, as `mt translate` writes it: the texts in capitals."""
    content = FORMATS[request.param]
    if request.param == ".po":  # A catalogue has each message once in each context.
        parts = content.split("msgid")
        content = parts[0] + "".join(f'msgctxt "{number}"\nmsgid{part}' for number, part in enumerate(parts[1:]))
    column = "it" if request.param in (".tsv", ".csv") else None
    path = tmp_path / f"drafts{request.param}"
    path.write_bytes(translated(read(tmp_path, request.param, content, column), str.upper))
    return path


def edit(drafts, *replacements):
    """Edited copy of the drafts."""
    path, content = drafts.with_stem("edited"), drafts.read_text(encoding="utf-8")
    for old, new in replacements:
        assert old in content
        content = content.replace(old, new, 1)
    path.write_text(content, encoding="utf-8")
    return path


def compared(edited, drafts):
    corrections, counts = compare_with_drafts(edited, drafts, ("en", "it"), "app")
    assert {(row.languages, row.model) for row in corrections} <= {(("en", "it"), "app")}
    return [(row.source, row.target, row.draft) for row in corrections], dict(counts)


def test_changed_drafts_are_corrections_in_all_formats(drafts):
    edited = edit(drafts, ("ONE", "uno"), ("ONE", "un"), ("THREE", ""), ("FOUR", "quattro"))
    assert compared(edited, drafts) == (EDITED, {"unchanged": 1, "emptied": 1})


def test_texts_of_another_draft_are_no_corrections(drafts):
    edited = edit(drafts, ("TWO", "due"))
    other = edited.with_stem("other")
    other.write_text(edited.read_text(encoding="utf-8").replace("one", "ten"), encoding="utf-8")
    assert compared(other, drafts) == ([("two", "due", "TWO")], {"unchanged": 2, "without a draft": 2})


def test_review_marks_alone_are_no_corrections(drafts):
    edited = edit(drafts)
    content = edited.read_text(encoding="utf-8")
    for mark in ("#, fuzzy\n", ' state="needs-review-translation"', ' state-qualifier="mt-suggestion"'):
        content = content.replace(mark, "")
    edited.write_text(content, encoding="utf-8")
    assert compared(edited, drafts) == ([], {"unchanged": 5})


def test_files_that_do_not_belong_together_are_refused(drafts, tmp_path):
    edited = edit(drafts, ("ONE", "uno"))
    untranslated = tmp_path / f"a{drafts.suffix}"
    if drafts.suffix not in (".tsv", ".csv"):
        with pytest.raises(InputError, match="no text has a draft"):
            compare_with_drafts(edited, untranslated, ("en", "it"), "app")
    (tmp_path / "other.tmx").write_text("<tmx></tmx>", encoding="utf-8")
    with pytest.raises(InputError, match="one format"):
        compare_with_drafts(edited, tmp_path / "other.tmx", ("en", "it"), "app")


def test_the_command_adds_to_a_file_of_corrections(mt, trained, tmp_path):
    text = 'msgid "one two"\nmsgstr ""\n\nmsgid "three"\nmsgstr ""\n'
    (tmp_path / "app.po").write_text(text, encoding="utf-8")
    assert mt("translate", "--run", trained, "--input", "app.po", "--output", "draft.po")[0] == 0
    shutil.copy("draft.po", "app.po")
    command = "data", "corrections", "draft.po", "app.po", "--run", trained, "--output", "corrections.jsonl"
    assert "0 corrections added, 2 unchanged" in mt(*command)[2]
    edited = (tmp_path / "draft.po").read_text(encoding="utf-8").replace('"THREE', '"DREI')
    (tmp_path / "app.po").write_text(edited, encoding="utf-8")
    assert "1 correction added, 1 unchanged" in mt(*command)[2]
    assert "0 corrections added, 1 unchanged, 1 added before" in mt(*command)[2]
    (row,) = map(json.loads, (tmp_path / "corrections.jsonl").read_text(encoding="utf-8").splitlines())
    languages = row["source_language"], row["target_language"]
    assert (row["source"], languages, row["model"]) == ("three", ("en", "xx"), trained.name)
    for changes, named in {
        ("--to", "de"): "--to de",
        ("--output", "app.po"): "one file",
        ("--output", str(trained / "config.yaml")): "line 1",
        ("--run", "nothing"): "nothing",
    }.items():
        before = (tmp_path / "app.po").read_bytes()
        status, out, err = mt(*command, *changes)
        assert (status, out) == (2, "") and named in err and err.count("\n") == 1
        assert (tmp_path / "app.po").read_bytes() == before
