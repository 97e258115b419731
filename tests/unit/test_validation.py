import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.console import fitted
from mt_cli.experiment.validation import sample_lines


def columns_of(text):
    return sum(0 if unicodedata.category(each) in ("Mn", "Me", "Cf") else 1 + (each in "日本語") for each in text)


@given(st.text(st.sampled_from("ab \u0301\u200d日本語\x1b\x07\u202e"), max_size=40), st.integers(1, 20))
def test_a_text_never_takes_more_columns_than_there_are_and_is_cut_only_if_it_must_be(text, num_columns):
    shown = fitted(text, num_columns)
    assert columns_of(shown) <= num_columns
    whole = fitted(text, 1000)
    assert shown == whole if columns_of(whole) <= num_columns else whole.startswith(shown.removesuffix("…"))
    assert shown == whole or columns_of(shown) >= num_columns - 1


@given(st.text(max_size=40))
def test_nothing_in_a_text_steers_the_terminal(text):
    assert all(each.isprintable() or each in "\u200c\u200d" for each in fitted(text, 1000))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("twelve chars", "twelve chars"),
        ("thirteen char", "thirteen ch…"),
        ("日本語日本語", "日本語日本語"),
        ("日本語日本語日", "日本語日本…"),
        ("e\u0301" * 12, "e\u0301" * 12),
        ("a\x1b[31mb", "a\ufffd[31mb"),
        ("a\tb\u2028c\u00a0d\ne", "a b c d e"),
        ("\u202eab\ufeff", "ab"),
        ("می\u200cروم", "می\u200cروم"),
    ],
)
def test_a_text_is_shown_in_twelve_columns(text, expected):
    assert fitted(text, 12) == expected


def test_two_samples_are_shown_with_their_labels():
    samples = [("a", "b", "c"), ("d" * 99, "e", "f"), ("g", "h", "i")]
    assert sample_lines(samples, 80) == [
        "  source      a",
        "  reference   b",
        "  hypothesis  c",
        "  source      " + "d" * 65 + "…",
        "  reference   e",
        "  hypothesis  f",
    ]
    assert sample_lines([], 80) == []
