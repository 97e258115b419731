"""The corpora that a config names: read, judged pair by pair and as a whole, and kept on disk with their judgements.

Every row that was read is in the store, kept or not, so that what was dropped can be looked at. Nothing is dropped
without being counted, and a side is never dropped without the other.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mt_cli.config.corpora import (
    BuiltinSource,
    CorpusConfig,
    DatasetSource,
    FileSource,
    FilesSource,
    FilterConfig,
    HeldOut,
    Source,
    TextSource,
)
from mt_cli.corpus.alignment import first_misaligned_line
from mt_cli.corpus.cache import Cache, digest_of_file, fingerprint
from mt_cli.corpus.cleaning import (
    HELD_OUT,
    KEPT,
    STATUS_NAMES,
    Block,
    Hashes,
    clean,
    filter_together,
    hold_out,
    seem_swapped,
)
from mt_cli.corpus.formats import Languages, Row, read_file, reader_of
from mt_cli.corpus.hub import load_dataset, read_dataset
from mt_cli.corpus.lines import count_lines, read_lines
from mt_cli.corpus.practice.builtin import builtin_pairs
from mt_cli.cpus import in_threads
from mt_cli.errors import CorpusError
from mt_cli.storage import check_free_disk, size_of

Pair = tuple[str, str]
Advance = Callable[[int], object]
"""Takes the number of rows that are done, for a progress bar."""

_ROWS_PER_BLOCK = 10_000
_SCHEMA = pa.schema([("number", pa.int64()), ("source", pa.string()), ("target", pa.string())])

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """What one source of the config gave to a corpus: a stretch of its rows."""

    name: str
    first_row: int
    num_rows: int
    digest: str
    """SHA-256 of its text."""


@dataclass(frozen=True)
class Corpus:
    """Rows in a file, of which those with the judgement `code` are the corpus."""

    key: str
    """The fingerprint of what the file was made from."""
    file: pa.NativeFile
    """Stays open: the cache that it is in may be deleted."""
    statuses: NDArray[np.uint8]
    """What became of each row: a code of `STATUS_NAMES`."""
    parts: tuple[Part, ...]
    code: int = KEPT

    def __len__(self) -> int:
        return int(np.count_nonzero(self.statuses == self.code))

    def blocks(self, mask: NDArray[np.bool_] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a mask, by default the corpus, as columns `number`, `source`, `target`, a block at a time."""
        mask = self.statuses == self.code if mask is None else mask
        with pa.ipc.open_file(self.file) as reader:
            for index, kept in enumerate(np.split(mask, np.cumsum(self._block_sizes)[:-1])):
                if kept.any():
                    block = reader.get_batch(index)
                    yield block if kept.all() else block.filter(pa.array(kept))

    @property
    def _block_sizes(self) -> list[int]:
        """Numbers of rows: blocks are full but for the last of each part."""
        size = _ROWS_PER_BLOCK
        return [min(size, part.num_rows - row) for part in self.parts for row in range(0, part.num_rows, size)]

    def rows(self, mask: NDArray[np.bool_] | None = None) -> Iterator[Row]:
        """The same as `blocks`, row by row."""
        for block in self.blocks(mask):
            yield from zip(*(column.to_pylist() for column in block.columns), strict=True)

    @cached_property
    def pairs(self) -> list[Pair]:
        """The pairs in memory: for validation and test sets."""
        return [(source, target) for _, source, target in self.rows()]

    def counts(self, part: Part | None = None) -> dict[str, int]:
        """How many rows, of a part or of all, met which status, in the order of `STATUS_NAMES`; only what occurred."""
        rows = self.statuses if part is None else self.statuses[part.first_row : part.first_row + part.num_rows]
        return {STATUS_NAMES[code]: int(count) for code, count in enumerate(np.bincount(rows)) if count}

    def num_kept(self, part: Part) -> int:
        """How many of a part's rows are in the corpus."""
        return self.counts(part).get(STATUS_NAMES[self.code], 0)


