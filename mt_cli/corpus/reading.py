"""Pairs of sentences from the sources that a config names, cleaned and counted.

A line ends at a line feed, or at a carriage return and line feed, and nowhere else. Nothing is dropped without
being counted, and a side is never dropped without the other.
"""

from __future__ import annotations

import math
import os
import random
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from mt_cli.config import BuiltinSource, CorpusConfig, DatasetSource, FileSource, FilesSource, HeldOut, Source
from mt_cli.corpus.phrasebook import phrasebook_pairs
from mt_cli.corpus.reverse_words import reverse_words_pairs
from mt_cli.errors import CorpusError

Pair = tuple[str, str]

_BUILTINS = {"phrasebook-en-it": phrasebook_pairs, "reverse-words": reverse_words_pairs}


@dataclass(frozen=True)
class Corpus:
    """The pairs that are kept, and how many were dropped for which reason."""

    pairs: list[Pair]
    num_dropped: Counter[str] = field(default_factory=Counter)


def read_corpora(config: CorpusConfig, seed: int) -> dict[str, Corpus]:
    """The corpora `train`, `valid` and, where the config has them, `test` and the extra tests.

    A held-out share depends on `seed` and on the pairs alone.

    Raises:
        CorpusError: if a corpus cannot be read, or holds no pair.
    """
    languages = (config.source, config.target)
    corpora = {"train": read_corpus(config.train, languages, "corpus.train")}
    share = config.valid[0]
    if isinstance(share, HeldOut):
        corpora["train"], corpora["valid"] = _hold_out(corpora["train"], share.fraction, seed)
    else:
        valid = tuple(source for source in config.valid if not isinstance(source, HeldOut))
        corpora["valid"] = read_corpus(valid, languages, "corpus.valid")
    if config.test is not None:
        corpora["test"] = read_corpus(config.test, languages, "corpus.test")
    for name, sources in config.extra_tests.items():
        corpora[name] = read_corpus(sources, languages, f"corpus.extra_tests.{name}")
    return corpora


def read_corpus(sources: Sequence[Source], languages: Pair, key: str) -> Corpus:
    """All pairs of some sources, in order; `key` is the config's key, for messages.

    White space at the ends is removed and runs of it become one space. A pair with an empty side is dropped.

    Raises:
        CorpusError: if a source cannot be read, or no pair is left.
    """
    corpus = Corpus([])
    for source in sources:
        for pair in read_pairs(source, languages):
            clean = (" ".join(pair[0].split()), " ".join(pair[1].split()))
            if reason := _reason_to_drop(clean):
                corpus.num_dropped[reason] += 1
            else:
                corpus.pairs.append(clean)
    if not corpus.pairs:
        dropped = ", ".join(f"{count:,} with {reason}" for reason, count in corpus.num_dropped.items())
        raise CorpusError(f"{key}: the corpus is empty" + (f" ({dropped})" if dropped else ""))
    return corpus


def _reason_to_drop(pair: Pair) -> str | None:
    if not pair[0] and not pair[1]:
        return "both sides empty"
    if not pair[0]:
        return "empty source"
    return None if pair[1] else "empty target"


def _hold_out(corpus: Corpus, fraction: float, seed: int) -> tuple[Corpus, Corpus]:
    """`corpus` without a seeded share of its pairs, and that share."""
    order = list(range(len(corpus.pairs)))
    random.Random(seed).shuffle(order)
    num_held_out = round(fraction * len(order))
    if not 0 < num_held_out < len(order):
        raise CorpusError(f"corpus.valid: a share of {fraction} of {len(order):,} pairs leaves one side empty")
    held_out = set(order[:num_held_out])
    train = [pair for index, pair in enumerate(corpus.pairs) if index not in held_out]
    return Corpus(train, corpus.num_dropped), Corpus([corpus.pairs[index] for index in sorted(held_out)])


