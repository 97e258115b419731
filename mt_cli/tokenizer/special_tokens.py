"""Entries of every vocabulary: special tokens, bytes and markers of spaces."""

from __future__ import annotations

import re
from collections.abc import Sequence

PAD, UNK, SOS, EOS = "[PAD]", "[UNK]", "[SOS]", "[EOS]"
SPECIAL_TOKENS = (PAD, UNK, SOS, EOS)
PAD_ID, UNK_ID, SOS_ID, EOS_ID = range(4)
NEVER_PRODUCED = (PAD_ID, SOS_ID)
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
"""Entries for single bytes, in order of their values."""
JOINER, SPACE, NEVER_SEEN = "￭", "▁", "\ue000"
ABSENT = NEVER_SEEN
"""Prefix of entries in an imported tokenizer that are missing from its SentencePiece model."""
LANGUAGE_ENTRY = re.compile(rf"{ABSENT}<([^<>]+)>")
"""Entry of a language in an imported tokenizer: text never has it, and it is never written."""
BYTE_ENTRIES, _CONTINUATIONS = frozenset(BYTES), frozenset(BYTES[0x80:0xC0])


def character_ends(tokens: Sequence[str]) -> list[int]:
    """For each token, the index of the token that completes its last character; for a byte, possibly a later token."""
    ends = list(range(len(tokens)))
    for index in reversed(range(len(tokens) - 1)):
        if tokens[index] in BYTE_ENTRIES and tokens[index + 1] in _CONTINUATIONS:
            ends[index] = ends[index + 1]
    return ends
