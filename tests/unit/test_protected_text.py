import itertools
import json
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.config.sections import Config, DecodingConfig, ModelConfig, TokenizerConfig
from mt_cli.corpus.protected_text import PATTERNS, RESERVED, Protection
from mt_cli.decoding.ctranslate2 import CTranslate2Engine
from mt_cli.decoding.engine import ForcedDecoding, Sentence, TransformerEngine
from mt_cli.decoding.reserved_ids import ReservedIds
from mt_cli.decoding.search import Hypothesis
from mt_cli.errors import ConfigError, InputError, MtError
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.training import train_tokenizer
from mt_cli.translation.stream import LineNotices, format_json
from mt_cli.translation.translator import Translator

ALL = Protection(tuple(PATTERNS))
ALGORITHMS = ["word_level", "bpe", "unigram", "char"]
WORDS = ["the file of the user", "a new file", "save the file now.", "user, file"]
MARKUP = st.text("ab1 .,:`<>/&;{}%$()[]|_@#-" + RESERVED[0] + RESERVED[5], max_size=40)

SPANS = [
    ("See :ref:`the title <foo>` and :mod:`os` or ``x = 1``.", [":ref:`", " <foo>`", ":mod:`os`", "``x = 1``"]),
    ("`Python <https://python.org>`_, `foo`_ |ver| [1]_", ["`", " <https://python.org>`_", "`foo`_", "|ver|", "[1]_"]),
    ("[a {x}](http://u.v/w) ![a](b.png) `code`", ["[", "{x}", "](http://u.v/w)", "![", "](b.png)", "`code`"]),
    ("<b>Bold</b> &amp; <br/> a < b", ["<b>", "</b>", "&amp;", "<br/>"]),
    (
        "<a title='x > y' href=\"z\">it</a> <!-- a > b --> it's",
        ["<a title='x > y' href=\"z\">", "</a>", "<!-- a > b -->"],
    ),
    ("<p don't> it's </p>", ["<p don't>", "</p>"]),
    ("{name} {0:.2f} {{ x }} ${x} { no }", ["{name}", "{0:.2f}", "{{ x }}", "${x}"]),
    ("%s %(name)d %1$s %5.2f %d%% 100% de", ["%s", "%(name)d", "%1$s", "%5.2f", "%d", "%%", "100"]),
    ("Visit https://a.org/b_(c)?x=1. Mail me@x.org.", ["https://a.org/b_(c)?x=1", "me@x.org"]),
    ("3.5 and 1,000 in 2020, not v2", ["3.5", "1,000", "2020"]),
    ("No span: a_b, 'quoted', \"so\" (and so on) - @ # $", []),
]


def spans_of(text, protection=ALL):
    return [text[start:end] for start, end in protection.spans(text)]


@pytest.mark.parametrize(("text", "expected"), SPANS)
def test_spans_of_each_kind(text, expected):
    assert spans_of(text) == expected


@given(st.text(max_size=60) | MARKUP)
def test_restoring_a_protected_text_gives_the_text(text):
    protected = ALL.protect(text)
    assert protected.original == text
    assert protected.restore(protected.text).text == text
    assert protected.restore(protected.text).lost == ()
    reserved = [character for character in protected.text if character in RESERVED]
    assert len(reserved) == len(protected.contents) == len(ALL.spans(text))


@given(MARKUP, MARKUP)
def test_a_protected_pair_has_the_same_reserved_characters_on_both_sides(source, target):
    sides = ALL.protect_pair(source, target)
    counts = [Counter(character for character in side if character in RESERVED) for side in sides]
    assert counts[0] == counts[1]
    spans = [Counter(spans_of(text)) for text in (source, target)]
    assert counts[0].total() == (spans[0] & spans[1]).total()


def test_spans_of_a_pair_are_matched_by_their_text():
    source, target = ALL.protect_pair("Copy %s to {x}, %s!", "{x} <b> %s %s")
    assert "%" not in source + target and "{" not in source + target and "<b>" in target
    assert sorted(set(source) & set(RESERVED)) == sorted(set(target) & set(RESERVED))
    assert ALL.protect_pair("Copy {x}", "Copy {y}") == ("Copy {x}", "Copy {y}")


