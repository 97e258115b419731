"""Report on what a reader skipped, dropped or chose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

SKIP_HINT = "to skip damaged files and count them, set `skip_damaged: true` (mt init: --skip-damaged)"
_MOST_IN_NOTES = 3


@dataclass
class ReadReport:
    """Counts and notes of one source, for users. A reader adds to it while it yields rows."""

    skipped: list[str] = field(default_factory=list)
    """Path and problem of each skipped file."""
    num_files: int = 0
    choices: list[str] = field(default_factory=list)
    quoted: str = ""
    """First table whose quotation marks are those of a spreadsheet."""
    _num_codes: int = 0
    _first_code: str = ""

    def add_codes(self, contents: Sequence[str], place: str) -> None:
        self._num_codes += len(contents)
        if contents and not self._first_code:
            self._first_code = f"`{contents[0][:40]}` ({place})"

    def notes(self) -> Iterator[str]:
        if number := len(self.skipped):
            more = f"; and {number - _MOST_IN_NOTES:,} more" if number > _MOST_IN_NOTES else ""
            files = f"file{'s' * (self.num_files != 1)} {'was' if number == 1 else 'were'}"
            problems = "; ".join(self.skipped[:_MOST_IN_NOTES])
            yield f"{number:,} of {self.num_files:,} {files} skipped: {problems}{more}"
        if self._num_codes:
            codes = f"{self._num_codes:,} inline code{'s' * (self._num_codes != 1)}"
            yield f"the content of {codes} is dropped, such as {self._first_code}"
        if self.quoted:
            yield f"{self.quoted}: quoted as spreadsheets do; read without the quotation marks"
        yield from self.choices
