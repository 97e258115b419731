"""Text to ids and back. Knows the special tokens and the `tokenizers` library; does not know pairs or batches.

`decode(encode(text))` is `text` (after the optional normalisation) whenever no token is unknown. With `bpe` and
`unigram` none is, unless `byte_fallback` is off: a character without an entry is written as its UTF-8 bytes, each of
which has one, such as `<0xE2>` (Kudo and Richardson 2018). With `word_level` and `char`, words and characters without
an entry are unknown.

Two markers carry the spaces. Words and marks keep their own form, and `￭` on a mark says "no space here": `l'amico` is
`l ￭'￭ amico`, so that `amico` is one entry whatever precedes it. Sub-words and characters write a space as `▁`, as
SentencePiece does. A marker that occurs in text is never taken for one: it is written in bytes, or else it is unknown.
Text can spell `[EOS]` or `<0xE2>` but cannot produce them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from mt_cli.config.sections import Config, TokenizerConfig
from mt_cli.corpus.languages import SPACELESS
from mt_cli.errors import ConfigError, RunError, reason
from mt_cli.storage import read_regular

PAD, UNK, SOS, EOS = "[PAD]", "[UNK]", "[SOS]", "[EOS]"
SPECIAL_TOKENS = (PAD, UNK, SOS, EOS)
PAD_ID, UNK_ID, SOS_ID, EOS_ID = range(4)
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
"""The entries that stand for single bytes, by their values."""

_JOINER, _SPACE, _NEVER_SEEN = "￭", "▁", "\ue000"
_ESCAPES = {"\x10": "\x10\x12", _SPACE: "\x10\x11"}
"""How sub-words write what they could not tell from a marker. Undone from last to first, this loses nothing."""
_BYTES, _CONTINUATIONS = frozenset(BYTES), frozenset(BYTES[0x80:0xC0])
_LETTER = r"\p{L}\p{M}\p{N}_"
_DEFAULT_SUBWORDS = 8_000
_MIN_SUBWORDS = 16
"""Fewer, beside the bytes, are refused."""
_MAX_CHARACTERS = 0.75
"""Share of sub-words that may be single characters. Chinese captions (3,600 characters) came out in about the fewest
tokens with this share at 1,000 to 4,000 entries; without a limit it was up to a fifth more."""
MAX_FILE_BYTES = 2**28


class Tokenizer:
    """A vocabulary and the way text is cut into its entries.

    A tag is an entry too. It is one where a text begins with it and a space follows, or nothing, and nowhere else.
    """

    def __init__(self, backend: tokenizers.Tokenizer, tags: Sequence[str] = ()) -> None:
        self._backend = backend
        self._tag_ids: dict[str, int | None] = {tag: backend.token_to_id(tag) for tag in tags}

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str] = ()) -> Tokenizer:
        """A tokenizer whose vocabulary comes from `texts`, and has entries for `tags`.

        The same texts give the same tokenizer, except with `unigram`: the library's trainer adds up probabilities in
        no fixed order, so that two trainings may differ in a few pieces. Texts with more characters than the vocabulary
        has room for are gone through twice more; what an iterator gives is therefore kept in memory.

        Raises:
            ConfigError: if `vocab_size` does not hold what a vocabulary must have.
        """
        markers = str.maketrans("", "", _JOINER + _SPACE + _NEVER_SEEN)
        texts = list(texts) if isinstance(texts, Iterator) else texts

        def cleaned() -> Iterator[str]:
            return (untagged(text, tags).translate(markers) for text in texts)

        num_characters = _room_for_characters(config, tags)
        backend = _learnt(cleaned(), config, tags)
        if num_characters is not None and (backend is None or _num_characters(backend) > num_characters):
            backend = _learnt(cleaned(), config, tags, _rare_characters(cleaned(), config, num_characters))
        if backend is None:
            raise ConfigError(
                f"tokenizer.vocab_size: {config.vocab_size or _DEFAULT_SUBWORDS:,} entries do not hold all characters "
                "of the text; make it larger, or set tokenizer.byte_fallback to true"
            )
        # As plain entries of the vocabulary the special tokens cannot be matched in text.
        state = json.loads(backend.to_str())
        state["added_tokens"] = []
        if config.algorithm == "unigram":
            state["model"]["byte_fallback"] = config.byte_fallback
            # Where there was no text to learn from, the space has no probability.
            state["model"]["vocab"] = [[piece, score or 0.0] for piece, score in state["model"]["vocab"]]
        return cls(tokenizers.Tokenizer.from_str(json.dumps(state)), tags)

    @classmethod
    def load(cls, path: Path, tags: Sequence[str] = ()) -> Tokenizer:
        """The tokenizer saved at `path`; raises RunError if it cannot be read, or has no entries for `tags`."""
        try:
            content = read_regular(path, MAX_FILE_BYTES)
        except OSError as error:
            raise RunError(f"{path}: {reason(error)}") from None
        try:
            tokenizer = cls(tokenizers.Tokenizer.from_str(content.decode("utf-8")), tags)
        except Exception as error:  # The library raises bare `Exception`s.
            raise RunError(f"{path}: not a tokenizer: {str(error)[:200]}") from None
        if not _is_own(tokenizer._backend):
            raise RunError(f"{path}: cuts or joins text in another way than any tokenizer of `mt`, and is not used")
        if sorted(tokenizer._backend.get_vocab().values()) != list(range(tokenizer.vocab_size)):
            raise RunError(f"{path}: the ids of its entries are not 0 to {tokenizer.vocab_size - 1:,}")
        if tokenizer.tokens(range(4)) != list(SPECIAL_TOKENS):
            raise RunError(f"{path}: its first entries are not {' '.join(SPECIAL_TOKENS)}")
        if missing := [tag for tag in tags if tokenizer._tag_ids[tag] is None]:
            raise RunError(f"{path}: has no entry for the tag {missing[0]!r} of the config beside it")
        return tokenizer

    def to_json(self) -> str:
        """What `load` reads, and what the `tokenizers` library reads too."""
        return self._backend.to_str(pretty=True)

    @property
    def vocab_size(self) -> int:
        """Number of entries, special tokens included."""
        return self._backend.get_vocab_size()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens around them."""
        encoded: list[list[int]] = [each.ids for each in self._backend.encode_batch_fast(self._without_tags(texts))]
        if self._tag_ids:
            encoded = [[*self._tag_of(text)[1], *ids] for text, ids in zip(texts, encoded, strict=True)]
        return encoded

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int32]]:
        """The ids of all texts one after the other, and the length of each; works in several threads at once."""
        encodings = self._backend.encode_batch_fast(self._without_tags(texts))
        lengths = np.fromiter(map(len, encodings), np.int32, len(encodings))
        ids = chain.from_iterable(encoding.ids for encoding in encodings)
        flat = np.fromiter(ids, self.id_type, int(lengths.sum(dtype=np.int64)))
        if self._tag_ids:
            tags = [self._tag_of(text)[1] for text in texts]
            tagged = np.fromiter((len(tag) for tag in tags), np.int32, len(tags))
            starts = np.concatenate([[0], np.cumsum(lengths[:-1])])
            flat = np.insert(flat, starts[tagged > 0], [tag[0] for tag in tags if tag])
            lengths += tagged
        return flat, lengths

    @property
    def id_type(self) -> Any:
        """The smallest of NumPy's unsigned integer types that holds all ids and 16 bits."""
        return np.uint16 if self.vocab_size <= 2**16 else np.uint32

    def pieces(self, text: str) -> list[str]:
        """The tokens of a text, unknown ones and single bytes included."""
        rest, tag = self._tag_of(text)
        return [*self.tokens(tag), *self._backend.encode(rest).tokens]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of the stretch of a text that each of its tokens stands for; of several bytes, of the first."""
        rest, tag = self._tag_of(text)
        shift = len(text) - len(rest)
        found = [(0, len(text.partition(" ")[0]))] if tag else []
        encoding = self._backend.encode(rest)
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            # The library has a joiner stand for the character before it, and a first space for the one after it.
            last_end = found[-1][1] if found else 0
            is_space = token == _SPACE and start == 0
            found.append((max(shift + start, last_end), shift + start if is_space else max(shift + end, last_end)))
        return found

    def join(self, tokens: Sequence[str]) -> str:
        """The text of tokens, which need not be in the vocabulary."""
        return str(self._backend.decoder.decode(list(tokens)))

    def _without_tags(self, texts: Sequence[str]) -> list[str]:
        return [self._tag_of(text)[0] for text in texts] if self._tag_ids else list(texts)

    def _tag_of(self, text: str) -> tuple[str, tuple[int, ...]]:
        """The text after its tag, and the tag's id if it begins with one."""
        first, _, rest = text.partition(" ")
        index = self._tag_ids.get(first)
        return (text, ()) if index is None else (rest, (index,))

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The vocabulary's entries with these ids."""
        return [self._backend.id_to_token(index) or UNK for index in ids]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence of ids; padding, start and end leave no trace."""
        silent = (PAD_ID, SOS_ID, EOS_ID)
        return self._backend.decode_batch(
            [[index for index in sequence if index not in silent] for sequence in ids], skip_special_tokens=False
        )


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


TokenizerPair = tuple[Tokenizer, Tokenizer]
"""Of the source and of the target; one and the same if it is shared."""


def save_tokenizers(folder: Path, tokenizers: TokenizerPair, write: Callable[[Path, str], object] = _write) -> None:
    """Write one file for each tokenizer, or one for both."""
    source, target = tokenizers
    if source is target:
        write(folder / "tokenizer.json", source.to_json())
    else:
        write(folder / "tokenizer.source.json", source.to_json())
        write(folder / "tokenizer.target.json", target.to_json())


def load_tokenizers(folder: Path, config: Config) -> TokenizerPair:
    """The tokenizers of a config that `save_tokenizers` wrote; raises RunError if they cannot be read."""
    tags = config.corpus.tags
    if config.tokenizer.shared:
        shared = Tokenizer.load(folder / "tokenizer.json", tags)
        return shared, shared
    return Tokenizer.load(folder / "tokenizer.source.json", tags), Tokenizer.load(folder / "tokenizer.target.json")


def untagged(text: str, tags: Sequence[str]) -> str:
    """The text without a tag before it."""
    first, _, rest = text.partition(" ")
    return rest if first in tags else text


def character_ends(tokens: Sequence[str]) -> list[int]:
    """For each token the place of the one that completes its last character: a later one where bytes spell it."""
    ends = list(range(len(tokens)))
    for place in reversed(range(len(tokens) - 1)):
        if tokens[place] in _BYTES and tokens[place + 1] in _CONTINUATIONS:
            ends[place] = ends[place + 1]
    return ends


def _has_bytes(config: TokenizerConfig) -> bool:
    return config.byte_fallback and config.algorithm in ("bpe", "unigram")


def _room_for_characters(config: TokenizerConfig, tags: Sequence[str]) -> int | None:
    """How many entries may be single characters; None: as many as there are. Raises ConfigError if there is no room."""
    if not _has_bytes(config):
        return None
    num_entries, num_fixed = config.vocab_size or _DEFAULT_SUBWORDS, len(SPECIAL_TOKENS) + len(tags) + len(BYTES)
    room = num_entries - num_fixed
    if room < _MIN_SUBWORDS:
        raise ConfigError(
            f"tokenizer.vocab_size: {num_entries:,} entries leave too little room beside {num_fixed:,} special "
            f"tokens, tags and bytes; use {num_fixed + _MIN_SUBWORDS:,} at least (some thousands are usual), or set "
            "tokenizer.byte_fallback to false"
        )
    return int(room * _MAX_CHARACTERS)


def _learnt(
    texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str], rare: Sequence[str] = ()
) -> tokenizers.Tokenizer | None:
    """A tokenizer with a vocabulary; `rare` characters of the texts have no part in it.

    None if unigram pieces do not hold all characters; byte-pair merges then have more entries than they should.
    """
    backend, trainer = _untrained(config, tags)
    normalizer = backend.normalizer
    if rare:
        spaces = str.maketrans(dict.fromkeys(rare, _SPACE))
        texts = (normalizer.normalize_str(text).translate(spaces) for text in texts)
        backend.normalizer = normalizers.Sequence([])
    try:
        backend.train_from_iterator(texts, trainer)
    except Exception as error:  # The library raises bare `Exception`s.
        if "not large enough to contain all chars" not in str(error):
            raise
        return None
    backend.normalizer = normalizer
    return backend


def _num_characters(backend: tokenizers.Tokenizer) -> int:
    return sum(len(entry) == 1 for entry in backend.get_vocab())


def _rare_characters(texts: Iterable[str], config: TokenizerConfig, num_kept: int) -> list[str]:
    """The characters of normalised texts that are not among the `num_kept` most frequent."""
    normalizer = _untrained(config, ())[0].normalizer
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    return sorted(counts, key=lambda character: (-counts[character], character))[num_kept:]


def _untrained(config: TokenizerConfig, tags: Sequence[str]) -> tuple[tokenizers.Tokenizer, Any]:
    """An empty tokenizer of the config's algorithm, and its trainer."""
    special_tokens = [*SPECIAL_TOKENS, *tags, *(BYTES if _has_bytes(config) else ())]
    common: dict[str, Any] = {"special_tokens": special_tokens, "show_progress": False}
    subwords = common | {"vocab_size": config.vocab_size or _DEFAULT_SUBWORDS, "initial_alphabet": [_SPACE]}
    num_words = config.vocab_size or 2**31 - 1
    backend: tokenizers.Tokenizer
    trainer: Any
    match config.algorithm:
        case "word_level" | "char":
            backend = tokenizers.Tokenizer(models.WordLevel(unk_token=UNK))
            trainer = trainers.WordLevelTrainer(vocab_size=num_words, min_frequency=config.min_frequency, **common)
        case "bpe":
            backend = tokenizers.Tokenizer(models.BPE(unk_token=UNK, byte_fallback=config.byte_fallback))
            trainer = trainers.BpeTrainer(min_frequency=config.min_frequency, **subwords)
        case "unigram":
            backend = tokenizers.Tokenizer(models.Unigram())
            trainer = trainers.UnigramTrainer(unk_token=UNK, **subwords)
    match config.algorithm:
        case "word_level":
            spacing = _word_spacing()
        case "char":
            spacing = _character_spacing()
        case "bpe" | "unigram":
            spacing = _subword_spacing(config.byte_fallback)
    normalizer, backend.pre_tokenizer, backend.decoder = spacing
    before = [normalizers.NFKC()] * config.nfkc + [normalizers.Lowercase()] * config.lowercase
    backend.normalizer = normalizers.Sequence([*before, *normalizer])
    return backend, trainer


