"""The end of a run: whether it is reached, the final test, `report.json`, and the batch on which training diverged."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, FiniteFloat

from mt_cli import hooks
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState
from mt_cli.config.loading import flat
from mt_cli.config.sections import Config
from mt_cli.errors import InputError
from mt_cli.evaluation.evaluate import SplitScores, evaluate, format_scores, write_hypotheses
from mt_cli.evaluation.texts import metric_id_of, scorer_of
from mt_cli.machine.console import clock, say
from mt_cli.machine.devices import describe_hardware, describe_versions
from mt_cli.machine.storage import read_model, write_text
from mt_cli.run.data_report import report_on_data
from mt_cli.run.records import write_hparams
from mt_cli.training.steps import StepReport
from mt_cli.translation.translator import Translator

if TYPE_CHECKING:
    from mt_cli.run.setup import Setup


_ON_VALID = (
    "note: valid chose the checkpoint, so its scores are somewhat too high; "
    "name a test set (corpus.test) for an honest score"
)


class DataRow(BaseModel, extra="allow"):
    """The statistics of one source of a corpus."""

    corpus: str = ""
    name: str = ""
    num_read: int | None = None
    num_kept: int | None = None
    num_held_out: int = 0
    dropped: dict[str, int] = {}

    @property
    def left_out(self) -> dict[str, int]:
        """The number of pairs by the reason for which they are not in this corpus."""
        return self.dropped | ({"held out for valid": self.num_held_out} if self.num_held_out else {})


class ParentRecord(BaseModel, extra="allow"):
    """A run that a run began with."""

    run: str
    languages: tuple[str, str]


class BestValidation(BaseModel):
    """The best score on the validation set, and that of the weights that training began with, if they had one."""

    metric: str = ""
    best: float | None = None
    parent: float | None = None
    is_below_parent: bool = False


class Report(SplitScores):
    """How a run ended: the content of `report.json`, with the scores of the first test set."""

    extra_tests: Mapping[str, SplitScores] = {}
    parents: Sequence[ParentRecord] = ()
    validation: BestValidation = BestValidation()
    stopped_because: str
    best_step: int
    averaged_steps: list[int] | None = None
    num_steps: int
    num_epochs: int = 0
    num_target_tokens: int
    num_bad_steps: int = 0
    num_restarts: int = 0
    corpora: Sequence[DataRow] = ()
    elapsed_seconds: FiniteFloat = 0.0
    num_parameters: int
    precision: str = ""
    num_processes: int = 1
    hardware: Mapping[str, str | int | float | None] = {}
    versions: Mapping[str, str] = {}


def read_report(directory: RunDirectory) -> Report | None:
    """The report of a run; None if it has none that can be used."""
    with suppress(InputError):
        return read_model(directory.report_path, Report)
    return None


def finished_report(directory: RunDirectory, config: Config, state: RunState) -> Report | None:
    """The report of a run that is finished under a config; None if there is more to do."""
    report = read_report(directory) if state.reason_to_stop(config.training) else None
    if report is None:  # One that cannot be read is written again.
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


def write_report(setup: Setup, state: RunState, stopped_because: str) -> Report:
    """Score the best checkpoint on the test sets; write and return the report.

    Translations are made in the precision of training, which the report names.
    """
    directory, data, position = setup.directory, setup.data, state.position
    translator = Translator.load(directory.path, str(setup.device), setup.precision)
    scores = {}
    for name in [name for name in data.corpora if name not in ("train", "valid")] or ["valid"]:
        scorer = scorer_of(setup.config, name)
        corpus = data.corpora[name]
        languages = corpus.languages(setup.config.corpus.languages_of(name))
        say(f"Scoring {name}: {len(corpus):,} sentences (training.max_minutes does not count this)")
        scores[name], hypotheses = evaluate(translator, corpus.pairs, name, scorer, languages, corpus.left_out())
        write_hypotheses(directory.path, name, hypotheses)
    first, *others = scores.values()
    best = directory.best_state()
    report = Report(
        **first.model_dump(exclude_unset=True),
        run=setup.config.name,
        extra_tests={each.split: each for each in others},
        parents=[ParentRecord(**asdict(parent)) for parent in state.parents],
        validation=_validation(state),
        stopped_because=stopped_because,
        best_step=state.best_step,
        averaged_steps=best.averaged_steps if best else None,
        num_steps=position.step,
        num_epochs=position.epoch,
        num_target_tokens=position.num_target_tokens,
        num_bad_steps=state.num_bad_steps,
        num_restarts=state.num_restarts,
        corpora=[DataRow(**row) for row in report_on_data(data, setup.config, position.num_pairs, setup.pairs.counts)],
        elapsed_seconds=round(state.elapsed_seconds, 3),
        num_parameters=setup.num_parameters,
        precision=setup.precision,
        num_processes=position.num_processes,
        hardware=describe_hardware(setup.device),
        versions=describe_versions(),
    )
    _write_hparams(setup, position.step + 1, scores)  # At the next step: a resumed run drops these values.
    tree = report.model_dump(mode="json", exclude_unset=True)
    write_text(directory.report_path, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")
    return report


def _validation(state: RunState) -> BestValidation:
    is_loss = state.best_metric == "loss"  # The state has it negated.
    best, parent = (
        None if value is None else round(-value if is_loss else value, 4)
        for value in (state.best_value, state.parent_value if state.parent_metric == state.best_metric else None)
    )
    is_below = state.is_below_parent(state.best_value, state.best_metric)
    return BestValidation(metric=state.best_metric, best=best, parent=parent, is_below_parent=is_below)


def _write_hparams(setup: Setup, step: int, scores: Mapping[str, SplitScores]) -> None:
    """Write options and final scores for TensorBoard's table of runs, which shows the first few by alphabet."""
    sections = ("tokenizer", "model", "training")
    options = {key: value for name in sections for key, value in flat(getattr(setup.config, name), name).items()}
    values = {
        f"final/{name}_{metric}": each.scores[metric].score
        for name, each in scores.items()
        for metric in ("bleu", "chrf")
    }
    write_hparams(setup.directory.path, step, options, values | {"final/parameters": float(setup.num_parameters)})


