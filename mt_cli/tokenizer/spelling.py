"""Spelling of text as a tokenizer reads it: Unicode forms, case, apostrophes and replaced letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Regex, normalizers

from mt_cli.config.sections import ALL_APOSTROPHES, TokenizerConfig
from mt_cli.corpus.text_hashes import AS_WRITTEN, Spelling

APOSTROPHES = ALL_APOSTROPHES.removeprefix("'")
"""Characters that are written in place of the apostrophe `'` inside words."""
JOINED_APOSTROPHES = ALL_APOSTROPHES.replace("`", "")
"""Apostrophes that may be joined with a word. A backtick beside a space is markup: it opens a literal or a role."""
_AFTER_LETTER = r"\p{L}\p{M}{0,3}"
_BEGINNING_OF_WORD = (
    rf"[{JOINED_APOSTROPHES}]\p{{L}}[\p{{L}}\p{{M}}]*+(?:[{JOINED_APOSTROPHES}][\p{{L}}\p{{M}}]++)*+"
    rf"(?![{JOINED_APOSTROPHES}])"
)
"""An apostrophe and the letters after it. With a closing mark, they are a quotation of one word."""


def _replace(pattern: str, content: str) -> Any:
    return normalizers.Replace(Regex(pattern), content)


NORMALIZATIONS: Mapping[str, Sequence[Any]] = {
    "nfc": (normalizers.NFC(),),
    "joined_apostrophes": (
        _replace(rf"(?<={_AFTER_LETTER} [{JOINED_APOSTROPHES}]) (?=\p{{L}})", ""),  # The second space of `ch ' a`.
        _replace(rf"(?<={_AFTER_LETTER}) (?={_BEGINNING_OF_WORD})", ""),
    ),
    "apostrophes": (_replace(rf"(?<={_AFTER_LETTER})[{APOSTROPHES}](?=\p{{L}})", "'"),),
}
"""Steps for each value of `tokenizer.normalize`, in the order in which they are applied."""


def normalization(config: TokenizerConfig) -> list[Any]:
    """Steps that change a text before it is split."""
    return [normalizers.NFKC()] * config.nfkc + _spelling_steps(config) + [normalizers.Lowercase()] * config.lowercase


def _spelling_steps(config: TokenizerConfig) -> list[Any]:
    """Steps of `tokenizer.normalize` and `tokenizer.letters`. Letters are composed before they are replaced."""
    steps = [step for name, some in NORMALIZATIONS.items() if name in config.changes_of_spelling for step in some]
    return steps + [normalizers.Replace(old, new) for old, new in config.letters_in_both_cases]


def spelling_of(config: TokenizerConfig) -> Spelling:
    """Spelling that the tokenizers of a config give a text; SentencePiece models are assumed to use NFKC."""
    config = config.model_copy(update={"nfkc": config.nfkc or config.algorithm == "sentencepiece"})
    if not (config.nfkc or config.lowercase or config.changes_of_spelling):
        return AS_WRITTEN
    key = [config.nfkc, config.lowercase, *config.changes_of_spelling]
    return Spelling(key, normalizers.Sequence(normalization(config)).normalize_str)


def respelled(text: str, config: TokenizerConfig) -> str:
    """Text with the spelling of `tokenizer.normalize` and `tokenizer.letters`."""
    return str(normalizers.Sequence(_spelling_steps(config)).normalize_str(text))
