"""Laws of terms: their marks in texts and tokens, the lexicon of a training text, training pairs, and translations."""

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.loading import parse_config
from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.config.tags import Tagging
from mt_cli.corpus.glossary import Glossary
from mt_cli.corpus.protected_text import RESERVED, UNPROTECTED, Protection
from mt_cli.corpus.term_marks import TERM_MARKS, annotated
from mt_cli.corpus.word_forms import WORD, words_in
from mt_cli.data import term_pairs
from mt_cli.data.batches import MixedPairs
from mt_cli.data.encode import EncodedPairs
from mt_cli.data.lexicon import lexicons_of
from mt_cli.data.term_pairs import TERM_SHARE
from mt_cli.data.training_pairs import changed_texts
from mt_cli.decoding.engine import ForcedDecoding, Hypothesis
from mt_cli.errors import ConfigError, InputError
from mt_cli.exchange.sentencepiece import splits_alike
from mt_cli.tokenizer.vocabulary_training import train_tokenizer
from mt_cli.translation.translator import Translator

TEXTS = ["The brake drum is new.", "Der neue Bremsbelag, (alt)", "我喜欢猫。", "l'amico è già là"]
BEGIN, SEPARATOR, END = TERM_MARKS


def without_annotations(text):
    return re.sub(rf"\A{BEGIN} |{BEGIN}|{SEPARATOR}[^{END}]*{END}", "", text)


ANY_TEXT = st.sampled_from(TEXTS) | st.text("ab 我猫.,'", max_size=20)


@st.composite
def texts_with_terms(draw, texts=ANY_TEXT):
    """A text without spaces at its ends, and terms of it with translations."""
    text = " ".join(draw(texts).split())
    spans = [match.span() for match in WORD.finditer(text)]
    cuts = sorted(draw(st.sets(st.integers(0, len(spans)), max_size=4)))
    terms = [(spans[first][0], spans[last - 1][1]) for first, last in pairwise(cuts)]
    return text, [(*span, draw(st.sampled_from(["Bremse", "猫", "il cane", f"a{END}b"]))) for span in terms]


@given(texts_with_terms())
def test_an_annotated_text_without_marks_is_the_text(text_and_terms):
    text, terms = text_and_terms
    marked, places = annotated(text, terms)
    assert without_annotations(marked) == text
    assert len(places) == len(marked) + 1 and places == sorted(places) and places[-1] == len(text)
    assert [marked.count(mark) for mark in TERM_MARKS] == [len(terms)] * 3
    plain = [place for place, letter in enumerate(marked) if letter in text and text[places[place]] == letter]
    assert {places[place] for place in plain} == {*range(len(text))}


SPACINGS = [("bpe", "lossless"), ("unigram", "lossless"), ("bpe", "sentencepiece")]


@pytest.fixture(scope="module", params=SPACINGS, ids="-".join)
def tokenizer(request):
    algorithm, spacing = request.param
    config = TokenizerConfig(algorithm=algorithm, vocab_size=420, spacing=spacing, shared=True)
    return train_tokenizer(TEXTS * 9, config, ["<2de>"], TERM_MARKS)


@given(texts_with_terms(st.sampled_from([TEXTS[0], TEXTS[1], TEXTS[3]])))
def test_other_tokens_of_an_annotated_text_stay(tokenizer, text_and_terms):
    text, terms = text_and_terms
    kept, is_translation = list[str](), False
    for token in tokenizer.pieces("<2de> " + annotated(text, terms).text):
        is_translation = (is_translation or token == SEPARATOR) and token != END
        if not is_translation and token not in TERM_MARKS:
            kept.append(token)
    has_first_space = bool(terms) and terms[0][0] == 0
    assert kept[0] == "<2de>"
    assert kept[1 + has_first_space :] == tokenizer.pieces(text)
    (ids,) = tokenizer.encode([annotated(text, terms).text])
    assert not {*TERM_MARKS} & {*tokenizer.decode([ids])[0]}


def test_sentencepiece_models_split_annotated_texts_alike():
    """As Argos Translate does."""
    config = TokenizerConfig(algorithm="bpe", vocab_size=420, spacing="sentencepiece", shared=True)
    tokenizer = train_tokenizer(TEXTS * 9, config, (), TERM_MARKS)
    texts = [annotated(text, [(*match.span(), "Bremse")]).text for text in TEXTS for match in WORD.finditer(text)]
    assert splits_alike(tokenizer, texts)


def made_up_language(num_words=150, num_pairs=800, seed=1):
    """Pairs of a made-up language, and the stem in the target language of each stem of the source language."""
    random = np.random.default_rng(seed)

    def stem():
        return "".join(random.choice([*"bdfgklmnprst"]) + random.choice([*"aeiou"]) for _ in range(3))

    sources, targets = ({stem(): None for _ in range(2 * num_words)} for _ in range(2))
    stems = dict(zip([*sources][:num_words], [*targets][:num_words], strict=True))
    frequencies = 1 / np.arange(2, num_words + 2)
    pairs = []
    for _ in range(num_pairs):
        chosen = random.choice([*stems], size=6, replace=False, p=frequencies / frequencies.sum())
        numbers = [int(random.random() < 0.3) for _ in chosen]
        source = [word + "s" * number for word, number in zip(chosen, numbers, strict=True)]
        target = [stems[word] + ("nn", "rr")[number] for word, number in zip(chosen, numbers, strict=True)]
        pairs.append((f"the {' '.join(source)}.", f"{' '.join(target[::-1])} la!"))
    return pairs, stems


