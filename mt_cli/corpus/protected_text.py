"""Protected spans: parts of a text that a translation keeps as they are, such as placeholders, markup and addresses.

Before a text is tokenised, each span is replaced by a reserved character, which is one token of the vocabulary. After
the search, the reserved characters are replaced by the spans again.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import regex

from mt_cli.config.corpora import patterns_of
from mt_cli.corpus.clean_text import cleaned
from mt_cli.corpus.rows import is_of_word
from mt_cli.errors import InputError

RESERVED = tuple(chr(0x10FF00 + number) for number in range(32))
"""Reserved characters. They are for private use, and no font or standard uses them."""
_RESERVED = regex.compile(f"[{RESERVED[0]}-{RESERVED[-1]}]")
TAG = (
    r"</?[A-Za-z][\w:.-]{0,60}"
    r"(?:\s(?:[^<>\"']|\"[^\"<]{0,1000}\"|'[^'<]{0,1000}'){0,1000}+|\s[^<>]{0,1000})?/?>"
)
"""Tag of XML or HTML. A quoted value may have `>`."""
ENTITY = r"&(?:[A-Za-z]\w{1,30}|\#\d{1,7}|\#[xX][0-9A-Fa-f]{1,6});"
PATTERNS: Mapping[str, str] = {
    "markup": (
        rf"{TAG}"
        r"|<!--(?:[^-]|-(?!->)){0,500}+-->"
        rf"|{ENTITY}"
    ),
    "urls": r"(?:https?|ftps?)://[^\s<>\"`{}|\\^]{1,1000}(?<![.,;:!?)'\]])",
    "emails": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "dollars": r"\$\{[^{}\s]{1,80}\}|\$\([^()\s]{1,80}\)",
    "braces": r"\{\{[^{}]{1,80}\}\}|\{[^{}\s]{0,80}\}",
    "printf": (
        r"%%|(?<![\d%])%(?:\(\w{1,40}\)|\d{1,2}\$)?[-+\#0']{0,5}(?:\*|\d{1,4})?(?:\.(?:\*|\d{1,4}))?"
        r"(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGcrsaAp@n](?![^\W\d_])"
    ),
    "numbers": r"(?<![\w.,])\d{1,30}(?:[.,:/]\d{1,30}){0,10}(?![\w])",
}
"""Regular expression of each value of `corpus.protect`. Each repetition is bounded, so that no text takes long."""
_MARKS = {"markup": "<&", "urls": ":", "emails": "@", "dollars": "$", "braces": "{", "printf": "%"}
_MARKS["numbers"] = "0123456789"
"""A text without these characters has no span of a kind."""
_UNNUMBERED = regex.compile(rf"(?!%%|%\(|%\d+\$)(?:{PATTERNS['printf']})|\{{(?:[:!][^{{}}]*+)?\}}")
"""Placeholders that stand for the next argument of a program, whatever it is."""
_TAG = regex.compile(r"<(?P<is_end>/?)(?P<name>[A-Za-z][\w:.-]*+)[^<>]*?(?P<is_empty>/?)>")
_UNNUMBERED_INSIDE = regex.compile(r"[^`]*?(?:(?<![\d%])%[sd](?!\w)|\{\})[^`]*+")
"""Spans of other kinds with such a placeholder, as in the tag `<a href="%s">`; in code, it is often a mention."""
_MAX_SECONDS = 2.0
"""Maximum time of a pattern of the user for one text."""

Spans = list[tuple[int, int]]


@dataclass(frozen=True)
class ProtectedText:
    """A text whose spans are replaced by reserved characters."""

    text: str
    contents: tuple[str, ...] = ()
    """The spans, in the order of the reserved characters."""

    @cached_property
    def _places(self) -> list[int]:
        """Index of the reserved character of each span."""
        return [match.start() for match in _RESERVED.finditer(self.text)] if self.contents else []

    @property
    def _characters(self) -> list[str]:
        return [self.text[place] for place in self._places]

    def part(self, start: int, text: str) -> ProtectedText:
        """The part of this text that begins at `start`, as a protected text of its own."""
        if not self.contents:
            return ProtectedText(text)
        first = bisect_left(self._places, start)
        return ProtectedText(text, self.contents[first : first + len(_RESERVED.findall(text))])

    def protect(self, translation: str) -> str:
        """Replace the spans that a translation of this text has, as far as they are known by their content."""
        spans = zip(self.contents, self._characters, strict=True)
        for content, character in sorted(spans, key=lambda span: (-len(span[0]), self.contents.index(span[0]))):
            translation = translation.replace(content, character, 1)
        return translation

    def show(self, token: str) -> str:
        """A token with the spans that its reserved characters stand for."""
        contents = dict(zip(self._characters, self.contents, strict=True))
        return "".join(contents.get(character, character) for character in token)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Numbers of the reserved characters of unnumbered placeholders, such as `%s`, which keep their order.

        Empty if there are fewer than two, or if a character stands for several spans.
        """
        if len({*self._characters}) < max(2, len(self._characters)):
            return ()
        spans = zip(self._characters, self.contents, strict=True)
        order = tuple(RESERVED.index(character) for character, content in spans if _is_unnumbered(content))
        return order if len(order) > 1 else ()

    @property
    def original(self) -> str:
        """The text before its spans were replaced."""
        return self.restore(self.text).text

    def restore(self, translation: str) -> Restored:
        """Replace the reserved characters of a translation of this text by the spans.

        Words that the text separates from a span are separated from it in the translation, too.
        """
        if not self.contents:
            return Restored(translation)
        waiting = defaultdict[str, deque[tuple[int, bool, bool]]](deque)
        for number, (place, content) in enumerate(zip(self._places, self.contents, strict=True)):
            before, after = self.text[max(0, place - 1) : place], self.text[place + 1 : place + 2]
            starts_apart = not _RESERVED.match(before) and not _are_joined(before, content)
            next_ends_apart = not _RESERVED.match(after) and not _are_joined(content, after)
            waiting[self.text[place]].append((number, starts_apart, next_ends_apart))
        parts, offsets, ends_apart, numbers = [""], [0], False, list[int]()
        for character in translation:
            part, starts_apart, next_ends_apart = character, False, False
            if _RESERVED.match(character):
                part = ""
                if waiting[character]:
                    number, starts_apart, next_ends_apart = waiting[character].popleft()
                    part = self.contents[number]
                    numbers.append(number)
            if (starts_apart or ends_apart) and _are_joined(parts[-1], part):
                part = f" {part}"
            ends_apart = next_ends_apart
            parts.append(part)
            offsets.append(offsets[-1] + len(part))
        lost = tuple(self.contents[number] for queue in waiting.values() for number, *_ in queue)
        return Restored("".join(parts), lost, self._reordered(numbers), offsets)

    def _reordered(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Unnumbered placeholders in their order in a translation, given by number, if that is another order.

        Otherwise tags in their order, if they were nested in the source and are not any more.
        """
        for is_of_kind, is_right in ((_is_unnumbered, None), (_TAG.fullmatch, _are_nested)):
            order = [number for number in numbers if is_of_kind(self.contents[number])]
            contents, expected = ([self.contents[number] for number in some] for some in (order, sorted(order)))
            if contents != expected and (is_right is None or (is_right(expected) and not is_right(contents))):
                return tuple(contents)
        return ()


def _is_unnumbered(content: str) -> bool:
    """True if a span is, or has, a placeholder for the next argument of a program."""
    return bool(_UNNUMBERED.fullmatch(content) or _UNNUMBERED_INSIDE.fullmatch(content))


def _are_nested(tags: Sequence[str]) -> bool:
    """True if each start tag has its end tag, inside of the same other tags."""
    waiting: list[str] = []
    for tag in tags:
        match = _TAG.fullmatch(tag)
        if match is None or match["is_empty"]:
            continue
        if not match["is_end"]:
            waiting.append(match["name"])
        elif not waiting or waiting.pop() != match["name"]:
            return False
    return not waiting


def have_other_order(source: str, translation: str) -> bool:
    """True if a translation has the unnumbered placeholders of its source, such as `%s`, in another order."""
    placeholders = [_UNNUMBERED.findall(text) for text in (source, translation)]
    return placeholders[0] != placeholders[1] and sorted(placeholders[0]) == sorted(placeholders[1])


def _are_joined(before: str, after: str) -> bool:
    """True if two pieces of text would be one word side by side."""
    return is_of_word(before[-1:]) and is_of_word(after[:1])


@dataclass(frozen=True)
class Restored:
    """A translation with the spans of its source."""

    text: str
    lost: tuple[str, ...] = ()
    """Spans of the source that the translation lacks."""
    reordered: tuple[str, ...] = ()
    """Placeholders without numbers, if their order is not that of the source."""
    offsets: Sequence[int] = ()
    """For each place of the translation before its reserved characters were replaced, the place in `text`; the same
    places if empty."""

    def place(self, place: int) -> int:
        """Place in `text` of a place in the translation with reserved characters."""
        return self.offsets[place] if self.offsets else place


@dataclass(frozen=True)
class Protection:
    """The kinds of span that a run protects; none by default."""

    kinds: tuple[str, ...] = ()
    """Keys of `PATTERNS`."""
    patterns: tuple[str, ...] = ()
    """Regular expressions of the user, which go before the kinds."""

    @classmethod
    def of(cls, protect: Sequence[str]) -> Protection:
        """Protection by the values of `corpus.protect`: kinds, and patterns between slashes."""
        kinds = tuple(value for value in protect if value in PATTERNS)
        return cls(kinds, tuple(patterns_of(protect)))

    def __bool__(self) -> bool:
        return bool(self.kinds or self.patterns)

    @property
    def key(self) -> list[Sequence[str]]:
        """Values on which the result depends, with the regular expressions; empty without protection."""
        return [self.kinds, self.patterns, [PATTERNS[kind] for kind in self.kinds]] if self else []

    @cached_property
    def _compiled(self) -> list[regex.Pattern[str]]:
        """Patterns of the user, and one for all kinds, in the order of their precedence."""
        kinds = (PATTERNS[kind] for kind in PATTERNS if kind in self.kinds)
        return [*map(regex.compile, self.patterns), regex.compile("|".join([_RESERVED.pattern, *kinds]))]

    @cached_property
    def _marks(self) -> regex.Pattern[str]:
        """Matches a character of which each text with a span of the kinds has one."""
        return regex.compile(f"[{regex.escape(''.join([*RESERVED, *(_MARKS[kind] for kind in self.kinds)]))}]")

    def spans(self, text: str) -> Spans:
        """Start and end of each span of a text, in order; none is empty, and none overlaps with another.

        Raises InputError if a pattern of the user takes too long.
        """
        if not self or not (self.patterns or self._marks.search(text)):
            return []
        spans: Spans = []
        timeout = _MAX_SECONDS if self.patterns else None
        try:
            for pattern in self._compiled:
                gaps = zip([0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)], strict=True)
                matches = (match for gap in gaps for match in pattern.finditer(text, *gap, timeout=timeout))
                spans = sorted([*spans, *(match.span() for match in matches if match[0])])
        except TimeoutError:
            problem = f"takes more than {_MAX_SECONDS:.0f} seconds for {text!r:.60}"
            raise InputError(f"corpus.protect: {problem}; repeat nothing inside a repetition") from None
        return spans

    def protect(self, text: str) -> ProtectedText:
        """Replace the spans of a text to translate."""
        spans = self.spans(text)
        if not spans:
            return ProtectedText(text)
        characters = dict(enumerate(_characters(text, len(spans))))
        return ProtectedText(_substituted(text, spans, characters), tuple(text[start:end] for start, end in spans))

    def protect_pair(self, source: str, target: str) -> tuple[str, str]:
        """Replace the spans that both texts have; other spans stay as they are, but for reserved characters."""
        source_spans, target_spans = self.spans(source), self.spans(target)
        waiting = defaultdict[str, deque[int]](deque)
        for number, (start, end) in enumerate(source_spans):
            waiting[source[start:end]].append(number)
        partners = [waiting[target[start:end]] for start, end in target_spans]
        matches = {place: partner.popleft() for place, partner in enumerate(partners) if partner}
        characters = dict(zip(sorted(matches.values()), _characters(source, len(matches)), strict=True))
        in_target = {place: characters[number] for place, number in matches.items()}
        return _substituted(source, source_spans, characters), _substituted(target, target_spans, in_target)

    def protect_columns(self, texts: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
        """Replace the spans of pairs, given as a list of sources and a list of targets."""
        if not self:
            return texts
        pairs = [self.protect_pair(*pair) for pair in zip(*texts, strict=True)]
        return [[pair[side] for pair in pairs] for side in (0, 1)]


NO_TEXT, UNPROTECTED = ProtectedText(""), Protection()


def _characters(text: str, number: int) -> list[str]:
    """Reserved characters for the spans of a text; the first one depends on the clean text, so that all are trained."""
    first = zlib.crc32("".join(cleaned(text).split()).encode("utf-8", "surrogatepass")) if number else 0
    return [RESERVED[(first + index) % len(RESERVED)] for index in range(number)]


def _substituted(text: str, spans: Spans, characters: Mapping[int, str]) -> str:
    """Text with a character for some of its spans, by number; other reserved characters become U+FFFD."""
    parts, place = [], 0
    for number, (start, end) in enumerate(spans):
        content = text[start:end]
        parts += [text[place:start], characters.get(number, _RESERVED.sub("\ufffd", content))]
        place = end
    return "".join([*parts, text[place:]])
