"""End of a run: averaging, tuning of the search, scores of the best checkpoint, and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState, best_of, last_of, record_of
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import flat
from mt_cli.corpus.cache import Cache
from mt_cli.data.describe import report_on_data
from mt_cli.data.prepare import fingerprints_of, prepare
from mt_cli.errors import RunInterruptedError
from mt_cli.evaluation.evaluate import SplitScores, evaluate, write_hypotheses
from mt_cli.evaluation.scores import scorer_of
from mt_cli.features.averages.averages import available_validations, mean_of, steps_to_average
from mt_cli.machine.console import say
from mt_cli.machine.devices import describe_hardware, describe_versions, keep_memory, pick_device, pick_precision
from mt_cli.machine.storage import json_text, write_text
from mt_cli.model.transformer import Transformer
from mt_cli.reporting.records import write_hparams
from mt_cli.reporting.report import BestValidation, DataRow, ParentRecord, Report
from mt_cli.run.context import TrainingContext
from mt_cli.run.resuming import check_data
from mt_cli.run.validation import Validator
from mt_cli.training.averaging import replaced
from mt_cli.training.objective import Objective
from mt_cli.translation.translator import Translator


def finish(context: TrainingContext, state: RunState, stopped_because: str) -> Report:
    """Average checkpoints and tune the search if the config says so; score the best checkpoint; return the report."""
    try:
        _average_at_end(context, state)
        if context.config.training.tune_decoding:
            from mt_cli.evaluation.tuning import tune_at_end

            device, seconds = str(context.device), state.elapsed_seconds
            tune_at_end(context.directory, context.config, context.data, device, context.precision, seconds)
        return _write_report(context, state, stopped_because)
    except KeyboardInterrupt:
        message = "interrupted after the last step; the model is saved, and the same command does the rest"
        raise RunInterruptedError(message) from None


def _average_at_end(context: TrainingContext, state: RunState) -> None:
    """If the config says so, compute the means of the last and of the best checkpoints; keep a mean that is better."""
    number = context.config.training.average_checkpoints
    if number is None:
        return
    validations = available_validations(context.directory, state)
    choices = last_of(validations, number), best_of(validations, number)
    for steps in sorted({tuple(sorted(validated.step for validated in choice)) for choice in choices}):
        if len(steps) > 1:
            say(_try_mean(context.directory, context.model, context.validator, state, steps))


def average_run(path: Path, last: int | None, best: int | None) -> list[str]:
    """Average the last or the best checkpoints of a run; return the scores as lines. Another process must not train it.

    The mean becomes `best` if its score on the validation set is better; the previous best stays as `before_average`.
    Raises RunError if the run has not kept enough checkpoints or is being trained, and the errors of `prepare` and
    `TrainedRun.load`.
    """
    directory = RunDirectory(path)
    directory.config()  # Raises an error if this is not a run, before the lock makes the directory.
    with directory.locked():
        steps = steps_to_average(directory, last, best)
        run = TrainedRun.load(path, is_merged=False)
        data = prepare(run.config, Cache(path.parent / ".cache", say), run.tokenizers)
        keep_memory()
        device, training, state = pick_device(run.config.training.device), run.config.training, run.state
        check_data(directory, fingerprints_of(data.corpora, run.config) | directory.frozen_file_digests(), state)
        objective = Objective(run.model.to(device), training)
        dtype = pick_precision(training.precision, device)
        validator = Validator(objective, data, run.config, dtype, device, state.longest_source)
        validation = validator.validate()
        state.set_best(state.best_step, validation.value, validation.loss, validator.metric_id)
        present = f"best so far, of step {state.best_step:,}: {validator.describe(validation)}"
        return [present, _try_mean(directory, run.model, validator, state, steps)]


def _try_mean(
    directory: RunDirectory, model: Transformer, validator: Validator, state: RunState, steps: tuple[int, ...]
) -> str:
    """Validate the mean of the checkpoints of some steps; save it as the best if it is better; return its score."""
    paths = directory.validated()
    with replaced(model, mean_of([paths[step] for step in steps], model)):
        validation = validator.validate()
        is_better = state.is_better(validation.value, validation.loss)
        if is_better:
            state.set_best(steps[-1], validation.value, validation.loss, validator.metric_id)
            directory.save_average(model, asdict(state), steps)
    verdict = "the new best" if is_better else "not better, the best checkpoint stays"
    return f"mean of steps {', '.join(f'{step:,}' for step in steps)}: {validator.describe(validation)}; {verdict}"


def _write_report(context: TrainingContext, state: RunState, stopped_because: str) -> Report:
    """Score the best checkpoint on the test sets; write and return the report.

    Translations are made in the precision of training, which the report names.
    """
    directory, data, position = context.directory, context.data, state.position
    translator = Translator.load(directory.path, str(context.device), context.precision)
    scores = {}
    for name in [name for name in data.corpora if name not in ("train", "valid")] or ["valid"]:
        scorer = scorer_of(context.config, name)
        corpus = data.corpora[name]
        languages = corpus.languages(context.config.corpus.languages_of(name))
        say(f"Scoring {name}: {len(corpus):,} sentences (training.max_minutes does not count this)")
        scores[name], hypotheses = evaluate(translator, corpus.pairs, name, scorer, languages, corpus.blank_rows())
        write_hypotheses(directory.path / "hypotheses" / f"{name}.txt", hypotheses)
    first, *others = scores.values()
    best = directory.best_state()
    report = Report(
        **first.model_dump(exclude_unset=True),
        run=context.config.name,
        extra_tests={each.split: each for each in others},
        parents=[ParentRecord(**record_of(parent)) for parent in state.parents],
        validation=_validation(state),
        stopped_because=stopped_because,
        best_step=state.best_step,
        averaged_steps=best.averaged_steps if best else None,
        num_steps=position.step,
        num_epochs=position.epoch,
        num_target_tokens=position.num_target_tokens,
        num_bad_steps=state.num_bad_steps,
        num_restarts=state.num_restarts,
        corpora=[
            DataRow(**row) for row in report_on_data(data, context.config, position.num_pairs, context.pairs.counts)
        ],
        elapsed_seconds=round(state.elapsed_seconds, 3),
        num_parameters=context.num_parameters,
        precision=context.precision,
        num_processes=position.num_processes,
        hardware=describe_hardware(context.device),
        versions=describe_versions(),
    )
    _write_hparams(context, position.step + 1, scores)  # At the next step, so that a resumed run drops these values.
    tree = report.model_dump(mode="json", exclude_unset=True)
    write_text(directory.report_path, json_text(tree))
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


def _write_hparams(context: TrainingContext, step: int, scores: Mapping[str, SplitScores]) -> None:
    """Write options and final scores for TensorBoard's table of runs, which shows the first names of the alphabet."""
    sections = ("tokenizer", "model", "training")
    options = {key: value for name in sections for key, value in flat(getattr(context.config, name), name).items()}
    values = {
        f"final/{name}_{metric}": each.scores[metric].score
        for name, each in scores.items()
        for metric in ("bleu", "chrf")
    }
    write_hparams(context.directory.path, step, options, values | {"final/parameters": float(context.num_parameters)})