def _is_own(backend: tokenizers.Tokenizer) -> bool:
    """Whether a tokenizer cuts and joins text by steps that ours have, none of them twice in a row of steps.

    One from elsewhere may hold patterns that end in an error, or replacements that make a text endlessly long.
    """
    steps, rest = _rules(backend)
    own_steps, own_rests = _own_rules()
    return all(len(row) == len(set(row)) and own_steps.issuperset(row) for row in steps) and rest in own_rests


_ROWS_OF_STEPS = {
    **{"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"},
    **{"post_processor": "processors", "decoder": "decoders"},
}
_FORMER_STEPS = (
    {
        "type": "Split",
        "pattern": {"Regex": r"▁?[\p{L}\p{M}\p{N}_]+|▁?[^\p{L}\p{M}\p{N}_▁]|▁"},
        "behavior": "Isolated",
        "invert": False,
    },
    {"type": "Prepend", "prepend": "▁"},
)
"""Of tokenizers before `byte_fallback`. Steps that ours no longer have must be added, or older runs cannot be read."""


def _rules(backend: tokenizers.Tokenizer) -> tuple[list[list[str]], str]:
    """What a tokenizer does with text, as rows of steps, and all else but its vocabulary."""
    state = json.loads(backend.to_str())
    state["model"] = state["model"]["type"]
    rows = [_steps(state.pop(part), key) for part, key in _ROWS_OF_STEPS.items()]
    return rows, _spelled(state)


