"""Segments of lines with any engine: search, forced decoding, source words for unknown ones, terms of a glossary."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from mt_cli.config.sections import DecodingConfig
from mt_cli.corpus.glossary import FoundTerm, Glossary
from mt_cli.corpus.protected_text import RESERVED, ProtectedText
from mt_cli.corpus.rows import untagged
from mt_cli.corpus.term_marks import annotated, without_term_marks
from mt_cli.decoding.engine import Engine, ForcedDecoding, Hypothesis, Ids, NBest, Sentence
from mt_cli.errors import InputError
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair
from mt_cli.translation.lines import Segment, TextHypothesis, Translation
from mt_cli.translation.token_details import attended_words

if TYPE_CHECKING:
    from mt_cli.translation.translator import Translator

TextAndIds = tuple[str, Ids, Ids]
"""Text of a source, with its tag; its ids; and ids of a target."""
_PAIRS_FORCED_AT_ONCE = 512
_HAS_OTHER_SPACES = re.compile(r"[\r\n]| (?: |\Z)|\A ")
"""Line ends, double spaces, and spaces at the ends of a text."""


@dataclass(frozen=True)
class SegmentEngine:
    """Engine that reads segments and writes text, with the tokenizers and tags of its model."""

    engine: Engine
    tokenizers: TokenizerPair
    tags: Sequence[str]

    def search(
        self, lines: Sequence[Translation], decoding: DecodingConfig, num_best: int, prefix: str
    ) -> list[Translation]:
        """Lines with up to `num_best` translations of their segments, which begin with `prefix`."""
        searched = [line.searched for line in lines]
        segments = [segment for parts in searched for segment in parts]
        prefixes, prefix_ids = [""] * len(segments), list[Ids]()
        if prefix:
            firsts = [part is parts[0] for parts in searched for part in parts]
            places = zip(segments, firsts, strict=True)
            prefixes = [part.protected.protect(prefix) if is_first else "" for part, is_first in places]
            prefix_ids = [*self.tokenizers[1].encode(prefixes)]
        hypotheses = self._hypotheses(segments, decoding, num_best, prefix_ids)
        results = zip(segments, prefixes, hypotheses, strict=True)
        rows = [(segment, start, best) for segment, start, of_segment in results for best in of_segment]
        texts = self._texts(rows, decoding.unk == "copy")
        with_texts = ([TextHypothesis(next(texts), best) for best in of_segment] for of_segment in hypotheses)
        return [line.with_hypotheses(with_texts) for line in lines]

    def _hypotheses(
        self, segments: Sequence[Segment], decoding: DecodingConfig, num_best: int, prefix_ids: Sequence[Ids]
    ) -> list[NBest]:
        """Search for the hypotheses of each segment, without its language."""
        first_ids = self.tokenizers[0].first_target_ids([segment.text for segment in segments])
        if any(first_ids):
            prefix_ids = [[*first, *ids] for first, ids in zip_longest(first_ids, prefix_ids, fillvalue=())]
        sentences = [
            Sentence(segment.input_ids or segment.ids, prefix, segment.protected.order)
            for segment, prefix in zip(segments, prefix_ids or [()] * len(segments), strict=True)
        ]
        hypotheses = self.engine.search(sentences, decoding, num_best)
        if not any(first_ids):
            return hypotheses
        return [
            [hypothesis.without_first(len(first)) for hypothesis in of_segment]
            for of_segment, first in zip(hypotheses, first_ids, strict=True)
        ]

    def _texts(self, rows: Sequence[tuple[Segment, str, Hypothesis]], is_copied: bool) -> Iterator[str]:
        """Text of each hypothesis of a segment with a prefix, in one line without double spaces.

        Unknown words of the prefix are kept. With `is_copied`, all other unknown words are replaced by source words.
        """
        copied = [(segment, best.ids) for segment, _, best in rows if is_copied and segment.ids and UNK_ID in best.ids]
        decoded = self._force_decode_segments(copied, with_scores=False)
        texts = self.tokenizers[1].decode([best.ids for _, _, best in rows])
        for text, (segment, prefix, best) in zip(texts, rows, strict=True):
            words: dict[int, str] = {}
            if is_copied and segment.ids and UNK_ID in best.ids:
                attention = next(decoded).attention
                assert attention is not None
                words = attended_words(segment, attention[:-1, :-1], self.tokenizers[0], self.tags)
            if UNK_ID in best.ids and prefix:
                spans = self.tokenizers[1].spans(prefix)
                words |= {place: prefix[start:end] for place, (start, end) in enumerate(spans)}
            if words:
                tokens = enumerate(zip(best.ids, self.tokenizers[1].tokens(best.ids), strict=True))
                spelled = [words.get(place, token) if index == UNK_ID else token for place, (index, token) in tokens]
                text = self.tokenizers[1].join(spelled)
            if _HAS_OTHER_SPACES.search(text):  # The model can produce line ends as bytes.
                text = " ".join(filter(None, re.split("[ \r\n]", text)))
            yield text

    def force_decode(
        self, pairs: Sequence[TextAndIds], with_scores: bool = True, with_attention: bool = False
    ) -> Iterator[ForcedDecoding]:
        """Force-decode the pairs, some hundred at a time to limit memory; the language of a target is left out.

        An engine that does not compute the attention with the scores is asked for it, `with_attention` or without
        scores.
        """
        first_ids = self.tokenizers[0].first_target_ids([text for text, _, _ in pairs])
        for start in range(0, len(pairs), _PAIRS_FORCED_AT_ONCE):
            rows = range(start, min(start + _PAIRS_FORCED_AT_ONCE, len(pairs)))
            ids = [(pairs[row][1], [*first_ids[row], *pairs[row][2]]) for row in rows]
            decoded = self.engine.force_decode(ids) if with_scores else [ForcedDecoding([], None)] * len(ids)
            if (with_attention or not with_scores) and any(forced.attention is None for forced in decoded):
                both = zip(decoded, self.engine.attend(ids), strict=True)
                decoded = [ForcedDecoding(forced.log_probs, weights) for forced, weights in both]
            yield from (forced.without_first(len(first_ids[row])) for row, forced in zip(rows, decoded, strict=True))

    def force_decode_best(self, lines: Sequence[Translation], **options: bool) -> Iterator[ForcedDecoding]:
        """Force-decode the best translation of each segment; see `force_decode`."""
        rows = [(segment, segment.hypotheses[0].hypothesis.ids) for line in lines for segment in line.searched]
        return self._force_decode_segments(rows, **options)

    def _force_decode_segments(self, rows: Sequence[tuple[Segment, Ids]], **options: bool) -> Iterator[ForcedDecoding]:
        """Force-decode translations of segments, with the attention to their own tokens; see `force_decode`."""
        decoded = self.force_decode(
            [(segment.text, segment.input_ids or segment.ids, ids) for segment, ids in rows], **options
        )
        return (with_own_tokens(forced, row[0]) for forced, row in zip(decoded, rows, strict=True))


def check_terms(translator: Translator) -> None:
    """Raise InputError if the model has learned neither to follow a glossary nor to copy protected spans."""
    if not translator.takes_terms:
        raise InputError("terms: this model has not learned to use them; train one with corpus.terms: true")


def with_terms(lines: Sequence[Translation], glossary: Glossary, translator: Translator) -> list[Translation]:
    """Lines with the terms of a glossary, in each segment that has at most `most_tokens` of a translator with them.

    Terms are annotated if the model has learned it, and are otherwise protected spans, which translations have as the
    glossary has them. Raises InputError if the model has learned neither.
    """
    check_terms(translator)
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
    attention = np.zeros((len(forced.attention), len(ends) + 1), np.float32)
    np.add.at(attention.T, [*columns, len(ends)], forced.attention.T)
    return ForcedDecoding(forced.log_probs, attention)
