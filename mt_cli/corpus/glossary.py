"""Glossaries: terms with their translations, where they occur in a text, and whether a translation has them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import regex

from mt_cli.corpus.cache import fingerprint
from mt_cli.corpus.clean_text import cleaned
from mt_cli.corpus.languages import COMMON_WORDS, language_name, primary, writes_spaces
from mt_cli.corpus.rows import Languages, ReadReport
from mt_cli.corpus.sentences import has_words
from mt_cli.corpus.word_forms import SHORTEST_BEGINNING, WORD, are_forms, folded, shared_beginning, stems, words_in
from mt_cli.errors import ColumnError, InputError
from mt_cli.runtime.console import listed

Status = Literal["used", "inflected", "missing"]

_DIRECTION_MARKS = regex.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_PLURAL_OF_ABBREVIATION = regex.compile(r"(\p{Lu}{2,5})\p{Ll}{1,2}")
_MOST_WORDS, _MOST_CHARACTERS = 12, 120
"""Maximum size of a term; longer rows are sentences and definitions."""
_SENTENCE_ENDS = (".", "!", "?", ":", ";", "。", "！", "？")
_LONGEST_ABBREVIATION, _FEWEST_LETTERS = 5, 3
_ALTERNATIVES = "|"
_TABLES = (".csv", ".tsv")
_MOST_NAMED, _MOST_FORMS = 3, 20
_Node = dict[str | None, Any]


class Term(NamedTuple):
    """A term and its translations."""

    source: str
    targets: tuple[str, ...]
    """The first one is asked for; the others count as right, too."""
    place: str
    """File and line."""


class FoundTerm(NamedTuple):
    """A term in a text."""

    start: int
    end: int
    term: Term


class TermUse(NamedTuple):
    """What a translation has of a term of its source."""

    source: str
    """The term as the glossary has it."""
    target: str
    """The translation of the term that was used or, for a missing one, that was asked for."""
    status: Status
    """`used`: as in the glossary, in any case. `inflected`: another form of each word. `missing`: neither."""


@dataclass(frozen=True, repr=False)
class Glossary:
    """Terms of one direction; no two have the same source."""

    terms: tuple[Term, ...]
    notes: tuple[str, ...] = ()
    """What was read, what was left out, and what looks wrong, for people."""
    base: Glossary | None = None
    """Glossary whose terms are found where this one has none."""

    @classmethod
    def read(cls, paths: Sequence[Path], languages: Languages) -> Glossary:
        """Read files of any format of parallel text; the first file that has a term decides on its translations.

        Raises InputError if a file cannot be read, is of other languages, or has no term.
        """
        terms, notes, contradictions = dict[tuple[str, ...], Term](), list[str](), list[str]()
        for path in paths:
            of_file, of_notes = _read(path, languages)
            notes += of_notes
            for key, term in of_file.items():
                first = terms.setdefault(key, term)
                if not set(term.targets) & set(first.targets):
                    contradictions.append(f"`{term.source}` ({first.place}: {first.targets[0]}; {term.place})")
        if contradictions:
            notes.append(f"the first file decides where glossaries contradict each other: {_some(contradictions)}")
        common = [f"`{term.source}`" for key, term in terms.items() if _is_common(key, term.source, languages[0])]
        if common:
            notes.append(f"common or very short words as terms, which are found in many sentences: {_some(common)}")
        return cls(tuple(terms.values()), tuple(notes))

    @classmethod
    def of(cls, entries: Iterable[tuple[str, str]], base: Glossary | None = None) -> Glossary:
        """Glossary of pairs of a source and a target; raises InputError for those that `read` would leave out."""
        terms, left_out = _collected(((number, *entry) for number, entry in enumerate(entries, start=1)), "")
        if left_out:
            raise InputError(f"terms: {', '.join(f'{number:,} {reason}' for reason, number in left_out.items())}")
        return cls(tuple(terms.values()), base=base)

    def __repr__(self) -> str:
        return f"Glossary({self.digest})"

    def __bool__(self) -> bool:
        return bool(self.terms or self.base)

    @cached_property
    def digest(self) -> str:
        return fingerprint([term[:2] for term in self.terms], self.base and self.base.digest)

    @cached_property
    def _trie(self) -> _Node:
        """Terms by their words: each word leads to the words that may follow it, and no word to the term that ends."""
        root: _Node = {}
        for term in self.terms:
            node = root
            for word in words_in(term.source):
                node = node.setdefault(word, {})
            node[None] = term
        return root

    @cached_property
    def _words_by_stem(self) -> dict[str, list[str]]:
        by_stem = defaultdict[str, list[str]](list)
        for word in dict.fromkeys(word for term in self.terms for word in words_in(term.source)):
            for stem in stems(word):
                by_stem[stem].append(word)
        return dict(by_stem)

    @cached_property
    def _has_abbreviations(self) -> bool:
        """True if capitals mean something: unless all terms are in capitals, also longer ones than abbreviations."""
        sources = [term.source for term in self.terms]
        return not all(map(str.isupper, sources)) or all(map(_is_abbreviation, sources))

    def find(self, text: str, is_lowered: bool = False) -> list[FoundTerm]:
        """Terms in a text, in their order, none of which overlap: the longest one at each word, from the start.

        A single word of up to five letters that the glossary has in capitals is an abbreviation, which is found in
        capitals alone, or in a text that `is_lowered` from capitals.
        """
        matches = [*WORD.finditer(text)]
        forms = [self._forms_of(match[0]) for match in matches]
        terms, index = list[FoundTerm](), 0
        while index < len(matches):
            end, term = self._longest(forms, index)
            start, stop = matches[index].start(), matches[max(index, end - 1)].end()
            is_abbreviation = term is not None and self._has_abbreviations and _is_abbreviation(term.source)
            if term is None or (is_abbreviation and not is_lowered and not text.startswith(term.source, start)):
                index += 1
            else:
                terms.append(FoundTerm(start, stop, term))
                index = end
        others = self.base.find(text, is_lowered) if self.base else []
        free = [other for other in others if all(other.end <= term.start or term.end <= other.start for term in terms)]
        return sorted([*terms, *free], key=lambda term: term.start)

    def _forms_of(self, word: str) -> dict[str, bool]:
        """Folded words of the glossary of which a word may be a form, the nearest ones, and True for itself."""
        plain, plural = folded(word), _PLURAL_OF_ABBREVIATION.fullmatch(word)
        words = (other for stem in stems(plain) for other in self._words_by_stem.get(stem, ()))
        near = (other for other in words if are_forms(plain, other) and _is_inflected(plain, other))
        forms = dict.fromkeys(islice(near, _MOST_FORMS), False)
        return forms | ({folded(plural[1]): False} if plural else {}) | {plain: True}

    def _longest(self, forms: Sequence[dict[str, bool]], start: int) -> tuple[int, Term | None]:
        """End and longest term from a word on; of several of one length, the one with the most words as they are."""
        end, longest, states = start, None, [(0, self._trie)]
        for index in range(start, len(forms)):
            states = [
                (number + is_same, node[word])
                for number, node in states
                for word, is_same in forms[index].items()
                if word in node
            ]
            if not states:
                break
            if complete := [(number, node[None]) for number, node in states if None in node]:
                end, longest = index + 1, max(complete, key=itemgetter(0))[1]
        return end, longest


def term_uses(found: Sequence[FoundTerm], translation: str) -> list[TermUse]:
    """What a translation has of each term of its source; a word of the translation counts for one term only."""
    if not found:  # Most lines are translated without a glossary.
        return []
    words: list[str | None] = [*words_in(translation)]
    uses = dict[int, TermUse]()
    for status in ("used", "inflected"):
        for number, (_, _, term) in enumerate(found):
            targets = ((target, _places(words_in(target), words, status)) for target in term.targets)
            target, places = next((row for row in targets if row[1]), ("", ()))
            if number not in uses and places:
                uses[number] = TermUse(term.source, target, status)
                for place in places:
                    words[place] = None
    missing = (TermUse(term.source, term.targets[0], "missing") for _, _, term in found)
    return [uses.get(number, use) for number, use in enumerate(missing)]


def _places(target: Sequence[str], words: Sequence[str | None], status: str) -> Sequence[int]:
    """Places of a target in a translation: the same words side by side, or forms of them anywhere; empty if missing."""
    if status == "used":
        starts = (start for start in range(len(words) - len(target) + 1) if words[start] == target[0])
        return next((range(at, at + len(target)) for at in starts if words[at : at + len(target)] == target), ())
    places = list[int]()
    if len(target) > 1 and max(map(len, target)) < SHORTEST_BEGINNING:
        return places
    for wanted in target:
        options = (place for place, word in enumerate(words) if word and place not in places and _is_of(word, wanted))
        if (place := next(options, None)) is None:
            return ()
        places.append(place)
    return places


def _is_of(word: str, target: str) -> bool:
    """True if a word of a translation is a form of a target, also one with a long ending, or `case` of `casa`."""
    if are_forms(word, target):
        return True
    beginning = target[:-1] if len(word) == len(target) == SHORTEST_BEGINNING else target
    return len(target) >= SHORTEST_BEGINNING and word.startswith(beginning)


def _is_inflected(word: str, term: str) -> bool:
    """True if a form has the letters of a term but the last one, or one in place of two; false for derivations."""
    shared = shared_beginning(word, term)
    return len(term) - shared <= 1 or len(word) - shared == 1


def _read(path: Path, languages: Languages) -> tuple[dict[tuple[str, ...], Term], list[str]]:
    """Terms of a file by their words, and notes on it."""
    from mt_cli.corpus.formats.table import names_in, read_file, suffix_of  # Translations without a glossary need none.

    names, report = names_in(path), ReadReport(damaged_rows=[])
    pair, codes = (primary(languages[0]), primary(languages[1])), [*map(primary, names.names)]
    if names.are_languages and codes and pair[1] not in codes:
        found = " and ".join(map(language_name, codes[:3]))
        raise InputError(f"{path}: a glossary in {found}, and translations are in {language_name(languages[1])}")
    try:
        rows = [*read_file(path, languages, None, report=report)]
        if suffix_of(path) in _TABLES and {(primary(first), primary(second)) for _, first, second in rows} == {pair}:
            rows = [*read_file(path, languages, ("1", "2"), report=report)]  # Each row names the languages.
    except ColumnError as error:
        raise InputError(f"{error.problem}; name the columns by the languages in the first row") from None
    terms, left_out = _collected(rows, str(path))
    damaged = [f"{row:,}" for row in report.damaged_rows or ()]
    counts = [f"{number:,} {reason}" for reason, number in left_out.items()]
    if damaged:
        lines = f"line{'s' * (len(damaged) > 1)} {listed(damaged, _MOST_NAMED)}"
        counts.append(f"{len(damaged):,} with more cells than the others ({lines})")
    tail = f"; rows left out: {', '.join(counts)}" if counts else ""
    if not terms:
        raise InputError(f"{path}: has no term with a translation{tail}")
    first = next(iter(terms.values()))
    notes = [
        f"{path}: {len(terms):,} term{'s' * (len(terms) > 1)}, such as `{first.source}` = `{first.targets[0]}`{tail}",
        *report.notes(),
    ]
    several = [f"`{term.source}` = `{'` or `'.join(term.targets)}`" for term in terms.values() if len(term.targets) > 1]
    if several:
        notes.append(f"{path}: the first of several translations is asked for: {_some(several)}")
    return terms, notes


def _collected(rows: Iterable[tuple[int, str, str]], place: str) -> tuple[dict[tuple[str, ...], Term], Counter[str]]:
    """Terms by their words, and the number of rows that are left out, by reason."""
    terms, left_out = dict[tuple[str, ...], Term](), Counter[str]()
    for number, *sides in rows:
        source, *targets = (_clean(text) for text in (sides[0], *sides[1].split(_ALTERNATIVES)))
        targets = [target for target in targets if has_words(target)]
        if not (source or targets):
            continue
        if not (has_words(source) and targets):
            left_out["without a source" if targets else "without a translation"] += 1
        elif any(map(_is_sentence, (source, *targets))):
            left_out["with sentences"] += 1
        else:
            key = tuple(words_in(source))
            term = terms.setdefault(key, Term(source, (), f"{place}, line {number:,}"))
            terms[key] = term._replace(targets=tuple(dict.fromkeys([*term.targets, *targets])))
    return terms, left_out


def _clean(text: str) -> str:
    return " ".join(cleaned(_DIRECTION_MARKS.sub("", text)).split())


def _is_sentence(text: str) -> bool:
    """True for a text that is no term, because it is long, or because a mark ends several words."""
    num_words = len(text.split())
    is_ended = num_words > 2 and text.endswith(_SENTENCE_ENDS)
    return is_ended or num_words > _MOST_WORDS or len(text) > _MOST_CHARACTERS


def _is_abbreviation(source: str) -> bool:
    return 1 < len(source) <= _LONGEST_ABBREVIATION and source.isalpha() and source.isupper()


def _is_common(key: Sequence[str], source: str, language: str) -> bool:
    """True for one word that is among the most frequent ones of a language, or that has one or two letters."""
    fewest = _FEWEST_LETTERS if writes_spaces(language) else 2
    is_short = len(source) < fewest and not _is_abbreviation(source)
    return is_short or (len(key) == 1 and key[0] in COMMON_WORDS.get(primary(language), ()))


def _some(items: Sequence[str]) -> str:
    return listed(items, _MOST_NAMED)
