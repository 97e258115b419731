"""Training of tokenizers on text, with limits on the number of single characters and bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import tokenizers
from tokenizers import normalizers

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import WITHOUT_SUBWORDS, Config, TokenizerConfig
from mt_cli.corpus.protected_text import RESERVED
from mt_cli.corpus.rows import untagged
from mt_cli.corpus.term_marks import TERM_MARKS
from mt_cli.errors import ConfigError
from mt_cli.runtime.console import Progress
from mt_cli.tokenizer.sentencepiece import all_merges, rounded_score
from mt_cli.tokenizer.spacing import DEFAULT_SUBWORDS, reserved_entries, untrained_backend
from mt_cli.tokenizer.special_tokens import BYTES, JOINER, NEVER_SEEN, SPACE, SPECIAL_TOKENS
from mt_cli.tokenizer.tokenizer import MAX_ENTRY_CHARACTERS, Tokenizer, TokenizerPair

_MIN_SUBWORDS = 16
MAX_CHARACTERS = 0.75
"""Maximum share of sub-words that are single characters. For Chinese captions (3,600 characters), this share gave close
to the fewest tokens with 1,000 to 4,000 entries; without a limit, there were up to a fifth more tokens."""


def train_tokenizer(
    texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str] = (), reserved: str = ""
) -> Tokenizer:
    """Tokenizer with a vocabulary learnt from `texts`, and an entry for each tag and each character of `reserved`.

    The same texts give the same tokenizer, except with `unigram`: its trainer adds probabilities in no fixed order,
    so two trainings may differ in a few pieces. `texts` may be iterated over three times; an iterator is copied.
    Texts longer than `MAX_ENTRY_CHARACTERS` are ignored. Raises ConfigError if `vocab_size` is too small for the bytes,
    or for the characters of the texts.
    """
    if config.algorithm == "sentencepiece":
        raise ConfigError("tokenizer.algorithm: sentencepiece is for imported models; use bpe or unigram")
    markers = str.maketrans("", "", JOINER + SPACE + NEVER_SEEN + "".join(RESERVED) + TERM_MARKS)
    texts = list(texts) if isinstance(texts, Iterator) else texts
    cleaned = _Reread(
        lambda: (untagged(text, tags).translate(markers) for text in texts if len(text) <= MAX_ENTRY_CHARACTERS)
    )
    reserved_names = reserved_entries(config, reserved)
    limit = _character_limit(config, [*tags, *reserved_names])
    learn = partial(_trained_backend, cleaned, config, tags, reserved)
    backend = learn()
    entries = set() if backend is None else backend.get_vocab().keys() - reserved_names
    if limit is not None and (backend is None or sum(len(entry) == 1 for entry in entries) > limit):
        backend = learn(limit)
    if backend is None:
        size = f"tokenizer.vocab_size: {config.vocab_size or DEFAULT_SUBWORDS:,}"
        raise ConfigError(f"{size} is too small for all characters; enlarge it")
    state = json.loads(backend.to_str())
    state["added_tokens"] = []  # As plain entries, the special tokens cannot be matched in text.
    if config.algorithm == "unigram":
        state["model"]["byte_fallback"] = True
        # Without training text, the space has no probability.
        state["model"]["vocab"] = [[piece, score or 0.0] for piece, score in state["model"]["vocab"]]
    if config.spacing == "sentencepiece":
        vocab = state["model"]["vocab"]
        if config.algorithm == "bpe":
            pieces = vocab.keys() - {*SPECIAL_TOKENS, *tags, *BYTES}
            state["model"]["merges"] = all_merges({piece: rank for piece, rank in vocab.items() if piece in pieces})
        else:
            state["model"]["vocab"] = [[piece, rounded_score(score)] for piece, score in vocab]
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)), tags)


@dataclass(frozen=True)
class _Reread:
    """Iterable that reads its texts again at each iteration."""

    read: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.read()


def reserved_characters(config: CorpusConfig) -> str:
    """Characters with entries of their own: those of protected spans and the marks of terms, if a config has them."""
    return "".join(RESERVED) * config.has_protection + TERM_MARKS * config.terms


def train_tokenizers(pairs: Callable[[], Iterable[tuple[str, str]]], config: Config) -> TokenizerPair:
    """Train the tokenizers of a config; each call of `pairs` reads the pairs again."""

    def learn(side: str, sides: Sequence[int], tags: Sequence[str]) -> Tokenizer:
        with Progress(f"learning the {side}vocabulary", None, "sentence") as bar:
            texts = _Reread(lambda: bar.over(pair[side] for pair in pairs() for side in sides))
            return train_tokenizer(texts, config.tokenizer, tags, reserved_characters(config.corpus))

    if config.tokenizer.shared:
        shared = learn("", (0, 1), config.corpus.tags)
        return shared, shared
    return learn("source ", (0,), config.corpus.tags), learn("target ", (1,), ())


def _character_limit(config: TokenizerConfig, tags: Sequence[str]) -> int | None:
    """Maximum number of single-character entries; None without bytes. Raises ConfigError if the bytes do not fit."""
    if config.algorithm in WITHOUT_SUBWORDS:
        return None
    num_entries, num_fixed = config.vocab_size or DEFAULT_SUBWORDS, len(SPECIAL_TOKENS) + len(tags) + len(BYTES)
    if num_entries < num_fixed + _MIN_SUBWORDS:
        least = f"use at least {num_fixed + _MIN_SUBWORDS:,}"
        raise ConfigError(f"tokenizer.vocab_size: {num_entries:,} is too small for tags and bytes; {least}")
    return int((num_entries - num_fixed) * MAX_CHARACTERS)


def _trained_backend(
    texts: Iterable[str],
    config: TokenizerConfig,
    tags: Sequence[str],
    reserved: str,
    max_characters: int | None = None,
) -> tokenizers.Tokenizer | None:
    """Backend trained on the most frequent characters; None if these do not fit in a `unigram` vocabulary."""
    backend, trainer = untrained_backend(config, tags, reserved)
    normalizer = backend.normalizer
    if max_characters is not None:
        counts = Counter(chain.from_iterable(map(normalizer.normalize_str, texts)))
        rare = sorted(counts, key=lambda character: (-counts[character], character))[max_characters:]
        spaces = str.maketrans(dict.fromkeys(rare, SPACE))
        texts = (normalizer.normalize_str(text).translate(spaces) for text in texts)
        backend.normalizer = normalizers.Sequence([])
    try:
        backend.train_from_iterator(texts, trainer)
    except Exception as error:  # The library raises bare `Exception`s.
        if "not large enough to contain all chars" not in str(error):
            raise
        return None
    backend.normalizer = normalizer
    return backend
