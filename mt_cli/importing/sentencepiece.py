"""SentencePiece models as tokenizers. Knows their files and how ids are numbered; does not know models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import models

from mt_cli.errors import InputError, one_line
from mt_cli.storage import read_regular, reading
from mt_cli.tokenizer import (
    MAX_FILE_BYTES,
    SPECIAL_TOKENS,
    UNK,
    UNK_ID,
    Tokenizer,
    sentencepiece_backend,
)

_UNIGRAM, _BPE = 1, 2
_NORMAL, _USER_DEFINED, _BYTE = 1, 4, 6
_ABSENT = "\ue000"
"""Put before entries that no text is split into. It never occurs in text: SentencePiece has no piece with it."""
_LOWEST_SCORE = -1e6


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece model."""

    is_bpe: bool
    scores: Mapping[str, float]
    """The pieces that text is split into; of equal scores (bpe), the first one is merged first."""
    charsmap: bytes
    adds_prefix: bool
    strips_spaces: bool


def import_sentencepiece() -> Any:
    """The package's description of model files; raises InputError if it is not installed."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise InputError("sentencepiece is not installed; pip install 'sentencepiece>=0.2' protobuf") from None
    return sentencepiece_model_pb2


def read_pieces(path: Path) -> Pieces:
    """The model in a file; raises InputError if it cannot be read or is of a kind that has no equal here."""
    library = import_sentencepiece()
    with reading(path):
        content = read_regular(path, MAX_FILE_BYTES)
    proto = library.ModelProto()
    try:
        proto.ParseFromString(content)
    except Exception as error:
        raise InputError(f"{path}: not a SentencePiece model: {one_line(error)}") from None
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    kinds = {piece.type for piece in proto.pieces}
    for is_problem, problem in (
        (not proto.pieces, "it has no pieces"),
        (trainer.model_type not in (_UNIGRAM, _BPE), "neither a unigram nor a bpe model"),
        (_BYTE in kinds, "it falls back to bytes"),
        (_USER_DEFINED in kinds, "it has user-defined symbols"),
        (trainer.treat_whitespace_as_suffix, "it treats spaces as suffixes"),
        (not normalizer.escape_whitespaces, "it does not escape spaces"),
    ):
        if is_problem:
            raise InputError(f"{path}: not supported: {problem}")
    return Pieces(
        trainer.model_type == _BPE,
        {piece.piece: piece.score for piece in proto.pieces if piece.type == _NORMAL},
        normalizer.precompiled_charsmap,
        normalizer.add_dummy_prefix,
        normalizer.remove_extra_whitespaces,
    )


def missing_pieces(sides: Sequence[Pieces], entries: Sequence[str]) -> list[str]:
    """The pieces that a vocabulary has no entries for, each once, in order: they are unknown tokens."""
    known = set(entries)
    return list(dict.fromkeys(piece for side in sides for piece in side.scores if piece not in known))


def tokenizer_of(pieces: Pieces, entries: Sequence[str], tags: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer that splits text as a SentencePiece model does; id 4 + n is entry n.

    The special tokens of `mt` have the ids 0 to 3. Entries that are no pieces of the model can only be decoded.
    """
    known = pieces.scores
    names = [each if each in known or each in tags else _ABSENT + each for each in entries]
    vocab = [*SPECIAL_TOKENS, *names]
    model: Any
    if pieces.is_bpe:
        model = models.BPE(
            {name: index for index, name in enumerate(vocab)}, _merges(known), unk_token=UNK, fuse_unk=True
        )
    else:
        scored = [(name, known.get(name, _LOWEST_SCORE)) for name in vocab]
        model = models.Unigram(scored, unk_id=UNK_ID)
    backend = sentencepiece_backend(model, pieces.charsmap, pieces.adds_prefix, pieces.strips_spaces)
    return Tokenizer(backend, tags)


def _merges(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """The merges of bpe pieces: all pairs of pieces that are a piece together, the best piece first."""
    ranks = {piece: rank for rank, piece in enumerate(sorted(scores, key=lambda piece: -scores[piece]))}
    found = [
        (ranks[piece], ranks[piece[:cut]], ranks[piece[cut:]], piece, cut)
        for piece in scores
        for cut in range(1, len(piece))
        if piece[:cut] in ranks and piece[cut:] in ranks
    ]
    return [(piece[:cut], piece[cut:]) for *_, piece, cut in sorted(found)]
