"""Untrusted SentencePiece models as tokenizers."""

import pytest
from charsmaps import charsmap_of

from mt_cli.config.sections import TokenizerConfig
from mt_cli.errors import InputError
from mt_cli.features.exchange.sentencepiece import Pieces, tokenizer_of
from mt_cli.tokenizer.tokenizer import Tokenizer


def pieces_of(scores, is_bpe=True, charsmap=b""):
    return Pieces(is_bpe, scores, charsmap, adds_prefix=True, strips_spaces=True)


def test_nested_pieces_are_refused_before_their_merges_are_listed():
    """Pieces of 1 to n letters have n * n / 2 merges."""
    few, many = ({"a" * length: -float(length) for length in range(1, longest)} for longest in (60, 400))
    assert tokenizer_of(pieces_of(few), list(few)).pieces("aaaa")[-1] == "aaaa"
    with pytest.raises(InputError, match="merges"):
        tokenizer_of(pieces_of(many), list(many))


def test_a_tokenizer_with_a_whole_normalisation_is_read():
    tokenizer = tokenizer_of(pieces_of({"▁c": -1.0}, is_bpe=False, charsmap=charsmap_of(b"b")), ["▁c"])
    config = TokenizerConfig(algorithm="sentencepiece")
    assert Tokenizer.parse(tokenizer.to_json().encode("utf-8"), "x", config).pieces("c") == ["▁c"]
