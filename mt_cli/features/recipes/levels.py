"""The level of a corpus in `config/presets.py`, the size of its model, and its updates: by text, device and time."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf

from mt_cli.config import presets
from mt_cli.config.presets import PRESETS, Level
from mt_cli.features.recipes.facts import Facts


def level_of(facts: Facts) -> Level:
    """The level of a corpus by its size and diversity; for a stream, the last one.

    Diverse text of several languages has the level of one of them, on average, and as many updates for each direction.
    """
    if not facts.is_diverse:
        return next(level for level in presets.LEVELS if facts.num_target_words <= level.max_target_words)
    level = next(level for level in presets.DIVERSE_LEVELS if facts.words_of_language <= level.max_target_words)
    return replace(level, num_updates=level.num_updates * facts.num_directions)


def expectation(facts: Facts) -> str:
    """What translations to expect, for people."""
    level = level_of(facts)
    size, why = size_of(level, facts)
    if not is_smaller(size, level):
        return level.expectation
    worse, names = f"worse translations than these pairs allow: {why}.", list(PRESETS)
    if facts.device == "cpu" and size == presets.LARGEST_ON_CPU:
        return worse
    speed = presets.TOKENS_PER_MINUTE[facts.device][names[names.index(size) + 1]]
    minutes = 10 * ceil(num_tokens(level) / speed / presets.SHARE_OF_UPDATES / 10)
    return (
        f"{worse} For one, use preset: auto and training.max_minutes: {minutes}, with no other option of tokenizer, "
        "model and training."
    )


def size_of(level: Level, facts: Facts) -> tuple[str, str]:
    """The name of the largest preset that fits the corpus, the device and the time, and the reason.

    A run that resumes, or begins with another one, has that of the run.
    """
    names = list(PRESETS)
    for name in names:
        if PRESETS[name]["model"]["d_model"] == facts.d_model:
            return name, "that of the run"
    rank, why = names.index(level.preset), "fits this number of pairs"
    if facts.device == "cpu" and rank > (largest := names.index(presets.LARGEST_ON_CPU)):
        rank, why = largest, "larger models need a GPU"
    while rank and num_tokens(level) > _largest_num_tokens(facts, names[rank]):
        rank, why = rank - 1, f"larger models need more than {facts.minutes:g} minutes"
    return names[rank], why


def _largest_num_tokens(facts: Facts, size: str) -> float:
    """The tokens of the longest recipe that is begun with a model of a size in the time that there is.

    If the config has `max_minutes`, half of a recipe is worth more than all of one for a smaller model.
    """
    if facts.max_minutes:
        return 2 * facts.max_minutes * presets.TOKENS_PER_MINUTE[facts.device][size]
    return _num_tokens_on_cpu(facts, size) if facts.device == "cpu" else inf


def _num_tokens_on_cpu(facts: Facts, size: str) -> float:
    """The tokens that a run is planned for on a CPU, if the config has no `max_minutes`."""
    minutes = presets.CPU_MINUTES * presets.SHARE_OF_UPDATES * facts.num_directions
    return minutes * presets.TOKENS_PER_MINUTE["cpu"][size]


def shortened(level: Level, facts: Facts, size: str) -> Level:
    """The level with the updates for a model of a size: a smaller one than its own is made to save time.

    The device does not matter: a run that resumes on another one keeps its length.
    """
    if not is_smaller(size, level):
        return level
    own, most = replace(level, preset=size), _num_tokens_on_cpu(facts, size)
    return replace(own, num_updates=round(min(num_tokens(level), most) / _tokens_per_step(own)))


def is_smaller(size: str, level: Level) -> bool:
    """Whether a model of a size is smaller than that of a level."""
    names = list(PRESETS)
    return names.index(size) < names.index(level.preset)


def _tokens_per_step(level: Level) -> int:
    training = {**PRESETS[level.preset]["training"], **level.changes.get("training", {})}
    return int(training["batch_tokens"] * training.get("micro_batches_per_step", 1))


def num_tokens(level: Level) -> int:
    """The tokens that the updates of a level train on."""
    return level.num_updates * _tokens_per_step(level)
