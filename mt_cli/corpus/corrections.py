"""Corrections: translations that people have changed, in a file of JSON lines that is also a corpus.

The last line with a source text and a direction counts. If its translation is the draft itself, the correction was
taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mt_cli.corpus.rows import Languages, Pair
from mt_cli.corpus.varieties import variety_of
from mt_cli.errors import InputError
from mt_cli.runtime.files import append_row, check_regular, reading, refusal

_BEGINNING = b'{"source":'


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class Correction(BaseModel):
    """A draft of a model and what a person made of it."""

    model_config = ConfigDict(frozen=True)

    source: str
    target: str
    """The corrected translation."""
    draft: str
    """The translation of the model; empty if it is not known."""
    source_language: str
    target_language: str
    model: str = ""
    """Name of the run that made the draft."""
    time: str = Field(default_factory=_now)
    """Time of the correction, in UTC (ISO 8601)."""

    @classmethod
    def of(cls, source: str, target: str, draft: str, languages: Languages, model: str) -> Correction:
        codes = dict(zip(("source_language", "target_language"), languages, strict=True))
        return cls(source=source, target=target, draft=draft, model=model, **codes)

    @property
    def languages(self) -> Languages:
        return self.source_language, self.target_language

    @property
    def pair(self) -> Pair:
        return self.source, self.target


def append_corrections(path: Path, corrections: Iterable[Correction]) -> None:
    """Add corrections to a file as whole lines that survive a crash, also if several processes write.

    Raises MtError, with the file unchanged, if it cannot be written.
    """
    if rows := [correction.model_dump_json().encode() for correction in corrections]:
        append_row(path, b"\n".join(rows))


def read_corrections(path: Path) -> Iterator[Correction]:
    """Corrections of a file in their order, without lines that were cut off or are still being written.

    Raises InputError, which names the file and the line, if a line is no correction.
    """
    with reading(path), path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield Correction.model_validate_json(line.strip())
            except ValidationError as error:
                problem = error.errors()[0]
                if "EOF" in problem["msg"] and line.startswith(_BEGINNING[: len(line.strip())]):
                    continue
                raise InputError(f"{path}, line {number:,}: no correction ({problem['msg']})") from None


def current_corrections(paths: Iterable[Path]) -> list[Correction]:
    """Corrections of files, of which the newest one of a source and its languages counts; equal to its draft, none.

    Of equally old ones, the last counts. Raises the errors of `read_corrections`.
    """
    items = sorted((item for path in paths for item in read_corrections(path)), key=lambda item: item.time)
    newest = {(item.source, *map(variety_of, item.languages)): item for item in items}
    return [item for item in newest.values() if item.target != item.draft]


def check_corrections_file(path: Path) -> None:
    """Make a file of corrections if it is missing; raise InputError if it has other lines or cannot be added to."""
    if path.exists():
        with reading(path):
            check_regular(path)
    try:
        path.open("ab").close()
    except OSError as error:
        raise refusal(path, error) from None
    deque(read_corrections(path), maxlen=0)
