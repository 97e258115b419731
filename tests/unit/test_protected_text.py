from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linear import assert_linear

from mt_cli.config.sections import Config, DecodingConfig, ModelConfig, TokenizerConfig
from mt_cli.corpus.protected_text import PATTERNS, RESERVED, Protection
from mt_cli.errors import InputError
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

ALL = Protection(tuple(PATTERNS))
WORDS = ["the file of the user", "a new file", "save the file now.", "user, file"]
MARKUP = st.text("ab1 .,:`<>/&;{}%$()[]|_@#-" + RESERVED[0] + RESERVED[5], max_size=40)


def spans_of(text, protection=ALL):
    return [text[start:end] for start, end in protection.spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<a title='x > y' href=\"z\">it</a> &amp; a < b <!-- a > b --> it's",
            ["<a title='x > y' href=\"z\">", "</a>", "&amp;", "<!-- a > b -->"],
        ),
        ("<p don't> it's </p>", ["<p don't>", "</p>"]),
        ("{name} {0:.2f} {{ x }} ${x} { no }", ["{name}", "{0:.2f}", "{{ x }}", "${x}"]),
        ("%s %(name)d %1$s %5.2f %d%% 100% de", ["%s", "%(name)d", "%1$s", "%5.2f", "%d", "%%", "100"]),
        ("Visit https://a.org/b_(c)?x=1. Mail me@x.org.", ["https://a.org/b_(c)?x=1", "me@x.org"]),
        ("3.5 and 1,000 in 2020, not v2", ["3.5", "1,000", "2020"]),
        ("No span: a_b, 'quoted', \"so\" (and so on) - @ # $", []),
    ],
)
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
def test_both_sides_of_a_pair_have_the_same_reserved_characters(source, target):
    sides = ALL.protect_pair(source, target)
    counts = [Counter(character for character in side if character in RESERVED) for side in sides]
    assert counts[0] == counts[1]
    spans = [Counter(spans_of(text)) for text in (source, target)]
    assert counts[0].total() == (spans[0] & spans[1]).total()


def reserved_in(text):
    return [character for character in text if character in RESERVED]


def test_a_missing_span_is_lost_and_one_too_many_dropped():
    protected = ALL.protect("Copy {x} to {y}")
    _, second = reserved_in(protected.text)
    restored = protected.restore(f"Kopiere {second}{second}")
    assert restored.text == "Kopiere {y}"
    assert restored.lost == ("{x}",)


def test_a_span_is_never_joined_with_a_word():
    protected = ALL.protect("see a@b.cd and e@f.gh!")
    first, second = reserved_in(protected.text)
    restored = protected.restore(f"x{first}{second}y")
    assert restored.text == "x a@b.cd e@f.gh y"
    assert restored.place(len(f"x{first}{second}y")) == len(restored.text)


def test_own_patterns_come_first(monkeypatch):
    protection = Protection(("braces",), (r"@\w+",))
    assert spans_of("&File {x} @user{y}", protection) == ["{x}", "@user", "{y}"]
    assert spans_of("foo x", Protection(("printf",), ("(?x) (f) o o # c",))) == ["foo"]
    assert spans_of("xax", Protection((), ("a*",))) == ["a"], "no span is empty"
    monkeypatch.setattr("mt_cli.corpus.protected_text._MAX_SECONDS", 0.2)
    with pytest.raises(InputError, match=r"corpus\.protect"):
        Protection((), (r"(?:a|aa|aaa)+(?<!a)b",)).spans("a" * 60 + "b")  # It takes too long.


@pytest.mark.parametrize("value", ["/(/", "placeholders"])
def test_a_pattern_or_kind_that_cannot_be_searched_is_refused(value):
    corpus = {"source": "en", "target": "it", "train": {"file": "a.tsv"}, "valid": {"fraction": 0.1}}
    with pytest.raises(ValueError, match="protect"):
        Config.model_validate({"name": "a", "corpus": corpus | {"protect": [value]}})


def tokenizer_of(algorithm):
    size = 400 if algorithm in ("bpe", "unigram") else None
    return train_tokenizer(
        WORDS, TokenizerConfig(algorithm=algorithm, vocab_size=size), ("<2it>",), reserved="".join(RESERVED)
    )


@pytest.fixture(scope="module")
def tokenizers():
    return {algorithm: tokenizer_of(algorithm) for algorithm in ("word_level", "bpe", "unigram", "char")}


