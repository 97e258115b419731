"""Imported tokenizers split real text of several scripts into the pieces of SentencePiece itself."""

from __future__ import annotations

from itertools import islice

import pytest
from marian_files import pieces_of, train_pieces

from mt_cli.features.exchange.sentencepiece import read_pieces, tokenizer_of

pytestmark = pytest.mark.slow

FILES = {
    "latin": ("multi30k/train.de",),
    "cyrillic": ("tatoeba/eng-rus.rus",),
    "arabic": ("tatoeba/eng-ara.ara",),
    "chinese": ("3am/train.zh",),
    "many": tuple(f"flores200/{code}.devtest" for code in ("jpn_Jpan", "tha_Thai", "hin_Deva", "heb_Hebr", "ell_Grek")),
}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("script", FILES)
def test_ten_thousand_lines_have_the_ids_of_sentencepiece(real_text, tmp_path, script, kind):
    lines = [line for name in FILES[script] for line in (real_text / name).read_text("utf-8").split("\n") if line]
    lines = list(islice(lines, 10_000))
    options = {"vocab_size": 4_000, "num_threads": 1, "character_coverage": 0.999}
    theirs = train_pieces(tmp_path, "model", lines[::3], kind, **options)  # The other lines have unknown tokens.
    ours = tokenizer_of(read_pieces(tmp_path / "model.spm"), pieces_of(theirs))
    # Other spaces and case, as people type them. Letters with two marks on one, as in Greek capitals, are left out:
    # `tokenizers` normalises whole graphemes, where SentencePiece takes the longest prefix that it knows.
    spaced = [line.replace(" ", "  ", 1) + "\u3000" for line in lines[1::7]]
    capitals = [line.upper() for line in lines[2::7] if "\u0301" not in line.upper()]
    for texts in (lines, spaced, capitals):
        expected = [[index + 1 if index >= 3 else 1 for index in ids] for ids in theirs.encode(texts)]
        for line, our_ids, their_ids in zip(texts, ours.encode(texts), expected, strict=True):
            assert our_ids == their_ids, (line, ours.tokens(our_ids), theirs.encode(line, out_type=str))
