"""Behaviour of SentencePiece (Kudo and Richardson 2018) with the `tokenizers` library. Does not know its model files.

Spaces of a text are written as `▁`. A user-defined symbol is never split; in the backend, one private character stands
for it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from base64 import b64decode
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import tokenizers
from tokenizers import Regex, decoders, normalizers, pre_tokenizers

from mt_cli.tokenizer.special_tokens import ABSENT, NEVER_SEEN, SPACE, SPECIAL_TOKENS

_FIRST, _REPEATED, _LEADING, _TRAILING = r"\A(?=[\s\S])", " {2,}", r"\A +", rf"{SPACE}+\z"
STRIP_SPACES = decoders.Strip(" ", 2**16, 0)
"""Decoding of SentencePiece with `strips_spaces`: no space at the beginning."""
_SPECIAL = "|".join(token[1:-1] for token in SPECIAL_TOKENS)
_BEGINNING_OF_NAME = rf"\[(?=(?:{_SPECIAL})\])|{ABSENT}(?=<)"
_BEGINNING_OF_BYTE = rf"<(?=0x[0-9A-F]{{2}}>)|{_BEGINNING_OF_NAME}"
_FIRST_PRIVATE = 0x100000
MAX_SYMBOLS = 1000
"""Maximum number of user-defined symbols, and of control symbols. Every text is searched for each of the former."""
MAX_MERGED_CHARACTERS = 2**23
"""Maximum total length of the merged pieces; the 600,000 merges of a model of 256,000 pieces make about 4,000,000."""
_LAST_WITH_MARK, _MOST_MARKS = 0x12000, 3
"""Code point below which Unicode has letters that equal a letter and marks, and the most marks of one."""
_SCORE_UNIT = 2.0**-10
"""Scores are multiples of this number, so that sums of the fp32 numbers of SentencePiece are exact, and ties alike."""


def spacing_steps(adds_prefix: bool = True, strips_spaces: bool = True) -> list[tuple[Any, str]]:
    """Replacements that write spaces as SentencePiece does.

    With `adds_prefix`, a text begins with a space unless it is empty. With `strips_spaces`, repeated spaces become one,
    and spaces at both ends are removed.
    """
    steps = [(Regex(_LEADING), ""), (Regex(_REPEATED), " ")] * strips_spaces + [(" ", SPACE)]
    return steps + [(Regex(_FIRST), SPACE)] * adds_prefix + [(Regex(_TRAILING), "")] * strips_spaces


def has_spacing(state: Mapping[str, Any]) -> bool:
    """Whether a tokenizer file has the steps of `tokenizer.spacing: sentencepiece`."""
    return {"Regex": _TRAILING} in [step.get("pattern") for step in state["normalizer"]["normalizers"]]


def rounded_score(score: float) -> float:
    """Score of a unigram piece, rounded so that this library and SentencePiece compare the same sums."""
    return round(score / _SCORE_UNIT) * _SCORE_UNIT


@dataclass(frozen=True)
class SentencePieceSteps:
    """Steps before and after a model of the library that make it split text as SentencePiece does."""

    charsmap: bytes = b""
    """Compiled normalisation of SentencePiece."""
    adds_prefix: bool = True
    strips_spaces: bool = True
    splits_words: bool = True
    """Whether no piece has a space after its beginning, so that words can be split separately."""
    has_bytes: bool = False
    splits_names: bool = False
    """Whether names of entries that are no pieces are split in text, so that a unigram model does not take them for
    pieces if their characters are unknown."""
    symbols: tuple[str, ...] = ()
    """User-defined symbols."""
    controls: tuple[str, ...] = ()
    """Names of control symbols, which are decoded as nothing."""
    is_older: bool = False
    """Whether the steps are those of runs that earlier versions imported."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> SentencePieceSteps:
        """Options that the steps in a tokenizer file show, which may be untrusted."""
        steps, splitter = state["normalizer"]["normalizers"], state["pre_tokenizer"]
        charsmaps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
        charsmap = b64decode(charsmaps[0], validate=True) if charsmaps else b""
        if splitter["type"] == "Metaspace":
            strips_spaces = any(step["type"] == "Strip" for step in steps)
            return cls(charsmap, splitter.get("prepend_scheme") == "always", strips_spaces, is_older=True)
        patterns = [step["pattern"] for step in steps if step["type"] == "Replace"]
        symbols = [pattern["String"] for pattern in patterns if "String" in pattern and pattern["String"] != " "]
        splits = [step["pattern"] for step in splitter["pretokenizers"]]
        joining = state["decoder"]["decoders"]
        texts = [step["pattern"].get("String", "") for step in joining if step["type"] == "Replace"]
        return cls(
            charsmap,
            {"Regex": _FIRST} in patterns,
            {"Regex": _TRAILING} in patterns,
            {"String": SPACE} in splits,
            any(step["type"] == "ByteFallback" for step in joining),
            {"Regex": _BEGINNING_OF_NAME} in splits or {"Regex": _BEGINNING_OF_BYTE} in splits,
            tuple(symbols),
            tuple(text.removeprefix(ABSENT) for text in texts if text.startswith(ABSENT) and text != NEVER_SEEN),
        )

    @property
    def names(self) -> dict[str, str]:
        """User-defined symbols by the private character that stands for each in the backend."""
        return {chr(_FIRST_PRIVATE + number): symbol for number, symbol in enumerate(self.symbols)}

    def backend(self, model: Any) -> tokenizers.Tokenizer:
        """Tokenizer of the library with these steps. Raises ValueError for more symbols than `MAX_SYMBOLS`."""
        if max(len(self.symbols), len(self.controls)) > MAX_SYMBOLS:
            raise ValueError(f"more than {MAX_SYMBOLS:,} user-defined symbols or control symbols")
        backend = tokenizers.Tokenizer(model)
        steps: list[Any] = []
        if self.symbols:  # Text cannot produce them in another way.
            steps.append(normalizers.Replace(Regex(f"[{min(self.names)}-{max(self.names)}]"), NEVER_SEEN))
        steps += [normalizers.Replace(symbol, character) for character, symbol in self.names.items()]
        steps += [normalizers.Precompiled(self.charsmap)] if self.charsmap else []
        if self.is_older:
            steps += [normalizers.Strip(), normalizers.Replace(Regex(_REPEATED), " ")] * self.strips_spaces
            backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always" if self.adds_prefix else "never")
        else:
            spacing = spacing_steps(self.adds_prefix, self.strips_spaces)
            steps += [normalizers.Replace(pattern, text) for pattern, text in spacing]
            splits = [pre_tokenizers.Split(SPACE, "merged_with_next")] * self.splits_words
            beginning = Regex(_BEGINNING_OF_BYTE if self.has_bytes else _BEGINNING_OF_NAME)
            splits += [pre_tokenizers.Split(beginning, "merged_with_previous")] * self.splits_names
            backend.pre_tokenizer = pre_tokenizers.Sequence(splits)
        backend.normalizer = normalizers.Sequence(steps)
        joining: list[Any] = [decoders.Replace(ABSENT + name, "") for name in self.controls]
        joining += [decoders.Replace(NEVER_SEEN, ""), decoders.Replace(SPACE, " ")]
        joining += [decoders.Replace(character, symbol) for character, symbol in self.names.items()]
        joining += [decoders.ByteFallback()] * self.has_bytes + [decoders.Fuse()]
        if self.strips_spaces and not self.is_older:
            joining.append(STRIP_SPACES)
        elif self.is_older or self.adds_prefix:
            joining.append(decoders.Strip(" ", 1, 0))
        backend.decoder = decoders.Sequence(joining)
        return backend


