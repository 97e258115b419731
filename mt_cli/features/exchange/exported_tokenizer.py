"""For `mt import`: the tokenizer in a folder that `mt export --format huggingface` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mt_cli.errors import InputError, one_line
from mt_cli.machine.storage import read_regular, reading
from mt_cli.tokenizer.tokenizer import MAX_FILE_BYTES, Tokenizer

_ALGORITHMS = {"BPE": "bpe", "Unigram": "unigram"}


def read_exported_tokenizer(path: Path) -> tuple[Tokenizer, tuple[str, ...]]:
    """The tokenizer of both sides, and its tags; raises InputError if it is not one of ours.

    The export has added what `transformers` needs: special tokens and tags as added tokens, and the end of a sentence.
    """
    with reading(path):
        content = read_regular(path, MAX_FILE_BYTES)
    try:
        state = json.loads(content)
        tags = tuple(str(each["content"]) for each in state["added_tokens"] if not each["special"])
        own = json.dumps(state | {"added_tokens": [], "post_processor": None})
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise InputError(f"{path}: not a tokenizer of `mt`: {one_line(error)}") from None
    return Tokenizer.parse(own.encode("utf-8"), path, tags), tags


def tokenizer_options(tokenizer: Tokenizer) -> dict[str, Any]:
    """The options of `tokenizer` that such a tokenizer was trained with, as far as it shows them."""
    state = json.loads(tokenizer.to_json())
    steps = {step["type"] for step in state["normalizer"]["normalizers"]}
    words = "char" if "Regex" in state["pre_tokenizer"].get("pattern", {}) else "word_level"  # Words end at a space.
    options = {"algorithm": _ALGORITHMS.get(state["model"]["type"], words), "shared": True}
    options |= {"lowercase": "Lowercase" in steps, "nfkc": "NFKC" in steps}
    if options["algorithm"] in _ALGORITHMS.values():
        options["byte_fallback"] = bool(state["model"].get("byte_fallback"))
    return options
