"""Stretches of `train` in another orthography than `valid`, found by their letters. Knows no language."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import log2

from mt_cli.config.sections import Config
from mt_cli.corpus.languages import writes_spaces
from mt_cli.run.data import Data, sample
from mt_cli.tokenizer.special import untagged

_ROWS_EXAMINED = 200_000
_ROWS_PER_BLOCK = 250
_MIN_LETTERS = 2_000
_UNLIKE = 0.1
"""Divergence in bits. Text of one orthography has at most 0.05, if other sources write other accents; a dictionary of
Shipibo in the orthography of the missions has 0.18 to 0.19 from today's."""
_NUM_SHOWN = 3

Shares = Mapping[str, float]
"""The share of each letter, 0 to 1."""


@dataclass(frozen=True)
class Stretch:
    """Rows that are spelled otherwise than the validation text."""

    first: int
    last: int
    letters: tuple[tuple[str, float, float], ...]
    """Those that differ most, with their shares here and in the validation text."""


def divergence(one: Shares, other: Shares) -> float:
    """Jensen-Shannon divergence of two distributions in bits, 0 to 1 (Lin 1991, equation 3.8)."""
    total = 0.0
    for letter in one.keys() | other.keys():
        mean = (one.get(letter, 0) + other.get(letter, 0)) / 2
        total += sum(share * log2(share / mean) / 2 for share in (one.get(letter, 0), other.get(letter, 0)) if share)
    return total


def stretches(rows: Sequence[tuple[int, str]], valid: Sequence[str]) -> list[Stretch]:
    """The stretches of numbered texts, in blocks of 250 or more, whose letters are unlike those of `valid`."""
    letters_of_valid = _letters(valid)
    if letters_of_valid.total() < _MIN_LETTERS:
        return []
    expected, num_blocks = _shares(letters_of_valid), max(1, len(rows) // _ROWS_PER_BLOCK)
    ends = [*(_ROWS_PER_BLOCK * block for block in range(1, num_blocks)), len(rows)]
    blocks = [rows[start:end] for start, end in pairwise([0, *ends])]
    counts = [_letters([text for _, text in block]) for block in blocks]
    is_unlike = [each.total() >= _MIN_LETTERS and divergence(_shares(each), expected) >= _UNLIKE for each in counts]
    found = []
    for unlike, numbers in groupby(range(num_blocks), key=is_unlike.__getitem__):
        if unlike:
            own = list(numbers)
            letters = _most_different(_shares(sum((counts[number] for number in own), Counter())), expected)
            found.append(Stretch(blocks[own[0]][0][0], blocks[own[-1]][-1][0], letters))
    return found


def notes_on_spelling(data: Data, config: Config, valid: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Notes on stretches of `train` in another orthography than the texts of `valid` by language."""
    train = data.corpora["train"]
    languages = config.corpus.languages_of("train")
    for number in config.corpus.once("train"):
        part, own = train.parts[number], languages[number]
        whole = train.of_parts([number])
        rows = list(whole.rows(sample(whole, _ROWS_EXAMINED, config.training.seed)))
        for side, language in enumerate(own, 1):
            if language not in valid or not writes_spaces(language):
                continue
            texts = [(row[0], untagged(str(row[side]), config.corpus.tags)) for row in rows]
            for found in stretches(texts, valid[language]):
                shown = ", ".join(
                    f"{letter} {here:.1%} instead of {there:.1%}" for letter, here, there in found.letters
                )
                yield (
                    f"{part.name}, about lines {found.first:,} to {found.last:,}, have letters in {language} that are "
                    f"unlike those of valid ({shown}): another orthography or language? In a file of their own they "
                    "could be left out, or have a tag or a weight (docs/languages.md)"
                )


def _letters(texts: Sequence[str]) -> Counter[str]:
    return Counter(character for text in texts for character in text.lower() if character.isalpha())


def _shares(counts: Counter[str]) -> Shares:
    return {letter: count / counts.total() for letter, count in counts.items()}


def _most_different(here: Shares, there: Shares) -> tuple[tuple[str, float, float], ...]:
    letters = sorted(here.keys() | there.keys(), key=lambda each: -abs(here.get(each, 0) - there.get(each, 0)))
    return tuple((letter, here.get(letter, 0), there.get(letter, 0)) for letter in letters[:_NUM_SHOWN])
