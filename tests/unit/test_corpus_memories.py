"""Translation memories (TMX), XLIFF and gettext catalogues: what is text, and what is damaged."""

import json
from xml.etree.ElementTree import fromstring

import pytest
from formats import assert_refused, numbered, read
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.config.sources import FolderSource
from mt_cli.corpus.formats.memories import text_of_segment
from mt_cli.corpus.rows import ReadReport
from mt_cli.corpus.source_rows import read_rows
from mt_cli.errors import CorpusError


def unit(source, target="x"):
    return f'<tu><tuv xml:lang="en"><seg>{source}</seg></tuv><tuv xml:lang="it"><seg>{target}</seg></tuv></tu>\n'


def memory(*units):
    """Text of a memory; its first unit is in line 4."""
    return '<?xml version="1.0"?>\n<tmx>\n<header/><body>\n' + "".join(units) + "</body></tmx>\n"


def xliff_1(source, target, codes='source-language="en-US" target-language="it"'):
    unit = f"<x:trans-unit><x:source>{source}</x:source>{target}<x:note>no</x:note></x:trans-unit>"
    return f'<x:xliff version="1.2" xmlns:x="x"><x:file {codes}><x:body>\n{unit}\n</x:body></x:file></x:xliff>'


def write(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def test_xml_entities_are_never_expanded(tmp_path):
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    for declarations in (f'<!ENTITY l0 "ha">{laughs}', f'<!ENTITY l9 SYSTEM "{tmp_path / "secret"}">'):
        for name, text in (("a.tmx", memory(unit("&l9;"))), ("a.xlf", xliff_1("&l9;", ""))):
            declared = f"<!DOCTYPE x [{declarations}]>" + text.removeprefix('<?xml version="1.0"?>\n')
            assert_refused(tmp_path / name, declared.encode(), ".*entity")


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252", "utf-16-le", "utf-8-sig"])
def test_a_translation_memory_may_declare_its_encoding(tmp_path, encoding):
    text = "perché"
    declared = encoding.removesuffix("-sig").removesuffix("-le")
    content = memory(unit(text)).replace("?>", f' encoding="{declared}"?>')
    (tmp_path / "a.tmx").write_bytes(content.encode(encoding))
    assert read(tmp_path / "a.tmx") == [(text, "x")]


def test_the_first_segment_is_read_and_notes_are_not(tmp_path):
    note = "<note><seg>no</seg></note>"
    variants = "\n".join(f'<tuv lang="en">{note}<seg>{number}</seg></tuv>' for number in range(3))
    text = f'<tmx>\n<body>\r<tu>{note}{variants}<tuv lang="it"><seg>x</seg></tuv></tu></body></tmx>'
    assert numbered(write(tmp_path / "a.tmx", text))[0] == [(3, "0", "x")]


def test_a_catalogue_gives_plurals_without_fuzzy_or_obsolete_translations(tmp_path):
    text = (
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d documento"\nmsgstr[1] "%d documenti"\n\n'
        '#, fuzzy\nmsgid "doubtful"\nmsgstr "dubbio"\n\n#, fuzzy\n#~ msgid "old"\n#~ msgstr "vecchio"\n\n'
        'msgid "new"\nmsgstr "nuovo"\n'
    )
    files = [(4, "%d file", "%d documento"), (4, "%d files", "%d documenti")]
    rest = [(10, "doubtful", ""), (17, "new", "nuovo")]
    assert numbered(write(tmp_path / "it.po", text))[0] == [*files, *rest]


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("", ""),
        ('<x:target state="translated">b</x:target>', "b"),
        ('<x:target state="needs-review-translation">b</x:target>', ""),
        ('<x:target state-qualifier="mt-suggestion">b</x:target>', ""),
        ("<x:alt-trans><x:source>c</x:source><x:target>d</x:target></x:alt-trans>", ""),
    ],
)
def test_drafts_are_blank(tmp_path, target, text):
    path = write(tmp_path / "a.xliff", xliff_1("a", target))
    assert numbered(path)[0] == [(2, "a", text)]
    assert read(path, ("it", "en")) == [(text, "a")]


