"""Report of a run at its end: `report.json`, and the summary that is printed."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import Config
from mt_cli.data.statistics import report_on_data
from mt_cli.evaluation.evaluate import SplitScores, format_scores
from mt_cli.evaluation.learning import Learning
from mt_cli.evaluation.results import BestValidation, DataRow, Report, notes_on_training, read_report
from mt_cli.evaluation.scores import metric_id_of, scorer_of
from mt_cli.run.setup import Run
from mt_cli.runtime.console import clock
from mt_cli.runtime.devices import describe_hardware, describe_versions
from mt_cli.runtime.files import json_text, write_text
from mt_cli.training.plan import Length
from mt_cli.translation.quality import read_quality


@dataclass
class Ending:
    """Results of a training, and of the parts of its end that are done."""

    state: RunState
    """State after the last validation, which no state that a run resumes from has."""
    stopped_because: str
    num_parameters: int
    length: Length
    pair_counts: Sequence[Counter[str]] = ()
    """Numbers of rows by status, of each stream, since the last start of the training."""
    scores: dict[str, SplitScores] = field(default_factory=dict)
    learning: Learning | None = None


def finished_report(directory: RunDirectory, config: Config, state: RunState) -> Report | None:
    """Report of a run that is finished according to a config; None if it still has to be trained or scored."""
    report = read_report(directory) if state.reason_to_stop(config.training) else None
    if report is None:  # A damaged report is written again.
        return None
    tokenizer = scorer_of(config, report.split).bleu_tokenizer
    best = directory.best_state()
    is_current = (
        report.num_steps == state.position.step
        and "bleu" in report.scores
        and f"|tok:{tokenizer}" in report.scores["bleu"].signature
        and best is not None
        and best.best_metric == metric_id_of(config, scorer_of(config, "valid"))
    )
    return report if is_current else None


def format_summary(report: Report, path: Path, needs_tag: bool = False) -> str:
    """Summary of scores and next commands; `needs_tag` if the model has no default tag."""
    run = shlex.quote(str(path))
    on_valid = (
        "note: valid chose the checkpoint, so its scores are somewhat too high; name a test set (corpus.test) for an "
        "honest score"
    )
    quality = read_quality(path)
    to = "--to CODE " if report.directions else "--to TAG " if needs_tag else ""
    return "\n".join(
        [
            f"\nStopped by {report.stopped_because} after {report.num_steps:,} steps, "
            f"{report.num_target_tokens:,} target tokens and {clock(report.elapsed_seconds)} of training; "
            f"best step {report.best_step:,}.",
            *notes_on_training(report),
            *map(format_scores, (report, *report.extra_tests.values())),
            *([on_valid] if report.split == "valid" else []),
            *([quality.describe_error()] if quality else []),
            f"\nThe run is in {path}: scores in report.json, translations in hypotheses/, weights in checkpoints/.",
            f'Translate:  mt translate --run {run} {to}"..."',
            f"Look:       mt report --run {run}",
            f"Curves:     tensorboard --logdir {shlex.quote(str(path.parent))}",
            f"Evaluate:   mt evaluate --run {run} {to}--source FILE --reference FILE",
        ]
    )


def write_report(run: Run, ending: Ending) -> Report:
    """Write the report of a run whose test sets are scored; return it."""
    state, position = ending.state, ending.state.position
    first, *others = ending.scores.values()
    best = run.directory.best_state()
    report = Report(
        **first.model_dump(exclude_unset=True),
        run=run.config.name,
        extra_tests={test.split: test for test in others},
        parents=state.parents,
        validation=_validation(state),
        learning=ending.learning,
        stopped_because=ending.stopped_because,
        best_step=state.best_step,
        averaged_steps=best.averaged_steps if best else None,
        num_steps=position.step,
        num_epochs=position.epoch,
        num_target_tokens=position.num_target_tokens,
        num_bad_steps=state.num_bad_steps,
        corpora=[
            DataRow(**row)
            for row in report_on_data(
                run.data,
                run.config,
                position.num_pairs,
                ending.pair_counts,
                state.selected.num_kept if state.selected else (),
            )
        ],
        elapsed_seconds=round(state.elapsed_seconds, 3),
        num_parameters=ending.num_parameters,
        precision=run.precision,
        num_processes=position.num_processes,
        hardware=describe_hardware(run.device),
        versions=describe_versions(),
    )
    write_text(run.directory.report_path, json_text(report.model_dump(mode="json", exclude_unset=True)))
    return report


def _validation(state: RunState) -> BestValidation:
    is_loss = state.best_metric == "loss"  # The state holds the negated loss.
    best, parent = (
        None if value is None else round(-value if is_loss else value, 4)
        for value in (state.best_value, state.parent_value if state.parent_metric == state.best_metric else None)
    )
    is_below = state.is_below_parent(state.best_value, state.best_metric)
    is_above = None if best is None or parent is None else not is_below and best != parent
    return BestValidation(
        metric=state.best_metric, best=best, parent=parent, is_below_parent=is_below, is_above_parent=is_above
    )
