"""Constraints of a search: lengths, prefixes, repetitions, and reserved tokens of the source.

Exports to other engines set the same options: `exchange/ctranslate2.py` and `transformers_folder.py`.

Legend of the shapes: B sentences, N hypotheses of each, R = B x N rows, T target positions, P positions of a prefix,
V vocabulary, C candidates, K reserved characters, A tokens of a character.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import max_length
from mt_cli.tokenizer.special_tokens import EOS_ID, NEVER_PRODUCED, PAD_ID, UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FREE = -1  # Instead of a forced token if none is forced.

Prefixes = Sequence[Sequence[int]]
S = TypeVar("S", bound="DataclassInstance")


def map_tensors(state: S, change: Callable[[Tensor], Tensor]) -> S:
    """Copy of a dataclass with every tensor changed."""
    tensors = {name: value for name, value in vars(state).items() if isinstance(value, Tensor)}
    return replace(state, **{name: change(tensor) for name, tensor in tensors.items()})


def select(state: S, rows: Tensor | slice) -> S:
    """Copy of a dataclass with only these rows of every tensor."""
    return map_tensors(state, lambda tensor: tensor[rows])


@dataclass(frozen=True)
class ReservedIds:
    """Tokens of K reserved characters. A translation has each character as often as its source."""

    source: Tensor  # V, number of the character of each token; K for other tokens.
    target: Tensor  # V, the same for tokens of the target.
    target_ids: Tensor  # KxA, tokens of each character.
    orders: Sequence[Sequence[int]] = ()  # Numbers of the characters that keep their order, for each source.

    @classmethod
    def of(cls, tokenizers: TokenizerPair) -> ReservedIds | None:
        """Reserved tokens of tokenizers; None if they have none."""
        ids = [torch.tensor(tokenizer.reserved_ids) for tokenizer in tokenizers]
        if not all(map(len, ids)):
            return None
        numbers = [torch.full((tokenizer.vocab_size,), len(ids[0])) for tokenizer in tokenizers]
        for numbers_V, ids_KA in zip(numbers, ids, strict=True):
            numbers_V[ids_KA] = torch.arange(len(ids_KA))[:, None]
        return cls(numbers[0], numbers[1], ids[1])

    def counts(self, ids: Tensor, numbers_V: Tensor) -> Tensor:
        """How often each character occurs in ids ...xT: ...xK."""
        counts = ids.new_zeros(*ids.shape[:-1], len(self.target_ids) + 1)
        return counts.scatter_add_(-1, numbers_V[ids], torch.ones_like(ids))[..., :-1]

    @property
    def before(self) -> Tensor | None:
        """BxK, number of the character that must come before each one, or K; None if there is none."""
        if not any(self.orders):
            return None
        before_BK = torch.full((len(self.orders), len(self.target_ids)), len(self.target_ids))
        for before_K, order in zip(before_BK, self.orders, strict=True):
            for first, second in pairwise(order):
                before_K[second] = first
        return before_BK


@dataclass(frozen=True)
class TokenMask:
    """Tokens that are allowed next, row by row."""

    forbidden: tuple[int, ...]  # In all rows.
    forced: Tensor | None = None  # R, the only allowed token, or FREE; None if all rows are free.
    repeated: Tensor | None = None  # RxC, tokens that a row may not produce, padded with [PAD].
    missing: Tensor | None = None  # RxC, reserved tokens that a row lacks, padded with [PAD]; then it may not end.
    given: Tensor | None = None  # R, True where the forced token is in a prefix.

    def without_prefix(self, log_probs_RC: Tensor) -> Tensor:
        """Log-probabilities in which a token of a prefix counts nothing, because it is given and not chosen."""
        if self.given is None:
            return log_probs_RC
        return log_probs_RC.masked_fill(self.given[:, None] & log_probs_RC.isfinite(), 0.0)

    def apply(self, log_probs_RV: Tensor) -> Tensor:
        """Write -inf for tokens that are not allowed; [EOS] is allowed if no other token is."""
        is_by_row = any(value is not None for value in (self.forced, self.repeated, self.missing))
        can_be_stuck = is_by_row or log_probs_RV.shape[1] <= len(self.forbidden)
        ends_R = log_probs_RV[:, EOS_ID].clone() if can_be_stuck else None
        if self.forced is not None:
            is_free_R1, forced_R1 = (self.forced == FREE)[:, None], self.forced.clamp(min=0)[:, None]
            kept_R1 = log_probs_RV.gather(1, forced_R1)
        if self.missing is not None:
            # Where a row would end, it produces what it lacks: these tokens get the probability of [EOS].
            values_RC = log_probs_RV.gather(1, self.missing).logaddexp(log_probs_RV[:, EOS_ID, None])
            log_probs_RV.scatter_(1, self.missing, values_RC)
            log_probs_RV[:, EOS_ID].masked_fill_((self.missing != PAD_ID).any(dim=1), -torch.inf)
        for token in self.forbidden:
            log_probs_RV[:, token] = -torch.inf
        if self.repeated is not None:
            log_probs_RV.scatter_(1, self.repeated, -torch.inf)
        if self.forced is not None:
            only_R1 = torch.where(is_free_R1, log_probs_RV.gather(1, forced_R1), kept_R1)
            log_probs_RV.masked_fill_(~is_free_R1, -torch.inf).scatter_(1, forced_R1, only_R1)
        if EOS_ID in self.forbidden and ends_R is not None:
            is_stuck_R = log_probs_RV.amax(dim=1).isneginf()
            log_probs_RV[:, EOS_ID] = torch.where(is_stuck_R, ends_R, log_probs_RV[:, EOS_ID])
        return log_probs_RV


@dataclass(frozen=True)
class Constraints:
    """Limits of the translations of a batch."""

    decoding: DecodingConfig
    ends_at: frozenset[int]  # The values of `max_lengths`, so that no step has to read them from the device.
    max_lengths: Tensor  # B, tokens before [EOS].
    prefixes: Tensor  # BxP, the first tokens of a translation, then FREE.
    reserved: ReservedIds | None = None
    copies: Tensor | None = None  # BxK, how often a translation has each reserved character.
    before: Tensor | None = None  # BxK, the character that must come before each one, or K.

    @classmethod
    def of(
        cls,
        src_ids: Tensor,
        decoding: DecodingConfig,
        prefixes: Prefixes,
        reserved: ReservedIds | None = None,
    ) -> Constraints:
        """Constraints for sources BxS."""
        lengths = ((src_ids != PAD_ID).sum(dim=1) - 1).tolist()
        max_lengths_B = torch.tensor([max_length(length, decoding) for length in lengths], device=src_ids.device)
        prefixes_BP = torch.full((len(src_ids), max(map(len, prefixes), default=0)), FREE, device=src_ids.device)
        for row, prefix in enumerate(prefixes):
            prefixes_BP[row, : len(prefix)] = torch.tensor(prefix, dtype=torch.int64)
        max_lengths_B = torch.maximum(max_lengths_B, (prefixes_BP != FREE).sum(dim=1))
        limits = decoding, frozenset(max_lengths_B.tolist()), max_lengths_B, prefixes_BP
        if reserved is None:
            return cls(*limits)
        return cls(*limits, reserved, reserved.counts(src_ids, reserved.source), reserved.before)

    def to(self, device: torch.device) -> Constraints:
        """Constraints with their tensors on a device."""
        moved = map_tensors(self, lambda tensor: tensor.to(device))
        if self.reserved is None:
            return moved
        return replace(moved, reserved=map_tensors(self.reserved, lambda tensor: tensor.to(device)))

    def next_after(self, ids_BNT: Tensor) -> TokenMask:
        """Mask of the tokens that may follow these hypotheses."""
        decoding, (num_beams, length) = self.decoding, ids_BNT.shape[1:]
        forced_R, given_R = None, None
        if length in self.ends_at or length < self.prefixes.shape[1]:
            forced_B = torch.where(self.max_lengths == length, EOS_ID, FREE)
            if length < self.prefixes.shape[1]:
                is_given_B = self.prefixes[:, length] != FREE
                forced_B = torch.where(is_given_B, self.prefixes[:, length], forced_B)
                given_R = is_given_B.repeat_interleave(num_beams)
            forced_R = forced_B.repeat_interleave(num_beams)
        forbidden = [*NEVER_PRODUCED]
        if decoding.unk == "avoid":
            forbidden.append(UNK_ID)
        repeated, size = None, decoding.no_repeat_ngram
        if size is not None and length >= size:
            # A token repeats an n-gram of the row if it followed the last n - 1 tokens of the row before.
            windows_RKC = ids_BNT.flatten(0, 1).unfold(1, size, 1)
            last_R1C = ids_BNT.flatten(0, 1)[:, None, length - size + 1 :]
            is_repeated_RK = (windows_RKC[..., :-1] == last_R1C).all(dim=-1)
            repeated = torch.where(is_repeated_RK, windows_RKC[..., -1], PAD_ID)
        mask = TokenMask(tuple(forbidden), forced_R, repeated, given=given_R)
        return mask if self.reserved is None else self._with_reserved(self.reserved, mask, ids_BNT)

    def _with_reserved(self, reserved: ReservedIds, mask: TokenMask, ids_BNT: Tensor) -> TokenMask:
        """Mask by which each row gets the reserved tokens of its source, each as often as there, and in order."""
        assert self.copies is not None
        missing_BNK = (self.copies[:, None] - reserved.counts(ids_BNT, reserved.target)).clamp(min=0)
        is_missing_BNK = missing_BNK > 0
        if self.before is not None:
            padded = torch.nn.functional.pad(missing_BNK, (0, 1))
            is_missing_BNK &= padded.gather(-1, self.before[:, None].expand_as(missing_BNK)) == 0
        is_missing_BNK1 = is_missing_BNK[..., None]
        spent_RC, missing_RC = (
            torch.where(condition, reserved.target_ids, PAD_ID).flatten(2).flatten(0, 1)
            for condition in (~is_missing_BNK1, is_missing_BNK1)
        )
        # The last positions are for what is missing.
        first_BN = reserved.target_ids[:, 0][is_missing_BNK.int().argmax(dim=-1)]
        num_left_B1 = self.max_lengths[:, None] - ids_BNT.shape[2]
        is_late_BN = (num_left_B1 > 0) & (num_left_B1 <= missing_BNK.sum(dim=-1))
        free_R = torch.full_like(first_BN, FREE).flatten() if mask.forced is None else mask.forced
        forced_R = torch.where(is_late_BN.flatten() & (free_R == FREE), first_BN.flatten(), free_R)
        repeated_RC = spent_RC if mask.repeated is None else torch.cat([mask.repeated, spent_RC], dim=1)
        return replace(mask, forced=forced_R, repeated=repeated_RC, missing=missing_RC)