def test_drafts_of_version_2_are_blank(tmp_path):
    states = [("", "b"), (' state="initial"', ""), (' state="final"', "b")]
    segments = "".join(
        f"<unit><segment{state}><source>a</source><target>b</target></segment></unit>" for state, _ in states
    )
    text = f'<xliff version="2.1" srcLang="en" trgLang="it-IT"><file>\n{segments}</file></xliff>'
    assert read(write(tmp_path / "a.xlf", text)) == [("a", text) for _, text in states]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.po", b'msgid "a"\nmsgstr "b\n', ", line 2"),
        ("a.po", b'\nmsgid "a"\nmsgstr "\\351"\n', ", line 2: .*UTF-8"),
        ("a.tmx", memory(unit("b"), unit("a").replace("</tuv></tu>", "</tu>")), ", line 5"),
        ("a.tmx", memory(unit("é")).encode("latin-1"), ", line 4: .*encoding"),
        ("a.tmx", memory(unit("a").replace('"it"', '"fr"')), ": .*`it`.* en .*fr "),
        ("a.xlf", xliff_1("a", "")[:-9], ", line 3"),
        ("a.xlf", xliff_1("a", "", 'source-language="en" target-language="fr"'), ": .*`it`"),
    ],
)
def test_damaged_memories_and_catalogues_name_the_line(tmp_path, name, content, place):
    assert_refused(tmp_path / name, content if isinstance(content, bytes) else content.encode(), place)


@pytest.mark.parametrize("fault", [b'msgid "a"\nmsgstr "b\n', b'msgid "a"\nmsgstr "\xe9"\n'])
def test_a_damaged_file_of_a_folder_is_skipped_and_named(tmp_path, fault):
    for number, name in enumerate(("a.po", "sub/b.po", "z.po")):
        path = write(tmp_path / "po" / name, f'msgid "one {number}"\nmsgstr "uno"\n\n')
        if name == "sub/b.po":
            path.write_bytes(path.read_bytes() + fault)
    source, report = FolderSource(folder=str(tmp_path / "po"), skip_damaged=True), ReadReport()
    assert [row[1] for row in read_rows(source, ("en", "it"), report)] == ["one 0", "one 2"]
    (note,) = report.notes()
    assert "1 of 3 files" in note and "sub/b.po" in note
    with pytest.raises(CorpusError, match=r"b\.po.*`skip_damaged: true`"):
        list(read_rows(source.model_copy(update={"skip_damaged": False}), ("en", "it")))
    for name in ("a", "z"):
        write(tmp_path / f"po/{name}.po", "damage\n")
    with pytest.raises(CorpusError, match=r"a\.po, line 1"):
        list(read_rows(source, ("en", "it")))


def test_init_and_check_count_what_is_skipped(mt, tmp_path):
    for number in range(3):
        units = [unit(f"the open window of house {number}-{n}", f"la finestra della casa {n}") for n in range(30)]
        write(tmp_path / f"m/{number}.tmx", memory(*units, unit("R & D") if number == 1 else ""))
    status, _, err = mt("init", "m", "--name", "m")
    assert status == 2 and "m/1.tmx, line 34: " in err and "--skip-damaged" in err
    status, _, err = mt("init", "m", "--name", "m", "--skip-damaged")
    assert status == 0 and "1 of 3 files are skipped: 1.tmx, line 34: " in err
    row = json.loads(mt("data", "check", "--config", "m.yaml", "--json")[1])["corpora"][0]
    assert row["num_skipped_files"] == 1 and row["skipped"][0].startswith("1.tmx, line 34: ")


def write_catalogue(path, language, text):
    return write(path, f'msgid ""\nmsgstr "Language: {language}\\n"\n\nmsgid "Open"\nmsgstr "{text}"\n')


def test_a_folder_of_catalogues_is_read_in_one_language(tmp_path):
    for name, language in (("de", "de_DE"), ("it", "it"), ("b", "it_IT"), ("es_419", "es_419"), ("app", "")):
        write_catalogue(tmp_path / "po" / f"{name}.po", language, name)
    write(tmp_path / "po" / "nl.po", 'msgid "Open"\nmsgstr "nl"\n')
    source = FolderSource(folder=str(tmp_path / "po"))
    for target, expected in (("it", ["app", "b", "it"]), ("es_419", ["app", "es_419"]), ("nl", ["app", "nl"])):
        report = ReadReport()
        assert [row[2] for row in read_rows(source, ("en", target), report)] == expected
        assert "not read: de_DE (1)" in next(report.notes())
    with pytest.raises(CorpusError, match=r"no catalogue is in `gn`.* de_DE, es_419, "):
        list(read_rows(source, ("en", "gn")))


