"""Marks of other programs in a sentence, and damage that can be seen in it. Knows sentences and languages, no corpus.

`PROCESSED` has a detector for each kind of text that another program has processed, `DAMAGED` one for each kind of
damage and markup. A detector marks sentences of an array; its shares say when the marked ones are a problem or worth a
note.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mt_cli.corpus.cleaning import Mask, matches
from mt_cli.corpus.languages import COMMON_WORDS, is_common, primary, writes_spaces

MIN_SENTENCES = 3
"""Minimum number of sentences that is reported; one or two may be a mistake."""
Marker = Callable[[pa.StringArray, str], Mask]
"""Function from sentences and their language to the mask of the sentences with a mark."""

_NEVER = 2.0
_LEAST_OF_ALL = 0.01
"""Minimum share of marked sentences among all, for marks that only few sentences could have."""
_BPE = r"[^\s@]@@(?: |$)|￭|\S￨\S|\S</w>(?: |$)"
"""Marks of subword-nmt, the tokenizer of OpenNMT, and GPT; the `+` of Morfessor is a letter of Wixarika."""
_UNDERSCORES = (r"(?:^| )_\pL[\pL\pN'-]*(?:[^_\pL\pN'-]|$)", r"(?:^| )\pL[\pL\pN'-]*_(?: |$)")
"""Marks before or after words, from Tensor2Tensor or from SentencePiece in ASCII; marks on both sides are Markdown."""
_MIN_UNDERSCORES = 3
_LETTER_BY_LETTER = r"(?:^| )(?:\pL ){7}\pL(?: |$)"
_SPACES_A_CHARACTER, _MIN_CHARACTERS = 0.15, 8
"""Ratio of spaces to letters and digits of segmented text; plain Burmese has up to 0.12, Chinese and Thai 0.09."""
_TAG = (
    r"(?:<2[A-Za-z_-]{2,12}>|>>[^<> ]{2,20}<<|__[a-z]{2,3}(?:_[A-Za-z]{2,4})?__|\[2[A-Za-z]{2,3}(?:_[A-Za-z]+)?\]"
    r"|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2})"
)
"""Tags of a language, as mt, OPUS-MT, M2M-100, mBART-50, NLLB and others write them: `<2it>`, `>>ita<<`, `__it__`,
`[2it]`, `ita_Latn`, `it_IT`."""
_AT_END = rf"^<2[a-z]{{2,3}}(?:_[A-Za-z]{{2,4}})?>|^{_TAG}(?: |$)|(?:^| ){_TAG}$|^(?i:translate) \pL+ to \pL+ ?:"
"""A tag, or the prefix of T5: `translate English to German: `."""
_SPECIAL_TOKENS = (
    r"(?:^| )</?s>(?: |$)|^[^<]+</s>$"
    r"|<(?i:pad|unk|eos|bos|sos|go|start|end|sep|cls|mask|extra_id_[0-9]+)>|<\|[a-z_]{2,20}\|>|\x{2047}"
    r"|\[(?:UNK|CLS|SEP|PAD|MASK|BOS|EOS|START|END|start|end)\]|(?:^| )_(?:UNK|EOS|GO|PAD)(?: |$)"
)
_TAG_NAMES = (
    "a|b|br|button|code|div|em|font|g|h[1-6]|hr|i|img|input|label|li|mrk|ol|option|p|ph|pre|select|small|span|strong|sub"
    "|sup|table|tbody|td|th|thead|tr|tt|u|ul|x"
)
"""Names of HTML and XLIFF."""
_INVISIBLE = r"[\x{200b}\x{2060}\x{00ad}]"
_ESCAPES = r"\\[ntr](?:[^a-z]|$)|\\n|\\u[0-9a-fA-F]{4}"
_GARBLED = (
    r"Ã[€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|[ÅÄ][¡-¿€‚ƒ„…†‡ˆ‰‹‘’“”•˜™š›][\pL]"  # UTF-8 read as Windows-1252.
    r"|(?:[РС][\x{0400}-\x{040f}\x{0450}-\x{045f}\x{00a0}-\x{00bf}‚„…†‡€‰‹‘’“”•–—™›]){2}"  # UTF-8 read as Windows-1251.
    r"|(?:^|[^\pL])[а-яё]?[а-яё][А-ЯЁ]{3,}(?:[^\pL]|$)"  # KOI8-R read as Windows-1251 exchanges the cases.
)


@dataclass(frozen=True)
class Detector:
    """One kind of mark."""

    name: str
    """Name of the mark, which follows "sentences have" in messages."""
    mark: Marker
    problem_share: float
    """Minimum share of marked sentences that is a problem."""
    note_share: float = 0.0
    """Minimum share of marked sentences that is worth a note."""
    is_relevant: Marker | None = None
    """Function that finds the sentences that could have the mark; None means all. Shares refer to these sentences."""
    is_segmentation: bool = False
    """True if a tokenizer that splits at spaces needs such text."""

    def level(self, num_marked: int, num_relevant: int, num_all: int) -> str | None:
        """Level of the finding for a number of marked sentences: `problem`, `note` or None."""
        share = num_marked / max(1, num_relevant)
        least = MIN_SENTENCES if self.is_relevant is None else max(MIN_SENTENCES, _LEAST_OF_ALL * num_all)
        if num_marked < least or share < self.note_share:
            return None
        return "problem" if share >= self.problem_share else "note"


def _has(pattern: str, applies: Callable[[str], bool] = lambda language: True) -> Marker:
    return lambda texts, language: matches(texts, pattern) & applies(language)


def _has_lone_punctuation(texts: pa.StringArray, language: str) -> Mask:
    """Mask of sentences with a mark after a space; numbers of lists (`12 . Text`) and dots (`. . .`) do not count."""
    marks = _marks_without_space(language)
    return (matches(texts, rf"[^\s.\d] [{marks}](?: |$)") & ~matches(texts, r"\. \. \.")) | matches(texts, r" @-@ ")


def _has_punctuation(texts: pa.StringArray, language: str) -> Mask:
    marks = _marks_without_space(language)
    return matches(texts, rf"[^\s.,][{marks}](?: |$)") | _has_lone_punctuation(texts, language)


def _marks_without_space(language: str) -> str:
    """Punctuation that no language writes after a space, and marks that this language is known not to write so."""
    code = primary(language)
    return ".,!?" if code in COMMON_WORDS and code != "fr" else ".,"


def _count(texts: pa.StringArray, pattern: str) -> NDArray[np.int32]:
    return np.asarray(pc.count_substring_regex(texts, pattern))


def _has_underscores(texts: pa.StringArray, _: str) -> Mask:
    before, after = (_count(texts, pattern) for pattern in _UNDERSCORES)
    return np.maximum(before, after) >= _MIN_UNDERSCORES


def _is_segmented(texts: pa.StringArray, language: str) -> Mask:
    num_characters, num_spaces = (_count(texts, pattern) for pattern in (r"[\pL\pM\pN]", r"[^\x00-\x7f] "))
    is_segmented = (num_characters >= _MIN_CHARACTERS) & (num_spaces >= _SPACES_A_CHARACTER * num_characters)
    return is_segmented & (not writes_spaces(language))


PROCESSED = (
    Detector("BPE marks (`@@`, `￭` or `</w>`)", _has(_BPE), 0.02),
    Detector("SentencePiece marks (`▁`)", _has(r"▁(?:[\pL\pN\pP ]|$)"), 0.02),
    Detector("marks of words (`_`)", _has_underscores, 0.3, 0.05),
    Detector("byte-level BPE marks (`Ġ`)", _has(r"(?:^| )Ġ\S.* Ġ\S.* Ġ\S"), 0.1, 0.01),
    Detector("WordPiece marks (`##`)", _has(r"\S ##[\p{Ll}\p{Lo}\pN]"), 0.02),
    Detector("factors (`word|NN`)", _has(r"(?:^| )\pL+\|\S+ \S+\|\S+ \S+\|\S"), 0.1),
    Detector("separators of fields (`|||`)", _has(r"(?:^| )\|\|\|(?: |$)"), 0.02),
    Detector("byte pieces (`<0xE2>`)", _has(r"<0x[0-9A-F]{2}>"), 0.02),
    Detector("special tokens of a model (`<s>`, `<unk>`, `[SEP]`)", _has(_SPECIAL_TOKENS), 0.02),
    Detector("tags at the beginning or end (`<2it>`, `>>ita<<`, `ita_Latn`)", _has(_AT_END), 0.1, 0.02),
    Detector("spaces before punctuation, as tokenised text has", _has_lone_punctuation, 0.5, 0.1, _has_punctuation),
    Detector(
        "spaces between all letters",
        # In a made-up language, single letters may be the text to learn.
        _has(_LETTER_BY_LETTER, lambda language: is_common(language) and writes_spaces(language)),
        0.5,
        0.1,
    ),
    Detector("spaces between words, which the language does not write", _is_segmented, 0.5, 0.1, None, True),
)

DAMAGED = (
    Detector("a byte order mark (U+FEFF) inside", _has(r"\x{feff}"), _NEVER),
    Detector("invisible characters (U+200B, U+2060 or U+00AD)", _has(_INVISIBLE, writes_spaces), _NEVER, 0.025),
    Detector("escapes as text (`\\n`, `\\t`)", _has(_ESCAPES), _NEVER, 0.01),
    Detector("letters that look garbled, as of a wrong encoding", _has(_GARBLED), _NEVER, 0.002),
    Detector("question marks inside words, as for lost letters", _has(r"\pL\?\pL"), _NEVER, 0.01),
    Detector("entities (`&amp;`)", _has(r"&(?:[a-zA-Z]{2,8}|#[0-9]{2,5}|#x[0-9a-fA-F]{2,5});"), _NEVER, 0.01),
    # Other words in angle brackets are labels (`:ref:`text <label>``), placeholders or addresses.
    Detector("tags (`<b>`)", _has(rf"</[a-zA-Z][\w-]*>|(?i:<(?:{_TAG_NAMES})(?:\s[^<>]*)?/?>)"), _NEVER, 0.01),
)
