"""Sources with several different targets, which a model cannot all learn. Case and punctuation make no difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.corpus import Corpus
from mt_cli.features.data_check.findings import Finding, Sentences, Tally, sentences_of

_MANY_PAIRS, _MANY_TARGETS = 0.35, 20
"""Tatoeba, whose sentences have alternatives on purpose, has up to 22 % of the pairs and 15 targets of one source."""


@dataclass(frozen=True)
class Contradictions:
    """Counts of the sources of a text, each with all of its different targets."""

    num_sources: int
    num_contradictory: int
    """Number of sources with several different targets."""
    share_of_pairs: float
    """Share of the different pairs that such a source is in, 0 to 1."""
    most_targets: int
    """Largest number of different targets of one source."""
    example: str
    """Source with the most different targets."""

    def __str__(self) -> str:
        return (
            f"{self.num_contradictory:,} of {self.num_sources:,} sources have several different targets "
            f"({self.share_of_pairs:.0%} of the pairs), up to {self.most_targets:,}"
        )


def contradictions_in(train: Corpus, config: CorpusConfig) -> Contradictions:
    """Count sources of `train`, with the tags that tell them apart, that have several different targets."""
    sides = [(block.sides[0], _comparable(block.sides[1])) for _, block in _blocks(train, config)]
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


def notes_on_contradictions(train: Corpus, config: CorpusConfig) -> Iterator[Finding]:
    """Note far more contradictions in `train` than text with alternative translations has, with their first places."""
    counts = contradictions_in(train, config)
    if counts.share_of_pairs < _MANY_PAIRS and counts.most_targets < _MANY_TARGETS:
        return
    tally = Tally()
    for part, block in _blocks(train, config):
        mask = pc.equal(block.sides[0], counts.example).to_numpy(zero_copy_only=False)
        tally.add(part, block.numbers, block.sides[0], mask)
    text = f"{counts}, {tally.shown('train', config)}; keep one target of each source"
    yield Finding("train", "", 0, 0, text, "text", is_note=True)


def _blocks(train: Corpus, config: CorpusConfig) -> Iterator[tuple[str, Sentences]]:
    """Blocks of `train` with the names of their sources, and with tags."""
    for part in (train.parts[number] for number in config.once("train")):
        for block in sentences_of(train, part, ()):
            yield part.name, block


def _comparable(texts: pa.StringArray) -> pa.StringArray:
    """Letters and digits in lower case."""
    return pc.replace_substring_regex(pc.utf8_lower(texts), r"[^\pL\pM\pN]+", "")
