import pytest
import sentencepiece
from sentencepiece_texts import odd_texts
from texts import TEXTS

from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.clean_text import cleaned
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.vocabulary_extension import extended, extended_pair, old_ids_of_entries
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

OLD = ["the dog sleeps.", "a cat, and the dogs!", "who sees 2 cats?", "<2xx> the end"]
NEW = [
    *("狗在睡觉。", "一只猫和狗在看狗。", "谁看见猫了?", "الكلب ينام في البيت"),
    *("القط في البيت الكبير", "the 狗 sleeps"),
]
CONFIGS = [
    TokenizerConfig(algorithm="bpe", vocab_size=330),
    TokenizerConfig(algorithm="unigram", vocab_size=330, spacing="sentencepiece"),
    TokenizerConfig(algorithm="word_level"),
]


@pytest.fixture(params=CONFIGS, ids=lambda config: f"{config.algorithm}, {config.spacing}")
def config(request):
    return request.param


@pytest.fixture
def old(config):
    return train_tokenizer(OLD * 3, config, ["<2xx>"])


def test_an_extended_vocabulary_changes_no_id_of_old_text(old, config, tmp_path):
    (new,) = extended([old], NEW * 3, ["<2xx>", "<2zh>"], 500)
    assert new.encode(OLD) == old.encode(OLD)
    assert new.tokens(range(old.vocab_size)) == old.tokens(range(old.vocab_size))
    ids = new.encode(NEW)
    assert not any(UNK_ID in line for line in ids) and new.decode(ids) == NEW
    assert sum(map(len, ids)) <= sum(map(len, old.encode(NEW)))
    assert not any(token.startswith("<0x") for text in NEW for token in new.pieces(text))
    spellings = old_ids_of_entries(old, new)
    assert len(spellings) == new.vocab_size - old.vocab_size > 0
    assert all(ids and max(ids) < old.vocab_size for ids in spellings)
    (tmp_path / "tokenizer.json").write_text(new.to_json(), encoding="utf-8")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json", config, ["<2zh>"])
    assert loaded.encode(["<2zh> the 狗", *NEW]) == new.encode(["<2zh> the 狗", *NEW])
    assert len(loaded.encode(["<2zh>"])[0]) == 1


def test_no_more_entries_are_added_than_asked_for(old):
    assert 0 < extended([old], NEW * 3, (), 5)[0].vocab_size - old.vocab_size <= 5
    assert extended([old], OLD, ["<2xx>"], 5)[0].to_json() == old.to_json()
    (new,) = extended([old], ["a ￭ b ▁ c \ue000 \x10 狗"] * 9, (), 500)
    entries = "".join(new.tokens(range(old.vocab_size, new.vocab_size)))
    assert "\ue000" not in entries and "\x10" not in entries, "markers never become entries"


def test_each_side_gets_the_characters_of_its_own_text(config):
    pair = train_tokenizer(OLD * 3, config), train_tokenizer(OLD * 3, config)
    for side, tokenizer in enumerate(extended_pair(pair, lambda: [("狗", "猫")] * 9, (), is_shared=False)):
        entries = {entry.strip("▁") for entry in tokenizer.tokens(range(tokenizer.vocab_size))}
        assert entries & {"狗", "猫"} == {"狗猫"[side]}


TEXT_LINES = [line for text in TEXTS.values() for line in text.split("\n") if line]


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_an_extended_vocabulary_is_what_sentencepiece_reads(algorithm):
    from mt_cli.exchange.sentencepiece import model_file

    config = TokenizerConfig(algorithm=algorithm, vocab_size=500, spacing="sentencepiece")
    old = train_tokenizer([*OLD * 9, *(line for line in TEXT_LINES if line.isascii())], config, ["<2xx>"])
    (new,) = extended([old], [*NEW * 9, "aaa狗狗狗狗 <2xx>狗狗" * 9, *TEXT_LINES * 3], ["<2xx>", "<2zh>"], 700)
    new = Tokenizer.parse(new.to_json().encode("utf-8"), "x", config, ["<2xx>", "<2zh>"])
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model_file(new))
    assert [theirs.id_to_piece(index) for index in range(theirs.vocab_size())] == new.tokens(range(new.vocab_size))
    assert new.vocab_size > old.vocab_size + 300
    texts = [*map(cleaned, [*TEXT_LINES, *NEW, *odd_texts([*TEXT_LINES, *NEW, "x <2xx>狗 <2zh>"], 500)])]
    for text, our_ids, their_ids in zip(texts, new.encode(texts), theirs.encode(texts), strict=True):
        if not text.startswith("<2"):
            assert our_ids == their_ids, (text, new.tokens(our_ids), theirs.encode(text, out_type=str))
