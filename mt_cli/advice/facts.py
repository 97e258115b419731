"""Facts about a corpus on which the choices of `mt init` depend: size, scripts, diversity, spellings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from statistics import fmean

import regex

from mt_cli.advice.spellings import letters_to_replace, spellings_to_normalize
from mt_cli.config.presets import DATA
from mt_cli.config.sections import Config
from mt_cli.corpus.augmented_text import is_in_capitals
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.languages import SOUTHEAST_ASIAN, SPACELESS, scripts_in
from mt_cli.corpus.rows import by_language
from mt_cli.data.prepare import sample
from mt_cli.errors import CorpusError
from mt_cli.exchange.destinations import Obstacle
from mt_cli.runtime.devices import pick_device

_PAIRS_EXAMINED = 50_000
_CHARACTERS_EXAMINED = 100_000
_WORDS_COMPARED = 5_000
"""Number of words of each text on which distinct-2 is measured. It falls with the number of words (English captions:
0.66 with 5,000 words, 0.50 with 20,000)."""
_WORD = re.compile(rf"[{SOUTHEAST_ASIAN}]{{1,5}}|[{SPACELESS}]{{1,2}}|[^\s{SPACELESS}]+")
"""A word between spaces; in scripts without spaces, two characters, or five in Southeast Asian scripts, where vowels
may be characters too."""
_TOKEN, _LONGEST_NGRAM = regex.compile(r"\w+|[^\w\s]"), 4


@dataclass(frozen=True)
class Facts:
    """Facts of the training text and the device."""

    num_pairs: int
    """Training pairs after cleaning, counted once if the model learns both directions."""
    num_target_words: float
    """Words on the target sides of all training pairs, estimated from a sample."""
    num_distinct_words: int
    """Different words of both sides of the sample."""
    scripts: tuple[frozenset[str], frozenset[str]]
    device: str
    """`cpu` or `gpu`."""
    spellings: tuple[str, ...] = ()
    """Values of `tokenizer.normalize` that make mixed spellings equal."""
    diversity: float = 0.0
    """Distinct-2 of the less diverse language (Li et al. 2016, "A Diversity-Promoting Objective Function for Neural
    Conversation Models"): number of distinct pairs of neighbouring words divided by all such pairs, in 5,000 words of
    `train`."""
    letters: Mapping[str, str] = field(default_factory=dict)
    """Value of `tokenizer.letters` that makes `train` like the text for evaluation."""
    length_ratio: float = 1.0
    """Length of sentences of `valid` (or `test`) divided by that of `train`, in characters; mean over languages."""
    algorithm: str = "bpe"
    """Value of `tokenizer.algorithm` of the parent."""
    is_in_capitals: bool = False
    """True if at least half of the source texts are in capitals."""
    is_short: bool = False
    """True if the sentences of a language are too short for BLEU."""
    num_directions: float = 1.0
    """Times that the model learns each pair: 2 in both directions, 1.5 if the reverse one only translates texts."""
    d_model: int | None = None
    """Width of the parent."""
    destination: str = ""
    """Program that the model is for."""
    obstacles: tuple[Obstacle, ...] = ()
    """Values that this program cannot hold, and the values to choose instead."""

    @property
    def is_diverse(self) -> bool:
        """True if a word is seldom repeated."""
        return self.diversity >= float(DATA["diverse_from"])

    def __str__(self) -> str:
        distinct = f"{self.num_distinct_words:,} distinct words in both languages"
        index = f"distinct-2 {self.diversity:.2f}, from {DATA['diverse_from']:g} on"
        kind = f", diverse text ({index})" if self.is_diverse else ""
        words = f"{float(f'{self.num_target_words:.1e}'):,.0f} target words, {distinct}{kind}"
        directions = " in both directions" if self.num_directions > 1 else ""
        return f"{self.num_pairs:,} pairs{directions}, {words}, {self.device}"


def find_facts(config: Config, corpora: Mapping[str, Corpus]) -> Facts:
    """Facts of the training corpus of a config; raises CorpusError if it holds no pair."""
    once, weights = config.corpus.once("train"), config.corpus.weights
    train = corpora["train"].of_parts(once)
    mask = sample(train, _PAIRS_EXAMINED, config.training.seed)
    untagged = train.untagged_pairs(mask)
    if not untagged:
        raise CorpusError("corpus.train: the corpus is empty, or every pair of it is dropped")
    texts = by_language(untagged)
    sides = tuple(zip(*(pair for _, pair in untagged), strict=True))
    name = config.corpus.compared or "valid"
    evaluated = by_language(corpora[name].untagged_pairs())
    compared = [(trained, evaluated.get(language, [])) for language, trained in texts.items()]
    words = [_WORD.findall(" ".join(side)) for side in sides]
    scripts = [frozenset(scripts_in(" ".join(side)[:_CHARACTERS_EXAMINED])) for side in sides]
    return Facts(
        num_pairs=len(train),
        num_target_words=len(words[1]) * len(train) / len(untagged),
        num_distinct_words=len({word for side in words for word in side}),
        scripts=(scripts[0], scripts[1]),
        device="cpu" if pick_device(config.training.device).type == "cpu" else "gpu",
        spellings=tuple(spellings_to_normalize(compared)),
        diversity=min(map(_diversity, texts.values())),
        letters=letters_to_replace(compared),
        length_ratio=fmean(
            _mean_length(valid) / _mean_length(trained) if valid else 1.0 for trained, valid in compared
        ),
        algorithm=config.tokenizer.algorithm if "algorithm" in config.tokenizer.model_fields_set else "bpe",
        is_in_capitals=2 * sum(map(is_in_capitals, sides[0])) >= len(sides[0]),
        is_short=any(map(_is_short, texts.values())),
        num_directions=sum(weights) / sum(weights[number] for number in once),
    )


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


def _is_short(texts: Sequence[str]) -> bool:
    """True if most texts have fewer than four words and punctuation marks."""
    return 2 * sum(len(_TOKEN.findall(text)) < _LONGEST_NGRAM for text in texts) > len(texts)
