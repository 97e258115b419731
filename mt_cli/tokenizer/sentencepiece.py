"""Vocabularies of imported models, which the library SentencePiece (Kudo and Richardson 2018) splits text into."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from sentencepiece.sentencepiece_pb2 import SentencePieceText

from mt_cli.tokenizer.special_tokens import ABSENT, BYTE_ENTRIES, LANGUAGE_ENTRY, SPACE, UNK_ID

UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_SCORE_UNIT = 2.0**-10
"""Scores are multiples of this number, so that sums of the fp32 numbers of SentencePiece are exact, and ties alike."""


@dataclass(frozen=True)
class Encoding:
    """Ids and tokens of a text, and the start and end of each token in it."""

    ids: list[int]
    tokens: Sequence[str] = ()
    offsets: Sequence[tuple[int, int]] = ()


class SentencePieces:
    """Entries, and the model that splits text into some of them; its methods are those of `tokenizers.Tokenizer`.

    An entry that begins with `ABSENT` is no piece of the model. Like Marian, texts that are unknown to the model are
    looked up among these entries, unless they are marks of a vocabulary with languages.
    """

    def __init__(self, model: bytes, entries: Sequence[str]) -> None:
        self.model, self.entries = model, [*entries]
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._ids = {entry: index for index, entry in enumerate(entries)}
        pieces = map(self._processor.id_to_piece, range(self._processor.vocab_size()))
        self._our_ids = [self._ids.get(piece, UNK_ID) for piece in pieces]
        marks = ("<", "[") if any(map(LANGUAGE_ENTRY.fullmatch, entries)) else ()
        names = {entry.removeprefix(ABSENT): entry for entry in entries if entry.startswith(ABSENT)}
        self._absent = {name: self._ids[entry] for name, entry in names.items() if not name.startswith(marks)}
        self.decoder = self

    @classmethod
    def from_str(cls, text: str) -> SentencePieces:
        state = json.loads(text)
        return cls(b64decode(state["sentencepiece"], validate=True), state["entries"])

    def to_str(self, pretty: bool = False) -> str:
        """Content of a tokenizer file: the entries, and the model as base64."""
        state = {"sentencepiece": b64encode(self.model).decode(), "entries": self.entries}
        return json.dumps(state, ensure_ascii=False, indent=1 if pretty else None)

    @cached_property
    def proto(self) -> Any:
        return ModelProto.FromString(self.model)

    def get_vocab(self) -> dict[str, int]:
        return dict(self._ids)

    def get_vocab_size(self) -> int:
        return len(self.entries)

    def token_to_id(self, token: str) -> int | None:
        return self._ids.get(token)

    def id_to_token(self, index: int) -> str | None:
        return self.entries[index] if index < len(self.entries) else None

    def encode_batch_fast(self, texts: Sequence[str]) -> list[Encoding]:
        return [Encoding(self._looked_up(*both)) for both in zip(texts, self._processor.encode([*texts]), strict=True)]

    def _looked_up(self, text: str, ids: list[int]) -> list[int]:
        ours = [self._our_ids[index] for index in ids]
        if UNK_ID not in ours or not self._absent:
            return ours
        pieces = self._processor.encode(text, out_type=str)
        return [self._absent.get(pieces[n], UNK_ID) if index == UNK_ID else index for n, index in enumerate(ours)]

    def encode(self, text: str) -> Encoding:
        """Ids, tokens and offsets of a text; of the bytes of a character, the first has its offsets."""
        pieces = SentencePieceText.FromString(self._processor.encode(text, out_type="serialized_proto")).pieces
        ids = self._looked_up(text, [piece.id for piece in pieces])
        ends = accumulate((len(character.encode()) for character in text), initial=0)
        numbers = {end: number for number, end in enumerate(ends)}  # The library counts bytes.
        tokens = [self.entries[index] for index in ids]
        offsets = [(numbers[piece.begin], numbers[piece.end]) for piece in pieces]
        for index in reversed(range(1, len(tokens))):  # The library gives them to the last byte.
            (before, start), (_, end) = offsets[index - 1 : index + 1]
            if before == start < end and {tokens[index - 1], tokens[index]} <= BYTE_ENTRIES:
                offsets[index - 1 : index + 1] = [(start, end), (end, end)]
        return Encoding(ids, tokens, offsets)

    def segment(self, piece: str) -> list[int]:
        """Ids of a text in which spaces are written as `▁`, without normalisation."""
        return [self._our_ids[index] for index in self._plain.encode(piece)]

    @cached_property
    def _plain(self) -> Any:
        proto = ModelProto.FromString(self.model)
        normalizer = proto.normalizer_spec
        normalizer.add_dummy_prefix = normalizer.remove_extra_whitespaces = False
        normalizer.precompiled_charsmap = b""
        return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())

    def normalize(self, text: str) -> str:
        """Text as the model splits it."""
        return str(self._processor.normalize(text))

    def decode(self, tokens: Sequence[str]) -> str:
        """Text of tokens, which need not be entries."""
        return self._joined([[token.removeprefix(ABSENT) for token in tokens]])[0]

    def decode_batch(self, ids: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> list[str]:
        return self._joined([[self.entries[index].removeprefix(ABSENT) for index in sequence] for sequence in ids])

    def _joined(self, sequences: list[list[str]]) -> list[str]:
        """Texts of tokens; those that are no pieces keep their `▁`, which is a space, too."""
        texts = [self._processor.decode(tokens).replace(SPACE, " ") if tokens else "" for tokens in sequences]
        return [text.lstrip(" ") for text in texts] if self.proto.normalizer_spec.remove_extra_whitespaces else texts

    def extended(self, entries: Iterable[str], scores: Mapping[str, float]) -> SentencePieces:
        """Vocabulary with further entries; those with a score are pieces of the model. With bpe, they come last."""
        proto = ModelProto.FromString(self.model)
        lowest = min(piece.score for piece in proto.pieces)
        is_bpe = proto.trainer_spec.model_type == BPE
        for rank, (piece, score) in enumerate(scores.items(), start=1):
            proto.pieces.add(piece=piece, score=lowest - rank if is_bpe else score, type=NORMAL)
        return SentencePieces(proto.SerializeToString(), [*self.entries, *entries])


def rounded_score(score: float) -> float:
    """Score of a unigram piece, rounded so that `tokenizers` and SentencePiece compare the same sums."""
    return round(score / _SCORE_UNIT) * _SCORE_UNIT


def all_merges(ranks: Mapping[str, int], made: Collection[str] | None = None) -> list[tuple[str, str]]:
    """Merges that SentencePiece makes: every two pieces whose concatenation is a piece, the lowest rank first.

    With `made`, only merges to these pieces are listed.

    SentencePiece makes equal merges from left to right. Of two merges to the same piece that overlap, the left one ends
    in a part with which the piece also begins, so it comes first here.
    """
    ranked = [
        (rank, piece.endswith(piece[:cut]), ranks[piece[:cut]], ranks[piece[cut:]], piece, cut)
        for piece, rank in ranks.items()
        if made is None or piece in made
        for cut in range(1, len(piece))
        if piece[:cut] in ranks and piece[cut:] in ranks
    ]
    return [(piece[:cut], piece[cut:]) for *_, piece, cut in sorted(ranked)]
