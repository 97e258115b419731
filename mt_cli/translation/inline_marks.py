"""Inline marks of a text: tags, emphasis, links, code, placeholders and addresses, which a translation must keep."""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter

import regex

from mt_cli.corpus.protected_text import ENTITY, PATTERNS, UNPROTECTED, Protection, Spans
from mt_cli.corpus.rows import is_of_word
from mt_cli.translation.inline_tags import LIKE_TAG, Piece, Tag, partners_of

PLACEHOLDERS = ("urls", "emails", "dollars", "braces", "printf")
"""Kinds of marks that texts of any format may have, as in `corpus.protect`."""
EMPHASIS = "emphasis"
"""Kind of the marks `*`, `**`, `_`, `__` and `~~` around words."""
QT = "qt"
"""Kind of the placeholders `%1` and `%L1` of Qt and KDE. Elsewhere, `%50` may be a percentage, as in Turkish."""
MARKDOWN = "markdown"
"""Kind of the code, links, images, footnotes, formulas and comments of Markdown and MDX."""
FORMULAS = "formulas"
r"""Kind of the formulas `$$...$$`, `\(...\)` and `\[...\]` of web pages."""
CATALOGUE = "catalogue"
"""Kind of the placeholders of programs' texts: `$1`, `$name$`, `$t(key)`, `@:key`, `:name`, and ranges of numbers
before the forms of a plural (`[2,*]`)."""
INTERFACE = "interface"
"""Kind of texts of programs, which may have links as in Markdown, and the signs of accelerators and the forms of a
plural that `documents` knows."""
_COMPILED = {kind: regex.compile(PATTERNS[kind]) for kind in PLACEHOLDERS}
_CODE_OF_MARKDOWN = regex.compile(
    r"(?<!`)(`+)(?!`).{1,1000}?(?<!`)\1(?!`)|<!--.{0,1000}?-->|\{/\*.{0,1000}?\*/\}|\[\^[^\]\s]{1,100}\]"
    r"|<(code|kbd|samp|math|svg)\b[^<>]{0,300}>.{0,1000}?</\2>|\[-?@[^\[\]]{1,300}\]"
    r"|<(?:(?:https?|ftp):[^<>\s]{1,1000}|(?:mailto:)?[\w.+-]{1,64}@[\w.-]{1,100})>",
    regex.DOTALL,
)
_EXPRESSION = regex.compile(r"\{(?=[^{}]{0,300}?[#.=(\[&|?]\S)(?:[^{}]|\{[^{}]{0,300}+\}){1,1000}+\}")
"""Expression of MDX, or attributes of Pandoc; not words in braces."""
_BRACKET = regex.compile(
    r"(?<!\\)(?:(?P<start>!?\[)|(?P<end>\](?:\[[^\[\]]{0,300}\]"
    r"|\((?:<[^<>\n]{0,1000}>|(?:[^()\s]|\([^()\s]{0,300}\)){0,1000}+)"
    r"(?:\s+(?:\"[^\"]{0,300}\"|'[^']{0,300}'|\([^()]{0,300}\)))?\)))|\])"
)
_FORMS = r"[^{}]*+"
for _ in range(6):  # Deeper nesting would let an unclosed brace take time for each brace after it.
    _FORMS = rf"(?:[^{{}}]++|\{{{_FORMS}\}})*+"
_OF_ANY_FORMAT = regex.compile(
    rf"\{{\s*\w+\s*,\s*(?:plural|select|selectordinal|choice)\s*,{_FORMS}\}}"
    rf"|{ENTITY}|<\d[\d:.]{{1,12}}>|\[X\d{{1,9}}X\]"
    r"|[%#]\{\w{1,100}\}|\{%[^{}]{1,300}%\}|\{\{[^{}]{1,300}\}\}|<%[^<>%]{1,300}%>|\[\[[\w.]{1,100}\]\]"
    r"|(?<![\w%])%[A-Za-z][\w.]{1,60}%(?![\w%])|(?<!`)`[^`'\s]{1,100}`(?!`)|\[[\[(]\$\{[^{}\[\]]{1,100}\}[\])]\]"
)
"""Messages of ICU and Java with several forms, which stay as they are; entities; times of subtitles; code in backticks,
but not words between a backtick and an apostrophe, as in messages of GNU; and placeholders of Weblate's machine
translation (`[X7X]`), Ruby (`%{name}`, `#{name}`), Symfony (`%name%`) and templates (`{% if x %}`, `{{ x }}`,
`<% x %>`, `[[${x}]]`)."""
_NUMBERED_TAG = regex.compile(r"</?\d{1,3}/?>")
"""Tag of `react-i18next`, such as `<0>`."""
_OF_QT = regex.compile(r"(?<![\d%])%L?\d{1,2}(?![\d$])")
_WITH_NAME_IN_BRACKETS = regex.compile(r"%<\w{1,100}>[-+ 0#]{0,5}\d{0,9}(?:\.\d{1,9})?[a-zA-Z]?")


