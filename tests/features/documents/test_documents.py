"""Documents are translated in place: catalogues, folders of them, and what is wrong with them."""

import json
import os
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from mt_cli.corpus.protected_text import UNPROTECTED
from mt_cli.features.documents.document import DocumentError, Options
from mt_cli.features.documents.formats import READERS, read_document
from mt_cli.features.documents.translate import RECORD, Job, translated

HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Plural-Forms: nplurals=3; plural=(n==1 ? 0 : n==2 ? 1 : 2);\\n"\n\n'
)
CATALOGUE = (
    "# Comment\n" + HEADER + "#. Note\n#: a.c:1\n#, c-format\nmsgctxt \"menu\"\nmsgid \"one %s\"\nmsgstr \"\"\n\n"
    '#: b.c:2\n#| msgid "old"\nmsgid "two"\nmsgstr ""\n\n'
    'msgid "three"\nmsgstr "drei"\n\n'
    'msgid "%d one"\nmsgid_plural "%d two"\nmsgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""\n\n'
    'msgid ""\n"one\\n"\n"two"\nmsgstr ""\n\n'
    '#~ msgid "gone"\n#~ msgstr ""\n'
)  # fmt: skip


PLURALS = 'msgid "%d one"\nmsgid_plural "%d two"\n'
CHANGES = [
    ("#, c-format\n", "#, c-format, fuzzy\n"),
    ('"one %s"\nmsgstr ""', '"one %s"\nmsgstr "ONE %s"'),
    ('#| msgid "old"', '#, fuzzy\n#| msgid "old"'),
    ('msgid "two"\nmsgstr ""', 'msgid "two"\nmsgstr "TWO"'),
    (
        PLURALS + 'msgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""',
        "#, fuzzy\n" + PLURALS + 'msgstr[0] "%d ONE"\nmsgstr[1] "%d TWO"\nmsgstr[2] "%d TWO"',
    ),
    (
        'msgid ""\n"one\\n"\n"two"\nmsgstr ""',
        '#, fuzzy\nmsgid ""\n"one\\n"\n"two"\nmsgstr ""\n"ONE\\n"\n"TWO"',
    ),
]
"""Parts of the catalogue before and after."""


def upper(unit):
    return unit.write([text.upper().replace("%S", "%s").replace("%D", "%d") for text in unit.texts], False)


def write(tmp_path, content, name="a.po"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_only_untranslated_messages_of_a_catalogue_change(tmp_path, line_end):
    path = write(tmp_path, CATALOGUE.replace("\n", line_end))
    document = read_document(path, Options())
    assert document.replaced({}) == path.read_bytes()
    assert [unit.texts for unit in document.units] == [
        ("one %s",), ("two",), ("three",), ("%d one", "%d two"), ("one\ntwo",)
    ]  # fmt: skip
    assert [unit.is_translated for unit in document.units] == [False, False, True, False, False]
    parts = {index: upper(unit) for index, unit in enumerate(document.units) if not unit.is_translated}
    written = document.replaced(parts).decode("utf-8").replace(line_end, "\n")
    expected = CATALOGUE
    for before, after in CHANGES:
        assert expected.count(before) == 1
        expected = expected.replace(before, after)
    assert written == expected


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs msgfmt of GNU gettext")
def test_msgfmt_accepts_what_is_written(tmp_path):
    document = read_document(write(tmp_path, CATALOGUE), Options())
    written = document.replaced({index: upper(unit) for index, unit in enumerate(document.units)})
    path = write(tmp_path, written, "b.po")
    subprocess.run(["msgfmt", "--check", "--check-format", "-o", "/dev/null", path], check=True)


@pytest.mark.parametrize(
    "text", ['He says "no"', "tab\tend", "back\\slash", "a\nb\n", "long " * 60, "日本語" * 40, "é"]
)
def test_escapes_of_a_message_are_read_again(tmp_path, text):
    document = read_document(write(tmp_path, HEADER + 'msgid "x"\nmsgstr ""\n'), Options())
    path = write(tmp_path, document.replaced({0: document.units[0].write([text], False)}), "b.po")
    from mt_cli.corpus.gettext import read_po

    [(_, source, _)] = list(read_po(path, ("en", "it"), None))
    assert source == "x"
    path.write_bytes(path.read_bytes().replace(b"#, fuzzy\n", b""))
    assert [row[1:] for row in read_po(path, ("en", "it"), None)] == [("x", text)]


@pytest.mark.parametrize("text", ['"one" " two"', '"one"" two"', '"one "\n "two"', '"one"\t" t" "wo"'])
def test_a_text_may_be_in_several_strings_of_a_line(tmp_path, text):
    content = HEADER + f'msgid {text}\nmsgstr ""\n\nmsgid"x"\nmsgstr {text}\n'
    document = read_document(write(tmp_path, content), Options())
    assert [unit.texts for unit in document.units] == [("one two",), ("x",)]
    assert document.replaced({}) == content.encode()
    written = document.replaced({0: document.units[0].write(["eins"], False)}).decode()
    assert written == content.replace(f'msgid {text}\nmsgstr ""', f'#, fuzzy\nmsgid {text}\nmsgstr "eins"')


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (HEADER + 'msgid "a" b\nmsgstr ""\n', "line 6"),
        (HEADER + 'msgid "a" msgstr "b"\n', "line 6"),
        (HEADER + "msgid one\n", "line 6"),
        (HEADER + 'msgid "a"\nmsgid "b"\nmsgstr ""\n', "line 7"),
        (HEADER + 'msgid "a"\n', "line 6"),
        (HEADER + 'msgid "a"\nmsgstr "b"\n# note\n"c"\n', "line 8"),
        (HEADER.encode() + b'msgid "\xff"\nmsgstr ""\n', "line 6"),
        (HEADER.replace("UTF-8", "martian"), "martian"),
    ],
)
def test_a_damaged_catalogue_is_refused_with_its_place(tmp_path, content, place):
    with pytest.raises(DocumentError, match=place):
        read_document(write(tmp_path, content), Options())


