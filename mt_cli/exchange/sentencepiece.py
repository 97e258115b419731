"""SentencePiece models read as tokenizers, and tokenizers written as such models."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from mt_cli.errors import InputError
from mt_cli.runtime.files import read_regular, reading
from mt_cli.tokenizer.sentencepiece import BPE, BYTE, CONTROL, NORMAL, UNIGRAM, UNKNOWN, USER_DEFINED, SentencePieces
from mt_cli.tokenizer.special_tokens import ABSENT, BYTES, SPECIAL_TOKENS, UNK
from mt_cli.tokenizer.tokenizer import Tokenizer

_MAX_FILE_BYTES = 2**24


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece model."""

    proto: Any

    @property
    def is_bpe(self) -> bool:
        return bool(self.proto.trainer_spec.model_type == BPE)

    @cached_property
    def scores(self) -> dict[str, float]:
        """Scores of the pieces that text is split into. With bpe, the highest is merged first."""
        return {piece.piece: piece.score for piece in self.proto.pieces if piece.type == NORMAL}

    @property
    def names(self) -> list[str]:
        return [piece.piece for piece in self.proto.pieces if piece.type in (NORMAL, USER_DEFINED, BYTE)]

    def only(self, kept: Collection[str]) -> Pieces:
        """Model without the other pieces that text is split into."""
        proto = ModelProto()
        proto.CopyFrom(self.proto)
        del proto.pieces[:]
        proto.pieces.extend(piece for piece in self.proto.pieces if piece.type != NORMAL or piece.piece in kept)
        return Pieces(proto)


def read_pieces(path: Path) -> Pieces:
    """Read the model in a file; raises InputError if it cannot be read."""
    with reading(path):
        content = read_regular(path, _MAX_FILE_BYTES)
    try:
        SentencePieceProcessor(model_proto=content)
        return Pieces(ModelProto.FromString(content))
    except Exception as error:  # The libraries raise errors of several types.
        raise InputError(f"{path}: not a SentencePiece model ({type(error).__name__})") from None


def missing_pieces(sides: Sequence[Pieces], entries: Collection[str]) -> list[str]:
    """Pieces that a vocabulary lacks, in order and without repetition; they are encoded as unknown tokens."""
    return list(dict.fromkeys(piece for side in sides for piece in side.names if piece not in entries))


def tokenizer_of(pieces: Pieces, entries: Sequence[str], tags: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer that splits text by a SentencePiece model; id 4 + n is entry n.

    The special tokens of `mt` have the ids 0 to 3. Entries that are no pieces of the model can only be decoded.
    """
    plain = {*pieces.names, *tags}
    vocab = [*SPECIAL_TOKENS, *(entry if entry in plain else ABSENT + entry for entry in entries)]
    return Tokenizer(SentencePieces(pieces.proto.SerializeToString(), vocab), tags)


def entry_names(tokenizer: Tokenizer) -> list[str]:
    """Original names of the entries of an imported tokenizer from id 4 on."""
    return [token.removeprefix(ABSENT) for token in tokenizer.tokens(range(len(SPECIAL_TOKENS), tokenizer.vocab_size))]


def model_file(tokenizer: Tokenizer) -> bytes:
    """Content of a SentencePiece model that splits text into the same pieces as a tokenizer.

    Of an imported tokenizer, it is its own model. Of another one, which has `spacing: sentencepiece`, the ids are the
    same, too.
    """
    if isinstance(tokenizer.backend, SentencePieces):
        return tokenizer.backend.model
    model, proto = json.loads(tokenizer.to_json())["model"], ModelProto()
    kinds = dict.fromkeys(BYTES, BYTE) | dict.fromkeys((*SPECIAL_TOKENS, *tokenizer.tokens(tokenizer.tag_ids)), CONTROL)
    kinds[UNK] = UNKNOWN
    is_bpe = model["type"] == "BPE"
    scores = ranked(model["merges"], model["vocab"]) if is_bpe else dict(model["vocab"])
    for name in model["vocab"] if is_bpe else scores:
        kind = kinds.get(name, NORMAL)
        proto.pieces.add(piece=name, score=scores[name] if kind == NORMAL else 0.0, type=kind)
    trainer = proto.trainer_spec
    trainer.model_type, trainer.byte_fallback, trainer.vocab_size = BPE if is_bpe else UNIGRAM, True, len(proto.pieces)
    for name, token, index in zip(("pad", "unk", "bos", "eos"), SPECIAL_TOKENS, range(4), strict=True):
        setattr(trainer, f"{name}_piece", token)
        setattr(trainer, f"{name}_id", index)
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = proto.normalizer_spec.remove_extra_whitespaces = True
    return bytes(proto.SerializeToString())


def splits_alike(tokenizer: Tokenizer, sentences: Sequence[str]) -> bool:
    """True if the SentencePiece model of a tokenizer splits sentences into the same pieces.

    Entries that it lacks count as unknown.
    """
    processor = SentencePieceProcessor(model_proto=model_file(tokenizer))
    return all(
        processor.encode(text) == [processor.piece_to_id(piece) for piece in tokenizer.pieces(text)]
        for text in sentences
    )


def ranked(merges: Iterable[Iterable[str]], names: Iterable[str]) -> dict[str, float]:
    """Score of each piece of a bpe model: minus the rank of the first merge that makes it; others follow in order."""
    made = dict.fromkeys(map("".join, merges))
    return {piece: -float(rank) for rank, piece in enumerate(dict.fromkeys([*made, *names]))}