def write_bad_batch(setup: Setup, skipped: StepReport) -> None:
    """Write the pairs of a skipped step to `bad_batch.jsonl`."""
    pairs = (batch.pairs[int(index)] for batch in skipped.placed for index in batch.indices)
    sides = [
        tokenizer.decode([ids.tolist() for ids in side])
        for tokenizer, side in zip(setup.data.tokenizers, zip(*pairs, strict=True), strict=True)
    ]
    rows = ({"source": source, "target": target} for source, target in zip(*sides, strict=True))
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text(setup.directory.bad_batch_path, text)


def _notes_on_validation(found: BestValidation) -> Iterator[str]:
    if found.is_below_parent:
        scores = f"{found.metric} {found.best:.4g} instead of {found.parent:.4g}"
        yield (
            f"The best checkpoint is worse on valid than the run that training began with ({scores}): use that run, or "
            "try a smaller training.learning_rate or more pairs."
        )


def format_summary(report: Report, path: Path, needs_tag: bool = False) -> str:
    """How a run ended, for people, several lines; `needs_tag`: the model needs a tag, and has no default."""
    run = shlex.quote(str(path))
    skipped = f"{report.num_bad_steps:,} steps were skipped because their loss or gradient was not finite."
    to = "--to CODE " if report.directions else "--tag TAG " if needs_tag else ""
    return "\n".join(
        [
            f"\nStopped by {report.stopped_because} after {report.num_steps:,} steps, "
            f"{report.num_target_tokens:,} target tokens and {clock(report.elapsed_seconds)}; "
            f"best step {report.best_step:,}.",
            *([skipped] if report.num_bad_steps else []),
            *_notes_on_validation(report.validation),
            *map(format_scores, (report, *report.extra_tests.values())),
            *([_ON_VALID] if report.split == "valid" else []),
            f"\nThe run is in {path}: scores in report.json, translations in hypotheses/, weights in checkpoints/.",
            f'Translate:  mt translate --run {run} {to}"..."',
            *([f"Look:       mt report --run {run}"] if hooks.has("save_attention") else []),
            f"Curves:     tensorboard --logdir {shlex.quote(str(path.parent))}",
            f"Evaluate:   mt evaluate --run {run} {to}--source FILE --reference FILE",
        ]
    )


def notes_on_comparison(reports: Sequence[Report | None]) -> list[str]:
    """What the scores of runs do not say about their configs (None if unknown); nothing without runs."""
    known = [report.num_steps for report in reports if report is not None]
    lengths = " and ".join(f"{steps:,}" for steps in known)
    unequal = [f"the runs had {lengths} steps, so a difference may come from the length of the training alone"]
    seeds = (
        "one run of each config says nothing about other seeds, so compare several values of training.seed; a p-value "
        "(mt evaluate --against) is about the choice of test sentences alone"
    )
    return [*(unequal if len(set(known)) > 1 else []), seeds] if reports else []
