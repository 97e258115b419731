"""Translation memories (TMX) and gettext catalogues as corpora."""

import gzip
from xml.sax.saxutils import escape

import pytest
from formats import ENDINGS, LANGUAGES, TEXT, each_time_a_folder, packed, read
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.corpus.formats import read_file
from mt_cli.errors import CorpusError

XML = st.text(
    st.one_of(
        st.characters(min_codepoint=32, exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"),
        st.sampled_from("\t\n"),
    ),
    max_size=20,
)


@each_time_a_folder
@given(st.lists(st.tuples(XML, XML), min_size=1), ENDINGS, st.sampled_from(["utf-8", "utf-16"]))
def test_tmx_gives_back_any_pairs_that_xml_can_hold(tmp_path, pairs, ending, encoding):
    units = "".join(
        f'<tu><tuv xml:lang="EN-us"><seg>{escape(source)}</seg></tuv>'
        f'<tuv lang="it"><seg>{escape(target)}</seg></tuv></tu>'
        for source, target in pairs
    )
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx><body>{units}</body></tmx>'
    )
    assert read(packed(tmp_path / "memory.tmx", text.encode(encoding), ending)) == pairs


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


ESCAPES = st.sampled_from(["\\{:03o}", "\\x{:02X}"])


@each_time_a_folder
@given(st.lists(st.tuples(TEXT.filter(len), TEXT)), ESCAPES)
def test_escapes_of_a_catalogue_are_bytes_of_its_text(tmp_path, pairs, escape):
    def spelled(text):
        return "".join(map(escape.format, text.encode()))

    messages = (f'msgid "{spelled(source)}"\nmsgstr ""\n"{spelled(target)}"\n' for source, target in pairs)
    assert read(packed(tmp_path / "it.po", "\n".join(messages).encode(), "")) == pairs


