import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.translator import _split_point


@given(st.text(min_size=2, max_size=80))
def test_a_split_loses_nothing_and_both_parts_are_shorter(text):
    text = " ".join(text.split())
    if len(text) < 2:
        return
    end, between = _split_point(text)
    first, second = text[:end], text[end + len(between) :]
    assert first + between + second == text
    assert max(len(first), len(second)) < len(text)
    assert first and second


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rains. The long street is wet again", "It rains."),
        ("when it rains today, streets are wet", "when it rains today,"),
        ("one two three four", "one two"),
        ("abcdef", "abc"),
    ],
)
def test_a_text_is_split_at_sentences_then_commas_then_spaces(text, expected):
    assert text[: _split_point(text)[0]] == expected
