"""Plan of a start of `mt train`: whether to begin, resume or only report a run. Deciding changes no file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import Ancestor
from mt_cli.config.sections import TUNED, Config
from mt_cli.corpus.sources import with_commits
from mt_cli.errors import InputError, RunError
from mt_cli.machine.group import Group
from mt_cli.reporting.report import Report, finished_report
from mt_cli.run.compose import resumed_config
from mt_cli.tokenizer.tokenizer import TokenizerPair


@dataclass(frozen=True)
class Plan:
    """Decisions of the main process, sent to the other processes; immutable."""

    config: Config
    """Config; `create_run` completes the config of a new run, so that training does not see `auto`."""
    tokenizers: TokenizerPair | None = None
    """Tokenizers; None for a new run until `create_run` has trained them."""
    num_processes: int = 1
    """Number of processes that the run began with; it keeps the size of its steps."""
    longest_source: int | None = None
    """Number of tokens of the longest source in earlier training of the model."""
    parents: Sequence[Ancestor] = ()
    """Runs whose weights a new run begins with."""
    is_new: bool = False
    launch_id: str = ""
    replaces_run: bool = False
    """Whether a new run moves an older one out of its directory."""
    notes: Sequence[str] = ()
    changes: str = ""
    """Description of the options that changed since the last start."""
    report: Report | None = None
    """Report of a run that is finished."""


def decide(config: Config, directory: RunDirectory, fresh: bool, group: Group) -> Plan:
    """Decide in the main process whether a start begins, resumes or only reports a run.

    Raises RunError if the run in the directory cannot be resumed with the config.
    """
    if (not fresh or _created_by_this_launch(group.launch_id, directory)) and directory.can_resume():
        return _plan_to_resume(config, directory)
    return Plan(
        config.model_copy(update={"corpus": with_commits(config.corpus)}),
        num_processes=group.size,
        is_new=True,
        launch_id=group.launch_id,
        replaces_run=fresh and not directory.is_empty(),
    )


def _created_by_this_launch(launch_id: str, directory: RunDirectory) -> bool:
    """Whether this launch already created the run, so that a restart must not apply `--fresh` again."""
    with suppress(RunError):
        return bool(launch_id) and directory.newest_state().launch_id == launch_id
    return False


def _plan_to_resume(config: Config, directory: RunDirectory) -> Plan:
    """Plan to resume the run in a directory with a config; raises RunError if that is impossible.

    Values that the run chose for `batch_tokens: auto` and `tune_decoding` are kept.
    """
    try:
        previous = directory.config()
        tokenizers = directory.tokenizers(previous)
    except InputError as error:
        advice = "Restore the file, or use --fresh to start over (the old run is moved aside)."
        raise RunError(f"{error}\n{advice}") from None
    config = config.model_copy(update={"corpus": with_commits(config.corpus, previous.corpus)})
    config = resumed_config(config, previous, directory.path)
    notes: list[str] = []
    if config.training.tune_decoding and directory.report_path.exists():
        if previous.training.tune_decoding:
            config, notes = _with_tuned_decoding(config, previous)
        else:
            notes = [f"the search is tuned when training ends; now: mt tune-decoding --run {directory.path}"]
    changes = "".join(f"\n  {line}" for line in directory.check_resumable(previous, config))
    state = directory.newest_state()  # If no checkpoint is usable, loading one later raises the error.
    return Plan(
        config,
        tokenizers,
        state.position.num_processes,
        state.longest_source,
        notes=notes,
        changes=changes and f"The config has changed:{changes}",
        report=finished_report(directory, config, state),
    )


def _with_tuned_decoding(config: Config, previous: Config) -> tuple[Config, list[str]]:
    """Config with the tuned search options of the finished run, and notes on options that the config sets otherwise."""
    tuned = {name: getattr(previous.decoding, name) for name in TUNED}
    notes = [
        f"decoding.{name} is {value}, as training.tune_decoding chose, and not {given} as in the config; set "
        "training.tune_decoding to false to change it"
        for name, value in tuned.items()
        if (given := getattr(config.decoding, name)) != value and name in config.decoding.model_fields_set
    ]
    return config.model_copy(update={"decoding": config.decoding.model_copy(update=tuned)}), notes
