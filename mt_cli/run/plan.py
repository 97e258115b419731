"""Plan of a start of `mt train`: the decisions of the main process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mt_cli.checkpoint.state import Ancestor
from mt_cli.config.sections import Config
from mt_cli.reporting.report import Report
from mt_cli.tokenizer.tokenizer import TokenizerPair


@dataclass(frozen=True)
class Plan:
    """Decisions of the main process, which it sends to the other processes. They never change."""

    config: Config
    """Complete when training begins: no preset and no `auto` is left. `create_run` completes that of a new run."""
    tokenizers: TokenizerPair | None = None
    """None until `create_run` has trained those of a new run."""
    num_processes: int = 1
    """Number of processes that the run began with; it keeps the size of its steps."""
    state_path: Path | None = None
    """Newest intact checkpoint; None for a new run, and if no checkpoint can be used."""
    longest_source: int | None = None
    """Tokens of the longest source that the model was trained on before."""
    parents: Sequence[Ancestor] = ()
    """Runs whose weights a new run begins with."""
    is_new: bool = False
    launch_id: str = ""
    replaces_run: bool = False
    """Whether a new run moves an older one out of its directory."""
    notes: Sequence[str] = ()
    """Notes for people."""
    changes: str = ""
    """Options whose values differ from those of the last start, for people."""
    report: Report | None = None
    """Report of a run that is finished."""
