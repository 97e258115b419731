"""What an untrusted tokenizer may hold: limits that are checked before the `tokenizers` library reads it.

The library recurses over pieces, allocates what a file declares, and ends the process if that fails. Knows the files of
the library and the compiled normalisation of SentencePiece; does not know how text is split.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain, product
from typing import Any, get_args

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models

from mt_cli.config.sections import ALL_APOSTROPHES, TokenizerConfig, is_replacement
from mt_cli.corpus.spelling import spaces_beside
from mt_cli.errors import one_line
from mt_cli.tokenizer.spacing import LETTER, sentencepiece_backend, untrained_backend

MAX_ENTRY_CHARACTERS = 2**16
"""Maximum length of an entry."""
MAX_PIECE_CHARACTERS = 512
"""Maximum length of an entry of a unigram model, and of a piece of SentencePiece, whose trainer has this limit too."""
MAX_PIECE_BYTES = 2**21
"""Maximum length of all entries of a unigram model together: 250,000 pieces. In the library, each byte takes 200."""
MAX_MERGED_CHARACTERS = 2**23
"""Maximum length of what all merges make; the 600,000 merges of a model of 256,000 pieces make about 4,000,000."""
_MAX_CHARSMAP_BYTES = 2**20
_MAX_REPLACEMENT_BYTES = 128
"""Maximum length of what replaces a character; that of Unicode's longest, U+FDFA, is 33."""
_KEY_BYTES = 6
"""The library looks up keys below this length."""
_OUTSIDE = "a SentencePiece model has a damaged normalisation: its table points outside"
_KINDS = ("WordLevel", "BPE", "Unigram")
_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "dropout": (None,),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "ignore_merges": (False,),
}
"""Settings of models that ours do not use, with their values."""
_EMPTY = ("truncation", "padding", "added_tokens", "post_processor")
"""Parts of a file of the library that ours do not have."""


