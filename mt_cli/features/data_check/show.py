"""Pairs of corpora for `mt data show`, and the clean pairs as a file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.batching.encoded import SIDES
from mt_cli.config.sections import Config
from mt_cli.corpus.cleaning import HELD_OUT, KEPT, STATUS_CODES, STATUS_NAMES
from mt_cli.corpus.rows import untagged
from mt_cli.corpus.sources import places_in
from mt_cli.data.prepare import Data
from mt_cli.errors import InputError
from mt_cli.features.data_check.findings import shorten
from mt_cli.features.training_pairs import training_pairs
from mt_cli.machine.storage import refusal

_FILTERS = STATUS_NAMES[HELD_OUT + 1 :]


def shown_pairs(data: Data, config: Config, name: str, number: int, dropped: str | None) -> list[str]:
    """Lines that show pairs of a corpus, evenly spread, as the model sees them; or pairs with the status `dropped`.

    With `any` there are, where possible, equally many pairs of each filter. Raises InputError if the corpus or the
    status does not exist.
    """
    if name not in data.corpora:
        raise InputError(f"--split {name}: this config has no such corpus, only {', '.join(data.corpora)}")
    if dropped is not None and dropped not in (*_FILTERS, "any"):
        raise InputError(f"--dropped {dropped}: unknown filter; use any or one of {', '.join(_FILTERS)}")
    corpus, statuses = data.corpora[name], data.statuses(name)
    if dropped == "any":
        codes = [code for code in np.unique(statuses) if code > HELD_OUT]
    else:
        codes = [STATUS_CODES[dropped] if dropped else corpus.code]
    mask = _evenly_spread(statuses, codes, number)
    shown = [
        (corpus.part_of(int(row)), *pair) for row, pair in zip(np.flatnonzero(mask), corpus.rows(mask), strict=True)
    ]
    places = places_in(config.corpus, name, [(part.name, line) for part, line, _, _ in shown])
    lines = []
    for row, (part, line, *sides) in zip(np.flatnonzero(mask), shown, strict=True):
        status = f", dropped: {STATUS_NAMES[statuses[row]]}" if dropped else ""
        lines.append(f"{part.name}, {places[part.name, line]}{status}")
        for label, text, tokenizer in zip(SIDES, sides, data.tokenizers, strict=True):
            lines += _shown_side(label, text, tokenizer.pieces(text))
    return lines


def pairs_of_epoch(data: Data, config: Config, epoch: int, number: int) -> list[str]:
    """Lines that show the first pairs of an epoch of training, from epoch 1, in the order in which they are batched.

    Segmentations are sampled and pairs are changed as the options of the config say. Raises InputError if the size of a
    batch, on which this depends, is not known before training.
    """
    if config.training.batch_tokens == "auto":
        raise InputError("--epoch: training.batch_tokens is auto, which is found when training begins; give a number")
    lines, pools = [], training_pairs(data, config).pools(epoch - 1, 0)
    in_order = (pairs[int(row)] for pairs, order in pools for row in order)
    for place, sides in enumerate(islice(in_order, number), start=1):
        lines.append(f"epoch {epoch}, pair {place}")
        for label, ids, tokenizer in zip(SIDES, sides, data.tokenizers, strict=True):
            [text] = tokenizer.decode([[int(index) for index in ids]])
            lines += _shown_side(label, text, tokenizer.tokens(ids))
    return lines


def _shown_side(label: str, text: str, tokens: Sequence[str]) -> list[str]:
    return [f"  {label}  {shorten(text, 2_000)}", f"  tokens  {shorten(' '.join(tokens), 4_000)}"]


def _evenly_spread(statuses: NDArray[np.uint8], codes: Sequence[int], number: int) -> NDArray[np.bool_]:
    """Mask of at most `number` rows, with nearly as many rows of each status, as far as there are enough."""
    mask = np.zeros(len(statuses), dtype=bool)
    rows_of_codes = sorted((np.flatnonzero(statuses == code) for code in codes), key=len)
    for index, rows in enumerate(rows_of_codes):
        share = min(-(-number // (len(rows_of_codes) - index)), len(rows))
        mask[rows[np.linspace(0, len(rows) - 1, share).astype(np.int64)]] = True
        number -= share
    return mask


def write_clean(data: Data, config: Config, path: Path) -> int:
    """Write the training pairs without tags as a new TSV file; return their number.

    Raises InputError if the file exists or cannot be made, MtError if there is no room for it.
    """
    is_kept = data.statuses("train") == KEPT
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            for _, source, target in data.corpora["train"].rows(is_kept):
                file.write(f"{untagged(source, config.corpus.tags)}\t{target}\n")
    except OSError as error:
        raise refusal(path, error) from None
    return int(is_kept.sum())
