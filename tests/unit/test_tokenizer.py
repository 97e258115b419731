import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.clean_text import cleaned
from mt_cli.corpus.languages import SPACELESS
from mt_cli.errors import ConfigError, RunError
from mt_cli.tokenizer.special_tokens import BYTES, EOS_ID, PAD_ID, SOS_ID, SPECIAL_TOKENS, UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

SUBWORDS = ["bpe", "unigram"]
ALGORITHMS = ["word_level", *SUBWORDS, "char"]
TEXTS = [
    *("l'amico dell'uomo", "At 10:30, not 3.14%!", "Ja, klar!", '(he said "no...")', "don't e-mail me @ home"),
    *("日本語 テキスト。", "é e ﬁ", "x\ty\u2028z", " two  spaces ", ""),
]
few_examples = settings(max_examples=30)


def trained(algorithm, texts=TEXTS, **options):
    options = {"vocab_size": 500 if algorithm in SUBWORDS else None} | options
    return train_tokenizer(texts, TokenizerConfig(algorithm=algorithm, **options))


def spans_of(tokenizer, text):
    """Spans of the tokens of a text, which follow each other inside the text."""
    spans = tokenizer.spans(text)
    places = [place for span in spans for place in span]
    assert len(spans) == len(tokenizer.pieces(text))
    assert places == sorted(places) and all(0 <= place <= len(text) for place in places)
    return spans


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_decode_inverts_encode_and_special_tokens_cannot_be_spelt(algorithm):
    texts = [*TEXTS, *(f"a{token} {token}" for token in SPECIAL_TOKENS)]
    tokenizer = trained(algorithm, texts)
    ids = tokenizer.encode(texts)
    assert tokenizer.tokens(range(4)) == ["[PAD]", "[UNK]", "[SOS]", "[EOS]"]
    assert not {PAD_ID, SOS_ID, EOS_ID, UNK_ID} & {index for sequence in ids for index in sequence}
    assert tokenizer.decode(ids) == texts


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@few_examples
@given(texts=st.lists(st.text(max_size=12).map(cleaned), min_size=1, max_size=4))
@example(texts=["￭ ▁ [EOS] a￭b"])
def test_decode_inverts_encode_of_known_text(algorithm, texts):
    if algorithm == "unigram":
        texts = [*texts, "some words"]  # Its trainer needs something to split.
    tokenizer = trained(algorithm, texts)
    for text, ids in zip(texts, tokenizer.encode(texts), strict=True):
        if UNK_ID not in ids:
            assert tokenizer.decode([ids]) == [text]


@pytest.fixture(scope="module")
def of_words():
    """Sub-words of a few English words, by algorithm."""
    texts = ["some words and some other words", "others and more", "a word, more words."]
    return {algorithm: trained(algorithm, texts) for algorithm in SUBWORDS}


HARD_TEXTS = [
    "▁￭\ue000\ue001\x10\x11\x12",
    " ▁ ▁▁ \x10 ",
    "<0x41> [EOS] [PAD][UNK] <0xE2><0x96><0x81>",
    "a\x10\x11b\x10\x12c\x10\x10\x11",
    "words\n more\r\nwords\x00",
    "👩🏽‍🚀 e\u0301 字字 \U0010ffff\ufffd\ufffe",
]


@pytest.mark.parametrize("algorithm", SUBWORDS)
@given(text=st.text(max_size=30) | st.text("▁￭\ue000\x10\x11\x12<0x4E2>[EOS] ab\n", max_size=12))
@example(text="".join(HARD_TEXTS))
def test_no_text_is_unknown_to_subwords(of_words, algorithm, text):
    tokenizer, text = of_words[algorithm], cleaned(text)
    ids = tokenizer.encode([text])[0]
    assert min(ids, default=4) >= 4  # No special token.
    assert tokenizer.decode([ids]) == [text]
    assert "".join(text[start:end] for start, end in spans_of(tokenizer, text)).strip(" ") == text.strip(" ")


@pytest.mark.parametrize("algorithm", SUBWORDS)
def test_text_cannot_spell_bytes_nor_bytes_a_text(of_words, algorithm):
    spelling = trained(algorithm, ["<0x41> 0x41 <0x41>"] * 9)
    assert spelling.tokens(range(4, 260)) == list(BYTES)
    assert BYTES[0x77] not in of_words[algorithm].pieces("<0x77>") and BYTES[0x41] not in spelling.pieces("<0x41>")
    tokenizer = of_words[algorithm]
    ids = [4 + value for value in (0xE5, 0xAD, 0xFF)]
    word = tokenizer.encode(["words"])[0]
    assert tokenizer.decode([ids, [*ids[:2], *word], [*word, ids[2]]]) == ["���", "�� words", "words�"]


