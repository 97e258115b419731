"""Steps of each kind of tokenizer that encode spaces, split text into words, and join tokens again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from mt_cli.config.sections import WITHOUT_SUBWORDS, TokenizerConfig
from mt_cli.corpus.languages import SPACELESS
from mt_cli.corpus.term_marks import TERM_END, TERM_SEPARATOR
from mt_cli.tokenizer.special_tokens import BYTES, JOINER, NEVER_SEEN, SPACE, SPECIAL_TOKENS, UNK
from mt_cli.tokenizer.spelling import normalization

_ESCAPES = {"\x10": "\x10\x12", SPACE: "\x10\x11"}
"""Escapes, for sub-words, of characters that look like a marker; they are undone from last to first."""
_FIRST, _REPEATED, _LEADING, _TRAILING = r"\A(?=[\s\S])", " {2,}", r"\A +", rf"{SPACE}+\z"
_LETTER = r"\p{L}\p{M}\p{N}_"
DEFAULT_SUBWORDS = 8_000


def reserved_entries(config: TokenizerConfig, reserved: str) -> list[str]:
    """Entries of reserved characters: with `word_level`, one for each place of joiners."""
    return [*chain(*map(joined, reserved))] if config.algorithm == "word_level" else [*reserved]


def has_spacing(state: Mapping[str, Any]) -> bool:
    """True if a tokenizer file has the steps of `tokenizer.spacing: sentencepiece`."""
    return {"Regex": _TRAILING} in [step.get("pattern") for step in state["normalizer"]["normalizers"]]


def joined(mark: str) -> list[str]:
    """A punctuation mark without joiners, and with joiners before, after, or on both sides."""
    return [before + mark + after for before in ("", JOINER) for after in ("", JOINER)]


def untrained_backend(
    config: TokenizerConfig, tags: Sequence[str] = (), reserved: str = ""
) -> tuple[tokenizers.Tokenizer, Any]:
    """Tokenizer of the library with the steps of a config and an empty vocabulary, and a trainer for it.

    The vocabulary will have entries for the characters `reserved`.
    """
    entries = reserved_entries(config, reserved)
    special_tokens = [*SPECIAL_TOKENS, *tags, *entries, *(() if config.algorithm in WITHOUT_SUBWORDS else BYTES)]
    common: dict[str, Any] = {"special_tokens": special_tokens, "show_progress": False}
    subwords = common | {"vocab_size": config.vocab_size or DEFAULT_SUBWORDS, "initial_alphabet": [SPACE]}
    words = common | {"vocab_size": config.vocab_size or 2**31 - 1, "min_frequency": config.min_frequency}
    model: Any
    trainer: Any
    if config.algorithm in WITHOUT_SUBWORDS:
        model, trainer = models.WordLevel(unk_token=UNK), trainers.WordLevelTrainer(**words)
        spacing = _word_spacing() if config.algorithm == "word_level" else _character_spacing()
    else:
        spacing = _subword_spacing(config, reserved)
        if config.algorithm == "bpe":
            model = models.BPE(unk_token=UNK, byte_fallback=True)
            trainer = trainers.BpeTrainer(min_frequency=config.min_frequency, **subwords)
        else:
            model, trainer = models.Unigram(), trainers.UnigramTrainer(unk_token=UNK, **subwords)
    replacements, pre_tokenizer, joining = spacing
    steps = normalization(config) + [normalizers.Replace(old, new) for old, new in replacements]
    backend = tokenizers.Tokenizer(model)
    backend.normalizer, backend.pre_tokenizer = normalizers.Sequence(steps), pre_tokenizer
    backend.decoder = decoders.Sequence(joining)
    return backend, trainer


_STRIP = decoders.Strip(" ", 1, 0)
_Spacing = tuple[list[tuple[Any, str]], Any, list[Any]]
"""Replacements before the text is split, the pre-tokenizer that splits it, and the steps that join tokens again."""


def _word_spacing() -> _Spacing:
    """Words and single punctuation marks; a mark has a joiner on each side that has no space."""
    mark_begins = Regex(rf"(?<=[^ ])(?=[^{_LETTER} ])")
    word_begins = Regex(rf"(?<=[^{_LETTER} {JOINER}])(?=[{_LETTER}])")
    empty_word = Regex("(?<= )(?= )|^(?= )|(?<= )$")
    replacements = [(JOINER, NEVER_SEEN), (SPACE, NEVER_SEEN), (empty_word, SPACE)]
    replacements += [(mark_begins, f" {JOINER}"), (word_begins, f"{JOINER} ")]
    joins = [decoders.Replace(text, "") for text in (f"{JOINER} ", JOINER, SPACE)]
    joining = [decoders.WordPiece(prefix=JOINER, cleanup=False), decoders.Fuse(), *joins]
    return replacements, pre_tokenizers.Split(" ", "removed"), joining


def _character_spacing() -> _Spacing:
    """Single characters; a space is `▁`."""
    pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    return [(SPACE, NEVER_SEEN), (" ", SPACE)], pre_tokenizer, [decoders.Fuse(), decoders.Replace(SPACE, " ")]


def _subword_spacing(config: TokenizerConfig, reserved: str) -> _Spacing:
    """Words and single punctuation marks, each with the space before it as `▁`; the first word has a `▁` too.

    In scripts without spaces between words, `▁` is a separate unit and stands only for spaces of the text. Reserved
    characters are separate units, too. With `spacing: sentencepiece`, spaces are written as SentencePiece does. It
    splits text into the same pieces without knowing these units, because no piece crosses their ends.
    """
    before_words = f"[{reserved}]|{SPACE}(?=[{reserved}])|" if reserved else ""
    words = rf"{before_words}{SPACE}?[{_LETTER}&&[^{SPACELESS}]]+|{SPACE}?[^{_LETTER}{SPACELESS}{SPACE}]|{SPACE}"
    splitter = pre_tokenizers.Split(Regex(rf"{words}|[{SPACELESS}&&[{_LETTER}]]+|[{SPACELESS}]"), "isolated")
    joining = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if config.spacing == "sentencepiece":
        spaces = [(_LEADING, ""), (_REPEATED, " "), (" ", SPACE), (_FIRST, SPACE), (_TRAILING, "")]
        replacements = [(Regex(old) if old != " " else old, new) for old, new in spaces]
        return replacements, splitter, [*joining, decoders.Strip(" ", 2**16, 0)]
    other = rf"[^{SPACELESS}]"
    if TERM_SEPARATOR in reserved:  # A translation in another script does not change how the first word is read.
        other = rf"(?:[^{SPACELESS}{TERM_SEPARATOR}]|{TERM_SEPARATOR}[^{TERM_END}]*{TERM_END})"
    first_word = Regex(rf"\A(?={SPACE}|{other}+\z)")
    joining += [decoders.Replace(escaped, text) for text, escaped in reversed(_ESCAPES.items())]
    return [*_ESCAPES.items(), (" ", SPACE), (first_word, SPACE)], splitter, [*joining, _STRIP]