def displayed_formula(content: str) -> str:
    r"""Pattern of `$$...$$`, `\[...\]` and an environment of LaTeX, such as `\begin{align}...\end{align}`."""
    environment = rf"\\begin\{{(?P<environment>\w{{1,20}}\*?)\}}{content}\\end\{{(?P=environment)\}}"
    return rf"(?:\$\${content}\$\$|\\\[{content}\\\]|{environment})"


_FORMULA = regex.compile(rf"(?<!\\)(?:{displayed_formula('.{1,1000}?')}|\\\(.{{1,500}}?\\\))", regex.DOTALL)
_SHORT_FORMULA = regex.compile(r"(?<![\\$\w])\$(?![\s$])(?:[^$\\\n]|\\.){0,300}?(?<=[^\s\\])\$(?![\w$])")
"""A formula between single dollar signs: no space inside, and no digit after it, as in Pandoc, so that "$5 and $7" is
money."""
_OF_FORMULA = regex.compile(r"[=^_\\{}<>+*/]|(?:\A|\s)\w{1,2}(?:\s|\Z)")
_OF_CATALOGUE = regex.compile(
    r"\$t\([^()]{1,200}\)|\$\w{1,60}\$|(?<!\$)\$[1-9](?!\d)"
    r"|@(?:\.\w{1,20})?:(?:\([\w.]{1,100}\)|\{'[^'{}]{1,100}'\}|[\w.]{0,100}\w)"
    r"|(?<![^\s(\"'>]):[a-z]\w{1,60}(?![\w:])"
    r"|[\[\]]-?(?:\d{1,9}|Inf),\s?(?:\d{1,9}|\*|\+?Inf)[\[\]]"
)
_NUMBER_OR_PLACEHOLDER = regex.compile(r"(?<![\w$%\\])[$%]([1-9])(?![\w$%]|[.,]\d)")
"""Placeholders such as `$1` and `%1`, which are money and percentages in most texts."""
_NAME_OF_NETS = regex.compile(
    r"(?<![\w:/]):[a-z][a-z0-9_+-]{1,40}:(?![\w:])|(?<![\w&/#])#[^\W\d_][\w-]{1,60}|(?<![\w@./])@[^\W\d_][\w-]{1,60}(?![\w:])"
    r"|(?<![\w.@/])www(?:\.[\w-]{1,63}){1,8}(?:/[^\s<>\"]{0,1000})?(?<![.,;:!?)'\]])"
)
"""Short codes of emoji (`:smile:`), hashtags, names of users and addresses without a scheme."""
_EMPHASIS = re.compile(r"(?<![\\*])\*{1,3}(?!\*)|(?<![\\_])_{1,3}(?!_)|(?<![\\~])~~(?!~)")
_VOID_NAMES = "area base br col embed hr img input link meta param source track wbr"
VOID = frozenset(_VOID_NAMES.split())
"""Elements of HTML without an end tag."""
_NAME = re.compile(r"[\w:-]+")
_ELEMENT_NAMES = (
    "a abbr b big blockquote body button c center cite code dd del details dfn div dl dt em figure font footer form h1 "
    "h2 h3 h4 h5 h6 header html i ins kbd label lang li main mark nav ol option p pre q s section small span strike "
    "strong sub summary sup table tbody td th thead tr tt u ul v var"
)
_ELEMENTS = frozenset(_ELEMENT_NAMES.split())
"""Elements of HTML and WebVTT whose start tags are tags even where their end tags are missing, or in another text."""

_MOST_CACHED = 64
_DEEPEST = 20
"""Number of open marks of emphasis among which the partner of a mark is searched for."""
_MAY_HAVE_MARKS = re.compile(r"[<&%{}$@#\[\]\\`*_~]|:[\w/]|www\.")
"""Characters of which every mark has one."""
_Mark = tuple[int, int, Tag]
"""Start, end, and the mark as a tag: `start` and `end` for the two sides of a pair."""


def may_have_marks(text: str) -> bool:
    """Quick test for marks: False for a text that has none, and for few others True."""
    return _MAY_HAVE_MARKS.search(text) is not None


