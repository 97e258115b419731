"""Documents and folders of them are translated by the command, and finished by the same command."""

import json
import os
import shutil
import subprocess

import pytest
from round_trips import new_job
from safetensors import safe_open
from safetensors.torch import save_file

from mt_cli.documents import translate as documents
from mt_cli.documents.translate import RECORD, translate_documents, translated
from mt_cli.errors import InputError


def in_capitals(line):
    """Translation that loses a word and what is in bold."""
    return "" if "lost" in line else "<b></b>" if "bold" in line else line.upper()


def translate_folder(folder, output, key=""):
    """Translate a folder; return the number of texts that were not done before."""
    job = new_job(in_capitals, key=key)
    translate_documents(folder, output, job, is_strict=False)
    return job.counts["translated"]


def catalogue(*texts):
    return "\n".join(f'msgid "{text}"\nmsgstr ""\n' for text in texts)


@pytest.fixture
def folder(tmp_path):
    for name in ("po/a.po", "po/deep/b.po"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(catalogue("one two", f"{name} three"), encoding="utf-8")
    (tmp_path / "po/README").write_text("no document", encoding="utf-8")
    return tmp_path / "po"


def test_a_document_is_translated_and_counted(mt, trained, folder, tmp_path):
    (tmp_path / "runs").symlink_to(trained.parent)
    status, out, err = mt("translate", "--input", "po/a.po", "--output", "a.po")
    assert (status, out) == (0, "") and "1 document: 2 texts, 2 translated" in err
    assert err.count("Using runs/") == 1, "the run is chosen once"
    written = (tmp_path / "a.po").read_text(encoding="utf-8")
    assert '#, fuzzy\nmsgid "one two"\nmsgstr "ONE TWO' in written
    again = mt("translate", "--run", trained, "--input", "a.po", "--output", "b.po")
    assert "2 had a translation" in again[2] and (tmp_path / "b.po").read_text(encoding="utf-8") == written
    status, out, _ = mt("translate", "--run", trained, "--input", "po/a.po", "--as-lines")
    assert status == 0 and out.count("\n") == (folder / "a.po").read_text(encoding="utf-8").count("\n")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--input", "po/a.po"), "--output"),
        (("--input", "po/a.po", "--output", "a.md"), "--output a.md: po/a.po is written as .po again"),
        (("--input", "po/a.po", "--output", "po/a.po"), "one file"),
        (("--input", "po", "--output", "po/out"), "another"),
        (("--input", "empty", "--output", "out"), "no documents"),
        (("--input", "po", "--output", "taken"), "taken/a.po"),
        (("--input", "po", "--output", "file"), "is a file"),
    ],
)
def test_nothing_is_written_if_a_folder_cannot_be(mt, trained, folder, tmp_path, arguments, named):
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").mkdir()
    for name in ("taken/a.po", "file"):
        (tmp_path / name).write_text("mine", encoding="utf-8")
    status, _, err = mt("translate", "--run", trained, *arguments)
    assert status == 2 and named in err and err.count("\n") == 1 + err.count("note:"), err
    assert (tmp_path / "taken/a.po").read_text(encoding="utf-8") == "mine" and not (tmp_path / "out").exists()


def test_an_output_may_be_a_link_or_a_pipe(folder, tmp_path, start):
    for name, content in (("real.po", "old"), ("link.po.tmp", "of somebody else")):
        (tmp_path / name).write_text(content)
    (tmp_path / "real.po").chmod(0o600)
    (tmp_path / "link.po").symlink_to("real.po")

    def write(name):
        translate_documents(folder / "a.po", tmp_path / name, new_job(in_capitals), is_strict=False)

    write("link.po")
    write("new.po")
    expected = (tmp_path / "new.po").read_bytes()
    assert (tmp_path / "link.po").is_symlink() and (tmp_path / "real.po").read_bytes() == expected
    assert (tmp_path / "real.po").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "link.po.tmp").read_text() == "of somebody else"
    os.mkfifo(tmp_path / "pipe")
    reader = start(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE)
    write("pipe")
    assert reader.communicate()[0] == expected and not (tmp_path / "pipe").is_file()


