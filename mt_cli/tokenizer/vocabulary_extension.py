"""Extension of the vocabulary of a tokenizer. Knows entries and their spelling; does not know models.

Old ids keep their meaning. The ids of a text change only if it has characters, words or tags that had no entry, because
every new subword contains such a character.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import models, trainers

from mt_cli.corpus.rows import untagged
from mt_cli.tokenizer.sentencepiece import BPE, SentencePieces, all_merges, rounded_score
from mt_cli.tokenizer.spacing import has_spacing
from mt_cli.tokenizer.special_tokens import ABSENT, BYTES, SPACE, SPECIAL_TOKENS
from mt_cli.tokenizer.tokenizer import MAX_ENTRY_CHARACTERS, Backend, Tokenizer, TokenizerPair
from mt_cli.tokenizer.vocabulary_training import MAX_CHARACTERS

MAX_ENTRIES = 4000
"""Maximum number of new words, characters and subwords."""
_MIN_FREQUENCY, _MAX_LENGTH = 5, 12
"""Smallest count of a subword of several characters, and its greatest length."""
_WORD = re.compile(rf"{SPACE}?[^{SPACE}]+|{SPACE}")
_RESERVED = frozenset("\ue000\x10\x11\x12")
"""Characters that stand for markers in text; see `tokenizer`."""


def extended_pair(
    pair: TokenizerPair,
    pairs: Callable[[], Iterable[tuple[str, str]]],
    tags: Sequence[str],
    is_shared: bool,
) -> TokenizerPair:
    """Extend both tokenizers for the sides of the pairs; each call of `pairs` reads them again.

    With `is_shared`, the tokenizers have the same entries, and both get all new entries. Two SentencePiece models may
    be such tokenizers.
    """
    source, target = pair
    if is_shared:
        group = [source] if source is target else [source, target]
        group = extended(group, (text for texts in pairs() for text in texts), tags)
        return group[0], group[-1]
    (new_source,) = extended([source], (texts[0] for texts in pairs()), tags)
    (new_target,) = extended([target], (texts[1] for texts in pairs()))
    return new_source, new_target


def extended(
    group: Sequence[Tokenizer], texts: Iterable[str], tags: Sequence[str] = (), max_entries: int = MAX_ENTRIES
) -> list[Tokenizer]:
    """Extend tokenizers of one kind and with the same entries by the same new entries.

    New are an entry for each tag, and up to `max_entries` entries for words or characters of `texts`. With `bpe`,
    `unigram` and SentencePiece models, new subwords are learned from the words with characters that had no entry.
    """
    vocabularies = [set(tokenizer.tokens(range(tokenizer.vocab_size))) for tokenizer in group]
    names = {entry.removeprefix(ABSENT) for vocabulary in vocabularies for entry in vocabulary}
    kind = _kind_of(group[0])
    units = _units(group[0], names, kind, (untagged(text, tags) for text in texts))
    merges: list[list[str]] = []
    if kind == "WordLevel":
        missing = {
            unit: count
            for unit, count in units.items()
            if len(unit) <= MAX_ENTRY_CHARACTERS and unit not in names and _RESERVED.isdisjoint(unit)
        }
        learned = [(entry, 0.0) for entry in _most_common(missing, max_entries)]
    else:
        usable = set.intersection(*vocabularies) - {*group[0].tokens(group[0].tag_ids), *tags, *SPECIAL_TOKENS, *BYTES}
        learned, merges = _subwords(kind, names, usable, units, max_entries)
    new = [(tag, -math.inf) for tag in group[0].without_entries(tags) if tag not in names] + learned
    backends = [_with_entries(tokenizer, new, merges) for tokenizer in group]
    return [Tokenizer(backend, tags if backend is backends[0] else ()) for backend in backends]


def _kind_of(tokenizer: Tokenizer) -> str:
    """Type of the model, by the names of the library."""
    if isinstance(tokenizer.backend, SentencePieces):
        return "BPE" if tokenizer.backend.proto.trainer_spec.model_type == BPE else "Unigram"
    return str(tokenizer.model()["type"])


def _with_entries(tokenizer: Tokenizer, new: Sequence[tuple[str, float]], merges: Sequence[Sequence[str]]) -> Backend:
    if isinstance(tokenizer.backend, SentencePieces):
        lowest = min(piece.score for piece in tokenizer.backend.proto.pieces)
        scores = {entry: max(score, lowest) for entry, score in new if score > -math.inf}
        return tokenizer.backend.extended([entry for entry, _ in new], scores)
    first_id, state = tokenizer.vocab_size, json.loads(tokenizer.to_json())
    model = state["model"]
    if model["type"] == "Unigram":
        lowest = min(score for _, score in model["vocab"])
        if has_spacing(state):
            new = [(entry, rounded_score(score) if score > lowest else lowest) for entry, score in new]
        # Lower scores would change the score of unknown characters, which is relative to the lowest one.
        model["vocab"] += [[entry, max(score, lowest)] for entry, score in new]
    else:
        model["vocab"] |= {entry: first_id + number for number, (entry, _) in enumerate(new)}
        if model["type"] == "BPE":
            model["merges"] += merges
    return tokenizers.Tokenizer.from_str(json.dumps(state))


def old_ids_of_entries(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Old ids that spelled each new entry of an extended tokenizer; at least one for each."""
    backend = old.backend
    entries = new.tokens(range(old.vocab_size, new.vocab_size))
    if isinstance(backend, SentencePieces):
        return [backend.segment(entry) for entry in entries]
    return [[token.id for token in backend.model.tokenize(entry)] for entry in entries]