def read_pairs(source: Source, languages: Pair) -> Iterable[Pair]:
    """The pairs of one source as they stand there.

    Raises:
        CorpusError: if the source is missing, unreadable, not UTF-8, or misaligned.
    """
    match source:
        case BuiltinSource():
            try:
                return _BUILTINS[source.builtin](source.split)
            except KeyError:
                raise CorpusError(f"builtin {source.builtin}: there is no split {source.split!r}") from None
        case FilesSource():
            return _read_files(Path(source.files[0]), Path(source.files[1]))
        case FileSource():
            return _read_tsv(Path(source.file))
        case DatasetSource():
            return _read_dataset(source, languages)


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file without their ends; a byte order mark at the start is skipped.

    Raises:
        CorpusError: if the file cannot be read or is not UTF-8, with line and byte.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CorpusError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        found = content[error.start]
        raise CorpusError(
            f"{path}, line {line:,}, byte {byte:,}: not UTF-8 (found 0x{found:02X}); convert the file to UTF-8"
        ) from None
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _read_files(source_path: Path, target_path: Path) -> Iterable[Pair]:
    source, target = read_lines(source_path), read_lines(target_path)
    if len(source) != len(target):
        raise CorpusError(
            f"{source_path} has {len(source):,} lines and {target_path} has {len(target):,}: line N of one must "
            f"translate line N of the other; they seem to part near line {_first_misaligned_line(source, target):,}"
        )
    return zip(source, target, strict=True)


def _first_misaligned_line(source: Sequence[str], target: Sequence[str]) -> int:
    """Where lines most likely went missing from the shorter side, counted from 1.

    Lines are compared by length and by what they share (digits, final punctuation). The place is the one that makes
    the pairs before it, taken as they stand, and the pairs after it, taken with the shift, most alike in sum.
    """
    shift = len(source) - len(target)
    shorter, longer = (target, source) if shift > 0 else (source, target)
    num_missing = abs(shift)
    straight = [_unlikeness(a, b) for a, b in zip(shorter, longer, strict=False)]
    shifted = [_unlikeness(a, b) for a, b in zip(shorter, longer[num_missing:], strict=True)]
    cost = best_cost = sum(shifted)
    best = 0
    for position in range(len(shorter)):
        cost += straight[position] - shifted[position]
        if cost < best_cost:
            best, best_cost = position + 1, cost
    return best + 1


def _unlikeness(one: str, other: str) -> float:
    lengths = abs(math.log((len(one) + 1) / (len(other) + 1)))
    digits = [character for character in one if character.isdigit()] != [c for c in other if c.isdigit()]
    return min(lengths, 2.0) + 0.5 * digits + 0.3 * (one[-1:] != other[-1:])


def _read_tsv(path: Path) -> Iterator[Pair]:
    if path.suffix != ".tsv":
        raise CorpusError(f"{path}: unknown kind of file; a corpus in one file is a .tsv")
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise CorpusError(f"{path}, line {number:,}: found {len(columns)} column; write source, tab, target")
        yield columns[0], columns[1]


def _read_dataset(source: DatasetSource, languages: Pair) -> Iterator[Pair]:
    rows = _load_dataset(source)
    names = list(rows.column_names)
    where = f"dataset {source.dataset}"
    if source.columns is None and "translation" in names:
        for number, row in enumerate(rows, start=1):
            translation = row["translation"] or {}
            missing = [language for language in languages if language not in translation]
            if missing:
                raise CorpusError(
                    f"{where}, row {number:,}: no language {missing[0]!r} in `translation`, "
                    f"only {', '.join(map(repr, translation)) or 'nothing'}; see corpus.source and corpus.target"
                )
            yield translation[languages[0]] or "", translation[languages[1]] or ""
        return
    columns = source.columns or languages
    if missing := [column for column in columns if column not in names]:
        raise CorpusError(f"{where}: no column {missing[0]!r} among {', '.join(map(repr, names))}; set `columns`")
    for row in rows:
        yield row[columns[0]] or "", row[columns[1]] or ""


def _can_find_hub() -> bool:
    """Whether the hub's name can be looked up, or a proxy may do that for us."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        return bool(getproxies()) or bool(socket.getaddrinfo(host, 443))
    except OSError:
        return False


def _load_dataset(source: DatasetSource) -> Any:
    path, subset = Path(source.dataset), source.subset
    is_local = path.is_dir()
    if not is_local and not _can_find_hub():
        # Otherwise the hub's client tries for half a minute; what it has cached is still found.
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import datasets

    if is_local and subset and (path / subset).is_dir() and not (path / "README.md").is_file():
        # Without a dataset card, which would declare it, a subset is the folder of its name.
        path, subset = path / subset, None
    try:
        return datasets.load_dataset(str(path) if is_local else source.dataset, subset, split=source.split)
    except Exception as error:
        # The hub's client raises dozens of kinds of exceptions; all of them mean that this corpus is not to be had.
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "" if is_local else "; a hub id needs a network connection, a local folder must exist"
        raise CorpusError(f"dataset {source.dataset}: cannot be loaded: {reason[:300]}{hint}") from error
