import re
from itertools import product

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from mt_cli.config.directions import Tagging
from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.corpus.languages import SPACELESS
from mt_cli.decoding.engine import Reading
from mt_cli.decoding.search import Hypothesis
from mt_cli.tokenizer.training import train_tokenizer
from mt_cli.translation.sentences import sentences_of, split_point, units
from mt_cli.translation.translator import Translator

MIXED = st.text("今夜は。、ーไทย ่ខ។་།한ab,. (\u0301\u3099字é", max_size=30)


@given(st.text(min_size=2, max_size=80) | MIXED)
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
        ("今日は雨です。道が濡れている、長い", "今日は雨です。"),
        ("今日は雨です。 道が濡れている、長い", "今日は雨です。"),
        ("彼は「雨だ。」と言って、出かけた", "彼は「雨だ。」と言って、"),
        ("今日は雨が降り，道が濡れている", "今日は雨が降り，"),
        ("ฝนตกทั้งวัน ถนนเปียก", "ฝนตกทั้งวัน"),
        ("ភ្លៀងធ្លាក់។ផ្លូវសើម", "ភ្លៀងធ្លាក់។"),
        ("မိုးရွာသည်။ လမ်းစိုသည်", "မိုးရွာသည်။"),
        ("ཆར་པ་བབས།ལམ་བརླན", "ཆར་པ་བབས།"),
        ("ཆར་པ་བབས", "ཆར་"),
        ("बारिश होती है। सड़क गीली, है", "बारिश होती है।"),
    ],
)
def test_a_text_is_split_at_sentences_then_commas_then_spaces(text, expected):
    assert text[: split_point(text)[0]] == expected


@given(st.text(max_size=80))
def test_sentences_and_the_text_between_them_make_up_the_text(text):
    assert "".join(sentence + glue for sentence, glue in sentences_of(text)) == text


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rains.", "The street is wet!", "Is it?", "1,000 people say so."],
        ["Dr. Smith met J. R. Jones at 3 p.m. yesterday.", "They left."],
        ["Am 3. Mai kam z. B. Herr Dr. Maier.", "Er blieb."],
        ['"Come in." She said it twice.', "(He did not hear.)", "\u201eNein!\u201c", "Gut."],
        ["\u5929\u6c14\u5f88\u597d\u3002", "\u6211\u4eec\u8d70\u5427\uff01", "\u597d\u3002"],
        ["ភ្លៀងធ្លាក់។", "ផ្លូវសើម។"],
        ["မိုးရွာသည်။", "လမ်းစိုသည်။"],
        ["ሰላም።", "እንዴት ነህ፧", "ደህና።"],
        ["Wait... no, e.g. this is one sentence.", "\u00bfY esto?", "\u00c1rboles."],
    ],
)
def test_a_text_is_split_into_its_sentences(sentences):
    glue = "" if re.match(f"[{SPACELESS}]", sentences[0]) else " "
    found = [sentence for sentence, _ in sentences_of(glue.join(sentences))]
    if sentences[0].startswith('"'):
        assert "".join(found).replace(" ", "") == "".join(sentences).replace(" ", "") and len(found) >= 4
    else:
        assert found == sentences


@given(st.text(max_size=60) | MIXED)
def test_units_are_all_of_a_text_but_its_spaces(text):
    found = units(text)
    places = [place for unit in found for place in unit]
    assert places == sorted(places)
    assert "".join(text[start:end] for start, end in found) == "".join(text.split())
    assert all(text[start:end] and not re.search(r"\s", text[start:end]) for start, end in found)


@given(st.text(max_size=60).filter(lambda text: not re.search(f"[{SPACELESS}]", text)))
def test_units_are_words_where_there_are_spaces(text):
    assert [text[start:end] for start, end in units(text)] == text.split()


@pytest.mark.parametrize(
    "expected",
    [
        ["今", "夜", "は", "NASA", "が", "打", "ち", "上", "げ", "る", "。"],
        ["カ", "レ", "ー", "を", "2", "杯"],
        ["か\u3099", "は\u309a"],
        ["ที่", "นี่", "กู้"],
        ["ក្", "រុ", "ង"],
        ["བོ", "ད", "་", "ཡི", "ག", "།"],
    ],
)
def test_units_of_scripts_without_spaces_are_characters_with_their_marks(expected):
    text = "".join(expected)
    assert [text[start:end] for start, end in units(text)] == expected
    spaced = f"one  {text} two"
    assert [spaced[start:end] for start, end in units(spaced)] == ["one", *expected, "two"]


class Parrot:
    """An engine that repeats the source without its tags, or a fixed answer; each token attends to its source token."""

    def __init__(self, answer=None, tag_ids=()):
        self.answer, self.tag_ids, self.num_read = answer, tag_ids, []

    def search(self, sources, decoding, num_best=1, prefixes=()):
        repeated = ([index for index in ids if index not in self.tag_ids] for ids in sources)
        return [[Hypothesis(list(self.answer or ids), -1.0)] for ids in repeated]

    def read(self, pairs):
        self.num_read.append(len(pairs))
        shapes = [(len(source) + 1, len(target) + 1) for source, target in pairs]
        return [Reading([-1.0] * height, torch.eye(width)[width - height :]) for width, height in shapes]


TEXTS = ["今夜は雨です。", "ab abba ba, (ab)", "한국 ไทย"]
TAGS = ("<2x>", "<2y>")


@pytest.fixture(scope="module")
def pieces():
    """Sub-words of some characters; other characters become bytes."""
    return train_tokenizer(TEXTS * 3, TokenizerConfig(algorithm="bpe", vocab_size=320))