@pytest.fixture(scope="module")
def made_up():
    pairs, stems = made_up_language()
    return pairs, stems, lexicons_of((("x", "y"), pair) for pair in pairs)


def test_a_lexicon_has_the_words_of_a_made_up_language(made_up):
    _, stems, lexicons = made_up
    stems_of = [(word, stems[word.removesuffix("s")], bases) for word, bases in lexicons["x", "y"].bases.items()]
    right = [base for _, stem, bases in stems_of for word, base in bases.items() if word.startswith(stem)]
    assert len(right) >= 0.95 * sum(len(bases) for *_, bases in stems_of)
    assert len({word.removesuffix("s") for word, *_ in stems_of}) >= 0.7 * len(stems)
    assert sum(base.endswith("nn") for base in right) >= 0.8 * len(right), "the most frequent form"
    words = [(word, other) for word, bases in lexicons["x", "y"].bases.items() for other in bases]
    reverse = [(other, word) for word, bases in lexicons["y", "x"].bases.items() for other in bases]
    assert sorted(words) == sorted(reverse)


def training(made_up, max_tokens=60, seed=1, **corpus):
    """Tokenizer and training pairs of the made-up language, with and without terms; sources have a tag."""
    pairs, _, lexicons = made_up
    tokenizer = train_tokenizer(
        [text for pair in pairs for text in pair], TokenizerConfig(algorithm="bpe"), ["<2y>"], TERM_MARKS
    )
    encoded = EncodedPairs.from_ids(
        tokenizer.encode([f"<2y> {source}" for source, _ in pairs]), tokenizer.encode([target for _, target in pairs])
    )
    plain = MixedPairs(encoded, [1.0], batch_tokens=10, seed=seed)
    sources = {"train": {"file": "a.tsv", "tag": "<2y>"}, "valid": {"file": "b.tsv"}}
    options = {"source": "x", "target": "y", "terms": True, "max_tokens": max_tokens, **sources, **corpus}
    tree = {"name": "t", "corpus": options, "tokenizer": {"algorithm": "bpe", "shared": True}}
    config = parse_config(tree | {"training": {"seed": seed}}, "c.yaml")
    return tokenizer, changed_texts(plain, (tokenizer, tokenizer), config, lexicons), plain


def texts_of(tokenizer, pairs, epoch=0, first=0):
    return [
        tuple(tokenizer.join(tokenizer.tokens(side.tolist())) for side in pool[index])
        for pool, order in pairs.pools(epoch, first)
        for index in order.tolist()
    ]


def test_annotated_pairs_are_a_function_of_seed_and_epoch(made_up):
    tokenizer, changed, _ = training(made_up)
    texts = texts_of(tokenizer, changed, epoch=3)
    assert changed.num_pools > 1
    assert texts_of(tokenizer, changed, epoch=3, first=1) == texts[changed.first_place(1) :]
    assert texts_of(tokenizer, training(made_up)[1], epoch=3) == texts
    assert texts_of(tokenizer, changed, epoch=4) != texts != texts_of(tokenizer, training(made_up, seed=2)[1], epoch=3)


def test_targets_have_the_translations_of_annotated_terms(made_up):
    tokenizer, changed, plain = training(made_up)
    pairs = [*zip(texts_of(tokenizer, changed), texts_of(tokenizer, plain), strict=True)]
    annotations = [source.count(BEGIN) for (source, _), _ in pairs]
    assert 0.7 * TERM_SHARE < np.mean(np.array(annotations) > 0) < 1.1 * TERM_SHARE and max(annotations) == 3
    num_replaced = 0
    for (source, target), (source_before, target_before) in pairs:
        assert source.startswith("<2y> ") or not source_before.startswith("<2y> ")
        assert without_annotations(source) == source_before
        words = {word[:5] for word in words_in(target)}
        translations = [part.partition(END)[0] for part in source.split(SEPARATOR)[1:]]
        assert all(word[:5] in words for translation in translations for word in words_in(translation))
        num_replaced += target != target_before
    assert 0.1 < num_replaced / np.count_nonzero(annotations) < 0.9


@pytest.mark.parametrize(
    ("word", "base", "form", "expected"),
    [
        ("Tisch", "Hund", "Hunde", "Tische"),
        ("Schule", "Katze", "Katzen", "Schulen"),
        ("grünen", "braunen", "braun", "grün"),
        ("Tisch", "Katze", "Katz", "Tisch"),
        ("Tisch", "Haus", "Haus", "Tisch"),
    ],
)
def test_another_word_has_the_ending_of_the_one_that_it_replaces(word, base, form, expected):
    assert term_pairs._in_form(word, base, form) == expected