def _steps(part: Any, key: str) -> list[str]:
    if part is None:
        return []
    return [step for each in part[key] for step in _steps(each, key)] if key in part else [_spelled(part)]


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@cache
def _own_rules() -> tuple[set[str], set[str]]:
    """The steps, and all else, of every kind of tokenizer that there is."""
    algorithms = get_args(TokenizerConfig.model_fields["algorithm"].annotation)
    choices = product(algorithms, *((False, True),) * 3)
    configs = (
        TokenizerConfig(algorithm=algorithm, byte_fallback=byte_fallback, nfkc=nfkc, lowercase=lowercase)
        for algorithm, byte_fallback, nfkc, lowercase in choices
    )
    rules = [_rules(_untrained(config, ())[0]) for config in configs]
    steps = {step for rows, _ in rules for row in rows for step in row}
    return steps | set(map(_spelled, _FORMER_STEPS)), {rest for _, rest in rules}


def _word_spacing() -> tuple[list[Any], Any, Any]:
    """Words and single marks, the marks with a joiner towards each neighbour that no space parts from them."""
    mark_begins = Regex(rf"(?<=[^ ])(?=[^{_LETTER} ])")
    word_begins = Regex(rf"(?<=[^{_LETTER} {_JOINER}])(?=[{_LETTER}])")
    empty_word = Regex("(?<= )(?= )|^(?= )|(?<= )$")
    normalizer = [
        normalizers.Replace(_JOINER, _NEVER_SEEN),
        normalizers.Replace(_SPACE, _NEVER_SEEN),
        normalizers.Replace(empty_word, _SPACE),
        normalizers.Replace(mark_begins, f" {_JOINER}"),
        normalizers.Replace(word_begins, f"{_JOINER} "),
    ]
    decoder = decoders.Sequence(
        [
            decoders.WordPiece(prefix=_JOINER, cleanup=False),
            decoders.Fuse(),
            decoders.Replace(f"{_JOINER} ", ""),
            decoders.Replace(_JOINER, ""),
            decoders.Replace(_SPACE, ""),
        ]
    )
    return normalizer, pre_tokenizers.Split(" ", "removed"), decoder


