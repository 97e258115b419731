"""Imported and exported tokenizers split real text of many scripts into the pieces of SentencePiece itself."""

from __future__ import annotations

import pytest
import sentencepiece
from sentencepiece_texts import odd_texts

from mt_cli.config.sections import TokenizerConfig
from mt_cli.exchange.sentencepiece import model_file, read_pieces, tokenizer_of
from mt_cli.tokenizer.training import train_tokenizer

pytestmark = pytest.mark.slow(minutes=3)


@pytest.fixture(scope="module")
def many_lines(real_text):
    """About a hundred thousand lines in 23 languages."""
    names = [*sorted((real_text / "flores200").glob("*.devtest"))]
    names += [real_text / "americas" / code / f"train.{code}" for code in ("aym", "gn", "hch", "shp")]
    names += [real_text / "multi30k" / f"train.{code}" for code in ("de", "fr")]
    names += [real_text / "tatoeba" / f"eng-{code}.{code}" for code in ("ara", "heb", "rus")]
    names += [real_text / "3am" / "train.zh"]
    paths = [path for path in names if path.exists()]
    return [line for path in paths for line in path.read_text("utf-8").split("\n")[:9_000] if line]


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_exported_vocabularies_have_the_ids_of_sentencepiece(many_lines, algorithm):
    config = TokenizerConfig(algorithm=algorithm, vocab_size=8_000, spacing="sentencepiece")
    ours = train_tokenizer(many_lines[::20], config)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model_file(ours))
    assert len(many_lines) > 90_000
    for texts in (many_lines, odd_texts(many_lines, 50_000)):
        ids = ours.encode(texts)
        assert ids == theirs.encode(texts)
        assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.parametrize("name", ["plain.model", "ja.model", "bytes.spm", "bytes.zhen.spm"])
def test_models_of_others_have_their_ids(real_text, many_lines, name):
    path = real_text / "spm" / name
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = [theirs.id_to_piece(index) for index in range(theirs.vocab_size())]
    entries = [piece for index, piece in enumerate(pieces) if index != theirs.unk_id()]
    ours = tokenizer_of(read_pieces(path), entries)
    number = {index: 4 + entries.index(piece) for index, piece in enumerate(pieces) if index != theirs.unk_id()}
    for lines in (many_lines, odd_texts(many_lines, 50_000)):
        for line, our_ids, their_ids in zip(lines, ours.encode(lines), theirs.encode(lines), strict=True):
            assert our_ids == [number.get(index, 1) for index in their_ids], line
