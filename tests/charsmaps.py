"""Normalisations of SentencePiece as bytes, for the tests that read them."""

import numpy as np


def charsmap_of(replacement, value=0, offset=256):
    """A compiled normalisation that replaces `a`: a trie with a root at 0, `a` near `offset`, and its value beside."""
    units = np.zeros(512, "<u4")
    units[0] = offset << 10
    place = (offset ^ ord("a")) % 512
    units[place] = ord("a") | 0x100 | 1 << 10
    units[place ^ 1] = value
    return (4 * len(units)).to_bytes(4, "little") + units.tobytes() + replacement + b"\0"
