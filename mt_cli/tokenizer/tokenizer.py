"""Text to ids and back. Knows the special tokens and the `tokenizers` library; does not know batches.

`decode(encode(text))` is `text` (after the optional normalisation) whenever no token is unknown. With `bpe` and
`unigram` no token is unknown: a character without an entry is encoded as its UTF-8 bytes, which all have entries, such
as `<0xE2>` (Kudo and Richardson 2018). With `word_level` and `char`, words and characters without an entry are unknown.

Two markers encode the spaces. With `word_level`, `￭` on a punctuation mark means "no space here": `l'amico` becomes
`l ￭'￭ amico`, so that `amico` is the same entry whatever precedes it. Sub-words and characters encode a space as `▁`,
as SentencePiece does. A marker that occurs in text is escaped, encoded as bytes, or unknown. Text that contains `[EOS]`
or `<0xE2>` never produces these tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import tokenizers
from numpy.typing import NDArray

from mt_cli.config.sections import Config, TokenizerConfig
from mt_cli.config.tags import direction_of
from mt_cli.corpus.clean_text import composed, without_noise
from mt_cli.corpus.protected_text import RESERVED
from mt_cli.corpus.term_marks import TERM_MARKS
from mt_cli.errors import RunError, one_line
from mt_cli.runtime.files import read_regular, reading, write_text
from mt_cli.tokenizer.spacing import joined
from mt_cli.tokenizer.special_tokens import (
    ABSENT,
    BYTES,
    EOS_ID,
    LANGUAGE_ENTRY,
    PAD_ID,
    SOS_ID,
    SPACE,
    SPECIAL_TOKENS,
    UNK,
)

if TYPE_CHECKING:
    from mt_cli.tokenizer.sentencepiece import SentencePieces

MAX_FILE_BYTES = 2**28
MAX_ENTRY_CHARACTERS = 2**16
"""Maximum length of a text that vocabularies are trained on, and of an entry."""


Backend: TypeAlias = "tokenizers.Tokenizer | SentencePieces"


def _backend(content: str, config: TokenizerConfig) -> Backend:
    if config.algorithm != "sentencepiece":
        return tokenizers.Tokenizer.from_str(content)
    from mt_cli.tokenizer.sentencepiece import SentencePieces  # Only imported models need the library.

    return SentencePieces.from_str(content)


class Tokenizer:
    """Vocabulary, and the rules that split text into its entries.

    Tags are entries too. A tag is recognised only at the beginning of a text, before a space or the end of the text.
    With entries for languages, the tag `<en>it>` stands for the entry of the source language, and the translation
    begins with the entry of the target language.
    """

    def __init__(self, backend: Backend, tags: Sequence[str] = ()) -> None:
        self.backend = backend
        self._tag_ids: dict[str, int | None] = {tag: backend.token_to_id(tag) for tag in tags}
        absent = {text: index for text, index in backend.get_vocab().items() if text.startswith(ABSENT)}
        absent = dict(sorted(absent.items(), key=lambda item: item[1]))
        languages = {match[1]: index for text, index in absent.items() if (match := LANGUAGE_ENTRY.fullmatch(text))}
        self.languages: tuple[str, ...] = tuple(languages)
        """Languages that have entries."""
        marks = [index for text, index in absent.items() if text[1:2] in ("<", "[")] if languages else []
        term_marks = [index for mark in TERM_MARKS if (index := backend.token_to_id(mark)) is not None]
        self.has_term_marks = bool(term_marks)
        """True if the vocabulary has the marks of annotated terms, so that the model has learned them."""
        self._never_text = {PAD_ID, SOS_ID, EOS_ID, *marks, *term_marks}
        self._first_ids: dict[str, tuple[int, ...]] = {}
        for tag, direction in ((tag, direction_of(tag)) for tag, index in self._tag_ids.items() if index is None):
            if direction is not None and languages.keys() >= {*direction}:
                self._tag_ids[tag] = languages[direction[0]]
                self._first_ids[tag] = (languages[direction[1]],)

    @classmethod
    def load(cls, path: Path, config: TokenizerConfig, tags: Sequence[str] = ()) -> Tokenizer:
        """Read a tokenizer file; raises RunError if it cannot be read, or lacks a tag or the special tokens."""
        with reading(path, RunError):
            content = read_regular(path, MAX_FILE_BYTES)
        return cls.parse(content, path, config, tags)

    @classmethod
    def parse(cls, content: bytes, path: Path, config: TokenizerConfig, tags: Sequence[str] = ()) -> Tokenizer:
        """Tokenizer in the content of a file; raises RunError as `load` does."""
        try:
            tokenizer = cls(_backend(content.decode("utf-8"), config), tags)
            if (first := tokenizer.tokens(range(len(SPECIAL_TOKENS)))) != [*SPECIAL_TOKENS]:
                raise ValueError(f"its first entries are {' '.join(first):.60}, not {' '.join(SPECIAL_TOKENS)}")
        except Exception as error:  # The library raises bare `Exception`s.
            raise RunError(f"{path}: not a tokenizer of this model: {one_line(error)}") from None
        if missing := [tag for tag, index in tokenizer._tag_ids.items() if index is None]:
            raise RunError(f"{path}: has no entry for the tag {missing[0]!r} of the config")
        return tokenizer

    def normalized(self, text: str) -> str:
        """Text as it is split into tokens."""
        if isinstance(self.backend, tokenizers.Tokenizer):
            return str(self.backend.normalizer.normalize_str(text))
        return self.backend.normalize(text)

    def cleaned(self, text: str) -> str:
        """Composed text without soft hyphens and zero-width characters, if these make no difference to the tokens."""
        for spell in (without_noise, composed):
            changed = spell(text)
            if changed != text and self.normalized(changed) == self.normalized(text):
                text = changed
        return text

    def model(self) -> dict[str, Any]:
        """Vocabulary of the library `tokenizers`, with the merges of `bpe` and the scores of `unigram`."""
        return dict(json.loads(self.backend.to_str())["model"])

    @property
    def tag_ids(self) -> list[int]:
        return [index for index in self._tag_ids.values() if index is not None]

    @property
    def target_tag_ids(self) -> list[int]:
        """Ids that translations begin with because of tags."""
        return [index for ids in self._first_ids.values() for index in ids]

    def without_entries(self, tags: Sequence[str]) -> list[str]:
        """Tags that need entries of their own, because the vocabulary lacks an entry for one of their languages."""
        return [tag for tag in tags if not {*(direction_of(tag) or [""])} <= {*self.languages}]

    def first_target_ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Ids that the translation of each text begins with: of its target language, if its tag names both languages.

        They are ids of the target vocabulary, which is the same.
        """
        if not self._first_ids:
            return [()] * len(texts)
        return [self._first_ids.get(text.partition(" ")[0], ()) for text in texts]

    @property
    def reserved_ids(self) -> list[list[int]]:
        """Ids of the entries of each reserved character, which stand for protected spans; empty if it has none."""
        if self.backend.token_to_id(RESERVED[0]) is None:
            return []
        vocab = self.backend.get_vocab()
        entries = [[vocab[entry] for entry in joined(character) if entry in vocab] for character in RESERVED]
        return [[*ids, *[ids[0]] * (max(map(len, entries)) - len(ids))] for ids in entries]

    def subwords(self) -> dict[str, int]:
        """Ids of the entries whose characters are all entries too, without special tokens, tags and bytes."""
        entries = self.backend.get_vocab()
        for entry in (*SPECIAL_TOKENS, *self._tag_ids, *BYTES, *RESERVED, *TERM_MARKS):
            entries.pop(entry, None)
        return {text: index for text, index in entries.items() if all(character in entries for character in text)}

    def to_json(self) -> str:
        """Content of a tokenizer file, for `load` and for the `tokenizers` library."""
        return self.backend.to_str(pretty=True)

    @property
    def vocab_size(self) -> int:
        """Number of entries, with special tokens."""
        return self.backend.get_vocab_size()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without [SOS] and [EOS]."""
        return [[*tag, *ids] if tag else ids for tag, ids in self._encoded(texts)]

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.int32]]:
        """Ids of all texts in one array of the smallest type, and the length of each text. Thread-safe."""
        id_type = np.uint16 if self.vocab_size <= 2**16 else np.uint32
        encoded = [np.fromiter(chain(*parts), id_type) for parts in self._encoded(texts)]
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        return np.concatenate([np.empty(0, id_type), *encoded]), lengths

    def _encoded(self, texts: Sequence[str]) -> Iterator[tuple[tuple[int, ...], list[int]]]:
        """Ids of the tag of each text, and of the rest."""
        split = [*map(self._split_tag, texts)]
        encodings: Any = self.backend.encode_batch_fast([rest for _, rest in split])
        return ((tag, encoding.ids) for (tag, _), encoding in zip(split, encodings, strict=True))

    def _split_tag(self, text: str) -> tuple[tuple[int, ...], str]:
        """Id of the tag of a text, if it has one, and the rest of the text."""
        first, _, rest = text.partition(" ") if self._tag_ids else (text, "", "")
        index = self._tag_ids.get(first)
        return ((), text) if index is None else ((index,), rest)

    def pieces(self, text: str) -> list[str]:
        """Tokens of a text, with [UNK] and single bytes."""
        (ids,) = self.encode([text])
        return [token.removeprefix(ABSENT) for token in self.tokens(ids)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each token in the text; if bytes spell a character, only the first has a non-empty span."""
        tag, rest = self._split_tag(text)
        shift = len(text) - len(rest)
        spans = [(0, len(text.partition(" ")[0]))] if tag else []
        encoding = self.backend.encode(rest)
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
            # The library assigns a joiner to the character before it, and a first space to the character after it.
            last_end = spans[-1][1] if spans else 0
            is_space = token == SPACE and start == 0
            spans.append((max(shift + start, last_end), shift + start if is_space else max(shift + end, last_end)))
        return spans

    def tokens(self, ids: Iterable[int]) -> list[str]:
        return [self.backend.id_to_token(index) or UNK for index in ids]

    def join(self, tokens: Sequence[str]) -> str:
        """Text of tokens, which need not be in the vocabulary."""
        return str(self.backend.decoder.decode([token for token in tokens if not LANGUAGE_ENTRY.fullmatch(token)]))

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Text of each sequence of ids; special tokens, marks of terms and of an imported vocabulary are skipped."""
        never = self._never_text
        kept = [
            sequence if never.isdisjoint(sequence) else [index for index in sequence if index not in never]
            for sequence in ids
        ]
        return self.backend.decode_batch(kept, skip_special_tokens=False)


TokenizerPair = tuple[Tokenizer, Tokenizer]
"""Tokenizers of the source and of the target; one object if it is shared."""


def save_tokenizers(folder: Path, tokenizers: TokenizerPair) -> None:
    """Write one file for each tokenizer, or one file for a shared tokenizer."""
    source, target = tokenizers
    shared, separate = {"": source}, {".source": source, ".target": target}
    for suffix, tokenizer in (shared if source is target else separate).items():
        write_text(folder / f"tokenizer{suffix}.json", tokenizer.to_json())


def load_tokenizers(folder: Path, config: Config) -> TokenizerPair:
    """Read the tokenizers of a config that `save_tokenizers` wrote; raises RunError if they cannot be read."""
    tags = config.corpus.tags
    if config.tokenizer.is_single:
        shared = Tokenizer.load(folder / "tokenizer.json", config.tokenizer, tags)
        return shared, shared
    return load_pair(folder, config.tokenizer, tags)


def load_pair(folder: Path, config: TokenizerConfig, tags: Sequence[str]) -> TokenizerPair:
    """Read the tokenizers in two files, which are equal for one tokenizer; raises RunError if they cannot be read."""
    source = Tokenizer.load(folder / "tokenizer.source.json", config, tags)
    return source, source if config.is_single else Tokenizer.load(folder / "tokenizer.target.json", config)