@contextmanager
def no_panic() -> Iterator[None]:
    """Context manager that turns a panic of the library, which is no `Exception`, into a ValueError."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the tokenizers library fails: {one_line(error)}") from None


def checked_tree(text: str, special_tokens: tuple[str, ...]) -> dict[str, Any]:
    """The content of a tokenizer file, whose first entries should be `special_tokens`, the second one for unknown text.

    Raises ValueError if the library could not read it, or only with too much memory.
    """
    tree = json.loads(text, object_pairs_hook=_without_repeated_keys)
    if not isinstance(tree, dict) or not isinstance(tree.get("model"), dict):
        raise ValueError("it has no model")
    check_model(tree["model"], special_tokens)
    for name, value in _values_outside_model(tree):
        if name == "precompiled_charsmap":
            check_charsmap(b64decode(value, validate=True))
    return tree


def has_only(tree: Mapping[str, Any], patterns: set[str]) -> bool:
    """Whether a tokenizer file has no parts that ours lack, and no regular expressions but `patterns`.

    Compiling others may take any amount of memory.
    """
    regexes = (value for name, value in _values_outside_model(tree) if name == "Regex")
    return not any(tree.get(part) for part in _EMPTY) and all(regex in patterns for regex in regexes)


def _values_outside_model(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return named_values({key: part for key, part in tree.items() if key != "model"})


def check_model(model: Mapping[str, Any], special_tokens: tuple[str, ...]) -> None:
    """Raise ValueError unless a model of the library has entries and settings as ours, and not too many or too long."""
    kind = model.get("type")
    if kind not in _KINDS:
        raise ValueError(f"its model is of type {str(kind)[:60]}, and not {', '.join(_KINDS)}")
    for name, values in _SETTINGS.items():
        if name in model and model[name] not in values:
            raise ValueError(f"{name} of its model is not supported")
    unknown, expected = ("unk_id", 1) if kind == "Unigram" else ("unk_token", special_tokens[1])
    if model.get(unknown) != expected:
        raise ValueError(f"{unknown} of its model is not {expected}")
    entries = _entries(model["vocab"], kind)
    if tuple(entries[: len(special_tokens)]) != special_tokens:
        raise ValueError(f"its first entries are not {' '.join(special_tokens)}")
    check_entries(entries, kind == "Unigram")
    if kind == "BPE":
        num_characters = 0
        for merge in model["merges"]:
            left, right = merge.split(" ") if isinstance(merge, str) else merge  # Older versions wrote text.
            if not {left, right, left + right} <= model["vocab"].keys():
                raise ValueError(f"its merge of {left[:60]!r} and {right[:60]!r} has no entry")
            num_characters += len(left) + len(right)
        check_merges(num_characters)


def _entries(vocab: Any, kind: str) -> list[str]:
    """The entries in the order of their ids; raises ValueError unless these are 0, 1, 2 ..."""
    if kind == "Unigram":
        entries, ids = [piece for piece, _ in vocab], list(range(len(vocab)))
    else:
        entries, ids = sorted(vocab, key=vocab.__getitem__), sorted(vocab.values())
    if ids != list(range(len(ids))) or len(set(entries)) != len(entries):
        raise ValueError(f"the ids of its entries are not 0 to {len(ids) - 1:,}, or entries occur twice")
    return entries


def check_entries(entries: Sequence[str], is_unigram: bool) -> None:
    """Raise ValueError if an entry is too long, or all together are."""
    limit = MAX_PIECE_CHARACTERS + 1 if is_unigram else MAX_ENTRY_CHARACTERS  # 1 for a marker.
    longest = max(entries, key=len, default="")
    if len(longest) > limit:
        raise ValueError(f"its entry {longest[:20]!r}... has {len(longest):,} characters, more than {limit:,}")
    total = sum(len(entry.encode("utf-8")) for entry in entries) if is_unigram else 0
    if total > MAX_PIECE_BYTES:
        raise ValueError(f"its entries have {total:,} bytes together, more than {MAX_PIECE_BYTES:,}")


def check_merges(num_characters: int) -> None:
    """Raise ValueError if merges make pieces of too many characters, each counted as often as it is made."""
    if num_characters > MAX_MERGED_CHARACTERS:
        raise ValueError(f"its merges make more than {MAX_MERGED_CHARACTERS:,} characters")


def check_charsmap(charsmap: bytes) -> None:
    """Raise ValueError if a compiled normalisation of SentencePiece is damaged, or a character becomes a long text.

    It has the size of a table of 32-bit units, the table, and texts that end with a zero byte. The table is a trie in
    the form of Darts-clone: the children of a unit are found at its offset, exclusive-or their bytes, and so is the
    place of the text that replaces a key.
    """
    size = int.from_bytes(charsmap[:4], "little")
    units, texts = np.frombuffer(charsmap[4 : 4 + size // 4 * 4], "<u4").astype(np.int64), charsmap[4 + size :]
    if len(charsmap) > _MAX_CHARSMAP_BYTES or size % 4 or not 0 < len(units) == size // 4:
        raise ValueError("a SentencePiece model has a damaged normalisation: its table has another size")
    texts.decode("utf-8")
    if max(map(len, texts.split(b"\0"))) > _MAX_REPLACEMENT_BYTES:
        raise ValueError(
            f"a SentencePiece model has a damaged normalisation: more than {_MAX_REPLACEMENT_BYTES} bytes for a key"
        )
    starts = np.append(
        np.frombuffer(texts, np.uint8) & 0xC0 != 0x80, True
    )  # Bytes that begin a character, and the end.
    places = _offsets(units[:1])
    for _ in range(_KEY_BYTES):
        children = _children(units, places)
        places = children ^ _offsets(units[children])
        ends = places[units[children] & 0x100 != 0]
        _check_inside(units, ends)
        values = units[ends] & 0x7FFFFFFF
        if (values >= len(starts)).any() or not starts[values].all():
            raise ValueError(_OUTSIDE)
        places = np.unique(places)


def _offsets(units: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each unit, the difference (exclusive or) to the place of its children."""
    return (units >> 10) << ((units & 0x200) >> 6)


