"""The tokenizers of a parent with the spelling of a child: other `tokenizer.normalize` and `tokenizer.letters`."""

from __future__ import annotations

import json
from collections.abc import Sequence

import tokenizers

from mt_cli.config.sections import TokenizerConfig
from mt_cli.tokenizer.spacing import untrained_backend
from mt_cli.tokenizer.tokenizer import Tokenizer, TokenizerPair


def with_spelling(pair: TokenizerPair, config: TokenizerConfig, tags: Sequence[str]) -> TokenizerPair:
    """Tokenizers with the same entries that change the spelling of text as a config says; not SentencePiece models."""
    source, target = pair
    normalizer = json.loads(untrained_backend(config)[0].to_str())["normalizer"]
    first = _with_normalizer(source, normalizer, tags)
    return first, first if source is target else _with_normalizer(target, normalizer)


def _with_normalizer(tokenizer: Tokenizer, normalizer: object, tags: Sequence[str] = ()) -> Tokenizer:
    state = json.loads(tokenizer.to_json()) | {"normalizer": normalizer}
    return Tokenizer(tokenizers.Tokenizer.from_str(json.dumps(state)), tags)
