"""A model that knows a few sentences by heart; what it does not know keeps its words, in capitals."""

import re

LANGUAGES = {"ar": ("Arabic", "العربية", True), "de": ("German", "Deutsch", False), "en": ("English", "English", False)}
LANGUAGES["he"] = ("Hebrew", "עברית", True)
DIRECTIONS = [("en", "de"), ("de", "en"), ("en", "ar"), ("ar", "en"), ("en", "he"), ("he", "en")]

KNOWN = {
    ("en", "de", "A dog runs."): ("Ein Hund läuft.", [0.93, 0.55, 0.31], ["Ein Hund rennt.", "Es läuft ein Hund."]),
    ("en", "de", "The children sleep."): ("Die Kinder schlafen.", [0.96, 0.9, 0.85], ["Die Kinder schliefen."]),
    ("de", "en", "Ein Hund läuft."): ("A dog runs.", [0.9, 0.9, 0.6], ["A dog is running."]),
    ("en", "ar", "A dog runs."): ("كلب يجري.", [0.8, 0.5], ["يركض كلب."]),
    ("en", "he", "A dog runs."): ("כלב רץ.", [0.8, 0.5], ["רץ כלב."]),
    ("ar", "en", "كلب يجري."): ("A dog runs.", [0.9, 0.8, 0.7], ["A dog is running."]),
    ("he", "en", "כלב רץ."): ("A dog runs.", [0.9, 0.8, 0.7], ["A dog is running."]),
}


def detect(text):
    """Language code of a text, by its letters and a few German words."""
    if re.search("[؀-ۿ]", text):
        return "ar"
    if re.search("[֐-׿]", text):
        return "he"
    return "de" if re.search(r"\b(ein|hund|läuft|der|die|das|und|ist|kinder|nicht)\b", text.lower()) else "en"


def sentences(text):
    """`(before, sentence, after)` of each sentence; their concatenation is the text."""
    pieces = [list(match.groups()) for match in re.finditer(r"(\s*)(\S[^.!?؟\n]*[.!?؟]*)()", text)]
    end = sum(len("".join(piece)) for piece in pieces)
    if pieces:
        pieces[-1][2] = text[end:]
    return pieces or [[text, "", ""]]


def words(text):
    """Start and end of each word, in code points."""
    return [list(match.span()) for match in re.finditer(r"\w+", text)]


def translate_sentence(text, source, target):
    """`(translation, confidence of its words, alternatives)`."""
    unknown = text.upper()
    sure = [(0.97, 0.82, 0.64, 0.91, 0.35)[start % 5] for start, _ in words(unknown)]
    return KNOWN.get((source, target, text), (unknown, sure, []))


def align(source_words, target_words):
    """Pairs of indices from left to right; where a side has fewer words, the last ones of the other share its last."""
    longest = max(len(source_words), len(target_words)) if source_words and target_words else 0
    return [[min(i, len(source_words) - 1), min(i, len(target_words) - 1)] for i in range(longest)]