@pytest.mark.parametrize(
    ("name", "content", "expected", "num_translated"),
    [
        ("a.json", '{"a": "one", "b": "lost"}', '{"a": "ONE", "b": "lost"}', 1),
        ("a.po", catalogue("lost"), catalogue("lost"), 0),
        ("a.html", "<p>lost</p><p><b>bold</b></p>", "<p>lost</p><p><b>bold</b></p>", 0),
    ],
)
def test_texts_with_an_empty_translation_stay_and_are_named(tmp_path, name, content, expected, num_translated):
    (tmp_path / name).write_text(content, encoding="utf-8")
    job = new_job(in_capitals)
    assert translated(tmp_path / name, job).decode() == expected
    assert job.counts["translated"] == num_translated and job.counts["not translated"] > 0
    (note,) = job.notes.values()
    assert f"{name}, line 1" in note


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.po")}


def test_a_folder_is_finished_by_the_same_command(folder, tmp_path):
    out = tmp_path / "out"
    assert translate_folder(folder, out) == 4
    first = contents(out)
    lines = (out / RECORD).read_text(encoding="utf-8").splitlines(keepends=True)
    assert [json.loads(line)[0] for line in lines] == ["a.po", "deep/b.po"]
    (out / "deep/b.po").unlink()
    (out / RECORD).write_text(lines[0] + lines[1][:-5], encoding="utf-8")  # The last line was cut off.
    assert translate_folder(folder, out) == 2 and contents(out) == first
    assert translate_folder(out, tmp_path / "again") == 0  # The record is no document.
    (folder / "a.po").write_text(catalogue("five"), encoding="utf-8")
    assert translate_folder(folder, out) == 1 and translate_folder(folder, out) == 0
    assert translate_folder(folder, out, key="another model") == 3
    (out / "a.po").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.po"):
        translate_folder(folder, out, key="a third model")


def test_a_folder_is_translated_again_after_the_model_has_changed(mt, trained, folder, tmp_path):
    """Other weights, tokenizers or options under the same names, but not other names of the same model."""
    run = tmp_path / "run"
    shutil.copytree(trained, run)

    def num_documents(*options):
        status, _, err = mt("translate", "--run", run, "--input", "po", "--output", "out", *options)
        assert status == 0, err
        return 2 if "\n2 documents: " in err else 0 if "all 2 documents were done before" in err else err

    assert num_documents() == 2 and num_documents() == 0
    run = shutil.copytree(trained, tmp_path / "copy")
    assert num_documents() == 0
    with safe_open(run / "checkpoints/best.safetensors", "pt") as file:
        header, weights = file.metadata(), {name: -file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(weights, run / "checkpoints/best.safetensors", header)  # As a script of a user does.
    assert num_documents() == 2 and num_documents() == 0
    assert num_documents("--beam-size", "2") == 2


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_interrupted_folder_is_finished_with_the_same_bytes(folder, tmp_path, monkeypatch, number):
    """The command ends before one of its writes: of the record, of a document, and so on."""
    writes = []

    def interrupted(write):
        def write_or_end(*arguments):
            writes.append(write)
            if len(writes) == number:
                raise KeyboardInterrupt
            write(*arguments)

        return write_or_end

    translate_folder(folder, tmp_path / "whole")
    with monkeypatch.context() as patch:
        for name in ("write_output", "append_row"):
            patch.setattr(documents, name, interrupted(getattr(documents, name)))
        with pytest.raises(KeyboardInterrupt):
            translate_folder(folder, tmp_path / "out")
    translate_folder(folder, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_folder_names_what_it_does_not_translate(mt, trained, folder, tmp_path):
    (folder / "a.tex").write_text("one", encoding="utf-8")
    (folder / "b.csv").write_text("one,two\none,two\n", encoding="utf-8")
    status, _, err = mt("translate", "--run", trained, "--input", folder, "--output", tmp_path / "out")
    assert status == 0 and "note: b.csv" in err and "--column" in err
    assert "2 files of other formats were not read" in err
    assert not (tmp_path / "out" / "b.csv").exists()
