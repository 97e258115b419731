import json

import pytest
import tokenizers
from charsmaps import charsmap_of
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers

from mt_cli.config.sections import TokenizerConfig
from mt_cli.errors import ConfigError, RunError
from mt_cli.tokenizer import trust
from mt_cli.tokenizer.special import SPECIAL_TOKENS
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.training import train_tokenizer
from mt_cli.tokenizer.trust import MAX_PIECE_CHARACTERS, check_charsmap, no_panic

ALGORITHMS = ["word_level", "bpe", "unigram", "char"]


@pytest.fixture(scope="module")
def states():
    """Tokenizer files of each algorithm as trees."""
    texts = ["some words and some other words", "others and more"]
    made = {}
    for algorithm in ALGORITHMS:
        size = 300 if algorithm in ("bpe", "unigram") else None
        made[algorithm] = train_tokenizer(texts, TokenizerConfig(algorithm=algorithm, vocab_size=size)).to_json()
    return made


@pytest.fixture
def parse(tmp_path):
    """Reads a tokenizer from the content of a file."""
    return lambda tree: Tokenizer.parse(json.dumps(tree).encode("utf-8"), tmp_path / "tokenizer.json")


def with_entry(state, entry):
    """A tokenizer file with one more entry."""
    tree = json.loads(state)
    vocab = tree["model"]["vocab"]
    if isinstance(vocab, dict):
        vocab[entry] = len(vocab)
    else:
        vocab.append([entry, -9.0])
    return tree


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_piece_of_a_million_characters_is_refused(states, parse, algorithm):
    assert parse(with_entry(states[algorithm], "x" * MAX_PIECE_CHARACTERS)).tokens([4])
    with pytest.raises(RunError, match=r"tokenizer\.json: .*has 1,000,000 characters, more than"):
        parse(with_entry(states[algorithm], "x" * 10**6))


def test_unigram_entries_that_would_take_gigabytes_are_refused(states, parse, monkeypatch):
    monkeypatch.setattr(trust, "MAX_PIECE_BYTES", 4000)
    with pytest.raises(RunError, match="bytes together, more than 4,000"):
        tree = json.loads(states["unigram"])
        tree["model"]["vocab"] += [[f"{number:0100}", -9.0] for number in range(40)]
        parse(tree)


def changed(path, value):
    """A change of a tokenizer file: another value at a path."""

    def change(tree):
        *parents, last = path
        for key in parents:
            tree = tree[key]
        tree[last] = value

    return change


@pytest.mark.parametrize(
    ("algorithm", "change", "message"),
    [
        ("bpe", changed(["model"], 3), "it has no model"),
        ("bpe", changed(["model", "type"], "WordPiece"), "its model is of type WordPiece"),
        ("bpe", changed(["model", "continuing_subword_prefix"], "x" * 10**6), "continuing_subword_prefix of its model"),
        ("bpe", changed(["model", "dropout"], 0.5), "dropout of its model"),
        ("bpe", changed(["model", "unk_token"], None), "unk_token of its model"),
        ("bpe", changed(["model", "merges"], 3), "not a tokenizer"),
        ("bpe", changed(["model", "merges", 0], ["so", "so"]), "its merge of 'so' and 'so' has no entry"),
        ("bpe", changed(["model", "merges", 0], ["x" * 99] * 2), "its merge of"),
        ("bpe", changed(["model", "merges", 0], "a b c"), "not a tokenizer"),
        ("bpe", changed(["model", "vocab", "x"], 2**32 - 1), "the ids of its entries are not 0 to"),
        ("bpe", changed(["model", "vocab", "x"], "7"), "not a tokenizer"),
        ("unigram", changed(["model", "unk_id"], None), "unk_id of its model"),
        ("unigram", changed(["model", "vocab", 4], ["[EOS]", -1.0]), "entries occur twice"),
        ("unigram", changed(["model", "vocab", 4], ["[EOS]"]), "not a tokenizer"),
        ("word_level", changed(["model", "vocab"], {}), "its first entries are not"),
        ("char", changed(["added_tokens"], [{"content": "a" * 9}]), "splits or joins text in a way that no"),
        ("char", changed(["post_processor"], {"type": "ByteLevel"}), "splits or joins text in a way that no"),
        ("char", changed(["truncation"], {"max_length": 1}), "splits or joins text in a way that no"),
        (
            "char",
            changed(["pre_tokenizer", "pattern"], {"Regex": "(((a{999}){999}){999})"}),
            "splits or joins text in a way that no",
        ),
        ("char", changed(["normalizer", "normalizers", 0], {"Regex": ["x"]}), "not a tokenizer"),
        ("char", changed(["normalizer"], {"type": "Precompiled", "precompiled_charsmap": "AA"}), "not a tokenizer"),
    ],
)
def test_a_tokenizer_with_other_parts_than_ours_is_refused(states, parse, algorithm, change, message):
    tree = json.loads(states[algorithm])
    assert parse(tree)
    change(tree)
    with pytest.raises(RunError, match=message):
        parse(tree)