def read_corpora(
    config: CorpusConfig,
    seed: int,
    cache: Cache,
    advance: Advance = lambda done: None,
    stream_rows: int | None = None,
) -> dict[str, Corpus]:
    """The corpora `train` (but not a stream), `valid` and, where the config has them, `test` and the extra tests.

    They come from the cache, if what they are made from is unchanged. A held-out share depends on `seed` and on the
    pairs alone. With `stream_rows`, so many rows of each stream are taken as if they were all.

    Raises:
        CorpusError: if a corpus cannot be read, or holds no pair.
        MtError: if there is no room on the disk.
    """
    groups = corpora_of(config)
    if not config.is_streaming:
        stream_rows = None
    elif stream_rows is None:
        del groups["train"]
    key = _fingerprint(config, groups, seed, stream_rows)

    def store(folder: Path) -> None:
        _store(folder, config, groups, seed, stream_rows, advance)
        if _fingerprint(config, groups, seed, stream_rows) != key:
            raise CorpusError("the corpora have changed while they were read; start again when they are complete")

    return cache.entry(
        f"pairs-{key}",
        store,
        lambda folder: {name: _open(folder, name) for name in dict.fromkeys([*groups, "valid"])},
    )


def corpora_of(config: CorpusConfig) -> dict[str, tuple[Source, ...]]:
    """The sources of every corpus that has some of its own."""
    groups: dict[str, tuple[Source, ...]] = {"train": config.train}
    if valid := tuple(source for source in config.valid if not isinstance(source, HeldOut)):
        groups["valid"] = valid
    return groups | ({"test": config.test} if config.test else {}) | config.extra_tests


def key_of(name: str) -> str:
    """How a config spells the name of a corpus."""
    return f"corpus.{name}" if name in ("train", "valid", "test") else f"corpus.extra_tests.{name}"


def read_pairs(sources: Sequence[Source], languages: Languages, key: str) -> list[Pair]:
    """The pairs of some sources, in memory, without those that have a blank side; `key` is for messages.

    Raises:
        CorpusError: if a source cannot be read, or no pair is left.
    """
    return pairs_of((block for source in sources for block in clean_blocks(source, languages, None)), key)


def pairs_of(judged: Iterable[Block], key: str) -> list[Pair]:
    """The pairs of some blocks that are kept; raises CorpusError if there is none."""
    blocks = list(judged)
    pairs = [pair for block in blocks for pair in zip(*block.kept_texts(), strict=True)]
    if not pairs:
        raise CorpusError(
            f"{key}: the corpus is empty{_dropped(Counter(c for b in blocks for c in b.statuses.tolist()))}"
        )
    return pairs


def read_rows(source: TextSource, languages: Languages) -> Iterator[Row]:
    """The rows of one source as they stand there.

    Raises:
        CorpusError: if the source is missing, unreadable, not UTF-8, or misaligned.
    """
    languages = source.languages or languages
    match source:
        case BuiltinSource():
            try:
                pairs = builtin_pairs(source.builtin, source.split)
            except KeyError:
                raise CorpusError(f"builtin {source.builtin}: there is no split {source.split!r}") from None
            return ((number, *pair) for number, pair in enumerate(pairs, start=1))
        case FilesSource():
            paths = Path(source.files[0]), Path(source.files[1])
            if not source.streaming:  # Counting is a full pass, which a stream does not need.
                _check_line_counts(*paths)
            return _read_files(*paths)
        case FileSource():
            return read_file(Path(source.file), languages, source.columns)
        case DatasetSource():
            return read_dataset(source, languages)
        case _:
            raise TypeError(source)


def _check_line_counts(source_path: Path, target_path: Path) -> None:
    numbers_of_lines = [count_lines(path) for path in (source_path, target_path)]
    if numbers_of_lines[0] != numbers_of_lines[1]:
        line = _first_misaligned_line(source_path, target_path)
        where = "" if line is None else f"; they seem to part near line {line:,}"
        raise CorpusError(
            f"{source_path} has {numbers_of_lines[0]:,} lines and {target_path} has {numbers_of_lines[1]:,}: line N of "
            f"one must translate line N of the other{where}"
        )


def _first_misaligned_line(source_path: Path, target_path: Path) -> int | None:
    """Where lines of the one file no longer belong to those of the other, as far as that can be told."""
    sides = [_in_blocks(read_lines(path)) for path in (source_path, target_path)]
    num_before = 0
    for sources, targets in zip(*sides, strict=False):
        if (line := first_misaligned_line(sources, targets)) is not None:
            return num_before + line
        num_before += min(len(sources), len(targets))
    return None


