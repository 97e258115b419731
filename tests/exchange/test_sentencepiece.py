"""SentencePiece models read as tokenizers, untrusted ones among them, and tokenizers written as such models."""

import io

import pytest
import sentencepiece
from marian_files import train_pieces
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from sentencepiece_texts import odd_texts
from texts import TEXTS

from mt_cli.config.loading import parse_config
from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.clean_text import cleaned
from mt_cli.errors import ConfigError
from mt_cli.exchange.sentencepiece import model_file, read_pieces, tokenizer_of
from mt_cli.tokenizer.sentencepiece import BPE, BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, SentencePieces
from mt_cli.tokenizer.special_tokens import BYTES
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

LINES = [line for text in TEXTS.values() for line in text.split("\n") if line]
IMPORTED = TokenizerConfig(algorithm="sentencepiece")


def reread(tokenizer, config, tags=()):
    return Tokenizer.parse(tokenizer.to_json().encode("utf-8"), "x", config, tags)


@pytest.fixture
def processor():
    """A function that loads the content of a model file with the library."""
    return lambda content: sentencepiece.SentencePieceProcessor(model_proto=content)


def imported(path):
    """A model file by the library, the same as our tokenizer, and our id for each of its ids."""
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    unknown = theirs.unk_id()
    names = [theirs.id_to_piece(index) for index in range(theirs.vocab_size())]
    entries = [name for index, name in enumerate(names) if index != unknown]
    ours = reread(tokenizer_of(read_pieces(path), entries), IMPORTED)
    return theirs, ours, [1 if index == unknown else 4 + index - (index > unknown) for index in range(len(names))]


@pytest.mark.parametrize(("rule", "accent"), [("identity", "e\u0301"), ("nmt_nfkc", "é")])
def test_text_is_cleaned_as_far_as_it_makes_no_difference(rule, accent):
    model, options = io.BytesIO(), {"vocab_size": 20, "hard_vocab_limit": False, "minloglevel": 2}
    sentences = iter(["un café noir"] * 20)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences, model_writer=model, normalization_rule_name=rule, **options
    )
    tokenizer = Tokenizer(SentencePieces(model.getvalue(), ["▁"]))
    assert tokenizer.cleaned("cafe\u0301 no\u00adir") == f"caf{accent} no\u00adir"


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_a_vocabulary_with_its_spaces_is_a_sentencepiece_model(processor, algorithm):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=900, spacing="sentencepiece")
    ours = reread(train_tokenizer(LINES, config, ["<2de>"]), config, ["<2de>"])
    theirs = processor(model_file(ours))
    assert [theirs.id_to_piece(index) for index in range(theirs.vocab_size())] == ours.tokens(range(ours.vocab_size))
    texts = [*map(cleaned, [*LINES, *odd_texts(LINES, 1000)])]
    ids = ours.encode(texts)
    for text, our_ids, their_ids in zip(texts, ids, theirs.encode(texts), strict=True):
        assert our_ids == their_ids, (text, ours.tokens(our_ids), theirs.encode(text, out_type=str))
    decoded = ours.decode(ids)
    assert decoded == theirs.decode(ids)
    # Decoding inverts encoding, except for the number of spaces.
    assert [text.split() for text in decoded] == [text.replace("▁", " ").split() for text in texts]


@pytest.mark.parametrize("key", ["normalize", "letters", "algorithm"])
def test_what_sentencepiece_cannot_do_is_refused_by_name(tiny_tree, key):
    wrong = {"normalize": ("nfkc",), "letters": {"a": "e"}, "algorithm": "word_level"}
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
    texts = [*LINES, *odd_texts(LINES, 500)]
    for text, mine, other in zip(texts, ours.encode(texts), theirs.encode(texts), strict=True):
        expected = [our_ids[index] for index in other]
        assert mine == expected, (text, ours.tokens(mine), ours.tokens(expected))
        if 1 not in mine:
            assert ours.decode([mine]) == [theirs.decode(other)], text
    assert ours.encode([*map(ours.cleaned, texts)]) == ours.encode(texts)  # Such a model keeps the order of marks.
    again = processor(model_file(ours))
    for text in texts:
        assert again.encode(text, out_type=str) == theirs.encode(text, out_type=str)


def model_of(path, normal, **kinds):
    """A bpe model of these pieces in a file."""
    proto = ModelProto()
    proto.pieces.add(piece="<unk>", type=UNKNOWN)
    for number, piece in enumerate(normal):
        proto.pieces.add(piece=piece, score=-float(number), type=NORMAL)
    for piece, kind in kinds.items():
        proto.pieces.add(piece=piece, type=kind)
    proto.trainer_spec.model_type, proto.trainer_spec.byte_fallback = BPE, BYTE in kinds.values()
    path.write_bytes(proto.SerializeToString())
    return read_pieces(path)


def test_control_symbols_are_decoded_as_nothing(tmp_path):
    pieces = model_of(tmp_path / "model", ["▁", "a"], **{"<sep>": USER_DEFINED, "<2en>": CONTROL})
    tokenizer = reread(tokenizer_of(pieces, [*pieces.names, "<2en>", "▁whole word"]), IMPORTED)
    assert tokenizer.pieces("a<sep>a") == ["▁", "a", "<sep>", "a"]
    assert tokenizer.decode([[4, 5, 7, 6, 5], [8, 1, 8]]) == ["a<sep>a", "whole word[UNK] whole word"]


@pytest.mark.parametrize("text", ["[PAD]", "[EOS]", "<0x41>", "\ue000<s>", "<s>"])
def test_text_never_becomes_a_special_entry(tmp_path, text):
    pieces = model_of(tmp_path / "model", ["▁", "P"], **{"<s>": CONTROL}, **dict.fromkeys(BYTES, BYTE))
    tokenizer = reread(tokenizer_of(pieces, [*pieces.names, "<s>"]), IMPORTED)
    assert text not in tokenizer.pieces(text) and tokenizer.decode(tokenizer.encode([text])) == [text]


def test_letters_with_marks_have_the_spans_of_their_pieces(tmp_path):
    texts = ["ெ\u0bbe", "o\u0302\u0301", "ô\u0301", "e\u0301\u0323", "か\u3099x", "Α\u0313\u0301", "a\u0308b\u0308"]
    train_pieces(tmp_path, "model", [*LINES, *texts * 9], vocab_size=1600, byte_fallback=True)
    theirs, ours, our_ids = imported(tmp_path / "model.spm")
    for text in texts:
        assert ours.encode([text]) == [[our_ids[index] for index in theirs.encode(text)]], text
        spans = ours.spans(text)
        assert len(spans) == len(ours.pieces(text)) and max(end for _, end in spans) == len(text)
