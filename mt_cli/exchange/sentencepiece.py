"""SentencePiece models read as tokenizers, and tokenizers written as such models."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from tokenizers import models

from mt_cli.errors import InputError, one_line
from mt_cli.runtime.files import read_regular, reading
from mt_cli.tokenizer.sentencepiece import MAX_SYMBOLS, SentencePieceSteps, all_merges
from mt_cli.tokenizer.special_tokens import ABSENT, BYTES, SPACE, SPECIAL_TOKENS, UNK, UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.untrusted_files import check_charsmap, check_entries, no_panic

_MAX_FILE_BYTES = 2**24
_UNIGRAM, _BPE = 1, 2
_KINDS = _NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE = range(1, 7)
LOWEST_SCORE = -1e6
"""Score of entries that are no pieces, in unigram models."""


@dataclass(frozen=True)
class Pieces:
    """A SentencePiece model."""

    is_bpe: bool
    scores: Mapping[str, float]
    """Scores of the pieces that text is split into. With bpe, the first of equal scores is merged first."""
    charsmap: bytes
    adds_prefix: bool
    strips_spaces: bool
    symbols: tuple[str, ...] = ()
    """User-defined symbols, which text is never split inside."""
    controls: tuple[str, ...] = ()
    """Control symbols, which no text is split into, and which are decoded as nothing."""
    has_bytes: bool = False
    """Whether characters without a piece are split into bytes."""

    @property
    def names(self) -> list[str]:
        """All entries that text can be split into."""
        return [*self.scores, *self.symbols, *(BYTES if self.has_bytes else ())]

    @property
    def steps(self) -> SentencePieceSteps:
        """Steps of a tokenizer before and after it looks up pieces."""
        splits_words = not any(SPACE in piece[1:] for piece in self.scores)
        spaces = self.adds_prefix, self.strips_spaces, splits_words
        # Of two symbols that begin alike, the longer one is found first.
        symbols = sorted(self.symbols, key=len, reverse=True)
        return SentencePieceSteps(
            self.charsmap, *spaces, self.has_bytes, not self.is_bpe, tuple(symbols), self.controls
        )


def import_sentencepiece() -> Any:
    """The package, with its description of model files; raises InputError if it is not installed."""
    try:
        import sentencepiece.sentencepiece_model_pb2
    except ImportError:
        raise InputError("sentencepiece is not installed; pip install 'sentencepiece>=0.2' 'protobuf>=4'") from None
    return sentencepiece


def _empty_model() -> Any:
    return import_sentencepiece().sentencepiece_model_pb2.ModelProto()


def read_pieces(path: Path) -> Pieces:
    """Read the model in a file; raises InputError if it cannot be read, or no tokenizer can reproduce it."""
    proto = _empty_model()
    with reading(path):
        content = read_regular(path, _MAX_FILE_BYTES)
    try:
        proto.ParseFromString(content)
    except Exception as error:
        raise InputError(f"{path}: not a SentencePiece model: {one_line(error)}") from None
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    names = {kind: tuple(piece.piece for piece in proto.pieces if piece.type == kind) for kind in _KINDS}
    symbols, controls = names[_USER_DEFINED], names[_CONTROL]
    for is_problem, problem in (
        (not proto.pieces, "it has no pieces"),
        (any(not piece.piece or not isfinite(piece.score) for piece in proto.pieces), "pieces without text or score"),
        (len({piece.piece for piece in proto.pieces}) < len(proto.pieces), "a piece occurs twice"),
        (trainer.model_type not in (_UNIGRAM, _BPE), "neither a unigram nor a bpe model"),
        (sorted(names[_BYTE]) not in ([], [*BYTES]), f"it has {len(names[_BYTE])} bytes, not <0x00> to <0xFF>"),
        (any(SPACE in symbol or " " in symbol for symbol in symbols), "user-defined symbols with spaces"),
        (max(len(symbols), len(controls)) > MAX_SYMBOLS, f"more than {MAX_SYMBOLS:,} user-defined or control symbols"),
        (trainer.treat_whitespace_as_suffix, "it treats spaces as suffixes"),
        (not normalizer.escape_whitespaces, "it does not escape spaces"),
        (bool(proto.denormalizer_spec.precompiled_charsmap), "it changes text after decoding"),
    ):
        if is_problem:
            raise InputError(f"{path}: not supported: {problem}")
    return Pieces(
        trainer.model_type == _BPE,
        {piece.piece: piece.score for piece in proto.pieces if piece.type == _NORMAL},
        normalizer.precompiled_charsmap,
        normalizer.add_dummy_prefix,
        normalizer.remove_extra_whitespaces,
        symbols,
        controls,
        bool(names[_BYTE]),
    )


def missing_pieces(sides: Sequence[Pieces], entries: Collection[str]) -> list[str]:
    """Pieces that a vocabulary lacks, in order and without repetition; they are encoded as unknown tokens."""
    return list(dict.fromkeys(piece for side in sides for piece in side.names if piece not in entries))


def tokenizer_of(pieces: Pieces, entries: Sequence[str], tags: Sequence[str] = ()) -> Tokenizer:
    """A tokenizer that splits text as a SentencePiece model does; id 4 + n is entry n.

    The special tokens of `mt` have the ids 0 to 3. Entries that are no pieces of the model can only be decoded.
    Raises InputError if the model is damaged, or too large for the library.
    """
    scores, steps = pieces.scores, pieces.steps
    characters = {symbol: character for character, symbol in steps.names.items()}
    plain = {*scores, *tags, *(BYTES if pieces.has_bytes else ())}
    vocab = [*SPECIAL_TOKENS]
    vocab += [characters.get(entry) or (entry if entry in plain else ABSENT + entry) for entry in entries]
    model: Any
    try:
        check_entries(vocab, is_unigram=True)
        if pieces.charsmap:
            check_charsmap(pieces.charsmap)
        with no_panic():
            if pieces.is_bpe:
                ids = {name: index for index, name in enumerate(vocab)}
                ranks = {piece: rank for rank, piece in enumerate(sorted(scores, key=lambda piece: -scores[piece]))}
                options = {"unk_token": UNK, "fuse_unk": True, "byte_fallback": pieces.has_bytes}
                model = models.BPE(ids, all_merges(ranks), **options)
            else:
                scored = [(name, scores.get(name, LOWEST_SCORE)) for name in vocab]
                model = models.Unigram(scored, unk_id=UNK_ID, byte_fallback=pieces.has_bytes)
            return Tokenizer(steps.backend(model), tags)
    except Exception as error:  # The library raises nothing more specific.
        raise InputError(f"a SentencePiece model cannot be a tokenizer: {one_line(error)}") from None


def entry_names(tokenizer: Tokenizer) -> list[str]:
    """Original names of the entries of an imported tokenizer from id 4 on."""
    return [token.removeprefix(ABSENT) for token in tokenizer.tokens(range(len(SPECIAL_TOKENS), tokenizer.vocab_size))]


def model_file(tokenizer: Tokenizer) -> bytes:
    """Content of a SentencePiece model that splits text into the same pieces as a tokenizer.

    Of an imported tokenizer, it is the inverse of `tokenizer_of`. Of another one, which has
    `spacing: sentencepiece`, the ids are the same, too.
    """
    state = json.loads(tokenizer.to_json())
    tags = tokenizer.tokens(tokenizer.tag_ids)
    is_imported = state["pre_tokenizer"]["type"] != "Split"
    steps = SentencePieceSteps.of(state) if is_imported else SentencePieceSteps(has_bytes=True)
    proto = _empty_model()
    _add_pieces(proto.pieces, state["model"], steps, tags, is_imported)
    proto.trainer_spec.model_type = _BPE if state["model"]["type"] == "BPE" else _UNIGRAM
    proto.trainer_spec.byte_fallback = steps.has_bytes
    proto.trainer_spec.vocab_size = len(proto.pieces)
    if not is_imported:
        for name, token, index in zip(("pad", "unk", "bos", "eos"), SPECIAL_TOKENS, range(4), strict=True):
            setattr(proto.trainer_spec, f"{name}_piece", token)
            setattr(proto.trainer_spec, f"{name}_id", index)
    normalizer = proto.normalizer_spec
    normalizer.name = "imported" if is_imported else "identity"
    normalizer.add_dummy_prefix, normalizer.remove_extra_whitespaces = steps.adds_prefix, steps.strips_spaces
    normalizer.precompiled_charsmap = steps.charsmap
    return bytes(proto.SerializeToString())


def splits_alike(tokenizer: Tokenizer, sentences: Sequence[str]) -> bool:
    """Whether the SentencePiece model of a tokenizer splits sentences into the same pieces.

    Entries that it lacks count as unknown.
    """
    processor = import_sentencepiece().SentencePieceProcessor(model_proto=model_file(tokenizer))
    return all(
        processor.encode(text) == [processor.piece_to_id(piece) for piece in tokenizer.pieces(text)]
        for text in sentences
    )


def _add_pieces(
    pieces: Any, model: Mapping[str, Any], steps: SentencePieceSteps, tags: Sequence[str], is_imported: bool
) -> None:
    """Add the entries of a model to the pieces of a SentencePiece model.

    An imported tokenizer has entries that are no pieces, so only the names and the scores of pieces are kept.
    """
    kinds: dict[str, int | None] = dict.fromkeys(BYTES if steps.has_bytes else (), _BYTE)
    if is_imported:
        pieces.add(piece="<unk>", score=0.0, type=_UNKNOWN)
        for name in steps.controls:
            pieces.add(piece=name, score=0.0, type=_CONTROL)
        kinds |= dict.fromkeys(steps.names, _USER_DEFINED) | dict.fromkeys((*SPECIAL_TOKENS, *tags))
    else:
        kinds |= dict.fromkeys((*SPECIAL_TOKENS, *tags), _CONTROL) | {UNK: _UNKNOWN}
    is_bpe = model["type"] == "BPE"
    scores = ranked(model["merges"], model["vocab"]) if is_bpe else dict(model["vocab"])
    names = model["vocab"] if is_bpe else scores
    for name in names:
        kind = kinds.get(name, _NORMAL)
        if kind is not None and not name.startswith(ABSENT):
            score = scores[name] if kind == _NORMAL else 0.0
            pieces.add(piece=steps.names.get(name, name), score=score, type=kind)


def ranked(merges: Iterable[Iterable[str]], names: Iterable[str]) -> dict[str, float]:
    """Score of each piece of a bpe model: minus the rank of the first merge that makes it; others follow in order."""
    made = dict.fromkeys(map("".join, merges))
    return {piece: -float(rank) for rank, piece in enumerate(dict.fromkeys([*made, *names]))}