@pytest.mark.parametrize("algorithm", SUBWORDS)
def test_a_vocabulary_has_room_for_bytes_or_characters(algorithm):
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size: 200 .* 276"):
        trained(algorithm, vocab_size=200)
    assert trained(algorithm, vocab_size=276).vocab_size <= 276


MIXED_TEXTS = [
    *("今夜は雨です。", "NASAは2024年に Windows を使う。", "ภาษาไทย มีเว้นวรรค", "ភាសាខ្មែរ។ ပြည်သူ။", "བོད་ཡིག །"),
    *("오늘 밤은 비가 온다", "Tonight it rains in 東京 and 北京.", " 今 夜  は", "「今夜」（１２）", "one two"),
]
MIXED = st.text("▁今夜は。ーไท ່ខ་한글ab Ｗ１（-.\u0301\ufe0f\u3099 　", max_size=14)


@pytest.fixture(scope="module")
def of_mixed_scripts():
    """Sub-words of several languages, by algorithm."""
    return {algorithm: trained(algorithm, MIXED_TEXTS * 3, vocab_size=600) for algorithm in SUBWORDS}


@pytest.mark.parametrize("algorithm", SUBWORDS)
def test_no_piece_has_a_space_beside_scripts_without_spaces(of_mixed_scripts, algorithm):
    tokenizer = of_mixed_scripts[algorithm]
    tokens = tokenizer.tokens(range(tokenizer.vocab_size))
    assert any(re.search(f"[{SPACELESS}]{{2}}", token) for token in tokens)
    assert not [token for token in tokens if re.search(f"▁.*[{SPACELESS}]|[{SPACELESS}].*[a-zA-Z한글]", token)]
    for text in ("今夜は雨です。", "NASAは雨", "東京", "ไทย", "(今)"):
        assert not [token for token in tokenizer.pieces(text) if "▁" in token], text
    assert tokenizer.pieces("one")[0].startswith("▁") and tokenizer.pieces("한")[0].startswith("▁")
    assert "".join(tokenizer.pieces(" 今 夜")) == "▁▁今▁夜"
    assert tokenizer.encode([""]) == [[]]


@pytest.mark.parametrize("algorithm", SUBWORDS)
@given(text=MIXED)
@example(text=" ภาษา  ไทย ")
@example(text="\n今\nab")
def test_spaces_between_scripts_stay_where_they_are(of_mixed_scripts, algorithm, text):
    tokenizer, text = of_mixed_scripts[algorithm], cleaned(text)
    assert tokenizer.decode(tokenizer.encode([text])) == [text]
    spans_of(tokenizer, text)


def test_word_level_keeps_words_within_its_limits():
    assert trained("word_level").pieces("l'amico, amico!") == ["l", "￭'￭", "amico", "￭,", "amico", "￭!"]
    assert trained("word_level", ["a b c d e f g h"], vocab_size=8).vocab_size == 8
    tokenizer = trained("word_level", ["a a b"], min_frequency=2)
    assert tokenizer.encode(["a b c"])[0].count(UNK_ID) == 2
    assert tokenizer.decode(tokenizer.encode(["a b"])) == ["a [UNK]"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_spans_hold_the_characters_of_their_tokens(algorithm):
    tokenizer = trained(algorithm)
    for text in [*TEXTS, "quixotic? (l'ami) $5!"]:
        for token, (start, end) in zip(tokenizer.pieces(text), spans_of(tokenizer, text), strict=True):
            if token not in ("[UNK]", *BYTES):
                assert token.strip("￭▁ \t") == text[start:end].strip(" \t")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_saved_tokenizer_is_equal_also_of_almost_no_text(tmp_path, algorithm):
    config = TokenizerConfig(algorithm=algorithm)
    has_bytes = algorithm in SUBWORDS
    for texts in ([], [" "], ["a"], ["▁", "￭"], ["<x>", "<x> "], TEXTS):
        tokenizer = train_tokenizer(texts, config, ["<x>"])
        path = tmp_path / "tokenizer.json"
        path.write_text(tokenizer.to_json(), encoding="utf-8")
        loaded, probes = Tokenizer.load(path, config, ["<x>"]), ["", "a", "<x> ab cd", *TEXTS]
        ids = tokenizer.encode(probes)
        assert loaded.encode(probes) == ids and loaded.decode(ids) == tokenizer.decode(ids)
        assert loaded.to_json() == tokenizer.to_json()
        assert ids[0] == [] and all(index < loaded.vocab_size for sequence in ids for index in sequence)
        assert (BYTES[0] in loaded.tokens(range(loaded.vocab_size))) == has_bytes
        if has_bytes:
            assert tokenizer.decode(ids)[1] == "a" and tokenizer.decode(ids)[2].endswith("ab cd")


def test_a_tokenizer_without_the_tag_of_its_config_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(trained("char").to_json(), encoding="utf-8")
    with pytest.raises(RunError, match="<2it>"):
        Tokenizer.load(path, TokenizerConfig(algorithm="char"), ["<2it>"])
