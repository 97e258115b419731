"""Report on what a reader skipped, dropped or chose.

A reader has no side effects: it yields rows and, between them, events. `ReadReport.rows` separates the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mt_cli.corpus.rows import Row
from mt_cli.corpus.varieties import ChosenVarieties

SKIP_HINT = "to skip damaged files and count them, set `skip_damaged: true` (mt init: --skip-damaged)"
_MOST_RECORDED, _MOST_IN_NOTES = 100, 3


@dataclass(frozen=True)
class SkippedFile:
    """Event: a damaged file of a folder was skipped."""

    problem: str
    """Path, place and problem."""
    num_files: int
    """Number of files of the folder."""


@dataclass(frozen=True)
class DroppedCodes:
    """Event: inline codes of a segment were dropped."""

    number: int
    content: str
    """Content of the first code."""
    place: str


Item = Row | SkippedFile | DroppedCodes | ChosenVarieties
"""Items of a reader: rows and events."""


@dataclass
class ReadReport:
    """Counts and notes of one source, for users."""

    num_skipped: Counter[str] = field(default_factory=Counter)
    """Number of skipped parts by kind, which is `file`."""
    varieties: dict[str, str] = field(default_factory=dict)
    """Variety in the source that was read for each language of the config."""
    skipped: list[str] = field(default_factory=list)
    """Place and problem of the first skipped files."""
    _num_files: int = 0
    _num_codes: int = 0
    _first_code: DroppedCodes | None = None
    _notes: list[str] = field(default_factory=list)

    def rows(self, items: Iterable[Item]) -> Iterator[Row]:
        """Rows among the items of a reader; this report counts the events between them."""
        for item in items:
            if isinstance(item, tuple):
                yield item
            else:
                self._add(item)

    def _add(self, event: SkippedFile | DroppedCodes | ChosenVarieties) -> None:
        if isinstance(event, SkippedFile):
            self.num_skipped["file"] += 1
            self._num_files = event.num_files
            self.skipped += [event.problem] * (len(self.skipped) < _MOST_RECORDED)
        elif isinstance(event, DroppedCodes):
            self._num_codes += event.number
            self._first_code = self._first_code or event
        else:
            self.varieties |= event.codes
            self._notes += event.notes

    def notes(self) -> Iterator[str]:
        """Lines for users; none if the rows have all text of the source."""
        if number := self.num_skipped["file"]:
            problems = self.skipped[:_MOST_IN_NOTES]
            more = f"; and {number - len(problems):,} more" if number > len(problems) else ""
            files = f"file{'s' * (self._num_files != 1)} {'was' if number == 1 else 'were'}"
            yield f"{number:,} of {self._num_files:,} {files} skipped: {'; '.join(problems)}{more}"
        if self._first_code is not None:
            codes = f"{self._num_codes:,} inline code{'s' * (self._num_codes != 1)}"
            example = f"`{self._first_code.content[:40]}` ({self._first_code.place})"
            yield f"the content of {codes} is dropped, such as {example}"
        yield from self._notes
