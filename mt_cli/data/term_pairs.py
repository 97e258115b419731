"""Pairs whose sources have annotated terms: words that are annotated with their translations in the target.

The translations are those of a lexicon of the training text. Glossaries play no part, so that any of them can be used
with the model; see `term_marks`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import regex

from mt_cli.corpus.rows import Pair
from mt_cli.corpus.term_marks import annotated
from mt_cli.corpus.word_forms import WORD, folded, shared_beginning
from mt_cli.data.lexicon import Lexicon

TERM_SHARE = 0.5
"""Share of the pairs that get terms, if the lexicon has words of them."""
_MOST_TERMS, _MOST_WORDS = 3, 3
"""Maximum number of terms of a pair, and of words of a term."""
_SHARE_JOINED = 0.5
"""Share of the terms to which the next word is added, if its translation is beside theirs."""
_SHARE_REPLACED, _SHARE_MADE_UP = 0.5, 0.5
"""Share of the terms whose translation is another word of the lexicon, in the annotation and, with the ending that the
sentence needs, in the target, so that a model must read and inflect it; and share of these that begin like one word and
end like another, so that it must spell it."""
_Words = Sequence["regex.Match[str]"]


class _Link(NamedTuple):
    """Translation of a word in a target."""

    place: int
    base: str
    weight: float
    """Rare words weigh more."""


def with_terms(pair: Pair, lexicon: Lexicon, random: np.random.Generator) -> Pair:
    """Pair with up to three annotated terms, unchanged if it has no words of the lexicon."""
    sides = [[*WORD.finditer(text)] for text in pair]
    links = _links(sides[0], sides[1], lexicon)
    annotations, target = list[tuple[int, int, str]](), pair[1]
    for words in sorted(_chosen(links, random), key=lambda words: -min(links[word].place for word in words)):
        bases = dict(sorted((links[word].place, links[word].base) for word in words))
        spans = [sides[1][index].span() for index in bases]
        (first, _), (_, last) = spans[0], spans[-1]
        if random.random() < _SHARE_REPLACED:
            translation = _other_word(lexicon, random)
            (base, *others), form = bases.values(), target[first:last]
            changed = translation if others else _in_form(translation, base, form)
            is_capital = first == 0 and target[0].isupper()
            target = target[:first] + (changed[0].upper() + changed[1:] if is_capital else changed) + target[last:]
        else:
            gaps = ["", *(pair[1][end:start] for (_, end), (start, _) in pairwise(spans))]
            translation = "".join(gap + base for gap, base in zip(gaps, bases.values(), strict=True))
        annotations.append((sides[0][words.start].start(), sides[0][words[-1]].end(), translation))
    return annotated(pair[0], sorted(annotations)).text, target


def _links(source: _Words, target: _Words, lexicon: Lexicon) -> dict[int, _Link]:
    """Translations in the target by the index of the source word; neither of them occurs twice."""
    keys = [[folded(match[0]) for match in words] for words in (source, target)]
    counts = [*map(Counter, keys)]
    places = {key: index for index, key in enumerate(keys[1]) if counts[1][key] == 1}
    links = dict[int, _Link]()
    for index, key in enumerate(keys[0]):
        bases = lexicon.bases.get(key, {}) if counts[0][key] == 1 else {}
        if (translation := next((word for word in bases if word in places), None)) is not None:
            links[index] = _Link(places[translation], bases[translation], lexicon.counts[key] ** -0.5)
    return links


def _chosen(links: Mapping[int, _Link], random: np.random.Generator) -> list[range]:
    """Indices of the words of each term; neither terms nor their translations overlap."""
    weights = np.array([link.weight for link in links.values()])
    order = np.array([*links])[(random.exponential(size=len(links)) / weights).argsort()].tolist()
    number, terms, taken = int(random.integers(1, _MOST_TERMS + 1)), list[range](), set[int]()
    for first in order:
        words, indices = range(first, first + 1), {links[first].place}
        while len(words) < _MOST_WORDS and words.stop in links and random.random() < _SHARE_JOINED:
            index = links[words.stop].place
            if not {index - 1, index, index + 1} & indices:
                break
            words, indices = range(first, words.stop + 1), indices | {index}
        is_free = not any(words.start < term.stop and term.start < words.stop for term in terms)
        if len(terms) < number and is_free and not indices & taken:
            terms.append(words)
            taken |= indices
    return terms


def _in_form(word: str, base: str, form: str) -> str:
    """A word with the ending that makes `form` of `base`: `Tische` for `Tisch`, `Hund` and `Hunde`."""
    shared = shared_beginning(base.casefold(), form.casefold())
    before, after = base[shared:], form[shared:]
    if not shared or len(before) >= len(word) or not word.endswith(before):
        return word
    return word.removesuffix(before) + after


def _other_word(lexicon: Lexicon, random: np.random.Generator) -> str:
    first, last = (str(lexicon.targets[index]) for index in random.integers(len(lexicon.targets), size=2))
    return first[: len(first) // 2 + 1] + last[len(last) // 2 :] if random.random() < _SHARE_MADE_UP else first
