"""Extension of the vocabulary of a tokenizer. Knows entries and how they are spelled; does not know models.

Old ids keep their meaning. The ids of a text do not change unless it has characters, words or tags that had no entry:
with `bpe` and `unigram`, each new entry has such a character.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import models, trainers

from mt_cli.tokenizer import BYTES, SPECIAL_TOKENS, Tokenizer, TokenizerPair, untagged

_MAX_CHARACTERS = 0.75
"""Maximum share of new sub-words that are single characters."""
_MIN_FREQUENCY, _MAX_LENGTH = 5, 12
"""How often a sub-word of several characters must occur to become an entry, and how many characters it may have."""
_RESERVED = frozenset("\ue000\x10\x11\x12")
"""Characters that stand for markers in text; see `tokenizer`."""


def extended(tokenizer: Tokenizer, texts: Iterable[str], tags: Sequence[str], max_entries: int) -> Tokenizer:
    """A tokenizer with up to `max_entries` more entries, for what `texts` have and the tokenizer has no entries for.

    It has an entry for each tag, too. With `bpe` and `unigram`, new sub-words are learnt from the words with characters
    that had no entry.
    """
    state = json.loads(tokenizer.to_json())
    model, backend = state["model"], tokenizers.Tokenizer.from_str(tokenizer.to_json())
    known = set(backend.get_vocab())
    units = _units(backend, (untagged(text, tags) for text in texts))
    if model["type"] == "WordLevel":
        missing = {unit: count for unit, count in units.items() if unit not in known and _RESERVED.isdisjoint(unit)}
        learnt = [(entry, 0.0) for entry in _most_common(missing, max_entries)]
    else:
        learnt = _subwords(model, known, units, max_entries)
    new = [(tag, 0.0) for tag in tags if tag not in known] + learnt
    if model["type"] == "Unigram":
        lowest = min(score for _, score in model["vocab"])
        # Lower scores would change the score of unknown characters, which is relative to the lowest one.
        model["vocab"] += [[entry, max(score, lowest)] for entry, score in new]
    else:
        first = len(known)
        model["vocab"] |= {entry: first + number for number, (entry, _) in enumerate(new)}
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)), tags)


def extended_pair(
    pair: TokenizerPair, pairs: Callable[[], Iterable[tuple[str, str]]], tags: Sequence[str], max_entries: int
) -> TokenizerPair:
    """Both tokenizers, extended for the sides of the pairs that each call of `pairs` reads again."""
    source, target = pair
    if source is target:
        shared = extended(source, (side for each in pairs() for side in each), tags, max_entries)
        return shared, shared
    sources, targets = ((each[side] for each in pairs()) for side in (0, 1))
    return extended(source, sources, tags, max_entries), extended(target, targets, (), max_entries)


def spellings(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """For each new entry of an extended tokenizer, the old ids that spelled it; at least one."""
    backend = tokenizers.Tokenizer.from_str(old.to_json())
    entries = new.tokens(range(old.vocab_size, new.vocab_size))
    return [[token.id for token in backend.model.tokenize(entry)] for entry in entries]


def _units(backend: tokenizers.Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """How often each unit occurs that is segmented on its own, such as a word, in texts with unknown characters."""
    known = {entry for entry in backend.get_vocab() if len(entry) == 1}
    is_word_level = json.loads(backend.to_str())["model"]["type"] == "WordLevel"
    counts: Counter[str] = Counter()
    for text in texts:
        normal = backend.normalizer.normalize_str(text)
        if is_word_level or not known.issuperset(normal):
            counts.update(unit for unit, _ in backend.pre_tokenizer.pre_tokenize_str(normal))
    return counts


def _most_common(counts: Mapping[str, int], number: int) -> list[str]:
    """The most frequent keys; of equally frequent ones, the first by code points."""
    return sorted(counts, key=lambda key: (-counts[key], key))[:number]


def _subwords(model: dict[str, Any], known: set[str], units: Counter[str], max_entries: int) -> list[tuple[str, float]]:
    """New sub-words with their scores, and with `bpe`, their merges, which are added to the model.

    Each has a character without an entry.
    """
    characters: Counter[str] = Counter()
    for unit, count in units.items():
        characters.update(dict.fromkeys(set(unit) - known - _RESERVED, count))
    chosen = _most_common(characters, int(max_entries * _MAX_CHARACTERS))
    if not chosen:
        return []
    texts = {unit: count for unit, count in units.items() if not set(chosen).isdisjoint(unit)}
    learnt = _trained(model["type"], texts, max_entries)
    entries = dict.fromkeys(chosen, min(score for _, score in learnt["vocab"]) if model["type"] == "Unigram" else 0.0)
    may_use = known - {*SPECIAL_TOKENS, *BYTES} | entries.keys()
    if model["type"] == "Unigram":
        for piece, score in sorted(learnt["vocab"], key=lambda each: -each[1]):
            is_new = not entries.keys().isdisjoint(piece)
            if is_new and may_use.issuperset(piece) and (piece in entries or len(entries) < max_entries):
                entries[piece] = score
        return list(entries.items())
    for left, right in learnt["merges"]:
        is_new = not set(chosen).isdisjoint(left + right)
        if is_new and {left, right} <= may_use and len(entries) < max_entries:
            entries[left + right] = 0.0
            may_use.add(left + right)
            model["merges"].append([left, right])
    return list(entries.items())


def _trained(kind: str, units: dict[str, int], max_entries: int) -> dict[str, Any]:
    """The model of the `tokenizers` library that is learnt from units with their counts."""
    backend = tokenizers.Tokenizer(models.Unigram() if kind == "Unigram" else models.BPE())
    size = max_entries + len(set("".join(units)))
    options: dict[str, Any] = {"vocab_size": size, "show_progress": False, "special_tokens": []}
    trainer: Any
    if kind == "Unigram":
        trainer = trainers.UnigramTrainer(max_piece_length=_MAX_LENGTH, **options)
    else:
        trainer = trainers.BpeTrainer(min_frequency=_MIN_FREQUENCY, max_token_length=_MAX_LENGTH, **options)
    backend.train_from_iterator((unit for unit, count in units.items() for _ in range(count)), trainer)
    return dict(json.loads(backend.to_str())["model"])
