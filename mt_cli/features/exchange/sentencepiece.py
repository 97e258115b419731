"""SentencePiece models read as tokenizers, and tokenizers written as such models."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from tokenizers import models

from mt_cli.errors import InputError, one_line
from mt_cli.machine.storage import read_regular, reading
from mt_cli.tokenizer.spacing import sentencepiece_backend
from mt_cli.tokenizer.special_tokens import ABSENT, SPECIAL_TOKENS, UNK, UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.untrusted_files import check_charsmap, check_entries, check_merges, no_panic

_MAX_FILE_BYTES = 2**24
_UNIGRAM, _BPE = 1, 2
_NORMAL, _UNKNOWN, _USER_DEFINED, _BYTE = 1, 2, 4, 6
_LOWEST_SCORE = -1e6


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece model."""

    is_bpe: bool
    scores: Mapping[str, float]
    """Scores of the pieces that text is split into. With bpe, the first of equal scores is merged first."""
    charsmap: bytes
    adds_prefix: bool
    strips_spaces: bool


def _import_sentencepiece() -> Any:
    """The package's description of model files; raises InputError if it is not installed."""
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        raise InputError("sentencepiece is not installed; pip install 'sentencepiece>=0.2' 'protobuf>=4'") from None
    return sentencepiece_model_pb2


def read_pieces(path: Path) -> Pieces:
    """Read the model in a file; raises InputError if it cannot be read, or no tokenizer can reproduce it."""
    library = _import_sentencepiece()
    with reading(path):
        content = read_regular(path, _MAX_FILE_BYTES)
    proto = library.ModelProto()
    try:
        proto.ParseFromString(content)
    except Exception as error:
        raise InputError(f"{path}: not a SentencePiece model: {one_line(error)}") from None
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    kinds = {piece.type for piece in proto.pieces}
    for is_problem, problem in (
        (not proto.pieces, "it has no pieces"),
        (any(not piece.piece or not isfinite(piece.score) for piece in proto.pieces), "pieces without text or score"),
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


def missing_pieces(sides: Sequence[Pieces], entries: Collection[str]) -> list[str]:
    """Pieces that a vocabulary lacks, in order and without repetition; they are encoded as unknown tokens."""
    return list(dict.fromkeys(piece for side in sides for piece in side.scores if piece not in entries))


def tokenizer_of(pieces: Pieces, entries: Sequence[str], tags: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer that splits text as a SentencePiece model does; id 4 + n is entry n.

    The special tokens of `mt` have the ids 0 to 3. Entries that are no pieces of the model can only be decoded.
    Raises InputError if the model is damaged, or too large for the library.
    """
    scores = pieces.scores
    vocab = [*SPECIAL_TOKENS, *(entry if entry in scores or entry in tags else ABSENT + entry for entry in entries)]
    model: Any
    try:
        check_entries(vocab, is_unigram=True)
        if pieces.charsmap:
            check_charsmap(pieces.charsmap)
        with no_panic():
            if pieces.is_bpe:
                ids = {name: index for index, name in enumerate(vocab)}
                model = models.BPE(ids, _merges(scores), unk_token=UNK, fuse_unk=True)
            else:
                model = models.Unigram([(name, scores.get(name, _LOWEST_SCORE)) for name in vocab], unk_id=UNK_ID)
            backend = sentencepiece_backend(model, pieces.charsmap, pieces.adds_prefix, pieces.strips_spaces)
            return Tokenizer(backend, tags)
    except Exception as error:  # The library raises nothing more specific.
        raise InputError(f"a SentencePiece model cannot be a tokenizer: {one_line(error)}") from None


def _merges(scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Merges of bpe pieces: all pairs of pieces whose concatenation is a piece, the best result first.

    Raises ValueError if there are too many merges: pieces of 1, 2, 3 ... n equal letters have n^2 / 2.
    """
    ranks = {piece: rank for rank, piece in enumerate(sorted(scores, key=lambda piece: -scores[piece]))}
    ranked, num_characters = [], 0
    for piece in scores:
        cuts = [cut for cut in range(1, len(piece)) if piece[:cut] in ranks and piece[cut:] in ranks]
        ranked += [(ranks[piece], ranks[piece[:cut]], ranks[piece[cut:]], piece, cut) for cut in cuts]
        num_characters += len(cuts) * len(piece)
        check_merges(num_characters)
    return [(piece[:cut], piece[cut:]) for *_, piece, cut in sorted(ranked)]


def entry_names(tokenizer: Tokenizer) -> list[str]:
    """Original names of the entries of an imported tokenizer from id 4 on."""
    return [token.removeprefix(ABSENT) for token in tokenizer.tokens(range(len(SPECIAL_TOKENS), tokenizer.vocab_size))]


def model_file(tokenizer: Tokenizer) -> bytes:
    """Content of a SentencePiece model that splits text as an imported tokenizer: the inverse of `tokenizer_of`."""
    state = json.loads(tokenizer.to_json())
    model, steps = state["model"], state["normalizer"]["normalizers"]
    is_bpe = model["type"] == "BPE"
    proto = _import_sentencepiece().ModelProto()
    proto.trainer_spec.model_type = _BPE if is_bpe else _UNIGRAM
    proto.pieces.add(piece="<unk>", score=0.0, type=_UNKNOWN)
    for piece, score in _ranked(model) if is_bpe else model["vocab"]:
        if piece not in SPECIAL_TOKENS and not piece.startswith(ABSENT):
            proto.pieces.add(piece=piece, score=score, type=_NORMAL)
    normalizer = proto.normalizer_spec
    normalizer.name = "imported"
    normalizer.add_dummy_prefix = state["pre_tokenizer"]["prepend_scheme"] == "always"
    normalizer.remove_extra_whitespaces = any(step["type"] == "Strip" for step in steps)
    charsmaps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
    normalizer.precompiled_charsmap = b64decode(charsmaps[0]) if charsmaps else b""
    return bytes(proto.SerializeToString())


def _ranked(model: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Pieces of a bpe model with their scores: minus the rank of the first merge that makes them."""
    merged = dict.fromkeys("".join(pair) for pair in model["merges"])
    pieces = [*merged, *(name for name in model["vocab"] if name not in merged)]
    return [(piece, -float(rank)) for rank, piece in enumerate(pieces)]
