import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_trips import read, texts_of, translated

from mt_cli.features.documents.document import DocumentError

PROPERTIES = """# a comment = here \\
! another
  greeting = Hello there
colon: One
space Two
key\\ with\\=signs=Three
long = a first line of text \\
       and a second one \\
       # no comment
escaped=Caf\\u00e9\\n\\ttab \\ \n
empty=
number=12
"""
texts = st.text(st.sampled_from("ab \"'\\\n\r\t\f\0\u2028é😀=:#!{}%0"), max_size=12) | st.text(max_size=12)


VALUES = ["x", "x \\\n  y", " \\ x", "x\\\n\\ y"]


def test_values_are_replaced_and_keys_and_comments_stay(tmp_path):
    document = read(tmp_path, ".properties", PROPERTIES)
    assert texts_of(document) == [
        ("Hello there",),
        ("One",),
        ("Two",),
        ("Three",),
        ("a first line of text and a second one # no comment",),
        ("Café\n\ttab",),
    ]
    expected = PROPERTIES
    for text in ("Hello there", "One", "Two", "Three", "a first line of text", "and a second one"):
        expected = expected.replace(text, text.upper())
    expected = expected.replace("\\\n       # no comment", "# \\\n       NO COMMENT")
    expected = expected.replace("Caf\\u00e9\\n\\ttab \\ ", "CAF\\u00C9\\n\\tTAB  ")
    assert translated(document, str.upper).decode() == expected


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("end", ["", "\n\n", "# end", "  ", "a\\", "a=b\\"])
def test_identity_keeps_each_byte(tmp_path, line_end, end):
    raw = (PROPERTIES + end).replace("\n", line_end).encode()
    document = read(tmp_path, ".properties", raw)
    assert translated(document) == raw and len(document.units) == 6 + (end == "a=b\\")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a=x\n", b"a=\\u00E9\\u6F22\\uD83D\\uDE00=:\n"),
        ("a=x\nb=ü\n".encode(), "a=é漢😀=:\nb=ü\n".encode()),
        (b"a=x\nb=\xfc\n", b"a=\xe9\\u6F22\\uD83D\\uDE00=:\nb=\xfc\n"),
        (b"a=x\nb=1\\:2\n", b"a=\\u00E9\\u6F22\\uD83D\\uDE00=\\:\nb=1\\:2\n"),
    ],
)
def test_characters_are_written_as_the_file_writes_them(tmp_path, raw, expected):
    document = read(tmp_path, ".properties", raw)
    assert document.replaced({0: document.units[0].write(["é漢😀=:"], False)}) == expected


def test_apostrophes_are_doubled_in_patterns_alone(tmp_path):
    content = "a=The {0} isn''t here\nb=The {0} is here\nc=It isn't\nd='{'{0}'}' x\n"
    document = read(tmp_path, ".properties", content)
    assert texts_of(document)[0] == ("The {0} isn't here",)
    expected = "a=l''{0} isn''t here\nb=l''{0} is here\nc=It isn't\nd='{'{0}'}' x\n"
    assert translated(document, lambda text: text.replace("The ", "l'")).decode() == expected


def test_continued_values_stay_on_several_lines(tmp_path):
    content = "a = one two three \\\r\n    four five\\n\\\r\n    six\r\nb = x\r\n"
    document = read(tmp_path, ".properties", content)
    assert texts_of(document)[0] == ("one two three four five\nsix",)
    written = translated(document, lambda text: text.replace("five", "twenty-five").replace("x", "x x"))
    assert written.decode() == (
        "a = one two three \\\r\n    four \\\r\n    twenty-five\\n\\\r\n    six x\r\nb = x x\r\n"
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(texts, min_size=1, max_size=4), st.sampled_from(["x", "x \\\n  y", " \\ x", "x\\\n\\ y"]), st.booleans()
)
def test_any_translation_comes_back(tmp_path, translations, value, is_ascii):
    content = ("" if is_ascii else "# ü\n") + f"k = {value}\n" * len(translations)
    document = read(tmp_path, ".properties", content)
    parts = {index: document.units[index].write([f"a{text}b"], False) for index, text in enumerate(translations)}
    again = read(tmp_path, ".properties", document.replaced(parts))
    assert texts_of(again) == [(f"a{text}b",) for text in translations]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a=b\nc=\\u12 d\n", "line 2: the escape"),
        ("a=b\nc=\\u", "line 2: the escape"),
        ("a=b\nc=\0d", "line 2: a zero byte"),
    ],
)
def test_damaged_properties_are_refused_with_their_place(tmp_path, content, message):
    with pytest.raises(DocumentError, match=message):
        read(tmp_path, ".properties", content)


@pytest.mark.parametrize(
    "content", ["a=b\n" * 50_000, "a=" + "b \\\n" * 300_000, "# c\n" * 300_000 + "a=b", "=" * 10**6]
)
def test_large_properties_are_read_in_linear_time(tmp_path, content):
    document = read(tmp_path, ".properties", content)
    assert translated(document) == content.encode()
    translated(document, str.upper)
