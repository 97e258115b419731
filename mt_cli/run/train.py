"""A whole run: decide, create, set up, restore, optimize, finish. Does not start processes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import torch

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import Data, prepare
from mt_cli.evaluation.scores import scorer_of
from mt_cli.features.fine_tuning.parent import ParentRun
from mt_cli.machine.console import say
from mt_cli.machine.devices import keep_memory, pick_device, use_threads
from mt_cli.machine.group import ALONE, Group
from mt_cli.machine.storage import write_text
from mt_cli.reporting.report import Report, format_summary
from mt_cli.run.context import build_context
from mt_cli.run.create import create_run
from mt_cli.run.describe import describe_training
from mt_cli.run.finish import finish
from mt_cli.run.loop import optimize
from mt_cli.run.plan import Plan, decide
from mt_cli.run.resuming import restore


def train(config: Config, runs: Path, fresh: bool = False, group: Group = ALONE) -> Report:
    """Start or resume the run that a config describes; return its report, which is also in the run directory.

    An existing run is not changed before the corpora have been read and the device is available.

    Raises InputError if the data, the device or an older run in the directory does not fit, DeviceMemoryError if the
    model or a pair does not fit in memory, DivergenceError if training diverges, and RunInterruptedError after a
    signal, with the state saved.
    """
    directory, cache = RunDirectory(runs / config.name), Cache(runs / ".cache", say)
    device = pick_device(config.training.device, group)
    scorer_of(config, "valid")  # Raises the error of a missing scorer before the data is prepared.
    use_threads(config.training.num_threads)
    with directory.locked(group):
        plan = group.from_main(lambda: decide(config, directory, fresh, group))
        for note in plan.notes:
            say(f"note: {note}")
        if plan.report is not None:
            report = plan.report
            group.on_main(lambda: _describe_finished(plan, directory))
        else:
            report = _train(plan, directory, cache, device, group)
    tagging = plan.config.corpus.tagging
    say(format_summary(report, directory.path, tagging.is_required and tagging.default is None))
    return report


def _train(plan: Plan, directory: RunDirectory, cache: Cache, device: torch.device, group: Group) -> Report:
    """Create or resume a run that is not finished, and train it to the end."""
    data: Data | None = None
    parent: ParentRun | None = None
    if plan.is_new:
        if created := group.on_main(lambda: create_run(plan, directory, cache, device)):
            plan, data, parent = created
        plan = group.from_main(lambda: plan)
    data = group.once_per_machine(lambda: data or prepare(plan.config, cache, plan.tokenizers))
    keep_memory()
    context = build_context(plan, data, directory, device, group, parent)
    state = restore(context)
    _import_now()
    group.on_main(lambda: say("\n".join(describe_training(context, cache))))
    if parent is not None:
        say(f"  begins with {parent.describe()}")
    last, stopped_because = optimize(context, state)
    return group.from_main(lambda: finish(context, last, stopped_because))


def _describe_finished(plan: Plan, directory: RunDirectory) -> None:
    """Say that a run is finished, and save options that have changed."""
    assert plan.report is not None
    write_text(directory.config_path, plan.config.to_yaml())
    if plan.changes:
        say(plan.changes)
    say(f"This run is finished ({plan.report.stopped_because}); nothing is left to do.")
    if plan.config.training.average_checkpoints and not plan.report.averaged_steps:
        say(f"A mean is made at the end of training. Now: mt average --run {directory.path} --last N")


def _import_now() -> None:
    """Import modules that a thread would otherwise import later.

    A run that was stopped during such an import once waited forever for Python's import lock.
    """
    pa.array([0]).to_numpy()  # Imports pandas, if it is installed.