def test_merges_of_older_versions_of_the_library_are_read(states, parse):
    tree = json.loads(states["bpe"])
    expected = parse(tree).pieces("some words")
    tree["model"]["merges"] = [" ".join(merge) for merge in tree["model"]["merges"]]
    assert parse(tree).pieces("some words") == expected and len(expected) < 8


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b"[" * 3000, b'{"model": ' + b"9" * 5000 + b"}", b'{"model": {}, "model": {}}']
)
def test_what_is_no_json_object_is_no_tokenizer(tmp_path, content):
    with pytest.raises(RunError, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer.parse(content, tmp_path / "tokenizer.json")


def test_a_panic_of_the_library_is_a_value_error_and_other_signals_are_not():
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(ValueError, match="out of bounds"), no_panic():
        raise panic("index out of bounds")
    for error in (KeyboardInterrupt(), KeyError("x")):
        with pytest.raises(type(error)), no_panic():
            raise error


@pytest.mark.parametrize("size", [10**9, 2**24 + 1])
def test_a_vocabulary_has_a_maximum_size(size):
    with pytest.raises(ValueError, match="less than or equal to 16777216"):
        TokenizerConfig(algorithm="bpe", vocab_size=size)


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_no_tokenizer_is_trained_that_could_not_be_read(monkeypatch, algorithm):
    monkeypatch.setattr(trust, "MAX_MERGED_CHARACTERS", 200)
    monkeypatch.setattr(trust, "MAX_PIECE_BYTES", 1600)
    texts = [f"{'abcdefghij' * 3} some words {number} {number * 7919}" for number in range(99)]
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size: what was learnt is too large"):
        train_tokenizer(texts, TokenizerConfig(algorithm=algorithm, vocab_size=900))


def test_nothing_is_learnt_from_a_text_that_is_longer_than_an_entry():
    texts = ["some words", "x" * 70_000, "more words"]
    tokenizer = train_tokenizer(texts, TokenizerConfig())
    assert tokenizer.pieces("words more x" + "x" * 70_000) == ["words", "more", "[UNK]"]


def normalized(charsmap, text):
    return normalizers.Precompiled(charsmap).normalize_str(text)


@pytest.mark.parametrize("replacement", [b"b", b"", "ﷺé".encode(), b"x" * 128])
def test_a_whole_normalisation_is_read(replacement):
    charsmap = charsmap_of(replacement)
    check_charsmap(charsmap)
    assert normalized(charsmap, "cab") == f"c{replacement.decode()}b"


@pytest.mark.parametrize(
    ("charsmap", "message"),
    [
        (b"", "its table has another size"),
        (b"abc", "its table has another size"),
        (charsmap_of(b"b")[:900], "its table has another size"),
        (charsmap_of(b"x" * 100_000), "more than 128 bytes for a key"),
        (charsmap_of(b"b", value=2**31 - 1), "its table points outside"),
        (charsmap_of("é".encode(), value=1), "its table points outside"),
        (charsmap_of(b"b", offset=512), "its table points outside"),
        (charsmap_of(b"\xff"), "utf-8"),
    ],
)
def test_a_damaged_normalisation_is_refused(charsmap, message):
    with pytest.raises(ValueError, match=message):
        check_charsmap(charsmap)


@given(data=st.data())
def test_a_normalisation_that_is_not_refused_can_be_used(data):
    charsmap = bytearray(charsmap_of("ﷺé".encode()))
    places = st.sampled_from([*range(8), *range(4 + 4 * 352, 4 + 4 * 354), *range(len(charsmap) - 8, len(charsmap))])
    for place, bit in data.draw(st.lists(st.tuples(places, st.integers(0, 7)), min_size=1, max_size=4)):
        charsmap[place] ^= 1 << bit
    try:
        check_charsmap(bytes(charsmap))
    except ValueError:
        return
    for text in ("a", "ab", "é\u0301", "字", "aaaa"):
        assert len(normalized(bytes(charsmap), text)) < 999


def test_a_model_of_the_library_alone_is_no_tokenizer(parse):
    for model in (models.Unigram(), models.BPE(), models.WordLevel({"a": 0}, unk_token="a")):
        with pytest.raises(RunError, match="not a tokenizer"):
            parse(json.loads(tokenizers.Tokenizer(model).to_str()))
    assert SPECIAL_TOKENS[1] == "[UNK]"
