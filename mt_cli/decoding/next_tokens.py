"""The next tokens: which are allowed (by length, prefix and repetitions), and the likeliest of them, or a sample.

Exports to other engines set the same options: `features/exchange/ctranslate2.py` and `transformers_folder.py`.

Legend of the shapes: B sentences, N hypotheses of each, R = B x N rows, T target positions, P positions of a prefix,
V vocabulary, C candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.reserved_ids import ReservedIds
from mt_cli.model.kernels import is_cpu
from mt_cli.tokenizer.special_tokens import EOS_ID, PAD_ID, SOS_ID, UNK_ID

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NEVER_PRODUCED = (PAD_ID, SOS_ID)
FREE = -1  # Stands in place of a forced token if none is forced.
TOKENS_BESIDE_RATIO = 10
_ELEMENTS_AT_ONCE = 2**19
"""Log-probabilities computed at a time on a CPU: as many as stay in its caches."""

_SEGMENT = 64

Prefixes = Sequence[Sequence[int]]
S = TypeVar("S", bound="DataclassInstance")


def map_tensors(state: S, change: Callable[[Tensor], Tensor]) -> S:
    """Copy of a dataclass with every tensor changed."""
    tensors = {name: value for name, value in vars(state).items() if isinstance(value, Tensor)}
    return replace(state, **{name: change(tensor) for name, tensor in tensors.items()})


def select(state: S, rows: Tensor | slice) -> S:
    """Copy of a dataclass with only these rows of every tensor."""
    return map_tensors(state, lambda tensor: tensor[rows])


def max_length(num_source_tokens: int, decoding: DecodingConfig) -> int:
    """Maximum number of tokens before [EOS] for a source of this length; `Constraints.of` computes it for a batch."""
    longest = int(num_source_tokens * decoding.max_length_ratio) + TOKENS_BESIDE_RATIO
    return min(longest, decoding.max_length or longest)


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
        max_lengths_B = (((src_ids != PAD_ID).sum(dim=1) - 1) * decoding.max_length_ratio).long() + TOKENS_BESIDE_RATIO
        if decoding.max_length is not None:
            max_lengths_B = max_lengths_B.clamp(max=decoding.max_length)
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
        if length < decoding.min_length:
            forbidden.append(EOS_ID)
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


def best_tokens(logits_RV: Tensor, number: int, mask: TokenMask) -> tuple[Tensor, Tensor]:
    """RxC log-probabilities in fp32 and tokens of the `number` likeliest (at most V), best first.

    Masked tokens have -inf; their probability does not go to other tokens. NaN counts as the likeliest.
    """
    num_rows, size = logits_RV.shape
    at_once = max(1, _ELEMENTS_AT_ONCE // size) if is_cpu(logits_RV) else num_rows
    segments = [slice(start, start + at_once) for start in range(0, num_rows, at_once)]
    log_probs = (select(mask, rows).apply(log_softmax(logits_RV[rows])) for rows in segments)
    values, tokens = zip(*(largest(segment, number) for segment in log_probs), strict=True)
    return torch.cat(values), torch.cat(tokens)


def log_softmax(logits_RV: Tensor) -> Tensor:
    """Log-probabilities in fp32; on a GPU, in one kernel."""
    return logits_RV.log_softmax(dim=-1, dtype=torch.float32)


def sampled_tokens(
    logits_RV: Tensor, random_numbers_R: Tensor, decoding: DecodingConfig, mask: TokenMask
) -> tuple[Tensor, Tensor]:
    """Rx1 log-probabilities in fp32 and tokens, sampled with random numbers from 0 to 1.

    The distribution is divided by `temperature`, then truncated to the `top_k` likeliest tokens (Fan et al. 2018,
    section 5.4), then to the likeliest tokens with a total probability of `top_p` (Holtzman et al. 2020, section 3.1).
    The log-probabilities are those of the unchanged model.
    """
    log_probs_RV = mask.apply(log_softmax(logits_RV))
    if decoding.top_k is None and decoding.top_p is None:  # No sorting, which takes most of the time.
        return _sampled(log_probs_RV, (log_probs_RV / decoding.temperature).softmax(dim=-1), random_numbers_R)
    values_RC, tokens_RC = largest(log_probs_RV, decoding.top_k or log_probs_RV.shape[1])
    weights_RC = (values_RC / decoding.temperature).softmax(dim=-1)
    if decoding.top_p is not None:
        sums_before_RC = weights_RC.cumsum(dim=-1) - weights_RC
        # The likeliest token is kept, however small `top_p` is.
        weights_RC = weights_RC.masked_fill((sums_before_RC > 0) & (sums_before_RC >= decoding.top_p), 0.0)
    values_R1, ranks_R1 = _sampled(values_RC, weights_RC, random_numbers_R)
    return values_R1, tokens_RC.gather(1, ranks_R1)


def _sampled(values_RC: Tensor, weights_RC: Tensor, random_numbers_R: Tensor) -> tuple[Tensor, Tensor]:
    """Rx1 values and places, each sampled with a random number from 0 to 1; a value is NaN if the weights are NaN."""
    sums_RC = weights_RC.cumsum(dim=-1)
    total_R1 = sums_RC[:, -1:].contiguous()
    places_R1 = torch.searchsorted(sums_RC, random_numbers_R[:, None] * total_R1, right=True)
    places_R1 = places_R1.clamp(max=sums_RC.shape[1] - 1)
    # A number near 1 may be rounded up to the total, and sums on a GPU may rise at places without weight.
    has_weight_R1 = weights_RC.gather(1, places_R1) > 0
    places_R1 = torch.where(has_weight_R1, places_R1, weights_RC.argmax(dim=-1, keepdim=True))
    return values_RC.gather(1, places_R1).masked_fill(total_R1.isnan(), torch.nan), places_R1


def largest(values_RV: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """RxC values and indices, largest first, of the `number` largest in each row (at most V).

    The largest values lie in the `number` segments of a row with the largest maxima, so only these segments are sorted
    (256 x 8,000 on one core: 1.7 ms, against 3.1 for `topk` of whole rows). On GPUs, a maximum is one kernel.
    """
    size = values_RV.shape[1]
    if number == 1 and not is_cpu(values_RV):
        maxima_R1, indices_R1 = values_RV.max(dim=-1, keepdim=True)
        return maxima_R1, indices_R1
    num_segments = size // _SEGMENT
    if num_segments <= number:
        values_RC, indices_RC = values_RV.topk(min(number, size))
        return values_RC, indices_RC
    end = num_segments * _SEGMENT
    _, segments_RC = values_RV[:, :end].unflatten(1, (num_segments, _SEGMENT)).amax(dim=-1).topk(number)
    within = torch.arange(_SEGMENT, device=values_RV.device)
    candidates = (segments_RC[..., None] * _SEGMENT + within).flatten(1)
    if end < size:
        rest = torch.arange(end, size, device=values_RV.device).expand(len(values_RV), -1)
        candidates = torch.cat([candidates, rest], dim=1)
    values_RC, ranks_RC = values_RV.gather(1, candidates).topk(number)
    return values_RC, candidates.gather(1, ranks_RC)
