"""How text is split at spaces and joined again: the steps of each kind of tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from mt_cli.config.sections import WITHOUT_SUBWORDS, TokenizerConfig
from mt_cli.corpus import spelling
from mt_cli.corpus.identity import AS_WRITTEN, Spelling
from mt_cli.corpus.languages import SPACELESS
from mt_cli.tokenizer.special import BYTES, JOINER, NEVER_SEEN, SPACE, SPECIAL_TOKENS, UNK

_ESCAPES = {"\x10": "\x10\x12", SPACE: "\x10\x11"}
"""How sub-words escape characters that look like a marker; undone from last to first."""
LETTER = r"\p{L}\p{M}\p{N}_"
DEFAULT_SUBWORDS, _MIN_SUBWORDS = 8_000, 16


def has_bytes(config: TokenizerConfig) -> bool:
    """Whether characters without an entry are encoded as bytes."""
    return config.byte_fallback and config.algorithm in ("bpe", "unigram")


def untrained_backend(config: TokenizerConfig, tags: Sequence[str] = ()) -> tuple[tokenizers.Tokenizer, Any]:
    """A tokenizer of the library with the steps of a config and an empty vocabulary, and its trainer."""
    special_tokens = [*SPECIAL_TOKENS, *tags, *(BYTES if has_bytes(config) else ())]
    common: dict[str, Any] = {"special_tokens": special_tokens, "show_progress": False}
    subwords = common | {"vocab_size": config.vocab_size or DEFAULT_SUBWORDS, "initial_alphabet": [SPACE]}
    words = common | {"vocab_size": config.vocab_size or 2**31 - 1, "min_frequency": config.min_frequency}
    model: Any
    trainer: Any
    if config.algorithm in WITHOUT_SUBWORDS:
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
        _normalization(config) + [normalizers.Replace(*each) for each in replacements]
    )
    backend.pre_tokenizer, backend.decoder = pre_tokenizer, decoders.Sequence(steps)
    return backend, trainer


def _normalization(config: TokenizerConfig) -> list[Any]:
    """The steps that change a text before it is split."""
    return [normalizers.NFKC()] * config.nfkc + _spelling_steps(config) + [normalizers.Lowercase()] * config.lowercase


def spelling_of(config: TokenizerConfig) -> Spelling:
    """How the tokenizers of a config spell a text. SentencePiece models are taken to use NFKC, as most of them do."""
    is_nfkc = config.nfkc or config.algorithm == "sentencepiece"
    config = config.model_copy(update={"nfkc": is_nfkc})
    steps = normalizers.Sequence(_normalization(config))
    if not (is_nfkc or config.lowercase or config.changes_of_spelling):
        return AS_WRITTEN
    return Spelling([is_nfkc, config.lowercase, *config.changes_of_spelling], steps.normalize_str)


def respelled(text: str, config: TokenizerConfig) -> str:
    """The text with the spelling of `tokenizer.normalize` and `tokenizer.letters`."""
    return str(normalizers.Sequence(_spelling_steps(config)).normalize_str(text))


def _spelling_steps(config: TokenizerConfig) -> list[Any]:
    """The steps of `tokenizer.normalize` and `tokenizer.letters`, in the order in which they work.

    Letters are composed before they are replaced.
    """
    steps: dict[str, list[Any]] = {
        "nfc": [normalizers.NFC()],
        "joined_apostrophes": [normalizers.Replace(Regex(space), "") for space in spelling.SPACES_BESIDE],
        "apostrophes": [normalizers.Replace(Regex(spelling.BETWEEN_LETTERS), "'")],
    }
    replacements = [normalizers.Replace(*pair) for pair in config.letters_in_both_cases]
    return [step for name, own in steps.items() if name in config.changes_of_spelling for step in own] + replacements


_Spacing = tuple[list[tuple[Any, str]], Any, list[Any]]
"""Replacements before the text is split, the pre-tokenizer that splits it, and the steps that join tokens again."""


def _word_spacing() -> _Spacing:
    """Words and single punctuation marks, the marks with a joiner where no space is next to them."""
    mark_begins = Regex(rf"(?<=[^ ])(?=[^{LETTER} ])")
    word_begins = Regex(rf"(?<=[^{LETTER} {JOINER}])(?=[{LETTER}])")
    empty_word = Regex("(?<= )(?= )|^(?= )|(?<= )$")
    replacements = [(JOINER, NEVER_SEEN), (SPACE, NEVER_SEEN), (empty_word, SPACE)]
    replacements += [(mark_begins, f" {JOINER}"), (word_begins, f"{JOINER} ")]
    joins = [decoders.Replace(text, "") for text in (f"{JOINER} ", JOINER, SPACE)]
    steps = [decoders.WordPiece(prefix=JOINER, cleanup=False), decoders.Fuse(), *joins]
    return replacements, pre_tokenizers.Split(" ", "removed"), steps


def _character_spacing() -> _Spacing:
    """Single characters; a space is `▁`."""
    pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return [(SPACE, NEVER_SEEN), (" ", SPACE)], pre_tokenizer, [decoders.Fuse(), decoders.Replace(SPACE, " ")]


def _subword_spacing(has_bytes: bool) -> _Spacing:
    """Words and single punctuation marks, each with the space before it as `▁`; the first word has a `▁` too.

    In scripts without spaces between words, `▁` is a unit of its own, and occurs only for a space of the text.
    """
    words = rf"{SPACE}?[{LETTER}&&[^{SPACELESS}]]+|{SPACE}?[^{LETTER}{SPACELESS}{SPACE}]|{SPACE}"
    unit = rf"{words}|[{SPACELESS}&&[{LETTER}]]+|[{SPACELESS}]"
    first_word = Regex(rf"\A(?={SPACE}|[^{SPACELESS}]+\z)")
    escapes = _ESCAPES if has_bytes else {SPACE: NEVER_SEEN}
    unescapes = [decoders.Replace(escaped, text) for text, escaped in reversed(escapes.items())]
    from_bytes = [decoders.ByteFallback(), decoders.Fuse(), *unescapes] if has_bytes else [decoders.Fuse()]
    steps = [decoders.Replace(SPACE, " "), *from_bytes, decoders.Strip(" ", 1, 0)]
    replacements = [*escapes.items(), (" ", SPACE), (first_word, SPACE)]
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
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always" if adds_prefix else "never")
    steps = [
        decoders.Replace(NEVER_SEEN, ""),
        decoders.Replace(SPACE, " "),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    backend.decoder = decoders.Sequence(steps)
    return backend
