"""Choosing beam size and length penalty on the validation set, after or at the end of training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.loading import changed_section, differences
from mt_cli.config.sections import Config, DecodingConfig
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.errors import InputError
from mt_cli.evaluation.directions import mean_scores, rows_by_direction, scores_by_direction
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
_PAIRS_OF_TAG_AT_END = 300


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
        return round(lengths[0] / max(1, lengths[1]), 3)

    def trials_by_tag(self, trials: Mapping[Trial, Sequence[str]], tags: Sequence[str]) -> dict[str, list[Trial]]:
        """The trials as they are for the pairs of each tag alone; empty if there is only one direction.

        `trials` have the translations of all pairs.
        """
        found: dict[str, list[Trial]] = {}
        for tag in sorted(set(tags) & set(self.tags)) if rows_by_direction(self.languages) else []:
            rows = [row for row, own in enumerate(self.tags) if own == tag]
            own = self._of_rows(rows)
            for trial, all_texts in trials.items():
                texts = [all_texts[row] for row in rows]
                score, ratio = own.score(texts).score, own.length_ratio(texts)
                found.setdefault(tag, []).append(replace(trial, score=score, length_ratio=ratio))
        return found

    def _of_rows(self, rows: Sequence[int]) -> TuningSet:
        languages = [self.languages[row] for row in rows] if self.languages else []
        scorer = self.scorer.for_language(languages[0][1]) if languages else self.scorer
        return replace(self, pairs=[self.pairs[row] for row in rows], languages=languages, scorer=scorer)


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
    compared: TuningSet,
    settings: Sequence[DecodingConfig],
    margin: float,
    longest: float = inf,
) -> dict[str, Any]:
    """Scores of all settings and the choice among them, as `mt tune-decoding --json` prints them.

    `margin` and `longest`: see `choose`. With several directions, each tag has a length penalty of its own, chosen
    among those of the beam that is chosen for all pairs together.
    """
    trials = _trials(translator, compared, settings)
    chosen = choose(list(trials), margin, longest)
    of_beam = {trial: texts for trial, texts in trials.items() if trial.beam_size == chosen.beam_size > 1}
    tags = compared.trials_by_tag(of_beam, translator.tags)
    penalties = {tag: choose(of_tag, margin, longest).length_penalty for tag, of_tag in tags.items()}
    texts_of = {trial.length_penalty: texts for trial, texts in of_beam.items()}
    texts_by_tag = {tag: texts_of[penalty] for tag, penalty in penalties.items()}
    hypotheses = [texts_by_tag.get(tag, trials[chosen])[row] for row, tag in enumerate(compared.tags)]
    score = compared.score(hypotheses)
    return {
        "num_sentences": len(compared.pairs),
        "metric": compared.metric,
        "signature": score.signature,
        "confidence_95": compared.confidence(hypotheses),
        "margin": margin,
        "trials": [vars(each) for each in trials],
        "tags": {tag: [vars(each) for each in of_tag] for tag, of_tag in tags.items()},
        "chosen": {
            "beam_size": chosen.beam_size,
            # None keeps those of the run.
            "length_penalty": chosen.length_penalty if chosen.beam_size > 1 else None,
            "length_penalties": penalties if chosen.beam_size > 1 else None,
            "score": score.score,
        },
    }


def _trials(translator: Translator, compared: TuningSet, settings: Sequence[DecodingConfig]) -> dict[Trial, list[str]]:
    """The trial of each setting and its translations.

    The length penalty does not change greedy search, which is done once. For other beams each setting is a search of
    its own: the penalty decides when a search ends.
    """
    pairs = compared.pairs
    # None keeps the length penalty of the run.
    keys = [(each.beam_size, each.length_penalty if each.beam_size > 1 else None) for each in settings]
    found: dict[tuple[int, float | None], tuple[float, float, float, list[str]]] = {}
    with Progress("tune decoding", len(set(keys)) * len(pairs), "sentence") as progress:
        for size, penalty in dict.fromkeys(keys):
            started_at = time.perf_counter()
            hypotheses = translations_of(translator, pairs, progress.advance, beam_size=size, length_penalty=penalty)
            seconds = round(time.perf_counter() - started_at, 3)
            score = compared.score(hypotheses).score
            found[size, penalty] = score, compared.length_ratio(hypotheses), seconds, hypotheses
            progress.show(beam=f"{size}", score=f"{score:.2f}")
    both = zip(settings, keys, strict=True)
    return {Trial(each.beam_size, each.length_penalty, *found[key][:3]): found[key][3] for each, key in both}


def tune_at_end(setup: Setup) -> None:
    """Choose length penalties for the best checkpoint of a run that is locked, and write them into its config."""
    config, directory = setup.config, setup.directory
    if config.decoding.sample or config.decoding.beam_size == 1:
        return
    translator = Translator.load(directory.path, str(setup.device), setup.precision)
    valid, scorer = setup.data.corpora["valid"], scorer_of(config, "valid")
    languages = valid.languages(config.corpus.languages_of("valid"))
    compared = TuningSet(valid.pairs, languages, scorer, metric_of(config, scorer))
    compared = compared.sampled(max(_PAIRS_AT_END, _PAIRS_OF_TAG_AT_END * len(translator.tags)), config.training.seed)
    penalties = [*_PENALTIES_AT_END, config.decoding.length_penalty, *config.decoding.length_penalties.values()]
    settings = search_grid(config.decoding, [config.decoding.beam_size], penalties)
    found = tune(translator, compared, settings, _MARGIN_AT_END, _LONGEST_AT_END)
    chosen, label = found["chosen"], METRICS[found["metric"]]
    say(f"decoding.length_penalty {chosen['length_penalty']:g} ({label} of valid: {_listed(found['trials'])})")
    for tag, of_tag in found["tags"].items():
        say(f"  {tag}  {chosen['length_penalties'][tag]:g} ({_listed(of_tag)})")
    if found["tags"]:
        say(f"  each tag with its own (decoding.length_penalties): {label} {chosen['score']:.2f}")
    write_choice(directory, config, chosen)


def _listed(trials: Sequence[Mapping[str, Any]]) -> str:
    """The score of each length penalty, and which make translations that are too long."""
    scores, too_long = list[str](), list[str]()
    for each in trials:
        row = f"{each['score']:.2f} with {each['length_penalty']:g}"
        is_long = each["length_ratio"] > _LONGEST_AT_END
        (too_long if is_long else scores).append(f"{row}, {each['length_ratio']:.2f}" if is_long else row)
    refused = f"; translations too long, compared with the references: {'; '.join(too_long)}" if too_long else ""
    return f"{', '.join(scores)}{refused}"


def write_choice(directory: RunDirectory, config: Config, chosen: Mapping[str, Any]) -> list[str]:
    """Write the chosen options into `config.yaml` of a run that is locked; return a line about each option."""
    options = {name: chosen[name] for name in ("beam_size", "length_penalty", "length_penalties")}
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
    if chosen["length_penalties"]:
        listed = ", ".join(f"{tag} {penalty:g}" for tag, penalty in chosen["length_penalties"].items())
        choice += f"; each tag with its own, score {chosen['score']:.2f}: {listed}"
    return "\n".join(
        [
            *lines,
            f"Chosen: {choice}: the smallest beam within {result['margin']:g} of the best score; {reason}.",
            f"The 95 % confidence interval of its score is ± {result['confidence_95']:.2f}; differences that are small "
            "compared with it are noise.",
        ]
    )