def test_a_missing_span_is_lost_and_a_span_too_many_is_dropped():
    protected = ALL.protect("Copy {x} to {y}")
    _, second = (character for character in protected.text if character in RESERVED)
    restored = protected.restore(f"Kopiere {second}{second}")
    assert restored.text == "Kopiere {y}"
    assert restored.lost == ("{x}",)


def test_own_patterns_come_first_and_their_groups_are_spans():
    protection = Protection(("braces",), (r"(&)\w", r"@\w+"))
    assert spans_of("&File {x} @user{y}", protection) == ["&", "{x}", "@user", "{y}"]


def test_a_pattern_that_takes_too_long_is_an_error():
    protection = Protection((), (r"(?:a|aa|aaa)+(?<!a)b",))
    with pytest.raises(InputError, match="protect_patterns"):
        protection.spans("a" * 60 + "b")


@pytest.mark.parametrize("pattern", ["(", "a*", "", "a" * 1001])
def test_a_pattern_that_is_no_pattern_or_matches_nothing_is_refused(pattern):
    corpus = {"source": "en", "target": "it", "train": {"file": "a.tsv"}, "valid": {"fraction": 0.1}}
    with pytest.raises(ValueError, match="protect_patterns"):
        Config.model_validate({"name": "a", "corpus": {**corpus, "protect_patterns": [pattern]}})


HOSTILE = ["`", "<a", "%", "{", "[", ":a", "a@", "http://", "1,", "``a", ":x:`a <", "[a](", "a."]


@pytest.mark.parametrize("text", HOSTILE)
def test_long_hostile_texts_have_an_end(text):
    assert isinstance(ALL.spans(text * 20_000), list)


