"""Languages: which one a name or a code means, its scripts and common words, and whether it has spaces between words.

Codes are those of BCP 47 in any spelling, such as `pt-BR`, `por_BR`, `zho_Hant` and `sr_RS@latin`; the package
`langcodes` knows them. `languages.tsv` has the English names of common languages and, for some of them, function words
in lower case that tell the language from others.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import langcodes

import regex

_WORD = regex.compile(r"(?:\p{L}\p{M}*)+")
TABLE = Path(__file__).with_name("languages.tsv")
_ROWS = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]]
_NAMES = {code: name for code, name, _ in _ROWS}
_CODES_BY_NAME = {name.lower(): code for code, name in _NAMES.items()}
COMMON_WORDS = {code: frozenset(words.split()) for code, _, words in _ROWS if words}

_SCRIPTS = {
    **{"Adlm": "Adlam", "Arab": "Arabic", "Armn": "Armenian", "Beng": "Bengali", "Cher": "Cherokee"},
    **{"Cyrl": "Cyrillic", "Deva": "Devanagari", "Ethi": "Ethiopic", "Geor": "Georgian", "Grek": "Greek"},
    **{"Gujr": "Gujarati", "Guru": "Gurmukhi", "Hans": "Han", "Hant": "Han", "Hebr": "Hebrew"},
    **{"Jpan": "Han Hiragana Katakana", "Khmr": "Khmer", "Knda": "Kannada", "Kore": "Hangul Han", "Laoo": "Lao"},
    **{"Latn": "Latin", "Mlym": "Malayalam", "Mong": "Mongolian", "Mymr": "Myanmar", "Nkoo": "Nko", "Orya": "Oriya"},
    **{"Sinh": "Sinhala", "Syrc": "Syriac", "Taml": "Tamil", "Telu": "Telugu", "Tfng": "Tifinagh", "Thaa": "Thaana"},
    **{"Thai": "Thai", "Tibt": "Tibetan"},
}
"""Unicode names of scripts by their codes in ISO 15924."""
_SCRIPT_ALIASES = {"Hang": "Kore", "Hrkt": "Jpan", "Aran": "Arab"}
_DIGRAPHIC = {"crh": ("Cyrillic", "Latin"), "ku": ("Arabic", "Latin"), "sr": ("Cyrillic", "Latin")}
"""Scripts of languages that are commonly written in two; `langcodes` has only the likelier one."""
_SAME_LANGUAGES = {"fil": "tl", "nb": "no", "pbt": "ps", "quy": "qu"}
"""Codes of one language that `langcodes` keeps apart."""
_OLD_SUBTAGS = {"chs": "Hans", "cht": "Hant"}
"""Scripts in codes of old translation tools, such as `zh-CHT`."""
_MODIFIERS = {"latin": "Latn", "cyrillic": "Cyrl", "devanagari": "Deva", "arabic": "Arab"}
"""Scripts in modifiers of POSIX locales, such as `sr_RS@latin`."""
CHINESE = frozenset({"cdo", "gan", "hak", "hsn", "lzh", "nan", "wuu", "yue", "zh"})
_SPACELESS_LANGUAGES = CHINESE | {"bo", "dz", "ja", "km", "lo", "my", "nod", "shn", "th"}
_SPACELESS_SCRIPTS = frozenset(
    {"Bopo", "Hani", "Hans", "Hant", "Hira", "Hrkt", "Jpan", "Kana", "Khmr", "Laoo", "Mymr", "Thai", "Tibt"}
)
LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,3}([_-][A-Za-z0-9]+)*")
"""Form of a code, known or not, perhaps with script and region."""
NO_CODES = frozenset(
    {"bpe", "cln", "csv", "dat", "dev", "doc", "hyp", "in", "inp", "lc", "log", "lst", "new", "old", "one", "out", "pe"}
    | {"raw", "ref", "seg", "sgm", "spm", "src", "sys", "tc", "tgt", "tmp", "tok", "trg", "two", "txt", "url", "val"}
    | {"vec", "xml"}
)
"""Suffixes of files and names of columns that do not mean a language, although most are codes in the registry."""
_NO_LANGUAGES = re.compile(r"und|mul|mis|zxx|art|q[a-t][a-z]")
"""Codes for no language, for several, and for private use."""
_NUMBERS = frozenset({"id", "no"})
"""Codes that mean a number beside a word, as in `text_id` and `line_no`."""
_PARTS_OF_NAME = re.compile(
    r"(?P<word>[A-Za-z]{3,})[_.-](?P<code>[A-Za-z]{2,3}(?:[_-][A-Za-z]{4})?(?:[_-](?:[A-Z]{2}|\d{3}))?)"
    r"|(?P<first>[A-Za-z]{2,3}(?:[_-][A-Z][a-z]{3})?(?:[_-](?:[A-Z]{2}|\d{3}))?)[_.-](?P<last>[A-Za-z]{3,})"
)
SOUTHEAST_ASIAN = "\u0e00-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u19e0-\u19ff"
"""Thai, Lao, Tibetan, Myanmar and Khmer characters, for the brackets of a regular expression."""
SPACELESS = (
    f"{SOUTHEAST_ASIAN}"
    "\u2e80-\u312f\u3190-\u31ff\u3220-\u325f\u3280-\u9fff\uf900-\ufaff"  # Han, kana, Bopomofo and their marks.
    "\ufe10-\ufe1f\ufe30-\ufe4f\uff00-\uff20\uff3b-\uff40\uff5b-\uff9f\uffe0-\uffef"  # Full width, except letters.
    "\U0001aff0-\U0001b16f\U00020000-\U0003ffff"  # Rare kana and Han.
)
"""Characters of the scripts without spaces between words, for the brackets of a regular expression."""
SPACELESS_CHARACTER = re.compile(f"[{SPACELESS}]")


@lru_cache(maxsize=10_000)
def primary(code: str) -> str:
    """Language of a code, without region and script, as a two-letter code if it has one: `pt` for `por_BR`.

    The usual language of a macrolanguage is that macrolanguage: `npi` and `ne` are `ne`, `nb` and `no` are `no`.
    """
    language = re.split("[-_.@]", code.lower(), maxsplit=1)[0]
    if language not in _NAMES and re.fullmatch("[a-z]{2,3}", language):
        import langcodes  # Takes a while.

        language = langcodes.standardize_tag(language, macro=True).partition("-")[0]
    return _SAME_LANGUAGES.get(language, language)


@lru_cache(maxsize=10_000)
def parsed(code: str) -> langcodes.Language | None:
    """Parts of a code in any spelling; None for a text that is not a code."""
    import langcodes

    locale, _, modifier = code.replace("_", "-").lower().partition("@")
    language, *subtags = locale.partition(".")[0].split("-")
    script = [_MODIFIERS.get(modifier, modifier)] if modifier else []
    try:
        return langcodes.Language.get("-".join([language, *script, *(_OLD_SUBTAGS.get(tag, tag) for tag in subtags)]))
    except ValueError:
        return None


def script_of(code: str) -> str | None:
    """Code of the script that a language code names, otherwise of its likely script; None if it is unknown."""
    tag = parsed(code)
    if tag is None:
        return None
    script = tag.script
    if script is None:
        likely = tag.maximize()
        # Of a language that `langcodes` does not know, the likely script and territory are those of English.
        is_unknown = (likely.script, likely.territory) == ("Latn", "US") and not tag.territory and tag.language != "en"
        script = None if is_unknown else likely.script
    return _SCRIPT_ALIASES.get(script, script) if script else None


def scripts_of(language: str) -> tuple[str, ...] | None:
    """Unicode names of the scripts of a language, or of the script in its code; None if they are unknown."""
    if _named_script(language) is None and (scripts := _DIGRAPHIC.get(primary(language))):
        return scripts
    names = _SCRIPTS.get(script_of(language) or "")
    return tuple(names.split()) if names else None


def code_with_script(language: str, script: str) -> str:
    """Code of a language with a script, given by its Unicode name: `sr_Cyrl` for Serbian and Cyrillic."""
    codes = [code for code, names in _SCRIPTS.items() if names == script]
    return "_".join([language.replace("-", "_").split("_")[0], *codes[:1]])


def scripts_in(text: str) -> set[str]:
    """Unicode names of the scripts to which a tenth or more of the letters of a text belong."""
    names = (unicodedata.name(letter, "?").split()[0].title() for letter in text if letter.isalpha())
    counts = Counter("Han" if name == "Cjk" else name for name in names)
    return {script for script, count in counts.items() if 10 * count >= counts.total()}


def _named_script(language: str) -> str | None:
    """Script that a language code names: `Hans` for `zho_Hans`."""
    for subtag in language.replace("_", "-").split("-")[1:]:
        if len(subtag) == 1:  # An extension or private use follows.
            return None
        if len(subtag) == 4 and subtag.isalpha():
            return subtag.title()
    return None


def language_name(code: str) -> str:
    """English name of the language of a code; the code if it is not known."""
    language = primary(code)
    if language in _NAMES:
        return _NAMES[language]
    from langcodes.registry_parser import parse_registry  # Takes a while.

    entries = (entry for entry in parse_registry() if entry.get("Subtag") == language and entry["Type"] == "language")
    return str(next((entry["Description"][0] for entry in entries), code))


@lru_cache(maxsize=1_000)
def is_known(code: str) -> bool:
    """True if a text is a code of BCP 47 for a language, perhaps with script and region.

    Many short words are such codes: `all`, `the`, `dog`. Names in `NO_CODES` do not count.
    """
    language = re.split("[_-]", code.lower())[0]
    if not LANGUAGE_CODE.fullmatch(code) or language in NO_CODES or _NO_LANGUAGES.fullmatch(language):
        return False
    import langcodes

    # `en-yor` is two languages, although the grammar of tags permits it.
    return langcodes.tag_is_valid(code) and not langcodes.Language.get(code, normalize=False).extlangs


def is_common(code: str) -> bool:
    """True if a text is the code of a language in `languages.tsv`, perhaps with script and region."""
    return primary(code) in _NAMES and is_known(code)


def language_in(name: str) -> str | None:
    """Code of the language that a header, a key or the suffix of a file means; None if it means none.

    It is a code (`EN`, `zho_Hant`, `es_419`) or an English name, alone or beside one word: `text_en`, `de-source`,
    `Italian text`. A code without a script counts beside a word only if its language is common.
    """
    name = name.strip()
    if is_known(name):
        return name
    words = re.findall(r"[^\W_]+", name.lower())
    if len(words) <= 2 and (codes := [_CODES_BY_NAME[word] for word in words if word in _CODES_BY_NAME]):
        return codes[0] if len(codes) == 1 else None
    match = _PARTS_OF_NAME.fullmatch(name)
    code = match and (match["code"] or match["first"])
    if not code or code.lower() in _NUMBERS or not (is_common(code) or (_named_script(code) and is_known(code))):
        return None
    return code


def writes_spaces(language: str) -> bool:
    """True if a language has spaces between words. A script in the code decides alone: `zh-Latn` has spaces."""
    script = _named_script(language)
    if script in _SPACELESS_SCRIPTS:
        return False
    return _SCRIPT_ALIASES.get(str(script), script) in _SCRIPTS or primary(language) not in _SPACELESS_LANGUAGES


def marks_words(language: str) -> bool:
    """True if spaces or marks separate words, or at least syllables as in Tibetan."""
    return writes_spaces(language) or primary(language) in ("bo", "dz")


def bleu_tokenizer(language: str) -> str:
    """SacreBLEU tokenizer for a language: `zh` or `char` if spaces do not separate words, otherwise `13a`.

    Korean has spaces, but its words correspond to phrases of other languages. sacreBLEU recommends `ko-mecab` and
    `ja-mecab`; they need packages, and a score should not depend on what is installed.
    """
    if writes_spaces(language):
        return "char" if primary(language) == "ko" and _named_script(language) != "Latn" else "13a"
    return "zh" if primary(language) in CHINESE else "char"


def words_of(text: str) -> set[str]:
    """Distinct words of a text in lower case, composed; letters keep marks that no composed letter has."""
    return set(_WORD.findall(unicodedata.normalize("NFC", text).lower()))


def language_of(words: frozenset[str] | set[str]) -> str | None:
    """Known language with the most common words among `words`, if there are at least two."""
    hits = {code: len(common & words) for code, common in COMMON_WORDS.items()}
    best = max(hits, key=lambda code: hits[code])
    return best if hits[best] >= 2 else None
