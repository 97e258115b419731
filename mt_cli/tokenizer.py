"""Text to ids and back. Knows the special tokens and the `tokenizers` library; does not know pairs or batches.

Every algorithm is lossless: `decode(encode(text))` is `text` (after the optional normalisation) whenever no token is
unknown. Two markers carry the spaces. Words and marks keep their own form, and `￭` on a mark says "no space here":
`l'amico` is `l ￭'￭ amico`, so that `amico` is one entry whatever precedes it. Sub-words and characters write a space
as `▁`, as SentencePiece does (Kudo and Richardson 2018). The markers themselves, where they occur in text, are always
unknown, and so are the special tokens: text can spell `[EOS]` but cannot produce it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from mt_cli.config.sections import Config, TokenizerConfig
from mt_cli.errors import RunError

PAD, UNK, SOS, EOS = "[PAD]", "[UNK]", "[SOS]", "[EOS]"
SPECIAL_TOKENS = (PAD, UNK, SOS, EOS)
PAD_ID, UNK_ID, SOS_ID, EOS_ID = range(4)

_JOINER, _SPACE, _NEVER_SEEN = "￭", "▁", "\ue000"
_LETTER = r"\p{L}\p{M}\p{N}_"
_DEFAULT_SUBWORDS = 8_000
_MAX_FILE_BYTES = 2**28


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
        no fixed order, so that two trainings may differ in a few pieces.
        """
        backend, trainer = _untrained(config, tags)
        markers = str.maketrans("", "", _JOINER + _SPACE + _NEVER_SEEN)
        backend.train_from_iterator((untagged(text, tags).translate(markers) for text in texts), trainer)
        # As plain entries of the vocabulary the special tokens cannot be matched in text.
        state = json.loads(backend.to_str())
        state["added_tokens"] = []
        return cls(tokenizers.Tokenizer.from_str(json.dumps(state)), tags)

    @classmethod
    def load(cls, path: Path, tags: Sequence[str] = ()) -> Tokenizer:
        """The tokenizer saved at `path`; raises RunError if it cannot be read, or has no entries for `tags`."""
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
            if len(content) > _MAX_FILE_BYTES:
                raise RunError(f"{path}: larger than {_MAX_FILE_BYTES:,} bytes; that is no tokenizer")
        except OSError as error:
            raise RunError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        try:
            tokenizer = cls(tokenizers.Tokenizer.from_str(content.decode("utf-8")), tags)
        except Exception as error:  # The library raises bare `Exception`s.
            raise RunError(f"{path}: not a tokenizer: {str(error)[:200]}") from None
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
        """The tokens of a text as they are seen in it, unknown ones included."""
        rest, tag = self._tag_of(text)
        return [*self.tokens(tag), *self._backend.encode(rest).tokens]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of the stretch of a text that each of its tokens stands for."""
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


def _untrained(config: TokenizerConfig, tags: Sequence[str]) -> tuple[tokenizers.Tokenizer, Any]:
    """An empty tokenizer of the config's algorithm, and its trainer."""
    common: dict[str, Any] = {"special_tokens": [*SPECIAL_TOKENS, *tags], "show_progress": False}
    num_subwords = config.vocab_size or _DEFAULT_SUBWORDS
    num_words = config.vocab_size or 2**31 - 1
    backend: tokenizers.Tokenizer
    trainer: Any
    match config.algorithm:
        case "word_level" | "char":
            backend = tokenizers.Tokenizer(models.WordLevel(unk_token=UNK))
            trainer = trainers.WordLevelTrainer(vocab_size=num_words, min_frequency=config.min_frequency, **common)
        case "bpe":
            backend = tokenizers.Tokenizer(models.BPE(unk_token=UNK))
            trainer = trainers.BpeTrainer(vocab_size=num_subwords, min_frequency=config.min_frequency, **common)
        case "unigram":
            backend = tokenizers.Tokenizer(models.Unigram())
            trainer = trainers.UnigramTrainer(vocab_size=num_subwords, unk_token=UNK, **common)
    spacing = _word_spacing() if config.algorithm == "word_level" else _subword_spacing(config.algorithm == "char")
    normalizer, backend.pre_tokenizer, backend.decoder = spacing
    before = [normalizers.NFKC()] * config.nfkc + [normalizers.Lowercase()] * config.lowercase
    backend.normalizer = normalizers.Sequence([*before, *normalizer])
    return backend, trainer


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


def _subword_spacing(single_characters: bool) -> tuple[list[Any], Any, Any]:
    """Words and single marks with the space before them as `▁`, or each character alone."""
    unit = r"[\s\S]" if single_characters else rf"{_SPACE}?[{_LETTER}]+|{_SPACE}?[^{_LETTER}{_SPACE}]|{_SPACE}"
    normalizer: list[Any] = [normalizers.Replace(_SPACE, _NEVER_SEEN), normalizers.Replace(" ", _SPACE)]
    if single_characters:
        decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(_SPACE, " ")])
    else:
        normalizer.append(normalizers.Prepend(_SPACE))
        decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(_SPACE, " "), decoders.Strip(" ", 1, 0)])
    return normalizer, pre_tokenizers.Split(Regex(unit), "isolated"), decoder
