"""The command `doctor`."""

from __future__ import annotations

from pathlib import Path

import typer

from mt_cli.cli.help import add_command
from mt_cli.cli.streams import show


def add(app: typer.Typer) -> None:
    """Add the command to the command line."""
    add_command(app, doctor, "Start", "mt doctor")


def doctor() -> None:
    """Check versions, devices, precision support and disk space.

    The exit status is 1 if a finding is BAD.
    """
    from mt_cli.features.doctor.findings import examine

    findings = examine(Path.cwd())
    show(*(f"{each.kind:<4} {each.subject:<12} {each.text}" for each in findings))
    if any(finding.kind == "BAD" for finding in findings):
        raise typer.Exit(1)