def tokenizer_of(algorithm):
    size = 400 if algorithm in ("bpe", "unigram") else None
    return train_tokenizer(WORDS, TokenizerConfig(algorithm=algorithm, vocab_size=size), ("<2it>",), has_reserved=True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(parts=st.lists(st.sampled_from([*RESERVED[:3], RESERVED[-1], "file", "user", ",", ".", " "]), max_size=9))
def test_a_reserved_character_is_one_token_wherever_it_stands(algorithm, parts):
    tokenizer = _tokenizers.setdefault(algorithm, tokenizer_of(algorithm))
    text = "".join(parts)
    (ids,) = tokenizer.encode([text])
    known = {index for entries in tokenizer.reserved_ids for index in entries}
    assert sum(index in known for index in ids) == sum(character in RESERVED for character in text)
    assert UNK_ID in ids or tokenizer.decode([ids]) == [text]


_tokenizers: dict[str, Tokenizer] = {}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_tokenizer_file_keeps_its_reserved_entries(algorithm, tmp_path):
    tokenizer = tokenizer_of(algorithm)
    size = 400 if algorithm in ("bpe", "unigram") else None
    config = TokenizerConfig(algorithm=algorithm, vocab_size=size)
    read = Tokenizer.parse(tokenizer.to_json().encode(), tmp_path, config, ("<2it>",))
    assert read.reserved_ids == tokenizer.reserved_ids and len(read.reserved_ids) == len(RESERVED)
    plain = train_tokenizer(WORDS, config)
    assert plain.reserved_ids == []


SEARCHES = [{"beam_size": 1}, {"beam_size": 3}, {"sample": True}, {"beam_size": 3, "no_repeat_ngram": 2}]


@pytest.mark.parametrize(("algorithm", "search"), list(itertools.product(["word_level", "bpe"], SEARCHES)))
def test_each_translation_has_the_reserved_entries_of_its_source(algorithm, search):
    tokenizer = tokenizer_of(algorithm)
    reserved = ReservedIds.of((tokenizer, tokenizer))
    torch.manual_seed(2)
    model = Transformer(ModelConfig(d_model=16, d_ff=16, num_heads=2), tokenizer.vocab_size, tokenizer.vocab_size)
    sources = tokenizer.encode([f"the {RESERVED[0]} of{RESERVED[1]}, {RESERVED[0]}.", "a new file", RESERVED[2]])
    decoding = DecodingConfig(max_length=20, max_length_ratio=20.0, **search)
    expected = [reserved.counts(torch.tensor(ids), reserved.source).tolist() for ids in sources]
    found = TransformerEngine(model, reserved=reserved).search([*map(Sentence, sources)], decoding, 2)
    for nbest, counts in zip(found, expected, strict=True):
        for ids in (hypothesis.ids for hypothesis in nbest if len(hypothesis.ids) < 20):
            assert reserved.counts(torch.tensor(ids, dtype=torch.int64), reserved.target).tolist() == counts


UNNUMBERED = [
    ("%s of %d", ("%s", "%d")),
    ("%d {x} %s {y} %5.2f", ("%d", "%s", "%5.2f")),
    ("{} of {:d} {!r}", ("{}", "{:d}", "{!r}")),
    ("%s %s", ("%s", "%s")),
    ("%1$s %2$d %(a)s %% {0} {name:d} ${x}", ()),
    ("100%% of %s", ()),
    ("%s %d " + "{x} " * 31, ()),
    ('<a href="%s">it</a> of %d', ('<a href="%s">', "%d")),
    ("<a href='{}'><b title='%s'> <i title='%(x)s %1$s 5%d %%s'>", ("<a href='{}'>", "<b title='%s'>")),
    ("%d https://x.org/%d0%b1/%20d %s", ("%d", "%s")),
]


@pytest.mark.parametrize(("text", "expected"), UNNUMBERED)
def test_placeholders_without_numbers_keep_their_order(text, expected):
    protected = Protection(("markup", "urls", "braces", "printf", "dollars")).protect(text)
    contents = dict(zip((c for c in protected.text if c in RESERVED), protected.contents, strict=True))
    assert tuple(contents[RESERVED[number]] for number in protected.order) == expected


@pytest.mark.parametrize("search", [*SEARCHES, {"beam_size": 3, "max_length": 3}])
@pytest.mark.parametrize("prefix", [(), (1,)])
def test_each_translation_has_reserved_entries_in_their_order(search, prefix):
    tokenizer = tokenizer_of("bpe")
    reserved = ReservedIds.of((tokenizer, tokenizer))
    torch.manual_seed(3)
    model = Transformer(ModelConfig(d_model=16, d_ff=16, num_heads=2), tokenizer.vocab_size, tokenizer.vocab_size)
    texts = [f"{RESERVED[4]} the {RESERVED[1]} of {RESERVED[2]}.", "a new file", f"{RESERVED[0]} and {RESERVED[1]}"]
    orders, sources = [(1, 4, 2), (), (1, 0)], tokenizer.encode(texts)
    beginnings = [[reserved.target_ids[orders[0][number], 0].item() for number in (0, *prefix)], [], []]
    decoding = DecodingConfig(**{"max_length": 20, **search}, max_length_ratio=20.0)
    engine = TransformerEngine(model, reserved=reserved)
    sentences = [*map(Sentence, sources, beginnings if prefix else [()] * 3, orders)]
    for (source, _, order), nbest in zip(sentences, engine.search(sentences, decoding, 3), strict=True):
        assert nbest and all(reserved.are_copied(source, hypothesis.ids, order) for hypothesis in nbest)


@given(
    st.lists(st.sampled_from(["%s", "%d", "{x}", "%1$s"]), min_size=1, max_size=40), st.randoms(use_true_random=False)
)
def test_another_order_of_placeholders_is_reported(spans, random):
    """Also where there are more spans than reserved characters."""
    protected = Protection(("braces", "printf")).protect(" ".join(spans))
    characters = protected.text.split()
    random.shuffle(characters)
    restored = protected.restore(" ".join(characters))
    unnumbered = [[span for span in row if span in ("%s", "%d")] for row in (spans, restored.text.split())]
    assert restored.lost == () and list(restored.reordered) == (unnumbered[1] if unnumbered[0] != unnumbered[1] else [])


@pytest.mark.parametrize(
    ("order", "is_reported"), [([0, 1, 2, 3], False), ([2, 3, 0, 1], False), ([1, 0, 2, 3], True), ([0, 2, 1, 3], True)]
)
def test_tags_that_are_not_nested_any_more_are_reported(order, is_reported):
    protected = Protection(("markup",)).protect("<b>x</b> and <i>y</i> <br/>")
    characters = [character for character in protected.text if character in RESERVED]
    restored = protected.restore(" ".join([*(characters[place] for place in order), characters[4]]))
    assert restored.lost == () and bool(restored.reordered) == is_reported


class Exported(CTranslate2Engine):
    """CTranslate2's engine without CTranslate2: more beams find the translation with spans in order."""

    def __init__(self, reserved, right, wrong):
        self._reserved, self.right, self.wrong, self.num_again = reserved, right, wrong, 0

    def _search(self, sentences, decoding, num_best, with_attention=False):
        self.num_again += len(sentences) if num_best > 1 else 0
        found = [self.wrong, self.right] if num_best > 1 else [self.wrong]
        return [[Hypothesis(ids, -1.0) for ids in found] for _ in sentences]

    def _rescored(self, sentences, hypotheses, decoding):
        return hypotheses


def test_ctranslate2_searches_again_for_another_order():
    tokenizer = tokenizer_of("bpe")
    source, swapped = tokenizer.encode([f"the {RESERVED[4]} of {RESERVED[1]}", f"the {RESERVED[1]} of {RESERVED[4]}"])
    reserved = ReservedIds.of((tokenizer, tokenizer))
    engine = Exported(reserved, source, swapped)
    assert engine.search([Sentence(source)], DecodingConfig())[0][0].ids == swapped and engine.num_again == 0
    assert engine.search([Sentence(source, order=(4, 1))], DecodingConfig())[0][0].ids == source
    assert engine.num_again == 1


class Forgetful:
    """An engine that repeats its source, without its first reserved entry."""

    def __init__(self, tokenizer, forgets):
        self.known = {index for entries in tokenizer.reserved_ids for index in entries} if forgets else set()

    def search(self, sentences, decoding, num_best=1):
        return [[Hypothesis(self._copied(sentence.ids), -1.0)] * num_best for sentence in sentences]

    def _copied(self, ids):
        first = next((place for place, index in enumerate(ids) if index in self.known), len(ids))
        return [*ids[:first], *ids[first + 1 :]]

    def force_decode(self, pairs):
        return [ForcedDecoding([-0.5] * (len(t) + 1), torch.eye(len(t) + 1, len(s) + 1)) for s, t in pairs]


def translator(algorithm="bpe", forgets=False):
    tokenizer = tokenizer_of(algorithm)
    engine = Forgetful(tokenizer, forgets)
    return Translator(engine, (tokenizer, tokenizer), DecodingConfig(), 60, protection=ALL)


@pytest.mark.parametrize("algorithm", ["word_level", "bpe"])
@pytest.mark.parametrize("split_sentences", [False, True])
def test_a_copied_line_keeps_its_spans(algorithm, split_sentences):
    lines = ["the file {x} of <b>the user</b>. save %s now.", "{x}", "a new file", "", "user, :ref:`the file <a>`"]
    items = translator(algorithm).translate_fully(lines, split_sentences=split_sentences, with_details=True)
    assert [item.text for item in items] == lines
    assert not any(item.lost_spans for item in items)
    for item in items:
        words = item.text.split()
        assert all(source == target for source, target in item.details.word_alignment)
        assert {source for source, _ in item.details.word_alignment} <= set(range(3 * len(words)))
        assert not set(RESERVED) & set("".join(item.details.source_tokens + item.details.tokens))


def test_lost_spans_are_reported():
    (item,) = translator(forgets=True).translate_fully(["the {x} of %s"])
    assert item.lost_spans == ("{x}",)
    assert item.text == "the of %s"


class Varied:
    """An engine whose hypotheses are the source, the source without its last token, and the source from the end."""

    def search(self, sentences, decoding, num_best=1):
        variants = (lambda ids: ids, lambda ids: ids[:-1], lambda ids: ids[::-1])
        return [[Hypothesis(list(variant(ids)), -1.0) for variant in variants[:num_best]] for ids, *_ in sentences]

    def force_decode(self, pairs):
        return Forgetful.force_decode(self, pairs)


def test_each_hypothesis_is_reported_with_its_spans(capsys):
    tokenizer = tokenizer_of("word_level")
    model = Translator(Varied(), (tokenizer, tokenizer), DecodingConfig(), 60, protection=ALL)
    (item,) = model.translate_fully(["%s the %d"], num_best=3, with_details=True)
    row = json.loads(format_json(item))
    assert (row["lost_spans"], row["reordered_spans"]) == ([], [])
    assert [hypothesis["lost_spans"] for hypothesis in row["hypotheses"]] == [[], ["%d"], []]
    assert [hypothesis["reordered_spans"] for hypothesis in row["hypotheses"]] == [[], [], ["%d", "%s"]]
    with LineNotices() as notices:
        notices.add(item)
    err = capsys.readouterr().err
    assert (
        "1 translation lacks a protected span" in err and "1 translation has placeholders such as %s in another" in err
    )
    with pytest.raises(MtError, match=r"lacks a protected span.*another order"), LineNotices(is_strict=True) as notices:
        notices.add(item)


@pytest.mark.parametrize(
    ("prefix", "message"), [(f"file {RESERVED[3]}", "U\\+10FF03"), ("file {y}", "{y} is not in the first segment")]
)
def test_a_prefix_whose_spans_would_be_lost_or_doubled_is_refused(prefix, message):
    with pytest.raises(InputError, match=message):
        translator().translate_fully(["The file {x}. Save {y} now."], prefix=prefix, split_sentences=True)


def test_a_prefix_may_have_spans_of_the_source():
    seen = []
    model = translator()
    model.engine.search = lambda sentences, decoding, num_best=1: (
        seen.extend(sentences) or [[Hypothesis(list(sentence.prefix), -1.0)] for sentence in sentences]
    )
    assert model.translate(["the {x}"], prefix="file {x}") == ["file {x}"]
    assert any(index in seen[0].prefix for entries in model.target_tokenizer.reserved_ids for index in entries)


def test_scores_of_a_pair_do_not_depend_on_the_content_of_its_spans():
    model = translator()
    one, two = (model.score([f"the {span}"], [f"file {span}"])[0] for span in ("{x}", "{y}"))
    assert len(one.tokens) == len(two.tokens)


def test_an_unknown_kind_of_span_is_refused():
    corpus = {"source": "en", "target": "it", "train": {"file": "a.tsv"}, "valid": {"fraction": 0.1}}
    with pytest.raises((ConfigError, ValueError), match="protect"):
        Config.model_validate({"name": "a", "corpus": {**corpus, "protect": ["placeholders"]}})


def test_groups_of_own_patterns_never_overlap_and_patterns_do_not_know_each_other():
    for pattern in (r"((\w+)@x)", r"(?=(\w+))\w", r"((a)(b))c"):
        protection = Protection((), (pattern,))
        for text in ("hello abc@x end", "abc", "abcabc"):
            spans = protection.spans(text)
            assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))
            assert protection.protect(text).original == text
    assert spans_of("ab 'foo' x", Protection((), (r"(a)b", r"([\"'])\w+\1"))) == ["a", "'"]
    assert spans_of("foo x", Protection(("printf",), ("(?x) f o o # c",))) == ["foo"]