@dataclass(frozen=True)
class InlineMarks:
    """Marks that texts of a document may have, and those that a model protects."""

    kinds: Sequence[str] = ()
    """Kinds besides tags: names of `corpus.protect`, and `EMPHASIS`."""
    protection: Protection = UNPROTECTED
    tags: Sequence[str] = ()
    """Tags of the model, which are no marks at the beginning of a text."""

    def texts_of(self, text: str) -> str:
        """A text without its marks."""
        return " ".join(piece for piece in _pieces(text, self._marks(text)) if isinstance(piece, str))

    def without_unprotected(self, text: str) -> list[Piece] | None:
        """Text between tags and pairs of marks; None if it has none, or the model protects all of them.

        Marks that stand alone remain in the text, because a model may copy them.
        """
        around = [mark for mark in self._marks(text) if not mark[2].is_placeholder]
        spans = self.protection.spans(text) if around else []
        return None if all(_is_inside(mark, spans) for mark in around) else _pieces(text, around)

    def without_any(self, text: str) -> list[Piece]:
        """Text between all marks, except those that stand alone and that the model protects."""
        return _pieces(text, self._removable_marks(text))

    def has_same_marks(self, source: str, translation: str) -> bool:
        """True if a translation has the same marks as its source, with as many pairs.

        Marks that stand alone and that the model protects do not count.
        """
        if not (marks := self._removable_marks(source)):
            return True
        pieces = [_pieces(source, marks), _pieces(translation, self._removable_marks(translation))]
        tags = [sorted(piece.raw for piece in of_text if isinstance(piece, Tag)) for of_text in pieces]
        return tags[0] == tags[1] and len(partners_of(pieces[0])) == len(partners_of(pieces[1]))

    def _removable_marks(self, text: str) -> Sequence[_Mark]:
        marks = self._marks(text)
        if not marks or not self.protection:
            return marks
        spans = self.protection.spans(text)
        return [mark for mark in marks if not (mark[2].is_placeholder and _is_inside(mark, spans))]

    def spans(self, text: str) -> list[tuple[int, int]]:
        return [(start, end) for start, end, _ in self._marks(text)]

    def kept_spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each mark and protected span; what looks like a start tag but has no end tag is none."""
        spans, start = list(self.protection.spans(text)), 0
        for piece in self.without_any(text):
            end = start + len(piece.raw if isinstance(piece, Tag) else piece)
            spans += [(start, end)] if isinstance(piece, Tag) else []
            start = end
        return spans

    def lost_in(self, source: str, translation: str) -> list[str]:
        """Marks of a source, besides those that the model protects, that its translation lacks."""
        marks = [tag.raw for *_, tag in self._removable_marks(source)]
        lost = [raw for raw in dict.fromkeys(marks) if translation.count(raw) < source.count(raw)]
        return [*lost, *self.lost_numbers(source, translation)]

    def lost_numbers(self, source: str, translation: str) -> list[str]:
        """Placeholders such as `$1` that a translation lacks; they may be money, so any form of the number will do."""
        found = _NUMBER_OR_PLACEHOLDER.finditer(source) if self.kinds and may_have_marks(source) else ()
        numbers = {match[0]: int(match[1]) for match in found}
        kept = {int(character) for character in translation if character.isdecimal()} if numbers else set()
        return [raw for raw, number in numbers.items() if number not in kept]

    def _marks(self, text: str) -> Sequence[_Mark]:
        """All marks, in the order of their places; none of them overlap."""
        return _marks_of(text, (*self.kinds,), (*self.tags,)) if may_have_marks(text) else ()


@lru_cache(maxsize=_MOST_CACHED)
def _marks_of(text: str, kinds: tuple[str, ...], tags: tuple[str, ...]) -> Sequence[_Mark]:
    """All marks of these kinds; a text is asked for its marks several times."""
    marks: list[_Mark] = []
    for group in _groups(text, kinds, tags):
        if all(_is_free(start, end, marks) for start, end, _ in group):
            for mark in group:
                insort(marks, mark, key=itemgetter(0))
    return tuple(marks)


def _groups(text: str, kinds: Sequence[str], tags: Sequence[str]) -> Iterator[list[_Mark]]:
    """Marks that stand alone and pairs of marks, those first that hold others."""
    is_markdown = MARKDOWN in kinds

    def alone(pattern: regex.Pattern[str], is_asked: bool = bool(kinds)) -> Iterator[list[_Mark]]:
        yield from ([_placeholder(match)] for match in (pattern.finditer(text) if is_asked else ()))

    code = [*alone(_CODE_OF_MARKDOWN, is_markdown)]
    yield from code
    yield from alone(_SHORT_FORMULA, is_markdown)
    if is_markdown or FORMULAS in kinds:
        yield from ([_placeholder(match)] for match in _FORMULA.finditer(text) if _is_formula(match))
    yield from alone(_EXPRESSION, is_markdown)
    if is_markdown:
        yield from _links(text, [mark for (mark,) in code])
    elif INTERFACE in kinds:
        yield from (pair for pair in _links(text, ()) if pair[1][2].raw.startswith("]("))
    yield from alone(_WITH_NAME_IN_BRACKETS)
    yield from (
        [(*match.span(), _tag(match[0]))] for match in LIKE_TAG.finditer(text) if match.start() or match[0] not in tags
    )
    yield from alone(_OF_ANY_FORMAT)
    yield from ([(*match.span(), _tag(match[0]))] for match in (_NUMBERED_TAG.finditer(text) if kinds else ()))
    yield from alone(_OF_CATALOGUE, CATALOGUE in kinds)
    yield from alone(_OF_QT, QT in kinds)
    for kind, pattern in _COMPILED.items():
        yield from alone(pattern, kind in kinds)
    yield from alone(_NAME_OF_NETS)
    if EMPHASIS in kinds:
        yield from _emphasis(text)


def _is_formula(match: regex.Match[str]) -> bool:
    r"""True unless a match is a text in escaped brackets, such as `\[citation needed\]`."""
    return match[0][:2] not in (r"\(", r"\[") or bool(_OF_FORMULA.search(match[0][2:-2]))


def _placeholder(match: regex.Match[str]) -> _Mark:
    return *match.span(), Tag(match[0], "")


def _pair(kind: str, text: str, *spans: tuple[int, int]) -> list[_Mark]:
    """Both sides of a pair of marks, from their places; no other pair has its name."""
    name = f"{kind} {spans[0][0]}"
    sides = zip(spans, ("start", "end"), strict=True)
    return [(start, end, Tag(text[start:end], name, side)) for (start, end), side in sides]


def _links(text: str, code: Sequence[_Mark]) -> Iterator[list[_Mark]]:
    """Both sides of the links and images of Markdown, which may be inside of each other; `code` has none."""
    waiting: list[regex.Match[str]] = []
    for match in _BRACKET.finditer(text):
        if not _is_free(match.start(), match.start() + 1, code):
            continue
        if match["start"]:
            waiting.append(match)
        elif waiting and (start := waiting.pop()) and match["end"]:
            yield _pair(MARKDOWN, text, start.span(), match.span())


def _emphasis(text: str) -> Iterator[list[_Mark]]:
    """Pairs of marks of emphasis. A mark between two letters or two spaces is none."""
    waiting: list[re.Match[str]] = []
    for match in _EMPHASIS.finditer(text):
        before, after = text[max(0, match.start() - 1) : match.start()], text[match.end() : match.end() + 1]
        partner = next((other for other in waiting[:-_DEEPEST:-1] if other[0] == match[0]), None)
        if partner and before.strip() and not after.isalnum():
            del waiting[waiting.index(partner) :]
            yield _pair(EMPHASIS, text, partner.span(), match.span())
        elif after.strip() and not is_of_word(before):
            waiting.append(match)


def _is_free(start: int, end: int, marks: Sequence[_Mark]) -> bool:
    """True if a part of a text overlaps with none of the marks, which are sorted and do not overlap."""
    index = bisect_right(marks, start, key=itemgetter(1))
    return index == len(marks) or marks[index][0] >= end


def _is_inside(mark: _Mark, spans: Spans) -> bool:
    index = bisect_right(spans, mark[0], key=itemgetter(0)) - 1
    return index >= 0 and mark[1] <= spans[index][1]


def _pieces(text: str, marks: Sequence[_Mark]) -> list[Piece]:
    """Text and marks; what looks like a start tag but has no end tag, as in `List<String>`, is text."""
    pieces, place = list[Piece](), 0
    for start, end, tag in marks:
        pieces += [text[place:start], tag]
        place = end
    pieces = [piece for piece in (*pieces, text[place:]) if piece]
    partners = partners_of(pieces)
    return [
        _without_pair(piece) if isinstance(piece, Tag) and piece.kind == "start" and index not in partners else piece
        for index, piece in enumerate(pieces)
    ]


def _without_pair(tag: Tag) -> Piece:
    return replace(tag, kind="") if tag.name.lower() in _ELEMENTS else tag.raw


def _tag(raw: str) -> Tag:
    match = _NAME.search(raw)
    name = match[0] if match else ""
    if raw.startswith("</"):
        return Tag(raw, name, "end")
    return Tag(raw, name, "" if raw.endswith("/>") or name.lower() in VOID else "start")
