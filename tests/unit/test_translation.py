import re
import sys
import unicodedata
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from linear import assert_linear
from tiny_models import tiny_model

from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.config.tags import Tagging
from mt_cli.corpus.clean_text import cleaned
from mt_cli.corpus.languages import SPACELESS
from mt_cli.corpus.protected_text import RESERVED, Protection
from mt_cli.corpus.sentences import SentencesSeen, has_letters, has_words, sentences_of
from mt_cli.decoding.constraints import ReservedIds
from mt_cli.decoding.engine import ForcedDecoding, Hypothesis
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.vocabulary_training import train_tokenizer
from mt_cli.translation.inline_marks import PLACEHOLDERS, InlineMarks
from mt_cli.translation.lines import Segment, Translation
from mt_cli.translation.sentences import split_point, units
from mt_cli.translation.stream import missing_numbers, repeats_itself, translated_lines
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
    "text",
    [
        "It rains.| The long street is wet again",
        "when it rains today,| streets are wet",
        "one two| three four",
        "abc|def",
        "今日は雨です。|道が濡れている、長い",
        "彼は「雨だ。」と言って、|出かけた",
        "ཆར་|པ་བབས",
        "बारिश होती है।| सड़क गीली, है",
    ],
)
def test_a_text_is_split_at_sentences_then_commas_then_spaces(text):
    expected, _, rest = text.partition("|")
    assert expected == (expected + rest)[: split_point(expected + rest)[0]]


@given(st.text(max_size=80))
def test_sentences_and_the_text_between_them_make_up_the_text(text):
    assert "".join(sentence + glue for sentence, glue in sentences_of(text)) == text


@pytest.mark.parametrize("tail", ["👍", "❤\ufe0f", "...", "\u200b"])
@pytest.mark.parametrize(("text", "glue"), [("It rains.", " "), ("今日は雨です。", "")])
def test_marks_and_emoji_alone_are_no_sentence(text, glue, tail):
    assert sentences_of(text + glue + tail) == [(text + glue + tail, "")]
    assert sentences_of(tail + glue + text) == [(tail + glue + text, "")]
    first, between = split_point(f"{text}{glue}{text}{glue}{tail}")
    assert has_words(f"{text}{glue}{text}{glue}{tail}"[first + len(between) :])


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rains.", "The street is wet!", "Is it?", "1,000 people say so."],
        ["Dr. Smith met J. R. Jones at 3 p.m. yesterday.", "They left."],
        ["Am 3. Mai kam z. B. Herr Dr. Maier.", "Er blieb."],
        ["(He did not hear.)", "\u201eNein!\u201c", "Gut."],
        ["\u5929\u6c14\u5f88\u597d\u3002", "\u6211\u4eec\u8d70\u5427\uff01", "\u597d\u3002"],
        ["မိုးရွာသည်။", "လမ်းစိုသည်။"],
        ["ሰላም።", "እንዴት ነህ፧", "ደህና።"],
        ["He is 5.", "She is 6.", "Das kostet 5 Mio. Euro."],
        ["См. рис. 5 и табл. 3.", "Там всё."],
        ["Wait... no, e.g. this is one sentence.", "\u00bfY esto?", "\u00c1rboles."],
    ],
)
def test_a_text_is_split_into_its_sentences(sentences):
    glue = "" if re.match(f"[{SPACELESS}]", sentences[0]) else " "
    assert [sentence for sentence, _ in sentences_of(glue.join(sentences))] == sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("el", ["Πού είναι;", "Τι λες\u037e", "Εδώ είναι ο κ. Νίκου."]),
        ("en", ["See page 12; the rest; Then: page 12.", "The second half is here."]),
        ("hy", ["Սա տուն է։", "Այն մեծ է։"]),
        ("de", ["Am 3. Oktober kam er.", "Er ist 5.", "Sie ist 6."]),
        ("it", ["Il dott. Rossi legge l'art. 5 a pag. 12.", "La casa costa 5 mln. di euro."]),
        ("ru", ["Он дал им.", "Потом ушёл на ул. Мира."]),
        ("pl", ["To kosztuje 5 tys. złotych.", "Prof. Nowak i dr. Kowalski idą."]),
        ("es", ["Fuimos al mar.", "María vio los EE. UU. Ayer."]),
        ("hi", ["श्री आर. के. नारायण आए.", "वह अच्छा है.", "डॉ. राम गए।"]),
    ],
)
def test_abbreviations_and_marks_are_those_of_the_language(language, sentences):
    assert [sentence for sentence, _ in sentences_of(" ".join(sentences), language)] == sentences


