"""SentencePiece models read as tokenizers, untrusted ones among them, and tokenizers written as such models."""

import re
from unicodedata import category

import pytest
from marian_files import train_pieces
from sentencepiece_texts import odd_texts
from texts import TEXTS

from mt_cli.config.loading import parse_config
from mt_cli.config.sections import TokenizerConfig
from mt_cli.errors import ConfigError, InputError
from mt_cli.exchange.sentencepiece import Pieces, model_file, read_pieces, tokenizer_of
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.training import train_tokenizer

LINES = [line for text in TEXTS.values() for line in text.split("\n") if line]
IMPORTED = TokenizerConfig(algorithm="sentencepiece")


def reread(tokenizer, config, tags=()):
    return Tokenizer.parse(tokenizer.to_json().encode("utf-8"), "x", config, tags)


@pytest.fixture
def processor():
    """A function that loads the content of a model file with the library."""
    library = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")
    return lambda content: library.SentencePieceProcessor(model_proto=content)


def imported(path):
    """A model file by the library, the same as our tokenizer, and our id for each of its ids."""
    import sentencepiece

    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    unknown = theirs.unk_id()
    names = [theirs.id_to_piece(index) for index in range(theirs.vocab_size())]
    entries = [name for index, name in enumerate(names) if index != unknown]
    ours = reread(tokenizer_of(read_pieces(path), entries), IMPORTED)
    return theirs, ours, [1 if index == unknown else 4 + index - (index > unknown) for index in range(len(names))]


def test_nested_pieces_are_refused_before_their_merges_are_listed():
    """Pieces of 1 to n letters have n * n / 2 merges."""
    few, many = ({"a" * length: -float(length) for length in range(1, longest)} for longest in (60, 400))
    assert tokenizer_of(Pieces(True, few, b"", True, True), list(few)).pieces("aaaa")[-1] == "aaaa"
    with pytest.raises(InputError, match="merges"):
        tokenizer_of(Pieces(True, many, b"", True, True), list(many))


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_a_vocabulary_with_its_spaces_is_a_sentencepiece_model(processor, algorithm):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=900, spacing="sentencepiece")
    ours = reread(train_tokenizer(LINES, config, ["<2de>"]), config, ["<2de>"])
    theirs = processor(model_file(ours))
    assert [theirs.id_to_piece(index) for index in range(theirs.vocab_size())] == ours.tokens(range(ours.vocab_size))
    texts = [*LINES, *odd_texts(LINES, 1000)]
    ids = ours.encode(texts)
    for text, our_ids, their_ids in zip(texts, ids, theirs.encode(texts), strict=True):
        assert our_ids == their_ids, (text, ours.tokens(our_ids), theirs.encode(text, out_type=str))
    decoded = ours.decode(ids)
    assert decoded == theirs.decode(ids)
    # Decoding inverts encoding, except for the number of spaces.
    assert [text.split() for text in decoded] == [text.replace("▁", " ").split() for text in texts]


@pytest.mark.parametrize("key", ["normalize", "letters", "byte_fallback", "algorithm"])
def test_what_sentencepiece_cannot_do_is_refused_by_name(tiny_tree, key):
    wrong = {"normalize": ("nfc",), "letters": {"a": "e"}, "byte_fallback": False, "algorithm": "word_level"}
    tiny_tree["tokenizer"] = {"algorithm": "bpe", "spacing": "sentencepiece", key: wrong[key]}
    with pytest.raises(ConfigError, match=rf"tokenizer\.{key}: |bpe or unigram"):
        parse_config(tiny_tree, "x.yaml")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (
            "unigram",
            {"byte_fallback": True, "user_defined_symbols": ["<sep>", "<sep", "_"], "control_symbols": ["<s2>"]},
        ),
        ("bpe", {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}),
        ("unigram", {"normalization_rule_name": "identity", "add_dummy_prefix": False, "byte_fallback": True}),
        ("bpe", {"normalization_rule_name": "identity", "split_by_whitespace": False, "byte_fallback": True}),
    ],
)
def test_models_of_others_split_text_into_their_own_ids(tmp_path, processor, kind, options):
    train_pieces(tmp_path, "model", LINES, kind, vocab_size=1000, character_coverage=0.98, **options)
    theirs, ours, our_ids = imported(tmp_path / "model.spm")
    # The library drops marks after characters that it replaces, sums scores in another precision, and splits before
    # names of entries, where unknown characters are not joined.
    texts = [text for text in odd_texts(LINES, 500) if "M" not in {category(character)[0] for character in text}]
    texts = [*LINES, *(text for text in texts if kind == "bpe" or not re.search(r"aaa|\[PAD|[\ue000]", text))]
    for text, mine, other in zip(texts, ours.encode(texts), theirs.encode(texts), strict=True):
        expected = [our_ids[index] for index in other]
        assert mine == expected, (text, ours.tokens(mine), ours.tokens(expected))
        if 1 not in mine:
            assert ours.decode([mine]) == [theirs.decode(other)], text
    again = processor(model_file(ours))
    for text in texts:
        assert again.encode(text, out_type=str) == theirs.encode(text, out_type=str)


def test_control_symbols_are_decoded_as_nothing():
    pieces = Pieces(True, {"▁": -1.0, "a": -2.0}, b"", True, True, symbols=("<sep>",), controls=("<2en>",))
    tokenizer = reread(tokenizer_of(pieces, [*pieces.names, "<2en>"]), IMPORTED)
    assert tokenizer.pieces("a<sep>a") == ["▁", "a", "<sep>", "a"]
    assert tokenizer.decode([[4, 5, 7, 6, 5]]) == ["a<sep>a"]


@pytest.mark.parametrize("text", ["[PAD]", "[EOS]", "<0x41>", "\ue000<s>", "\U00100000"])
def test_text_never_becomes_a_special_entry(text):
    scores = {"▁": -1.0, "P": -2.0}
    pieces = Pieces(False, scores, b"", True, True, symbols=("<sep>",), controls=("<s>",), has_bytes=True)
    tokenizer = reread(tokenizer_of(pieces, [*pieces.names, "<s>"]), IMPORTED)
    tokens = tokenizer.pieces(text)
    assert not {text, "<sep>", "<s>"} & set(tokens), tokens


def test_letters_with_marks_are_composed_as_in_sentencepiece(tmp_path):
    texts = ["ெ\u0bbe", "o\u0302\u0301", "ô\u0301", "e\u0301\u0323", "か\u3099x", "Α\u0313\u0301", "a\u0308b\u0308"]
    train_pieces(tmp_path, "model", [*LINES, *texts * 9], vocab_size=1600, byte_fallback=True)
    theirs, ours, our_ids = imported(tmp_path / "model.spm")
    for text in texts:
        assert ours.encode([text]) == [[our_ids[index] for index in theirs.encode(text)]], text
        spans = ours.spans(text)
        assert len(spans) == len(ours.pieces(text)) and max(end for _, end in spans) == len(text)
