"""Text in composed form, without soft hyphens and zero-width characters, as all models read it."""

from __future__ import annotations

import re
from unicodedata import normalize

_INVISIBLE = "\u00ad\u200b\u2060\ufeff"
NOISE = rf"\A[{_INVISIBLE}]++ ?| [{_INVISIBLE}]++(?= |$)|[{_INVISIBLE}]++"
"""Soft hyphens, zero-width spaces and word joiners, with a space beside them if they stand alone.

U+200C and U+200D are no noise: they join letters and emoji."""
_NOISE = re.compile(NOISE)


def without_noise(text: str) -> str:
    """Text without soft hyphens and zero-width characters; a space remains between two words."""
    return text if text.isascii() else _NOISE.sub("", text)


def composed(text: str) -> str:
    return text if text.isascii() else normalize("NFC", text)


def cleaned(text: str) -> str:
    return composed(without_noise(text))