@pytest.mark.parametrize("part", ["A. ", "1. ", "It. ", "{a} ", ". ", "¿", "字。", "ab, ", "ab ab "])
def test_work_on_a_line_takes_time_in_proportion_to_it(pieces, part):
    assert_linear(sentences_of, part.__mul__)
    assert_linear(split_point, part.__mul__)
    assert_linear(lambda text: repeats_itself("", text), part.__mul__)
    assert_linear(lambda text: translated(Parrot(), pieces, text, 10**6, with_details=True), part.__mul__, size=60)
    assert_linear(lambda text: translated(Parrot(), pieces, text, 10, split_sentences=True), part.__mul__)


@pytest.mark.parametrize("part", ["ab abba, ", "ab abba ", "Ab ba. ", "今夜は雨です。"])
def test_a_line_ten_times_as_long_takes_ten_times_the_calls(pieces, part):
    def num_calls(number):
        calls = []
        sys.setprofile(lambda frame, event, argument: calls.append(event))
        try:
            translated(Parrot(), pieces, part * number, 20, split_sentences=True)
        finally:
            sys.setprofile(None)
        return len(calls)

    num_calls(50)  # Fills caches.
    assert num_calls(500) <= 14 * num_calls(50)  # A search of 64 characters on each side is shorter in a short line.


@given(st.text(max_size=60) | MIXED)
def test_units_are_all_of_a_text_but_its_spaces(text):
    found = units(text)
    assert sorted(found) == found
    assert "".join(text[start:end] for start, end in found) == "".join(text.split())
    words = [text[start:end] for start, end in found]
    assert all(words) and not re.search(r"\s", "".join(words))
    assert words == text.split() or re.search(f"[{SPACELESS}]", text)


@pytest.mark.parametrize(
    "text",
    ["今|夜|は|NASA|が|打|ち|上|げ|る|。", "か\u3099|は\u309a", "ที่|นี่|กู้", "བོ|ད|་|ཡི|ག|།"],
)
def test_units_of_scripts_without_spaces_are_characters_and_marks(text):
    spaced = f"one  {text.replace('|', '')} two"
    assert [spaced[start:end] for start, end in units(spaced)] == ["one", *text.split("|"), "two"]


class Parrot:
    """An engine that repeats the source without its tags, or a fixed answer; each token attends to its source token."""

    def __init__(self, answer=None, tag_ids=()):
        self.answer, self.tag_ids, self.num_read = answer, tag_ids, []

    def search(self, sentences, decoding, num_best=1):
        repeated = ([index for index in ids if index not in self.tag_ids] for ids, *_ in sentences)
        return [[Hypothesis(list(self.answer or ids), -1.0)] for ids in repeated]

    def force_decode(self, pairs):
        self.num_read.append(len(pairs))
        shapes = [(len(source) + 1, len(target) + 1) for source, target in pairs]
        return [ForcedDecoding([-1.0] * height, np.eye(width)[width - height :]) for width, height in shapes]

    def attend(self, pairs):
        return [forced.attention for forced in self.force_decode(pairs)]


def translated(engine, tokenizer, text, max_tokens, tags=(), most_tokens=None, languages=("", ""), **options):
    """The translation of a text by an engine, with one tokenizer for both sides."""
    tokenizers = (tokenizer, tokenizer)
    translator = Translator(engine, tokenizers, DecodingConfig(), max_tokens, Tagging(tags), languages, most_tokens)
    (item,) = translator.translate_fully([text], **options)
    return item


