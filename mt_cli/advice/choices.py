"""Options by the facts of a corpus, with reasons, and scores to expect. The numbers are in `config/presets.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import exp, inf, log
from typing import Any, NamedTuple

import numpy as np

from mt_cli.advice.facts import Facts
from mt_cli.config import presets
from mt_cli.config.presets import DATA, PRESETS, SECTIONS, Level, Values
from mt_cli.config.sections import WITHOUT_SUBWORDS
from mt_cli.config.training import TrainingConfig
from mt_cli.config.writing import on_one_line
from mt_cli.evaluation.scores import METRICS
from mt_cli.training.steps import count_steps

_SIZES = list(PRESETS)
"""Presets, the smallest model first."""
_MIN_EPOCHS, _MAX_EPOCHS = 3, 200
_MIN_VALIDATIONS, _MAX_VALIDATIONS = 12, 40
_PATIENCE = 3 / 8
"""Patience as a share of the number of validations."""
_SHARE_OF_VALIDATIONS, _COST_OF_TRANSLATION = 0.15, 2
"""Share of time for validations, and cost of a token in greedy search, in tokens of training."""
_MIN_VOCABULARY, _NUM_BYTES = 400, 256
_FEWEST_WORDS = 1_000
"""Target words at which the first level begins."""
_BY_TEXT = {
    "tokenizer": ("bpe_dropout",),
    "model": ("dropout", "attention_dropout", "feed_forward_dropout"),
    "training": ("label_smoothing", "concatenated_pairs", "inserted_words"),
}
"""Numbers that depend on the text alone, by section; the learning rate depends on the size of the model, too."""
_LEAST_RATE = 0.005
_LARGEST_BATCH = max(preset["training"]["batch_tokens"] for preset in PRESETS.values())
_SCRIPTS_WITH_CAPITALS = {*DATA["scripts_with_capitals"]}
_UNTRAINED = {"bleu": 0.0, "chrf": 12.0}
"""Scores of translations that are fluent and have nothing to do with their sources."""
_LEAST_SHARE = 0.05
"""Share of the updates below which no score was measured."""


class Choice(NamedTuple):
    """Value of an option, with the reason for it."""

    value: Any
    why: str


Choices = Mapping[str, Mapping[str, Choice]]
"""Choices by section and key."""


@dataclass(frozen=True)
class Epoch:
    """Batches of an epoch of the training pairs."""

    num_batches: int
    training: TrainingConfig
    """Section without the length of the run."""
    num_valid_tokens: int = 0
    """Target tokens of `valid`."""

    def num_steps(self, num_epochs: int) -> int:
        return count_steps(self.training, 1, self.num_batches, num_epochs)


@dataclass(frozen=True)
class Recipe:
    """Level of a corpus, and the preset for it that fits the device and the time."""

    level: Level
    size: str
    """Name of the preset."""
    why_size: str
    values: Values
    num_tokens: float
    """Number of tokens that the updates train on."""

    @property
    def is_smaller(self) -> bool:
        """True if the model is smaller than the level allows."""
        return _SIZES.index(self.size) < _SIZES.index(self.level.preset)

    @property
    def why_dropout(self) -> str:
        return str(DATA["smaller_model"]["why_dropout"]) if self.is_smaller else self.level.why_dropout

    @property
    def step_tokens(self) -> int:
        training = self.values["training"]
        return int(training["batch_tokens"] * training.get("micro_batches_per_step", 1))


def recipe_for(facts: Facts) -> Recipe:
    """Recipe with the largest preset that fits the corpus and the device.

    A run with a parent has the size of the parent. A model that is smaller than the level allows, to save time, gets
    fewer updates. Numbers are interpolated between the middles of two levels, on a logarithmic scale of target words,
    so that a few pairs more or less change little; only the size of the model has steps.
    """
    levels = presets.DIVERSE_LEVELS if facts.is_diverse else presets.LEVELS
    words = min(max(facts.num_target_words, 1.0), 1e12)
    ends = np.log([_FEWEST_WORDS, *(level.max_target_words for level in levels[:-1])])
    middles = [*(ends[1:] + ends[:-1]) / 2, 2 * ends[-1] - ends[-2]]
    place = float(np.interp(log(words), middles, np.arange(len(levels))))
    lower = min(int(place), len(levels) - 2)
    below, above = (_recipe_of(level, facts) for level in levels[lower : lower + 2])
    nearest = _recipe_of(next(level for level in levels if words <= level.max_target_words), facts)
    return _interpolated(nearest, below, above, place - lower)


def _recipe_of(level: Level, facts: Facts) -> Recipe:
    training = {**PRESETS[level.preset]["training"], **level.changes.get("training", {})}
    step_tokens = training["batch_tokens"] * training.get("micro_batches_per_step", 1)
    num_tokens = level.num_updates * step_tokens * facts.num_directions
    size, why = _size_for(level, num_tokens, facts)
    is_smaller = _SIZES.index(size) < _SIZES.index(level.preset)
    changes = [level.changes, DATA["smaller_model"]["changes"] if is_smaller else {}]
    values = {
        section: {
            key: value for options in (PRESETS[size], *changes) for key, value in options.get(section, {}).items()
        }
        for section in SECTIONS
    }
    return Recipe(level, size, why, values, min(num_tokens, _num_tokens_on_cpu(size)) if is_smaller else num_tokens)


def _interpolated(nearest: Recipe, below: Recipe, above: Recipe, share: float) -> Recipe:
    """The recipe `nearest` with numbers between two recipes; `share` is 0 at `below` and 1 at `above`."""

    def between(low: float, high: float) -> float:
        return exp((1 - share) * log(low) + share * log(high)) if low and high else (1 - share) * low + share * high

    values = {section: dict(options) for section, options in nearest.values.items()}
    for section, keys in _BY_TEXT.items():
        for key in keys:
            number = round(between(*(float(one.values[section].get(key, 0.0)) for one in (below, above))), 3)
            if number >= _LEAST_RATE or key in values[section]:
                values[section][key] = number
    training = values["training"]
    if nearest.size == below.size == above.size:  # They belong to the size of the model.
        for key in ("learning_rate", "warmup_steps"):
            training[key] = float(f"{between(*(one.values['training'][key] for one in (below, above))):.3g}")
        training["warmup_steps"] = round(training["warmup_steps"])
    step_tokens = between(below.step_tokens, above.step_tokens)
    num_batches = -(-round(step_tokens) // _LARGEST_BATCH)
    training["batch_tokens"] = round(step_tokens / num_batches)
    if num_batches > 1 or "micro_batches_per_step" in training:
        training["micro_batches_per_step"] = num_batches
    return replace(nearest, values=values, num_tokens=between(below.num_tokens, above.num_tokens))


def _size_for(level: Level, num_tokens: int, facts: Facts) -> tuple[str, str]:
    for name in _SIZES:
        if PRESETS[name]["model"]["d_model"] == facts.d_model:
            return name, "that of the parent"
    rank, why = _SIZES.index(level.preset), "fits this number of pairs"
    if facts.device == "cpu":
        if rank > (largest := _SIZES.index(DATA["largest_on_cpu"])):
            rank, why = largest, "larger models need a GPU"
        while rank and num_tokens > _num_tokens_on_cpu(_SIZES[rank]):
            rank, why = rank - 1, f"larger models need more than {DATA['cpu_minutes']:g} minutes of a CPU"
    return _SIZES[rank], why


def _num_tokens_on_cpu(size: str) -> float:
    return float(DATA["cpu_minutes"] * DATA["share_of_updates"] * DATA["tokens_per_minute"][size])


def choose(facts: Facts, epoch: Epoch | None = None) -> Choices:
    """Options for a corpus; without `epoch`, without the length of the run."""
    recipe = recipe_for(facts)
    reasons = {key: reason.format(recipe=recipe, facts=facts) for key, reason in DATA["reasons"].items()}
    chosen = {
        section: {
            key: Choice(value, reasons.get(key, f"recipe of size {recipe.size}"))
            for key, value in recipe.values[section].items()
        }
        for section in SECTIONS
    }
    tokenizer, model, training = (chosen[section] for section in SECTIONS)
    tokenizer |= _vocabulary(facts, DATA["smaller_model"]["max_vocabulary"] if recipe.is_smaller else inf)
    if facts.spellings:
        tokenizer["normalize"] = Choice([*facts.spellings], "train or valid has several spellings")
    if facts.letters:
        tokenizer["letters"] = Choice({**facts.letters}, "as most text, valid or test writes; see mt data check")
    if facts.is_short:
        training["best_metric"] = Choice("chrf", "BLEU counts sequences of four words, which labels lack")
    for name in _useless_augmentation(facts):
        training.pop(name, None)
    if facts.algorithm == "sentencepiece":
        values = DATA["imported_parent"]["training"]
        training |= {key: Choice(value, "usual for published models") for key, value in values.items()}
    is_shared = tokenizer["shared"].value
    why = "one vocabulary, one table" if is_shared else "two vocabularies"
    model["tie_embeddings"] = Choice("all" if is_shared else "target", why)
    if facts.scripts[0] & _SCRIPTS_WITH_CAPITALS and not facts.is_in_capitals:
        why = "lines in capitals are other words to a model"
        chosen["decoding"] = {"capitals": Choice("lower", why)}
    for obstacle in facts.obstacles:
        section, _, key = obstacle.key.partition(".")
        before = chosen[section].get(key)
        otherwise = on_one_line(before.value) if before else obstacle.value
        chosen[section][key] = Choice(obstacle.instead, f"for {facts.destination}; otherwise {otherwise}")
    if epoch is not None:
        training |= _length(recipe, epoch, training["warmup_steps"].value)
    return chosen


def _useless_augmentation(facts: Facts) -> Iterator[str]:
    """Options of augmentation that cannot be used with these pairs, or do not help."""
    if facts.algorithm == "char" or facts.length_ratio < DATA["much_longer"]:
        yield "concatenated_pairs"
    if facts.algorithm in WITHOUT_SUBWORDS or not facts.scripts[0] & facts.scripts[1] & _SCRIPTS_WITH_CAPITALS:
        yield "inserted_words"


def _vocabulary(facts: Facts, max_size: float) -> dict[str, Choice]:
    words, sizes = np.log(DATA["diverse_vocabulary" if facts.is_diverse else "vocabulary"]).T
    size = exp(np.interp(log(min(max(facts.num_target_words, 1), 1e12)), words, sizes))
    source, target = facts.scripts
    has_both = facts.num_directions > 1
    is_shared = bool(source & target) or not (source and target) or has_both
    is_one = is_shared or any(obstacle.key == "tokenizer.shared" for obstacle in facts.obstacles)
    size *= 1 if is_one else DATA["share_of_separate_vocabulary"]
    why = "more entries would be too rare to learn"
    if size > max_size:
        size, why = max_size, "with more, a small model takes longer"
    if size > (limit := max(_MIN_VOCABULARY, facts.num_distinct_words + _NUM_BYTES)):
        size, why = limit, "there are few distinct words"
    scripts = " and ".join(sorted(source & target))
    why_shared = "each side has both languages" if has_both else "the scripts differ"
    return {
        "algorithm": Choice("bpe", "subwords leave no word unknown"),
        "vocab_size": Choice(round(size), why),
        "shared": Choice(is_shared, f"the script of both sides is {scripts}" if scripts else why_shared),
    }


def _length(recipe: Recipe, epoch: Epoch, warmup_steps: int) -> dict[str, Choice]:
    batch_tokens = epoch.training.tokens_per_batch
    num_epochs = round(recipe.num_tokens / (max(1, epoch.num_batches) * batch_tokens))
    num_epochs = min(max(num_epochs, _MIN_EPOCHS), _MAX_EPOCHS)
    num_steps = epoch.num_steps(num_epochs)
    # If `valid` is large compared with the updates, validate less often.
    cost = _COST_OF_TRANSLATION * max(1, epoch.num_valid_tokens)
    affordable = _SHARE_OF_VALIDATIONS * (num_steps * batch_tokens) / cost
    num_validations = min(max(affordable, _MIN_VALIDATIONS), _MAX_VALIDATIONS)
    why_epochs = f"{num_steps:,} updates of {batch_tokens:,} tokens, {epoch.num_steps(1):,} an epoch"
    patience = round(_PATIENCE * num_validations)
    interval, updates = round(max(num_steps / num_validations, 10)), f"{num_steps:,} updates"
    return {
        "max_steps": Choice(None, "max_epochs ends the run"),
        "max_epochs": Choice(num_epochs, why_epochs),
        "warmup_steps": Choice(min(warmup_steps, round(num_steps / 10)), f"at most a tenth of {updates}"),
        "validate_every_steps": Choice(interval, f"about {round(num_steps / interval)} validations in {updates}"),
        "patience": Choice(patience, f"stops after {patience} validations without a better score"),
    }


def values_of(choices: Choices) -> Values:
    return {section: {key: choice.value for key, choice in chosen.items()} for section, chosen in choices.items()}


class Forecast(NamedTuple):
    """Range of a score."""

    metric: str
    low: float
    high: float

    def __str__(self) -> str:
        return f"{METRICS[self.metric]} {self.low:.0f} to {self.high:.0f}"


def forecast(facts: Facts, num_tokens: float | None = None) -> Forecast | None:
    """Score to expect after updates of `num_tokens` tokens, by default all that the text deserves.

    None if no such text was measured, or for less than 5 % of the updates. The range falls with the updates and becomes
    wider: with 350 of 5,450, news from English to Hausa had chrF 18.4.
    """
    recipe = recipe_for(facts)
    if recipe.level.scores is None or recipe.is_smaller or facts.d_model is not None:
        return None
    share = 1.0 if num_tokens is None else min(1.0, num_tokens / recipe.num_tokens)
    metric, (low, high) = recipe.level.metric, recipe.level.scores
    if share < _LEAST_SHARE:
        return None
    floor = _UNTRAINED[metric]
    return Forecast(metric, floor + (low - floor) * share**0.5, floor + (high - floor) * share**0.25)


def expectation(facts: Facts) -> str:
    recipe = recipe_for(facts)
    if recipe.is_smaller:
        return f"worse translations than these pairs allow: {recipe.why_size}."
    scores = forecast(facts)
    num_updates = round(recipe.num_tokens / recipe.step_tokens, -2)
    after = f"{scores} after about {num_updates:,.0f} updates, and less after fewer: " if scores else ""
    return after + recipe.level.expectation
