"""Notes on evaluation pairs that are in `train` in another spelling than that which the tokenizer makes equal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mt_cli.config.sections import Config
from mt_cli.corpus.identity import pair_hashes
from mt_cli.corpus.rows import untagged
from mt_cli.data.prepare import Data, training_pair_hashes

_FEWEST, _MIN_SHARE = 3, 0.01
_NUM_EXAMPLES = 2


def notes_on_leaks(data: Data, config: Config) -> Iterator[str]:
    """A note for each evaluation set of which `train` keeps pairs that differ in case, punctuation or form of letters.

    With `corpus.filters.overlap: false`, equal pairs count, too.
    """
    trained = training_pair_hashes(data, config)
    for name, corpus in data.corpora.items():
        if name == "train" or trained is None:
            continue
        pairs, tags = corpus.pairs, config.corpus.tags
        rows = np.flatnonzero(np.isin(pair_hashes(pairs, tags), trained))
        if len(rows) >= max(_FEWEST, _MIN_SHARE * len(pairs)):
            examples = " · ".join(untagged(pairs[row][0], tags) for row in rows[:_NUM_EXAMPLES])
            yield (
                f"{len(rows):,} of the {len(pairs):,} pairs of {name} are kept in train, too, apart from case, "
                f"punctuation or the form of letters, so scores on {name} are too high; as in {examples}"
            )
