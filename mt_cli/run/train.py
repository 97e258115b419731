"""A whole run: decide, create, prepare, set up, restore, optimize, average, finish. Does not start processes."""

from __future__ import annotations

import gc
from pathlib import Path

import pyarrow as pa

from mt_cli.advice.problems import Finding, find_problems
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.parent import ParentRun
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import Data, prepare
from mt_cli.evaluation.results import Report
from mt_cli.evaluation.scores import scorer_of
from mt_cli.run.averages import average_at_end
from mt_cli.run.finish import finish
from mt_cli.run.loop import optimize
from mt_cli.run.report import Ending, format_summary
from mt_cli.run.resume import Start, decide, restore, update_finished
from mt_cli.run.setup import Run, build_setup, create, describe_training
from mt_cli.runtime.console import say
from mt_cli.runtime.devices import keep_memory, pick_device, release_memory, use_threads
from mt_cli.runtime.group import ALONE, Group


def train(config: Config, runs: Path, fresh: bool = False, group: Group = ALONE) -> Report:
    """Start or resume the run that a config describes; return its report, which is also in the run directory.

    Prints a summary, and problems of the text. Raises the errors of `train_in`.
    """
    directory, cache = RunDirectory(runs / config.name), Cache(runs / ".cache")
    report, problems = train_in(directory, config, cache, fresh, group)
    tagging = config.corpus.tagging
    say(format_summary(report, directory.path, tagging.is_required and tagging.default is None))
    for problem in problems:
        if not problem.is_note:
            say(problem.with_repair)
    return report


def train_in(
    directory: RunDirectory, config: Config, cache: Cache, fresh: bool = False, group: Group = ALONE
) -> tuple[Report, list[Finding]]:
    """Start or resume a run in a directory; return its report, and findings on the text if it has not ended before.

    A run that goes on is not changed before the corpora have been read and the device is available; one that is
    finished only gets the new values of its config. For a new run, `create` reads the corpora, trains the tokenizers
    and completes the config in the main process; the others get its result as `start`, and its weights in `optimize`.

    Raises InputError if the data, the device or an older run in the directory does not fit, DeviceMemoryError if the
    model or a pair does not fit in memory, DivergenceError if training diverges, and RunInterruptedError after a
    signal, with the state saved.
    """
    device = pick_device(config.training.device, group)
    scorer_of(config, "valid")  # Raises the error of a missing scorer before the data is prepared.
    use_threads(config.training.num_threads)
    with directory.locked(group):
        start = group.from_main(lambda: decide(config, directory, fresh, group))
        for note in start.notes:
            say(f"note: {note}")
        if start.report is not None:
            report = start.report
            group.on_main(lambda: update_finished(directory, start, report))
            return report, []
        data: Data | None = None
        parent: ParentRun | None = None
        if start.is_new:
            if created := group.on_main(lambda: create(start.config, directory, cache, device, start.replaces_run)):
                completed, data, parent = created
                start = start.completed(completed, data.tokenizers, parent)
            start = group.from_main(lambda: start)  # The others have not created the run.
        data = group.once_per_machine(lambda: data or prepare(start.config, cache, start.tokenizers))
        run = Run(start.config, data, directory, device, group)
        ending = _train_to_end(run, start, parent, cache)
        gc.collect()  # Model, optimizer and graphs of the training, whose objects refer to each other.
        release_memory()
        report = group.from_main(lambda: finish(run, ending))
        return report, group.on_main(lambda: find_problems(run.data.corpora, run.config, cache)) or []


def _train_to_end(run: Run, start: Start, parent: ParentRun | None, cache: Cache) -> Ending:
    """Train a run to its end; model, optimizer and graphs are not needed afterwards."""
    keep_memory()
    pa.array([0]).to_numpy()  # Imports pandas, if installed; a stop during this import in a thread could wait forever.
    setup = build_setup(run, start.state, parent)
    state = run.group.from_main(lambda: restore(setup, start))
    run.group.on_main(lambda: say("\n".join(describe_training(setup, cache))))
    if parent is not None:
        say(f"  begins with {parent.describe()}")
    if setup.rounds is not None:
        setup.rounds.prepare()
    ending = optimize(setup, state)
    run.group.on_main(lambda: average_at_end(setup, ending))
    return ending
