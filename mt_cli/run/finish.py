"""End of a run: tuning of the search, and scores of the best checkpoint."""

from __future__ import annotations

import math
from typing import Any

from mt_cli.advice.choices import forecast, recipe_for
from mt_cli.advice.facts import find_facts
from mt_cli.checkpoint.state import RunState
from mt_cli.corpus.languages import writes_spaces
from mt_cli.errors import RunInterruptedError
from mt_cli.evaluation.evaluate import SplitScores, evaluate, write_hypotheses
from mt_cli.evaluation.learning import learning_of
from mt_cli.evaluation.quality import FEWEST_PAIRS, MOST_PAIRS, fit_quality
from mt_cli.evaluation.results import Report
from mt_cli.evaluation.scores import scorer_of
from mt_cli.evaluation.tuning import TuningTime, tune_at_end
from mt_cli.run.report import Ending, write_report
from mt_cli.run.setup import Run
from mt_cli.runtime.console import say
from mt_cli.translation.quality import read_quality
from mt_cli.translation.translator import Translator

INTERRUPTED = "interrupted after the last step; the model is saved, and the same command does the rest"

_SHARE_OF_QUALITY = 0.03
"""Share of `max_minutes` for the estimate of quality."""


def finish(run: Run, ending: Ending) -> Report:
    """Tune the search if the config says so; score the best checkpoint on the test sets; return the report.

    Raises RunInterruptedError after a signal; the same command then repeats the end of the run.
    """
    try:
        training, state = run.config.training, ending.state
        if training.tune_decoding:
            time = TuningTime(state.elapsed_seconds)
            if plan := state.plan_for(training):
                left = 60 * plan.minutes - state.elapsed_seconds - plan.closing_seconds
                tokens_per_pair = run.data.statistics["valid"].target.tokens_per_sentence
                time = TuningTime(state.elapsed_seconds, left, plan.seconds_per_searched_token * tokens_per_pair)
            tune_at_end(run.directory, run.config, run.data, str(run.device), run.precision, time)
        _score(run, ending)
        _fit_quality(run, state)
        return write_report(run, ending)
    except KeyboardInterrupt:
        raise RunInterruptedError(INTERRUPTED) from None


def _score(run: Run, ending: Ending) -> None:
    """Score the best checkpoint on each test set, or on `valid` if there is none, and write its translations.

    Signs of learning are those of the first set. Translations are made in the precision of training, which the report
    names.
    """
    path, corpora = run.directory.path, run.data.corpora
    names = [name for name in corpora if name not in ("train", "valid")] or ["valid"]
    translator = Translator.load(path, str(run.device), run.precision)
    for name in names:
        scorer, corpus = scorer_of(run.config, name), corpora[name]
        say(f"Scoring {name}: {len(corpus):,} sentences")
        scores, hypotheses = evaluate(translator, corpus.pairs, name, scorer, corpus.languages, corpus.blank_rows())
        write_hypotheses(path / "hypotheses" / f"{name}.txt", hypotheses)
        if name == names[0]:
            sources, references = zip(*corpus.pairs, strict=True)
            signs = _expected(run, ending, scores)
            ending.learning = learning_of(scorer, (sources, hypotheses, references), corpus.languages, **signs)
        ending.scores[name] = scores


def _fit_quality(run: Run, state: RunState) -> None:
    """Fit the estimate of quality of the best checkpoint, unless it is there, `valid` is small, or minutes are few."""
    valid, most = run.data.corpora["valid"], MOST_PAIRS
    if plan := state.plan_for(run.config.training):
        tokens_per_pair = run.data.statistics["valid"].target.tokens_per_sentence
        affordable = _SHARE_OF_QUALITY * 60 * plan.minutes
        most = min(most, int(affordable / max(1e-9, plan.seconds_per_searched_token * tokens_per_pair)))
    if min(most, len(valid)) >= FEWEST_PAIRS and read_quality(run.directory.path) is None:
        translator = Translator.load(run.directory.path, str(run.device), run.precision)
        fit_quality(run.directory, run.config, translator, valid.pairs, valid.languages, most)


def _expected(run: Run, ending: Ending, scores: SplitScores) -> dict[str, Any]:
    """Length of a run and, unless it begins with another one or reads a stream, the score expected of its text."""
    state, length, training = ending.state, ending.length, run.config.training
    expected = of_all = None
    num_planned = length.num_steps
    plan, minutes = state.plan_for(training), 0
    if "train" in run.data.corpora and not state.parents:
        facts = find_facts(run.config, run.data.corpora)
        if training.max_epochs is None or training.max_steps is not None:  # The text does not set the length.
            num_planned = max(state.position.step, round(recipe_for(facts).num_tokens / length.step_tokens))
        if writes_spaces(run.config.corpus.target):
            expected, of_all = forecast(facts, state.position.step * length.step_tokens), forecast(facts)
    if num_planned:
        per_step = state.elapsed_seconds / max(1, state.position.step)
        by_time = math.ceil(num_planned * per_step / 60)
        minutes = plan.minutes_for(num_planned, per_step) if plan else by_time
    metric = of_all.metric if of_all else "chrf"
    is_limited = ending.stopped_because.startswith("max_steps")
    return {
        "metric": metric,
        "score": round(scores.scores[metric].score, 2),
        "expected": expected and (round(expected.low, 1), round(expected.high, 1)),
        "expected_of_all": of_all and (of_all.low, of_all.high),
        "num_steps": state.position.step,
        "num_planned": num_planned,
        "minutes_for_all": minutes,
        "continue_with": f"max_steps={num_planned}" if is_limited else f"max_minutes={minutes}",
        "is_cut": not ending.stopped_because.startswith("patience"),
    }
