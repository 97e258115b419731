"""Pairs with translated sources: lines of a text are translated, filtered, encoded and written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from mt_cli.config.sections import Config
from mt_cli.config.tags import synthetic_tag_of
from mt_cli.corpus.cleaning import KEPT, STATUS_NAMES, clean
from mt_cli.corpus.languages import words_of
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.rows import Pair
from mt_cli.data.encode import EncodedPairs, encode_block
from mt_cli.data.prepare import Data
from mt_cli.errors import RunError, reason
from mt_cli.evaluation.results import Part
from mt_cli.runtime.files import json_text, write_atomically, write_text
from mt_cli.translation.stream import repeats_itself

_EXAMPLES = 5
_COPIED_SHARE, _FEWEST_WORDS = 0.7, 4
"""A text is a copy of another one if this share of its words, if they are so many, is in the other one."""
_LINES_PER_BLOCK = 512
"""Lines that are translated at once: a fixed number, because other batches would round differently."""


Translate = Callable[[Sequence[str]], list[str]]
"""Function that translates some lines, one for one."""


def judged(pairs: Sequence[Pair], config: Config, languages: tuple[str, str]) -> tuple[list[Pair], Counter[str]]:
    """Filter synthetic pairs as pairs of `train`; also drop loops and, with `filters.identical`, near copies.

    Return the kept pairs, and the number of dropped ones by reason.
    """
    if not pairs:
        return [], Counter()
    block = clean([(number, *pair) for number, pair in enumerate(pairs)], config.corpus.filters, languages)
    kept, dropped = list[Pair](), Counter[str]()
    for code, *pair in zip(block.statuses.tolist(), block.source.to_pylist(), block.target.to_pylist(), strict=True):
        source, target = map(str, pair)
        status = STATUS_NAMES[code]
        if code != KEPT:
            dropped["empty" if status.startswith("blank") else status] += 1
        elif repeats_itself(target, source):
            dropped["repeats_itself"] += 1
        elif config.corpus.filters.identical and is_near_copy(source, target):
            dropped["copy"] += 1
        else:
            kept.append((source, target))
    return kept, dropped


def is_near_copy(source: str, target: str) -> bool:
    """True if most words of one side are also in the other one."""
    words = words_of(source)
    return len(words) >= _FEWEST_WORDS and len(words & words_of(target)) >= _COPIED_SHARE * len(words)


def in_blocks_by_length(lines: Sequence[str]) -> Iterator[list[str]]:
    """Lines in blocks of a fixed size, sorted by length, so that a batch has little padding."""
    ordered = sorted(lines, key=len)
    for start in range(0, len(ordered), _LINES_PER_BLOCK):
        yield ordered[start : start + _LINES_PER_BLOCK]


def short_enough(lines: Sequence[str], data: Data, config: Config) -> list[str]:
    """Lines that have at most `max_tokens`, and a token less for the tag of a request."""
    protected = Protection.of(config.corpus.protect).protect_columns([lines])[0]
    lengths = np.maximum(*(tokenizer.encode_flat(protected)[1] for tokenizer in data.tokenizers))
    return [line for line, length in zip(lines, lengths.tolist(), strict=True) if length < config.corpus.max_tokens]


def write_part(path: Path, pairs: Sequence[Pair], part: Part, data: Data, config: Config) -> Part:
    """Encode and write pairs to `path`, and numbers beside it; return `part` with its last numbers and examples.

    The content is a function of the arguments. Raises MtError if a file cannot be written.
    """
    tag, protection = synthetic_tag_of(part.languages[1]), Protection.of(config.corpus.protect)
    columns = [[f"{tag} {source}" for source, _ in pairs], [target for _, target in pairs]]
    batch, is_kept = encode_block(columns, data.tokenizers, config.corpus.max_tokens, protection)
    batch = batch.filter(pa.array(is_kept))
    dropped = Counter(part.dropped) + Counter({"max_tokens": len(pairs) - len(batch)})
    rows = np.random.default_rng(part.number).permutation(len(pairs))[:_EXAMPLES].tolist()
    examples = [pairs[row] for row in rows]
    numbers = {"num_kept": len(batch), "dropped": dict(sorted(dropped.items())), "examples": examples}
    part = part.model_copy(update=numbers)

    def write(temporary: str) -> None:
        with pa.OSFile(temporary, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)

    write_text(path.with_suffix(".json"), json_text(part.model_dump(mode="json")))
    write_atomically(path, write)
    return part


def open_part(path: Path) -> EncodedPairs:
    """Pairs that `write_part` has written; raises RunError if the file is missing or damaged."""
    try:
        return EncodedPairs.open(path)
    except (OSError, ValueError, pa.ArrowException) as error:
        advice = "restore it, or use --fresh to start over (the old run is moved aside)"
        raise RunError(f"{path}: has pairs that the run trains on: {reason(error)}; {advice}") from None


def metrics_of_round(parts: Sequence[Part]) -> dict[str, float]:
    """Row of `metrics.jsonl` on a round, with a value for each text that was translated."""
    metrics: dict[str, float] = {"train/synthetic/round": parts[0].number}
    for part in parts:
        name = "-".join(part.languages)
        values = {"num_lines": part.num_lines, "kept_share": part.kept_share, "round_trip_chrf": part.round_trip_chrf}
        metrics |= {f"train/synthetic/{key}/{name}": value for key, value in values.items() if value is not None}
    return metrics
