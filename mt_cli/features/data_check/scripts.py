"""Scripts of whole sentences: how many sentences of a text are in each script. Knows scripts, no corpus.

Names and terms in another script are no sentences in it. Japanese and Korean mix scripts by nature. Chinese is
simplified or traditional by characters that only one of the two has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mt_cli.corpus.languages import CHINESE, primary, scripts_in

_MIN_LETTERS = 8
_MIXED_BY_NATURE = ("ja", "ko")
_SIMPLIFIED = "们这来时说对会国过还进东车马门问间见长书学习写读语话认识让爱听应该实现发电视关开网络钱买卖"
_TRADITIONAL = "們這來時說對會國過還進東車馬門問間見長書學習寫讀語話認識讓愛聽應該實現發電視關開網絡錢買賣"
_PAIRS = [(new, old) for new, old in zip(_SIMPLIFIED, _TRADITIONAL, strict=True) if new != old]
_HAN = {
    "simplified Han": "".join(new for new, _ in _PAIRS),
    "traditional Han": "".join(old for _, old in _PAIRS),
}
"""Characters of one of the two standards; the other one and Japanese write most of them otherwise."""

Codes = NDArray[np.int8]
"""For each sentence, the index of its script; -1 if it is too short or in none."""


def scripts_of_sentences(texts: pa.StringArray, names: Sequence[str]) -> Codes:
    """The script of each sentence among `names`: the one that more than half of its letters are in.

    A single name is the script of all.
    """
    if len(names) == 1:
        return np.zeros(len(texts), np.int8)
    codes: Codes = np.full(len(texts), -1, np.int8)
    num_letters = _num_characters(texts, r"\pL")
    is_long = num_letters >= _MIN_LETTERS
    if list(names) == list(_HAN):
        simplified, traditional = (_num_characters(texts, f"[{characters}]") for characters in _HAN.values())
        codes[is_long & (simplified > traditional)] = 0
        codes[is_long & (traditional > simplified)] = 1
        return codes
    for index, name in enumerate(names):
        codes[is_long & (2 * _num_characters(texts, rf"\p{{{name}}}") > num_letters)] = index
    return codes


def candidates(texts: Sequence[str], language: str) -> list[str]:
    """Scripts that some sentences are in; for Chinese, the two standards. Empty if the language mixes scripts."""
    if primary(language) in _MIXED_BY_NATURE:
        return []
    found = Counter[str]()
    for text in texts:
        found.update(scripts_in(text) & _KNOWN)
    if primary(language) in CHINESE and found.most_common(1) and found.most_common(1)[0][0] == "Han":
        return [*_HAN]
    return [name for name, _ in found.most_common()]


def expected_standard(language: str) -> str | None:
    """The standard of Chinese characters that the script or region of a code names, as in `zh_Hant` or `zh-TW`."""
    subtags = {*language.replace("_", "-").lower().split("-")[1:]} if primary(language) in CHINESE else set()
    for name, codes in zip(_HAN, ({"hans", "cn", "sg"}, {"hant", "tw", "hk", "mo"}), strict=True):
        if subtags & codes:
            return name
    return None


def _num_characters(texts: pa.StringArray, kind: str) -> NDArray[np.int64]:
    """How many characters of each text are of a kind, an RE2 class."""
    others = f"[^{kind.removeprefix('[').removesuffix(']')}]+"
    kept = pc.replace_substring_regex(texts, others, "")
    counts: NDArray[np.int64] = pc.utf8_length(kept).to_numpy(zero_copy_only=False)
    return counts


_KNOWN = frozenset(
    {"Arabic", "Armenian", "Bengali", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati", "Gurmukhi"}
    | {"Han", "Hangul", "Hebrew", "Hiragana", "Kannada", "Katakana", "Khmer", "Lao", "Latin", "Malayalam", "Myanmar"}
    | {"Mongolian", "Oriya", "Sinhala", "Tamil", "Telugu", "Thai", "Tibetan", "Tifinagh", "Thaana"}
)
"""Scripts that RE2 has by the names of `scripts_in`."""
