"""Several models as one: the mean of their probabilities (Hansen and Salamon 1990; Sutskever et al. 2014, section 3.6).

Legend of the shapes: R rows of beams, B sentences, T target positions, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import chain

import torch
from torch import Tensor, nn

from mt_cli.model.attention import AttentionWeights
from mt_cli.model.cache import KeyValueCache
from mt_cli.model.transformer import Transformer


class Ensemble(nn.Module):
    """Models with the same vocabularies, whose logits are the logarithms of their mean probabilities."""

    def __init__(self, models: Sequence[Transformer]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        limits = [model.max_positions for model in models if model.max_positions is not None]
        self.max_positions = min(limits, default=None)

    def forward(self, src_ids: Tensor, tgt_input_ids: Tensor) -> Tensor:
        """Log-probabilities BxTxV of the token after each target position, of padded ids."""
        return _mean([model(src_ids, tgt_input_ids) for model in self.models])

    def read(self, src_ids: Tensor, tgt_input_ids: Tensor) -> tuple[Tensor, AttentionWeights]:
        """Log-probabilities as `forward` returns them, and the attention weights of each layer of each model."""
        logits, weights = zip(*(model.read(src_ids, tgt_input_ids) for model in self._transformers()), strict=True)
        encoder, decoder, cross = (list(chain(*layers)) for layers in zip(*weights, strict=True))
        return _mean(logits), AttentionWeights(encoder, decoder, cross)

    def start(self, src_ids: Tensor, num_beams: int = 1) -> EnsembleCache:
        """Caches for decoding with `num_beams` hypotheses of each sentence, of padded ids BxS."""
        return EnsembleCache([model.start(src_ids, num_beams) for model in self._transformers()])

    def next(self, token_ids: Tensor, cache: EnsembleCache) -> Tensor:
        """Log-probabilities RxV after one more token of each beam; the caches grow by these tokens."""
        pairs = zip(self._transformers(), cache.caches, strict=True)
        return _mean([model.next(token_ids, model_cache) for model, model_cache in pairs])

    def _transformers(self) -> list[Transformer]:
        return [model for model in self.models if isinstance(model, Transformer)]


class EnsembleCache:
    """Cache of each model of an ensemble."""

    def __init__(self, caches: Sequence[KeyValueCache]) -> None:
        self.caches = caches

    def select(self, parents_BN: Tensor | None = None, sentences: Tensor | None = None) -> None:
        """Select in each cache, as `KeyValueCache.select`."""
        for cache in self.caches:
            cache.select(parents_BN, sentences)


def _mean(logits: Sequence[Tensor]) -> Tensor:
    log_probs = (logits_of_model.float().log_softmax(dim=-1) for logits_of_model in logits)
    return reduce(torch.logaddexp, log_probs) - math.log(len(logits))
