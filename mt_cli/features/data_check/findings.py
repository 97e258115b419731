"""Findings on the text of a corpus, and the sentences that they are counted in, with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cleaning import HELD_OUT, KEPT
from mt_cli.corpus.corpus import ROWS_PER_BLOCK, Corpus, SourceRows
from mt_cli.corpus.sources import places_in

Mask = NDArray[np.bool_]
Kind = Literal["stretch", "processed", "segmented", "scripts", "text"]

MIN_SENTENCES = 3
"""Number of sentences from which on something is reported; one or two are a slip."""
_MAX_BLOCKS = 20
_NUM_PLACES = 3


@dataclass(frozen=True)
class Finding:
    """Lines of a corpus that the user should check: a problem, or only a note."""

    corpus: str
    part: str
    """Name of the source; empty for the whole corpus."""
    first: int
    last: int
    """Numbers of the first and the last line."""
    text: str
    kind: Kind = "stretch"
    """`stretch`: neighbouring lines; the others: sentences anywhere, whose places are in `text`."""
    is_note: bool = False
    """Whether it is worth a note, and no reason to stop."""

    @property
    def is_refused(self) -> bool:
        """Whether it is text that another program has processed, on which no new run begins."""
        return self.kind in ("processed", "segmented") and not self.is_note

    @property
    def message(self) -> str:
        """Place and text."""
        lines = f", lines {self.first:,} to {self.last:,}" if self.kind == "stretch" else ""
        return f"{self.corpus}: {self.part}{lines}: {self.text}" if self.part else f"{self.corpus}: {self.text}"

    def __str__(self) -> str:
        return f"{'note: ' if self.is_note else 'PROBLEM in '}{self.message}"


class Sentences(NamedTuple):
    """A block of pairs of a source of a corpus, with the numbers of their lines."""

    numbers: pa.Int64Array
    sides: tuple[pa.StringArray, pa.StringArray]


def spread_blocks(part: SourceRows, most: int) -> Iterator[slice]:
    """Rows of at most `most` blocks of a source, evenly spread over it."""
    num_blocks = -(-part.num_rows // ROWS_PER_BLOCK)
    for index in np.unique(np.linspace(0, num_blocks - 1, min(num_blocks, most)).astype(int)).tolist():
        first = part.first_row + index * ROWS_PER_BLOCK
        yield slice(first, min(first + ROWS_PER_BLOCK, part.first_row + part.num_rows))


def sentences_of(corpus: Corpus, part: SourceRows, tags: Sequence[str]) -> Iterator[Sentences]:
    """Kept and held-out pairs of a source without these tags, in at most 20 blocks evenly spread over it."""
    mask = np.zeros(len(corpus.statuses), dtype=bool)
    for rows in spread_blocks(part, _MAX_BLOCKS):
        mask[rows] = True
    mask &= np.isin(corpus.statuses, (KEPT, HELD_OUT))
    for block in corpus.blocks(mask) if mask.any() else ():
        numbers, source, target = block.columns
        if tags:
            source = pc.replace_substring_regex(source, rf"^(?:(?:{'|'.join(map(re.escape, tags))}) )+", "")
        yield Sentences(numbers, (source, target))


@dataclass
class Tally:
    """Number of sentences that have something in common, and the places of the first ones."""

    num: int = 0
    rows: list[tuple[str, int]] = field(default_factory=list)
    """Name of the source, and number of the line."""
    last: int = 0
    """Number of the last line."""
    example: str = ""

    def add(self, part: str, numbers: pa.Int64Array, texts: pa.StringArray, mask: Mask) -> None:
        """Count the marked sentences of a block of a source, with the numbers of their lines."""
        if mask.any():
            marked = numbers.filter(pa.array(mask)).to_pylist()
            self.num += len(marked)
            self.last = marked[-1]
            self.example = self.example or texts[int(mask.argmax())].as_py()
            self.rows += [(part, number) for number in marked[: _NUM_PLACES - len(self.rows)]]

    def shown(self, name: str, config: CorpusConfig) -> str:
        """An example and the first places in the corpus of this name, for messages."""
        places = places_in(config, name, self.rows)
        return f"as in `{shorten(self.example, 80)}` ({', '.join(places[row] for row in self.rows)})"


def shorten(text: str, width: int = 150) -> str:
    """Text of at most `width` characters, with an ellipsis for the rest."""
    return text if len(text) <= width else f"{text[: width - 1]}…"