def test_a_catalogue_in_another_encoding_keeps_it(tmp_path):
    header = HEADER.replace("UTF-8", "ISO-8859-1")
    path = write(tmp_path, (header + 'msgid "caf\u00e9"\nmsgstr ""\n').encode("latin-1"))
    document = read_document(path, Options())
    assert "caf\u00e9".encode("latin-1") in document.replaced({0: document.units[0].write(["CAF\u00c9"], False)})
    with pytest.raises(DocumentError, match="lacks"):
        document.replaced({0: document.units[0].write(["日本"], False)})


@pytest.fixture
def folder(tmp_path):
    for name in ("po/a.po", "po/deep/b.po"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path, HEADER + f'msgid "one two"\nmsgstr ""\n\nmsgid "{name} three"\nmsgstr ""\n', name)
    (tmp_path / "po/README").write_text("no document", encoding="utf-8")
    return tmp_path / "po"


def test_a_document_is_translated_and_counted(mt, trained, folder, tmp_path):
    status, out, err = mt("translate", "--run", trained, "--input", "po/a.po", "--output", "a.po")
    assert (status, out) == (0, "") and "1 document: 2 texts, 2 translated" in err
    written = (tmp_path / "a.po").read_text(encoding="utf-8")
    assert '#, fuzzy\nmsgid "one two"\nmsgstr "ONE TWO' in written
    again = mt("translate", "--run", trained, "--input", "a.po", "--output", "b.po")
    assert "2 had a translation" in again[2] and (tmp_path / "b.po").read_text(encoding="utf-8") == written


def test_forms_of_a_plural_that_are_there_stay(tmp_path):
    forms = 'msgstr[0] "a"\nmsgstr[1] "b"\nmsgstr[2] ""\n'
    document = read_document(write(tmp_path, HEADER + PLURALS + forms), Options())
    assert upper(document.units[0]) == f"#, fuzzy\n{PLURALS}" + forms.replace('[2] ""\n', '[2] "%d TWO"')


