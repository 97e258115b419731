"""Reading of untrusted tokenizer files: the steps come from a config, and entries, scores and merges from the file.

The `tokenizers` library recurses over pieces, allocates what a file declares, and ends the process if an allocation
fails, so the content is checked against limits first. Knows the files of the library and the compiled normalisation of
SentencePiece; does not know how text is split.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models

from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.protected_text import RESERVED
from mt_cli.errors import one_line
from mt_cli.tokenizer.sentencepiece import SentencePieceSteps, check_merges
from mt_cli.tokenizer.spacing import untrained_backend
from mt_cli.tokenizer.special_tokens import ABSENT, SPECIAL_TOKENS, UNK, UNK_ID

MAX_ENTRY_CHARACTERS = 2**16
"""Maximum length of an entry."""
MAX_PIECE_CHARACTERS = 512
"""Maximum length of an entry of a unigram model, and of a piece of SentencePiece, whose trainer has this limit too."""
MAX_PIECE_BYTES = 3 * 2**20
"""Maximum length of all entries of a unigram model together; the 256,000 pieces of NLLB have about 2,600,000. The
library needs 200 bytes of memory for each."""
_MAX_CHARSMAP_BYTES = 2**20
_MAX_REPLACEMENT_BYTES = 128
"""Maximum length of the replacement of a character; Unicode's longest, of U+FDFA, has 33."""
_KEY_BYTES = 6
"""The library looks up keys below this length."""
_DAMAGED = "a SentencePiece model has a damaged normalisation"
_STEPS = ("normalizer", "pre_tokenizer", "decoder", "post_processor", "truncation", "padding", "added_tokens")


@contextmanager
def no_panic() -> Iterator[None]:
    """Context manager that turns a panic of the library, which is no `Exception`, into a ValueError."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the tokenizers library fails: {one_line(error)}") from None


def read_backend(text: str, config: TokenizerConfig) -> tokenizers.Tokenizer:
    """Tokenizer of the library with the steps of a config, and the entries, scores and merges of a file.

    Raises ValueError, or an exception of the library, if the file has other steps, or entries that the library cannot
    read or can read only with too much memory.
    """
    tree = json.loads(text)
    if not isinstance(tree, dict) or not isinstance(tree.get("model"), dict):
        raise ValueError("it has no model")
    is_imported = config.algorithm == "sentencepiece"
    vocab = tree["model"]["vocab"]
    has_reserved = RESERVED[0] in (vocab if isinstance(vocab, dict) else [piece for piece, _ in vocab])
    backend = _sentencepiece_backend(tree) if is_imported else untrained_backend(config, has_reserved=has_reserved)[0]
    trusted = json.loads(backend.to_str())
    for part in _STEPS:
        if not _agrees(tree.get(part) or None, trusted[part] or None):
            raise ValueError(f"its {part} is not the one that `tokenizer` in the config gives")
    trusted["model"] |= sanitize(tree["model"], trusted["model"]["type"])
    if "unk_id" in trusted["model"]:
        trusted["model"] |= {"unk_id": UNK_ID, "byte_fallback": _has_byte_step(trusted)}
    with no_panic():
        return tokenizers.Tokenizer.from_str(json.dumps(trusted))


def _has_byte_step(state: Mapping[str, Any]) -> bool:
    """Whether the last steps of a tokenizer turn bytes into characters."""
    return any(step["type"] == "ByteFallback" for step in state["decoder"]["decoders"])


def _agrees(part: Any, expected: Any) -> bool:
    """Whether a part of a file is as expected. Keys that older versions of the library do not write may be missing."""
    if isinstance(part, dict) and isinstance(expected, dict):
        return all(key in expected and _agrees(value, expected[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(expected, list):
        return len(part) == len(expected) and all(map(_agrees, part, expected))
    return bool(part == expected)


def _sentencepiece_backend(tree: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Tokenizer without entries, with the options of SentencePiece that the steps of a file show."""
    steps = SentencePieceSteps.of(tree)
    if steps.charsmap:
        check_charsmap(steps.charsmap)
    is_bpe = tree["model"].get("type") == "BPE"
    model = models.BPE(unk_token=UNK, fuse_unk=True, byte_fallback=steps.has_bytes) if is_bpe else models.Unigram()
    return steps.backend(model)


