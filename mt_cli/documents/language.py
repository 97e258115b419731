"""The one place that decides which texts of documents are language, and which are copied."""

from __future__ import annotations

import re

from mt_cli.corpus.sentences import has_letters
from mt_cli.documents.texts import SURROGATE
from mt_cli.translation.inline_marks import InlineMarks

_IDENTIFIER = re.compile(
    r"""
    \#[0-9A-Fa-f]{3,8}                                                          # colour
    | (?:[.@]{0,2}/|~/|[A-Za-z]:\\|\\\\)\S*                                     # path
    | (?:application|audio|font|image|message|model|multipart|text|video)/[\w.+-]+
    | [A-Za-z0-9_-]+(?:[./\\][A-Za-z0-9_-]+)*\.[A-Za-z0-9_-]+(?:[/?\#]\S*)?      # file or host
    | [^\W_]*_\w*                                                               # MENU_OPEN, user_name
    | [a-z]+[0-9]*(?:[A-Z][a-z0-9]*)+ | [A-Z][a-z]+(?:[A-Z][a-z]+)+ | \w+\(\)    # camelCase, CamelCase, call()
    | (?:Ctrl|Control|Alt|Shift|Cmd|Meta)(?:[+-]\w+)+                           # key
    | (?:Africa|America|Asia|Atlantic|Australia|Europe|Pacific)/\w+             # time zone
    | (?:hsl|rgb)a?\([0-9.,%\s/]*\)                                             # colour
    | M\s?-?[0-9.](?:[LlHhVvCcSsQqTtAaZzMm]?[-0-9.,\s])*[Zz]?                   # path of SVG
    | (?:mailto|tel|data):\S+ | \^\S*\$                                         # address, pattern
    | [A-Za-z0-9+/]{8,}={1,2}                                                   # Base64
    | (?:\[?%-?[0-9.]*[A-Za-z]\]?[-/.:,\s]*){2,}                                # form of a time or of a log
    | (?:-\S+\s+)*--?\w[\w.-]*[=:]\S+(?:\s+-\S+)*                              # options of a command
    | [0-9.]+x(?:[0-9.]+x)*[0-9.]* | \.\w{1,8}                                  # size, suffix
    | [a-z]{2,3}(?:[-_][A-Z][a-z]{3})?[-_](?:[A-Z]{2}|[0-9]{3})                 # pt-BR, es-419
    | (?:[A-Za-z]+[0-9]+){2,}[A-Za-z]* | (?:[0-9]+[A-Za-z]+){2,}[0-9]*          # a1b2c3
    | [0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}                      # UUID
    | [0-9][0-9T:.,/+Z-]*                                                       # time
    | (?=.*?(?:YY|MM|DD|HH|hh|mm|ss|yy|dd))[YMDHhmsyda]+(?:[-/.:,\s]+[YMDHhmsyda]+)+  # form of a time
    | [0-9.]+(?:px|em|rem|vh|vw|pt|deg|ms|fr)(?:\s[0-9.]+(?:px|em|rem|vh|vw|pt|deg|ms|fr)?)*
    """,
    re.VERBOSE | re.ASCII,
)
_KEBAB = re.compile(r"[a-z0-9]{2,}(?:-[a-z0-9]+)+")
_KEY_OF_VALUES = re.compile(
    "charset|.*colou?r|encoding|format|.*href|.*icon|ids?|key|kind|lang|language|locale|method|mime|role|slug|src|target|"
    "type|.*url|version",
    re.IGNORECASE,
)
_KEY_OF_LISTS = re.compile("class|class_?name|font|font_?family", re.IGNORECASE)
_LONGEST = 200


def is_language(text: str, marks: InlineMarks) -> bool:
    """True if a line has letters outside of its marks, and is no identifier.

    An identifier is a name for programs, such as a path, a colour or `MENU_OPEN`, or a time or its form.
    """
    words = text.split(" ")
    if len(words) > 1 and all(map(str.isalpha, words)):
        return True
    outside = marks.texts_of(text)
    is_identifier = any(len(part) <= _LONGEST and _IDENTIFIER.fullmatch(part) for part in {text, outside.strip()})
    return not is_identifier and has_letters(outside) and not SURROGATE.search(text)


def is_value(text: str, key: str) -> bool:
    """True if a text with this key, in a file of keys and texts, is a value for programs and not language.

    Names with hyphens, such as `fa-home`, are, and one word in small letters below a key such as `locale` or `type`.
    """
    if text in ("true", "false", "null"):
        return True
    is_word = text[:1].islower() and not re.search(r"\s", text)
    is_list = bool(_KEY_OF_LISTS.fullmatch(key)) and (text.islower() or ", " in text)  # Not `Font`, a label.
    return bool(_KEBAB.fullmatch(text)) or is_list or (is_word and bool(_KEY_OF_VALUES.fullmatch(key)))