def _read_files(source_path: Path, target_path: Path) -> Iterator[Row]:
    lines = zip(read_lines(source_path), read_lines(target_path), strict=True)
    number = 0
    try:
        for number, (source, target) in enumerate(lines, start=1):
            yield number, source, target
    except ValueError:
        raise CorpusError(
            f"{source_path} and {target_path}: one of them ends after {number:,} lines and the other goes on; line N "
            "of one must translate line N of the other"
        ) from None


def names_of(sources: Sequence[TextSource]) -> list[str]:
    """What reports call some sources, with numbers where their names would be equal."""
    names = [_name_of(source) for source in sources]
    numbered = [f"{name} {names[:index].count(name) + 1}" for index, name in enumerate(names)]
    return [long if names.count(name) > 1 else name for name, long in zip(names, numbered, strict=True)]


def _name_of(source: TextSource) -> str:
    match source:
        case TextSource(name=str(name)):
            return name
        case BuiltinSource():
            return source.builtin
        case FilesSource():
            return Path(source.files[0]).name
        case FileSource():
            return Path(source.file).name
        case DatasetSource():
            return " ".join([source.dataset, *([source.subset] if source.subset else [])])
        case _:
            raise TypeError(source)


def clean_blocks(
    source: TextSource, languages: Languages, filters: FilterConfig | None, limit: int | None = None
) -> Iterator[Block]:
    """The rows of a source, or its first ones, in blocks, each row judged by itself, and tagged."""
    return clean_rows(islice(read_rows(source, languages), limit), source, languages, filters)


def clean_rows(
    rows: Iterable[Row], source: TextSource, languages: Languages, filters: FilterConfig | None
) -> Iterator[Block]:
    """The same, of some rows of the source."""
    languages = source.languages or languages
    for block in in_threads(lambda block: clean(block, filters, languages), _in_blocks(iter(rows))):
        yield block if source.tag is None else block.tagged(source.tag)


def _in_blocks(rows: Iterator[T]) -> Iterator[list[T]]:
    while block := list(islice(rows, _ROWS_PER_BLOCK)):
        yield block


def _fingerprint(
    config: CorpusConfig, groups: Mapping[str, Sequence[Source]], seed: int, stream_rows: int | None
) -> str:
    """Of everything that decides what `read_corpora` gives."""
    sources = {
        name: [(source.model_dump(mode="json", exclude={"weight"}), _content_of(source, config)) for source in group]
        for name, group in groups.items()
    }
    share = config.valid[0]
    held_out = (share.fraction, seed) if isinstance(share, HeldOut) else None
    return fingerprint(
        sources, config.source, config.target, config.filters.model_dump(mode="json"), held_out, stream_rows
    )


def _content_of(source: TextSource, config: CorpusConfig) -> Any:
    """What tells whether a source still holds the same; of a stream, its beginning."""
    if source.streaming:
        return list(islice(read_rows(source, (config.source, config.target)), 1_000))
    match source:
        case BuiltinSource():
            folder = Path(inspect.getfile(builtin_pairs)).parent
            return [digest_of_file(path) for path in sorted([*folder.glob("*.tsv"), *folder.glob("*.py")])]
        case FilesSource():
            return [digest_of_file(Path(path)) for path in source.files]
        case FileSource():
            reader_of(Path(source.file))  # A kind that cannot be read is named before a file that is not there.
            return digest_of_file(Path(source.file))
        case _:
            assert isinstance(source, DatasetSource)
            return load_dataset(source)._fingerprint


def _store(
    folder: Path,
    config: CorpusConfig,
    groups: Mapping[str, Sequence[Source]],
    seed: int,
    stream_rows: int | None,
    advance: Advance,
) -> None:
    """Read groups of sources into a folder: rows, judgements, and which source gave which rows."""
    files = (Path(path) for group in groups.values() for source in group for path in _files_of(source))
    # Compressed text unpacks to about four times its size.
    sizes = (size_of([path]) * (4 if path.suffix in (".gz", ".zst") else 1.2) for path in files if path.is_file())
    check_free_disk(folder, sum(sizes), "the prepared corpus")
    evaluation_hashes: list[Hashes] = [np.empty(0, np.int64), np.empty(0, np.int64)]
    for name in sorted(groups, key=lambda name: name == "train"):  # `train` last: it is held against the others.
        is_train = name == "train"
        limit = stream_rows if is_train else None
        parts, statuses, hashes = _store_rows(folder / f"{name}.arrow", groups[name], config, is_train, limit, advance)
        if is_train:
            filters = [
                (part.num_rows, config.filters_of(source)) for part, source in zip(parts, config.train, strict=True)
            ]
            filter_together(statuses, hashes, filters, evaluation_hashes)
            _check_not_empty(statuses, name, lambda: _note_on_swap(folder / "train.arrow", config))
            if isinstance(share := config.valid[0], HeldOut):
                hold_out(statuses, hashes, filters, share.fraction, seed)
        else:
            evaluation_hashes = [np.concatenate([old, new]) for old, new in zip(evaluation_hashes, hashes, strict=True)]
        _check_not_empty(statuses, name)
        np.save(folder / f"{name}.npy", statuses)
        (folder / f"{name}.json").write_text(json.dumps([asdict(part) for part in parts]), encoding="utf-8")


