"""Tokens of a line and of its translation: their scores, their alignment, and source words for unknown ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import itemgetter

import numpy as np

from mt_cli.corpus.protected_text import ProtectedText, Restored
from mt_cli.corpus.rows import untagged
from mt_cli.decoding.engine import Attention, ForcedDecoding
from mt_cli.tokenizer.special_tokens import ABSENT, EOS, UNK_ID, character_ends
from mt_cli.tokenizer.tokenizer import Tokenizer, TokenizerPair
from mt_cli.translation.lines import Alignment, Segment, Translation
from mt_cli.translation.sentences import units


@dataclass(frozen=True)
class Details:
    """Tokens of a line and of its best translation; the tokens of several segments follow each other."""

    source_tokens: list[str]
    tokens: list[str]
    """Includes [EOS] at the end of every segment."""
    token_scores: list[float]
    """Log-probability of each token, in nats, given the source and the tokens before it."""
    alignment: Alignment
    """The source token that each token attends to most."""
    word_alignment: Alignment
    """Aligned words of the line and of its translation, sorted (the Pharaoh format). Each character of a script without
    spaces counts as a word."""
    word_scores: list[float]
    """Lowest log-probability of the tokens of each word of the translation, in nats; 0 for words that are copied."""


@dataclass(frozen=True)
class PairScore:
    """Probability of a given translation."""

    tokens: list[str]
    """Includes [EOS]."""
    token_scores: list[float]
    """Log-probability of each token, in nats."""

    @property
    def log_prob(self) -> float:
        """Log-probability of the translation given its source, in nats."""
        return sum(self.token_scores)


def details_of(
    line: Translation, decoded: Iterator[ForcedDecoding], tokenizers: TokenizerPair, tags: Sequence[str]
) -> Details:
    """Details of the best translation of a line; takes one item of `decoded` per segment that is not empty."""
    source_tokenizer, target_tokenizer = tokenizers
    source_tokens: list[str] = []
    tokens: list[str] = []
    token_scores: list[float] = []
    alignment: Alignment = []
    word_pairs: set[tuple[int, int]] = set()
    word_scores: dict[int, float] = {}
    last_word, num_before = "", 0  # Of the translation so far: its last word and what follows, and the words before it.
    original = line.protected.restore(line.protected.text) if line.protected.text else Restored(line.normalised)
    words = units(original.text)
    for segment in line.segments:
        best = segment.hypotheses[0]
        if segment.text:
            forced = next(decoded)
            pairs = _alignment(segment.text, forced, tags)
            alignment += [(len(source_tokens) + source, len(tokens) + target) for source, target in pairs]
            shift, body_start = segment.start, len(segment.text) - len(untagged(segment.text, tags))
            spans = source_tokenizer.spans(segment.text)  # A space before the first word has an empty span.
            ends = [max(body_start + 1, end) for _, end in spans]
            source_words = [
                _overlapped(words, original.place(max(0, shift + start)), original.place(shift + end))
                for (start, _), end in zip(spans, ends, strict=True)
            ]
            target_words = _target_words(
                target_tokenizer, best.hypothesis.ids, last_word, num_before, segment.protected
            )
            for token_words, score in zip(target_words, forced.log_probs, strict=False):  # [EOS] has no word.
                word_scores |= {word: min(score, word_scores.get(word, 0.0)) for word in token_words}
            for source, target in pairs:
                word_pairs.update(product(source_words[source], target_words[target]))
            shown = segment.protected.show
            source_tokens += (shown(token.removeprefix(ABSENT)) for token in source_tokenizer.tokens(segment.ids))
            tokens += [*map(shown, target_tokenizer.tokens(best.hypothesis.ids)), EOS]
            token_scores += forced.log_probs
        last_word += segment.restored().text + segment.glue
        if words_so_far := units(last_word):
            num_before += len(words_so_far) - 1
            last_word = last_word[words_so_far[-1][0] :]
    scores = [word_scores.get(word, 0.0) for word in range(len(units(line.text)))]
    return Details(source_tokens, tokens, token_scores, alignment, sorted(word_pairs), scores)


def _alignment(text: str, forced: ForcedDecoding, tags: Sequence[str]) -> Alignment:
    """Alignment of target tokens with the source tokens that they attend to most; [EOS] and tags are excluded."""
    num_tags = int(untagged(text, tags) != text)
    if forced.attention is None or (weights := forced.attention[:-1, num_tags:-1]).shape[1] == 0:
        return []
    return [(source + num_tags, target) for target, source in enumerate(weights.argmax(axis=1).tolist())]


def _target_words(
    tokenizer: Tokenizer, ids: Sequence[int], before: str, num_before: int, protected: ProtectedText
) -> list[range]:
    """Range of words for each token of a segment.

    `before` is the translation before the segment, from its last word on, and `num_before` the number of words before
    that one.
    """
    tokens = tokenizer.tokens(ids)
    translation = protected.restore(tokenizer.join(tokens))
    words = units(before + translation.text)
    word_ranges, start = [], 0
    ends = character_ends(tokens)
    lengths = _lengths(tokenizer, tokens, ends)
    for index, last_index in enumerate(ends):
        end = max(1, translation.place(min(lengths[last_index], lengths[-1])))
        overlapped = _overlapped(words, len(before) + start, len(before) + end)
        word_ranges.append(range(num_before + overlapped.start, num_before + overlapped.stop))
        if index == last_index:
            start = end
    return word_ranges


def _lengths(tokenizer: Tokenizer, tokens: Sequence[str], character_ends: Sequence[int]) -> dict[int, int]:
    """Length of the text up to each token that ends a character; -1 stands for the last token.

    The text of a token depends on the tokens beside it, for example at the start of a line, but not on all.
    """
    lengths, context = {-1: 0}, [-1, -1, -1]
    for last in dict.fromkeys(character_ends):
        before, both = (tokens[context[0] + 1 : end + 1] for end in (context[-1], last))
        lengths[last] = lengths[context[-1]] + len(tokenizer.join(both)) - len(tokenizer.join(before))
        context = [*context[1:], last]
    return lengths | {-1: len(tokenizer.join(tokens))}


def _overlapped(spans: Sequence[tuple[int, int]], start: int, end: int) -> range:
    """Indices of the sorted spans that overlap with `start` to `end`; if there is none, of the span before."""
    first, last = bisect_right(spans, start, key=itemgetter(1)), bisect_left(spans, end, key=itemgetter(0))
    return range(first, last) if first < last else range(max(0, last - 1), max(1, last))


def attended_words(segment: Segment, weights: Attention, tokenizer: Tokenizer, tags: Sequence[str]) -> dict[int, str]:
    """Source word with the most attention for each target token, by TxS weights; tags are not words.

    If the source has unknown words, one of them is chosen: names are unknown on both sides, and attention often points
    to the word beside them. After Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation",
    section 3.3.
    """
    may_be_copied = np.array(segment.ids) == UNK_ID
    if not may_be_copied.any():
        may_be_copied[:] = True
        may_be_copied[0] = untagged(segment.text, tags) == segment.text or len(segment.ids) == 1
    best = np.where(may_be_copied, weights, -1.0).argmax(axis=1).tolist()
    spans = tokenizer.spans(segment.text)
    return {place: segment.text[slice(*spans[source])] for place, source in enumerate(best)}
