"""Languages: codes, scripts, the most common words of some, and whether spaces separate their words.

`languages.tsv` has a line for each common language: its code in ISO 639-1 (or 639-3), its English name, its codes in
ISO 639-2 and 639-3, the Unicode names of its scripts, and function words in lower case that tell it from other
languages. The codes of other languages are in the registry of BCP 47, which is part of the package `langcodes`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from pathlib import Path

import regex

_WORD = regex.compile(r"(?:\p{L}\p{M}*)+")
TABLE = Path(__file__).with_name("languages.tsv")

_ROWS = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
_SHORT_CODES = {long: code for code, _, longs, _, _ in _ROWS for long in longs.split()}
_SCRIPTS = {code: tuple(scripts.split()) for code, _, _, scripts, _ in _ROWS}
COMMON_WORDS = {code: frozenset(words.split()) for code, _, _, _, words in _ROWS if words}
_CODES_BY_NAME = {name.lower(): code for code, name, *_ in _ROWS}
COMMON_WORDS["nb"] = COMMON_WORDS["no"]

_SCRIPT_CODES = {
    **{"arab": "Arabic", "armn": "Armenian", "beng": "Bengali", "cyrl": "Cyrillic", "deva": "Devanagari"},
    **{"ethi": "Ethiopic", "geor": "Georgian", "grek": "Greek", "gujr": "Gujarati", "guru": "Gurmukhi"},
    **{"hang": "Hangul Han", "hans": "Han", "hant": "Han", "hebr": "Hebrew", "jpan": "Han Hiragana Katakana"},
    **{"khmr": "Khmer", "knda": "Kannada", "laoo": "Lao", "latn": "Latin", "mlym": "Malayalam", "mymr": "Myanmar"},
    **{"sinh": "Sinhala", "taml": "Tamil", "telu": "Telugu", "thai": "Thai", "tibt": "Tibetan"},
}
CHINESE = frozenset({"cdo", "gan", "hak", "hsn", "lzh", "nan", "wuu", "yue", "zh"})
"""The Chinese languages."""
_SPACELESS_LANGUAGES = CHINESE | {"bo", "dz", "ja", "km", "lo", "my", "nod", "shn", "th"}
_SPACELESS_SCRIPTS = frozenset(
    {"bopo", "hani", "hans", "hant", "hira", "hrkt", "jpan", "kana", "khmr", "laoo", "mymr", "thai", "tibt"}
)
LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}([_-][A-Za-z0-9]+)*")
"""Form of a code, known or not, perhaps with script and region."""
NO_CODES = frozenset(
    {"bpe", "cln", "csv", "dat", "dev", "doc", "hyp", "in", "inp", "lc", "log", "lst", "new", "old", "one", "out", "pe"}
    | {"raw", "ref", "seg", "sgm", "spm", "src", "sys", "tc", "tgt", "tmp", "tok", "trg", "two", "txt", "url", "val"}
    | {"vec", "xml"}
)
"""Names of files and columns that do not stand for languages, although most are codes in the registry."""
_WORDS_FOR_TEXT = frozenset(
    {"caption", "content", "input", "lang", "language", "line", "output", "phrase", "segment", "sent", "sentence"}
    | {"source", "src", "string", "target", "text", "tgt", "translation", "trg", "utterance"}
)
_NUMBERS_OF_TEXT = frozenset({"id", "no"})
"""Codes that mean a number beside a word, as in `text_id` and `line_no`."""
_CODE = "[A-Za-z]{2,3}(?:[_-][A-Z][a-z]{3})?(?:[_-][A-Z]{2})?"
_CODE_BESIDE_WORD = re.compile(
    rf"(?P<before>[A-Za-z]{{3,}})[_.-](?P<second>{_CODE})|(?P<first>{_CODE})[_.-](?P<after>[A-Za-z]{{3,}})"
)
_NO_LANGUAGES = re.compile(r"und|mul|mis|zxx|art|q[a-t][a-z]")
"""Codes for no language, for several, and for private use."""
SOUTHEAST_ASIAN = "\u0e00-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u19e0-\u19ff"
"""Thai, Lao, Tibetan, Myanmar and Khmer characters, for the brackets of a regular expression."""
SPACELESS = (
    f"{SOUTHEAST_ASIAN}"
    "\u2e80-\u312f\u3190-\u31ff\u3220-\u325f\u3280-\u9fff\uf900-\ufaff"  # Han, kana, Bopomofo and their marks.
    "\ufe10-\ufe1f\ufe30-\ufe4f\uff00-\uff20\uff3b-\uff40\uff5b-\uff9f\uffe0-\uffef"  # Full width, except letters.
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"  # Rare kana and Han.
)
"""Characters of the scripts without spaces between words, for the brackets of a regular expression."""


def primary(code: str) -> str:
    """Language of a code, without region and script, as a two-letter code if it has one: `pt` for `por_BR`."""
    language = code.replace("_", "-").partition("-")[0].lower()
    if language in _SCRIPTS or language in _SHORT_CODES:
        return _SHORT_CODES.get(language, language)
    return _registered(language) or language


def language_name(code: str) -> str:
    """English name of the language of a code, from `languages.tsv` or the registry; the code if it is not known."""
    language = primary(code)
    if name := next((row[1] for row in _ROWS if row[0] == language), None):
        return name
    from langcodes.registry_parser import parse_registry  # Takes a while.

    entries = (entry for entry in parse_registry() if entry.get("Subtag") == language and entry["Type"] == "language")
    return str(next((entry["Description"][0] for entry in entries), code))


def is_common(code: str) -> bool:
    """Whether a text is the code of a language in `languages.tsv`, perhaps with script and region."""
    return primary(code) in _SCRIPTS and _has_form_of_code(code)


def is_known(code: str) -> bool:
    """Whether a text is the code of a language in `languages.tsv` or the registry, perhaps with script and region.

    Many short words are codes in the registry: `all`, `the`, `dog`. Names in `NO_CODES` do not count.
    """
    language = re.split("[_-]", code.lower())[0]
    return (primary(code) in _SCRIPTS or _registered(language) is not None) and _has_form_of_code(code)


@lru_cache(maxsize=1_000)
def _has_form_of_code(code: str) -> bool:
    """Whether a text has the form of a code, and script, region and variants behind a language are in the registry."""
    language, *subtags = re.split("[_-]", code)
    if LANGUAGE_CODE.fullmatch(code) is None or language.lower() in NO_CODES:
        return False
    if not subtags:
        return True
    import langcodes  # Takes a while.

    # `en-yor` is two languages, although the grammar of tags permits it.
    return langcodes.tag_is_valid(code) and not langcodes.Language.get(code, normalize=False).extlangs


@lru_cache(maxsize=1_000)
def _registered(language: str) -> str | None:
    """Shortest code for a code of two or three letters in the registry; None if it is no language."""
    if not re.fullmatch("[a-z]{2,3}", language) or _NO_LANGUAGES.fullmatch(language):
        return None
    import langcodes

    return langcodes.standardize_tag(language).partition("-")[0] if langcodes.tag_is_valid(language) else None


def code_in_heading(name: str) -> str | None:
    """Language that the name of a column stands for: `en`, `German`, `text_en`, `de-source`, `sentence_por_Latn`.

    A code beside a word counts if the word stands for text, such as `sentence`, or if the code has a script.
    """
    if is_common(name):
        return name
    if code := _CODES_BY_NAME.get(name.strip().lower()):
        return code
    match = _CODE_BESIDE_WORD.fullmatch(name)
    if match is None:
        return None
    word, code = match["before"] or match["after"], match["second"] or match["first"]
    is_language = is_common(code) and code.lower() not in _NUMBERS_OF_TEXT
    return code if is_language and (word.lower() in _WORDS_FOR_TEXT or _script_of(code)) else None


def scripts_of(language: str) -> tuple[str, ...] | None:
    """Unicode names of the scripts of a language, or of the script in its code; None if unknown."""
    script = _script_of(language)
    if script is None:
        return _SCRIPTS.get(primary(language))
    return tuple(_SCRIPT_CODES[script].split()) if script in _SCRIPT_CODES else None


def _script_of(language: str) -> str | None:
    """Script in a language code, in lower case: `hans` for `zho_Hans`."""
    for subtag in language.replace("_", "-").lower().split("-")[1:]:
        if len(subtag) == 1:  # An extension or private use follows.
            return None
        if len(subtag) == 4 and subtag.isalpha():
            return subtag
    return None


def code_with_script(language: str, script: str) -> str:
    """Code of a language with a script, given by its Unicode name: `sr_Cyrl` for Serbian and Cyrillic."""
    codes = [code for code, names in _SCRIPT_CODES.items() if names == script]
    return "_".join([language.replace("-", "_").split("_")[0], *(code.title() for code in codes[:1])])


def scripts_in(text: str) -> set[str]:
    """Unicode names, as in `languages.tsv`, of the scripts to which a tenth or more of the letters of a text belong."""
    names = (unicodedata.name(letter, "?").split()[0].title() for letter in text if letter.isalpha())
    counts = Counter("Han" if name == "Cjk" else name for name in names)
    return {script for script, count in counts.items() if 10 * count >= counts.total()}


def writes_spaces(language: str) -> bool:
    """Whether a language has spaces between words. A script in the code decides alone: `zh-Latn` has spaces."""
    script = _script_of(language)
    if script in _SPACELESS_SCRIPTS:
        return False
    return script in _SCRIPT_CODES or primary(language) not in _SPACELESS_LANGUAGES


def marks_words(language: str) -> bool:
    """Whether spaces or marks separate words, or at least syllables as in Tibetan."""
    return writes_spaces(language) or primary(language) in ("bo", "dz")


def bleu_tokenizer(language: str) -> str:
    """SacreBLEU tokenizer for a language: `zh` or `char` if spaces do not separate words, otherwise `13a`.

    Korean has spaces, but its words correspond to phrases of other languages. sacreBLEU recommends `ko-mecab` and
    `ja-mecab`; they need packages, and a score should not depend on what is installed.
    """
    if writes_spaces(language):
        return "char" if primary(language) == "ko" and _script_of(language) != "latn" else "13a"
    return "zh" if primary(language) in CHINESE else "char"


def words_of(text: str) -> set[str]:
    """Distinct words of a text in lower case, composed; letters keep marks that no composed letter has."""
    return set(_WORD.findall(unicodedata.normalize("NFC", text).lower()))


def language_of(words: frozenset[str] | set[str]) -> str | None:
    """Known language with the most common words among `words`, if there are at least two."""
    hits = {code: len(common & words) for code, common in COMMON_WORDS.items()}
    best = max(hits, key=lambda code: hits[code])
    return best if hits[best] >= 2 else None
