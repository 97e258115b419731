"""The pictures of attention that training writes for TensorBoard at each validation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mt_cli.features.inspection.figures import attention_pixels
from mt_cli.reporting.records import Sample
from mt_cli.translation.translator import Translator

_LONGEST_PICTURE = 60


def attention_pictures(translator: Translator, samples: Sequence[Sample], number: int) -> dict[str, NDArray[np.uint8]]:
    """The cross-attention, averaged over layers and heads, of the first samples that are short enough."""
    sources = translator.source_tokenizer.encode([source for source, _, _ in samples])
    targets = translator.target_tokenizer.encode([hypothesis for _, _, hypothesis in samples])
    shown = [
        (f"attention/{place}", pair)
        for place, pair in enumerate(zip(sources, targets, strict=True), start=1)
        if all(pair) and max(map(len, pair)) <= _LONGEST_PICTURE
    ][:number]
    found = translator.attentions([pair for _, pair in shown])
    return {tag: attention_pixels(weights, *tokens) for (tag, _), (*tokens, weights) in zip(shown, found, strict=True)}
