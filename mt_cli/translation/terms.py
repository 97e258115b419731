"""Terms of a glossary in lines to translate: what the model reads in place of them, which stays out of alignments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from mt_cli.corpus.glossary import FoundTerm, Glossary
from mt_cli.corpus.protected_text import RESERVED, ProtectedText
from mt_cli.corpus.rows import untagged
from mt_cli.corpus.term_marks import annotated, without_term_marks
from mt_cli.decoding.engine import ForcedDecoding
from mt_cli.errors import InputError
from mt_cli.translation.lines import Segment, Translation

if TYPE_CHECKING:
    from mt_cli.translation.translator import Translator


def with_terms(lines: Sequence[Translation], glossary: Glossary, translator: Translator) -> list[Translation]:
    """Lines with the terms of a glossary, in each segment that has at most `most_tokens` of a translator with them.

    Terms are annotated if the model has learned it, and are otherwise protected spans, which translations have as the
    glossary has them. Raises InputError if the model has learned neither.
    """
    if not translator.takes_terms:
        raise InputError("terms: this model has not learned to use them; train one with corpus.terms: true")
    tokenizer, most_tokens = translator.source_tokenizer, translator.most_tokens or translator.max_tokens
    segments = [segment for line in lines for segment in line.searched]
    bodies = [untagged(segment.text, translator.tags) for segment in segments]
    are_lowered = [line.capitals_of is not None for line in lines for _ in line.searched]
    terms = [
        glossary.find(body, is_lowered) if body == without_term_marks(body) else []
        for body, is_lowered in zip(bodies, are_lowered, strict=True)
    ]
    rows = [row for row, of_segment in enumerate(terms) if of_segment]
    change = _annotated if tokenizer.has_term_marks else _forced
    changed = [change(segments[row], bodies[row], terms[row]) for row in rows]
    for row, segment, ids in zip(rows, changed, tokenizer.encode([segment.input for segment in changed]), strict=True):
        fits = len(ids) <= most_tokens
        segments[row] = replace(segment, input_ids=ids) if fits else replace(segments[row], terms=terms[row])
    waiting = iter(segments)
    return [
        replace(line, segments=[next(waiting) if segment.text else segment for segment in line.segments])
        for line in lines
    ]


def _annotated(segment: Segment, body: str, terms: Sequence[FoundTerm]) -> Segment:
    text, places = annotated(body, [(start, end, term.targets[0]) for start, end, term in terms])
    shift = len(segment.text) - len(body)
    places = [*range(shift), *(shift + place for place in places)]
    return replace(segment, terms=terms, input=segment.text[:shift] + text, places=places)


def _forced(segment: Segment, body: str, terms: Sequence[FoundTerm]) -> Segment:
    """Segment whose terms are reserved characters that stand for their translations, as far as there are characters."""
    text, shift, protected = segment.text, len(segment.text) - len(body), segment.protected
    places = [place for place, character in enumerate(text) if character in RESERVED] if protected.contents else []
    contents = dict(zip(places, protected.contents, strict=True))
    parts, new_places, place = list[str](), list[int](), 0
    free = (character for character in RESERVED if character not in text)
    for (start, end, term), character in zip(terms, free, strict=False):
        contents[shift + start] = term.targets[0]
        parts += [text[place : shift + start], character]
        new_places += range(place, shift + start + 1)
        place = shift + end
    new_text = "".join([*parts, text[place:]])
    forced = ProtectedText(new_text, tuple(contents[place] for place in sorted(contents)))
    places = [*new_places, *range(place, len(text) + 1)]
    return replace(segment, terms=terms, input=new_text, places=places, protected=forced)


def with_own_tokens(forced: ForcedDecoding, segment: Segment) -> ForcedDecoding:
    """Forced decoding of a segment with terms, with the attention to the tokens of its own text.

    Attention to what the model read in addition counts for the words of the term.
    """
    if forced.attention is None or not segment.input or segment.tokenizer is None:
        return forced
    ends = [end for _, end in segment.tokenizer.spans(segment.text)]
    columns = list[int]()
    for start, end in segment.tokenizer.spans(segment.input):
        is_rest_of_character = start == end and bool(columns)
        column = columns[-1] if is_rest_of_character else bisect_right(ends, segment.places[start])
        columns.append(min(column, len(ends) - 1))
    attention = forced.attention.new_zeros(len(forced.attention), len(ends) + 1)
    attention.index_add_(1, torch.tensor([*columns, len(ends)]), forced.attention)
    return ForcedDecoding(forced.log_probs, attention)
