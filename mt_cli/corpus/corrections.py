"""Corrections: translations that people have changed, in a file of JSON lines that is also a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from mt_cli.corpus.rows import Languages, Pair
from mt_cli.errors import InputError
from mt_cli.runtime.files import append_row, reading


class Correction(BaseModel):
    """A draft of a model and what a person made of it."""

    model_config = ConfigDict(frozen=True)

    source: str
    target: str
    """The corrected translation."""
    draft: str
    """The translation of the model."""
    source_language: str
    target_language: str
    model: str = ""
    """Name of the run that made the draft."""
    time: str = ""
    """Time of the correction, in UTC (ISO 8601)."""

    @property
    def languages(self) -> Languages:
        return self.source_language, self.target_language

    @property
    def pair(self) -> Pair:
        return self.source, self.target


def append_correction(path: Path, correction: Correction) -> None:
    """Add a correction to a file as one whole line that survives a crash.

    Raises MtError, with the file unchanged, if it cannot be written.
    """
    append_row(path, correction.model_dump_json().encode())


def read_corrections(path: Path) -> Iterator[Correction]:
    """Corrections of a file in their order, without a last line that is still being written.

    Raises InputError, which names the file and the line, if a line is no correction.
    """
    with reading(path), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            if not line.strip():
                continue
            try:
                yield Correction.model_validate_json(line)
            except ValidationError as error:
                problem = error.errors()[0]
                where = ".".join(map(str, problem["loc"]))
                raise InputError(
                    f"{path}, line {number:,}: no correction ({where + ': ' if where else ''}{problem['msg']})"
                ) from None


def current_corrections(paths: Iterable[Path]) -> list[Correction]:
    """Corrections of files, of which the last one of a source and its languages counts; equal to its draft, none.

    Raises the errors of `read_corrections`.
    """
    newest = {(item.source, *item.languages): item for path in paths for item in read_corrections(path)}
    return [item for item in newest.values() if item.target != item.draft]
