import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_trips import read, texts_of, translated

from mt_cli.features.documents.document import DocumentError

JSON = """{
  "title" : "Hello \\"you\\"",
\t"nested": {"a": ["One ", "", 1, null, "100 %"], "key": "Line\\nend"},
  "title": "again"   }
"""
STRINGS = """/* A "comment" = "here"; */
"key" = "Hello \\"you\\"";
// another
bare.key="One\\nTwo" ; "a"/* b */=/* c */"Caf\\U00e9";
"only a key";
"number" = "12";
"lines" = "One
two";
"""

texts = st.text(st.sampled_from("ab \"'\\/\n\r\t\0\u2028é😀=:#!{}%"), max_size=12) | st.text(max_size=12)
values = st.recursive(
    texts | st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
keeping_the_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def strings_within(value):
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in items for text in strings_within(item)]


def test_values_of_json_are_replaced_and_keys_stay(tmp_path):
    document = read(tmp_path, ".json", JSON)
    assert texts_of(document) == [('Hello "you"',), ("One",), ("Line\nend",), ("again",)]
    assert document.counts == {"without_text": 2}
    expected = JSON.replace("Hello", "HELLO").replace("you", "YOU").replace("One ", "ONE ")
    expected = expected.replace("Line\\nend", "LINE\\nEND").replace("again", "AGAIN")
    assert translated(document, str.upper).decode() == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('["a"]', '["a</é😀"]'),
        ('["a", "ü"]', '["a</é😀", "ü"]'),
        ('["a", "\\u00fc", 1]', '["a</\\u00e9\\ud83d\\ude00", "\\u00fc", 1]'),
        ('["a", "\\u003C"]', '["a\\u003C/é😀", "\\u003C"]'),
        ('["a", "\\/"]', '["a<\\/é😀", "\\/"]'),
        ('["a", "\\u0061 \\u0030"]', '["a</é😀", "\\u0061 \\u0030"]'),
        ('["a", "\\\\u00fc"]', '["a</é😀", "\\\\u00fc"]'),
    ],
)
def test_escapes_of_json_are_those_of_the_file(tmp_path, content, expected):
    document = read(tmp_path, ".json", content)
    assert document.replaced({0: document.units[0].write(["a</é😀"], False)}).decode() == expected


@keeping_the_folder
@given(values, st.booleans(), st.sampled_from([None, 0, "\t"]))
def test_any_json_comes_back_and_is_read_as_the_json_module_reads_it(tmp_path, value, is_ascii, indent):
    raw = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode()
    document = read(tmp_path, ".json", raw)
    assert translated(document) == raw
    expected = [text.strip() for text in strings_within(value) if any(map(str.isalpha, text))]
    assert texts_of(document) == [(text,) for text in expected]


@keeping_the_folder
@given(st.lists(texts, min_size=1, max_size=4), st.sampled_from(["", "\\u00fc", "ü", "\\/\\u003c"]))
def test_any_translation_comes_back_from_json(tmp_path, translations, style):
    items = ", ".join(['" x\\n"'] * len(translations))
    raw = f'{{"style": "1 {style}", "texts": [{items}]}}'
    document = read(tmp_path, ".json", raw)
    offset = len(document.units) - len(translations)
    parts = {
        index + offset: document.units[index + offset].write([text], False) for index, text in enumerate(translations)
    }
    assert json.loads(document.replaced(parts))["texts"] == [
        " x\n" if text == "x" else f" {text}\n" for text in translations
    ]


def test_values_of_apple_strings_are_replaced(tmp_path):
    document = read(tmp_path, ".strings", STRINGS)
    assert texts_of(document) == [('Hello "you"',), ("One\nTwo",), ("Café",), ("One\ntwo",)]
    expected = STRINGS.replace("Hello", "HELLO").replace("you", "YOU").replace("One\\nTwo", "ONE\\nTWO")
    expected = expected.replace("Caf\\U00e9", "CAFÉ").replace("One\ntwo", "ONE\nTWO")
    assert translated(document, str.upper).decode() == expected


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-16-le"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_identity_keeps_each_byte_of_apple_strings(tmp_path, encoding, line_end):
    for end in ("", "\n\n", "// end", "/* end */"):
        raw = (STRINGS + end).replace("\n", line_end).encode(encoding)
        document = read(tmp_path, ".strings", raw)
        assert translated(document) == raw and len(document.units) == 4


@keeping_the_folder
@given(st.lists(texts, min_size=1, max_size=4))
def test_any_translation_comes_back_from_apple_strings(tmp_path, translations):
    document = read(tmp_path, ".strings", '"k" = "x";\n' * len(translations))
    parts = {index: document.units[index].write([f"a{text}b"], False) for index, text in enumerate(translations)}
    again = read(tmp_path, ".strings", document.replaced(parts))
    assert texts_of(again) == [(f"a{text}b",) for text in translations]


@pytest.mark.parametrize(
    ("suffix", "content", "message"),
    [
        (".json", '{"a": "b"', "line 1, column 10: not JSON"),
        (".json", "", "line 1, column 1: not JSON"),
        (".json", '{\n// comment\n"a": "b"}', "line 2, column 1: not JSON"),
        (".json", b'{"a": "\xe4"}', "line 1: not utf-8"),
        (".json", "[" * 200_000 + "]" * 200_000, "nested too deeply"),
        (".json", '{"a":' * 200_000 + '"x"' + "}" * 200_000, "nested too deeply"),
        (".strings", '"a" = "b"', "line 1: not a pair"),
        (".strings", '"a" = "b";\n"c" = "d', "line 2: not a pair"),
        (".strings", '"a" = b;', "line 1: not a pair"),
        (".strings", '"a" "b";', "line 1: not a pair"),
        (".strings", '"a" = "b"; /* open', "line 1: not a pair"),
        (".strings", b'"a" = "\xe4";', "line 1: not utf-8"),
        (".strings", '<?xml version="1.0"?>', "a property list in XML"),
        (".strings", b"bplist00\xd4\x01", "a property list in binary form"),
    ],
)
def test_damaged_files_are_refused_with_their_place(tmp_path, suffix, content, message):
    with pytest.raises(DocumentError, match=message):
        read(tmp_path, suffix, content)


def test_numbers_too_long_for_python_and_lone_surrogates_stay(tmp_path):
    raw = f'[{"1" * 10_000}, "a\\ud800", "x"]'.encode()
    document = read(tmp_path, ".json", raw)
    assert texts_of(document) == [("x",)] and translated(document) == raw


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".json", '["' + "a\\n" * 1_000_000 + '"]'),
        (".json", "[" + '"abc", ' * 100_000 + "1]"),
        (".json", '["' + "\\\\" * 1_000_000 + 'a"]'),
        (".strings", '"k" = "' + "a\\n" * 1_000_000 + '";'),
        (".strings", '"k" = "abc";\n' * 50_000),
        (".strings", "/*" + "*" * 1_000_000 + '*/ "k" = "abc";'),
    ],
)
def test_large_files_are_read_in_linear_time(tmp_path, suffix, content):
    document = read(tmp_path, suffix, content)
    assert document.units and translated(document) == content.encode()
