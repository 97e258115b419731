"""Files `tokenizer.json` of M2M100 and NLLB, if they split text as SentencePiece does."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from mt_cli.errors import InputError, one_line
from mt_cli.exchange.sentencepiece import Pieces, pieces_of, ranked
from mt_cli.runtime.files import read_regular, reading
from mt_cli.tokenizer.tokenizer import MAX_FILE_BYTES

LOWEST_SCORE = -1e6
"""Score of entries that are no pieces, in unigram models that `mt` writes."""
_SETTINGS = ("dropout", "byte_fallback", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix")
"""Settings of a model with which it would split text in another way."""
_STEPS_OF_SPACES = ("Strip", "Replace")


def read_fast_tokenizer(path: Path, special: Collection[str]) -> tuple[Pieces, dict[str, int], dict[str, int]]:
    """Pieces and entries of a `tokenizer.json` that splits text as SentencePiece does, and its added entries.

    Raises InputError if the file is damaged, or has steps or settings that SentencePiece does not have.
    """
    with reading(path):
        content = read_regular(path, MAX_FILE_BYTES)
    try:
        tree = json.loads(content)
        model, is_bpe = tree["model"], tree["model"]["type"] == "BPE"
        if model["type"] not in ("BPE", "Unigram"):
            raise ValueError("it is neither a bpe nor a unigram model")
        if changed := [key for key in _SETTINGS if model.get(key)]:
            raise ValueError(f"model.{changed[0]} is set, with which it splits text in another way than SentencePiece")
        vocab = model["vocab"] if is_bpe else {str(piece): index for index, (piece, _) in enumerate(model["vocab"])}
        ids = {str(name): int(index) for name, index in vocab.items()}
        if len(ids) < len(model["vocab"]):
            raise ValueError("an entry occurs twice")
        added = {str(token["content"]): int(token["id"]) for token in tree.get("added_tokens") or []}
        names = [name for name in ids if name not in special and name not in added]
        scores = _ranks_of(model["merges"], names) if is_bpe else {str(name): score for name, score in model["vocab"]}
        kept = {name: scores[name] for name in names if scores.get(name, LOWEST_SCORE) > LOWEST_SCORE}
        pieces = pieces_of(kept, is_bpe, *_steps_of(tree))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a tokenizer of M2M100 or NLLB: {one_line(error)}") from None
    return pieces, ids, added


def _steps_of(tree: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Compiled normalisation, and whether a space is put before a text; raises ValueError for other steps."""
    normalizer, splitter = tree.get("normalizer") or {"type": "Sequence", "normalizers": []}, tree["pre_tokenizer"]
    steps = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    kinds = [step["type"] for step in steps if step["type"] not in _STEPS_OF_SPACES]
    if kinds not in ([], ["Precompiled"]) or splitter["type"] != "Metaspace":
        raise ValueError("its steps are not those of SentencePiece")
    charsmaps = [step.get("precompiled_charsmap") or "" for step in steps if step["type"] == "Precompiled"]
    # Before version 0.15 of the library, `add_prefix_space` says it.
    adds_prefix = splitter.get("prepend_scheme", "always") != "never" and splitter.get("add_prefix_space", True)
    return b64decode("".join(charsmaps), validate=True), bool(adds_prefix)


def _ranks_of(merges: Any, names: Collection[str]) -> dict[str, float]:
    """Scores by which SentencePiece makes the same merges: the piece that is merged first has the highest.

    Entries that no merge makes are no pieces, except for single characters. Raises ValueError for a merge without an
    entry.
    """
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    made, entries = {left + right for left, right in pairs}, {*names}
    if unknown := [pair for pair in pairs if not {*pair, "".join(pair)} <= entries]:
        raise ValueError(f"its merge of {unknown[0]!r:.80} has no entry")
    ranks = ranked(pairs, names)
    return {name: ranks[name] for name in names if name in made or len(name) == 1}
