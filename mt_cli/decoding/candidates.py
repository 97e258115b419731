"""The tokens that may come next, out of a model's scores: the likeliest ones, or some drawn by lot.

Legend of the shapes: R rows, V vocabulary, C candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.constraints import Allowed
from mt_cli.errors import DivergenceError

_STRETCH = 64
_ELEMENTS_AT_ONCE = 2**19


def best_tokens(logits_RV: Tensor, number: int, allowed: Allowed) -> tuple[Tensor, Tensor]:
    """RxC log-probabilities in fp32 and tokens, best first, of the `number` likeliest (or V, if there are fewer).

    What is not allowed has -inf; its probability is not given to other tokens.
    """
    is_cpu = logits_RV.device.type == "cpu"
    rows = max(1, _ELEMENTS_AT_ONCE // logits_RV.shape[1]) if is_cpu else len(logits_RV)
    # So few rows at a time that all values stay in a processor's cache.
    found = [
        largest(part.apply(logits.float().log_softmax(dim=-1)), number)
        for logits, part in zip(logits_RV.split(rows), allowed.split(rows), strict=True)
    ]
    values, tokens = zip(*found, strict=True)
    return _numbers(torch.cat(values)), torch.cat(tokens)


def drawn_tokens(
    logits_RV: Tensor, chances_R: Tensor, decoding: DecodingConfig, allowed: Allowed
) -> tuple[Tensor, Tensor]:
    """Rx1 log-probabilities in fp32, and tokens drawn with numbers `chances` from 0 to 1.

    Probabilities are sharpened by `temperature`, and then only the `top_k` likeliest tokens are left (Fan et al. 2018,
    section 5.4), and of these the likeliest that together have a share of `top_p` (Holtzman et al. 2020, section 3.1).
    The log-probabilities are those of the model as it is.
    """
    log_probs_RV = allowed.apply(logits_RV.float().log_softmax(dim=-1))
    number = log_probs_RV.shape[1] if decoding.top_k is None else decoding.top_k
    values_RC, tokens_RC = largest(log_probs_RV, number)
    _numbers(values_RC)
    weights_RC = (values_RC / decoding.temperature).softmax(dim=-1)
    if decoding.top_p is not None:
        before_RC = weights_RC.cumsum(dim=-1) - weights_RC
        # The likeliest token stays, however small the share is.
        weights_RC = weights_RC.masked_fill((before_RC > 0) & (before_RC >= decoding.top_p), 0.0)
    sums_RC = weights_RC.cumsum(dim=-1)
    ranks_R1 = torch.searchsorted(sums_RC, chances_R[:, None] * sums_RC[:, -1:], right=True)
    # A number near 1 may be rounded up to the sum of all: the last that has any weight then.
    last_R1 = (weights_RC > 0).sum(dim=-1, keepdim=True) - 1
    ranks_R1 = torch.minimum(ranks_R1, last_R1)
    return values_RC.gather(1, ranks_R1), tokens_RC.gather(1, ranks_R1)


def _numbers(values_RC: Tensor) -> Tensor:
    """The same values, best first; raises DivergenceError if they are no numbers, with which a search never ends."""
    if bool(values_RC[:, 0].isnan().any()):
        raise DivergenceError(
            "the scores of this model are not numbers, because its training diverged; lower training.learning_rate or "
            "raise training.warmup_steps, and train again with --fresh"
        )
    return values_RC


def largest(values_RV: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """RxC values and indices, largest first, of the `number` largest in each row (or V, if there are fewer).

    They are in those `number` stretches of a row whose maxima are largest; the rest need not be sorted (256 x 8,000 on
    one core: 1.7 ms, against 3.1 for `topk` of whole rows).
    """
    size = values_RV.shape[1]
    num_stretches = size // _STRETCH
    if num_stretches <= number:
        values_RC, indices_RC = values_RV.topk(min(number, size))
        return values_RC, indices_RC
    end = num_stretches * _STRETCH
    stretches_RC = values_RV[:, :end].unflatten(1, (num_stretches, _STRETCH)).amax(dim=-1).topk(number).indices
    within = torch.arange(_STRETCH, device=values_RV.device)
    rest = torch.arange(end, size, device=values_RV.device).expand(len(values_RV), -1)
    candidates = torch.cat([(stretches_RC[..., None] * _STRETCH + within).flatten(1), rest], dim=1)
    values_RC, ranks_RC = values_RV.gather(1, candidates).topk(number)
    return values_RC, candidates.gather(1, ranks_RC)
