"""Notes of `mt data check --terms`: training pairs that contradict a glossary."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from mt_cli.config.sections import Config
from mt_cli.corpus.glossary import Glossary, term_uses
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.rows import untagged
from mt_cli.corpus.source_rows import places_in
from mt_cli.data.prepare import Data, sample
from mt_cli.runtime.console import listed

_PAIRS_EXAMINED = 200_000
_TERMS_NAMED, _PLACES_NAMED = 10, 3


def notes_on_terms(data: Data, config: Config, glossary: Glossary) -> Iterator[str]:
    """Note how often sources of a sample of `train` have a term and targets another translation, with places.

    Only pairs in the main direction are examined.
    """
    corpus = data.corpora["train"]
    mask = sample(corpus, _PAIRS_EXAMINED, config.training.seed)
    for part in corpus.parts:
        mask[part.span] &= part.languages == config.corpus.languages
    protection = Protection.of(config.corpus)
    counts, places = Counter[tuple[str, str]](), defaultdict[tuple[str, str], list[tuple[str, int]]](list)
    for part, (number, source, target) in corpus.rows_of_parts(mask):
        found = glossary.find(protection.protect(untagged(source, config.corpus.tags)).text)
        for (_, _, term), use in zip(found, term_uses(found, target), strict=True):
            key = term.source, term.targets[0]
            counts[key] += 1
            if use.status == "missing":
                places[key].append((part.name, number))
    missing = sum(map(len, places.values()))
    yield (
        f"terms of the glossary are {counts.total():,} times in {int(mask.sum()):,} pairs of train; {missing:,} times, "
        "the target has another translation"
    )
    worst = sorted(places, key=lambda key: -len(places[key]))[:_TERMS_NAMED]
    named = places_in(config.corpus, "train", [row for key in worst for row in places[key][:_PLACES_NAMED]])
    for key in worst:
        shown = [f"{origin} {named[origin, number]}" for origin, number in places[key][:_PLACES_NAMED]]
        yield (
            f"`{key[0]}` is not `{key[1]}` in {len(places[key]):,} of {counts[key]:,} places: "
            f"{listed(shown, _PLACES_NAMED, len(places[key]))}"
        )
    if len(places) > len(worst):
        yield f"so are {len(places) - len(worst):,} more terms"