@pytest.mark.parametrize(
    ("tag", "expected"), [("<2ja>", "今夜は雨です。今夜は雨です。"), ("<2en>", "Abba ba. Abba ba.")]
)
def test_sentences_are_joined_as_in_the_language_that_a_tag_asks_for(tag, expected):
    text = "Abba ba. Abba ba." if tag == "<2ja>" else "今夜は雨です。今夜は雨です。"
    tokenizer = train_tokenizer(
        ["今夜は雨です。", "Abba ba."] * 3, TokenizerConfig(algorithm="char"), ["<2en>", "<2ja>"]
    )
    parrot = Parrot(tokenizer.encode(["今夜は雨です。" if tag == "<2ja>" else "Abba ba."])[0])
    options = {"tags": ("<2en>", "<2ja>"), "languages": ("en", "ja"), "tag": tag, "split_sentences": True}
    assert translated(parrot, tokenizer, text, 99, **options).text == expected


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
    assume(has_letters(text))
    item = translated(Parrot(), pieces, text, max_tokens, with_details=True)
    line = " ".join(cleaned(text).split())
    assert item.text == line
    every_pair = product(range(len(units(line))), repeat=2)
    with_words = {(row, row) for row, (start, end) in enumerate(units(line)) if has_words(line[start:end])}
    assert with_words <= set(item.details.word_alignment) <= set(every_pair)
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
def test_word_alignments_refer_to_the_words_of_the_line(
    tagged_pieces, words, own_tag, tag, max_tokens, split_sentences
):
    """After splits and tags."""
    parrot = Parrot(tag_ids=[tagged_pieces.encode([name])[0][0] for name in TAGS])
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


@pytest.mark.parametrize(("seen", "number"), [(None, 1), ((0.0, 0.0), 4), ((0.5, 0.0), 3), ((0.0, 0.5), 1)])
def test_lines_are_split_into_parts_such_as_the_model_has_learned(pieces, seen, number):
    translator = Translator(Parrot(), (pieces,) * 2, DecodingConfig(), 99)
    translator = replace(translator, sentences_seen=seen and SentencesSeen(*seen))
    for chosen, expected in ((None, number), (True, 4), (False, 1)):
        (item,) = translator.translate_fully(["Ab ba. Ab ba? Ab. Ab ba?"], split_sentences=chosen)
        assert len(item.segments) == expected
        assert item.text == "Ab ba. Ab ba? Ab. Ab ba?"


WORDS = ["Un", "été", "à", "PRÉS.", "Où?", "(l’élève)", "réf.", "12.", "{été}", "می\u200cروم"]
NOISE = st.sampled_from(["\u00ad", "\u200b", "\ufeff", "\u2060\u00ad", " \u200b ", "\ufeff ", ""])


@pytest.fixture(scope="module", params=["word_level", "bpe"])
def random_translator(request):
    """Translator with random weights that protects what is in braces."""
    config = TokenizerConfig(algorithm=request.param, vocab_size=400, shared=True)
    tokenizer = train_tokenizer([" ".join(WORDS), " ".join(WORDS).lower()] * 3, config, reserved="".join(RESERVED))
    model = tiny_model(vocab_size=tokenizer.vocab_size, spread=20.0).eval()
    engine = TransformerEngine(model, reserved=ReservedIds.of((tokenizer, tokenizer)))
    options = DecodingConfig(beam_size=1, capitals="lower")
    settings = {"languages": ("fr", "fr"), "protection": Protection(("braces",))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mt_cli.decoding.constraints.max_length", lambda *_: 6)
        yield Translator(engine, (tokenizer, tokenizer), options, 12, **settings)


@settings(max_examples=15)
@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=14), data=st.data())
def test_another_spelling_of_a_text_has_the_same_translation(random_translator, words, data):
    written = []
    for word in words:
        spelled = word if word[0] == "{" else unicodedata.normalize("NFD", word)
        noise, place = data.draw(NOISE), data.draw(st.integers(0, len(spelled)))
        is_apart = " " in noise or word[0] == "{"
        written.append(noise + " " + spelled if is_apart else spelled[:place] + noise + spelled[place:])
    texts = " ".join(words), " ".join(written)
    (first, second) = random_translator.translate_fully(texts, split_sentences=None if len(words) % 2 else True)
    assert [part.ids for part in first.segments] == [part.ids for part in second.segments]
    assert first.text == cleaned(second.text)  # A line without letters is copied.


def test_signs_are_no_unknown_words():
    words = train_tokenizer(["ab cd"], TokenizerConfig())
    assert translated(Parrot(), words, "ab $ xy. 👍", 99).unknown_words == ("xy",)


@pytest.mark.parametrize("answer", ["ab\nab\rab\r\n", " ab  ab   ab "])
def test_a_translation_is_one_line_with_single_spaces(pieces, answer):
    (ids,) = pieces.encode([answer])
    assert pieces.decode([ids])[0] == answer
    assert translated(Parrot(ids), pieces, "ab", 99).text == "ab ab ab"


