"""Choice of beam size, length penalty and `no_repeat_ngram` on the validation set."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import inf
from typing import Any, NamedTuple

import numpy as np

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.loading import changed_section, differences
from mt_cli.config.sections import TUNED, Config, DecodingConfig
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.data.prepare import Data
from mt_cli.errors import InputError
from mt_cli.evaluation.evaluate import translations_of
from mt_cli.evaluation.learning import LONGEST, length_ratio
from mt_cli.evaluation.scores import METRICS, Score, Scorer, score_directions, scorer_of
from mt_cli.runtime.console import Progress, clock, say
from mt_cli.runtime.files import write_text
from mt_cli.translation.translator import Translator

_DEFAULT_PENALTY = DecodingConfig().length_penalty


@dataclass(frozen=True)
class Trial:
    """Score of one setting of the search."""

    beam_size: int
    length_penalty: float
    score: float
    """Score by the tuned metric, 0-100."""
    length_ratio: float
    """Characters of the translations divided by characters of the references, spaces excluded."""
    seconds: float
    no_repeat_ngram: int | None = None

    @property
    def num_defaults(self) -> int:
        return (self.length_penalty == _DEFAULT_PENALTY) + (self.no_repeat_ngram is None)


def search_grid(
    decoding: DecodingConfig,
    beam_sizes: Sequence[int],
    length_penalties: Sequence[float],
    no_repeat_ngrams: Sequence[int | None],
) -> list[DecodingConfig]:
    """Settings to try, ordered by beam size, `no_repeat_ngram` and length penalty; other options come from `decoding`.

    Greedy search has one length penalty, which does not change it. Raises InputError for sampling and for a value
    that `decoding` does not allow.
    """
    if decoding.sample:
        raise InputError("decoding.sample is true in the config of this run; only a search has a beam to tune")
    ngrams = sorted(set(no_repeat_ngrams), key=lambda size: size or 0)
    plain = decoding.model_copy(update={"no_repeat_ngram": None})
    return [
        changed_section(plain, {"beam_size": size, "no_repeat_ngram": ngram, "length_penalty": penalty})
        for size, ngram, penalty in product(sorted(set(beam_sizes)), ngrams, sorted(set(length_penalties)))
        if size > 1 or penalty == min(length_penalties)
    ]


@dataclass(frozen=True)
class TuningSet:
    """Pairs on which settings are compared."""

    pairs: Sequence[Pair]
    languages: Sequence[Languages]
    """Direction of each pair; empty if there is only one direction."""
    scorer: Scorer
    metric: str

    @classmethod
    def of(cls, config: Config, pairs: Sequence[Pair], languages: Sequence[Languages]) -> TuningSet:
        """Pairs of `valid`, compared by the metric that selects the best checkpoint, or that of the language."""
        scorer, metric = scorer_of(config, "valid"), config.training.best_metric
        return cls(pairs, languages, scorer, scorer.default_metric if metric in ("auto", "loss") else metric)

    def sampled(self, number: int, seed: int) -> TuningSet:
        """A random sample of at most `number` pairs, in their order."""
        if len(self.pairs) <= number:
            return self
        rows = sorted(np.random.default_rng(seed).choice(len(self.pairs), number, replace=False))
        languages = [self.languages[row] for row in rows] if self.languages else []
        return replace(self, pairs=[self.pairs[row] for row in rows], languages=languages)

    @property
    def references(self) -> list[str]:
        return [target for _, target in self.pairs]

    def score(self, hypotheses: Sequence[str]) -> Score:
        """Score of translations of all pairs, as in `mt evaluate`: the mean of several directions."""
        texts, score = (hypotheses, self.references), partial(Scorer.score, names=[self.metric])
        return score_directions(self.scorer, self.languages, texts, score)[0][self.metric]


def choose(trials: Sequence[Trial], margin: float, longest: float = LONGEST) -> Trial:
    """The trial with the smallest beam whose score is at most `margin` below the best score.

    Among the settings of this beam size within the margin, the setting with the most default values is chosen, then the
    highest score, then the penalty closest to the default. Settings with a length ratio above `longest` are excluded;
    if all are above it, the setting with the most default values and the smallest ratio is chosen.
    """
    possible = [trial for trial in trials if trial.length_ratio <= longest]
    if not possible:
        return min(trials, key=lambda trial: (-trial.num_defaults, trial.length_ratio))
    best = max(trial.score for trial in possible)
    near = [trial for trial in possible if best - trial.score <= margin]
    beam_size = min(trial.beam_size for trial in near)
    return max(
        (trial for trial in near if trial.beam_size == beam_size),
        key=lambda trial: (trial.num_defaults, trial.score, -abs(trial.length_penalty - _DEFAULT_PENALTY)),
    )


class OutOfTimeError(Exception):
    """The time for tuning is over before any setting was tried on all pairs."""


def tune(
    translator: Translator,
    compared: TuningSet,
    settings: Sequence[DecodingConfig],
    margin: float,
    max_seconds: float = inf,
) -> dict[str, Any]:
    """Try all settings and choose one; returns what `mt tune-decoding --json` prints.

    See `choose` for `margin`. After `max_seconds`, the choice is among the settings that were tried until then
    (`num_settings` counts all). Raises OutOfTimeError if not even one was.
    """
    trials: dict[Trial, list[str]] = {}
    started_at, limit = time.monotonic(), max_seconds if max_seconds < inf else None
    with Progress("tune decoding", len(settings) * len(compared.pairs), "sentence", max_seconds=limit) as progress:

        def advance(number: int) -> None:
            progress.advance(number)
            if time.monotonic() - started_at > max_seconds:
                raise OutOfTimeError

        for decoding in settings:
            before = time.monotonic()
            try:
                texts = translations_of(replace(translator, decoding=decoding), compared.pairs, advance)
            except OutOfTimeError:
                if trials:
                    break
                raise
            seconds, score = round(time.monotonic() - before, 3), compared.score(texts).score
            progress.show(beam=f"{decoding.beam_size}", score=f"{score:.2f}")
            setting = decoding.beam_size, decoding.length_penalty
            trial = Trial(*setting, score, length_ratio(texts, compared.references), seconds, decoding.no_repeat_ngram)
            trials[trial] = texts
    chosen = choose(list(trials), margin)
    hypotheses, metric = trials[chosen], compared.metric
    interval = compared.scorer.score_with_confidence(hypotheses, compared.references, [metric])[metric]
    return {
        "num_sentences": len(compared.pairs),
        "metric": metric,
        "signature": compared.score(hypotheses).signature,
        "confidence_95": interval.confidence_95,
        "margin": margin,
        "num_settings": len(settings),
        "trials": [vars(trial) for trial in trials],
        "chosen": {
            "beam_size": chosen.beam_size,
            "no_repeat_ngram": chosen.no_repeat_ngram,
            # None keeps the penalty of the run.
            "length_penalty": chosen.length_penalty if chosen.beam_size > 1 else None,
            "score": chosen.score,
        },
    }


def write_choice(directory: RunDirectory, config: Config, chosen: Mapping[str, Any]) -> list[str]:
    """Write the chosen options into `config.yaml` of a run that is locked; return a line about each option."""
    options = {name: chosen[name] for name in ("beam_size", *TUNED) if chosen[name] is not None}
    options["no_repeat_ngram"] = chosen["no_repeat_ngram"]
    tuned = config.model_copy(update={"decoding": config.decoding.model_copy(update=options)})
    changed = differences(config, tuned)
    if not changed:
        return [f"{directory.config_path}: has these values already"]
    write_text(directory.config_path, tuned.to_yaml())
    return [f"{directory.config_path}: {key} was {old}, now {new}" for key, (old, new) in changed.items()]


def format_tuning(result: Mapping[str, Any]) -> str:
    """The settings with their scores as a table, and the choice, for people, several lines."""
    chosen, names = result["chosen"], ("beam_size", "length_penalty", "no_repeat_ngram")
    choice = ", ".join(f"{name} {chosen[name]:g}" for name in names if chosen[name] is not None)
    num_long = sum(trial["length_ratio"] > LONGEST for trial in result["trials"])
    why = f"the smallest beam within {result['margin']:g} of the best score"
    if num_long == len(result["trials"]):
        why = f"all are more than {LONGEST:g} times as long as their references, so defaults are kept"
    elif num_long:
        why += f", without translations more than {LONGEST:g} times as long as their references (too long)"
    return "\n".join(
        [
            f"{METRICS[result['metric']]} of {result['num_sentences']:,} sentences of {result['split']}  "
            f"{result['signature']}",
            f"{'beam':>4}{'no_repeat_ngram':>17}{'length penalty':>16}{'score':>8}{'length':>8}{'seconds':>9}",
            *(
                f"{trial['beam_size']:>4}{trial['no_repeat_ngram'] or 'off':>17}{trial['length_penalty']:>16g}"
                f"{trial['score']:>8.2f}{trial['length_ratio']:>8.2f}{trial['seconds']:>9.1f}"
                f"{'  too long' if trial['length_ratio'] > LONGEST else ''}"
                for trial in result["trials"]
            ),
            f"Chosen: {choice}: {why}.",
            f"The 95 % confidence interval of its score is ± {result['confidence_95']:.2f}.",
        ]
    )


@dataclass(frozen=True)
class Limits:
    """Settings that are tried at the end of training, and limits on text and time.

    Smaller gains than the margins may be losses on the test set: captions gained 0.12 BLEU on `valid` and lost 0.35 on
    the test set. chrF varies less than BLEU.
    """

    penalties: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0, 4.0)
    no_repeat_ngrams: tuple[int | None, ...] = (None, 3)
    margin: float = 0.5
    margin_of_chrf: float = 0.25
    fewest_pairs: int = 100
    fewest_searches: int = 3
    """Searches for which there must be time."""
    num_pairs: int = 600
    """Number of pairs with up to 40 target tokens on average; of longer pairs, fewer are translated."""
    share_of_time: float = 0.25
    least_seconds: float = 120.0


class TuningTime(NamedTuple):
    """Time of a training, and what is left for the search."""

    training_seconds: float
    seconds_left: float = inf
    seconds_per_pair: float = 0.0
    """Estimated time of one search; 0 if unknown."""


def tune_at_end(
    directory: RunDirectory,
    config: Config,
    data: Data,
    device: str,
    precision: str,
    time_of_run: TuningTime,
    limits: Limits = Limits(),
) -> None:
    """Choose options of `decoding` for the best checkpoint of a run that is locked; write them into its config."""
    decoding, valid = config.decoding, data.corpora["valid"]
    if decoding.sample or decoding.beam_size == 1:
        return
    if len(valid) < limits.fewest_pairs:
        return say(f"note: valid has {len(valid)} pairs, too few to tune the search by (training.tune_decoding)")
    length = max(40, data.statistics["valid"].target.tokens_per_sentence)
    number = max(limits.fewest_pairs, round(limits.num_pairs * 40 / length))
    seconds = max(limits.least_seconds, limits.share_of_time * time_of_run.training_seconds)
    seconds = min(seconds, max(0.0, time_of_run.seconds_left))
    later = f"mt tune-decoding --run {directory.path}"
    if time_of_run.seconds_per_pair:
        affordable = int(seconds / (limits.fewest_searches * time_of_run.seconds_per_pair))
        number = min(number, max(limits.fewest_pairs, affordable))
    compared = TuningSet.of(config, valid.pairs, valid.languages)
    compared = compared.sampled(number, config.training.seed)
    grid = [*limits.penalties, decoding.length_penalty], [*limits.no_repeat_ngrams, decoding.no_repeat_ngram]
    settings = search_grid(decoding, [decoding.beam_size], *grid)
    # In this order, settings with and without `no_repeat_ngram` are tried even if the time ends early.
    settings.sort(key=lambda setting: (setting.length_penalty, setting.no_repeat_ngram or 0))
    say(f"Choosing options of the search by {len(compared.pairs):,} pairs of valid, in at most {clock(seconds)}")
    margin = limits.margin_of_chrf if compared.metric == "chrf" else limits.margin
    translator = Translator.load(directory.path, device, precision)
    try:
        result = tune(translator, compared, settings, margin, seconds)
    except OutOfTimeError:
        return say(f"note: this time was too short to try one setting; the search is not tuned; now: {later}")
    if (num_tried := len(result["trials"])) < len(settings):
        say(f"note: only {num_tried} of {len(settings)} settings were tried in this time; with more time: {later}")
    say(format_tuning(result | {"split": "valid"}))
    write_choice(directory, config, result["chosen"])