def sanitize(model: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Entries of a model of the library, with scores (Unigram) and merges (BPE), and none of its settings.

    Raises ValueError unless the first entries are the special tokens, the ids are 0, 1, 2 ..., and there are neither
    too many entries or merges nor too long ones.
    """
    if model.get("type") != kind:
        raise ValueError(f"its model is of type {str(model.get('type'))[:60]}, and not {kind}")
    vocab = model["vocab"]
    if kind == "Unigram":
        entries, ids = [piece for piece, _ in vocab], list(range(len(vocab)))
    else:
        entries, ids = sorted(vocab, key=vocab.__getitem__), sorted(vocab.values())
    if ids != list(range(len(ids))) or len(set(entries)) != len(entries):
        raise ValueError(f"the ids of its entries are not 0 to {len(ids) - 1:,}, or entries occur twice")
    if tuple(entries[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
        raise ValueError(f"its first entries are not {' '.join(SPECIAL_TOKENS)}")
    check_entries(entries, kind == "Unigram")
    if kind != "BPE":
        return {"vocab": vocab}
    for left, right in model["merges"]:
        if not {left, right, left + right} <= vocab.keys():
            raise ValueError(f"its merge of {left[:60]!r} and {right[:60]!r} has no entry")
    check_merges(sum(len(left) + len(right) for left, right in model["merges"]))
    return {"vocab": vocab, "merges": model["merges"]}


def check_entries(entries: Sequence[str], is_unigram: bool) -> None:
    """Raise ValueError if an entry is too long, or all together are."""
    limit = MAX_PIECE_CHARACTERS if is_unigram else MAX_ENTRY_CHARACTERS
    longest = max((entry.removeprefix(ABSENT) for entry in entries), key=len, default="")
    if len(longest) > limit:
        raise ValueError(f"its entry {longest[:20]!r}... has {len(longest):,} characters, more than {limit:,}")
    total = sum(len(entry.encode("utf-8")) for entry in entries) if is_unigram else 0
    if total > MAX_PIECE_BYTES:
        raise ValueError(f"its entries have {total:,} bytes together, more than {MAX_PIECE_BYTES:,}")


def check_charsmap(charsmap: bytes) -> None:
    """Raise ValueError if a compiled normalisation of SentencePiece is damaged, or a character becomes a long text.

    The format is the size of a table of 32-bit units, the table, and texts that end with a zero byte. The table is a
    trie as in Darts-clone. A child is at the place of its parent, exclusive-or the parent's offset and the child's
    byte. The unit for byte 0, where a key ends, has the place of the text that replaces the key.
    """
    size = int.from_bytes(charsmap[:4], "little")
    if len(charsmap) > _MAX_CHARSMAP_BYTES or size % 4 or not 0 < size <= len(charsmap) - 4:
        raise ValueError(f"{_DAMAGED}: its table has another size")
    units, texts = np.frombuffer(charsmap, "<u4", size // 4, offset=4).astype(np.int64), charsmap[4 + size :]
    texts.decode("utf-8")
    if max(map(len, texts.split(b"\0"))) > _MAX_REPLACEMENT_BYTES:
        raise ValueError(f"{_DAMAGED}: more than {_MAX_REPLACEMENT_BYTES} bytes for a key")
    begins_character = np.append(np.frombuffer(texts, np.uint8) & 0xC0 != 0x80, True)  # The end of all texts, too.
    places = _offsets(units[:1])
    for _ in range(_KEY_BYTES):
        _check_inside(units, places)
        rows = (place[units[place] & 0x800000FF == byte] for byte in range(1, 256) for place in (places ^ byte,))
        children = np.concatenate(list(rows))
        places = children ^ _offsets(units[children])
        ends = places[units[children] & 0x100 != 0]
        _check_inside(units, ends)
        values = units[ends] & 0x7FFFFFFF
        if (values >= len(begins_character)).any() or not begins_character[values].all():
            raise ValueError(f"{_DAMAGED}: its table points outside")
        places = np.unique(places)


def _offsets(units: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each unit, the number that is combined (exclusive-or) with its place to give the place of its children."""
    return (units >> 10) << ((units & 0x200) >> 6)


def _check_inside(units: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    """Raise ValueError unless these places are in the table, exclusive-or any byte."""
    if ((places | 0xFF) >= len(units)).any():
        raise ValueError(f"{_DAMAGED}: its table points outside")
