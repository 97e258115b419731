"""What a translation may look like: how long, what never, what twice, how it begins. Knows ids, not models.

Legend of the shapes: B sentences, N hypotheses of each, R = B x N rows, T target positions, P positions of a prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.tokenizer import EOS_ID, PAD_ID, SOS_ID, UNK_ID

NEVER_PRODUCED = (PAD_ID, SOS_ID)
FREE = -1
"""Stands where no token is forced."""
_TOKENS_BESIDE_RATIO = 10


@dataclass(frozen=True)
class Allowed:
    """Which tokens may come next."""

    forbidden: tuple[int, ...]
    """In no row."""
    forced: Tensor
    """R, the only token that may come, or FREE."""
    repeated: Tensor | None = None
    """RxK, tokens that this row may not produce (filled up with [PAD]); None: no row has any."""

    def split(self, rows: int) -> list[Allowed]:
        """The same for so many rows at a time."""
        forced = self.forced.split(rows)
        repeated: Sequence[Tensor | None] = [None] * len(forced) if self.repeated is None else self.repeated.split(rows)
        return [Allowed(self.forbidden, *each) for each in zip(forced, repeated, strict=True)]

    def apply(self, log_probs_RV: Tensor) -> Tensor:
        """Log-probabilities with -inf for what may not come; the probability of that is not given to other tokens.

        A row that would have nothing left may end.
        """
        ends_R = log_probs_RV[:, EOS_ID].clone()
        if (is_forced_R := self.forced != FREE).any():
            forced_R1 = self.forced[is_forced_R, None]
            kept_R1 = log_probs_RV[is_forced_R].gather(1, forced_R1)
            only_RV = torch.full_like(log_probs_RV[is_forced_R], -torch.inf).scatter_(1, forced_R1, kept_R1)
        for token in self.forbidden:
            log_probs_RV[:, token] = -torch.inf
        if self.repeated is not None:
            log_probs_RV.scatter_(1, self.repeated, -torch.inf)
        if is_forced_R.any():
            log_probs_RV[is_forced_R] = only_RV
        if EOS_ID in self.forbidden:
            is_stuck_R = log_probs_RV.amax(dim=1).isneginf()
            log_probs_RV[:, EOS_ID] = torch.where(is_stuck_R, ends_R, log_probs_RV[:, EOS_ID])
        return log_probs_RV


@dataclass(frozen=True)
class Constraints:
    """The limits of the translations of a batch."""

    decoding: DecodingConfig
    max_lengths: Tensor
    """B, tokens before [EOS]."""
    prefixes: Tensor
    """BxP, how the translations begin; FREE after that."""

    @classmethod
    def of(
        cls, src_ids: Tensor, decoding: DecodingConfig, prefixes: Sequence[Sequence[int]], max_positions: int | None
    ) -> Constraints:
        """Those of sources BxS; a translation has at most `max_positions` tokens, [EOS] included."""
        device = src_ids.device
        max_lengths_B = (((src_ids != PAD_ID).sum(dim=1) - 1) * decoding.max_length_ratio).long() + _TOKENS_BESIDE_RATIO
        if decoding.max_length is not None:
            max_lengths_B = max_lengths_B.clamp(max=decoding.max_length)
        longest = max(map(len, prefixes), default=0)
        prefixes_BP = torch.full((len(src_ids), longest), FREE, device=device)
        for row, prefix in enumerate(prefixes):
            prefixes_BP[row, : len(prefix)] = torch.tensor(prefix, dtype=torch.int64)
        max_lengths_B = torch.maximum(max_lengths_B, (prefixes_BP != FREE).sum(dim=1))
        if max_positions is not None:
            max_lengths_B = max_lengths_B.clamp(max=max_positions - 1)
        return cls(decoding, max_lengths_B, prefixes_BP)

    def select(self, sentences: Tensor) -> Constraints:
        """Those of these sentences."""
        return replace(self, max_lengths=self.max_lengths[sentences], prefixes=self.prefixes[sentences])

    def next_after(self, ids_BNT: Tensor) -> Allowed:
        """What may follow hypotheses."""
        num_beams, length = ids_BNT.shape[1:]
        forced_B = torch.where(self.max_lengths == length, EOS_ID, FREE)
        if length < self.prefixes.shape[1]:
            forced_B = torch.where(self.prefixes[:, length] != FREE, self.prefixes[:, length], forced_B)
        forbidden: tuple[int, ...] = NEVER_PRODUCED
        if self.decoding.unk == "avoid":
            forbidden = (*forbidden, UNK_ID)
        if length < self.decoding.min_length:
            forbidden = (*forbidden, EOS_ID)
        size = self.decoding.no_repeat_ngram
        repeated = None if size is None or length < size else _repeated(ids_BNT.flatten(0, 1), size)
        return Allowed(forbidden, forced_B.repeat_interleave(num_beams), repeated)


def _repeated(ids_RT: Tensor, size: int) -> Tensor:
    """RxK tokens that would make the last tokens an n-gram of this size that a row has already; [PAD] elsewhere."""
    windows_RKC = ids_RT.unfold(1, size, 1)
    last_R1C = ids_RT[:, None, ids_RT.shape[1] - size + 1 :]
    is_repeated_RK = (windows_RKC[..., :-1] == last_R1C).all(dim=-1)
    return torch.where(is_repeated_RK, windows_RKC[..., -1], PAD_ID)
