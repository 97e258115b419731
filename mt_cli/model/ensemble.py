"""Several models as one: the mean of their probabilities (Hansen and Salamon 1990; Sutskever et al. 2014, section 3.6).

Legend of the shapes: R rows of beams, B sentences, N beams, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import cast

import torch
from torch import Tensor, nn

from mt_cli.model.cache import KeyValueCache
from mt_cli.model.transformer import Transformer


class Ensemble(nn.Module):
    """Models with the same vocabularies, whose logits are the logarithms of their mean probabilities."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        super().__init__()
        self.models = cast("Sequence[Transformer]", nn.ModuleList(models))

    def start(self, src_ids: Tensor, num_beams: int = 1) -> EnsembleCache:
        """Caches for decoding with `num_beams` hypotheses of each sentence, of padded ids BxS."""
        return EnsembleCache([model.start(src_ids, num_beams) for model in self.models])

    def next(self, token_ids: Tensor, cache: EnsembleCache) -> Tensor:
        """Log-probabilities RxV after one more token of each beam; the caches grow by these tokens."""
        pairs = zip(self.models, cache.caches, strict=True)
        log_probs = [model.next(token_ids, own).float().log_softmax(dim=-1) for model, own in pairs]
        return reduce(torch.logaddexp, log_probs) - math.log(len(log_probs))


@dataclass
class EnsembleCache:
    """Cache of each model of an ensemble."""

    caches: Sequence[KeyValueCache]

    def select(self, parents_BN: Tensor | None = None, sentences: Tensor | None = None) -> None:
        """Select in each cache, as `KeyValueCache.select`."""
        for cache in self.caches:
            cache.select(parents_BN, sentences)