@pytest.mark.parametrize("pattern", ["(?R)?x", "((?1)?x)", "(?r)foo"])
def test_recursion_and_reverse_search_are_refused(pattern):
    corpus = {"source": "en", "target": "it", "train": {"file": "a.tsv"}, "valid": {"fraction": 0.1}}
    with pytest.raises(ValueError, match="not supported"):
        Config.model_validate({"name": "a", "corpus": {**corpus, "protect_patterns": [pattern]}})


def test_spaces_inside_of_a_span_stay():
    lines = ["the  ``a  b``  file", "{{\u00a0x}} ``a\tb``"]
    expected = ["the ``a  b`` file", "{{\u00a0x}} ``a\tb``"]
    assert translator().translate(lines) == expected


def test_a_span_is_never_joined_with_a_word_that_its_source_separates():
    protected = ALL.protect("see a@b.cd and e@f.gh!")
    first, second = (character for character in protected.text if character in RESERVED)
    restored = protected.restore(f"x{first}{second}y")
    assert restored.text == "x a@b.cd e@f.gh y"
    assert restored.place(len(f"x{first}{second}y")) == len(restored.text)
    assert Protection(("printf",)).protect("a%sb").restore("x\U0010ff00y").lost in (("%s",), ())


@pytest.mark.parametrize("text", [f"a {RESERVED[0]} file", f"{RESERVED[3]} the", RESERVED[1]])
def test_without_protection_reserved_characters_are_ordinary_text(text):
    tokenizer = train_tokenizer(WORDS, TokenizerConfig(algorithm="bpe", vocab_size=400))
    model = Translator(Forgetful(tokenizer, False), (tokenizer, tokenizer), DecodingConfig(), 60)
    (item,) = model.translate_fully([text], with_details=True, prefix="")
    assert item.text == text and item.lost_spans == ()
