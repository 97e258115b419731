import pytest

from mt_cli.config.sections import TokenizerConfig
from mt_cli.features.fine_tuning.vocabulary_extension import extended, old_ids_of_entries
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.training import train_tokenizer

OLD = ["the dog sleeps.", "a cat, and the dogs!", "who sees 2 cats?", "<2xx> the end"]
NEW = [
    *("狗在睡觉。", "一只猫和狗在看狗。", "谁看见猫了?", "الكلب ينام في البيت"),
    *("القط في البيت الكبير", "the 狗 sleeps"),
]
CONFIGS = [
    TokenizerConfig(algorithm="bpe", vocab_size=330),
    TokenizerConfig(algorithm="bpe", vocab_size=60, byte_fallback=False),
    TokenizerConfig(algorithm="unigram", vocab_size=330),
    TokenizerConfig(algorithm="word_level"),
    TokenizerConfig(algorithm="char"),
]


@pytest.fixture(params=CONFIGS, ids=lambda config: f"{config.algorithm}, bytes {config.byte_fallback}")
def config(request):
    return request.param


@pytest.fixture
def old(config):
    return train_tokenizer(OLD * 3, config, ["<2xx>"])


def test_an_extended_vocabulary_changes_no_id_of_old_text_and_has_entries_for_the_new_text(old, config, tmp_path):
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


def test_markers_in_text_never_become_entries(old):
    (new,) = extended([old], ["a ￭ b ▁ c \ue000 \x10 狗"] * 9, (), 500)
    entries = "".join(new.tokens(range(old.vocab_size, new.vocab_size)))
    assert "\ue000" not in entries and "\x10" not in entries