def _character_spacing() -> tuple[list[Any], Any, Any]:
    """Each character alone, a space being `▁`."""
    normalizer = [normalizers.Replace(_SPACE, _NEVER_SEEN), normalizers.Replace(" ", _SPACE)]
    decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(_SPACE, " ")])
    return normalizer, pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"), decoder


def _subword_spacing(has_bytes: bool) -> tuple[list[Any], Any, Any]:
    """Words and single marks with the space before them as `▁`, which the first word has as well.

    Where a script has no spaces between words, `▁` is a unit of its own, and there is none but for a real space.
    """
    words = rf"{_SPACE}?[{_LETTER}&&[^{SPACELESS}]]+|{_SPACE}?[^{_LETTER}{SPACELESS}{_SPACE}]|{_SPACE}"
    unit = rf"{words}|[{SPACELESS}&&[{_LETTER}]]+|[{SPACELESS}]"
    first_word = Regex(rf"\A(?={_SPACE}|[^{SPACELESS}]+\z)")
    escapes = _ESCAPES if has_bytes else {_SPACE: _NEVER_SEEN}
    normalizer: list[Any] = [
        *(normalizers.Replace(text, escaped) for text, escaped in escapes.items()),
        normalizers.Replace(" ", _SPACE),
        normalizers.Replace(first_word, _SPACE),
    ]
    unescaped = [decoders.Replace(escaped, text) for text, escaped in reversed(escapes.items())]
    bytes_and_escapes = [decoders.ByteFallback(), decoders.Fuse(), *unescaped] if has_bytes else [decoders.Fuse()]
    decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), *bytes_and_escapes, decoders.Strip(" ", 1, 0)])
    return normalizer, pre_tokenizers.Split(Regex(unit), "isolated"), decoder
