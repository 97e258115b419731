"""Options that a source gives to the reader of its format, and a record of what the reader skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from mt_cli.config.sources import FileSource, FolderSource

SKIP_HINT = "to skip what is damaged and count it, set `skip_damaged: true` (mt init: --skip-damaged)"
_MOST_RECORDED, _MOST_IN_NOTES = 100, 3


@dataclass
class Record:
    """Damaged files and units that a reader skipped, and its notes for users."""

    num_read: Counter[str] = field(default_factory=Counter)
    """Number of each kind, `file` or `unit`, those that were skipped included."""
    num_skipped: Counter[str] = field(default_factory=Counter)
    skipped: dict[str, list[str]] = field(default_factory=dict)
    """Place and problem of the first that were skipped, by kind."""
    num_codes: int = 0
    """Number of inline codes whose content was left out."""
    first_code: str = ""
    """Content and place of the first of them."""
    has_content: bool = False
    """Whether one of them has content in the file."""
    varieties: dict[str, str] = field(default_factory=dict)
    """Variety in the source that was read for each language of the config."""
    other_notes: list[str] = field(default_factory=list)

    def skip(self, kind: str, problem: str) -> None:
        """Count a damaged `file` or `unit`; `problem` begins with its place."""
        self.num_skipped[kind] += 1
        places = self.skipped.setdefault(kind, [])
        if len(places) < _MOST_RECORDED:
            places.append(problem)

    def leave_out_codes(self, number: int, content: str, place: str) -> None:
        """Count inline codes of one segment whose content is left out."""
        self.first_code = self.first_code or f"`{content[:40]}` ({place})"
        self.has_content |= not content.startswith("<ph") and not content.startswith("<x/")
        self.num_codes += number

    def notes(self) -> Iterator[str]:
        """Lines for users; none if all that was read is in the rows."""
        for kind, number in self.num_skipped.items():
            places = self.skipped[kind][:_MOST_IN_NOTES]
            more = f"; and {number - len(places):,} more" if number > len(places) else ""
            are = "was" if number == 1 else "were"
            total = self.num_read[kind]
            yield f"{number:,} of {total:,} {kind}{'s' * (total != 1)} {are} skipped: {'; '.join(places)}{more}"
        if self.num_codes:
            codes = f"{self.num_codes:,} inline code{'s' * (self.num_codes != 1)}"
            advice = (
                "`inline_codes: keep` keeps it" if self.has_content else "the file does not say what they stand for"
            )
            yield f"the content of {codes} is left out, such as {self.first_code}; {advice}"
        yield from self.other_notes


@dataclass(frozen=True)
class Reading:
    """How a file is read: options of its source, what is known of the whole source, and where losses are recorded."""

    format_name: str | None = None
    """Format of the file; None: by its suffix."""
    skip_damaged: bool = False
    keep_codes: bool = False
    varieties: Any = None
    """The variety of each side, chosen for all files of a folder; None: it is chosen for the file."""
    record: Record = field(default_factory=Record)


def reading_of(source: FileSource | FolderSource, record: Record, varieties: Any = None) -> Reading:
    """How the files of a source are read."""
    keep_codes = source.inline_codes == "keep"
    return Reading(source.format, source.skip_damaged, keep_codes, varieties, record)
