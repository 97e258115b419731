"""Translation memories (TMX) and gettext catalogues as corpora."""

from xml.sax.saxutils import escape

import pytest
from formats import ENDINGS, TEXT, each_time_a_folder, numbered, packed, read
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.errors import CorpusError

XML = st.text(
    st.one_of(
        st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"),
        st.sampled_from("\t\n"),
    ),
    max_size=20,
)


@each_time_a_folder
@given(st.lists(st.tuples(XML, XML), min_size=1), ENDINGS, st.sampled_from(["utf-8", "utf-16"]), st.booleans())
def test_tmx_gives_back_any_pairs_that_xml_can_hold(tmp_path, pairs, ending, encoding, skip):
    units = "".join(
        f'<tu><tuv xml:lang="EN-us"><seg>{escape(source)}</seg></tuv>'
        f'<tuv lang="it" x:y="z"><seg>{escape(target)}</seg></tuv></tu>'
        for source, target in pairs
    )
    head = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    path = packed(tmp_path / "memory.tmx", f"{head}<tmx xmlns:x='x'>{units}</tmx>".encode(encoding), ending)
    rows, report = numbered(path, skip_damaged=skip)
    assert [row[1:] for row in rows] == pairs and not report.num_skipped


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


@each_time_a_folder
@given(st.lists(st.tuples(TEXT.filter(len), TEXT)), st.sampled_from(["\\{:03o}", "\\x{:02X}"]))
def test_escapes_of_a_catalogue_are_bytes_of_its_text(tmp_path, pairs, escape):
    def spelled(text):
        return "".join(map(escape.format, text.encode()))

    messages = (f'msgid "{spelled(source)}"\nmsgstr ""\n"{spelled(target)}"\n' for source, target in pairs)
    assert read(packed(tmp_path / "it.po", "\n".join(messages).encode(), "")) == pairs


def test_xml_entities_are_never_expanded(tmp_path):
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    for declarations in (f'<!ENTITY l0 "ha">{laughs}', f'<!ENTITY l9 SYSTEM "{tmp_path / "secret"}">'):
        body = '<tmx>\n<tu><tuv lang="en"><seg>&l9;</seg></tuv></tu><tu><tuv lang="en"><seg>b</seg></tuv>'
        text = f'<!DOCTYPE tmx [{declarations}]>{body}<tuv lang="it"><seg>c</seg></tuv></tu></tmx>'
        (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
        with pytest.raises(CorpusError, match=r"a\.tmx, line 2: .*entity"):
            read(tmp_path / "a.tmx")
        rows, report = numbered(tmp_path / "a.tmx", skip_damaged=True)
        assert [row[1:] for row in rows] == [("b", "c")] and report.num_skipped == {"unit": 1}


def test_a_catalogue_gives_plurals_without_fuzzy_or_obsolete_translations(tmp_path):
    (tmp_path / "it.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d documento"\nmsgstr[1] "%d documenti"\n\n'
        '#, fuzzy\nmsgid "doubtful"\nmsgstr "dubbio"\n\n#, fuzzy\n#~ msgid "old"\n#~ msgstr "vecchio"\n\n'
        'msgid "new"\nmsgstr "nuovo"\n',
        encoding="utf-8",
    )
    files = [(4, "%d file", "%d documento"), (4, "%d files", "%d documenti")]
    rest = [(10, "doubtful", ""), (17, "new", "nuovo")]
    assert numbered(tmp_path / "it.po")[0] == [*files, *rest]


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252", "shift_jis", "utf-16", "utf-16-le", "utf-8-sig"])
def test_a_translation_memory_may_declare_its_encoding(tmp_path, encoding):
    text = "テスト" if encoding == "shift_jis" else "perché"
    unit = f'<tu><tuv lang="en"><seg>{text}</seg></tuv><tuv lang="ita"><seg>b</seg></tuv></tu>'
    declared = encoding.removesuffix("-sig").removesuffix("-le")
    (tmp_path / "a.tmx").write_bytes(f'<?xml version="1.0" encoding="{declared}"?><tmx>{unit}</tmx>'.encode(encoding))
    assert read(tmp_path / "a.tmx") == [(text, "b")]


def test_the_first_of_several_segments_is_read_with_the_line_of_its_unit_and_notes_are_not(tmp_path):
    note = "<note><seg>no</seg></note>"
    variants = "\n".join(f'<tuv lang="en">{note}<seg>{number}</seg></tuv>' for number in range(3))
    text = f'<tmx>\n<body>\r<tu>{note}{variants}<tuv lang="it"><seg>x</seg></tuv></tu></body></tmx>'
    (tmp_path / "a.tmx").write_text(text, encoding="utf-8", newline="")
    assert numbered(tmp_path / "a.tmx")[0] == [(3, "0", "x")]


def memory(units):
    return b"<tmx>\n" + units + b"</tmx>"


LATIN = "perché".encode("latin-1")
SEGMENT = b'<tuv lang="en"><seg>%s</seg></tuv>'


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.po", b'msgid "a"\nmsgstr "b\n', ", line 2: not a line"),
        ("a.po", b'msgid "a"\nmsgstr "\\777"\n', ", line 2: unknown escape"),
        ("a.po", b'\nmsgid "a"\nmsgstr "\\351"\n', ", line 2: .*not UTF-8"),
        ("a.po", b'msgid "a"\nmsgstr "b"\nmsgstr "c"\n', ", line 3: a second msgstr .*line 1"),
        ("a.po", b'msgid "a"\nmsgstr "b"\n\nmsgid "c"\n', ", line 4: .*no msgstr"),
        ("a.po", b'\nmsgstr "c"\n', ", line 2: .*no msgid"),
        ("a.po", b'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=ISO-8859-1\\n"\n', ": .*ISO-8859-1"),
        ("a.tmx", b"<tmx><body>\n<tu></body></tmx>", ", line 2: .*</tu>"),
        ("a.tmx", memory(b"<tu>\n<tuv></tu>"), ", line 3: .*mismatched tag"),
        ("a.tmx", memory(b"<tu>\n" + SEGMENT % LATIN + b"</tu>"), ", line 3: .*encoding"),
        ("a.tmx", b'<?xml version="1.0" encoding="foo"?><tmx/>', ", line 1: .*foo"),
        ("a.tmx", b'<?xml version="1.0" encoding="utf-16"?><tmx/>', ", line 1: not utf-16"),
        ("a.tmx", memory(b"<tu>\n" + SEGMENT % b"R & D" + b"</tu>"), ", line 3: not well-formed"),
        ("a.tmx", memory(b"<tu>\n" + SEGMENT % b"a&nbsp;b" + b"</tu>"), ", line 3: .*entity"),
        ("a.tmx", memory(b"<tu>" + SEGMENT % b"a<seg>b</seg>" + b"</tu>"), ", line 2: <seg> within <seg>"),
        ("a.tmx", memory(SEGMENT % b"a" + b"</tu>"), ", line 2: .*<tu>"),
        ("a.tmx", memory(b""), ": has no <tu>"),
        ("a.tmx", memory(b'<tu>\n<tuv lang="en">a</tuv><tuv lang="it">b</tuv></tu>'), ": has no <tu> with segments"),
        ("a.tmx", memory(b"<tu>" + SEGMENT % b"a" + b"</tu>"), ": .*`it`.* en "),
    ],
)
def test_the_error_of_a_damaged_memory_or_catalogue_names_the_place(tmp_path, name, content, place):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=f"^{tmp_path / name}{place}"):
        read(tmp_path / name)
