"""Tokenizer files of strangers: what is read from them, and what is refused with one line."""

import json

import pytest
from charsmaps import charsmap_of
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers

from mt_cli.config.sections import TokenizerConfig
from mt_cli.errors import ConfigError, RunError
from mt_cli.tokenizer import untrusted_files
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.training import train_tokenizer
from mt_cli.tokenizer.untrusted_files import MAX_PIECE_CHARACTERS, check_charsmap, no_panic

CONFIGS = {
    algorithm: TokenizerConfig(
        algorithm=algorithm,
        vocab_size=300 if algorithm in ("bpe", "unigram") else None,
        normalize=("apostrophes", "nfc", "joined_apostrophes"),
        letters={"ã": "â", "'": ""},
    )
    for algorithm in ("word_level", "bpe", "unigram", "char")
}


@pytest.fixture(scope="module")
def contents():
    """Tokenizer files of each algorithm."""
    texts = ["some words and some other words", "others and more"]
    return {algorithm: train_tokenizer(texts, config).to_json() for algorithm, config in CONFIGS.items()}


@pytest.fixture
def parse(tmp_path):
    """Reads a tokenizer from the tree of a file."""

    def read(tree, config):
        return Tokenizer.parse(json.dumps(tree).encode("utf-8"), tmp_path / "tokenizer.json", config)

    return read


def with_entry(content, entry):
    """Tree of a tokenizer file with one more entry."""
    tree = json.loads(content)
    vocab = tree["model"]["vocab"]
    if isinstance(vocab, dict):
        vocab[entry] = len(vocab)
    else:
        vocab.append([entry, -9.0])
    return tree


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_a_piece_of_a_million_characters_is_refused(contents, parse, algorithm):
    config = CONFIGS[algorithm]
    assert parse(with_entry(contents[algorithm], "x" * MAX_PIECE_CHARACTERS), config).tokens([4])
    with pytest.raises(RunError, match=r"tokenizer\.json: .*1,000,000 characters"):
        parse(with_entry(contents[algorithm], "x" * 10**6), config)


@pytest.mark.parametrize(
    ("algorithm", "path", "value", "cause"),
    [
        ("bpe", ["model"], 3, "model"),
        ("bpe", ["model", "type"], "WordPiece", "type WordPiece"),
        ("bpe", ["model", "merges"], 3, ""),
        ("bpe", ["model", "merges", 0], ["so", "so"], "merge of 'so' and 'so'"),
        ("bpe", ["model", "merges", 0], ["x" * 99] * 2, "merge"),
        ("bpe", ["model", "merges", 0], "a b c", ""),
        ("bpe", ["model", "vocab", "x"], 2**32 - 1, "ids"),
        ("unigram", ["model", "vocab", 4], ["[EOS]", -1.0], "twice"),
        ("unigram", ["model", "vocab", 4], ["[EOS]"], ""),
        ("word_level", ["model", "vocab"], {}, "first entries"),
        ("char", ["added_tokens"], [{"content": "a" * 9}], "added_tokens"),
        ("char", ["post_processor"], {"type": "ByteLevel"}, "post_processor"),
        ("char", ["truncation"], {"max_length": 1}, "truncation"),
        ("char", ["pre_tokenizer", "pattern"], {"Regex": "(((a{999}){999}){999})"}, "pre_tokenizer"),
        ("char", ["decoder"], {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 999}, "decoder"),
        ("char", ["normalizer", "normalizers", 0], {"Regex": ["x"]}, "normalizer"),
        ("char", ["normalizer"], {"type": "Precompiled", "precompiled_charsmap": "AA"}, "normalizer"),
        *(
            ("char", ["normalizer", "normalizers", 4, "content"], content, "normalizer")
            for content in ("ab", "▁", " ", "\n")
        ),
    ],
)
def test_a_file_with_other_steps_or_entries_than_ours_is_refused(contents, parse, algorithm, path, value, cause):
    tree = json.loads(contents[algorithm])
    assert parse(tree, CONFIGS[algorithm])
    part = tree
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with pytest.raises(RunError, match=rf"tokenizer\.json: not a tokenizer of this model: .*{cause}") as caught:
        parse(tree, CONFIGS[algorithm])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        ("bpe", {"dropout": 0.5, "continuing_subword_prefix": "x" * 10**6, "unk_token": None}),
        ("unigram", {"unk_id": None, "byte_fallback": False}),
    ],
)
def test_settings_of_the_model_are_not_read_and_keys_of_other_versions_of_the_library_may_be_missing(
    contents, parse, algorithm, settings
):
    tree = json.loads(contents[algorithm])
    tree["model"] |= settings
    del tree["truncation"], tree["pre_tokenizer"]["invert"]
    assert parse(tree, CONFIGS[algorithm]).to_json() == contents[algorithm]


