import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mt_cli.config.sections import TokenizerConfig
from mt_cli.errors import RunError
from mt_cli.tokenizer import EOS_ID, PAD_ID, SOS_ID, SPECIAL_TOKENS, UNK_ID, Tokenizer

ALGORITHMS = ["word_level", "bpe", "unigram", "char"]
TEXTS = [
    "l'amico dell'uomo",
    "At 10:30, not 3.14%!",
    "Ja, klar!",
    '(he said "no...")',
    "don't e-mail me @ home",
    "日本語 テキスト。",
    "é e\u0301 ﬁ",
    "x\ty\u2028z",
    " two  spaces ",
    "",
]


def trained(algorithm, texts=TEXTS, **options):
    options.setdefault("vocab_size", 200 if algorithm in ("bpe", "unigram") else None)
    return Tokenizer.train(texts, TokenizerConfig(algorithm=algorithm, **options))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_decode_inverts_encode(algorithm):
    tokenizer = trained(algorithm)
    ids = tokenizer.encode(TEXTS)
    assert not any(UNK_ID in sequence for sequence in ids)
    assert tokenizer.decode(ids) == TEXTS


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(texts=st.lists(st.text(max_size=12), min_size=1, max_size=4))
@example(texts=["￭ ▁ [EOS] a￭b"])
def test_decode_inverts_encode_of_any_text_without_unknown_tokens(algorithm, texts):
    if algorithm == "unigram":
        texts = [*texts, "some words"]  # Its trainer needs something to split.
    tokenizer = trained(algorithm, texts)
    for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
        if UNK_ID not in ids:
            assert tokenizer.decode([ids]) == [text]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_special_tokens_cannot_be_spelt(algorithm):
    texts = [*TEXTS, *(f"a{token} {token}" for token in SPECIAL_TOKENS)]
    tokenizer = trained(algorithm, texts)
    assert tokenizer.tokens(range(4)) == ["[PAD]", "[UNK]", "[SOS]", "[EOS]"]
    assert not {PAD_ID, SOS_ID, EOS_ID} & {index for ids in tokenizer.encode(texts) for index in ids}
    assert tokenizer.decode(tokenizer.encode(texts)) == texts


def test_words_keep_their_form_beside_marks():
    tokenizer = trained("word_level")
    assert tokenizer.pieces("l'amico, amico!") == ["l", "￭'￭", "amico", "￭,", "amico", "￭!"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_saved_and_loaded_is_the_same(algorithm, tmp_path):
    tokenizer = trained(algorithm)
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer.to_json(), encoding="utf-8")
    assert Tokenizer.load(path).encode(TEXTS) == tokenizer.encode(TEXTS)


@pytest.mark.parametrize("algorithm", ["word_level", "bpe", "char"])
def test_same_texts_give_the_same_tokenizer(algorithm):
    assert trained(algorithm).to_json() == trained(algorithm).to_json()


def test_rare_words_are_unknown_and_stay_countable():
    tokenizer = trained("word_level", ["a a b"], min_frequency=2)
    assert tokenizer.encode(["a b c"])[0].count(UNK_ID) == 2
    assert tokenizer.decode(tokenizer.encode(["a b"])) == ["a [UNK]"]


def test_vocab_size_is_a_limit():
    assert trained("word_level", ["a b c d e f g h"], vocab_size=8).vocab_size == 8


def test_lowercase_and_nfkc_normalise():
    tokenizer = trained("word_level", ["ﬁne Day"], lowercase=True, nfkc=True)
    assert tokenizer.decode(tokenizer.encode(["Fine DAY"])) == ["fine day"]


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"version": "1.0", "model": {"type": "WordLevel"}}'])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RunError, match=r"tokenizer\.json"):
        Tokenizer.load(path)
    with pytest.raises(RunError, match="no such file"):
        Tokenizer.load(tmp_path / "none.json")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_spans_follow_each_other_and_hold_the_characters_of_their_tokens(algorithm):
    tokenizer = trained(algorithm)
    for text in [*TEXTS, "quixotic? (l'ami) $5!"]:
        spans = tokenizer.spans(text)
        assert len(spans) == len(tokenizer.pieces(text))
        ends = [0, *(end for _, end in spans)]
        assert all(before <= start <= end for before, (start, end) in zip(ends, spans, strict=False))
        for token, (start, end) in zip(tokenizer.pieces(text), spans, strict=True):
            if token != "[UNK]":
                assert token.strip("￭▁ \t") == text[start:end].strip(" \t")