@pytest.mark.parametrize(
    ("languages", "source", "part", "between"),
    [
        (("ja", "en"), "今夜は雨です。今夜は雨です。", "ab.", " "),
        (("eng_Latn", "jpn_Jpan"), "ab abba ab abba", "雨です。", ""),
        (("ja", "zh"), "今夜は雨です。 今夜は雨です。", "雨。", ""),
        (("en", "de"), "xyxyxyxy", "ab", ""),
    ],
)
def test_segments_are_joined_as_the_language_is_written(pieces, languages, source, part, between):
    parrot = Parrot(pieces.encode([part])[0])
    item = translated(parrot, pieces, source, 2, languages=languages)
    assert len(item.segments) > 1, pieces.pieces(source)
    assert item.text == between.join([part] * len(item.segments))


class Liar(Parrot):
    """An engine that must not be asked for some sentences, and answers the others with the same words."""

    def __init__(self, tokenizer, answer):
        super().__init__(tokenizer.encode([answer])[0])
        self.searched = []

    def search(self, sentences, decoding, num_best=1):
        self.searched += [list(sentence.ids) for sentence in sentences]
        return [[each[0]] * num_best for each in super().search(sentences, decoding)]


INVISIBLE = "\u00ad\u200b "


@pytest.mark.parametrize(
    "text", ["—", "👍", "1\ufe0f\u20e3", INVISIBLE, "\u200b—", "\u3164", "", "1,234.5", " —  — ", "—\n—\r\n"]
)
def test_a_line_without_letters_is_copied(tagged_pieces, text):
    """Whatever is asked."""
    for options in ({"num_best": 3}, {"prefix": "ab"}, {"split_sentences": True}, {"tag": "<2y>"}):
        liar = Liar(tagged_pieces, "abba")
        item = translated(liar, tagged_pieces, text, 5, tags=TAGS, with_details=True, **options)
        assert item.text in ((" ".join(text.split()), text) if text.strip(INVISIBLE) else ("",))
        assert item.hypotheses == [(item.text, 0.0)] and "\n" not in item.text
        assert not liar.searched and not item.is_too_long and not item.unknown_words
        assert item.details.tokens == item.details.alignment == item.details.word_alignment == []


@pytest.mark.parametrize(
    ("unk", "prefix", "expected"),
    [
        ("copy", "", "one Xerxes"),
        ("copy", "one Ada", "one Ada"),
        ("keep", "Ada", "Ada [UNK]"),
    ],
)
def test_unknown_words_are_copied_from_the_source_and_the_prefix(unk, prefix, expected):
    words = train_tokenizer(["one two"] * 9, TokenizerConfig(algorithm="word_level"))
    parrot = Parrot(words.encode([prefix])[0] + [UNK_ID] if prefix == "Ada" else None)
    translator = Translator(parrot, (words, words), DecodingConfig(), 9)
    assert translator.translate(["one Xerxes"], unk=unk, prefix=prefix) == [expected]


@pytest.mark.parametrize(
    ("text", "num_segments"),
    [
        ("XYZ XYZ XYZ XYZ XYZ XYZ XYZ XYZ", 1),
        ("ab " * 39, 1),
        ("ab " * 90, 4),
    ],
)
def test_a_sentence_is_split_only_if_it_has_many_tokens(pieces, text, num_segments):
    """Each text has more tokens than the model was trained for."""
    item = translated(Parrot(), pieces, text, 10, most_tokens=256)
    assert len(pieces.encode([text])[0]) > 10 and item.is_too_long
    assert len(item.segments) == num_segments and item.text == text.strip()


@given(st.integers(1, 60), st.integers(1, 300), st.integers(1, 400))
def test_no_segment_has_more_tokens_than_the_model_may_read(pieces, max_tokens, most_tokens, num_words):
    item = translated(Parrot(), pieces, "ab " * num_words, max_tokens, most_tokens=most_tokens)
    assert max(len(each.ids) for each in item.segments) <= max(max_tokens, most_tokens)
    assert len(item.segments) == 1 or item.is_too_long


@pytest.mark.parametrize("word", ["x" * 3_000, "https://example.org/" + "a?b=1&" * 20])
def test_a_string_too_long_for_a_word_is_copied(pieces, word):
    liar = Liar(pieces, "abba")
    translator = Translator(liar, (pieces, pieces), DecodingConfig(), 10, most_tokens=256)
    assert translator.translate([word, f"ab {word} ba"]) == [word, f"abba {word} abba"]
    assert liar.searched == [pieces.encode([each])[0] for each in ("ab", "ba")]


