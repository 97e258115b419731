"""What `preset: auto` looks at: the facts of a corpus."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from random import Random
from statistics import fmean

from mt_cli.batching.streamed import first_pairs
from mt_cli.config import presets
from mt_cli.config.sections import Config
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.languages import SOUTHEAST_ASIAN, SPACELESS, scripts_in
from mt_cli.corpus.rows import Pair, by_language
from mt_cli.data.prepare import sample
from mt_cli.errors import CorpusError
from mt_cli.evaluation.notes import is_short
from mt_cli.features.orthography.apostrophes import spellings_to_normalize
from mt_cli.features.orthography.letters import letters_to_replace
from mt_cli.machine.devices import pick_device

_PAIRS_EXAMINED = 50_000
_CHARACTERS_EXAMINED = 100_000
_WORDS_COMPARED = 5_000
"""In more text, fewer pairs of words are new (English captions: distinct-2 is 0.66 with 5,000 words, 0.50 with 20,000),
so it is that of as many words for each text."""
_WORD = re.compile(rf"[{SOUTHEAST_ASIAN}]{{1,5}}|[{SPACELESS}]{{1,2}}|[^\s{SPACELESS}]+")
"""A word between spaces; without spaces, two characters, or five of an alphabet, whose vowels may be characters too."""


@dataclass(frozen=True)
class Facts:
    """What `preset: auto` looks at."""

    num_pairs: int | None
    """Training pairs after cleaning; None for a stream."""
    num_target_words: float
    """Words of their target sides, estimated from a sample; infinite for a stream."""
    num_distinct_words: int
    """Different words of both sides of the sample."""
    scripts: tuple[frozenset[str], frozenset[str]]
    """The scripts of each side."""
    device: str
    max_minutes: float | None
    spellings: tuple[str, ...] = ()
    """The values of `tokenizer.normalize` that make mixed spellings equal."""
    diversity: float = 0.0
    """Distinct-2 of 5,000 words of `train`, in sentences drawn at random: different pairs of neighbouring words by all
    of them, in the language where it is smallest (Li et al. 2016, "A Diversity-Promoting Objective Function for Neural
    Conversation Models", who divide by the words). The number of different words depends more on the language. Where
    most words stand alone, it is distinct-1: different words by all of them."""
    num_replayed: int = 0
    """Pairs of the run that training begins with, which are not among `num_pairs`."""
    letters: Mapping[str, str] = field(default_factory=dict)
    """`tokenizer.letters` that makes `train` like the text that it is compared with."""
    length_ratio: float = 1.0
    """Characters of a sentence of `valid` (or `test`) by those of a sentence of `train`: the mean of the languages."""
    algorithm: str = "bpe"
    """`tokenizer.algorithm` if the config, or the run that training begins with, sets it."""
    num_directions: int = 1
    num_language_pairs: int = 1
    """As `num_directions`, but both directions between two languages count once."""
    is_short: bool = False
    """Whether the sentences of a language are too short for BLEU."""
    d_model: int | None = None
    """That of the run that resumes, unless the config sets it, or of the run that training begins with."""

    @property
    def is_diverse(self) -> bool:
        """Whether a word is seldom repeated."""
        return self.diversity >= presets.DIVERSE

    @property
    def minutes(self) -> float | None:
        """The minutes for which training is planned; None: as many as it takes."""
        return self.max_minutes or (presets.CPU_MINUTES * self.num_directions if self.device == "cpu" else None)

    @property
    def words_of_language(self) -> float:
        """Target words of a language pair, on average."""
        return self.num_target_words / self.num_language_pairs

    def __str__(self) -> str:
        if self.num_pairs is None:
            return f"a stream of unknown size, {self.device}"
        distinct = f"{self.num_distinct_words:,} distinct words in both languages"
        index = f"distinct-2 {self.diversity:.2f}, from {presets.DIVERSE:g} on"
        kind = f", diverse text ({index})" if self.is_diverse else ""
        words = f"{rounded(self.num_target_words):,} target words, {distinct}{kind}"
        limit = f", {self.max_minutes:g} minutes" if self.max_minutes else ""
        replayed = f", besides {self.num_replayed:,} replayed pairs" if self.num_replayed else ""
        directions = f", {self.num_directions} directions" if self.num_directions > 1 else ""
        return f"{self.num_pairs:,} pairs, {words}{directions}, {self.device}{limit}{replayed}"


def find_facts(config: Config, corpora: Mapping[str, Corpus], num_own: int | None = None) -> Facts:
    """The facts of the training corpora of a config; raises CorpusError if they hold no pair.

    `num_own` is how many of the corpora of `train` are the run's own; the others are replayed. None: all of them.
    """
    num_pairs: int | None = None
    num_replayed = 0
    pairs: Sequence[Pair]
    if config.corpus.is_streaming:
        pairs = first_pairs(config.corpus, _PAIRS_EXAMINED)
        texts = dict(zip(config.corpus.languages, map(list, zip(*pairs, strict=True)), strict=True)) if pairs else {}
    else:
        whole = corpora["train"]
        own = range(len(whole.parts) if num_own is None else num_own)
        # What both directions share counts once.
        once = [number for number in config.corpus.once("train") if number in own] or own
        train = whole.of_parts(once)
        num_pairs, num_replayed = len(train), len(whole) - len(whole.of_parts(own))
        mask = sample(train, _PAIRS_EXAMINED, config.training.seed)
        found = train.untagged_pairs(config.corpus.languages_of("train"), config.corpus.tags, mask)
        pairs, texts = [pair for _, pair in found], by_language(found)
    if not pairs:
        raise CorpusError("corpus.train: the corpus is empty, or every pair of it is dropped")
    directions = set(config.corpus.languages_of("train")[:num_own])
    sides = tuple(zip(*pairs, strict=True))
    others = _evaluated(config, corpora)
    both = {language: (own, others.get(language, [])) for language, own in texts.items()}
    words = [_WORD.findall(" ".join(side)) for side in sides]
    return Facts(
        num_pairs,
        inf if num_pairs is None else len(words[1]) * num_pairs / len(pairs),
        len({word for side in words for word in side}),
        (_scripts(sides[0]), _scripts(sides[1])),
        "cpu" if pick_device(config.training.device).type == "cpu" else "gpu",
        config.training.max_minutes,
        tuple(spellings_to_normalize([*both.values()])),
        min(map(_diversity, texts.values())),
        num_replayed,
        letters_to_replace([*both.values()]),
        fmean(_mean_length(other) / _mean_length(own) if other else 1.0 for own, other in both.values()),
        config.tokenizer.algorithm if "algorithm" in config.tokenizer.model_fields_set else "bpe",
        len(directions),
        len({frozenset(each) for each in directions}),
        is_short=any(is_short(own) for own in texts.values()),
    )


def _evaluated(config: Config, corpora: Mapping[str, Corpus]) -> Mapping[str, list[str]]:
    """The texts of `valid` or, if that is held out, `test`, by language; what both directions share counts once."""
    name = config.corpus.compared or "valid"
    corpus = corpora[name].of_parts(config.corpus.once(name))
    return by_language(corpus.untagged_pairs(config.corpus.languages_of(name), config.corpus.tags))


def _diversity(texts: Sequence[str]) -> float:
    words, pairs = list[str](), list[tuple[str, str]]()
    for text in Random(0).sample(texts, len(texts)):
        found = _WORD.findall(text)
        words += found
        pairs += pairwise(found)
        if len(words) >= _WORDS_COMPARED:
            break
    if 2 * len(pairs) < len(words):  # Entries of a dictionary.
        return len(set(words)) / len(words)
    return len(set(pairs)) / max(1, len(pairs))


def _mean_length(texts: Sequence[str]) -> float:
    return max(1.0, fmean(map(len, texts)))


def _scripts(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(scripts_in(" ".join(texts)[:_CHARACTERS_EXAMINED]))


def rounded(number: float) -> int:
    """A number with two significant digits."""
    return int(float(f"{number:.1e}"))
