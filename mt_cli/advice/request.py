"""Wishes for a config besides the text: options of `mt init`. Imports nothing that takes time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Request:
    """Wishes for a new config, all optional."""

    name: str | None = None
    """Name of the run; None: by the data."""
    parent: Path | None = None
    """Run whose weights training begins with."""
    accept_processed: bool = False
    """Value of `corpus.accept_processed`."""
    destination: str | None = None
    """Program of `DESTINATIONS` that must be able to hold the model."""
