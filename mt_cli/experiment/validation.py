"""What a validation looks at: loss and scores, the same sentences every time, and what the model attends to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.sections import Config
from mt_cli.console import Progress, fitted
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.errors import DivergenceError
from mt_cli.evaluation.texts import Scorer
from mt_cli.evaluation.tokens import TokenScores, score_tokens
from mt_cli.experiment.data import Data, longest_source, names_of_parts
from mt_cli.figures import attention_pixels
from mt_cli.objective import Objective
from mt_cli.tokenizer import EOS
from mt_cli.translator import Translator

_QUICK_METRICS = ("bleu", "chrf", "cer", "wer")
_PAIRS_OF_A_PART = 256
_NUM_PRINTED = 2
_NUM_PICTURES = 2
_LONGEST_PICTURE = 60


@dataclass(frozen=True)
class Validation:
    """What one validation showed."""

    tokens: TokenScores
    texts: Mapping[str, Any]
    """BLEU, chrF and error rates of greedy translations, as `Scorer.score` gives them."""
    part_losses: Mapping[str, float]
    """If training pairs come from several corpora: the loss on a fixed sample of each, without dropout."""
    samples: Sequence[tuple[str, str, str]]
    """Source, reference and hypothesis of the first `training.num_samples` pairs."""
    pictures: Mapping[str, NDArray[np.uint8]]
    """Attention between some samples and their hypotheses, by tag."""

    @property
    def metrics(self) -> dict[str, float]:
        """The row of it."""
        return {
            "valid/loss": self.tokens.loss,
            "valid/perplexity": self.tokens.perplexity,
            "valid/token_accuracy": self.tokens.token_accuracy,
            **{f"valid/{name}": scored["score"] for name, scored in self.texts.items()},
            **{f"train/loss/{name}": loss for name, loss in self.part_losses.items()},
        }


def validate(objective: Objective, data: Data, config: Config, scorer: Scorer) -> Validation:
    """Score the whole validation set."""
    batch_tokens = config.training.tokens_per_batch
    tokens = score_tokens(objective, data.encoded["valid"], batch_tokens)
    pairs = data.corpora["valid"].pairs
    sources, references = zip(*pairs, strict=True)
    greedy = config.decoding.greedy
    max_tokens = longest_source(data, config) or config.corpus.max_tokens
    with Progress("validate", len(sources), "sentence", is_quiet=True, leave=False) as progress:
        engine = TransformerEngine(objective.model, progress.advance)
        languages = (config.corpus.source, config.corpus.target)
        translator = Translator(engine, data.tokenizers, greedy, max_tokens, config.corpus.tags, languages)
        try:
            hypotheses = translator.translate(sources)
        except DivergenceError:  # Whether training goes on is not decided here.
            hypotheses = [""] * len(sources)
    samples = [(*pair, text) for pair, text in zip(pairs[: config.training.num_samples], hypotheses, strict=False)]
    return Validation(
        tokens,
        scorer.score(hypotheses, references, [name for name in scorer.names if name in _QUICK_METRICS]),
        _part_losses(objective, data, config),
        samples,
        _pictures(translator, samples),
    )


def _part_losses(objective: Objective, data: Data, config: Config) -> dict[str, float]:
    names = names_of_parts(config)
    if len(names) < 2 or "train" not in data.encoded:
        return {}
    pairs = data.encoded["train"]
    losses, start = {}, 0
    for name, size in zip(names, pairs.part_sizes, strict=True):
        # Spread over the part, and the same every time.
        indices = (
            sorted({start + place * size // _PAIRS_OF_A_PART for place in range(_PAIRS_OF_A_PART)}) if size else []
        )
        if indices:
            losses[name] = score_tokens(objective, pairs, config.training.tokens_per_batch, indices).loss
        start += size
    return losses


def _pictures(translator: Translator, samples: Sequence[tuple[str, str, str]]) -> dict[str, NDArray[np.uint8]]:
    """The cross-attention, mean over layers and heads, of the first samples that are not too long."""
    sources = translator.source_tokenizer.encode([source for source, _, _ in samples])
    targets = translator.target_tokenizer.encode([hypothesis for _, _, hypothesis in samples])
    sides = {
        f"attention/{number}": pair
        for number, pair in enumerate(zip(sources, targets, strict=True), start=1)
        if all(pair) and max(map(len, pair)) <= _LONGEST_PICTURE
    }
    shown = list(sides.items())[:_NUM_PICTURES]
    pictures = {}
    for (tag, (source, target)), reading in zip(
        shown, translator.engine.read([pair for _, pair in shown]), strict=True
    ):
        assert reading.attention is not None
        tokens = [*translator.source_tokenizer.tokens(source), EOS], [*translator.target_tokenizer.tokens(target), EOS]
        pictures[tag] = attention_pixels(reading.attention, *tokens)
    return pictures


def sample_lines(samples: Sequence[tuple[str, str, str]], num_columns: int) -> list[str]:
    """The first samples, for a terminal of this width."""
    labels = ("source", "reference", "hypothesis")
    pairs = [pair for sample in samples[:_NUM_PRINTED] for pair in zip(labels, sample, strict=True)]
    return [f"  {label:<12}{fitted(text, num_columns - 14)}" for label, text in pairs]
