"""Validation: loss, scores and samples on the validation set; losses of training corpora."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from mt_cli.config.sections import Config, DecodingConfig
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.rows import untagged
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.corpus.source_rows import names_of
from mt_cli.data.prepare import Data, longest_source, sentences_seen
from mt_cli.decoding.constraints import ReservedIds
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.evaluation.results import Sample
from mt_cli.evaluation.scores import (
    Score,
    Scorer,
    best_metric_of,
    metric_id_of,
    sampled_rows,
    score_directions,
    scorer_of,
)
from mt_cli.evaluation.token_loss import score_tokens
from mt_cli.model.loss import Objective
from mt_cli.model.transformer import Transformer, with_dtype
from mt_cli.runtime.console import Progress
from mt_cli.runtime.group import ALONE, Group, copy_all
from mt_cli.translation.translator import Translator

_QUICK_METRICS = ("bleu", "chrf", "cer", "wer")
_NUM_SAMPLES, _PAIRS_PER_PART = 5, 256


@dataclass(frozen=True)
class Validation:
    """Results of one validation."""

    value: float
    """Value of the metric that selects the best checkpoint; higher is better, a loss is negated."""
    metrics: Mapping[str, float]
    """Row of `metrics.jsonl`."""
    samples: Sequence[Sample]
    """First pairs of the set, alternating between directions."""

    @property
    def loss(self) -> float:
        """Validation loss, which decides between equal values."""
        return self.metrics["valid/loss"]


class Validator:
    """Validates a model on the validation set of a run, in the dtype of training.

    `longest_before` is the number of tokens of the longest source in earlier training of the model, and `seen_before`
    has the fractions of sources with several sentences.
    """

    def __init__(
        self,
        model: Transformer,
        data: Data,
        config: Config,
        dtype: torch.dtype,
        device: torch.device | None = None,
        longest_before: int | None = None,
        seen_before: SentencesSeen | None = None,
    ) -> None:
        self._model, self._data, self._config = model, data, config
        self._dtype, self._device = dtype, device
        self.longest_source = longest_source(data, config, longest_before)
        """Number of tokens of the longest training source; None if unknown, as for a stream."""
        self.sentences_seen = sentences_seen(data, config, seen_before)
        """Fractions of training sources with several sentences."""
        self._scorer = scorer_of(config, "valid")
        self.best_metric = best_metric_of(config, self._scorer)
        """Metric that selects the best checkpoint."""
        self.metric_id = metric_id_of(config, self._scorer)
        """Metric with BLEU's tokenizer, such as `bleu/13a`; values with different ids cannot be compared."""

    def describe(self, validation: Validation) -> str:
        """Scores that select the best checkpoint, for people."""
        shown = "" if self.best_metric == "loss" else f"{self.best_metric} {validation.value:.2f}  "
        return f"{shown}valid loss {validation.loss:.3f}"

    def validate(self, group: Group = ALONE) -> Validation:
        """Score the model; the processes of a group share the sentences.

        Raises DivergenceError if the scores of the model are not finite.
        """
        data, config = self._data, self._config
        objective = Objective(self._updated_copy(), config.training)
        tokens = score_tokens(objective, data.encoded["valid"], config.training.tokens_per_batch, group=group)
        pairs = data.corpora["valid"].pairs
        sources, references = zip(*pairs, strict=True)
        with Progress("validate", len(sources), "sentence", leave=False) as progress:
            translator = self._translator(config.greedy_decoding, progress.advance)
            hypotheses = group.map_shares(translator.translate, sources)
        languages = data.corpora["valid"].languages
        scores, directions = score_directions(self._scorer, languages, (hypotheses, references), _quick_scores)
        rows = sampled_rows(languages, _NUM_SAMPLES)
        metrics = {
            "valid/loss": tokens.loss,
            "valid/perplexity": tokens.perplexity,
            "valid/token_accuracy": tokens.token_accuracy,
            **{f"valid/{name}": score.score for name, score in scores.items()},
            **{
                f"valid/{name}/{direction}": score.score
                for direction, scores_of_direction in directions.items()
                for name, score in scores_of_direction.items()
            },
            **{f"train/loss/{name}": loss for name, loss in self._part_losses(objective, group).items()},
        }
        value = -tokens.loss if self.best_metric == "loss" else scores[self.best_metric].score
        hidden = config.corpus.tags if config.corpus.tagging.is_one_way else ()
        samples = [(untagged(pairs[row][0], hidden), pairs[row][1], hypotheses[row]) for row in rows]
        return Validation(value, metrics, samples)

    def translator(self, decoding: DecodingConfig) -> Translator:
        """Translator of texts of corpora, which have their tags, with the current weights of the model."""
        self._updated_copy()
        return self._translator(decoding)

    def _translator(
        self, decoding: DecodingConfig, advance: Callable[[int], object] = lambda number: None
    ) -> Translator:
        data, corpus = self._data, self._config.corpus
        engine = replace(self._engine, on_done=advance)
        max_tokens = self.longest_source or corpus.max_tokens
        limits = corpus.tagging.of_corpora, corpus.languages, corpus.max_tokens, Protection.of(corpus.protect)
        seen = self.sentences_seen
        return Translator(engine, data.tokenizers, decoding, max_tokens, *limits, sentences_seen=seen)

    @cached_property
    def _copy(self) -> Transformer:
        """Model in the dtype of training: a copy, or the model itself if it has this dtype."""
        return with_dtype(self._model, self._dtype, self._device)

    @cached_property
    def _engine(self) -> TransformerEngine:
        """Engine of all validations; on a GPU, its CUDA graphs read the weights of the copy where they are."""
        return TransformerEngine(self._copy, reserved=ReservedIds.of(self._data.tokenizers))

    def _updated_copy(self) -> Transformer:
        """The copy, with the current weights of the model."""
        if self._copy is not self._model:
            copy_all(list(self._model.parameters()), list(self._copy.parameters()))
        return self._copy

    def _part_losses(self, objective: Objective, group: Group) -> dict[str, float]:
        """Losses on a fixed sample of every training corpus, without dropout; empty if there is only one corpus."""
        names = names_of(self._config.corpus.train)
        if len(names) < 2 or "train" not in self._data.encoded:
            return {}
        pairs = self._data.encoded["train"]
        losses, start = {}, 0
        for name, size in zip(names, pairs.part_sizes, strict=True):
            if size:  # The sample is spread evenly over the part.
                indices = sorted({start + place * size // _PAIRS_PER_PART for place in range(_PAIRS_PER_PART)})
                batch_tokens = self._config.training.tokens_per_batch
                losses[name] = score_tokens(objective, pairs, batch_tokens, indices, group).loss
            start += size
        return losses


def _quick_scores(scorer: Scorer, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    return scorer.score(hypotheses, references, [name for name in scorer.names if name in _QUICK_METRICS])
