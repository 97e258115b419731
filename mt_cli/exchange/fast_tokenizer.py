"""Files `tokenizer.json` of M2M100 and NLLB, if they split text as SentencePiece does."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from math import inf
from pathlib import Path
from typing import Any

from mt_cli.errors import InputError, one_line
from mt_cli.exchange.sentencepiece import LOWEST_SCORE, Pieces, ranked
from mt_cli.runtime.files import read_regular, reading
from mt_cli.tokenizer.sentencepiece import all_merges
from mt_cli.tokenizer.tokenizer import MAX_FILE_BYTES

_MERGED_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}}
_STRIP = {"type": "Strip", "strip_right": True}
"""Spaces before a text may stay: no other is put before them."""
_SETTINGS = (
    *("dropout", "byte_fallback", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix"),
    *("unk_token", "fuse_unk"),
)
"""Settings of a model that must have the values of SentencePiece."""


def read_fast_tokenizer(
    path: Path, special: Collection[str], needs_pieces: bool
) -> tuple[Pieces, dict[str, int], dict[str, int]]:
    """Pieces and entries of a `tokenizer.json` that splits text as SentencePiece does, and its added entries.

    `needs_pieces` says whether no other file has the pieces; the merges are compared with those of SentencePiece only
    then. Raises InputError if the file is damaged, or splits text in another way.
    """
    with reading(path):
        content = read_regular(path, MAX_FILE_BYTES)
    try:
        tree = json.loads(content)
        model, is_bpe = tree["model"], tree["model"]["type"] == "BPE"
        if model["type"] not in ("BPE", "Unigram"):
            raise ValueError("it is neither a bpe nor a unigram model")
        _check_settings(model)
        vocab = model["vocab"] if is_bpe else {str(piece): index for index, (piece, _) in enumerate(model["vocab"])}
        ids = {str(name): int(index) for name, index in vocab.items()}
        added = {str(token["content"]): int(token["id"]) for token in tree.get("added_tokens") or []}
        if len(ids) < len(model["vocab"]):
            raise ValueError("an entry occurs twice")
        if not is_bpe and model.get("unk_id") != ids.get("<unk>"):
            raise ValueError(f"its unk_id is {model.get('unk_id')!r:.20}, which is not the id of <unk>")
        names = [name for name in ids if name not in special and name not in added]
        scores = _ranks_of(model["merges"], names, needs_pieces) if is_bpe else _scores_of(model["vocab"], {*names})
        if not all(abs(score) < inf for score in scores.values()):
            raise ValueError("a score is not a finite number")
        charsmap, adds_prefix = _steps_of(tree)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a tokenizer of M2M100 or NLLB: {one_line(error)}") from None
    return Pieces(is_bpe, scores, charsmap, adds_prefix, True), ids, added


def _steps_of(tree: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Compiled normalisation, and whether a space is put before a text; raises ValueError for other steps."""
    normalizer = tree.get("normalizer") or {"type": "Sequence", "normalizers": []}
    steps = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    known = (_STRIP.items(), _MERGED_SPACES.items())
    kinds = [step["type"] for step in steps if not any(keys <= step.items() for keys in known)]
    if kinds not in ([], ["Precompiled"]) or tree["pre_tokenizer"]["type"] != "Metaspace":
        raise ValueError("its steps are not those of SentencePiece")
    charsmaps = [step.get("precompiled_charsmap") or "" for step in steps if step["type"] == "Precompiled"]
    splitter = tree["pre_tokenizer"]  # Before version 0.15 of the library, `add_prefix_space` says it.
    adds_prefix = splitter.get("prepend_scheme", "always") != "never" and splitter.get("add_prefix_space", True)
    return b64decode("".join(charsmaps), validate=True), adds_prefix


def _check_settings(model: Mapping[str, Any]) -> None:
    """Raise ValueError for settings of a model with which it would split text in another way than SentencePiece."""
    expected = {"unk_token": "<unk>", "fuse_unk": True} if model["type"] == "BPE" else {}
    for key in _SETTINGS:
        value = model.get(key, expected.get(key))
        if value != expected.get(key) and (value or key in expected):
            raise ValueError(
                f"model.{key} is {value!r:.40}, with which it splits text in another way than SentencePiece"
            )


def _ranks_of(merges: Iterable[Any], names: Sequence[str], is_checked: bool) -> dict[str, float]:
    """Scores by which SentencePiece makes the same merges: the piece that is merged first has the highest.

    Entries that no merge makes are no pieces, except for single characters. Raises ValueError if `is_checked` and
    SentencePiece would make other merges.
    """
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    made, entries = dict.fromkeys(left + right for left, right in pairs), {*names}
    ranks = ranked(pairs, names)
    scores = {name: ranks[name] for name in names if name in made or len(name) == 1}
    if not is_checked:
        return scores
    for left, right in pairs:
        if not {left, right, left + right} <= entries:
            raise ValueError(f"its merge of {left[:60]!r} and {right[:60]!r} has no entry")
    if [piece for piece, _ in groupby(left + right for left, right in pairs)] != [*made]:
        raise ValueError("its merges are in another order: SentencePiece makes all merges to a piece before the next")
    known = {(left, right) for left, right in pairs}
    missing = [pair for pair in all_merges({name: -int(score) for name, score in scores.items()}) if pair not in known]
    if missing:
        left, right = missing[0]
        raise ValueError(f"it lacks the merge of {left[:60]!r} and {right[:60]!r}, which SentencePiece makes")
    return scores


def _scores_of(vocab: Iterable[Any], names: Collection[str]) -> dict[str, float]:
    """Scores of the pieces of a unigram model; entries with the lowest score that `mt` writes are no pieces."""
    return {str(name): float(score) for name, score in vocab if name in names and score > LOWEST_SCORE}