@pytest.mark.parametrize(
    ("number", "forms", "expected"),
    [
        (3, ["a", "b"], ["a", "b", "%d TWO"]),
        (2, ["a", "b"], None),
        (1, [""], ["%d TWO"]),
        (0, ["", ""], ["%d ONE", "%d TWO"]),
    ],
)
def test_forms_that_the_header_asks_for_are_added(tmp_path, number, forms, expected):
    written = "".join(f'msgstr[{index}] "{form}"\n' for index, form in enumerate(forms))
    document = read_document(write(tmp_path, HEADER.replace("=3", f"={number}") + PLURALS + written), Options())
    (unit,) = document.units
    assert unit.is_translated == (expected is None)
    if expected:
        rows = [f'msgstr[{index}] "{form}"' for index, form in enumerate(expected)]
        assert upper(unit) == f"#, fuzzy\n{PLURALS}" + "\n".join(rows)


def test_an_output_may_be_a_link_or_a_pipe_and_keeps_its_mode(mt, trained, folder, tmp_path):
    (tmp_path / "real.po").write_text("old")
    (tmp_path / "real.po").chmod(0o600)
    (tmp_path / "link.po").symlink_to("real.po")
    (tmp_path / "link.po.tmp").write_text("of somebody else")
    command = ("translate", "--run", trained, "--input", "po/a.po", "--output")
    assert mt(*command, "link.po")[0] == mt(*command, "new.po")[0] == 0
    expected = (tmp_path / "new.po").read_bytes()
    assert (tmp_path / "link.po").is_symlink() and (tmp_path / "real.po").read_bytes() == expected
    assert (tmp_path / "real.po").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "link.po.tmp").read_text() == "of somebody else"
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", "pipe"], cwd=tmp_path, stdout=subprocess.PIPE)
    assert mt(*command, "pipe")[0] == 0
    assert reader.communicate()[0] == expected and not (tmp_path / "pipe").is_file()
    with open(tmp_path / "log", "ab") as log:
        log.write(b"before")
        log.flush()
        assert mt(*command, f"/dev/fd/{log.fileno()}")[0] == 0
    assert (tmp_path / "log").read_bytes() == b"before" + expected


def test_texts_whose_translation_is_empty_stay_and_are_named(tmp_path):
    class Silent:
        protection = UNPROTECTED

        def translate_fully(self, lines, **search):
            texts = ["" if "two" in line else "<b></b>" if "three" in line else line.upper() for line in lines]
            return [SimpleNamespace(text=text, lost_spans=(), reordered_spans=()) for text in texts]

        def word_alignments(self, items):
            return [[] for _ in items]

    job = Job(Silent(), {}, Options(("en", "de")))
    contents = {
        "a.json": '{"a": "one", "b": "two"}',
        "a.po": HEADER + 'msgid "two"\nmsgstr ""\n',
        "a.html": "<p>two</p><p><b>three</b></p>",
    }
    results = [translated(write(tmp_path, content, name), job).decode() for name, content in contents.items()]
    assert results == ['{"a": "ONE", "b": "two"}', contents["a.po"], contents["a.html"]]
    assert job.counts["not translated"] == 4 and job.counts["translated"] == 1
    (note,) = job.notes.values()
    assert "a.json, line 1" in note and "empty" in note


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may refuse such names")
def test_a_folder_with_a_name_that_is_not_utf8_is_finished_and_its_record_is_no_document(mt, trained, folder, tmp_path):
    (folder / os.fsdecode(b"n\xff.json")).write_text('{"a": "one"}')
    command = ("translate", "--run", trained, "--input", "po", "--output", "out")
    assert mt(*command)[0] == 0
    status, _, err = mt(*command)
    assert status == 0 and "all 3 documents were done before" in err
    assert "3 documents" in mt("translate", "--run", trained, "--input", "out", "--output", "again")[2]


def test_a_folder_is_finished_by_the_same_command(mt, trained, folder, tmp_path):
    command = ("translate", "--run", trained, "--input", "po", "--output", "out")
    assert "2 documents: 4 texts" in mt(*command)[2]
    first = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*.po")}
    done = json.loads((tmp_path / "out" / RECORD).read_text(encoding="utf-8"))
    assert set(done) == {"a.po", "deep/b.po"}
    (tmp_path / "out/deep/b.po").unlink()
    assert "1 document (1 more were done before)" in mt(*command)[2]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*.po")} == first
    write(tmp_path, HEADER + 'msgid "five"\nmsgstr ""\n', "po/a.po")
    assert "1 document (1 more" in mt(*command)[2]