class TextPreparation:
    """Preparation of texts for an imported tokenizer, beside the steps of the library."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        state = json.loads(backend.normalizer.__getstate__()) if backend.normalizer else {}
        steps = state.get("normalizers", [])
        replaced = ((step["content"], step["pattern"].get("String")) for step in steps if step["type"] == "Replace")
        self.symbols = {character: text for character, text in replaced if character >= chr(_FIRST_PRIVATE)}
        """User-defined symbols by the private character that stands for each."""
        charsmaps = [step["precompiled_charsmap"] for step in steps if step["type"] == "Precompiled"]
        self._compositions = _compositions(b64decode(charsmaps[0])) if charsmaps else {}
        first, second = ("".join({re.escape(key[place]) for key in self._compositions}) for place in (0, 1))
        self._decomposed = re.compile(f"[{first}][{second}]") if first else None

    def __call__(self, text: str) -> tuple[str, list[int] | None]:
        """Text with letters and marks composed, and the place of each character before that; None if nothing changed.

        SentencePiece composes each letter with as many of the next marks as it can. The library composes whole letters
        with all their marks only, and may drop marks or leave them apart.
        """
        if self._decomposed is None or self._decomposed.search(text) is None:
            return text, None
        composed, places, place = [], [], 0
        while place < len(text):
            keys = (text[place : place + length] for length in range(_MOST_MARKS + 1, 1, -1))
            key = next((key for key in keys if key in self._compositions), text[place])
            composed.append(self._compositions.get(key, key))
            places.append(place)
            place += len(key)
        return "".join(composed), [*places, len(text)]


def _compositions(charsmap: bytes) -> dict[str, str]:
    """Letters by a letter and marks that a compiled normalisation of SentencePiece replaces by them."""
    size = int.from_bytes(charsmap[:4], "little")
    units, texts = np.frombuffer(charsmap, "<u4", size // 4, offset=4).tolist(), charsmap[4 + size :]
    spellings = (
        (_replacement(units, texts, key.encode("utf-8")), key, letter) for key, letter in _letters_with_marks()
    )
    return {key: letter for replacement, key, letter in spellings if replacement == letter.encode("utf-8")}


@lru_cache(maxsize=1)
def _letters_with_marks() -> list[tuple[str, str]]:
    """Letters of Unicode that equal a letter and one or more marks, after each way to write them with marks."""
    spellings = []
    for letter in map(chr, range(_LAST_WITH_MARK)):
        codes = unicodedata.decomposition(letter).split()
        if len(codes) == 2 and not codes[0].startswith("<"):
            pair = "".join(chr(int(code, 16)) for code in codes)
            spellings += [(key, letter) for key in dict.fromkeys((pair, unicodedata.normalize("NFD", letter)))]
    return spellings


def _replacement(units: Sequence[int], texts: bytes, key: bytes) -> bytes | None:
    """Text that replaces a key in a compiled normalisation; `untrusted_files.check_charsmap` describes the format."""
    place, unit = 0, units[0]
    for byte in key:
        place ^= (unit >> 10) << ((unit & 0x200) >> 6) ^ byte
        if place >= len(units) or units[place] & 0x800000FF != byte:
            return None
        unit = units[place]
    value = place ^ (unit >> 10) << ((unit & 0x200) >> 6)
    if not unit & 0x100 or value >= len(units):
        return None
    start = units[value] & 0x7FFFFFFF
    return texts[start : texts.find(b"\0", start)]


def all_merges(ranks: Mapping[str, int], made: Container[str] | None = None) -> list[tuple[str, str]]:
    """Merges that SentencePiece makes: every two pieces whose concatenation is a piece, the lowest rank first.

    With `made`, only merges to these pieces are listed.

    SentencePiece makes equal merges from left to right. Of two merges to the same piece that overlap, the left one ends
    in a part with which the piece also begins, so it comes first here. Raises ValueError if there are too many merges:
    pieces of 1, 2, 3 ... n equal letters have n^2 / 2.
    """
    ranked, num_characters = [], 0
    for piece, rank in ranks.items():
        if made is not None and piece not in made:
            continue
        cuts = [cut for cut in range(1, len(piece)) if piece[:cut] in ranks and piece[cut:] in ranks]
        for cut in cuts:
            ranked.append((rank, piece.endswith(piece[:cut]), ranks[piece[:cut]], ranks[piece[cut:]], piece, cut))
        num_characters += len(cuts) * len(piece)
        check_merges(num_characters)
    return [(piece[:cut], piece[cut:]) for *_, piece, cut in sorted(ranked)]


def check_merges(num_characters: int) -> None:
    """Raise ValueError if merges make pieces of too many characters in all; a piece counts each time it is made."""
    if num_characters > MAX_MERGED_CHARACTERS:
        raise ValueError(f"its merges make more than {MAX_MERGED_CHARACTERS:,} characters")