def test_code_within_a_segment_is_left_out_and_marked_text_kept(tmp_path):
    segment = "Press <bpt i='1'>&lt;b&gt;</bpt><hi>OK</hi><ept i='1'>&lt;/b&gt;</ept>, <ph>{0}<sub>x</sub></ph>then go"
    text = f'<tmx><tu><tuv lang="en"><seg>{segment}</seg></tuv><tuv lang="it"><seg>y</seg></tuv></tu></tmx>'
    (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
    assert read(tmp_path / "a.tmx") == [("Press OK, then go", "y")]


def test_xml_entities_are_never_expanded(tmp_path):
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    for declarations in (f'<!ENTITY l0 "ha">{laughs}', f'<!ENTITY l9 SYSTEM "{tmp_path / "secret"}">'):
        body = '<tmx><tu><tuv lang="en"><seg>&l9;</seg></tuv></tu></tmx>'
        (tmp_path / "a.tmx").write_text(f"<!DOCTYPE tmx [{declarations}]>{body}", encoding="utf-8")
        with pytest.raises(CorpusError, match="declares XML entities"):
            read(tmp_path / "a.tmx")


def test_a_catalogue_gives_plurals_without_fuzzy_or_obsolete_translations(tmp_path):
    (tmp_path / "it.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d documento"\nmsgstr[1] "%d documenti"\n\n'
        '#, fuzzy\nmsgid "doubtful"\nmsgstr "dubbio"\n\n#~ msgid "old"\n#~ msgstr "vecchio"\n',
        encoding="utf-8",
    )
    assert read(tmp_path / "it.po") == [("%d file", "%d documento"), ("%d files", "%d documenti"), ("doubtful", "")]


@pytest.mark.parametrize("encoding", ["iso-8859-1", "windows-1252", "utf-16", "utf-8-sig"])
def test_a_translation_memory_may_declare_its_encoding(tmp_path, encoding):
    unit = '<tu><tuv lang="en"><seg>perché</seg></tuv><tuv lang="ita"><seg>così</seg></tuv></tu>'
    declared = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{declared}"?><tmx>{unit}</tmx>'
    (tmp_path / "a.tmx").write_bytes(text.encode(encoding))
    assert read(tmp_path / "a.tmx") == [("perché", "così")]


def test_the_first_of_several_segments_is_read_and_notes_are_not(tmp_path):
    note = "<note><seg>no</seg></note>"
    variants = "".join(f'<tuv lang="en">{note}<seg>{number}</seg></tuv>' for number in range(3))
    text = f'<tmx><tu>{note}{variants}<tuv lang="it"><seg>x</seg></tuv></tu></tmx>'
    (tmp_path / "a.tmx").write_text(text, encoding="utf-8")
    assert read(tmp_path / "a.tmx") == [("0", "x")]


LATIN = "perché".encode("latin-1")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.po", b'msgid "a"\nmsgstr "b\n', r"a\.po, line 2: not a line of a gettext catalogue: 'msgstr"),
        ("a.tmx", b"<tmx><body>\n<tu></body></tmx>", r"a\.tmx, line 2: not well-formed XML: mismatched tag"),
        ("a.tmx", b"<tmx>\n<body>" + LATIN, r"a\.tmx, line 2: not well-formed XML"),
        ("a.po", b'msgid "a"\nmsgstr "\\q"\n', r"a\.po, line 2: unknown escape '\\\\q'"),
        ("a.po", b'msgid "a"\nmsgstr "\\777"\n', r"a\.po, line 2: unknown escape"),
        ("a.po", b'\nmsgid "a"\nmsgstr "\\351"\n', r"a\.po, line 2: the escapes of this message are not UTF-8"),
        ("a.po", b'msgid "a"\nmsgstr "b"\nmsgstr "c"\n', r"a\.po, line 3: a second msgstr in the message of line 1"),
        ("a.po", b'msgid "a"\n\nmsgid "b"\nmsgstr "c"\n', r"a\.po, line 3: a second msgid in the message of line 1"),
        ("a.po", b'msgid "a"\nmsgstr "b"\n\nmsgid "c"\n', r"a\.po, line 4: this message has no msgstr"),
        ("a.po", b'\nmsgstr "c"\n', r"a\.po, line 2: this message has no msgid"),
        (
            "a.po",
            b'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=ISO-8859-1\\n"\n\nmsgid "a"\nmsgstr "\xe9"\n',
            r"a\.po: its charset is ISO-8859-1; convert it with `msgconv -t UTF-8`",
        ),
        (
            "a.tmx",
            b"<tmx><body>" + LATIN * 9,
            r"line 1: not well-formed XML.*; not UTF-8 \(found 0xE9\); it looks like",
        ),
        (
            "a.tmx",
            b'<?xml version="1.0" encoding="foo"?><tmx/>',
            r"line 1: unknown encoding: foo; convert the file to UTF",
        ),
        (
            "a.tmx",
            b'<?xml version="1.0" encoding="shift_jis"?><tmx/>',
            r"multi-byte encodings .* convert the file to UTF-8",
        ),
        ("a.tmx", b'<?xml version="1.0" encoding="utf-16"?><tmx/>', r"is incorrect; convert the file to UTF-8"),
        (
            "a.tmx",
            b'<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx><tu><tuv lang="en"><seg>a&nbsp;b</seg></tuv></tu></tmx>',
            r"a\.tmx, line 2: the entity &nbsp; is unknown because no DTD is read; write the character itself",
        ),
        ("a.tmx", b"<tmx>\n<tu><tuv><seg>a<seg>b</seg></seg></tuv></tu></tmx>", r"line 2: <seg> within <seg>"),
        ("a.tmx", b"<tmx>\n<tu>\n<tu></tu></tu></tmx>", r"line 3: <tu> within <tu>"),
        ("a.tmx", b'<tmx>\n<tuv lang="en"><seg>a</seg></tuv></tu></tmx>', r"line 2: <tuv> outside of <tu>: the <tu> "),
        ("a.tmx", b"<tmx>\n<body></body></tmx>", r"a\.tmx: has no <tu>, so it holds no translation unit"),
        (
            "a.tmx",
            b'<tmx>\n<tu>\n<tuv lang="en">a</tuv><tuv lang="it">b</tuv></tu></tmx>',
            r"a\.tmx, line 3: a <tuv> has no <seg>, which should hold its text \(2 of them in this file\)",
        ),
        (
            "a.tmx",
            b'<tmx><tu><tuv lang="en"><seg>a</seg></tuv>\n<tuv lang="it">b</tuv></tu></tmx>',
            r"no segment is in `it`; there is text in en \(1 segment\); .*a\.tmx, line 2: a <tuv> has no <seg>",
        ),
        ("a.tmx", b"<tmx>\n<tu><tuv><seg>R & D</seg></tuv></tu></tmx>", r"line 2: not well-formed.*write &amp; for &;"),
        ("a.tmx", b"<tmx>\n<tu><tuv><seg>a&nbsp;b</seg></tuv></tu></tmx>", r"line 2: .*; write the character itself; "),
        ("a.tmx", gzip.compress(b"<tmx/>", mtime=0), r"it is compressed with gzip; its name should end in \.gz"),
    ],
)
def test_the_error_of_a_damaged_memory_or_catalogue_names_the_place(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / name)


def test_units_and_messages_are_numbered_by_the_line_where_they_begin(tmp_path):
    (tmp_path / "a.po").write_text('\n# note\nmsgid "a"\nmsgstr "b"\n\nmsgid "c"\nmsgstr "d"\n', encoding="utf-8")
    tmx = '<tmx>\n<body>\n<tu><tuv lang="en"><seg>a</seg></tuv>\n<tuv lang="it"><seg>b</seg></tuv></tu>\n</body></tmx>'
    (tmp_path / "a.tmx").write_text(tmx, encoding="utf-8")
    rows = {path.suffix: list(read_file(path, LANGUAGES)) for path in tmp_path.iterdir()}
    assert rows[".po"] == [(3, "a", "b"), (6, "c", "d")]
    assert rows[".tmx"] == [(3, "a", "b")]
