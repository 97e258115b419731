"""Several models as one: the mean of their probabilities (Hansen and Salamon 1990; Sutskever et al. 2014, section 3.6).

Legend of the shapes: R rows of beams, B sentences, T target positions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import cast

import torch
from torch import Tensor, nn

from mt_cli.model.attention import AttentionMaps
from mt_cli.model.cache import KeyValueCache
from mt_cli.model.transformer import Transformer


class Ensemble(nn.Module):
    """Models with the same vocabularies, whose logits are the logarithms of their mean probabilities."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        super().__init__()
        self.models = cast("Sequence[Transformer]", nn.ModuleList(models))

    def read(self, src_ids: Tensor, tgt_input_ids: Tensor) -> tuple[Tensor, AttentionMaps]:
        """Log-probabilities BxTxV after each position of padded target ids, and the attention maps of all layers."""
        logits, maps = zip(*(model.read(src_ids, tgt_input_ids) for model in self.models), strict=True)
        encoder, decoder, cross = (list(chain(*layers)) for layers in zip(*maps, strict=True))
        return _mean(logits), AttentionMaps(encoder, decoder, cross)

    def start(self, src_ids: Tensor, num_beams: int = 1) -> EnsembleCache:
        """Caches for decoding with `num_beams` hypotheses of each sentence, of padded ids BxS."""
        return EnsembleCache([model.start(src_ids, num_beams) for model in self.models])

    def next(self, token_ids: Tensor, cache: EnsembleCache) -> Tensor:
        """Log-probabilities RxV after one more token of each beam; the caches grow by these tokens."""
        pairs = zip(self.models, cache.caches, strict=True)
        return _mean([model.next(token_ids, model_cache) for model, model_cache in pairs])


@dataclass
class EnsembleCache:
    """Cache of each model of an ensemble."""

    caches: Sequence[KeyValueCache]

    def select(self, parents_BN: Tensor | None = None, sentences: Tensor | None = None) -> None:
        """Select in each cache, as `KeyValueCache.select`."""
        for cache in self.caches:
            cache.select(parents_BN, sentences)


def _mean(logits: Sequence[Tensor]) -> Tensor:
    log_probs = (logits_of_model.float().log_softmax(dim=-1) for logits_of_model in logits)
    return reduce(torch.logaddexp, log_probs) - math.log(len(logits))
