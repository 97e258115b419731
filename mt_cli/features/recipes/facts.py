"""Facts about a corpus on which the choices of `preset: auto` depend: size, scripts, diversity, spellings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from random import Random
from statistics import fmean

from mt_cli.batching.streamed import first_pairs
from mt_cli.config.presets import DATA
from mt_cli.config.sections import Config
from mt_cli.corpus.augmented_text import is_in_capitals
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.languages import SOUTHEAST_ASIAN, SPACELESS, scripts_in
from mt_cli.corpus.rows import Pair, by_language
from mt_cli.data.prepare import sample
from mt_cli.errors import CorpusError
from mt_cli.evaluation.notes import is_short
from mt_cli.features.exchange.destinations import Obstacle
from mt_cli.features.orthography.spellings import letters_to_replace, spellings_to_normalize
from mt_cli.machine.devices import pick_device

_PAIRS_EXAMINED = 50_000
_CHARACTERS_EXAMINED = 100_000
_WORDS_COMPARED = 5_000
"""Number of words of each text on which distinct-2 is measured. It falls with the number of words (English captions:
0.66 with 5,000 words, 0.50 with 20,000)."""
_WORD = re.compile(rf"[{SOUTHEAST_ASIAN}]{{1,5}}|[{SPACELESS}]{{1,2}}|[^\s{SPACELESS}]+")
"""A word between spaces; in scripts without spaces, two characters, or five in Southeast Asian scripts, where vowels
may be characters too."""


@dataclass(frozen=True)
class Facts:
    """Facts of the training text, the device and the time."""

    num_pairs: int | None
    """Training pairs after cleaning; None for a stream."""
    num_target_words: float
    """Words on the target sides of all training pairs, estimated from a sample; infinite for a stream."""
    num_distinct_words: int
    """Different words of both sides of the sample."""
    scripts: tuple[frozenset[str], frozenset[str]]
    """Scripts of each side."""
    device: str
    """`cpu` or `gpu`."""
    max_minutes: float | None
    spellings: tuple[str, ...] = ()
    """Values of `tokenizer.normalize` that make mixed spellings equal."""
    diversity: float = 0.0
    """Distinct-2 of the less diverse language (Li et al. 2016, "A Diversity-Promoting Objective Function for Neural
    Conversation Models"): number of distinct pairs of neighbouring words divided by all such pairs, in 5,000 words of
    `train`."""
    num_replayed: int = 0
    """Pairs of the parent, which are not among `num_pairs`."""
    letters: Mapping[str, str] = field(default_factory=dict)
    """Value of `tokenizer.letters` that makes `train` like the text for evaluation."""
    length_ratio: float = 1.0
    """Length of sentences of `valid` (or `test`) divided by that of `train`, in characters; mean over languages."""
    algorithm: str = "bpe"
    """Value of `tokenizer.algorithm` that the config, or the parent, sets."""
    num_directions: int = 1
    num_language_pairs: int = 1
    """Number of pairs of languages; both directions between two languages count once."""
    is_in_capitals: bool = False
    """Whether at least half of the source texts are in capitals."""
    is_short: bool = False
    """Whether the sentences of a language are too short for BLEU."""
    d_model: int | None = None
    """Width of a run that resumes, unless the config sets it, or of the parent."""
    destination: str = ""
    """Program that the model is for."""
    obstacles: tuple[Obstacle, ...] = ()
    """Values that this program cannot hold, and the values to choose instead."""

    @property
    def is_diverse(self) -> bool:
        """Whether a word is seldom repeated."""
        return self.diversity >= float(DATA["diverse_from"])

    @property
    def minutes(self) -> float | None:
        """Minutes for which training is planned; None means no limit."""
        return self.max_minutes or (DATA["cpu_minutes"] * self.num_directions if self.device == "cpu" else None)

    def __str__(self) -> str:
        if self.num_pairs is None:
            return f"a stream of unknown size, {self.device}"
        distinct = f"{self.num_distinct_words:,} distinct words in both languages"
        index = f"distinct-2 {self.diversity:.2f}, from {DATA['diverse_from']:g} on"
        kind = f", diverse text ({index})" if self.is_diverse else ""
        words = f"{rounded(self.num_target_words):,} target words, {distinct}{kind}"
        limit = f", {self.max_minutes:g} minutes" if self.max_minutes else ""
        replayed = f", besides {self.num_replayed:,} replayed pairs" if self.num_replayed else ""
        directions = f", {self.num_directions} directions" if self.num_directions > 1 else ""
        return f"{self.num_pairs:,} pairs, {words}{directions}, {self.device}{limit}{replayed}"


def find_facts(config: Config, corpora: Mapping[str, Corpus], num_corpora: int | None = None) -> Facts:
    """Facts of the training corpora of a config; raises CorpusError if they hold no pair.

    The first `num_corpora` corpora of `train` are examined, and the others are replayed. None: all are examined.
    """
    num_pairs, num_replayed, pairs, texts = _examined(config, corpora, num_corpora)
    if not pairs:
        raise CorpusError("corpus.train: the corpus is empty, or every pair of it is dropped")
    directions = set(config.corpus.languages_of("train")[:num_corpora])
    sides = tuple(zip(*pairs, strict=True))
    name = config.corpus.compared or "valid"
    evaluation = corpora[name].of_parts(config.corpus.once(name))  # Text that both directions share counts once.
    evaluated = by_language(evaluation.untagged_pairs(config.corpus.languages_of(name), config.corpus.tags))
    compared = [(train, evaluated.get(language, [])) for language, train in texts.items()]
    words = [_WORD.findall(" ".join(side)) for side in sides]
    scripts = [frozenset(scripts_in(" ".join(side)[:_CHARACTERS_EXAMINED])) for side in sides]
    return Facts(
        num_pairs=num_pairs,
        num_target_words=inf if num_pairs is None else len(words[1]) * num_pairs / len(pairs),
        num_distinct_words=len({word for side in words for word in side}),
        scripts=(scripts[0], scripts[1]),
        device="cpu" if pick_device(config.training.device).type == "cpu" else "gpu",
        max_minutes=config.training.max_minutes,
        spellings=tuple(spellings_to_normalize(compared)),
        diversity=min(map(_diversity, texts.values())),
        num_replayed=num_replayed,
        letters=letters_to_replace(compared),
        length_ratio=fmean(_mean_length(valid) / _mean_length(train) if valid else 1.0 for train, valid in compared),
        algorithm=config.tokenizer.algorithm if "algorithm" in config.tokenizer.model_fields_set else "bpe",
        num_directions=len(directions),
        num_language_pairs=len({frozenset(direction) for direction in directions}),
        is_in_capitals=2 * sum(map(is_in_capitals, sides[0])) >= len(sides[0]),
        is_short=any(map(is_short, texts.values())),
    )


def _examined(
    config: Config, corpora: Mapping[str, Corpus], num_corpora: int | None
) -> tuple[int | None, int, Sequence[Pair], Mapping[str, list[str]]]:
    """Number of pairs and of replayed pairs, a sample of the pairs, and its texts by language."""
    corpus = config.corpus
    if corpus.is_streaming:
        pairs = first_pairs(corpus, _PAIRS_EXAMINED)
        texts = dict(zip(corpus.languages, map(list, zip(*pairs, strict=True)), strict=True)) if pairs else {}
        return None, 0, pairs, texts
    whole = corpora["train"]
    examined = range(len(whole.parts) if num_corpora is None else num_corpora)
    train = whole.of_parts([number for number in corpus.once("train") if number in examined] or examined)
    mask = sample(train, _PAIRS_EXAMINED, config.training.seed)
    untagged = train.untagged_pairs(corpus.languages_of("train"), corpus.tags, mask)
    num_replayed = len(whole) - len(whole.of_parts(examined))
    return len(train), num_replayed, [pair for _, pair in untagged], by_language(untagged)


def _diversity(texts: Sequence[str]) -> float:
    """Distinct-2 of sentences in random order; distinct-1 where most words stand alone, as in a dictionary."""
    words, pairs = list[str](), list[tuple[str, str]]()
    for text in Random(0).sample(texts, len(texts)):
        sentence = _WORD.findall(text)
        words += sentence
        pairs += pairwise(sentence)
        if len(words) >= _WORDS_COMPARED:
            break
    if 2 * len(pairs) < len(words):
        return len(set(words)) / len(words)
    return len(set(pairs)) / max(1, len(pairs))


def _mean_length(texts: Sequence[str]) -> float:
    return max(1.0, fmean(map(len, texts)))


def rounded(number: float) -> int:
    """Number with two significant digits."""
    return int(float(f"{number:.1e}"))
