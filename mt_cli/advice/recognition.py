"""Text that is in another language than its name says, by the package `py3langid`, which knows 139 languages.

`py3langid` takes a language that it does not know for its nearest neighbour, so a result for a line counts only if
nearly all lines agree. `mt data check` and `mt serve` use this module: training never depends on it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import regex

from mt_cli.corpus.languages import language_of, primary

_LETTERS = regex.compile(r"[^\W\d_]+")
_LINES_EXAMINED, _FEWEST_LINES = 100, 5
_CONFIDENCE, _AGREEMENT = 0.5, 0.8
"""Minimum confidence for a line, and minimum share of lines that confidently have the same language."""
_NOT_BELIEVED = frozenset({"und", "zxx", "dz"})
"""Labels that are ignored: labels for no language, and Dzongkha, which is also the label for Tibetan."""
_NEAR = 20
"""Distance in CLDR below which languages, such as Norwegian and Danish, are not told apart."""
_WHOLES = {"ckb": "ku", "grc": "el", "hbo": "he", "nn": "no", "sdh": "ku", "yue": "zh"}
"""Macrolanguages by the codes of languages that belong to them, and that CLDR finds distant."""


def other_language_of_texts(texts: Sequence[str], language: str) -> str | None:
    """Language of the texts if it is clearly another one than `language`; None otherwise."""
    expected = primary(language)
    if _language_by_words(texts) == expected or expected not in _identifier().labels:
        return None
    voted = _language_by_vote(texts)
    return None if voted is None or are_near(voted, expected) else voted


def _language_by_words(texts: Sequence[str]) -> str | None:
    """Language of most texts with common words, if these are more than a twentieth; None if unclear."""
    votes = Counter(filter(None, (language_of(set(_LETTERS.findall(text.lower()))) for text in texts)))
    code, count = votes.most_common(1)[0] if votes else (None, 0)
    return code if 2 * count > votes.total() and 20 * count > len(texts) else None


def _language_by_vote(texts: Sequence[str]) -> str | None:
    """Language that `py3langid` names for nearly all of a hundred lines, evenly spread; None if unclear."""
    lines = [text for text in texts if _LETTERS.search(text)]
    if len(lines) < _FEWEST_LINES:
        return None
    chosen = [lines[index * len(lines) // _LINES_EXAMINED] for index in range(_LINES_EXAMINED)]
    results = map(_identifier().classify, dict.fromkeys(chosen))
    votes = Counter(label if confidence >= _CONFIDENCE else "und" for label, confidence in results)
    label, count = votes.most_common(1)[0]
    return primary(label) if label not in _NOT_BELIEVED and count >= _AGREEMENT * votes.total() else None


def rank_languages(text: str) -> list[tuple[str, float]]:
    """All languages that `py3langid` knows, the likeliest first, with their probabilities; none without letters."""
    scores = defaultdict[str, float](float)
    if _LETTERS.search(text):
        for label, score in _identifier().rank(text):
            if label not in _NOT_BELIEVED:
                scores[primary(label)] += float(score)
    return sorted(scores.items(), key=lambda row: -row[1])


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # Its model takes half a second.

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def are_near(language: str, second: str) -> bool:
    """True if one of two languages belongs to the other, as Egyptian to Arabic, or is easily taken for it."""
    import langcodes

    is_same = _WHOLES.get(language, language) == _WHOLES.get(second, second)
    pairs = ((language, second), (second, language))  # The distance depends on the direction.
    return is_same or min(langcodes.tag_distance(*pair) for pair in pairs) < _NEAR