def _children(units: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places of all children of units whose own places, before the byte of the child, are `places`."""
    _check_inside(units, places)
    found = [place[units[place] & 0x800000FF == byte] for byte in range(1, 256) for place in (places ^ byte,)]
    return np.concatenate(found)


def _check_inside(units: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    """Raise ValueError unless these places are in the table, exclusive-or any byte."""
    if ((places | 0xFF) >= len(units)).any():
        raise ValueError(_OUTSIDE)


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; raises ValueError for a repeated key, of which the library may use another one."""
    tree = dict(pairs)
    if len(tree) != len(pairs):
        raise ValueError("a key occurs twice")
    return tree


def named_values(tree: Any) -> Iterator[tuple[str, Any]]:
    """All keys in a tree with their values."""
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        if isinstance(key, str):
            yield key, child
        yield from named_values(child)


_KEYS_OF_STEPS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
_PREVIOUS_UNIT = rf"▁?[{LETTER}]+|▁?[^{LETTER}▁]|▁"
_PREVIOUS_STEPS = (
    {"type": "Split", "pattern": {"Regex": _PREVIOUS_UNIT}, "behavior": "Isolated", "invert": False},
    {"type": "Prepend", "prepend": "▁"},
    *({"type": "Replace", "pattern": {"Regex": each}, "content": ""} for each in spaces_beside(ALL_APOSTROPHES)),
)
"""Steps of tokenizers from before `byte_fallback`, and from when spaces beside backticks were removed.

When a step above changes, add the old one: older runs need it."""
_spelled = partial(json.dumps, sort_keys=True)


def has_only_own_steps(backend: tokenizers.Tokenizer) -> bool:
    """Whether a tokenizer processes text only by steps that ours have, none of them twice.

    In an untrusted file, a pattern may fail and repeated replacements may make a text endlessly long.
    """
    rows = _rows_of_steps(backend)
    letters = [pair for row in rows for step in row for pair in _replaced_letter(step)]
    are_letters_final = not any(old in new for old, _ in letters for _, new in letters)
    return (
        all(len(row) == len(set(row)) for row in rows)
        and all(step in _own_steps() or _replaced_letter(step) for row in rows for step in row)
        and are_letters_final
        and len(letters) <= _MAX_LETTERS
    )


def _replaced_letter(step: str) -> list[tuple[str, str]]:
    """What a step of `tokenizer.letters` replaces, and by what; nothing for another step."""
    match json.loads(step):
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new), **others}:
            return [(old, new)] if not others and is_replacement(old, new) else []
    return []


_MAX_LETTERS = 200
_ALL_STEPS = {"nfkc": True, "lowercase": True, "normalize": ["nfc", "apostrophes", "joined_apostrophes"]}


@cache
def _own_steps() -> set[str]:
    algorithms = {*get_args(TokenizerConfig.model_fields["algorithm"].annotation)} - {"sentencepiece"}
    configs = [
        TokenizerConfig.model_validate({"algorithm": algorithm, "byte_fallback": byte_fallback, **_ALL_STEPS})
        for algorithm, byte_fallback in product(algorithms, (False, True))
    ]
    backends = [untrained_backend(config)[0] for config in configs]
    flags = product((False, True), (False, True))
    backends += [sentencepiece_backend(models.Unigram(), b"", *each) for each in flags]
    rows = chain.from_iterable(map(_rows_of_steps, backends))
    return {*chain.from_iterable(rows), *map(_spelled, _PREVIOUS_STEPS), _spelled({"type": "Precompiled"})}


@cache
def own_patterns() -> set[str]:
    """The regular expressions of our steps."""
    return {value for step in _own_steps() for name, value in named_values(json.loads(step)) if name == "Regex"}


def _rows_of_steps(backend: tokenizers.Tokenizer) -> list[list[str]]:
    """The steps of a tokenizer in rows, as JSON; its other settings, without the vocabulary, count as a step."""
    state = json.loads(backend.to_str())
    state["model"] = state["model"]["type"]
    return [*(_steps(state.pop(part), key) for part, key in _KEYS_OF_STEPS.items()), [_spelled(state)]]


def _steps(part: Any, key: str) -> list[str]:
    if part is None:
        return []
    if part.get("type") == "Precompiled":
        part = {"type": "Precompiled"}  # A table of characters, which has no patterns.
    return [step for each in part[key] for step in _steps(each, key)] if key in part else [_spelled(part)]
