"""Notes on corpora whose text is clearly in another language than the config says, by `py3langid`.

Stretches in one of the languages with known common words are problems, which `problems.py` finds and `mt train` reports
too. Here is what only this package knows, so `mt train` does not depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mt_cli.config.sections import Config
from mt_cli.corpus.corpus import Corpus, SourceRows
from mt_cli.corpus.recognition import other_language_of_texts
from mt_cli.corpus.rows import Row, untagged
from mt_cli.data.prepare import Data
from mt_cli.features.data_check.problems import Problem

_ROWS_EXAMINED = 200


def notes_on_languages(data: Data, config: Config, problems: Sequence[Problem]) -> Iterator[str]:
    """A note on each side of a source that looks like another language, unless a problem is reported there."""
    with_problems = {(problem.corpus, problem.part) for problem in problems if problem.kind == "stretch"}
    own = {name: corpus for name, corpus in data.corpora.items() if name in config.corpus.groups}  # Not held out.
    for name, corpus in own.items():
        for part, languages in zip(corpus.parts, config.corpus.languages_of(name), strict=False):
            if (name, part.name) in with_problems:
                continue
            rows = _sample(corpus, part)
            sides = [[untagged(row[1], config.corpus.tags) for row in rows], [row[2] for row in rows]]
            for side, texts, language in zip(("source", "target"), sides, languages, strict=True):
                if other := other_language_of_texts(texts, language):
                    yield f"the {side} of {name}, {part.name}, looks like {other}, not {language}; check it"


def _sample(corpus: Corpus, part: SourceRows) -> list[Row]:
    """Rows of a part, evenly spread."""
    mask = np.zeros(len(corpus.statuses), dtype=bool)
    count = min(part.num_rows, _ROWS_EXAMINED)
    mask[part.first_row + np.linspace(0, part.num_rows - 1, count).astype(np.int64)] = True
    return list(corpus.rows(mask))
