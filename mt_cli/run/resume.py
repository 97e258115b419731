"""Start, save and restore of a run: a new run resumes from the state before its first step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from mt_cli.checkpoint.checkpoint import Checkpoint
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.parent import ParentRun
from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import Config
from mt_cli.corpus.source_rows import with_commits
from mt_cli.errors import DamagedFileError, RunError
from mt_cli.evaluation.results import Report
from mt_cli.run.config import resumed_config
from mt_cli.run.report import finished_report
from mt_cli.run.setup import Setup
from mt_cli.runtime.console import say
from mt_cli.runtime.files import remove, write_text
from mt_cli.runtime.group import Group
from mt_cli.tokenizer.tokenizer import TokenizerPair
from mt_cli.training.plan import Position


@dataclass(frozen=True)
class Start:
    """How `mt train` starts: decided in the main process, sent to the other processes; immutable."""

    config: Config
    """Config; `create` completes the config of a new run, so that training does not see `auto`."""
    state: RunState
    """Newest saved state; of a new run, the state before its first step."""
    tokenizers: TokenizerPair | None = None
    """Tokenizers; None for a new run until `create` has trained them."""
    is_new: bool = False
    replaces_run: bool = False
    """True if a new run moves an older one out of its directory."""
    notes: Sequence[str] = ()
    changes: str = ""
    """Description of the options that changed since the last start."""
    report: Report | None = None
    """Report of a run that is finished."""

    def completed(self, config: Config, tokenizers: TokenizerPair, parent: ParentRun | None) -> Start:
        """Start of a new run that `create` has prepared."""
        state = self.state
        if parent is not None:
            seen = parent.run.state.sentences_seen
            state = replace(
                state, parents=[parent.run.ancestor], longest_source=parent.run.max_tokens, sentences_seen=seen
            )
        return replace(self, config=config, tokenizers=tokenizers, state=state)


def decide(config: Config, directory: RunDirectory, fresh: bool, group: Group) -> Start:
    """Decide in the main process whether a start begins, resumes or only reports a run; changes no file.

    Raises RunError if the run in the directory cannot be resumed with the config.
    """
    if not fresh and directory.can_resume():
        return _resumption(config, directory)
    return Start(
        config.model_copy(update={"corpus": with_commits(config.corpus)}),
        RunState(Position(group.size)),
        is_new=True,
        replaces_run=fresh and not directory.is_empty(),
    )


def update_finished(directory: RunDirectory, start: Start, report: Report) -> None:
    """Save options that have changed since a run finished, and say that it is finished."""
    write_text(directory.config_path, start.config.to_yaml())
    if start.changes:
        say(start.changes)
    say(f"This run is finished ({report.stopped_because}); nothing is left to do.")
    if start.config.training.average_checkpoints and not report.averaged_steps:
        say(f"A mean is made at the end of training. Now: mt average --run {directory.path} --last N")


def _resumption(config: Config, directory: RunDirectory) -> Start:
    """Start that resumes the run in a directory; raises InputError if that is impossible."""
    previous = directory.config()
    state = directory.newest_state()  # If no checkpoint is usable, loading one later raises the error.
    has_ended = state.reason_to_stop(previous.training) is not None or directory.report_path.exists()
    config, notes = resumed_config(config, previous, directory.path, has_ended)
    changes = "".join(f"\n  {line}" for line in directory.check_resumable(previous, config))
    return Start(
        config,
        state,
        directory.tokenizers(previous),
        notes=notes,
        changes=changes and f"The config has changed:{changes}",
        report=finished_report(directory, config, state),
    )


def follow(setup: Setup) -> None:
    """Load in every other process the state that the main process has saved last; each reads the file itself.

    Raises RunError if a process finds another file, because its machine does not share the run directory.
    """
    group, directory = setup.run.group, setup.run.directory
    if group.size == 1:
        return
    digest = group.from_main(lambda: Checkpoint(directory.state_paths()[0]).digest)
    if group.rank > 0:
        newest = [Checkpoint(path) for path in directory.state_paths()[:1]]
        if [checkpoint.digest for checkpoint in newest] != [digest]:
            raise RunError(f"{directory.path}: not the folder of the first process; all machines must share it")
        newest[0].restore(setup.model, setup.optimizer, setup.average_weights)


def restore(setup: Setup, start: Start) -> RunState:
    """Load the newest usable checkpoint; return its state, or the first state of a new run.

    Config and best checkpoint then agree with it. Only the main process calls it; the others load the state with
    `follow`, when it has been saved again. Raises RunError if no checkpoint can be used, or corpora or tokenizers have
    changed.
    """
    if start.is_new:
        return start.state
    state, run = _load(setup), setup.run
    write_text(run.directory.config_path, run.config.to_yaml())
    say(f"Resuming from step {state.position.step}.")
    if (number := state.position.num_processes) != run.group.size:
        say(f"The run began with {number} process{'es' * (number > 1)}, and keeps the size of its steps.")
    if start.changes:
        say(start.changes)
    _reconcile_best(setup, state)
    return state


def save_state(setup: Setup, state: RunState, tracked_bytes: dict[str, int]) -> None:
    """Save everything that resuming needs; `tracked_bytes` has the sizes of the files that grow."""
    directory, step, keep_last = setup.run.directory, state.position.step, setup.run.config.training.keep_last
    state.tracked_bytes, state.fingerprints = tracked_bytes, dict(setup.fingerprints)
    state.longest_source = setup.validator.longest_source
    state.sentences_seen = setup.validator.sentences_seen
    directory.save_state(setup.model, asdict(state), setup.optimizer, step, keep_last, setup.average_weights)
    directory.prune_validated([validation.step for validation in state.validations])


def _load(setup: Setup) -> RunState:
    """Load model and optimizer of the newest usable state; return the state.

    Damaged files are renamed, never deleted.
    """
    directory, damaged = setup.run.directory, dict[Path, DamagedFileError]()
    for path in directory.state_paths():
        try:
            checkpoint = Checkpoint(path)
            state = checkpoint.state
            check_data(directory, setup.fingerprints, state)
            checkpoint.restore(setup.model, setup.optimizer, setup.average_weights)
        except DamagedFileError as error:
            damaged[path] = error
            continue
        for damaged_path, problem in damaged.items():
            aside = directory.set_aside(damaged_path)
            say(f"{problem}; renamed to {aside.name}, {path.name} is used instead")
        directory.discard_states_after(path, state.position.step)
        return state
    problems = "\n".join([*map(str, damaged.values()), f"{directory.path}: no saved state of this run can be used"])
    raise RunError(f"{problems}; use --fresh to start over (the old run is moved aside)")


def check_data(directory: RunDirectory, now: Mapping[str, str], state: RunState) -> None:
    """Raise RunError if the fingerprints of corpora or tokenizers differ from those in a state."""
    directory.check_frozen_files(state)
    before = state.fingerprints
    changed = [name for name in dict.fromkeys([*now, *before]) if now.get(name) != before.get(name)]
    if changed:
        raise RunError(
            f"{', '.join(changed)}: source or target text has changed since {directory.path} began; restore it, "
            "or use --fresh to start over (the old run is moved aside)"
        )


def _reconcile_best(setup: Setup, state: RunState) -> None:
    """Make state and best checkpoint agree about the best step and the metric that selects it.

    A run that ends between two validations is validated after it is saved. If it goes on, this validation counts only
    if the learning rate fell to zero: a longer run has other weights then. Otherwise, the run equals one that never
    stopped, which validates when it is due.
    """
    directory, metric_id, training = setup.run.directory, setup.validator.metric_id, setup.run.config.training
    goes_on, best = not state.reason_to_stop(training), directory.best_state()
    is_of_end = best is not None and best.best_step == state.position.step != state.best_step
    is_mean = best is not None and best.averaged_steps is not None
    is_extra = is_of_end and not is_mean and goes_on and not state.is_validation_due(training)
    if is_extra and training.has_falling_rate:
        state.num_validations_without_better = 0
        grown = directory.metrics_path, directory.samples_path  # With the rows of this validation, their last ones.
        state.tracked_bytes = {path.name: path.stat().st_size for path in grown if path.exists()}
    else:
        if is_extra and state.best_step:
            say(f"note: the best step is {state.best_step:,} again, because the validation at the end was not due")
        directory.restore_best(state.best_step)
        best = directory.best_state()
        if best is not None and (best.averaged_steps or best.best_step == state.position.step != state.best_step):
            if state.best_step or goes_on:
                remove(directory.best_path)
            best = None
    if best is not None:
        state.set_best(best.best_step, best.best_value, best.best_loss, best.best_metric)
    elif state.best_step:
        where = "missing"
        if directory.best_path.exists():
            where = f"damaged and renamed to {directory.set_aside(directory.best_path).name}"
        say(f"The best checkpoint is {where}; it is replaced by the weights of the last state.")
        state.set_best(state.position.step, None, state.best_loss, state.best_metric)
        with setup.averaged() as model:
            directory.save_best(model, asdict(state))
    if state.best_step and state.best_metric != metric_id:
        say(f"The best checkpoint was chosen by {state.best_metric}; from here on it is chosen by {metric_id}.")
        state.reset_best(metric_id)
