"""Translations of texts with inline marks, each of which is in the translation once."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mt_cli.corpus.protected_text import have_other_order
from mt_cli.translation.aligned_tags import TextWithoutTags
from mt_cli.translation.inline_marks import InlineMarks, may_have_marks
from mt_cli.translation.inline_tags import Piece, Tag
from mt_cli.translation.lines import Alignment, MarkedTexts, Translation
from mt_cli.translation.sentences import units

if TYPE_CHECKING:
    from mt_cli.translation.translator import Translator

SPANS_LOST = "a protected span of the source is missing"
SPANS_REORDERED = "placeholders such as %s are in another order than in the source"
TERMS_MISSING = "a term of the glossary is missing"
MARKS_GUESSED = "the place of a tag or another mark is a guess"


class Draft(NamedTuple):
    """Translation of a text."""

    text: str
    problem: str | None = None
    """Reason why it needs a review."""
    item: Translation | None = None
    """Translation by the model; of a text whose marks were placed by alignment, without them. None after a second
    model."""
    others: Sequence[str] = ()
    """Texts of the other hypotheses of `item`, with the marks."""


def lost_spans(source: str, draft: Draft, marks: InlineMarks) -> list[str]:
    """Marks and protected spans of a text that its draft lacks."""
    target = draft.text
    if source == target:
        return []
    before, after = (Counter(text[start:end] for start, end in marks.kept_spans(text)) for text in (source, target))
    missing = [*(before - after), *marks.lost_numbers(source, target), *(draft.item.lost_spans if draft.item else ())]
    return [span for span in dict.fromkeys(missing) if target.count(span) < source.count(span)]


def translations_with_marks(
    lines: Sequence[str], translator: Translator, marks: InlineMarks, search: Mapping[str, Any]
) -> list[Translation]:
    """Translations of lines whose texts have the marks of the lines."""
    drafts = drafts_with_marks(lines, translator, marks, search)
    return [
        _with_marks(line, draft, marks) if may_have_marks(line) else draft.item
        for line, draft in zip(lines, drafts, strict=True)
        if draft.item is not None  # There is no second model.
    ]


def _with_marks(line: str, draft: Draft, marks: InlineMarks) -> Translation:
    item = draft.item
    assert item is not None  # There is no second model.
    texts = [draft.text, *draft.others] if draft.others else [draft.text, *(text for text, _ in item.hypotheses[1:])]
    lost = [tuple(marks.lost_in(line, text)) for text in texts]
    if not any(lost) and not marks.spans(line):
        return item
    marked = replace(item, source=line, marked=MarkedTexts(texts, lost, draft.problem == MARKS_GUESSED))
    if item.details is None or item.source == line:
        return marked
    alignment = _alignment_with_marks(item, line, draft.text, marks)
    return replace(marked, details=replace(item.details, word_alignment=alignment))


def _alignment_with_marks(item: Translation, source: str, target: str, marks: InlineMarks) -> Alignment:
    """Aligned words of both texts with their marks, which have no words of their own."""
    assert item.details is not None
    source_words, target_words = (
        _words_with_marks(*texts, marks) for texts in ((item.normalised, source), (item.text, target))
    )
    pairs = item.details.word_alignment
    return sorted({(source_words[first], target_words[last]) for first, last in pairs if source_words and target_words})


def _words_with_marks(plain: str, text: str, marks: InlineMarks) -> list[int]:
    """Word of a text for each word of the same text without marks; empty if the texts differ otherwise."""
    in_marks = {index for start, end in marks.spans(text) for index in range(start, end)}
    outside = [index for index, letter in enumerate(text) if index not in in_marks and not letter.isspace()]
    if "".join(text[index] for index in outside) != "".join(plain.split()):
        return []
    starts, number, words = [start for start, _ in units(text)], 0, list[int]()
    for start, end in units(plain):
        words.append(bisect_right(starts, outside[number]) - 1)
        number += end - start
    return words


def drafts_with_marks(
    lines: Sequence[str], translator: Translator, marks: InlineMarks, search: Mapping[str, Any]
) -> list[Draft]:
    """Drafts of lines. Marks that the model does not protect, or that it loses, are placed by alignment."""
    plain = {row: pieces for row, line in enumerate(lines) if (pieces := marks.without_unprotected(line))}
    drafts = _placed(lines, plain, translator, search)
    broken = [row for row, line in enumerate(lines) if not marks.has_same_marks(line, drafts[row].text)]
    again = {number: marks.without_any(lines[row]) for number, row in enumerate(broken)}
    for row, draft in zip(broken, _placed([lines[row] for row in broken], again, translator, search), strict=True):
        drafts[row] = draft
    for number, row in enumerate(broken):
        has_placeholder = any(isinstance(piece, Tag) and piece.is_placeholder for piece in again[number])
        is_changed = drafts[row].text != lines[row]
        if has_placeholder and is_changed and not drafts[row].problem:  # The sentence was translated without it.
            drafts[row] = drafts[row]._replace(problem=MARKS_GUESSED)
    for row, line in enumerate(lines):
        if not drafts[row].problem and marks.lost_numbers(line, drafts[row].text):
            drafts[row] = drafts[row]._replace(problem=SPANS_LOST)
    return drafts


def _placed(
    lines: Sequence[str], pieces: Mapping[int, Sequence[Piece]], translator: Translator, search: Mapping[str, Any]
) -> list[Draft]:
    """Drafts of lines; those with `pieces`, by their index, are translated without the tags among them."""
    texts = {row: text for row in pieces if (text := TextWithoutTags.of(lines[row], pieces[row]))}
    sources = [texts[row].plain if row in texts else line for row, line in enumerate(lines)]
    items = translator.translate_fully(sources, **search, keeps_marks=False)
    has_others = search.get("num_best", 1) > 1
    ranks = [item.by_rank if has_others else [item] for item in items]
    drafts = [Draft(item.text, _problem_of(item), item, [other.text for other in others]) for item, *others in ranks]
    ranked = [(row, item) for row in texts for item in ranks[row]]
    placed = defaultdict[int, list[tuple[str, bool]]](list)
    for (row, item), alignment in zip(ranked, translator.word_alignments([item for _, item in ranked]), strict=True):
        placed[row].append(texts[row].with_tags(item.text, alignment))
    for row, ((content, is_guess), *others) in placed.items():
        is_reordered = have_other_order(lines[row], content)  # Tags may have placeholders, too.
        problem = drafts[row].problem or (SPANS_REORDERED if is_reordered else MARKS_GUESSED if is_guess else None)
        drafts[row] = Draft(content, problem, items[row], [text for text, _ in others])
    return drafts


def _problem_of(item: Translation) -> str | None:
    if item.lost_spans:
        return SPANS_LOST
    if item.reordered_spans:
        return SPANS_REORDERED
    return TERMS_MISSING if any(use.status == "missing" for use in item.term_uses) else None
