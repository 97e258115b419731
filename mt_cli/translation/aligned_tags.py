"""Inline tags of a text that is translated without them: they are placed by the alignment of its words.

Tags go around the words that correspond to the words inside them. Whatever the alignment is, each tag occurs once, and
pairs are nested as in the source.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter

import regex

from mt_cli.corpus.rows import is_of_word
from mt_cli.translation.inline_marks import EMPHASIS
from mt_cli.translation.inline_tags import Piece, Tag, TaggedText, partners_of, raw_of
from mt_cli.translation.lines import Alignment
from mt_cli.translation.sentences import units

_UNALIGNED = -0.01
"""Weight of a target word without alignment: it is inside of a pair of tags only between words that are."""
_ENDS_WORD = regex.compile(r"[\w.,:;!?)…。]")
_DEEPEST = 100


@dataclass
class _Node:
    """A tag that stands alone or a pair of tags, with places in the text without tags."""

    start_tag: str
    start: int
    end_tag: str = ""
    end: int = 0
    before: str = ""
    """Character before the start tag."""
    after: str | None = None
    """Character after a placeholder, or after marks around placeholders alone; None for others."""
    is_emphasis: bool = False
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
    needs_space: tuple[bool, bool]
    """True, before and after the text to translate, if what stands there is no part of a word of it."""

    @classmethod
    def of(cls, source: str, pieces: Sequence[Piece]) -> TextWithoutTags | None:
        """Text without the tags among its pieces; None if there are none, or too many inside of each other."""
        tagged = TaggedText.of(pieces)
        if not any(isinstance(piece, Tag) for piece in (*tagged.before, *tagged.pieces, *tagged.after)):
            return None
        kinds = [piece.kind for piece in tagged.pieces if isinstance(piece, Tag)]
        if max(accumulate((kind == "start") - (kind == "end") for kind in kinds), default=0) > _DEEPEST:
            return None
        plain, root = _tree(tagged.pieces)
        before, after = ("".join(map(raw_of, pieces)) for pieces in (tagged.before, tagged.after))
        content = "".join(map(raw_of, tagged.pieces))
        needs_space = (
            bool(tagged.before) and _is_placeholder(tagged.before[-1]) and not content[:1].isalnum(),
            bool(tagged.after) and _is_placeholder(tagged.after[0]) and not is_of_word(content[-1:]),
        )
        return cls(source, plain, before, after, root, needs_space)

    def with_tags(self, translation: str, alignment: Alignment) -> tuple[str, bool]:
        """Translation with the tags, and whether a place is a guess, because no word corresponds to those in the tags.

        `alignment` has pairs of words of the plain text and of its translation, as in `Details.word_alignment`.
        """
        if translation == self.plain:
            return self.source, False
        words = _Words(self.plain, translation), _Words(translation, self.plain)
        if not words[0].spans or not words[1].spans:
            return self._joined(_emitted(self.root, translation, {}, 0, len(translation))), True
        placement = _Placement(*words, alignment)
        placement.place(self.root, 0, len(words[1].spans))
        body = _emitted(self.root, translation, placement.places, 0, len(translation))
        has_all = all(body.count(mark) >= number for mark, number in _emphasis_of(self.root).items())
        return self._joined(body), placement.has_guess or not has_all

    def _joined(self, body: str) -> str:
        first, last = body[:1].isalnum() and self.needs_space[0], is_of_word(body[-1:]) and self.needs_space[1]
        return f"{self.before}{' ' * first}{body}{' ' * last}{self.after}"


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
                if is_after_single and plain and not _is_placeholder(before):
                    open_nodes[-1].children[-1].start_tag += " "
                elif isinstance(before, Tag) and before.kind == "end" and plain and open_nodes[-1].children:
                    closed = open_nodes[-1].children[-1]
                    closed.end_tag += " " if closed.after is None else ""
            plain += text
        elif piece.kind == "end" and len(open_nodes) > 1:
            node = open_nodes.pop()
            node.end = len(plain)
            if node.start == node.end and node.children:
                node.after = "".join(map(raw_of, pieces[index + 1 : index + 2]))[:1]
        else:
            node = _Node(piece.raw, len(plain), end=len(plain), is_emphasis=piece.name.startswith(EMPHASIS))
            node.before = raw_of(pieces[index - 1])[-1:] if index else ""
            if piece.is_placeholder:
                node.after = raw_of(pieces[index + 1])[:1]
            open_nodes[-1].children.append(node)
            if index in ends:
                node.end_tag = raw_of(pieces[ends[index]])
                open_nodes.append(node)
    return plain.rstrip(), root


def _is_placeholder(piece: Piece) -> bool:
    return isinstance(piece, Tag) and piece.is_placeholder


def _emphasis_of(node: _Node) -> Counter[str]:
    """Number of the marks of emphasis in a tree, by mark."""
    marks = Counter(2 * [child.start_tag for child in node.children if child.is_emphasis])
    return sum(map(_emphasis_of, node.children), marks)


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
        self._aligned = sorted(self._targets)
        """Source words that correspond to a word."""
        self.places: dict[int, tuple[int, int]] = {}
        """Start and end in the translation of each node, by its identity."""
        self.has_guess = not alignment

    def place(self, node: _Node, first: int, last: int) -> None:
        """Find places of the tags inside a node, whose words in the translation are `first` to `last - 1`."""
        free = set(range(first, last))
        for child in node.children:
            inside = self._source.overlapped(child.start, child.end) if child.after is None else range(0)
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
        if not self._targets:
            return self._target.spans[word * len(self._target.spans) // len(self._source.spans)][0]
        index = bisect_left(self._aligned, word)
        before, after = self._aligned[index - 1 : index], self._aligned[index : index + 1]
        if before and (not after or word - before[0] <= after[0] - word):
            return self._target.spans[max(self._targets[before[0]])][1]
        return self._target.spans[min(self._targets[after[0]])][0]


def _emitted(node: _Node, text: str, places: Mapping[int, tuple[int, int]], start: int, end: int) -> str:
    """Part of a translation with the tags of the children of a node, in the order of their places.

    A placeholder is beside a letter only if it was so in the source.
    """
    content, needs_space, previous = "", False, None
    for child in sorted(node.children, key=lambda child: places.get(id(child), (start, start))):
        first, last = (min(max(start, place), end) for place in places.get(id(child), (start, start)))
        last = max(first, last)
        content += _spaced(needs_space, text[start:first])
        needs_space &= first == start
        inside = _emitted(child, text, places, first, last)
        if not child.is_emphasis:
            inside = child.start_tag + inside + child.end_tag
        elif core := inside.strip():  # Marks of emphasis around nothing, or beside a space inside, would be text.
            inside = inside.replace(core, child.start_tag + core + child.end_tag)
        else:
            continue
        if child.end_tag.endswith(" "):
            inside = inside.rstrip(" ") + " " * (last < len(text) and not text[last].isspace())
        before, after = ("a", "a") if child.after is None else (child.before, child.after)
        has_space = content[-1:].isspace() or not content or (first == start and _are_joined(previous, child))
        if not has_space and (needs_space or before.isspace() or (is_of_word(content[-1]) and not is_of_word(before))):
            content += " "
        content += inside
        start, needs_space, previous = last, not after.isalnum(), child
    return content + _spaced(needs_space, text[start:end])


def _are_joined(first: _Node | None, second: _Node) -> bool:
    """True for two placeholders side by side in the source, such as `%d%%`."""
    if first is None or first.after is None or second.after is None:
        return False
    return first.end == second.start and second.before == first.start_tag[-1:] != " "


def _spaced(needs_space: bool, text: str) -> str:
    """Text with a space before it, if it needs one before a letter."""
    return f" {text}" if needs_space and text[:1].isalnum() else text
