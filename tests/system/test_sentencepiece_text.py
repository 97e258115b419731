"""Imported tokenizers split real text of several scripts into the pieces of SentencePiece itself."""

from __future__ import annotations

from itertools import islice

import pytest

from mt_cli.features.exchange.sentencepiece import read_pieces, tokenizer_of

sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")

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
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in lines[::3]), encoding="utf-8")  # The others have unknown tokens.
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(tmp_path / "model"),
        vocab_size=4_000,
        model_type=kind,
        minloglevel=2,
        num_threads=1,
        hard_vocab_limit=False,
        character_coverage=0.999,
    )
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "model.model"))
    names = [theirs.id_to_piece(index) for index in range(3, theirs.vocab_size())]
    ours = tokenizer_of(read_pieces(tmp_path / "model.model"), names)
    # Other spaces and case, as people type them. Letters with two marks on one, as in Greek capitals, are left out:
    # `tokenizers` normalises whole graphemes, where SentencePiece takes the longest prefix that it knows.
    spaced = [line.replace(" ", "  ", 1) + "\u3000" for line in lines[1::7]]
    capitals = [line.upper() for line in lines[2::7] if "\u0301" not in line.upper()]
    for some in (lines, spaced, capitals):
        expected = [[index + 1 if index >= 3 else 1 for index in ids] for ids in theirs.encode(some)]
        for line, found, ids in zip(some, ours.encode(some), expected, strict=True):
            assert found == ids, (line, ours.tokens(found), theirs.encode(line, out_type=str))