@pytest.mark.parametrize(
    "change", [{"lowercase": True}, {"normalize": ("nfc",)}, {"letters": {}}, {"algorithm": "bpe"}]
)
def test_a_file_that_was_made_with_other_options_is_refused(contents, parse, change):
    with pytest.raises(RunError, match=r"tokenizer\.json: "):
        parse(json.loads(contents["unigram"]), CONFIGS["unigram"].model_copy(update=change))


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"\xff", b"[" * 3000, b'{"model": ' + b"9" * 5000 + b"}", b'{"model": {}}']
)
def test_what_is_no_json_object_is_no_tokenizer(tmp_path, content):
    with pytest.raises(RunError, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer.parse(content, tmp_path / "tokenizer.json", TokenizerConfig())


def test_a_panic_of_the_library_is_a_value_error_and_other_signals_are_not():
    panic = type("PanicException", (BaseException,), {})
    with pytest.raises(ValueError, match="out of bounds"), no_panic():
        raise panic("index out of bounds")
    for error in (KeyboardInterrupt(), KeyError("x")):
        with pytest.raises(type(error)), no_panic():
            raise error


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_no_tokenizer_is_trained_that_could_not_be_read(monkeypatch, contents, parse, algorithm):
    monkeypatch.setattr("mt_cli.tokenizer.sentencepiece.MAX_MERGED_CHARACTERS", 200)
    monkeypatch.setattr(untrusted_files, "MAX_PIECE_BYTES", 1600)
    texts = [f"{'abcdefghij' * 3} some words {number} {number * 7919}" for number in range(99)]
    with pytest.raises(ConfigError, match=r"tokenizer\.vocab_size"):
        train_tokenizer(texts, TokenizerConfig(algorithm=algorithm, vocab_size=900))
    with pytest.raises(ValueError, match="less than or equal to 16777216"):
        TokenizerConfig(algorithm=algorithm, vocab_size=2**24 + 1)
    if algorithm == "unigram":
        tree = json.loads(contents["unigram"])
        tree["model"]["vocab"] += [[f"{number:0100}", -9.0] for number in range(40)]
        with pytest.raises(RunError, match="bytes together"):
            parse(tree, CONFIGS["unigram"])


def normalized(charsmap, text):
    return normalizers.Precompiled(charsmap).normalize_str(text)


@pytest.mark.parametrize("replacement", [b"b", b"", "ﷺé".encode(), b"x" * 128])
def test_a_whole_normalisation_is_read(replacement):
    charsmap = charsmap_of(replacement)
    check_charsmap(charsmap)
    assert normalized(charsmap, "cab") == f"c{replacement.decode()}b"


@pytest.mark.parametrize(
    ("charsmap", "cause"),
    [
        (b"", "size"),
        (b"abc", "size"),
        (charsmap_of(b"b")[:900], "size"),
        (charsmap_of(b"x" * 100_000), "128 bytes"),
        (charsmap_of(b"b", value=2**31 - 1), "outside"),
        (charsmap_of("é".encode(), value=1), "outside"),
        (charsmap_of(b"b", offset=512), "outside"),
        (charsmap_of(b"\xff"), "utf-8"),
    ],
)
def test_a_damaged_normalisation_is_refused(charsmap, cause):
    with pytest.raises(ValueError, match=cause):
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
