"""Inline tags of a text that is translated without them: they are placed by the alignment of its words.

Tags go around the words that correspond to the words inside them. Whatever the alignment is, each tag occurs once, and
pairs are nested as in the source.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter

from mt_cli.corpus.protected_text import Protection
from mt_cli.features.documents.html_places import VOID
from mt_cli.features.documents.inline_tags import LIKE_TAG, Piece, Tag, TaggedText, partners_of, raw_of
from mt_cli.translation.lines import Alignment
from mt_cli.translation.sentences import units

_NAME = re.compile(r"[\w:.-]+")
_ELEMENT_NAMES = (
    "a abbr b big blockquote body button center cite code dd del details dfn div dl dt em figure font footer form h1 "
    "h2 h3 h4 h5 h6 header html i ins kbd label li main mark nav ol option p pre q s section small span strike strong "
    "sub summary sup table tbody td th thead tr tt u ul var"
)
_ELEMENTS = frozenset(_ELEMENT_NAMES.split())
"""Elements of HTML whose start tags are tags even where their end tags are missing, or in another text."""
_UNALIGNED = -0.01
"""Weight of a target word without alignment: it is inside of a pair of tags only between words that are."""
_ENDS_WORD = re.compile(r"[\w.,:;!?)…。]")
_DEEPEST = 100
"""Deepest nesting of pairs of tags."""


def pieces_of(text: str) -> list[Piece]:
    """Text and tags of a text; what looks like a start tag but has no end tag, as in `List<String>`, is text."""
    pieces: list[Piece] = [
        _tag(part) if number % 2 else part for number, part in enumerate(LIKE_TAG.split(text)) if part
    ]
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


@dataclass
class _Node:
    """A tag that stands alone or a pair of tags, with places in the text without tags."""

    start_tag: str
    start: int
    end_tag: str = ""
    end: int = 0
    children: list[_Node] = field(default_factory=list)


@dataclass(frozen=True)
class TextWithoutTags:
    """A text without its tags, and how they come back into its translation."""

    source: str
    """The text with its tags."""
    plain: str
    """The text to translate."""
    before: str
    """Tags before the text to translate."""
    after: str
    root: _Node

    @classmethod
    def of(cls, source: str) -> TextWithoutTags | None:
        """Text without the tags of `source`; None if it has no tags, or too many inside of each other."""
        if "<" not in source:
            return None
        tagged = TaggedText.of(pieces_of(source))
        if not any(isinstance(piece, Tag) for piece in (*tagged.before, *tagged.pieces, *tagged.after)):
            return None
        kinds = [piece.kind for piece in tagged.pieces if isinstance(piece, Tag)]
        if max(accumulate((kind == "start") - (kind == "end") for kind in kinds), default=0) > _DEEPEST:
            return None
        plain, root = _tree(tagged.pieces)
        before, after = ("".join(map(raw_of, pieces)) for pieces in (tagged.before, tagged.after))
        return cls(source, plain, before, after, root)

    def is_protected(self, protection: Protection) -> bool:
        """Whether each tag is a protected span, or part of one."""
        spans = protection.spans(self.source)
        starts = [start for start, _ in spans]
        return all(
            (index := bisect_right(starts, tag.start()) - 1) >= 0 and tag.end() <= spans[index][1]
            for tag in LIKE_TAG.finditer(self.source)
        )

    def has_same_tags(self, translation: str) -> bool:
        """Whether a translation has the same tags as the source, with as many pairs."""
        pieces = [pieces_of(text) for text in (self.source, translation)]
        tags = [sorted(piece.raw for piece in of_text if isinstance(piece, Tag)) for of_text in pieces]
        return tags[0] == tags[1] and len(partners_of(pieces[0])) == len(partners_of(pieces[1]))

    def with_tags(self, translation: str, alignment: Alignment) -> tuple[str, bool]:
        """Translation with the tags, and whether a place is a guess, because no word corresponds to those in the tags.

        `alignment` has pairs of words of the plain text and of its translation, as in `Details.word_alignment`.
        """
        if translation == self.plain:
            return self.source, False
        words = _Words(self.plain, translation), _Words(translation, self.plain)
        if not words[0].spans or not words[1].spans:
            return self.before + _emitted(self.root, translation, {}, 0, len(translation)) + self.after, True
        placement = _Placement(*words, alignment)
        placement.place(self.root, 0, len(words[1].spans))
        body = _emitted(self.root, translation, placement.places, 0, len(translation))
        return self.before + body + self.after, placement.has_guess


def _tree(pieces: Sequence[Piece]) -> tuple[str, _Node]:
    """Text without tags, in which no space follows another one, and its tags as a tree."""
    root, ends, plain = _Node("", 0), partners_of(pieces), ""
    open_nodes = [root]
    for index, piece in enumerate(pieces):
        if isinstance(piece, str):
            text = re.sub(r"\s+", " ", piece)
            before = pieces[index - 1] if index else ""
            is_after_single = isinstance(before, Tag) and not before.kind and before.name != "wbr"
            if is_after_single and _ENDS_WORD.match(plain[-1:]) and text[0].isalnum():
                text = f" {text}"  # The tag stands for something between two words, such as the end of a line.
            if text.startswith(" ") and plain[-1:] in ("", " "):
                text = text[1:]
                if is_after_single and plain:
                    open_nodes[-1].children[-1].start_tag += " "
            plain += text
        elif piece.kind == "end" and len(open_nodes) > 1:
            open_nodes.pop().end = len(plain)
        else:
            node = _Node(piece.raw, len(plain), end=len(plain))
            open_nodes[-1].children.append(node)
            if index in ends:
                node.end_tag = raw_of(pieces[ends[index]])
                open_nodes.append(node)
    return plain.rstrip(), root


class _Words:
    """Words of a text with their places. The core of a word is without the punctuation at its ends."""

    def __init__(self, text: str, other: str) -> None:
        self.text = text
        self.spans = units(text)
        self.cores = [self._core(*span) for span in self.spans]

    def _core(self, start: int, end: int) -> tuple[int, int]:
        letters = [place for place in range(start, end) if unicodedata.category(self.text[place])[0] in "LMN"]
        return (letters[0], letters[-1] + 1) if letters else (start, end)

    def core_text(self, word: int) -> str:
        """The core of a word, in lower case."""
        return self.text[slice(*self.cores[word])].casefold()

    def overlapped(self, start: int, end: int) -> range:
        """Words whose cores overlap with a part of the text."""
        first = bisect_left(self.cores, start + 1, key=itemgetter(1))
        return range(first, max(first, bisect_left(self.cores, end, key=itemgetter(0))))


class _Placement:
    """Finds the places of tags in a translation."""

    def __init__(self, source: _Words, target: _Words, alignment: Alignment) -> None:
        self._source, self._target = source, target
        self._targets, self._sources = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for source_word, target_word in alignment:
            if source_word < len(source.spans) and target_word < len(target.spans):
                self._targets[source_word].append(target_word)
                self._sources[target_word].append(source_word)
        self.places: dict[int, tuple[int, int]] = {}
        """Start and end in the translation of each node, by its identity."""
        self.has_guess = not alignment

    def place(self, node: _Node, first: int, last: int) -> None:
        """Find places of the tags inside a node, whose words in the translation are `first` to `last - 1`."""
        free = set(range(first, last))
        for child in node.children:
            inside = self._source.overlapped(child.start, child.end)
            words = self._best(inside, free) if inside else range(0)
            if inside and not words:
                self.has_guess = True
                words = self._guess(inside, free)
            if words:
                free -= set(words)
                start = self._start(child.start, inside[0], words[0])
                self.places[id(child)] = start, self._end(child.end, inside[-1], words[-1])
            else:
                self.places[id(child)] = self._beside(child.start), self._beside(child.end)
            self.place(child, words.start, words.stop)

    def _best(self, inside: range, free: set[int]) -> range:
        """Free words in a row that correspond best to the source words `inside`; empty if none does."""
        best, best_sum, first, total = range(0), 0.0, 0, 0.0
        targets = [word for source in inside for word in self._targets.get(source, ())]
        for word in range(min(targets, default=0), max(targets, default=-1) + 1):
            if word not in free:
                total = 0.0
                continue
            if total <= 0:
                first, total = word, 0.0
            sources = self._sources.get(word, [])
            num_inside = sum(source in inside for source in sources)
            total += (2 * num_inside - len(sources)) / len(sources) if sources else _UNALIGNED
            if total > best_sum:
                best, best_sum = range(first, word + 1), total
        return best

    def _guess(self, inside: range, free: set[int]) -> range:
        """Free words in a row at the same part of the translation as `inside` in the source; may be empty."""
        ratio = len(self._target.spans) / len(self._source.spans)
        first = int(inside.start * ratio)
        last = first
        while last in free and last < max(first + 1, round(inside.stop * ratio)):
            last += 1
        return range(first, last)

    def _start(self, place: int, source: int, target: int) -> int:
        """Place in the translation of what stands at a place before the core of a source word, or in it."""
        (start, _), (core, _) = self._source.spans[source], self._source.cores[source]
        (target_start, _), (target_core, _) = self._target.spans[target], self._target.cores[target]
        if place >= core:
            return target_core + (place - core) * self._is_same(source, target)
        if place >= start:
            return max(target_start, target_core - (core - place))
        return max(self._target.spans[target - 1][1] if target else 0, target_start - (start - place))

    def _end(self, place: int, source: int, target: int) -> int:
        """Place in the translation of what stands at a place after the core of a source word, or in it."""
        (_, end), (_, core) = self._source.spans[source], self._source.cores[source]
        (_, target_end), (_, target_core) = self._target.spans[target], self._target.cores[target]
        if place <= core:
            return target_core - (core - place) * self._is_same(source, target)
        if place <= end:
            return min(target_end, target_core + (place - core))
        is_last = target + 1 == len(self._target.spans)
        return min(target_end if is_last else self._target.spans[target + 1][0], target_end + (place - end))

    def _is_same(self, source: int, target: int) -> bool:
        return self._source.core_text(source) == self._target.core_text(target)

    def _beside(self, place: int) -> int:
        """Place in the translation for a place between words, or in a word."""
        word = min(bisect_left(self._source.spans, place, key=itemgetter(1)), len(self._source.spans) - 1)
        is_before = place <= self._source.cores[word][0]
        if targets := self._targets.get(word):
            return self._start(place, word, min(targets)) if is_before else self._end(place, word, max(targets))
        for distance in range(1, len(self._source.spans)):
            if targets := self._targets.get(word - distance):
                return self._target.spans[max(targets)][1]
            if targets := self._targets.get(word + distance):
                return self._target.spans[min(targets)][0]
        return self._target.spans[word * len(self._target.spans) // len(self._source.spans)][0]


def _emitted(node: _Node, text: str, places: Mapping[int, tuple[int, int]], start: int, end: int) -> str:
    """Part of a translation with the tags of the children of a node, in the order of their places."""
    parts = []
    for child in sorted(node.children, key=lambda child: places.get(id(child), (start, start))):
        first, last = (min(max(start, place), end) for place in places.get(id(child), (start, start)))
        last = max(first, last)
        parts += [text[start:first], child.start_tag, _emitted(child, text, places, first, last), child.end_tag]
        start = last
    return "".join([*parts, text[start:end]])
