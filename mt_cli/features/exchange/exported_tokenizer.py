"""For `mt import`: the tokenizer in a folder that `mt export --format huggingface` wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mt_cli.config.sections import TokenizerConfig, is_replacement
from mt_cli.errors import InputError, one_line
from mt_cli.machine.storage import read_regular, reading
from mt_cli.tokenizer.spelling import NORMALIZATIONS
from mt_cli.tokenizer.tokenizer import MAX_FILE_BYTES, Tokenizer

_ALGORITHMS = {"BPE": "bpe", "Unigram": "unigram"}


def read_exported_tokenizer(path: Path) -> tuple[Tokenizer, tuple[str, ...], dict[str, Any]]:
    """Tokenizer of both sides, its tags and the options of `tokenizer`; raises InputError if it is not one of ours.

    The export has added what `transformers` needs: special tokens and tags as added tokens, and the end of a sentence.
    """
    with reading(path):
        content = read_regular(path, MAX_FILE_BYTES)
    try:
        state = json.loads(content)
        tags = tuple(str(entry["content"]) for entry in state["added_tokens"] if not entry["special"])
        text = json.dumps(state | {"added_tokens": [], "post_processor": None})
        options = _options_of(state)
        config = TokenizerConfig.model_validate(options)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a tokenizer of `mt`: {one_line(error)}") from None
    return Tokenizer.parse(text.encode("utf-8"), path, config, tags), tags, options


def _options_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Options of `tokenizer` that a tokenizer was trained with, as far as its steps show them."""
    steps = state["normalizer"]["normalizers"]
    kinds = {step["type"] for step in steps}
    words = "char" if "Regex" in state["pre_tokenizer"].get("pattern", {}) else "word_level"  # Words end at a space.
    options: dict[str, Any] = {"algorithm": _ALGORITHMS.get(state["model"]["type"], words), "shared": True}
    options |= {"lowercase": "Lowercase" in kinds, "nfkc": "NFKC" in kinds}
    if options["algorithm"] in _ALGORITHMS.values():
        options["byte_fallback"] = bool(state["model"].get("byte_fallback"))
    states = {name: [json.loads(step.__getstate__()) for step in ours] for name, ours in NORMALIZATIONS.items()}
    normalize = [name for name, ours in states.items() if all(state in steps for state in ours)]
    replacements = [(step["pattern"].get("String"), step["content"]) for step in steps if step["type"] == "Replace"]
    letters = {old: new for old, new in replacements if isinstance(old, str) and is_replacement(old, new)}
    return options | {"normalize": normalize, "letters": letters}
