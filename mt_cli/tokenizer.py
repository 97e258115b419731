"""Text to ids and back. Knows the special tokens and the `tokenizers` library; does not know pairs or batches.

Every algorithm is lossless: `decode(encode(text))` is `text` (after the optional normalisation) whenever no token is
unknown. Two markers carry the spaces. Words and marks keep their own form, and `￭` on a mark says "no space here":
`l'amico` is `l ￭'￭ amico`, so that `amico` is one entry whatever precedes it. Sub-words and characters write a space
as `▁`, as SentencePiece does (Kudo and Richardson 2018). The markers themselves, where they occur in text, are always
unknown, and so are the special tokens: text can spell `[EOS]` but cannot produce it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from mt_cli.config import TokenizerConfig
from mt_cli.errors import RunError

PAD, UNK, SOS, EOS = "[PAD]", "[UNK]", "[SOS]", "[EOS]"
SPECIAL_TOKENS = (PAD, UNK, SOS, EOS)
PAD_ID, UNK_ID, SOS_ID, EOS_ID = range(4)

_JOINER, _SPACE, _NEVER_SEEN = "￭", "▁", "\ue000"
_LETTER = r"\p{L}\p{M}\p{N}_"
_DEFAULT_SUBWORDS = 8_000


class Tokenizer:
    """A vocabulary and the way text is cut into its entries."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
        """A tokenizer whose vocabulary comes from `texts`.

        The same texts give the same tokenizer, except with `unigram`: the library's trainer adds up probabilities in
        no fixed order, so that two trainings may differ in a few pieces.
        """
        backend, trainer = _untrained(config)
        markers = str.maketrans("", "", _JOINER + _SPACE + _NEVER_SEEN)
        backend.train_from_iterator((text.translate(markers) for text in texts), trainer)
        # As plain entries of the vocabulary the special tokens cannot be matched in text.
        state = json.loads(backend.to_str())
        state["added_tokens"] = []
        return cls(tokenizers.Tokenizer.from_str(json.dumps(state)))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """The tokenizer saved at `path`; raises RunError if it cannot be read."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise RunError(f"{path}: {(error.strerror or str(error)).lower()}") from None
        try:
            tokenizer = cls(tokenizers.Tokenizer.from_str(text))
        except Exception as error:  # The library raises bare `Exception`s.
            raise RunError(f"{path}: not a tokenizer: {str(error)[:200]}") from None
        if tokenizer.tokens(range(4)) != list(SPECIAL_TOKENS):
            raise RunError(f"{path}: its first entries are not {' '.join(SPECIAL_TOKENS)}")
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
        return [encoding.ids for encoding in self._backend.encode_batch_fast(list(texts))]

    def pieces(self, text: str) -> list[str]:
        """The tokens of a text as they are seen in it, unknown ones included."""
        return self._backend.encode(text).tokens

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The vocabulary's entries with these ids."""
        return [self._backend.id_to_token(index) or UNK for index in ids]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each sequence of ids; padding, start and end leave no trace."""
        silent = (PAD_ID, SOS_ID, EOS_ID)
        return self._backend.decode_batch(
            [[index for index in sequence if index not in silent] for sequence in ids], skip_special_tokens=False
        )


def _untrained(config: TokenizerConfig) -> tuple[tokenizers.Tokenizer, Any]:
    """An empty tokenizer of the config's algorithm, and its trainer."""
    common: dict[str, Any] = {"special_tokens": list(SPECIAL_TOKENS), "show_progress": False}
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
