"""Spelling of text as a tokenizer reads it: Unicode forms, case, apostrophes and replaced letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import normalize

import regex
from tokenizers import Regex, normalizers

from mt_cli.config.sections import LETTER, TokenizerConfig
from mt_cli.corpus.clean_text import NOISE

ALL_APOSTROPHES = "'’ʼ‘ʻ`´′ʹꞌ＇"
"""The apostrophe, and characters that are written in its place inside words."""
APOSTROPHES = ALL_APOSTROPHES.removeprefix("'")
"""Characters that are written in place of the apostrophe `'` inside words."""
JOINED_APOSTROPHES = ALL_APOSTROPHES.replace("`", "")
"""Apostrophes that may be joined with a word. A backtick beside a space is markup: it opens a literal or a role."""
LOOK_ALIKE_MARKS = ("\u0323\u0329\u0331", "\u0326\u0327", "\u0306\u030c")
"""Combining marks that are written in place of each other: dot, vertical line and macron below, as in Yoruba; comma
below and cedilla, as in Romanian; breve and caron."""
_AFTER_LETTER = r"\p{L}\p{M}{0,3}"
_BEGINNING_OF_WORD = (
    rf"[{JOINED_APOSTROPHES}]\p{{L}}[\p{{L}}\p{{M}}]*+(?:[{JOINED_APOSTROPHES}][\p{{L}}\p{{M}}]++)*+"
    rf"(?![{JOINED_APOSTROPHES}])"
)
"""An apostrophe and the letters after it. With a closing mark, they are a quotation of one word."""


def _replace(pattern: str, content: str) -> Any:
    return normalizers.Replace(Regex(pattern), content)


NORMALIZATIONS: Mapping[str, Sequence[Any]] = {
    "nfkc": (normalizers.NFKC(),),
    "joined_apostrophes": (
        _replace(rf"(?<={_AFTER_LETTER} [{JOINED_APOSTROPHES}]) (?=\p{{L}})", ""),  # The second space of `ch ' a`.
        _replace(rf"(?<={_AFTER_LETTER}) (?={_BEGINNING_OF_WORD})", ""),
    ),
    "apostrophes": (_replace(rf"(?<={_AFTER_LETTER})[{APOSTROPHES}](?=\p{{L}})", "'"),),
    "lowercase": (normalizers.Lowercase(),),
}
"""Steps for each value of `tokenizer.normalize`, in the order in which they are applied."""


def normalization(config: TokenizerConfig) -> list[Any]:
    """Steps that change a text before it is split: noise left out, letters composed, then `normalize` and `letters`.

    Letters are put in lower case after they are replaced.
    """
    names = config.normalize
    steps = [_replace(NOISE, ""), normalizers.NFC()]
    steps += [step for name, some in NORMALIZATIONS.items() if name in names and name != "lowercase" for step in some]
    steps += [normalizers.Replace(old, new) for old, new in _letters_in_both_cases(config.letters)]
    return steps + [normalizers.Lowercase()] * ("lowercase" in names)


def _letters_in_both_cases(letters: Mapping[str, str]) -> list[tuple[str, str]]:
    """Replacements of letters in lower and upper case, longer letters first."""
    letters = {normalize("NFC", old): normalize("NFC", new) for old, new in letters.items()}
    swapped = {old.swapcase(): new.swapcase() for old, new in letters.items()}
    pairs = [
        (old, new)
        for old, new in {**letters, **swapped, **letters}.items()  # Some letters have no single one in the other case.
        if old != new and regex.fullmatch(LETTER, old) and (not new or regex.fullmatch(LETTER, new))
    ]
    return sorted(pairs, key=lambda pair: -len(pair[0]))
