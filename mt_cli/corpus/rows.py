"""Types of rows and pairs of texts, and the report of their readers."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mt_cli.config.tags import Tagging
from mt_cli.errors import InputError
from mt_cli.runtime.console import listed

Pair = tuple[str, str]
"""Source and target."""
Row = tuple[int, str, str]
"""Number of a line, record or table row, from 1, with source and target."""
Languages = tuple[str, str]
"""Codes of the source and the target language."""
Columns = tuple[str, str] | None
"""Columns of the source and the target; None if the languages decide."""
SKIP_HINT = "to skip damaged files and count them, set `skip_damaged: true` (mt init: --skip-damaged)"


@dataclass(frozen=True)
class BlankRow:
    """A row of an evaluation corpus that is not scored, because a side is blank."""

    num_before: int
    """Number of pairs of the corpus before this row."""
    number: int
    """Number of the row in its source, from 1."""
    status: str
    """`blank_source`, `blank_target` or `blank_pair`."""
    origin: str = ""
    """Name of the source of the row, if the corpus has several sources."""
    languages: Languages | None = None


class Names(NamedTuple):
    """Names of the sides of the texts in a file."""

    names: list[str]
    are_languages: bool
    """True if all names are languages; otherwise they are columns, or the first cells of a table."""


@dataclass
class ReadReport:
    """Counts and notes of one source, for users. A reader adds to it while it yields rows."""

    skipped: list[str] = field(default_factory=list)
    """Path and problem of each skipped file."""
    num_files: int = 0
    choices: list[str] = field(default_factory=list)
    damaged_rows: list[int] | None = None
    """Numbers of the rows of a table that are left out, because they have too many cells; None: they raise."""
    keeps_drafts: bool = False
    """True if fuzzy messages and drafts have translations; otherwise these count as missing."""
    _num_codes: int = 0
    _first_code: str = ""

    def add_codes(self, contents: Sequence[str], path: Path, line: int) -> None:
        """Count the content of codes that are dropped from a segment."""
        self._num_codes += len(contents)
        if contents and not self._first_code:
            self._first_code = f"`{contents[0][:40]}` ({path}, line {line:,})"

    def notes(self) -> Iterator[str]:
        if self.skipped:
            yield f"{len(self.skipped):,} of {self.num_files:,} files are skipped: {listed(self.skipped, 3)}"
        if self._num_codes:
            codes = f"{self._num_codes:,} inline code{'s' * (self._num_codes != 1)}"
            yield f"the content of {codes} is dropped, such as {self._first_code}"
        yield from self.choices


def by_language(pairs: Iterable[tuple[Languages, Pair]]) -> dict[str, list[str]]:
    texts = defaultdict[str, list[str]](list)
    for languages, pair in pairs:
        for language, text in zip(languages, pair, strict=True):
            texts[language].append(text)
    return dict(texts)


def is_of_word(character: str) -> bool:
    """True for a letter, a digit, or a mark on one, such as a vowel sign of Hindi; False for an empty text."""
    return character != "" and unicodedata.category(character)[0] in "LNM"


def untagged(text: str, tags: Sequence[str]) -> str:
    first, _, rest = text.partition(" ")
    return rest if first in tags else text


def chosen_tag(tagging: Tagging, tag: str | None) -> str | None:
    """Tag for texts without a tag: `tag` if it is given, otherwise the default.

    Raises InputError for a tag that the model does not know.
    """
    if tag is not None and tag not in tagging.tags:
        tags = ", ".join(tagging.tags) or "none"
        raise InputError(f"tag {tag!r}: this model was not trained with it; it knows {tags}")
    return tagging.default if tag is None else tag


def tagged_text(text: str, tagging: Tagging, tag: str | None = None) -> str:
    """Put the chosen tag before a text that has no tag and is not empty.

    Raises InputError as `chosen_tag` does, and for a text without a tag if the model needs one and has no default.
    """
    chosen = chosen_tag(tagging, tag)
    if not text or text.partition(" ")[0] in tagging.tags:
        return text
    if chosen is None and tagging.is_required:
        names, kind = (tagging.targets, "target language") if tagging.targets else (tagging.tags, "tag")
        choices = f"choose one of {', '.join(names)} (--to), or begin with a tag, such as {tagging.tags[0]}"
        raise InputError(f"{text!r:.60}: this model needs a {kind}; {choices}")
    return text if chosen is None else f"{chosen} {text}"
