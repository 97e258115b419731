"""A validation: loss and scores on the validation set, and the same sample sentences every time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mt_cli.config.sections import Config
from mt_cli.console import Progress, fitted
from mt_cli.corpus.sources import names_of
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.errors import DivergenceError
from mt_cli.evaluation.tokens import score_tokens
from mt_cli.experiment.data import Data, longest_source, scorer_of
from mt_cli.figures import attention_pixels
from mt_cli.model.transformer import Transformer
from mt_cli.objective import Objective
from mt_cli.processes import spread
from mt_cli.translator import Translator

Sample = tuple[str, str, str]
"""Source, reference and hypothesis."""

_QUICK_METRICS = ("bleu", "chrf", "cer", "wer")
_PAIRS_PER_PART = 256
_NUM_PRINTED = 2
_LONGEST_PICTURE = 60


@dataclass(frozen=True)
class Validation:
    """The results of one validation."""

    value: float
    """Of the metric that selects the best checkpoint; higher is better, a loss is negated."""
    metrics: Mapping[str, float]
    """The row of `metrics.jsonl`."""
    samples: Sequence[Sample]
    """The first `training.num_samples` pairs."""
    pictures: Mapping[str, NDArray[np.uint8]]
    """Cross-attention of some samples, by tag."""

    @property
    def loss(self) -> float:
        """Validation loss, which decides between equal values."""
        return self.metrics["valid/loss"]


class Validator:
    """Scores a model on the validation set of a run, in the number format of training."""

    def __init__(
        self, objective: Objective, data: Data, config: Config, dtype: torch.dtype, device: torch.device | None = None
    ) -> None:
        self._objective, self._data, self._config = objective, data, config
        self._dtype, self._device = dtype, device
        self.longest_source = longest_source(data, config)
        """Tokens of the longest source that the model was trained on; None if unknown, as for a stream."""
        self._scorer = scorer_of(config, "valid")
        metric = config.training.best_metric
        self.best_metric = self._scorer.default_metric if metric == "auto" else metric
        """The metric that selects the best checkpoint."""
        self.measure = f"bleu/{self._scorer.bleu_tokenizer}" if self.best_metric == "bleu" else self.best_metric
        """The same with BLEU's tokenizer; values of different measures cannot be compared."""

    def allow(self, longest_source: int | None) -> None:
        """Translate sources of this length, too: the model was trained on them before this run."""
        if self.longest_source is not None and longest_source is not None:
            self.longest_source = min(self._config.corpus.max_tokens, max(self.longest_source, longest_source))

    def describe(self, found: Validation) -> str:
        """The scores that select the best checkpoint."""
        shown = "" if self.best_metric == "loss" else f"{self.best_metric} {found.value:.2f}  "
        return f"{shown}valid loss {found.loss:.3f}"

    def validate(self, model: Transformer | None = None) -> Validation:
        """Score the model as it is now, or another one; several processes share out the sentences."""
        data, config = self._data, self._config
        model = in_format(model or self._objective.model, self._dtype, self._device)
        objective = Objective(model, config.training)
        tokens = score_tokens(objective, data.encoded["valid"], config.training.tokens_per_batch)
        pairs = data.corpora["valid"].pairs
        sources, references = zip(*pairs, strict=True)
        with Progress("validate", len(sources), "sentence", is_quiet=True, leave=False) as progress:
            engine = TransformerEngine(objective.model, progress.advance)
            max_tokens = self.longest_source or config.corpus.max_tokens
            corpus, greedy = config.corpus, config.decoding.greedy
            translator = Translator(engine, data.tokenizers, greedy, max_tokens, corpus.tags, corpus.languages)
            hypotheses = spread(lambda share: _translated(translator, share), sources)
        names = [name for name in self._scorer.names if name in _QUICK_METRICS]
        scores = self._scorer.score(hypotheses, references, names)
        samples = [(*pair, text) for pair, text in zip(pairs[: config.training.num_samples], hypotheses, strict=False)]
        metrics = {
            "valid/loss": tokens.loss,
            "valid/perplexity": tokens.perplexity,
            "valid/token_accuracy": tokens.token_accuracy,
            **{f"valid/{name}": each["score"] for name, each in scores.items()},
            **{f"train/loss/{name}": loss for name, loss in self._part_losses(objective).items()},
        }
        value = -tokens.loss if self.best_metric == "loss" else scores[self.best_metric]["score"]
        return Validation(value, metrics, samples, _pictures(translator, samples, config.training.num_pictures))

    def _part_losses(self, objective: Objective) -> dict[str, float]:
        """If there are several training corpora: the loss on a fixed sample of each, without dropout."""
        names = names_of(self._config.corpus.train)
        if len(names) < 2 or "train" not in self._data.encoded:
            return {}
        pairs = self._data.encoded["train"]
        losses, start = {}, 0
        for name, size in zip(names, pairs.part_sizes, strict=True):
            if size:  # Spread evenly over the part.
                indices = sorted({start + place * size // _PAIRS_PER_PART for place in range(_PAIRS_PER_PART)})
                batch_tokens = self._config.training.tokens_per_batch
                losses[name] = score_tokens(objective, pairs, batch_tokens, indices).loss
            start += size
        return losses


def _translated(translator: Translator, sources: Sequence[str]) -> list[str]:
    try:
        return translator.translate(sources)
    except DivergenceError:  # The training log decides whether training has diverged.
        return [""] * len(sources)


def in_format(model: Transformer, dtype: torch.dtype, device: torch.device | None = None) -> Transformer:
    """The model with weights in a number format, on a device: the model itself if it has them, otherwise a copy.

    Buffers are shared and keep their format, as in training.
    """
    weight = next(model.parameters())
    device = device or weight.device
    if (weight.dtype, weight.device) == (dtype, device):
        return model
    weights = (weight.detach().to(device, dtype) for weight in model.parameters())
    return with_weights(model, weights, (buffer.to(device) for buffer in model.buffers()))


def with_weights(model: Transformer, weights: Iterable[Tensor], buffers: Iterable[Tensor]) -> Transformer:
    """A copy of a model that shares these weights and buffers, in the order of those of the model."""
    others = chain((nn.Parameter(weight, requires_grad=False) for weight in weights), buffers)
    own = chain(model.parameters(), model.buffers())
    return deepcopy(model, {id(mine): other for mine, other in zip(own, others, strict=True)})


def _pictures(translator: Translator, samples: Sequence[Sample], number: int) -> dict[str, NDArray[np.uint8]]:
    """The cross-attention, averaged over layers and heads, of the first samples that are short enough."""
    sources = translator.source_tokenizer.encode([source for source, _, _ in samples])
    targets = translator.target_tokenizer.encode([hypothesis for _, _, hypothesis in samples])
    shown = [
        (f"attention/{place}", pair)
        for place, pair in enumerate(zip(sources, targets, strict=True), start=1)
        if all(pair) and max(map(len, pair)) <= _LONGEST_PICTURE
    ][:number]
    found = translator.attentions([pair for _, pair in shown])
    return {tag: attention_pixels(weights, *tokens) for (tag, _), (*tokens, weights) in zip(shown, found, strict=True)}


def sample_lines(samples: Sequence[Sample], num_columns: int) -> list[str]:
    """The first samples as lines for a terminal of this width."""
    labels = ("source", "reference", "hypothesis")
    pairs = [pair for sample in samples[:_NUM_PRINTED] for pair in zip(labels, sample, strict=True)]
    return [f"  {label:<12}{fitted(text, num_columns - 14)}" for label, text in pairs]