@pytest.mark.parametrize(
    ("target", "expected", "note"),
    [
        ("pt", ["pt", "pt_PT"], "not read: pt_BR (1)"),
        ("pt_BR", ["pt_BR"], "not read: pt (1), pt_PT (1)"),
        ("pt_PT", ["pt", "pt_PT"], "not read: pt_BR (1)"),
        ("pt_AO", None, "is read"),
    ],
)
def test_varieties_of_catalogues_are_never_mixed(tmp_path, target, expected, note):
    for name in ("pt", "pt_PT", "pt_BR"):
        write_catalogue(tmp_path / "po" / f"{name}.po", name, name)
    report = ReadReport()
    source = FolderSource(folder=str(tmp_path / "po/*.po"))
    rows = [row[2] for row in read_rows(source, ("en", target), report)]
    assert note in next(report.notes()) and rows in ([expected] if expected else [["pt", "pt_PT"], ["pt_BR"]])


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("no", "nb-NO"),
        ("nb", "no-NO"),
        ("npi", "ne-NP"),
        ("pbt_Arab", "ps"),
        ("ekk_Latn", "et"),
        ("es_419", "es-419"),
        ("zho_Hant", "zh-TW"),
    ],
)
def test_spellings_of_one_language_are_read_alike(tmp_path, language, code):
    text = memory(unit("a", "b")).replace('"it"', f'"{code}"')
    assert read(write(tmp_path / "a.tmx", text), ("en", language)) == [("a", "b")]
    codes = f'source-language="en" target-language="{code}"'
    text = xliff_1("a", "<x:target>b</x:target>", codes)
    assert read(write(tmp_path / "a.xlf", text), ("en", language)) == [("a", "b")]
    table = f"text_{code}\tEnglish text\nb\ta\n"
    assert read(write(tmp_path / "a.tsv", table), ("en", language)) == [("a", "b")]
    record = json.dumps({"translation": {"EN": "a", code: "b"}})
    assert read(write(tmp_path / "a.jsonl", record), ("en", language)) == [("a", "b")]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ("Press<it pos='begin'>x</it>the<ut>x</ut>big<x id='1'/>button", "Press the big button"),
        ("un<bpt i='1'>&lt;b&gt;</bpt>believ<ept i='1'>&lt;/b&gt;</ept>able", "unbelievable"),
        ("Title<ept i='1'>&lt;/p&gt;</ept><bpt i='2'>&lt;p&gt;</bpt>Text", "Title Text"),
        ("Wait.<ph/>Then go (<ph/>now<ph/>)", "Wait. Then go (now)"),
        ("点击<ph/>这里<ph/>OK", "点击这里OK"),
    ],
)
def test_an_inline_code_separates_words_and_nothing_else(segment, text):
    assert text_of_segment(fromstring(f"<seg>{segment}</seg>"))[0] == text


CODES = ("ph", "bpt", "ept", "hi")


@settings(max_examples=30)
@given(st.lists(st.one_of(st.text("ab .,(é1", min_size=1, max_size=4), st.sampled_from(CODES))))
def test_inline_codes_never_change_letters(parts):
    segment = "".join(f"<{part}>{'x' * (part != 'hi')}</{part}>" if part in CODES else part for part in parts)
    texts = "".join(part for part in parts if part not in CODES)
    text = text_of_segment(fromstring(f"<seg>{segment}</seg>"))[0]
    assert text.replace(" ", "") == texts.replace(" ", "")
    assert "  " in texts or "  " not in text


def test_the_content_of_inline_codes_is_dropped_and_counted(tmp_path):
    segment = "Dear <ph>{name}</ph>, <bpt i='1'>&lt;b&gt;</bpt>hi<ept i='1'>&lt;/b&gt;</ept> <g>a</g>"
    for path in (write(tmp_path / "a.tmx", memory(unit(segment))), write(tmp_path / "a.xlf", xliff_1(segment, ""))):
        rows, report = numbered(path)
        assert rows[0][1] == "Dear, hi a"
        (note,) = report.notes()
        assert "3 inline codes" in note and "{name}" in note