def test_a_folder_whose_documents_are_all_deeper_is_translated(mt, trained, folder, tmp_path):
    (folder / "a.po").rename(tmp_path / "a.po")
    (folder / "app/it").mkdir(parents=True)
    (folder / "deep").rename(folder / "app/it/LC_MESSAGES")
    status, _, err = mt("translate", "--run", trained, "--input", "po", "--output", "out")
    assert status == 0 and "1 document: 2 texts" in err
    assert (tmp_path / "out/app/it/LC_MESSAGES/b.po").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--input", "po/a.po"), "--output"),
        (("--input", "po/a.po", "--output", "po/a.po"), "one file"),
        (("--input", "po", "--output", "po/out"), "another"),
        (("--input", "empty", "--output", "out"), "no documents"),
        (("--input", "po/a.po", "--output", "x.po", "--json"), "document"),
        (("--input", "po", "--output", "taken"), "taken/a.po"),
        (("--input", "po", "--output", "po/README"), "inside"),
        (("--input", "po", "--output", "file"), "is a file"),
    ],
)
def test_what_cannot_be_done_with_documents_is_refused(mt, trained, folder, tmp_path, arguments, named):
    (tmp_path / "empty").mkdir()
    (tmp_path / "taken").mkdir()
    write(tmp_path, "mine", "taken/a.po")
    write(tmp_path, "mine", "file")
    status, _, err = mt("translate", "--run", trained, *arguments)
    assert status == 2 and named in err and err.count("\n") == 1 + err.count("note:"), err
    assert (tmp_path / "taken/a.po").read_text(encoding="utf-8") == "mine"


def test_lines_of_a_document_are_read_with_as_lines(mt, trained, folder):
    status, out, _ = mt("translate", "--run", trained, "--input", "po/a.po", "--as-lines")
    assert status == 0 and out.count("\n") == len((folder / "a.po").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("suffix", sorted(READERS))
def test_a_document_that_is_too_large_is_refused_with_one_message(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    with path.open("wb") as file:
        file.truncate(2**28 + 1)
    with pytest.raises(DocumentError, match=r"^[^\n]*MiB; divide it into documents of at most (32|256) MiB$"):
        read_document(path, Options())


@pytest.mark.parametrize(
    ("suffix", "part"), [(".md", "a|b\n"), (".html", "<p>a"), (".json", '"a",\n'), (".csv", "a\n")]
)
def test_a_document_of_too_many_parts_is_refused_with_one_message(tmp_path, suffix, part):
    path = write(tmp_path, part * (2**22), f"a{suffix}")
    with pytest.raises(DocumentError, match=r"^[^\n]*lines, tags, cells and strings; divide it"):
        read_document(path, Options(column="a"))


def test_a_large_document_of_a_folder_is_refused_before_anything_is_translated(mt, trained, folder, tmp_path):
    with (folder / "z.html").open("wb") as file:
        file.truncate(2**25 + 1)
    status, _, err = mt("translate", "--run", trained, "--input", "po", "--output", "out")
    assert status == 2 and "z.html: has 32.0 MiB; divide it" in err and not (tmp_path / "out").exists()


KILLED = """
import os, signal, sys
from mt_cli.cli.main import main
from mt_cli.features.documents import translate

number = int(sys.argv.pop(1))

def killed_before(write):
    def write_or_die(*arguments):
        global number
        number -= 1
        if number == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        write(*arguments)
    return write_or_die

translate.write_output, translate.write_text = map(killed_before, (translate.write_output, translate.write_text))
main()
"""


def test_a_folder_whose_translation_is_killed_is_finished_with_the_same_bytes(mt, trained, folder, tmp_path):
    """Each process is killed before one of its writes: of a document, of the record of the next one, and so on."""
    command = ["translate", "--run", str(trained), "--input", "po", "--output"]
    assert mt(*command, "whole")[0] == 0
    for number in (3, 2):
        process = subprocess.run([sys.executable, "-c", KILLED, str(number), *command, "out"], capture_output=True)
        assert process.returncode == -signal.SIGKILL, process.stderr
    assert "1 document (1 more were done before)" in mt(*command, "out")[2]
    for name in ("a.po", "deep/b.po"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