@pytest.mark.parametrize("algorithm", ["word_level", "bpe", "unigram", "char"])
@given(parts=st.lists(st.sampled_from([*RESERVED[:3], RESERVED[-1], "file", "user", ",", ".", " "]), max_size=9))
def test_a_reserved_character_is_one_token_wherever_it_stands(tokenizers, algorithm, parts):
    tokenizer = tokenizers[algorithm]
    text = "".join(parts)
    (ids,) = tokenizer.encode([text])
    known = {index for tokens in tokenizer.reserved_ids for index in tokens}
    assert sum(index in known for index in ids) == len(reserved_in(text))
    assert UNK_ID in ids or tokenizer.decode([ids]) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%d {x} %s {y} %5.2f", ("%d", "%s", "%5.2f")),
        ("{} of {:d} {!r}", ("{}", "{:d}", "{!r}")),
        ("%1$s %2$d %(a)s %% {0} {name:d} ${x}", ()),
        ("%s %d " + "{x} " * 31, ()),
        ("<a href='{}'><b title='%s'> <i title='%(x)s %1$s 5%d %%s'>", ("<a href='{}'>", "<b title='%s'>")),
    ],
)
def test_placeholders_without_numbers_keep_their_order(text, expected):
    protected = Protection(("markup", "urls", "braces", "printf", "dollars")).protect(text)
    contents = dict(zip(reserved_in(protected.text), protected.contents, strict=True))
    assert tuple(contents[RESERVED[number]] for number in protected.order) == expected


@pytest.mark.parametrize("search", [{"beam_size": 1}, {"beam_size": 3, "no_repeat_ngram": 2}, {"sample": True}])
@pytest.mark.parametrize("prefix", [None, (0,), (0, 1)])
def test_each_translation_has_the_reserved_tokens_of_its_source(tokenizers, search, prefix):
    """In their order, if they have one."""
    import torch

    from mt_cli.decoding.constraints import ReservedIds
    from mt_cli.decoding.engine import Sentence
    from mt_cli.decoding.transformer_engine import TransformerEngine
    from mt_cli.model.transformer import Transformer

    tokenizer = tokenizers["word_level" if prefix is None else "bpe"]
    reserved = ReservedIds.of((tokenizer, tokenizer))
    torch.manual_seed(3)
    model = Transformer(ModelConfig(d_model=16, d_ff=16, num_heads=2), tokenizer.vocab_size, tokenizer.vocab_size)
    texts = [f"{RESERVED[4]} the {RESERVED[1]} of {RESERVED[2]}.", "a new file", f"{RESERVED[0]} and {RESERVED[1]}"]
    orders = [()] * 3 if prefix is None else [(1, 4, 2), (), (1, 0)]
    prefixes = [[reserved.target_ids[orders[0][number], 0].item() for number in prefix or ()], [], []]
    decoding = DecodingConfig(max_length_ratio=2.0, **search)
    sentences = [*map(Sentence, tokenizer.encode(texts), prefixes, orders)]
    hypotheses = TransformerEngine(model, reserved=reserved).search(sentences, decoding, 3)
    for (source, _, order), nbest in zip(sentences, hypotheses, strict=True):
        assert nbest
        for hypothesis in nbest:
            sides = (reserved.source, source), (reserved.target, hypothesis.ids)
            copied, found = ([n for n in numbers[ids].tolist() if n < len(RESERVED)] for numbers, ids in sides)
            assert sorted(found) == sorted(copied)
            assert [number for number in found if number in order] == list(order)


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
    characters = reserved_in(protected.text)
    restored = protected.restore(" ".join([*(characters[place] for place in order), characters[4]]))
    assert restored.lost == () and bool(restored.reordered) == is_reported


def test_without_protection_reserved_characters_are_ordinary_text():
    tokenizer = train_tokenizer(WORDS, TokenizerConfig(algorithm="bpe", vocab_size=400))
    texts = [f"a {RESERVED[0]} file", RESERVED[1]]
    assert tokenizer.decode(tokenizer.encode(texts)) == texts and tokenizer.reserved_ids == []


def test_spans_come_back_in_linear_time():
    def work(text):
        protected = ALL.protect(text)
        assert protected.original == text
        for place in range(0, len(protected.text), 10):
            protected.part(place, protected.text[place : place + 10])

    assert_linear(work, "{a} b ".__mul__, size=2000)
