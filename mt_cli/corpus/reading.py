"""Corpora of a config: read, filtered row by row and as a whole, and kept in the cache with the status of each row.

Every row is stored, kept or not, so that dropped pairs can be shown. Every dropped pair is counted, and both sides are
dropped together.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import TypeAdapter

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import FilterConfig, Source, TextSource
from mt_cli.corpus.cache import Cache, fingerprint
from mt_cli.corpus.cleaning import HELD_OUT, KEPT, STATUS_NAMES, Block, clean, drop_repeated, hold_out
from mt_cli.corpus.corpus import ROWS_PER_BLOCK, Corpus, SourceRows
from mt_cli.corpus.dataset import commit_of
from mt_cli.corpus.rows import Languages, ReadReport, Row
from mt_cli.corpus.source_rows import content_of, in_blocks, names_of, read_rows
from mt_cli.corpus.text_hashes import Hashes, pair_hashes
from mt_cli.corpus.varieties import is_same_variety
from mt_cli.errors import CorpusError
from mt_cli.runtime.cpus import in_threads

Advance = Callable[[int], object]
"""Callback with the number of rows done, for a progress bar."""

_SEED_OF_SHARE = 1
_SCHEMA = pa.schema([("number", pa.int64()), ("source", pa.string()), ("target", pa.string())])


def key_of(name: str) -> str:
    return f"corpus.{name}" if name in ("train", "valid", "test") else f"corpus.extra_tests.{name}"


def read_corpora(
    config: CorpusConfig,
    cache: Cache,
    advance: Advance = lambda done: None,
    stream_rows: int | None = None,
    only: str | None = None,
) -> dict[str, Corpus]:
    """Read `train` (unless it is a stream), `valid` and, if the config has them, `test` and the extra tests.

    With `only`, just this evaluation set is read.

    Corpora come from the cache unless their data or options have changed. A held-out share depends only on the
    pairs. With `stream_rows`, the first `stream_rows` rows of each stream are read as `train`. Raises CorpusError
    if a corpus cannot be read, holds no pair or cannot be in its languages, and MtError if the disk is full.
    """
    _check_languages(config)
    request = _Request(config, stream_rows if config.is_streaming else None, only)
    has_share = "train" in request.groups and config.held_out is not None
    names = [*(name for name in config.groups if name in request.groups), *["valid"] * has_share]
    key = config.model_dump_json(), request.stream_rows, only
    return cache.once(
        key,
        lambda: cache.entry(
            f"pairs-{request.fingerprint()}",
            lambda folder: _store(folder, request, advance),
            lambda folder: {name: _open(folder, name) for name in names},
        ),
    )


def _check_languages(config: CorpusConfig) -> None:
    """Raise CorpusError if both sides of a source are one language."""
    for name, sources in config.groups.items():
        for number, source in enumerate(sources):
            first, second = source.languages or config.languages
            if is_same_variety(first, second):
                key = f"{key_of(name)}[{number}].languages" if source.languages else "corpus.source, corpus.target"
                advice = "for a task within a language, give one side a code such as en-x-plain"
                raise CorpusError(f"{key}: {first} and {second} are one language; {advice}")


@dataclass(frozen=True)
class _Request:
    """All inputs of `read_corpora` except the text."""

    config: CorpusConfig
    stream_rows: int | None
    only: str | None = None

    @property
    def groups(self) -> dict[str, tuple[Source, ...]]:
        """Sources of each corpus that is stored; `train` last, because it is compared with the others."""
        groups = dict(self.config.groups)
        if self.only is not None:
            return {self.only: groups[self.only]}
        train = groups.pop("train")
        is_stored = not self.config.is_streaming or self.stream_rows is not None
        return groups | ({"train": train} if is_stored else {})

    def fingerprint(self) -> str:
        languages, unused = self.config.languages, {"weight", "revision"}
        sources = {
            name: [(source.model_dump(mode="json", exclude=unused), content_of(source, languages)) for source in group]
            for name, group in self.groups.items()
        }
        filters, share = self.config.filters.model_dump(mode="json"), self.config.held_out
        return fingerprint(sources, *languages, filters, share, share and self.config.natural(), self.stream_rows)


def clean_rows(
    rows: Iterable[Row], source: TextSource, languages: Languages, filters: FilterConfig | None
) -> Iterator[Block]:
    """Rows of a source as blocks with tags; each row is filtered by itself."""
    direction, blocks = source.languages or languages, in_blocks(iter(rows), ROWS_PER_BLOCK)
    for block in in_threads(lambda block: clean(block, filters, direction), blocks):
        yield block if source.tag is None else block.tagged(source.tag)


def _store(folder: Path, request: _Request, advance: Advance) -> None:
    """Write the rows, statuses and parts of each corpus into a folder."""
    groups = request.groups
    evaluation_hashes: Hashes = np.empty(0, np.int64)
    for name, sources in groups.items():
        corpus, hashes = _store_rows(folder / f"{name}.arrow", sources, request, name == "train", advance)
        if name == "train":
            _filter_together(corpus, hashes, request, evaluation_hashes)
        evaluation_hashes = np.concatenate([evaluation_hashes, *hashes[:2]])
        _check_not_empty(corpus.statuses, key_of(name))
        np.save(folder / f"{name}.npy", corpus.statuses)
        parts = json.dumps([asdict(part) for part in corpus.parts])
        (folder / f"{name}.json").write_text(parts, encoding="utf-8")


def _filter_together(train: Corpus, hashes: Hashes, request: _Request, evaluation_hashes: Hashes) -> None:
    """Apply the filters that compare rows or corpora to `train`, and hold out the share for validation."""
    config, statuses = request.config, train.statuses
    filters = [
        (part.num_rows, config.filters_of(source)) for part, source in zip(train.parts, config.train, strict=True)
    ]
    drop_repeated(statuses, hashes, filters, evaluation_hashes)
    _check_not_empty(statuses, key_of("train"))
    if fraction := config.held_out:
        keys = np.zeros(len(statuses), np.uint64)
        blocks = train.untagged_blocks()
        keys[statuses == KEPT] = np.concatenate(
            [pair_hashes(first, second, _SEED_OF_SHARE) for _, first, second in blocks]
        )
        hold_out(statuses, hashes, filters, fraction, keys, config.natural())


def _check_not_empty(statuses: NDArray[np.uint8], key: str) -> None:
    if not (statuses == KEPT).any():
        counts = sorted(Counter(statuses.tolist()).items())
        dropped = ", ".join(f"{count:,} {STATUS_NAMES[code]}" for code, count in counts if code != HELD_OUT)
        raise CorpusError(f"{key}: the corpus is empty{f' (dropped: {dropped})' if dropped else ''}")


def _open(folder: Path, name: str) -> Corpus:
    """A stored corpus; the held-out corpus shares its rows with `train`."""
    stored, code = (name, KEPT) if (folder / f"{name}.arrow").exists() else ("train", HELD_OUT)
    parts = TypeAdapter(tuple[SourceRows, ...]).validate_json((folder / f"{stored}.json").read_bytes())
    file = pa.OSFile(str(folder / f"{stored}.arrow"))
    pa.ipc.open_file(file)  # Raises an error if the end is missing.
    return Corpus(folder.name, file, np.load(folder / f"{stored}.npy"), parts, code)


def _store_rows(
    path: Path, sources: Sequence[Source], request: _Request, is_train: bool, advance: Advance
) -> tuple[Corpus, Hashes]:
    """Write the rows of sources, each row filtered by itself; only rows of `train` have filters and a limit.

    Return the corpus, and the hashes of its rows as in `Block`, 5xN.
    """
    config, num_rows = request.config, 0
    parts, statuses, hashes = list[SourceRows](), [np.empty(0, np.uint8)], [np.empty((5, 0), np.int64)]
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        for name, source in zip(names_of(sources), sources, strict=True):
            first_row, digest, report = num_rows, hashlib.sha256(), ReadReport()
            rows = islice(read_rows(source, config.languages, report), request.stream_rows if is_train else None)
            filters = config.filters_of(source) if is_train else None
            for block in clean_rows(rows, source, config.languages, filters):
                columns = [pa.array(block.numbers), block.source, block.target]
                writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
                digest.update(block.hashes.tobytes())
                statuses.append(block.statuses)
                hashes.append(block.hashes)
                num_rows += len(block)
                advance(len(block))
            place = name, first_row, num_rows - first_row, digest.hexdigest()
            kind = source.languages or config.languages, source.tag, commit_of(source)
            parts.append(SourceRows(*place, *kind, report.skipped, [*report.notes()]))
    corpus = Corpus(path.parent.name, pa.OSFile(str(path)), np.concatenate(statuses), tuple(parts))
    return corpus, np.concatenate(hashes, axis=1)
