"""Choosing options of the search on the validation set, after or at the end of training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Any

import numpy as np

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.loading import changed_section, differences
from mt_cli.config.sections import TUNED, Config, DecodingConfig
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.errors import InputError
from mt_cli.evaluation.directions import mean_scores, rows_by_direction, scores_by_direction
from mt_cli.evaluation.evaluate import translations_of
from mt_cli.evaluation.texts import METRICS, Score, Scorer
from mt_cli.machine.console import Progress
from mt_cli.machine.storage import write_text
from mt_cli.translation.translator import Translator

_FEWEST_PAIRS_OF_TAG = 50
_DEFAULT_PENALTY = DecodingConfig().length_penalty


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
    no_repeat_ngram: int | None = None


def search_grid(
    decoding: DecodingConfig,
    beam_sizes: Sequence[int],
    length_penalties: Sequence[float],
    no_repeat_ngrams: Sequence[int | None],
) -> list[DecodingConfig]:
    """The settings to try, by beam size, `no_repeat_ngram` and length penalty.

    The other options are those of `decoding`, but without `length_penalties`. Raises InputError for sampling and for a
    value that `decoding` does not allow.
    """
    if decoding.sample:
        raise InputError("decoding.sample is true in the config of this run; only a search has a beam to tune")
    ngrams = sorted(set(no_repeat_ngrams), key=lambda each: each or 0)
    grid = product(sorted(set(beam_sizes)), ngrams, sorted(set(length_penalties)))
    plain = decoding.model_copy(update={"no_repeat_ngram": None, "length_penalties": {}})
    return [
        changed_section(plain, {"beam_size": size, "no_repeat_ngram": ngram, "length_penalty": penalty})
        for size, ngram, penalty in grid
    ]


def metric_of(config: Config, scorer: Scorer) -> str:
    """The metric that selects the best checkpoint or, if that is the loss, the one that `auto` would choose."""
    metric = config.training.best_metric
    return scorer.default_metric if metric in ("auto", "loss") else metric


@dataclass(frozen=True)
class TuningSet:
    """The pairs that settings are compared on."""

    pairs: Sequence[Pair]
    languages: Sequence[Languages]
    """Of each pair; empty if there is only one direction."""
    scorer: Scorer
    metric: str

    def sampled(self, number: int, seed: int) -> TuningSet:
        """A random sample of at most `number` pairs, in their order."""
        if len(self.pairs) <= number:
            return self
        return self._of_rows(sorted(np.random.default_rng(seed).choice(len(self.pairs), number, replace=False)))

    @property
    def references(self) -> list[str]:
        """The targets."""
        return [target for _, target in self.pairs]

    @property
    def tags(self) -> list[str]:
        """The first word of each source, which is its tag if it has one."""
        return [source.partition(" ")[0] for source, _ in self.pairs]

    def score(self, hypotheses: Sequence[str]) -> Score:
        """The score of translations of all pairs, as `mt evaluate` has it: of several directions, the mean."""
        texts, names = (hypotheses, self.references), [self.metric]
        directions = scores_by_direction(self.scorer, self.languages, *texts, names)
        return (mean_scores(directions) if directions else self.scorer.score(*texts, names))[self.metric]

    def confidence(self, hypotheses: Sequence[str]) -> float:
        """Half the width of the 95 % confidence interval of the score of all pairs together."""
        return self.scorer.confidence(hypotheses, self.references, [self.metric])[self.metric]

    def length_ratio(self, hypotheses: Sequence[str]) -> float:
        """Characters of translations by those of the references; as in chrF, spaces do not count."""
        lengths = [sum(len(word) for text in texts for word in text.split()) for texts in (hypotheses, self.references)]
        return round(lengths[0] / max(1, lengths[1]), 2)

    def trials_by_tag(self, trials: Mapping[Trial, Sequence[str]], tags: Sequence[str]) -> dict[str, list[Trial]]:
        """The trials as they are for the pairs of each tag alone; empty if there is only one direction.

        `trials` have the translations of all pairs. A tag with few pairs is left out.
        """
        found: dict[str, list[Trial]] = {}
        for tag in sorted(set(tags) & set(self.tags)) if rows_by_direction(self.languages) else []:
            rows = [row for row, own in enumerate(self.tags) if own == tag]
            if len(rows) < _FEWEST_PAIRS_OF_TAG:
                continue
            own = self._of_rows(rows)
            own = replace(own, scorer=self.scorer.for_language(own.languages[0][1]))
            for trial, all_texts in trials.items():
                texts = [all_texts[row] for row in rows]
                score, ratio = own.score(texts).score, own.length_ratio(texts)
                found.setdefault(tag, []).append(replace(trial, score=score, length_ratio=ratio))
        return found

    def _of_rows(self, rows: Sequence[int]) -> TuningSet:
        languages = [self.languages[row] for row in rows] if self.languages else []
        return replace(self, pairs=[self.pairs[row] for row in rows], languages=languages)


def choose(trials: Sequence[Trial], margin: float, longest: float = inf) -> Trial:
    """The smallest beam whose score is at most `margin` below the best one.

    With that beam, the default length penalty and no `no_repeat_ngram`, or one of both, if their score is as close to
    the best; then the highest score, and of equal scores the penalty closest to the default. Length ratios above
    `longest` are no answer; if all are, it is the setting closest to the defaults with the smallest one.
    """
    possible = fitting(trials, longest)
    best = max(each.score for each in possible)
    near = [each for each in possible if best - each.score <= margin]
    near = [each for each in near if each.beam_size == min(trial.beam_size for trial in near)]
    return max(near, key=lambda each: (_num_defaults(each), each.score, -abs(each.length_penalty - _DEFAULT_PENALTY)))


def fitting(trials: Sequence[Trial], longest: float) -> list[Trial]:
    """The trials with length ratios up to `longest`; if there are none, the one to keep (see `choose`)."""
    short = [each for each in trials if each.length_ratio <= longest]
    return short or [min(trials, key=lambda each: (-_num_defaults(each), each.length_ratio))]


def _num_defaults(trial: Trial) -> int:
    return (trial.length_penalty == _DEFAULT_PENALTY) + (trial.no_repeat_ngram is None)


def tune(
    translator: Translator,
    compared: TuningSet,
    settings: Sequence[DecodingConfig],
    margin: float,
    longest: float = inf,
    max_seconds: float = inf,
) -> dict[str, Any]:
    """Scores of all settings and the choice among them, as `mt tune-decoding --json` prints them.

    `margin` and `longest`: see `choose`. With several directions, each tag has a length penalty of its own, if these
    together score at least as high as the best one for all tags; the other options are chosen for all pairs
    together. After `max_seconds`, the choice is among the settings that were tried until then (`num_settings` counts
    all). Raises OutOfTimeError if not even one was.
    """
    trials = _trials(translator, compared, settings, max_seconds)
    chosen = choose(list(trials), margin, longest)
    tags, penalties, hypotheses = dict[str, list[Trial]](), dict[str, float](), trials[chosen]
    if chosen.beam_size > 1:
        tags, penalties, hypotheses = _by_tag(translator.tags, compared, trials, chosen, margin, longest)
    score = compared.score(hypotheses)
    return {
        "num_sentences": len(compared.pairs),
        "metric": compared.metric,
        "signature": score.signature,
        "confidence_95": compared.confidence(hypotheses),
        "margin": margin,
        "num_settings": len(settings),
        "trials": [vars(each) for each in trials],
        "tags": {tag: [vars(each) for each in of_tag] for tag, of_tag in tags.items()},
        "chosen": {
            "beam_size": chosen.beam_size,
            "no_repeat_ngram": chosen.no_repeat_ngram,
            # None keeps those of the run.
            "length_penalty": chosen.length_penalty if chosen.beam_size > 1 else None,
            "length_penalties": penalties if chosen.beam_size > 1 else None,
            "score": score.score,
        },
    }


def _by_tag(
    names: Sequence[str],
    compared: TuningSet,
    trials: Mapping[Trial, list[str]],
    chosen: Trial,
    margin: float,
    longest: float,
) -> tuple[dict[str, list[Trial]], dict[str, float], list[str]]:
    """The trials of each tag, the length penalties of tags, and the translations with them.

    The penalties are none if they score less together than a setting with one penalty and this beam for all tags.
    """
    search = chosen.beam_size, chosen.no_repeat_ngram
    alike = {each: texts for each, texts in trials.items() if (each.beam_size, each.no_repeat_ngram) == search}
    tags = compared.trials_by_tag(alike, names)
    penalties = {tag: choose(of_tag, margin, longest).length_penalty for tag, of_tag in tags.items()}
    texts_of = {trial.length_penalty: texts for trial, texts in alike.items()}
    texts_by_tag = {tag: texts_of[penalty] for tag, penalty in penalties.items()}
    hypotheses = [texts_by_tag.get(tag, trials[chosen])[row] for row, tag in enumerate(compared.tags)]
    for_all = [each.score for each in fitting(list(trials), longest) if each.beam_size == chosen.beam_size]
    if penalties and compared.score(hypotheses).score < max(for_all):
        return tags, {}, trials[chosen]
    return tags, penalties, hypotheses


class OutOfTimeError(Exception):
    """The time for tuning is over before any setting was tried on all pairs."""


def _trials(
    translator: Translator, compared: TuningSet, settings: Sequence[DecodingConfig], max_seconds: float
) -> dict[Trial, list[str]]:
    """The trial of each setting and its translations; of fewer settings after `max_seconds`.

    The length penalty does not change greedy search, which is done once. For other beams each setting is a search of
    its own: the penalty decides when a search ends.
    """
    keys = [(each.beam_size, each.no_repeat_ngram, each.length_penalty * (each.beam_size > 1)) for each in settings]
    by_key = dict(zip(keys, settings, strict=True))
    found: dict[tuple[int, int | None, float], tuple[float, float, float, list[str]]] = {}
    ends_at = time.monotonic() + max_seconds
    limit = max_seconds if max_seconds < inf else None
    with Progress("tune decoding", len(by_key) * len(compared.pairs), "sentence", max_seconds=limit) as progress:

        def advance(number: int) -> None:
            progress.advance(number)
            if time.monotonic() > ends_at:
                raise OutOfTimeError

        for key, each in by_key.items():
            started_at = time.perf_counter()
            try:
                texts = translations_of(translator.with_decoding(each), compared.pairs, advance)
            except OutOfTimeError:
                break
            seconds = round(time.perf_counter() - started_at, 3)
            score = compared.score(texts).score
            found[key] = score, compared.length_ratio(texts), seconds, texts
            progress.show(beam=f"{each.beam_size}", score=f"{score:.2f}")
    if not found:
        raise OutOfTimeError
    return {
        Trial(each.beam_size, each.length_penalty, *found[key][:3], each.no_repeat_ngram): found[key][3]
        for each, key in zip(settings, keys, strict=True)
        if key in found
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
    """The scores as a table, beam sizes by length penalties, and the choice, for people, several lines."""
    label, trials, chosen = METRICS[result["metric"]], result["trials"], result["chosen"]
    penalties = sorted({each["length_penalty"] for each in trials})
    searches = dict.fromkeys((each["beam_size"], each["no_repeat_ngram"]) for each in trials)
    titles = {each: f"beam {each[0]}" + (f", no_repeat_ngram {each[1]}" if each[1] else "") for each in searches}
    width = max(map(len, ("length penalty", *titles.values())))
    lines = [
        f"{label} of {result['num_sentences']:,} sentences of {result['split']}  {result['signature']}",
        f"{'length penalty':<{width}}" + "".join(f"{penalty:>8g}" for penalty in penalties) + f"{'seconds':>10}",
    ]
    for search, title in titles.items():
        row = [each for each in trials if (each["beam_size"], each["no_repeat_ngram"]) == search]
        scores = "".join(f"{each['score']:>8.2f}" for each in row)
        lines.append(f"{title:<{width}}{scores}{sum(each['seconds'] for each in row) / len(row):>10.1f}")
    choice, reason = f"beam_size {chosen['beam_size']}", "greedy search has no length penalty"
    if chosen["length_penalty"] is not None:
        choice += f", length_penalty {chosen['length_penalty']:g}"
        reason = f"length penalty {_DEFAULT_PENALTY:g} is preferred if it was tried and is within it, too"
    if chosen["no_repeat_ngram"]:
        choice += f", no_repeat_ngram {chosen['no_repeat_ngram']}"
    if chosen["length_penalties"]:
        listed = ", ".join(f"{tag} {penalty:g}" for tag, penalty in chosen["length_penalties"].items())
        choice += f"; each tag with its own, score {chosen['score']:.2f}: {listed}"
    elif result["tags"]:
        choice += "; one for all tags, because those that are best for each tag score less together"
    return "\n".join(
        [
            *lines,
            f"Chosen: {choice}: the smallest beam within {result['margin']:g} of the best score; {reason}.",
            f"The 95 % confidence interval of its score is ± {result['confidence_95']:.2f}; differences that are small "
            "compared with it are noise.",
        ]
    )