@pytest.mark.parametrize(
    ("source", "translation", "is_loop"),
    [
        ("It rains in the city.", "El de de de de de de de de de de de.", True),
        ("今日は雨です", "下雨" * 15, True),
        ("It rains in the city.", "Piove in città, in montagna e in campagna.", False),
        ("It rains. " * 60, "Piove. " * 60, False),
        ("No, no, no, no, no, no, no, no!", "Nein, nein, nein, nein, nein, nein, nein, nein!", False),
        ("Chapter 1 ................... 5", "Capitolo 1 .................... 5", False),
    ],
)
def test_a_translation_that_repeats_itself_is_noted(source, translation, is_loop):
    assert repeats_itself(source, translation) == is_loop


@pytest.mark.parametrize(
    ("source", "translation", "missing"),
    [
        ("in 2003, 40 of 40", "1999 waren es 40", ["2003"]),
        ("1,250.50 and 2,000,000", "1.250,50 und 2 Millionen", []),
        ("12:30 on 15 May", "१२:३० मई १५", []),
        ("4 of 1.6", "vier von 1,7", ["1.6"]),
    ],
)
def test_numbers_that_a_translation_lacks_are_noted(source, translation, missing):
    assert missing_numbers(source, translation) == missing
    line = Translation(source, source, [Segment.copied(translation, 0)], False, source)
    shown = {"number": f" (`{missing[0]}`)"} if missing else {}
    assert translated_lines([line], [])[0].problems == shown


@given(
    st.text("ab c", max_size=20),
    st.text("ab c字", min_size=2, max_size=12),
    st.integers(1, 30),
    st.text("xy z", max_size=60),
)
def test_a_quick_test_changes_no_notice_of_a_repetition(before, unit, number, after):
    text = " ".join((before + unit * number + after).split())
    longest = max((len(match[0]) for match in re.finditer(r"(.{2,80}?)\1{3,}", text)), default=0)
    assert repeats_itself("", text) == (longest >= max(24, len(text) / 3))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("NO ENTRY HERE. IT IS CLOSED! 👍 ABC", "No entry here. It is closed! 👍 Abc"),
        ("<2x> WHERE IS THE STATION", "<2x> Where is the station"),
        ("Where IS THE STATION?", "Where IS THE STATION?"),
        ("今夜は雨です。", "今夜は雨です。"),
    ],
)
def test_lines_in_capitals_are_read_in_small_letters_if_asked(tagged_pieces, text, read):
    """And written in capitals again."""
    seen = []

    class Reader(Parrot):
        def search(self, sentences, decoding, num_best=1):
            seen.extend(sentence.ids for sentence in sentences)
            return super().search(sentences, decoding, num_best)

    reader = Reader(tag_ids=tagged_pieces.tag_ids)
    for capitals, expected in (("lower", read), ("keep", text)):
        item = translated(reader, tagged_pieces, text, 200, tags=TAGS, capitals=capitals, with_details=True)
        assert item.text == text.removeprefix("<2x> ") and item.source == text
        assert tagged_pieces.decode(seen[-1:]) == [expected]


@pytest.mark.parametrize("num_best", [1, 2])
def test_marks_that_the_model_loses_are_placed_by_alignment(num_best):
    words = train_tokenizer(["ab ba abba"] * 3, TokenizerConfig(algorithm="word_level", min_frequency=1))
    translator = Translator(Parrot(), (words, words), DecodingConfig(unk="avoid"), 99)
    lines = ["ab %s ba", "ab ba", "ab [X7X] ba", "ab <b>ba</b> ${x}", "{name} ab", "ab {n}, ba %(x)d."]
    items = translator.translate_fully(lines, num_best=num_best, with_details=True)
    for line, item in zip(lines, items, strict=True):
        assert (item.source, item.lost_spans) == (line, ())
        for mark in re.findall(r"%s|\[X7X\]|</?b>|\$\{x\}|\{n\w*\}|%\(x\)d", line):
            assert all(text.count(mark) == 1 for text, _ in item.hypotheses)
    assert translator.translate(lines) == [item.text for item in items]
    assert items[0].text == "ab %s ba" and items[0].details.word_alignment == [(0, 0), (2, 2)]


def test_a_tag_of_the_model_is_no_mark():
    marks = InlineMarks(PLACEHOLDERS, tags=["<a>"])
    assert [text for text in ("<a> ab", "ab <a> ab", "<b> ab") if marks.spans(text)] == ["ab <a> ab", "<b> ab"]
