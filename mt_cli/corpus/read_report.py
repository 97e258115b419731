"""Options for reading a file, and a report on what the reader skipped, dropped or chose.

A reader has no side effects: it yields rows and, between them, events. `ReadReport.rows` separates the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from mt_cli.config.sources import FileSource, FolderSource
from mt_cli.corpus.rows import Row
from mt_cli.corpus.varieties import ChosenVarieties

SKIP_HINT = "to skip what is damaged and count it, set `skip_damaged: true` (mt init: --skip-damaged)"
_MOST_RECORDED, _MOST_IN_NOTES = 100, 3


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file."""

    format_name: str | None = None
    """Format of the file; None: by its suffix."""
    skip_damaged: bool = False
    keep_codes: bool = False
    varieties: ChosenVarieties | None = None
    """Varieties chosen for all files of a folder; None: they are chosen for the file."""


def options_of(source: FileSource | FolderSource, varieties: ChosenVarieties | None = None) -> ReadOptions:
    """Options with which the files of a source are read."""
    return ReadOptions(source.format, source.skip_damaged, source.inline_codes == "keep", varieties)


@dataclass(frozen=True)
class Skipped:
    """Event: a damaged part of a source was skipped."""

    kind: str
    """`file` or `unit`."""
    problem: str
    """Place and problem."""
    num_files: int = 0
    """Number of files of the folder, if a file was skipped."""


@dataclass(frozen=True)
class DroppedCodes:
    """Event: inline codes of a segment were dropped."""

    number: int
    content: str
    """Content of the first code."""
    place: str


Item = Row | Skipped | DroppedCodes | ChosenVarieties
"""Items of a reader: rows and events."""


@dataclass
class ReadReport:
    """Counts and notes of one source, for users."""

    num_skipped: Counter[str] = field(default_factory=Counter)
    """Number of skipped parts by kind, `file` or `unit`."""
    varieties: dict[str, str] = field(default_factory=dict)
    """Variety in the source that was read for each language of the config."""
    _num_rows: int = 0
    _num_files: int = 0
    _skipped: dict[str, list[str]] = field(default_factory=dict)
    _num_codes: int = 0
    _first_code: DroppedCodes | None = None
    _notes: list[str] = field(default_factory=list)

    def rows(self, items: Iterable[Item]) -> Iterator[Row]:
        """Rows among the items of a reader; this report counts the events between them."""
        for item in items:
            if isinstance(item, tuple):
                self._num_rows += 1
                yield item
            else:
                self._add(item)

    def _add(self, event: Skipped | DroppedCodes | ChosenVarieties) -> None:
        if isinstance(event, Skipped):
            self.num_skipped[event.kind] += 1
            self._num_files = event.num_files or self._num_files
            problems = self._skipped.setdefault(event.kind, [])
            problems += [event.problem] * (len(problems) < _MOST_RECORDED)
        elif isinstance(event, DroppedCodes):
            self._num_codes += event.number
            self._first_code = self._first_code or event
        else:
            self.varieties |= event.codes
            self._notes += event.notes

    @property
    def skipped(self) -> list[str]:
        """Place and problem of the first skipped parts of each kind."""
        return [problem for problems in self._skipped.values() for problem in problems]

    def notes(self) -> Iterator[str]:
        """Lines for users; none if the rows have all text of the source."""
        for kind, number in self.num_skipped.items():
            problems = self._skipped[kind][:_MOST_IN_NOTES]
            more = f"; and {number - len(problems):,} more" if number > len(problems) else ""
            total = self._num_files if kind == "file" else self._num_rows + number
            are = "was" if number == 1 else "were"
            yield f"{number:,} of {total:,} {kind}{'s' * (total != 1)} {are} skipped: {'; '.join(problems)}{more}"
        if self._first_code is not None:
            codes = f"{self._num_codes:,} inline code{'s' * (self._num_codes != 1)}"
            advice = "`inline_codes: keep` keeps what the file has of it"
            example = f"`{self._first_code.content[:40]}` ({self._first_code.place})"
            yield f"the content of {codes} is dropped, such as {example}; {advice}"
        yield from self._notes
