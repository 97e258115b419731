"""Text to ids and back. Knows the special tokens and the `tokenizers` library; does not know batches.

`decode(encode(text))` is `text` (after the optional normalisation) whenever no token is unknown. With `bpe` and
`unigram` no token is unknown unless `byte_fallback` is off: a character without an entry is encoded as its UTF-8 bytes,
which all have entries, such as `<0xE2>` (Kudo and Richardson 2018). With `word_level` and `char`, words and characters
without an entry are unknown.

Two markers encode the spaces. With `word_level`, `￭` on a punctuation mark means "no space here": `l'amico` becomes
`l ￭'￭ amico`, so that `amico` is the same entry whatever precedes it. Sub-words and characters encode a space as `▁`,
as SentencePiece does. A marker that occurs in text is escaped, encoded as bytes, or unknown. Text that contains `[EOS]`
or `<0xE2>` never produces these tokens.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from mt_cli.config.sections import Config, TokenizerConfig
from mt_cli.console import Progress
from mt_cli.corpus.languages import SPACELESS
from mt_cli.errors import ConfigError, RunError, one_line
from mt_cli.storage import read_regular, reading
from mt_cli.trust import MAX_ENTRY_CHARACTERS, check_model, checked_tree, has_only, named_values, no_panic

PAD, UNK, SOS, EOS = "[PAD]", "[UNK]", "[SOS]", "[EOS]"
SPECIAL_TOKENS = (PAD, UNK, SOS, EOS)
PAD_ID, UNK_ID, SOS_ID, EOS_ID = range(4)
BYTES = tuple(f"<0x{value:02X}>" for value in range(256))
"""The entries for single bytes, in order of their values."""

_JOINER, _SPACE, _NEVER_SEEN = "￭", "▁", "\ue000"
ABSENT = _NEVER_SEEN
"""In an imported tokenizer, put before entries that are no pieces of its SentencePiece model."""
_ESCAPES = {"\x10": "\x10\x12", _SPACE: "\x10\x11"}
"""How sub-words escape characters that look like a marker; undone from last to first."""
_BYTES, _CONTINUATIONS = frozenset(BYTES), frozenset(BYTES[0x80:0xC0])
_LETTER = r"\p{L}\p{M}\p{N}_"
_DEFAULT_SUBWORDS, _MIN_SUBWORDS = 8_000, 16
_MAX_CHARACTERS = 0.75
"""Maximum share of sub-words that are single characters. Chinese captions (3,600 characters) needed close to the fewest
tokens with this share at 1,000 to 4,000 entries, and up to a fifth more tokens without a limit."""
MAX_FILE_BYTES = 2**28


class Tokenizer:
    """A vocabulary, and the rules that split text into its entries.

    Tags are entries too. A tag is recognised only at the beginning of a text, before a space or the end of the text.
    """

    def __init__(self, backend: tokenizers.Tokenizer, tags: Sequence[str] = ()) -> None:
        self._backend = backend
        self._tag_ids: dict[str, int | None] = {tag: backend.token_to_id(tag) for tag in tags}
        self._absent = {
            text.removeprefix(ABSENT): index for text, index in backend.get_vocab().items() if text.startswith(ABSENT)
        }

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str] = ()) -> Tokenizer:
        """A tokenizer with a vocabulary learnt from `texts`, and an entry for each tag.

        The same texts give the same tokenizer, except with `unigram`: its trainer adds probabilities in no fixed order,
        so two trainings may differ in a few pieces. `texts` may be iterated over three times; an iterator is copied.
        Raises ConfigError if `vocab_size` is too small for the bytes, or for the characters of the texts, or so large
        that no tokenizer file may have the entries. Nothing is learnt from texts that are longer than an entry may be.
        """
        if config.algorithm == "sentencepiece":
            raise ConfigError(
                "tokenizer.algorithm: sentencepiece models are imported (mt import) and not trained; use bpe or unigram"
            )
        markers = str.maketrans("", "", _JOINER + _SPACE + _NEVER_SEEN)
        texts = list(texts) if isinstance(texts, Iterator) else texts
        cleaned = _Reread(
            lambda: (untagged(text, tags).translate(markers) for text in texts if len(text) <= MAX_ENTRY_CHARACTERS)
        )
        limit = _character_limit(config, tags)
        backend = _trained_backend(cleaned, config, tags)
        if limit is not None and (backend is None or sum(len(entry) == 1 for entry in backend.get_vocab()) > limit):
            backend = _trained_backend(cleaned, config, tags, limit)
        if backend is None:
            raise ConfigError(
                f"tokenizer.vocab_size: {config.vocab_size or _DEFAULT_SUBWORDS:,} entries cannot hold all characters "
                "of the text; make it larger, or set tokenizer.byte_fallback to true"
            )
        state = json.loads(backend.to_str())
        state["added_tokens"] = []  # As plain entries, the special tokens cannot be matched in text.
        if config.algorithm == "unigram":
            state["model"]["byte_fallback"] = config.byte_fallback
            # Without training text, the space has no probability.
            state["model"]["vocab"] = [[piece, score or 0.0] for piece, score in state["model"]["vocab"]]
        try:
            check_model(state["model"], SPECIAL_TOKENS)
        except ValueError as error:
            raise ConfigError(f"tokenizer.vocab_size: what was learnt is too large: {error}; make it smaller") from None
        return cls(tokenizers.Tokenizer.from_str(json.dumps(state)), tags)

    @classmethod
    def load(cls, path: Path, tags: Sequence[str] = ()) -> Tokenizer:
        """The tokenizer saved at `path`; raises RunError if it cannot be read or lacks a tag."""
        with reading(path, RunError):
            content = read_regular(path, MAX_FILE_BYTES)
        return cls.parse(content, path, tags)

    @classmethod
    def parse(cls, content: bytes, path: Path, tags: Sequence[str] = ()) -> Tokenizer:
        """The tokenizer in the content of a file, which may be untrusted; raises RunError as `load`."""
        try:
            text = content.decode("utf-8")
            is_own = has_only(checked_tree(text, SPECIAL_TOKENS), _own_patterns())
            with no_panic():
                tokenizer = cls(tokenizers.Tokenizer.from_str(text), tags) if is_own else None
        except Exception as error:  # The library raises bare `Exception`s.
            raise RunError(f"{path}: not a tokenizer: {one_line(error)}") from None
        if tokenizer is None or not _is_own(tokenizer._backend):
            raise RunError(f"{path}: splits or joins text in a way that no tokenizer of `mt` does; refused")
        if missing := [tag for tag in tags if tokenizer._tag_ids[tag] is None]:
            raise RunError(f"{path}: has no entry for the tag {missing[0]!r} of the config")
        return tokenizer

    def is_of(self, algorithm: str) -> bool:
        """Whether the tokenizer may come from this value of `tokenizer.algorithm`."""
        kind = type(self._backend.model).__name__
        if isinstance(self._backend.pre_tokenizer, pre_tokenizers.Metaspace):  # Only imported ones have it.
            return algorithm == "sentencepiece"
        return {"bpe": "BPE", "unigram": "Unigram"}.get(algorithm, "WordLevel") == kind and algorithm != "sentencepiece"

    def model(self) -> dict[str, Any]:
        """The vocabulary of the `tokenizers` library, with the merges of `bpe` and the scores of `unigram`."""
        return dict(json.loads(self._backend.to_str())["model"])

    def subwords(self) -> dict[str, int]:
        """The ids of the entries whose characters are entries too; neither special tokens nor tags nor bytes."""
        entries = self._backend.get_vocab()
        for entry in (*SPECIAL_TOKENS, *self._tag_ids, *BYTES):
            entries.pop(entry, None)
        return {text: index for text, index in entries.items() if all(character in entries for character in text)}

    def to_json(self) -> str:
        """The content of a tokenizer file, for `load` and for the `tokenizers` library."""
        return self._backend.to_str(pretty=True)

    @property
    def vocab_size(self) -> int:
        """Number of entries, with special tokens."""
        return self._backend.get_vocab_size()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without [SOS] and [EOS]."""
        return [[*tag, *ids] for tag, ids in self._encoded(texts)]

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int32]]:
        """The ids of all texts in one array of the smallest type, and the length of each text. Thread-safe."""
        id_type = np.uint16 if self.vocab_size <= 2**16 else np.uint32
        encoded = [np.fromiter(chain(*parts), id_type) for parts in self._encoded(texts)]
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        return np.concatenate([np.empty(0, id_type), *encoded]), lengths

    def _encoded(self, texts: Sequence[str]) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """The ids of the tag of each text, and of the rest."""
        split = [self._split_tag(text) for text in texts]
        encodings = self._backend.encode_batch_fast([rest for _, rest in split])
        for (tag, rest), encoding in zip(split, encodings, strict=True):
            ids = encoding.ids
            yield tag, self._looked_up(rest) if self._absent and UNK_ID in ids else ids

    def _looked_up(self, text: str) -> list[int]:
        """The ids of a text whose unknown pieces may be entries all the same, as Marian's vocabulary is read."""
        encoding = self._backend.encode(text)
        found = []
        for index, token, (start, end) in zip(encoding.ids, encoding.tokens, encoding.offsets, strict=True):
            piece = self._backend.normalizer.normalize_str(text[start:end]) if token == UNK else token
            found.append(self._absent.get(piece, UNK_ID) if index == UNK_ID else index)
        return found

    def _split_tag(self, text: str) -> tuple[tuple[int, ...], str]:
        """The id of the text's tag, if it has one, and the rest of the text."""
        first, _, rest = text.partition(" ") if self._tag_ids else (text, "", "")
        index = self._tag_ids.get(first)
        return ((), text) if index is None else ((index,), rest)

    def pieces(self, text: str) -> list[str]:
        """The tokens of a text, with [UNK] and single bytes."""
        (ids,) = self.encode([text])
        return [token.removeprefix(ABSENT) for token in self.tokens(ids)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each token in the text; of the bytes of a character, only the first has a non-empty span."""
        tag, rest = self._split_tag(text)
        shift = len(text) - len(rest)
        spans = [(0, len(text.partition(" ")[0]))] if tag else []
        encoding = self._backend.encode(rest)
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            # The library counts a joiner to the character before it, and a first space to the one after it.
            last_end = spans[-1][1] if spans else 0
            is_space = token == _SPACE and start == 0
            spans.append((max(shift + start, last_end), shift + start if is_space else max(shift + end, last_end)))
        return spans

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The entries with these ids."""
        return [self._backend.id_to_token(index) or UNK for index in ids]

    def join(self, tokens: Sequence[str]) -> str:
        """The text of tokens, which need not be in the vocabulary."""
        return str(self._backend.decoder.decode(list(tokens)))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence of ids; [PAD], [SOS] and [EOS] are skipped."""
        kept = [[index for index in sequence if index not in (PAD_ID, SOS_ID, EOS_ID)] for sequence in ids]
        return self._backend.decode_batch(kept, skip_special_tokens=False)


TokenizerPair = tuple[Tokenizer, Tokenizer]
"""The tokenizers of the source and of the target; the same object if it is shared."""


@dataclass(frozen=True)
class _Reread:
    """Texts that are read again for each iteration."""

    read: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.read()


def train_tokenizers(pairs: Callable[[], Iterable[tuple[str, str]]], config: Config) -> TokenizerPair:
    """The tokenizers of a config, trained on the pairs that each call of `pairs` reads again."""

    def learn(side: str, sides: Sequence[int], tags: Sequence[str]) -> Tokenizer:
        with Progress(f"learning the {side}vocabulary", None, "sentence") as bar:
            texts = _Reread(lambda: bar.over(pair[side] for pair in pairs() for side in sides))
            return Tokenizer.train(texts, config.tokenizer, tags)

    if config.tokenizer.shared:
        shared = learn("", (0, 1), config.corpus.tags)
        return shared, shared
    return learn("source ", (0,), config.corpus.tags), learn("target ", (1,), ())


_write: Callable[[Path, str], object] = partial(Path.write_text, encoding="utf-8")


def save_tokenizers(folder: Path, tokenizers: TokenizerPair, write: Callable[[Path, str], object] = _write) -> None:
    """Write one file for each tokenizer, or one file for a shared tokenizer."""
    source, target = tokenizers
    shared, separate = {"": source}, {".source": source, ".target": target}
    for suffix, tokenizer in (shared if source is target else separate).items():
        write(folder / f"tokenizer{suffix}.json", tokenizer.to_json())


def load_tokenizers(folder: Path, config: Config) -> TokenizerPair:
    """The tokenizers of a config that `save_tokenizers` wrote; raises RunError if they cannot be read."""
    tags = config.corpus.tags
    if config.tokenizer.is_single:
        shared = Tokenizer.load(folder / "tokenizer.json", tags)
        pair = shared, shared
    else:
        target = Tokenizer.load(folder / "tokenizer.target.json")
        pair = Tokenizer.load(folder / "tokenizer.source.json", tags), target
    if not all(tokenizer.is_of(config.tokenizer.algorithm) for tokenizer in pair):
        raise RunError(f"{folder}: its tokenizers are not of tokenizer.algorithm: {config.tokenizer.algorithm}")
    return pair


def untagged(text: str, tags: Sequence[str]) -> str:
    """The text without its tag, if it has one."""
    first, _, rest = text.partition(" ")
    return rest if first in tags else text


def character_ends(tokens: Sequence[str]) -> list[int]:
    """For each token, the index of the token that completes its last character: a later one for bytes."""
    ends = list(range(len(tokens)))
    for index in reversed(range(len(tokens) - 1)):
        if tokens[index] in _BYTES and tokens[index + 1] in _CONTINUATIONS:
            ends[index] = ends[index + 1]
    return ends


def _has_bytes(config: TokenizerConfig) -> bool:
    return config.byte_fallback and config.algorithm in ("bpe", "unigram")


def _character_limit(config: TokenizerConfig, tags: Sequence[str]) -> int | None:
    """Maximum number of single-character entries; None without bytes. Raises ConfigError if the bytes do not fit."""
    if not _has_bytes(config):
        return None
    num_entries, num_fixed = config.vocab_size or _DEFAULT_SUBWORDS, len(SPECIAL_TOKENS) + len(tags) + len(BYTES)
    if num_entries < num_fixed + _MIN_SUBWORDS:
        raise ConfigError(
            f"tokenizer.vocab_size: {num_entries:,} is too small for {num_fixed:,} special tokens, tags and bytes; "
            f"use at least {num_fixed + _MIN_SUBWORDS:,} (thousands are usual), or set tokenizer.byte_fallback to false"
        )
    return int((num_entries - num_fixed) * _MAX_CHARACTERS)


def _trained_backend(
    texts: Iterable[str], config: TokenizerConfig, tags: Sequence[str], max_characters: int | None = None
) -> tokenizers.Tokenizer | None:
    """A backend trained on the most frequent characters; None if these do not fit in a `unigram` vocabulary."""
    backend, trainer = _untrained_backend(config, tags)
    normalizer = backend.normalizer
    if max_characters is not None:
        counts = Counter(chain.from_iterable(map(normalizer.normalize_str, texts)))
        rare = sorted(counts, key=lambda character: (-counts[character], character))[max_characters:]
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


def _untrained_backend(config: TokenizerConfig, tags: Sequence[str] = ()) -> tuple[tokenizers.Tokenizer, Any]:
    special_tokens = [*SPECIAL_TOKENS, *tags, *(BYTES if _has_bytes(config) else ())]
    common: dict[str, Any] = {"special_tokens": special_tokens, "show_progress": False}
    subwords = common | {"vocab_size": config.vocab_size or _DEFAULT_SUBWORDS, "initial_alphabet": [_SPACE]}
    words = common | {"vocab_size": config.vocab_size or 2**31 - 1, "min_frequency": config.min_frequency}
    model: Any
    trainer: Any
    if config.algorithm in ("word_level", "char"):
        model, trainer = models.WordLevel(unk_token=UNK), trainers.WordLevelTrainer(**words)
        spacing = _word_spacing() if config.algorithm == "word_level" else _character_spacing()
    elif config.algorithm == "bpe":
        model = models.BPE(unk_token=UNK, byte_fallback=config.byte_fallback)
        trainer = trainers.BpeTrainer(min_frequency=config.min_frequency, **subwords)
        spacing = _subword_spacing(config.byte_fallback)
    else:
        model, trainer = models.Unigram(), trainers.UnigramTrainer(unk_token=UNK, **subwords)
        spacing = _subword_spacing(config.byte_fallback)
    replacements, pre_tokenizer, steps = spacing
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFKC()] * config.nfkc
        + [normalizers.Lowercase()] * config.lowercase
        + [normalizers.Replace(*each) for each in replacements]
    )
    backend.pre_tokenizer, backend.decoder = pre_tokenizer, decoders.Sequence(steps)
    return backend, trainer


_Spacing = tuple[list[tuple[Any, str]], Any, list[Any]]
"""Replacements before the text is split, the pre-tokenizer that splits it, and the steps that join tokens again."""


def _word_spacing() -> _Spacing:
    """Words and single punctuation marks, the marks with a joiner where no space is next to them."""
    mark_begins = Regex(rf"(?<=[^ ])(?=[^{_LETTER} ])")
    word_begins = Regex(rf"(?<=[^{_LETTER} {_JOINER}])(?=[{_LETTER}])")
    empty_word = Regex("(?<= )(?= )|^(?= )|(?<= )$")
    replacements = [(_JOINER, _NEVER_SEEN), (_SPACE, _NEVER_SEEN), (empty_word, _SPACE)]
    replacements += [(mark_begins, f" {_JOINER}"), (word_begins, f"{_JOINER} ")]
    joins = [decoders.Replace(text, "") for text in (f"{_JOINER} ", _JOINER, _SPACE)]
    steps = [decoders.WordPiece(prefix=_JOINER, cleanup=False), decoders.Fuse(), *joins]
    return replacements, pre_tokenizers.Split(" ", "removed"), steps


def _character_spacing() -> _Spacing:
    """Single characters; a space is `▁`."""
    pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return [(_SPACE, _NEVER_SEEN), (" ", _SPACE)], pre_tokenizer, [decoders.Fuse(), decoders.Replace(_SPACE, " ")]


def _subword_spacing(has_bytes: bool) -> _Spacing:
    """Words and single punctuation marks, each with the space before it as `▁`; the first word has a `▁` too.

    In scripts without spaces between words, `▁` is a unit of its own, and occurs only for a space of the text.
    """
    words = rf"{_SPACE}?[{_LETTER}&&[^{SPACELESS}]]+|{_SPACE}?[^{_LETTER}{SPACELESS}{_SPACE}]|{_SPACE}"
    unit = rf"{words}|[{SPACELESS}&&[{_LETTER}]]+|[{SPACELESS}]"
    first_word = Regex(rf"\A(?={_SPACE}|[^{SPACELESS}]+\z)")
    escapes = _ESCAPES if has_bytes else {_SPACE: _NEVER_SEEN}
    unescapes = [decoders.Replace(escaped, text) for text, escaped in reversed(escapes.items())]
    from_bytes = [decoders.ByteFallback(), decoders.Fuse(), *unescapes] if has_bytes else [decoders.Fuse()]
    steps = [decoders.Replace(_SPACE, " "), *from_bytes, decoders.Strip(" ", 1, 0)]
    replacements = [*escapes.items(), (" ", _SPACE), (first_word, _SPACE)]
    return replacements, pre_tokenizers.Split(Regex(unit), "isolated"), steps


def sentencepiece_backend(model: Any, charsmap: bytes, adds_prefix: bool, strips_spaces: bool) -> tokenizers.Tokenizer:
    """A backend that splits text as SentencePiece does with the same pieces.

    `charsmap` is its compiled normalisation. `adds_prefix`: text begins with a space. `strips_spaces`: several spaces
    are one, and there are none at both ends.
    """
    backend = tokenizers.Tokenizer(model)
    strips = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")] if strips_spaces else []
    precompiled = [normalizers.Precompiled(charsmap)] if charsmap else []
    backend.normalizer = normalizers.Sequence(precompiled + strips)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, "always" if adds_prefix else "never")
    steps = [
        decoders.Replace(_NEVER_SEEN, ""),
        decoders.Replace(_SPACE, " "),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    backend.decoder = decoders.Sequence(steps)
    return backend


_KEYS_OF_STEPS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
_KEYS_OF_STEPS |= {"post_processor": "processors", "decoder": "decoders"}
_PREVIOUS_UNIT = rf"▁?[{_LETTER}]+|▁?[^{_LETTER}▁]|▁"
_PREVIOUS_STEPS = (
    {"type": "Split", "pattern": {"Regex": _PREVIOUS_UNIT}, "behavior": "Isolated", "invert": False},
    {"type": "Prepend", "prepend": "▁"},
)
"""Steps of tokenizers from before `byte_fallback`. When a step above changes, add the old one: older runs need it."""
_spelled = partial(json.dumps, sort_keys=True)


def _is_own(backend: tokenizers.Tokenizer) -> bool:
    """Whether a tokenizer processes text only by steps that ours have, none of them twice.

    In an untrusted file, a pattern may fail and repeated replacements may make a text endlessly long.
    """
    return all(len(row) == len(set(row)) and _own_steps().issuperset(row) for row in _rows_of_steps(backend))


@cache
def _own_steps() -> set[str]:
    algorithms = {*get_args(TokenizerConfig.model_fields["algorithm"].annotation)} - {"sentencepiece"}
    configs = [
        TokenizerConfig(algorithm=algorithm, byte_fallback=byte_fallback, nfkc=True, lowercase=True)
        for algorithm, byte_fallback in product(algorithms, (False, True))
    ]
    backends = [_untrained_backend(config)[0] for config in configs]
    flags = product((False, True), (False, True))
    backends += [sentencepiece_backend(models.Unigram(), b"", *each) for each in flags]
    rows = chain.from_iterable(map(_rows_of_steps, backends))
    return {*chain.from_iterable(rows), *map(_spelled, _PREVIOUS_STEPS), _spelled({"type": "Precompiled"})}


@cache
def _own_patterns() -> set[str]:
    """The regular expressions of our steps."""
    return {value for step in _own_steps() for name, value in named_values(json.loads(step)) if name == "Regex"}


def _rows_of_steps(backend: tokenizers.Tokenizer) -> list[list[str]]:
    """The steps of a tokenizer in rows, as JSON; its other settings, without the vocabulary, count as a step."""
    state = json.loads(backend.to_str())
    state["model"] = state["model"]["type"]
    return [*(_steps(state.pop(part), key) for part, key in _KEYS_OF_STEPS.items()), [_spelled(state)]]


def _steps(part: Any, key: str) -> list[str]:
    if part is None:
        return []
    if part.get("type") == "Precompiled":
        part = {"type": "Precompiled"}  # A table of characters, which has no patterns.
    return [step for each in part[key] for step in _steps(each, key)] if key in part else [_spelled(part)]
