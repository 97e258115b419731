"""Text of one language: read, filtered, and kept in memory.

Lines are filtered as a side of training pairs would be, and never contain a sentence of an evaluation set.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import FilterConfig, MonolingualText
from mt_cli.corpus.cache import Cache, digest_of_file
from mt_cli.corpus.cleaning import KEPT, STATUS_NAMES, clean, drop_repeated
from mt_cli.corpus.corpus import ROWS_PER_BLOCK
from mt_cli.corpus.formats.table import suffix_of
from mt_cli.corpus.languages import words_of
from mt_cli.corpus.lines import read_lines
from mt_cli.corpus.rows import Row
from mt_cli.corpus.source_rows import in_blocks
from mt_cli.corpus.text_hashes import Hashes
from mt_cli.errors import CorpusError
from mt_cli.runtime.cpus import in_threads

_LINES_EXAMINED = 100
BETWEEN_SIDES = {"identical": False, "max_length_ratio": None, "markers": False}
"""Values that turn off the filters that compare the sides of a pair."""


@dataclass(frozen=True)
class Lines:
    """Lines of a text that can be targets of pairs."""

    name: str
    texts: pa.Array
    counts: Mapping[str, int]
    """Number of lines that were read, by status as in `STATUS_NAMES`."""
    fingerprint: str
    """Digest of the lines."""

    def __len__(self) -> int:
        return len(self.texts)

    def take(self, indices: Sequence[int]) -> list[str]:
        """Lines with these indices, without indices beyond the end."""
        within = [index for index in indices if index < len(self)]
        return [str(text) for text in self.texts.take(pa.array(within, pa.int64())).to_pylist()]

    @property
    def num_characters(self) -> int:
        """Number of bytes of all lines, about as many as characters."""
        return int(self.texts.nbytes)

    def sample(self, number: int) -> list[str]:
        """At most `number` lines, evenly spread over the text."""
        return self.take(np.linspace(0, len(self) - 1, min(len(self), number)).astype(int).tolist())


FEWEST_KNOWN = 0.1
"""Share of the words of a text that pairs have on a side, from which on the text may be in the language of the side."""


def known_shares(lines: Iterable[str], sides: Sequence[Iterable[str]]) -> list[float]:
    """For each side of some pairs, the share of the words of some lines that occur in the side, 0 to 1."""
    words = [word for line in lines for word in words_of(line)]
    vocabularies = [set[str]().union(*map(words_of, side)) for side in sides]
    return [sum(word in vocabulary for word in words) / max(1, len(words)) for vocabulary in vocabularies]


def read_monolingual(config: CorpusConfig, evaluation_hashes: Hashes, cache: Cache) -> dict[str, Lines]:
    """Lines of the texts of a config by side; raises CorpusError if a text cannot be read or has no usable line."""
    texts = config.monolingual.texts if config.monolingual else {}
    languages = {"source": config.source, "target": config.target}
    filters = config.filters.model_copy(update=BETWEEN_SIDES)
    return {side: _read(text, side, languages[side], filters, evaluation_hashes, cache) for side, text in texts.items()}


def _read(
    text: MonolingualText, side: str, language: str, filters: FilterConfig, evaluation_hashes: Hashes, cache: Cache
) -> Lines:
    key = f"corpus.monolingual.{side}"
    paths = [*map(Path, text.files)]
    for path in paths:
        if (suffix := suffix_of(path)) is not None:
            raise CorpusError(f"{key}: {path}: a {suffix} file holds pairs; give a text with a sentence per line")
        first = [*islice(read_lines(path), _LINES_EXAMINED)]
        if 2 * sum("\t" in line for line in first) > len(first):
            raise CorpusError(f"{key}: {path}: a table, because most lines have a tab; give one sentence per line")
    digests = [digest_of_file(path) for path in paths]
    options = key, language, *digests, filters.model_dump_json(), evaluation_hashes.tobytes()
    texts, counts = cache.once(options, lambda: kept_lines(paths, language, filters, evaluation_hashes))
    if not len(texts):
        dropped = ", ".join(f"{count:,} {status}" for status, count in counts.items())
        raise CorpusError(f"{key}: no line of {', '.join(text.files)} can be used ({dropped or 'it is empty'})")
    digest = hashlib.sha256("\n".join(texts.to_pylist()).encode()).hexdigest()[:16]
    return Lines(", ".join(path.name for path in paths), texts, counts, digest)


def kept_lines(
    paths: Sequence[Path], language: str, filters: FilterConfig, evaluation_hashes: Hashes
) -> tuple[pa.Array, dict[str, int]]:
    """Kept lines, and the number of lines by status."""
    blocks = [*in_threads(lambda rows: clean(rows, filters, (language, language)), _blocks(paths))]
    if not blocks:
        return pa.array([], pa.large_string()), {}
    statuses = np.concatenate([block.statuses for block in blocks])
    hashes = np.concatenate([block.hashes for block in blocks], axis=1)
    drop_repeated(statuses, hashes, [(len(statuses), filters)], evaluation_hashes)
    texts = pa.chunked_array([block.target for block in blocks], pa.string()).cast(pa.large_string())
    counts = Counter(STATUS_NAMES[code].replace("blank_pair", "blank") for code in statuses.tolist())
    return texts.filter(pa.array(statuses == KEPT)).combine_chunks(), dict(counts)


def _blocks(paths: Sequence[Path]) -> Iterator[list[Row]]:
    rows = ((number, line, line) for path in paths for number, line in enumerate(read_lines(path), start=1))
    return in_blocks(rows, ROWS_PER_BLOCK)
