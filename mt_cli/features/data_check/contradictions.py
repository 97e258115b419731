"""Sources with several different targets, which a model cannot all learn. Case and punctuation make no difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_MANY_PAIRS, _MANY_TARGETS = 0.35, 20
"""Of Tatoeba, whose sentences have alternatives on purpose, up to 22 % of the pairs and 15 targets of one source."""


@dataclass(frozen=True)
class Contradictions:
    """Counts of the sources of a text, each with all of its different targets."""

    num_sources: int
    num_contradictory: int
    """Sources with several different targets."""
    share_of_pairs: float
    """Share of the different pairs that such a source is in, 0 to 1."""
    most_targets: int
    """Number of different targets of the source that has the most."""
    example: str
    """That source."""

    @property
    def are_many(self) -> bool:
        """Whether there are far more than in text with alternative translations."""
        return self.share_of_pairs >= _MANY_PAIRS or self.most_targets >= _MANY_TARGETS

    def __str__(self) -> str:
        return (
            f"{self.num_contradictory:,} of {self.num_sources:,} sources have several different targets "
            f"({self.share_of_pairs:.0%} of the pairs), up to {self.most_targets:,}"
        )


def find_contradictions(blocks: Iterable[tuple[pa.StringArray, pa.StringArray]]) -> Contradictions:
    """Count the sources with several different targets in blocks of sources and targets."""
    sides = [(source, _comparable(target)) for source, target in blocks]
    if not sides:
        return Contradictions(0, 0, 0.0, 0, "")
    sources, targets = (pa.chunked_array(chunks) for chunks in zip(*sides, strict=True))
    groups = pa.table({"source": sources, "target": targets}).group_by("source", use_threads=False)
    counted = groups.aggregate([("target", "count_distinct")])
    numbers = counted["target_count_distinct"].to_numpy()
    several = numbers > 1
    row = int(numbers.argmax())
    return Contradictions(
        len(numbers),
        int(several.sum()),
        float(numbers[several].sum() / max(1, numbers.sum())),
        int(numbers[row]),
        counted["source"][row].as_py(),
    )


def _comparable(texts: pa.StringArray) -> pa.StringArray:
    """Letters and digits in lower case."""
    return pc.replace_substring_regex(pc.utf8_lower(texts), r"[^\pL\pM\pN]+", "")
