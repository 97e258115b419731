"""The corpora of a config: read, filtered row by row and as a whole, and kept in the cache with the status of each row.

Every row is stored, kept or not, so that dropped pairs can be shown. Every dropped pair is counted, and both sides are
dropped together.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import FilterConfig, Source, TextSource
from mt_cli.corpus.agreement import check_languages
from mt_cli.corpus.cache import Cache, fingerprint
from mt_cli.corpus.cleaning import (
    HELD_OUT,
    KEPT,
    STATUS_CODES,
    STATUS_NAMES,
    Block,
    clean,
    drop_repeated,
    hold_out,
    on_either_side,
    seem_swapped,
)
from mt_cli.corpus.corpus import ROWS_PER_BLOCK, Corpus, SourceRows
from mt_cli.corpus.identity import AS_WRITTEN, Hashes, PairHashes, Spelling, pair_hashes
from mt_cli.corpus.lines import COMPRESSIONS
from mt_cli.corpus.orthography import find_stretches
from mt_cli.corpus.record import Record
from mt_cli.corpus.rows import Languages, LeftOut, Pair, Row
from mt_cli.corpus.sources import commit_of, content_of, files_of, in_blocks, names_of, read_rows
from mt_cli.errors import CorpusError
from mt_cli.machine.console import say
from mt_cli.machine.cpus import in_threads
from mt_cli.machine.storage import check_free_disk, size_of

Advance = Callable[[int], object]
"""Receives the number of rows that are done, for a progress bar."""

_SCHEMA = pa.schema([("number", pa.int64()), ("source", pa.string()), ("target", pa.string())])


def read_corpora(
    config: CorpusConfig,
    seed: int,
    cache: Cache,
    advance: Advance = lambda done: None,
    stream_rows: int | None = None,
    spelling: Spelling = AS_WRITTEN,
) -> dict[str, Corpus]:
    """The corpora `train` (unless it is a stream), `valid` and, if the config has them, `test` and the extra tests.

    They come from the cache unless their data or options have changed. A held-out share depends only on `seed` and the
    pairs. Duplicates and overlap are found in texts as `spelling` writes them. With `stream_rows`, the first
    `stream_rows` rows of each stream are read as `train`. Raises CorpusError if a corpus cannot be read, holds no pair
    or cannot be in its languages, and MtError if the disk is full.
    """
    check_languages(config)
    stream_rows = stream_rows if config.is_streaming else None
    given = config.model_dump_json(), seed, stream_rows, json.dumps(spelling.key)
    return cache.once(given, lambda: _read_corpora(config, seed, cache, advance, stream_rows, spelling))


def _read_corpora(
    config: CorpusConfig, seed: int, cache: Cache, advance: Advance, stream_rows: int | None, spelling: Spelling
) -> dict[str, Corpus]:
    key = _fingerprint(config, seed, stream_rows, spelling)

    def store(folder: Path) -> None:
        _store(folder, config, seed, stream_rows, advance, spelling)
        if _fingerprint(config, seed, stream_rows, spelling) != key:
            raise CorpusError("the corpora have changed while they were read; start again when they are complete")

    names = dict.fromkeys([*_groups(config, stream_rows), "valid"])
    return cache.entry(f"pairs-{key}", store, lambda folder: {name: _open(folder, name) for name in names})


def _groups(config: CorpusConfig, stream_rows: int | None) -> dict[str, tuple[Source, ...]]:
    """The sources of each corpus that is stored."""
    skipped = "train" if config.is_streaming and stream_rows is None else None
    return {name: group for name, group in config.groups.items() if name != skipped}


def key_of(name: str) -> str:
    """The key of a corpus in the config."""
    return f"corpus.{name}" if name in ("train", "valid", "test") else f"corpus.extra_tests.{name}"


def read_pairs(sources: Sequence[Source], languages: Languages, key: str) -> list[Pair]:
    """The pairs of some sources in memory, without pairs that have a blank side; messages name the corpus by `key`.

    Raises CorpusError if a source cannot be read, or no pair is left.
    """
    record = Record()
    pairs, _ = pairs_of(chain.from_iterable(_unfiltered(source, languages, record) for source in sources), key)
    _say_notes(record)
    return pairs


def read_evaluation_pairs(
    sources: Sequence[Source], languages: Languages, languages_of_sources: Sequence[Languages], key: str
) -> tuple[list[Pair], list[Languages], list[LeftOut]]:
    """The pairs of an evaluation corpus, the languages of each pair, and the rows with a blank side.

    Raises CorpusError as `read_pairs` does, for each source.
    """
    pairs, languages_of_pairs, left_out = list[Pair](), list[Languages](), list[LeftOut]()
    record = Record()
    for source, name, own in zip(sources, names_of(sources), languages_of_sources, strict=True):
        some, blank = pairs_of(_unfiltered(source, languages, record), key)
        origin, before = name if len(sources) > 1 else "", len(pairs)
        left_out += (replace(row, num_before=before + row.num_before, origin=origin, languages=own) for row in blank)
        pairs += some
        languages_of_pairs += [own] * len(some)
    _say_notes(record)
    return pairs, languages_of_pairs, left_out


def _unfiltered(source: Source, languages: Languages, record: Record) -> Iterator[Block]:
    return clean_rows(read_rows(source, languages, record), source, languages, None)


def _say_notes(record: Record) -> None:
    for note in dict.fromkeys(record.notes()):
        say(f"note: {note}")


def pairs_of(blocks: Iterable[Block], key: str) -> tuple[list[Pair], list[LeftOut]]:
    """The kept pairs of some blocks, and the rows that are left out; raises CorpusError if no pair is kept."""
    blocks = list(blocks)
    statuses = np.concatenate([np.empty(0, np.uint8), *(block.statuses for block in blocks)])
    _check_not_empty(statuses, key)
    numbers = np.concatenate([block.numbers for block in blocks])
    rows = np.flatnonzero(statuses != KEPT).tolist()
    # Of the rows before a row that is left out, `place` are left out, too.
    left_out = [LeftOut(row - place, int(numbers[row]), STATUS_NAMES[statuses[row]]) for place, row in enumerate(rows)]
    return [pair for block in blocks for pair in zip(*block.kept_texts(), strict=True)], left_out


def clean_rows(
    rows: Iterable[Row],
    source: TextSource,
    languages: Languages,
    filters: FilterConfig | None,
    spelling: Spelling = AS_WRITTEN,
) -> Iterator[Block]:
    """Some rows of a source as blocks with tags; each row is filtered by itself."""
    both, blocks = source.languages or languages, in_blocks(iter(rows), ROWS_PER_BLOCK)
    for block in in_threads(lambda block: clean(block, filters, both, spelling), blocks):
        yield block if source.tag is None else block.tagged(source.tag)


def _fingerprint(config: CorpusConfig, seed: int, stream_rows: int | None, spelling: Spelling) -> str:
    """The fingerprint of everything that the result of `read_corpora` depends on."""
    both = config.languages
    sources = {
        name: [
            (source.model_dump(mode="json", exclude={"weight", "revision"}), content_of(source, both))
            for source in group
        ]
        for name, group in _groups(config, stream_rows).items()
    }
    filters = config.filters.model_dump(mode="json")
    return fingerprint(sources, *both, filters, config.held_out(seed), stream_rows, spelling.key)


def _store(
    folder: Path, config: CorpusConfig, seed: int, stream_rows: int | None, advance: Advance, spelling: Spelling
) -> None:
    """Write the rows, statuses and parts of each corpus into a folder."""
    groups = _groups(config, stream_rows)
    files = (path for group in groups.values() for source in group for path in files_of(source) if path.is_file())
    # Text compresses to about a quarter of its size.
    num_bytes = sum(size_of([path]) * (4 if path.suffix in COMPRESSIONS else 1.2) for path in files)
    check_free_disk(folder, num_bytes, "the prepared corpus")
    evaluation_hashes: Hashes = np.empty((2, 0), np.int64)
    for name in sorted(groups, key=lambda name: name == "train"):  # `train` last: it is compared with the others.
        path = folder / f"{name}.arrow"
        if name == "train":
            filters = [config.filters_of(source) for source in config.train]
            stored = _store_rows(path, groups[name], config, filters, stream_rows, advance, spelling)
            parts, statuses, hashes = stored
            filters_of_rows = [(part.num_rows, each) for part, each in zip(parts, filters, strict=True)]
            known = on_either_side(evaluation_hashes) if config.has_reverse else evaluation_hashes
            _drop_other_orthography(folder, parts, statuses, config)
            drop_repeated(statuses, hashes, filters_of_rows, known)
            _check_not_empty(statuses, key_of(name), lambda: _note_on_swap(folder / "train.arrow", config))
            if share := config.held_out(seed):
                fraction, share_seed = share
                keys = _keys_of_rows(folder, parts, statuses, config, share_seed)
                hold_out(statuses, hashes, filters_of_rows, fraction, keys, config.has_reverse)
        else:
            parts, statuses, hashes = _store_rows(path, groups[name], config, None, None, advance, spelling)
            evaluation_hashes = np.concatenate([evaluation_hashes, hashes], axis=1)
        _check_not_empty(statuses, key_of(name))
        np.save(folder / f"{name}.npy", statuses)
        (folder / f"{name}.json").write_text(json.dumps([asdict(part) for part in parts]), encoding="utf-8")


def _drop_other_orthography(
    folder: Path, parts: Sequence[SourceRows], statuses: NDArray[np.uint8], config: CorpusConfig
) -> None:
    """Drop kept rows of `train` that are spelled otherwise than another corpus, which is stored in the folder."""
    numbers = [number for number, source in enumerate(config.train) if config.filters_of(source).other_orthography]
    if numbers:
        train = _train_in(folder, parts, statuses)
        for stretch in find_stretches(train, _open(folder, str(config.compared)), config, numbers):
            statuses[stretch.rows[statuses[stretch.rows] == KEPT]] = STATUS_CODES["other_orthography"]


def _train_in(folder: Path, parts: Sequence[SourceRows], statuses: NDArray[np.uint8]) -> Corpus:
    """`train`, whose rows are stored in the folder already."""
    return Corpus(folder.name, pa.OSFile(str(folder / "train.arrow")), statuses, tuple(parts))


def _keys_of_rows(
    folder: Path, parts: Sequence[SourceRows], statuses: NDArray[np.uint8], config: CorpusConfig, seed: int
) -> PairHashes:
    """Seeded hashes that decide which kept rows of `train` are held out; those of other rows are 0."""
    keys = np.zeros(len(statuses), np.uint64)
    mask = statuses == KEPT
    rows = _train_in(folder, parts, statuses).rows(mask)
    keys[mask] = pair_hashes([row[1:] for row in rows], config.tags, seed)
    return keys


def _check_not_empty(statuses: NDArray[np.uint8], key: str, note: Callable[[], str] = lambda: "") -> None:
    if not (statuses == KEPT).any():
        counts = sorted(Counter(statuses.tolist()).items())
        dropped = ", ".join(f"{count:,} {STATUS_NAMES[code]}" for code, count in counts if code != HELD_OUT)
        raise CorpusError(f"{key}: the corpus is empty{f' (dropped: {dropped})' if dropped else ''}{note()}")


def _note_on_swap(path: Path, config: CorpusConfig) -> str:
    """A note if the first rows of a stored corpus seem to have their sides exchanged, otherwise an empty string."""
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        if not reader.num_record_batches:
            return ""
        _, sources, targets = (column.to_pylist() for column in reader.get_batch(0).columns)
    source, target = languages = config.train[0].languages or config.languages
    if not seem_swapped(sources, targets, languages):
        return ""
    return f"; the two sides seem to be swapped: the source should be `{source}` and the target `{target}`"


def _open(folder: Path, name: str) -> Corpus:
    """A stored corpus; the held-out corpus shares its rows with `train`."""
    stored, code = (name, KEPT) if (folder / f"{name}.arrow").exists() else ("train", HELD_OUT)
    parts = [SourceRows(**part) for part in json.loads((folder / f"{stored}.json").read_text(encoding="utf-8"))]
    file = pa.OSFile(str(folder / f"{stored}.arrow"))
    return Corpus(folder.name, file, np.load(folder / f"{stored}.npy"), tuple(parts), code)


def _store_rows(
    path: Path,
    sources: Sequence[Source],
    config: CorpusConfig,
    filters: Sequence[FilterConfig] | None,
    limit: int | None,
    advance: Advance,
    spelling: Spelling,
) -> tuple[list[SourceRows], NDArray[np.uint8], Hashes]:
    """Write the rows of some sources; return the parts, the status of each row by itself, and the hashes (2xN)."""
    parts: list[SourceRows] = []
    statuses, hashes = [np.empty(0, np.uint8)], [np.empty((2, 0), np.int64)]
    num_rows = 0
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        for index, (name, source) in enumerate(zip(names_of(sources), sources, strict=True)):
            first_row, digest = num_rows, hashlib.sha256()
            own = filters[index] if filters else None
            record = Record()
            rows = islice(read_rows(source, config.languages, record), limit)
            for block in clean_rows(rows, source, config.languages, own, spelling):
                columns = [pa.array(block.numbers), block.source, block.target]
                writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
                for column in columns[1:]:
                    _add_texts(digest, column)
                statuses.append(block.statuses)
                hashes.append(block.hashes)
                num_rows += len(block)
                advance(len(block))
            rows_of_source = name, first_row, num_rows - first_row, digest.hexdigest(), commit_of(source)
            skipped = [place for places in record.skipped.values() for place in places]
            losses = dict(record.num_skipped), skipped, record.varieties, [*record.notes()]
            parts.append(SourceRows(*rows_of_source, *losses))
    return parts, np.concatenate(statuses), np.concatenate(hashes, axis=1)


def _add_texts(digest: Any, column: pa.Array) -> None:
    """Update a digest with texts and with the offset of each."""
    whole = pa.concat_arrays([column, pa.array([], column.type)])  # A slice would have the buffers of the whole.
    for buffer in whole.buffers()[1:]:
        if buffer is not None:
            digest.update(buffer)