@pytest.fixture(scope="module")
def tagged_pieces():
    return train_tokenizer(TEXTS * 3, TokenizerConfig(algorithm="bpe", vocab_size=320), TAGS)


@given(text=MIXED, max_tokens=st.sampled_from([4, 9, 1000]))
@example(text="字字a ▁字 é今字é", max_tokens=5)
@example(text="(字)今夜 は", max_tokens=1000)
def test_what_is_repeated_is_aligned_with_itself(pieces, text, max_tokens):
    translator = Translator(Parrot(), (pieces, pieces), DecodingConfig(), max_tokens)
    (item,) = translator.translate_fully([text], with_details=True)
    line = " ".join(text.split())
    assert item.text == line
    found = [range(len(units(line)))] * 2
    assert set(zip(*found, strict=True)) <= set(item.details.word_alignment) <= set(product(*found))
    # Only a piece of several characters that count as words is aligned with other words, too.
    beside = {units(line)[place][0] for pair in item.details.word_alignment if len(set(pair)) > 1 for place in pair}
    assert all(re.match(f"[{SPACELESS}]", line[place]) for place in beside)


@given(
    words=st.lists(st.sampled_from(["ab", "abba.", "Ba", "(ab)"]), min_size=1, max_size=9),
    own_tag=st.sampled_from(["", *TAGS]),
    tag=st.sampled_from([None, *TAGS]),
    max_tokens=st.integers(1, 30),
    split_sentences=st.booleans(),
)
@example(words=["abba.", "Ba", "abba.", "Ba"], own_tag="<2x>", tag=None, max_tokens=2, split_sentences=True)
def test_word_alignments_refer_to_the_words_of_the_line_after_splits_and_tags(
    tagged_pieces, words, own_tag, tag, max_tokens, split_sentences
):
    parrot = Parrot(tag_ids=[tagged_pieces.encode([each])[0][0] for each in TAGS])
    translator = Translator(parrot, (tagged_pieces,) * 2, DecodingConfig(), max_tokens, Tagging(TAGS))
    line = " ".join([own_tag, *words]).strip()
    (item,) = translator.translate_fully([line], tag=tag, split_sentences=split_sentences, with_details=True)
    assert item.text == " ".join(words)
    num_tags = 1 if own_tag else 0  # A tag is a word of the line if it is in the line.
    assert item.details.word_alignment == [(index + num_tags, index) for index in range(len(words))]
    tokens = item.details.source_tokens, item.details.tokens
    assert [tokens[0][source] for source, _ in item.details.alignment] == [
        tokens[1][target] for _, target in item.details.alignment
    ]


def test_a_line_is_too_long_if_a_sentence_was_split_and_not_if_it_has_several(pieces):
    def item(max_tokens, split_sentences):
        translator = Translator(Parrot(), (pieces, pieces), DecodingConfig(), max_tokens)
        return translator.translate_fully(["ab ab. Ba ba."], split_sentences=split_sentences)[0]

    assert len(item(30, False).segments) == 1 and not item(30, False).is_too_long
    assert len(item(30, True).segments) == 2 and not item(30, True).is_too_long
    assert len(item(3, True).segments) > 2 and item(3, True).is_too_long
    assert item(3, False).is_too_long


def test_details_of_many_lines_are_read_together(pieces):
    parrot = Parrot()
    translator = Translator(parrot, (pieces, pieces), DecodingConfig(), 30)
    lines = ["ab", "", "ba, ab"] * 300
    items = translator.translate_fully(lines, with_details=True)
    assert sum(parrot.num_read) == 600 and len(parrot.num_read) == 2
    alone = {line: translator.translate_fully([line], with_details=True)[0].details for line in set(lines)}
    assert [item.details for item in items] == [alone[line] for line in lines]


def test_a_translation_has_one_space_at_a_time_and_none_at_its_ends(pieces):
    stuttering = [index for _ in range(3) for index in [*pieces.encode(["ab"])[0], *pieces.encode(["  "])[0]]]
    assert "  " in pieces.decode([stuttering])[0]
    (item,) = Translator(Parrot(stuttering), (pieces, pieces), DecodingConfig(), 9).translate_fully(["ab"])
    assert item.text == "ab ab ab"


def test_a_translation_is_one_line_also_if_the_model_produces_the_byte_of_a_line_end(pieces):
    (ids,) = pieces.encode(["ab\nab\rab\r\n"])
    assert pieces.decode([ids])[0] == "ab\nab\rab\r\n"
    (item,) = Translator(Parrot(ids), (pieces, pieces), DecodingConfig(), 99).translate_fully(["ab"])
    assert item.text == "ab ab ab"


@pytest.mark.parametrize(
    ("languages", "source", "part", "between"),
    [
        (("ja", "en"), "今夜は雨です。今夜は雨です。", "ab.", " "),
        (("en", "ja"), "ab. ab. ab.", "雨です。", ""),
        (("eng_Latn", "jpn_Jpan"), "ab abba ab abba", "雨", ""),
        (("ja", "zh"), "今夜は雨です。 今夜は雨です。", "雨。", ""),
        (("en", "ko"), "ab abba ab abba", "한국.", " "),
        (("en", "de"), "xyxyxyxy", "ab", ""),
        (("", ""), "ab abba ab abba", "ab", " "),
    ],
)
def test_segments_of_a_translation_are_joined_as_its_language_is_written(pieces, languages, source, part, between):
    parrot = Parrot(pieces.encode([part])[0])
    (item,) = Translator(parrot, (pieces, pieces), DecodingConfig(), 2, Tagging(), languages).translate_fully([source])
    assert len(item.segments) > 1, pieces.pieces(source)
    assert item.text == between.join([part] * len(item.segments))
