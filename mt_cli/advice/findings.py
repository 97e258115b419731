"""Findings on the text of a corpus, and the blocks of rows that are examined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mt_cli.corpus.corpus import ROWS_PER_BLOCK, SourceRows

Mask = NDArray[np.bool_]
Kind = Literal["stretch", "processed", "segmented", "text"]

MIN_SENTENCES = 3
"""Minimum number of sentences that is reported; one or two may be a mistake."""


@dataclass(frozen=True)
class Finding:
    """Lines of a corpus that the user should check: a problem, or only a note."""

    corpus: str
    part: str
    """Name of the source."""
    first: int
    last: int
    """Numbers of the first and the last line."""
    text: str
    kind: Kind = "stretch"
    """`stretch`: neighbouring lines. Other kinds: sentences anywhere, whose places are in `text`."""
    is_note: bool = False
    """Whether the finding is only a note and no reason to stop."""

    @property
    def is_refused(self) -> bool:
        """Whether another program has processed the text, so that a new run refuses it."""
        return self.kind in ("processed", "segmented") and not self.is_note

    @property
    def message(self) -> str:
        """Place and text."""
        lines = f", lines {self.first:,} to {self.last:,}" if self.kind == "stretch" else ""
        return f"{self.corpus}: {self.part}{lines}: {self.text}"

    def __str__(self) -> str:
        return f"{'note: ' if self.is_note else 'PROBLEM in '}{self.message}"


def spread_blocks(part: SourceRows, most: int) -> Iterator[slice]:
    """Rows of at most `most` blocks of a source; the blocks are evenly spread over the source."""
    num_blocks = -(-part.num_rows // ROWS_PER_BLOCK)
    for index in np.unique(np.linspace(0, num_blocks - 1, min(num_blocks, most)).astype(int)).tolist():
        first = part.first_row + index * ROWS_PER_BLOCK
        yield slice(first, min(first + ROWS_PER_BLOCK, part.first_row + part.num_rows))


def shorten(text: str, width: int = 150) -> str:
    """Text of at most `width` characters, with an ellipsis for the rest."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
