"""Sizes of the batches of a search on a GPU: large, to keep the GPU busy, and of few shapes, to reuse graphs."""

from __future__ import annotations

from collections.abc import Sequence

from mt_cli.model.cache import SOURCE_MULTIPLE, rounded_sentences
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer

_TOKENS_OF_A_GPU = 262_144
_SHARE_OF_MEMORY = 4
_COPIES_OF_KEYS = 6
"""Keys and values per source token, in tokens: the source token twice, during a copy, and four target tokens."""
_BYTES_OF_A_LOGIT = 16
"""Bytes per logit: two copies in the format of the model, and two in fp32."""


def bytes_per_token(model: Transformer | Ensemble) -> int:
    """Memory of a search for each token of a batch, padding and beams included."""
    total = 0
    for member in [model] if isinstance(model, Transformer) else model.models:
        config, projection = member.config, member.projection
        keys_values = 2 * config.num_decoder_layers * config.d_model * projection.weight.element_size()
        total += _COPIES_OF_KEYS * keys_values + _BYTES_OF_A_LOGIT * projection.out_features // SOURCE_MULTIPLE
    return total


def fitting_batch_tokens(configured: int, fitting: int) -> int:
    """Number of tokens of a batch on a GPU whose memory has room for `fitting` tokens.

    This is the configured number or the number that keeps a GPU busy within a quarter of the memory, whichever is
    larger, and never more than fits.
    """
    return max(1, min(max(configured, min(_TOKENS_OF_A_GPU, fitting // _SHARE_OF_MEMORY)), fitting))


def batches_that_recur(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices of sequences in batches of similar length and few shapes, longest first.

    Lengths and numbers of sequences are rounded as in a cache. With padding, a batch has at most `batch_tokens` tokens,
    or one sequence.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        longest = -(-(lengths[order[start]] + 1) // SOURCE_MULTIPLE) * SOURCE_MULTIPLE
        size = next(n for n in range(max(1, batch_tokens // longest), 0, -1) if rounded_sentences(n) == n)
        batches.append(order[start : start + size])
        start += size
    return batches