def _check_not_empty(statuses: NDArray[np.uint8], name: str, note: Callable[[], str] = str) -> None:
    if not (statuses == KEPT).any():
        raise CorpusError(f"{key_of(name)}: the corpus is empty{_dropped(Counter(statuses.tolist()))}{note()}")


def _note_on_swap(path: Path, config: CorpusConfig) -> str:
    """What to say if the first rows of a stored corpus would be in the right languages with their sides exchanged."""
    with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
        if not reader.num_record_batches:
            return ""
        _, sources, targets = (column.to_pylist() for column in reader.get_batch(0).columns)
    source, target = config.train[0].languages or (config.source, config.target)
    if not seem_swapped(sources, targets, (source, target)):
        return ""
    return f"; the two sides seem to be swapped: the source should be `{source}` and the target `{target}`"


def _files_of(source: TextSource) -> tuple[str, ...]:
    match source:
        case FilesSource():
            return source.files
        case FileSource():
            return (source.file,)
        case _:
            return ()


def _dropped(codes: Counter[int]) -> str:
    dropped = ", ".join(f"{count:,} {STATUS_NAMES[code]}" for code, count in sorted(codes.items()) if code != KEPT)
    return f" (dropped: {dropped})" if dropped else ""


def _open(folder: Path, name: str) -> Corpus:
    """A corpus of `_store`; the held-out one shares its rows with `train`."""
    stored, code = (name, KEPT) if (folder / f"{name}.arrow").exists() else ("train", HELD_OUT)
    parts = [Part(**part) for part in json.loads((folder / f"{stored}.json").read_text(encoding="utf-8"))]
    file = pa.OSFile(str(folder / f"{stored}.arrow"))
    return Corpus(folder.name, file, np.load(folder / f"{stored}.npy"), tuple(parts), code)


def _add_texts(digest: Any, column: pa.Array) -> None:
    """Feed texts, and where each ends, to a digest."""
    whole = pa.concat_arrays([column, pa.array([], column.type)])  # Not a slice of something longer.
    for buffer in whole.buffers()[1:]:
        if buffer is not None:
            digest.update(buffer)


def _store_rows(
    path: Path,
    sources: Sequence[Source],
    config: CorpusConfig,
    is_train: bool,
    limit: int | None,
    advance: Advance,
) -> tuple[list[Part], NDArray[np.uint8], list[Hashes]]:
    """Write all rows of some sources; return where each begins, the judgement of each row by itself, and its hashes."""
    parts: list[Part] = []
    blocks: list[Block] = []
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        for name, source in zip(names_of(sources), sources, strict=True):
            first_row = sum(len(block) for block in blocks)
            filters = config.filters_of(source) if is_train else None
            digest = hashlib.sha256()
            for block in clean_blocks(source, (config.source, config.target), filters, limit):
                writer.write_batch(
                    pa.record_batch([pa.array(block.numbers), block.source, block.target], schema=_SCHEMA)
                )
                for column in (block.source, block.target):
                    _add_texts(digest, column)
                blocks.append(block.without_text())
                advance(len(block))
            parts.append(Part(name, first_row, sum(map(len, blocks)) - first_row, digest.hexdigest()))
    statuses = np.concatenate([block.statuses for block in blocks]) if blocks else np.empty(0, np.uint8)
    hashes = [
        np.concatenate([getattr(block, side) for block in blocks]) if blocks else np.empty(0, np.int64)
        for side in ("source_hashes", "target_hashes")
    ]
    return parts, statuses, hashes
