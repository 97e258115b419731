"""Source words in the place of unknown words of a translation, and its text as one line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mt_cli.corpus.rows import untagged
from mt_cli.tokenizer.special import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.translation.lines import Segment


def attended_words(segment: Segment, weights: Tensor, tokenizer: Tokenizer, tags: Sequence[str]) -> dict[int, str]:
    """The source word with the most attention for each target token, by TxS weights; a tag is no word.

    If the source has unknown words, one of them is chosen: names are unknown on both sides, and attention often points
    to the word beside them. After Luong et al. 2015, "Addressing the Rare Word Problem in Neural Machine Translation",
    section 3.3.
    """
    may_be_copied = torch.tensor(segment.ids) == UNK_ID
    if not may_be_copied.any():
        may_be_copied[:] = True
        may_be_copied[0] = untagged(segment.text, tags) == segment.text or len(segment.ids) == 1
    best = weights.masked_fill(~may_be_copied, -1.0).argmax(dim=1).tolist()
    spans = tokenizer.spans(segment.text)
    return {place: segment.text[slice(*spans[source])] for place, source in enumerate(best)}


def with_words(words: Mapping[int, str], ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """The text of ids, with these words in the place of unknown ones."""
    tokens = [
        words.get(place, token) if index == UNK_ID else token
        for place, (index, token) in enumerate(zip(ids, tokenizer.tokens(ids), strict=True))
    ]
    return tokenizer.join(tokens)


def one_line_text(text: str) -> str:
    """The text without double spaces and without line ends, which the model can produce as bytes."""
    return " ".join(filter(None, re.split("[ \r\n]", text)))
