"""End of a run: averaging, tuning of the search, scores of the best checkpoint, and the report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState, best_of, last_of
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import fingerprints_of, prepare
from mt_cli.errors import RunInterruptedError
from mt_cli.features.averages.averages import available_validations, mean_of, steps_to_average
from mt_cli.machine.console import say
from mt_cli.machine.devices import keep_memory, pick_device, pick_precision
from mt_cli.model.transformer import Transformer
from mt_cli.reporting.report import Report
from mt_cli.run.report import write_report
from mt_cli.run.resuming import check_data
from mt_cli.run.setup import TrainingContext
from mt_cli.run.validation import Validator
from mt_cli.training.averaging import replaced
from mt_cli.training.objective import Objective


def finish(context: TrainingContext, state: RunState, stopped_because: str) -> Report:
    """Average checkpoints and tune the search if the config says so; score the best checkpoint; return the report."""
    try:
        average_at_end(context, state)
        if context.config.training.tune_decoding:
            from mt_cli.features.tuning.at_end import tune_at_end

            device, seconds = str(context.device), state.elapsed_seconds
            tune_at_end(context.directory, context.config, context.data, device, context.precision, seconds)
        return write_report(context, state, stopped_because)
    except KeyboardInterrupt:
        message = "interrupted after the last step; the model is saved, and the same command does the rest"
        raise RunInterruptedError(message) from None


def average_at_end(context: TrainingContext, state: RunState) -> None:
    """If the config says so, try the means of the last and of the best validated checkpoints as the best one."""
    number = context.config.training.average_checkpoints
    if number is None:
        return
    validations = available_validations(context.directory, state)
    choices = last_of(validations, number), best_of(validations, number)
    for steps in sorted({tuple(sorted(validated.step for validated in choice)) for choice in choices}):
        if len(steps) > 1:
            say(_try_mean(context.directory, context.model, context.validator, state, steps))


def average_run(path: Path, last: int | None, best: int | None) -> list[str]:
    """Average the last or the best checkpoints of a run that is not being trained; return the scores as lines.

    The mean becomes `best` if its score on the validation set is better; the previous best stays as `before_average`.
    Raises RunError if the run has not kept enough checkpoints or is being trained, and the errors of `prepare` and
    `TrainedRun.load`.
    """
    directory = RunDirectory(path)
    directory.config()  # Raises now if this is no run, because the lock would make the directory.
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