def test_no_annotated_pair_is_longer_than_max_tokens(made_up):
    tokenizer, changed, plain = training(made_up)
    longest = max(map(len, tokenizer.encode([source for source, _ in texts_of(tokenizer, plain)])))
    _, changed, _ = training(made_up, max_tokens=longest + 4)
    lengths = [pool.lengths(order) for pool, order in changed.pools(0, 0)]
    assert max(part.max() for part in lengths) == longest + 4
    assert texts_of(tokenizer, changed) != texts_of(tokenizer, plain)


class Copier:
    """An engine that writes what it reads without the marks of terms, and attends to what it copies."""

    def __init__(self, tokenizer):
        self.marks = [tokenizer.backend.token_to_id(mark) for mark in TERM_MARKS]
        self.read = []

    def search(self, sentences, decoding, num_best=1):
        self.read += [list(ids) for ids, *_ in sentences]
        return [[Hypothesis([index for index in ids if index not in self.marks], -1.0)] for ids, *_ in sentences]

    def force_decode(self, pairs):
        return [
            ForcedDecoding([-1.0] * (len(target) + 1), attention)
            for (_, target), attention in zip(pairs, self.attend(pairs), strict=True)
        ]

    def attend(self, pairs):
        maps = []
        for source, target in pairs:
            places = [place for place, index in enumerate([*source, -1]) if index not in self.marks]
            maps.append(np.eye(len(source) + 1)[places])
            assert len(places) == len(target) + 1
        return maps


GLOSSARY = Glossary.of([("brake drum", "Trommel"), ("new", "neue"), ("IT", "EDV")])


def copied(tokenizer, text="The brake drum is new.", tags=(), max_tokens=99, protection=UNPROTECTED):
    engine, decoding = Copier(tokenizer), DecodingConfig(capitals="lower")
    translator = Translator(engine, (tokenizer, tokenizer), decoding, max_tokens, Tagging(tags))
    translator = replace(translator, protection=protection)
    (item,) = translator.translate_fully([text], terms=GLOSSARY, with_details=True, keeps_marks=False)
    return item, engine.read


@pytest.mark.parametrize("line", ["The brake drum is new.", "<2de> The brake drum is new."])
def test_alignments_of_a_line_with_terms_are_those_of_its_words(tokenizer, line):
    item, read = copied(tokenizer, line, ["<2de>"])
    tagged = line.startswith("<")
    assert item.text.endswith("The brake drum Trommel is new neue.")
    assert [use.status for use in item.term_uses] == ["used", "used"]
    pairs = [(0, 0), (1, 1), (2, 2), (2, 3), (3, 4), (4, 5), (4, 6)]
    shift = [(source + tagged, target + tagged) for source, target in pairs]
    assert {*shift} <= {*item.details.word_alignment}
    assert item.details.source_tokens == tokenizer.pieces(line)
    assert sum(index in Copier(tokenizer).marks for index in read[0]) == 6
    assert item.segments[0].ids == tokenizer.encode([line])[0]


@pytest.mark.parametrize(("line", "number"), [("BRAKE DRUM OF THE IT", 2), ("The brake drum of it", 1)])
def test_abbreviations_are_found_in_lines_of_capitals(tokenizer, line, number):
    item, _ = copied(tokenizer, line)
    assert [use.source for use in item.term_uses] == ["brake drum", "IT"][:number]


def test_a_text_that_would_be_too_long_has_no_annotation(tokenizer):
    (ids,) = tokenizer.encode(["The brake drum is new."])
    item, read = copied(tokenizer, max_tokens=len(ids))
    assert read == [ids] and item.text == "The brake drum is new."
    assert [use.status for use in item.term_uses] == ["missing", "missing"]


def test_a_model_with_protected_spans_alone_writes_terms_as_they_are():
    config = TokenizerConfig(algorithm="bpe", vocab_size=420, shared=True)
    tokenizer = train_tokenizer(TEXTS * 9, config, ["<2de>"], "".join(RESERVED))
    line = "<2de> The {a} brake drum, {b} is new."
    item, _ = copied(tokenizer, line, ["<2de>"], protection=Protection(("braces",)))
    assert item.text.endswith("The {a} Trommel, {b} is neue.")
    assert [use.status for use in item.term_uses] == ["used", "used"]
    assert {(3, 3), (5, 4), (7, 6)} <= {*item.details.word_alignment}
    assert "".join(item.details.source_tokens).replace("▁", " ") == line


def test_a_model_without_marks_refuses_terms():
    tokenizer = train_tokenizer(TEXTS, TokenizerConfig(algorithm="bpe", vocab_size=400))
    with pytest.raises(InputError, match=r"corpus\.terms"):
        copied(tokenizer)


@pytest.mark.parametrize("options", [{"algorithm": "word_level", "shared": True}, {"algorithm": "bpe"}])
def test_terms_need_one_vocabulary_of_subwords(options):
    corpus = {"source": "en", "target": "de", "train": {"file": "a.tsv"}, "valid": {"file": "b.tsv"}, "terms": True}
    with pytest.raises(ConfigError, match=r"corpus\.terms"):
        parse_config({"name": "t", "corpus": corpus, "tokenizer": options}, "c.yaml")
