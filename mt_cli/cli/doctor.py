"""The command `doctor`."""

from __future__ import annotations

from pathlib import Path

import typer

from mt_cli.cli.streams import show


def doctor() -> None:
    """Check versions, devices, precisions and disk.

    The exit status is 1 if a finding is BAD.

    Examples:
        mt doctor
    """
    from mt_cli.advice.doctor import examine

    findings = examine(Path.cwd())
    show(*(f"{finding.kind:<4} {finding.subject:<12} {finding.text}" for finding in findings))
    if any(finding.kind == "BAD" for finding in findings):
        raise typer.Exit(1)
