"""Means of validated checkpoints of one run, which become its best checkpoint if they are better."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState, best_of, last_of
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import fingerprints_of, prepare
from mt_cli.features.averages.averages import available_validations, mean_of, steps_to_average
from mt_cli.machine.console import say
from mt_cli.machine.devices import keep_memory, pick_device, pick_precision
from mt_cli.model.transformer import Transformer
from mt_cli.run.resuming import check_data
from mt_cli.run.setup import TrainingContext
from mt_cli.run.validation import Validator
from mt_cli.training.averaging import replaced
from mt_cli.training.objective import Objective


def average_at_end(context: TrainingContext, state: RunState) -> None:
    """If the config says so, make the mean of the last or best validated checkpoints the best, if it is better."""
    number = context.config.training.average_checkpoints
    if number is None:
        return
    known = available_validations(context.directory, state)
    chosen = {tuple(sorted(each.step for each in some)) for some in (last_of(known, number), best_of(known, number))}
    for steps in sorted(chosen):
        if len(steps) > 1:
            say(_try_mean(context.directory, context.model, context.validator, state, steps))


def average_run(path: Path, last: int | None, best: int | None) -> list[str]:
    """Average the last or the best checkpoints of a run that is not being trained; return what was found, as lines.

    The mean becomes `best` if it is better than that on the validation set; the one before it stays as
    `before_average`. Raises RunError if the run has not kept enough checkpoints or is being trained, and as `prepare`
    and `TrainedRun.load`.
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
        found = validator.validate()
        state.set_best(state.best_step, found.value, found.loss, validator.metric_id)
        present = f"best so far, of step {state.best_step:,}: {validator.describe(found)}"
        return [present, _try_mean(directory, run.model, validator, state, steps)]


def _try_mean(
    directory: RunDirectory, model: Transformer, validator: Validator, state: RunState, steps: tuple[int, ...]
) -> str:
    """Validate the mean of the checkpoints of some steps and make it the best if it is better; return a line on it."""
    paths = directory.validated()
    with replaced(model, mean_of([paths[step] for step in steps], model)):
        found = validator.validate()
        is_better = state.is_better(found.value, found.loss)
        if is_better:
            state.set_best(steps[-1], found.value, found.loss, validator.metric_id)
            directory.save_average(model, asdict(state), steps)
    verdict = "the new best" if is_better else "not better, the best checkpoint stays"
    return f"mean of steps {', '.join(f'{step:,}' for step in steps)}: {validator.describe(found)}; {verdict}"
