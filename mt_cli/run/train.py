"""A whole run, in processes that are there already: decide, prepare, set up, restore, optimize, finish."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import torch

from mt_cli import hooks
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.errors import RunInterruptedError
from mt_cli.evaluation.texts import scorer_of
from mt_cli.machine.console import say
from mt_cli.machine.devices import keep_memory, pick_device
from mt_cli.machine.group import ALONE, Group
from mt_cli.run.data import prepare
from mt_cli.run.loop import optimize
from mt_cli.run.plan import Plan, decide
from mt_cli.run.report import Report, format_summary, write_report
from mt_cli.run.resuming import restore
from mt_cli.run.setup import Setup, note_on_patience


def train(config: Config, runs: Path, fresh: bool = False, group: Group = ALONE) -> Report:
    """Start or resume the run that a config describes; return its report, which is also in the run directory.

    An existing run is not changed before the corpora have been read and the device has been found.

    Raises InputError if the data, the device or an older run in the directory does not fit, DeviceMemoryError if the
    model or a pair does not fit in memory, DivergenceError if training diverges, and RunInterruptedError after a
    signal, with the state saved.
    """
    hooks.require_for(config, group.size)
    directory, cache = RunDirectory(runs / config.name), Cache(runs / ".cache", say)
    device = pick_device(config.training.device, group)
    scorer_of(config, "valid")  # Raises now, not after the data is prepared, if the scorer is not available.
    if config.training.num_threads is not None:
        torch.set_num_threads(config.training.num_threads)
    with directory.locked(group):
        plan = group.from_main(lambda: decide(config, directory, cache, device, fresh, group))
        report = plan.report
        if report is None:
            data = group.once_per_machine(lambda: plan.data or prepare(plan.config, cache, plan.tokenizers))
            keep_memory()
            setup = Setup(plan, data, directory, device, group)
            state = restore(setup)
            _import_now()
            _describe(setup)
            last, stopped_because = optimize(setup, state)
            report = group.from_main(lambda: _finish(setup, last, stopped_because))
        else:
            _describe_finished(plan, directory)
    tagging = plan.config.corpus.tagging
    say(format_summary(report, directory.path, tagging.is_required and tagging.default is None))
    return report


def _describe(setup: Setup) -> None:
    for line in setup.describe():
        say(line)
    if note := note_on_patience(setup.config.training, setup.steps_per_epoch, setup.num_steps):
        say(f"note: {note}")
    if setup.plan.parent is not None:
        say(f"  begins with {setup.plan.parent.describe()}")


def _describe_finished(plan: Plan, directory: RunDirectory) -> None:
    assert plan.report is not None
    if plan.changes:
        say(plan.changes)
    say(f"This run is finished ({plan.report.stopped_because}); nothing is left to do.")
    if plan.config.training.average_checkpoints and not plan.report.averaged_steps:
        say(f"A mean is made at the end of training. Now: mt average --run {directory.path} --last N")


def _finish(setup: Setup, state: RunState, stopped_because: str) -> Report:
    """Average checkpoints and tune the search if the config says so; score the best checkpoint; return the report."""
    try:
        if setup.config.training.average_checkpoints is not None:
            hooks.average_at_end(setup, state)
        if setup.config.training.tune_decoding:
            hooks.tune_at_end(setup, state.elapsed_seconds)
        return write_report(setup, state, stopped_because)
    except KeyboardInterrupt:
        message = "interrupted after the last step; the model is saved, and the same command does the rest"
        raise RunInterruptedError(message) from None


def _import_now() -> None:
    """Import what would be imported later, in a thread.

    A run that was stopped in that moment once waited for Python's import lock for ever.
    """
    pa.array([0]).to_numpy()  # Imports pandas, if it is installed.
