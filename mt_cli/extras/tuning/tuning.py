"""Choosing beam size and length penalty on the validation set, after or at the end of training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.loading import changed_section, differences
from mt_cli.config.sections import Config, DecodingConfig
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.errors import InputError
from mt_cli.evaluation.directions import mean_scores, scores_by_direction
from mt_cli.evaluation.evaluate import translations_of
from mt_cli.evaluation.texts import METRICS, Score, Scorer, scorer_of
from mt_cli.machine.console import Progress, say
from mt_cli.machine.storage import write_text
from mt_cli.translation.translator import Translator

if TYPE_CHECKING:
    from mt_cli.run.setup import Setup

_DEFAULT_LENGTH_PENALTY = DecodingConfig().length_penalty
_PENALTIES_AT_END = (1.0, 1.5, 2.0, 2.5, 3.0)
_LONGEST_AT_END = 1.25
"""Largest number of characters, compared with the references: chrF goes on rising with translations that are far too
long (docs/recipes.md)."""
_MARGIN_AT_END = 0.1
_PAIRS_AT_END = 1000


@dataclass(frozen=True)
class Trial:
    """The score of one setting of the search."""

    beam_size: int
    length_penalty: float
    score: float
    """Of the metric that is tuned, 0-100."""
    length_ratio: float
    """Characters of the translations by those of the references, spaces excluded."""
    seconds: float
    """Time of the search."""


def search_grid(
    decoding: DecodingConfig, beam_sizes: Sequence[int], length_penalties: Sequence[float]
) -> list[DecodingConfig]:
    """The settings to try, by beam size, then length penalty; the other options are those of `decoding`.

    Raises InputError for sampling and for a value that `decoding` does not allow.
    """
    if decoding.sample:
        raise InputError("decoding.sample is true in the config of this run; only a search has a beam to tune")
    pairs = [(size, penalty) for size in sorted(set(beam_sizes)) for penalty in sorted(set(length_penalties))]
    return [changed_section(decoding, {"beam_size": size, "length_penalty": penalty}) for size, penalty in pairs]


def metric_of(config: Config, scorer: Scorer) -> str:
    """The metric that selects the best checkpoint or, if that is the loss, the one that `auto` would choose."""
    metric = config.training.best_metric
    return scorer.default_metric if metric in ("auto", "loss") else metric


def sampled_pairs(
    pairs: Sequence[Pair], languages: Sequence[Languages], number: int, seed: int
) -> tuple[list[Pair], list[Languages]]:
    """A random sample of at most `number` pairs, in their order, with their languages if these are given."""
    if len(pairs) <= number:
        return list(pairs), list(languages)
    indices = sorted(np.random.default_rng(seed).choice(len(pairs), number, replace=False))
    return [pairs[index] for index in indices], [languages[index] for index in indices] if languages else []


def choose(trials: Sequence[Trial], margin: float, longest: float = inf) -> Trial:
    """The smallest beam whose score is at most `margin` below the best one.

    With that beam, the default length penalty if its score is as close to the best, otherwise the one with the highest
    score, and of equal scores the one closest to the default. Of those with a length ratio above `longest`, only the
    smallest one is an answer, if there is no other.
    """
    fitting = [each for each in trials if each.length_ratio <= longest]
    fitting = fitting or [min(trials, key=lambda each: each.length_ratio)]
    best = max(each.score for each in fitting)
    near = [each for each in fitting if best - each.score <= margin]
    near = [each for each in near if each.beam_size == min(trial.beam_size for trial in near)]
    default = [each for each in near if each.length_penalty == _DEFAULT_LENGTH_PENALTY]
    return max(default or near, key=lambda each: (each.score, -abs(each.length_penalty - _DEFAULT_LENGTH_PENALTY)))


def tune(
    translator: Translator,
    pairs: Sequence[Pair],
    scorer: Scorer,
    metric: str,
    settings: Sequence[DecodingConfig],
    margin: float,
    languages: Sequence[Languages] = (),
    longest: float = inf,
) -> dict[str, Any]:
    """Scores of all settings and the choice among them, as `mt tune-decoding --json` prints them.

    Each score is that of `mt evaluate` with the same options: of several directions, by the `languages` of each pair,
    their mean. The length penalty does not change greedy search, which is done once. For other beams each setting is a
    search of its own: the penalty decides when a search ends. `longest`: see `choose`.
    """
    references = [target for _, target in pairs]
    # None keeps the length penalty of the run.
    keys = [(each.beam_size, each.length_penalty if each.beam_size > 1 else None) for each in settings]
    found: dict[tuple[int, float | None], tuple[float, float, float, list[str]]] = {}
    with Progress("tune decoding", len(set(keys)) * len(pairs), "sentence") as progress:
        for size, penalty in dict.fromkeys(keys):
            started_at = time.perf_counter()
            hypotheses = translations_of(translator, pairs, progress.advance, beam_size=size, length_penalty=penalty)
            seconds = round(time.perf_counter() - started_at, 3)
            score = _score(scorer, metric, hypotheses, references, languages)
            found[size, penalty] = score.score, _length_ratio(hypotheses, references), seconds, hypotheses
            progress.show(beam=f"{size}", score=f"{score.score:.2f}")
    both = zip(settings, keys, strict=True)
    trials = {Trial(each.beam_size, each.length_penalty, *found[key][:3]): found[key][3] for each, key in both}
    chosen = choose(list(trials), margin, longest)
    return {
        "num_sentences": len(pairs),
        "metric": metric,
        "signature": score.signature,
        "confidence_95": scorer.confidence(trials[chosen], references, [metric])[metric],
        "margin": margin,
        "trials": [vars(each) for each in trials],
        "chosen": {
            "beam_size": chosen.beam_size,
            "length_penalty": chosen.length_penalty if chosen.beam_size > 1 else None,  # Keeps that of the run.
            "score": chosen.score,
        },
    }


def _score(
    scorer: Scorer, metric: str, hypotheses: list[str], references: list[str], languages: Sequence[Languages]
) -> Score:
    """The score of all translations; of several directions, the mean of theirs."""
    directions = scores_by_direction(scorer, languages, hypotheses, references, [metric])
    return (mean_scores(directions) if directions else scorer.score(hypotheses, references, [metric]))[metric]


def _length_ratio(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """As chrF does, without counting spaces."""
    lengths = [sum(len(word) for text in texts for word in text.split()) for texts in (hypotheses, references)]
    return round(lengths[0] / max(1, lengths[1]), 3)


def tune_at_end(setup: Setup) -> None:
    """Choose the length penalty for the best checkpoint of a run that is locked, and write it into its config."""
    config, directory = setup.config, setup.directory
    if config.decoding.sample or config.decoding.beam_size == 1:
        return
    translator = Translator.load(directory.path, str(setup.device), setup.precision)
    valid = setup.data.corpora["valid"]
    languages = valid.languages(config.corpus.languages_of("valid"))
    pairs, languages = sampled_pairs(valid.pairs, languages, _PAIRS_AT_END, config.training.seed)
    penalties = [*_PENALTIES_AT_END, config.decoding.length_penalty]
    settings = search_grid(config.decoding, [config.decoding.beam_size], penalties)
    scorer = scorer_of(config, "valid")
    metric = metric_of(config, scorer)
    found = tune(translator, pairs, scorer, metric, settings, _MARGIN_AT_END, languages, _LONGEST_AT_END)
    scores, too_long = list[str](), list[str]()
    for each in found["trials"]:
        row = f"{each['score']:.2f} with {each['length_penalty']:g}"
        is_long = each["length_ratio"] > _LONGEST_AT_END
        (too_long if is_long else scores).append(f"{row}, {each['length_ratio']:.2f}" if is_long else row)
    refused = f"; translations too long, compared with the references: {'; '.join(too_long)}" if too_long else ""
    line = f"{METRICS[metric]} of valid: {', '.join(scores)}{refused}"
    say(f"decoding.length_penalty {found['chosen']['length_penalty']:g} ({line})")
    write_choice(directory, config, found["chosen"])


def write_choice(directory: RunDirectory, config: Config, chosen: Mapping[str, Any]) -> list[str]:
    """Write the chosen options into `config.yaml` of a run that is locked; return a line about each option."""
    options = {name: chosen[name] for name in ("beam_size", "length_penalty")}
    tuned = config.model_copy(update={"decoding": changed_section(config.decoding, options)})
    changed = differences(config, tuned)
    if not changed:
        return [f"{directory.config_path}: has these values already"]
    write_text(directory.config_path, tuned.to_yaml())
    return [f"{directory.config_path}: {key} was {old}, now {new}" for key, (old, new) in changed.items()]


def format_tuning(result: Mapping[str, Any]) -> str:
    """The scores as a table, beam sizes by length penalties, and the choice, for people, several lines."""
    label, trials, chosen = METRICS[result["metric"]], result["trials"], result["chosen"]
    penalties = sorted({each["length_penalty"] for each in trials})
    lines = [
        f"{label} of {result['num_sentences']:,} sentences of {result['split']}  {result['signature']}",
        f"{'length penalty':<14}" + "".join(f"{penalty:>8g}" for penalty in penalties) + f"{'seconds':>10}",
    ]
    for size in dict.fromkeys(each["beam_size"] for each in trials):
        row = [each for each in trials if each["beam_size"] == size]
        scores = "".join(f"{each['score']:>8.2f}" for each in row)
        lines.append(f"{f'beam {size}':<14}{scores}{sum(each['seconds'] for each in row) / len(row):>10.1f}")
    choice, reason = f"beam_size {chosen['beam_size']}", "greedy search has no length penalty"
    if chosen["length_penalty"] is not None:
        choice += f", length_penalty {chosen['length_penalty']:g}"
        reason = f"length penalty {_DEFAULT_LENGTH_PENALTY:g} is preferred if it was tried and is within it, too"
    return "\n".join(
        [
            *lines,
            f"Chosen: {choice}: the smallest beam within {result['margin']:g} of the best score; {reason}.",
            f"The 95 % confidence interval of its score is ± {result['confidence_95']:.2f}; differences that are small "
            "compared with it are noise.",
        ]
    )
