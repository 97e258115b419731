"""Presets and levels, read from `presets.yaml`, and how a preset fills in a config. Knows nothing of corpora."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mt_cli.config.sections import WITHOUT_SUBWORDS
from mt_cli.config.training import TrainingConfig

Values = Mapping[str, Mapping[str, Any]]
"""Values of options by section and key."""

SECTIONS = ("tokenizer", "model", "training")
_OPTIMIZER = TrainingConfig.model_fields["optimizer"].default
_LIMITS = ("max_steps", "max_epochs", "max_minutes")


@dataclass(frozen=True)
class Level:
    """Choice of `mt init` for training corpora up to a size."""

    max_target_words: float
    preset: str
    """Preset that the level begins with; on a CPU or with little time, a smaller one takes its place."""
    num_updates: int
    expectation: str
    metric: str = "chrf"
    scores: tuple[float, float] | None = None
    """Lowest and highest score in docs/recipes.md by `metric`; None if none was measured."""
    changes: Values = field(default_factory=dict)
    """Values that differ from those of the preset."""
    why_dropout: str = "the fewer pairs, the more"
    """Reason for `dropout`, for people."""


# The parser in C takes 2 ms, the one in Python 30.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DATA: Mapping[str, Any] = yaml.load(Path(__file__).with_name("presets.yaml").read_text(encoding="utf-8"), _LOADER)
PRESETS: Mapping[str, Values] = DATA["presets"]
LEVELS = tuple(Level(**level) for level in DATA["levels"])
DIVERSE_LEVELS = tuple(Level(**level) for level in DATA["diverse_levels"])


def filled(tree: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """Tree of a config with the values of a preset for options that it does not set, and without `preset`.

    Values that would contradict the tree are left out: a vocabulary size for words or characters, one embedding table
    for two vocabularies, the learning rate of another optimizer, and the length of the run if the tree limits steps,
    epochs or minutes. With `init.run`, tokenizer and model come from that run.
    """
    result = dict(tree) | {"preset": None}
    sections = ("training",) if begins_with_run(tree) else SECTIONS
    for section in (*sections, *({"decoding"} & values.keys())):
        options = tree.get(section, {})
        if not isinstance(options, Mapping):
            continue  # A ConfigError will say so.
        preset = dict(values.get(section, {}))
        if section == "tokenizer" and options.get("algorithm") in WITHOUT_SUBWORDS:
            preset.pop("vocab_size", None)
        if section == "training" and options.get("optimizer") not in (None, preset.get("optimizer", _OPTIMIZER)):
            preset.pop("learning_rate", None)
        if section == "model" and _option(result, "tokenizer", "shared") is False:
            preset["tie_embeddings"] = "target"
        if section == "training" and any(options.get(name) is not None for name in _LIMITS):
            preset |= dict.fromkeys(("max_steps", "max_epochs"))
        result[section] = preset | dict(options)
    return result


def begins_with_run(tree: Mapping[str, Any]) -> bool:
    return _option(tree, "init", "run") is not None


def _option(tree: Mapping[str, Any], section: str, key: str) -> Any:
    options = tree.get(section)
    return options.get(key) if isinstance(options, Mapping) else None
