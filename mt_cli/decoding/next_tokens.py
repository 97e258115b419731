"""The likeliest next tokens of each row, or a sample.

Legend of the shapes: R rows, V vocabulary, C candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.constraints import TokenMask, select
from mt_cli.model.kernels import is_cpu

_ELEMENTS_AT_ONCE = 2**19
"""Log-probabilities computed at a time on a CPU: as many as stay in its caches."""
_SEGMENT = 64


def best_tokens(logits_RV: Tensor, number: int, mask: TokenMask) -> tuple[Tensor, Tensor]:
    """RxC log-probabilities in fp32 and tokens of the `number` likeliest (at most V), best first.

    Masked tokens have -inf; their probability does not go to other tokens. NaN counts as the likeliest.
    """
    num_rows, size = logits_RV.shape
    at_once = max(1, _ELEMENTS_AT_ONCE // size) if is_cpu(logits_RV) else num_rows
    segments = [slice(start, start + at_once) for start in range(0, num_rows, at_once)]
    log_probs = (
        select(mask, rows).apply(logits_RV[rows].log_softmax(dim=-1, dtype=torch.float32)) for rows in segments
    )
    values, tokens = zip(*(largest(segment, number) for segment in log_probs), strict=True)
    return mask.without_prefix(torch.cat(values)), torch.cat(tokens)


def sampled_tokens(
    logits_RV: Tensor, random_numbers_R: Tensor, decoding: DecodingConfig, mask: TokenMask
) -> tuple[Tensor, Tensor]:
    """Rx1 log-probabilities in fp32 and tokens, sampled with random numbers from 0 to 1.

    The distribution is divided by `temperature`, then truncated to the likeliest tokens with a total probability of
    `top_p` (Holtzman et al. 2020, section 3.1). The log-probabilities are those of the unchanged model.
    """
    log_probs_RV = mask.apply(logits_RV.log_softmax(dim=-1, dtype=torch.float32))
    if decoding.top_p is None:  # No sorting, which takes most of the time.
        values_R1, tokens_R1 = _sampled(
            log_probs_RV, (log_probs_RV / decoding.temperature).softmax(dim=-1), random_numbers_R
        )
        return mask.without_prefix(values_R1), tokens_R1
    values_RV, tokens_RV = log_probs_RV.sort(dim=-1, descending=True)
    weights_RV = (values_RV / decoding.temperature).softmax(dim=-1)
    sums_before_RV = weights_RV.cumsum(dim=-1) - weights_RV
    # The likeliest token is kept, however small `top_p` is.
    weights_RV = weights_RV.masked_fill((sums_before_RV > 0) & (sums_before_RV >= decoding.top_p), 0.0)
    values_R1, ranks_R1 = _sampled(values_RV, weights_RV, random_numbers_R)
    return mask.without_prefix(values_R1), tokens_RV.gather(1, ranks_R1)


def _sampled(values_RC: Tensor, weights_RC: Tensor, random_numbers_R: Tensor) -> tuple[Tensor, Tensor]:
    """Rx1 values and offsets, each sampled with a random number from 0 to 1; a value is NaN if the weights are NaN."""
    sums_RC = weights_RC.cumsum(dim=-1)
    total_R1 = sums_RC[:, -1:].contiguous()
    offsets_R1 = torch.searchsorted(sums_RC, random_numbers_R[:, None] * total_R1, right=True)
    offsets_R1 = offsets_R1.clamp(max=sums_RC.shape[1] - 1)
    # A number near 1 may be rounded up to the total, and sums on a GPU may rise where the weight is 0.
    has_weight_R1 = weights_RC.gather(1, offsets_R1) > 0
    offsets_R1 = torch.where(has_weight_R1, offsets_R1, weights_RC.argmax(dim=-1, keepdim=True))
    return values_RC.gather(1, offsets_R1).masked_fill(total_R1.isnan(), torch.nan), offsets_R1


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
