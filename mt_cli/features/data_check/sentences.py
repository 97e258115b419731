"""Sentences of a corpus as arrays, and tallies of those that have something in common, with their places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.cleaning import HELD_OUT, KEPT
from mt_cli.corpus.corpus import ROWS_PER_BLOCK, Corpus, SourceRows
from mt_cli.corpus.sources import places_in

Mask = NDArray[np.bool_]

SIDES = ("source", "target")
MIN_SENTENCES = 3
"""Sentences from which on something is reported; one or two are a slip."""
_MAX_BLOCKS = 20
_NUM_PLACES = 3
_EXAMPLE_WIDTH = 80


@dataclass(frozen=True)
class Sentences:
    """A block of pairs of a source of a corpus, with the numbers of their lines."""

    numbers: Sequence[int]
    source: pa.StringArray
    target: pa.StringArray

    def __len__(self) -> int:
        return len(self.numbers)

    def side(self, name: str) -> pa.StringArray:
        """The texts of a side, `source` or `target`."""
        return self.source if name == SIDES[0] else self.target


def sentences_of(corpus: Corpus, part: SourceRows, tags: Sequence[str]) -> Iterator[Sentences]:
    """The kept and held-out pairs of a source without these tags, in at most 20 blocks evenly spread over it."""
    num_blocks = -(-part.num_rows // ROWS_PER_BLOCK)
    mask = np.zeros(len(corpus.statuses), dtype=bool)
    for index in np.unique(np.linspace(0, num_blocks - 1, min(num_blocks, _MAX_BLOCKS)).astype(int)).tolist():
        first = part.first_row + index * ROWS_PER_BLOCK
        mask[first : min(first + ROWS_PER_BLOCK, part.first_row + part.num_rows)] = True
    mask &= np.isin(corpus.statuses, (KEPT, HELD_OUT))
    for block in corpus.blocks(mask) if mask.any() else ():
        numbers, source, target = block.columns
        if tags:
            source = pc.replace_substring_regex(source, rf"^(?:(?:{'|'.join(map(re.escape, tags))}) )+", "")
        yield Sentences(numbers.to_pylist(), source, target)


@dataclass
class Tally:
    """Number of sentences that have something in common, and the places of the first ones."""

    num: int = 0
    rows: list[tuple[str, int]] = field(default_factory=list)
    """Name of the source, and number of the line."""
    last: int = 0
    """Number of the last line."""
    example: str = ""

    def add(self, part: str, numbers: Sequence[int], texts: pa.StringArray, mask: Mask) -> None:
        """Count the marked sentences of a block."""
        if not mask.any():
            return
        indices = np.flatnonzero(mask).tolist()
        self.num += len(indices)
        self.last = numbers[indices[-1]]
        self.example = self.example or texts[indices[0]].as_py()
        self.rows += [(part, numbers[index]) for index in indices[: _NUM_PLACES - len(self.rows)]]

    def shown(self, name: str, config: CorpusConfig) -> str:
        """An example and the first places in the corpus of this name, for messages."""
        places = places_in(config, name, self.rows)
        text = self.example
        text = text if len(text) <= _EXAMPLE_WIDTH else f"{text[: _EXAMPLE_WIDTH - 1]}…"
        return f"as in `{text}` ({', '.join(places[row] for row in self.rows)})"