def _units(tokenizer: Tokenizer, known: set[str], kind: str, texts: Iterable[str]) -> Counter[str]:
    """Counts of the units with unknown characters that are segmented separately, such as words."""
    backend, counts = tokenizer.backend, Counter[str]()
    for text in texts:
        normal = tokenizer.normalized(text)
        if isinstance(backend, SentencePieces):
            units = _WORD.findall(normal)
        else:
            units = [unit for unit, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]
        if kind == "WordLevel" or not known.issuperset(normal):
            counts.update(units)
    return counts


def _most_common(counts: Mapping[str, int], number: int) -> list[str]:
    """Most frequent keys; equally frequent keys are sorted by code points."""
    return sorted(counts, key=lambda key: (-counts[key], key))[:number]


def _subwords(
    kind: str, known: set[str], usable: set[str], units: Counter[str], max_entries: int
) -> tuple[list[tuple[str, float]], list[list[str]]]:
    """New subwords with their scores, and with `bpe`, their merges. Each has a character that is not in `known`.

    Merges join entries that are `usable` or new. As in SentencePiece, there is a merge for every two entries whose
    concatenation is an entry.
    """
    characters: Counter[str] = Counter()
    for unit, count in units.items():
        characters.update(dict.fromkeys(set(unit) - known - _RESERVED, count))
    chosen = _most_common(characters, int(max_entries * MAX_CHARACTERS))
    if not chosen:
        return [], []
    texts = {unit: count for unit, count in units.items() if not set(chosen).isdisjoint(unit)}
    learned = _trained(kind, texts, max_entries)
    entries = dict.fromkeys(chosen, min(score for _, score in learned["vocab"]) if kind == "Unigram" else 0.0)
    may_use = usable | entries.keys()
    merges: list[list[str]] = []
    if kind == "Unigram":
        for piece, score in sorted(learned["vocab"], key=lambda entry: -entry[1]):
            is_new = not entries.keys().isdisjoint(piece)
            if is_new and may_use.issuperset(piece) and (piece in entries or len(entries) < max_entries):
                entries[piece] = score
    else:
        for left, right in learned["merges"]:
            is_new = not set(chosen).isdisjoint(left + right)
            if is_new and {left, right} <= may_use and len(entries) < max_entries:
                entries[left + right] = 0.0
                may_use.add(left + right)
        ranks = {entry: rank for rank, entry in enumerate([*sorted(may_use - entries.keys()), *entries])}
        merges = [list(merge) for merge in all_merges(ranks, entries.keys())]
    return list(entries.items()), merges


def _trained(kind: str, units: dict[str, int], max_entries: int) -> dict[str, Any]:
    """Train a model of the `tokenizers` library on units with their counts; return its state."""
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
