"""Vocabularies of M2M100 and NLLB: entries, languages and pieces, and the part of them that some texts need."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import inf
from pathlib import Path

from mt_cli.errors import InputError
from mt_cli.exchange.names import SETTINGS, TokenizerSettings, read_optional
from mt_cli.exchange.sentencepiece import Pieces, read_pieces, tokenizer_of
from mt_cli.exchange.transformers_folder import import_transformers
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer

SPM = ("sentencepiece.bpe.model", "sentencepiece.model")
"""Names of the SentencePiece model: as published, and in our exports."""
BOS, PAD, EOS, UNK, MASK = SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Special entries of M2M100 and NLLB, in the order of their ids; M2M100 has no mask."""
_CLASSES = (
    *("M2M100Tokenizer", "NllbTokenizer", "NllbTokenizerFast"),
    *("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend"),
)
"""Tokenizers of `transformers` that write the language before the text, as `mt` does."""
_LANGUAGE = re.compile(r"([a-z]{2,3}(?:[_-]\w{2,8})*)|__(\S+)__")
_LINES_AT_ONCE = 10_000
_ASCII = frozenset(map(chr, range(33, 127)))


@dataclass(frozen=True)
class Vocabulary:
    """Vocabulary of a model, with the ids of the model."""

    pieces: Pieces
    entries: Mapping[str, int]
    """Ids of the entries that are neither special nor languages."""
    languages: Mapping[str, int]

    def tokenizer(self, tags: Sequence[str] = (), languages: Sequence[str] | None = None) -> Tokenizer:
        """Tokenizer with the entries from id 4 on, then the languages, by default all."""
        names = [f"<{language}>" for language in (self.languages if languages is None else languages)]
        return tokenizer_of(self.pieces, [*self.entries, *names], tags)

    def only(self, kept: Collection[str]) -> Vocabulary:
        """Vocabulary without other pieces, and without entries that are no pieces."""
        pieces = self.pieces.only(kept)
        names = {*pieces.names}
        entries = {entry: index for entry, index in self.entries.items() if entry in names}
        return replace(self, pieces=pieces, entries=entries)


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """Vocabulary of a folder with `size` embeddings, with the ids of `transformers`.

    Raises InputError if files are missing, damaged or not supported, or `transformers` is not installed.
    """
    path = folder / SETTINGS
    config = read_optional(path, TokenizerSettings)
    if config.tokenizer_class not in (None, *_CLASSES):
        raise InputError(
            f"{path}: not supported: the tokenizer {config.tokenizer_class!r:.80}; use one of M2M100 or NLLB"
        )
    if config.legacy_behaviour and not (folder / "vocab.json").exists():
        raise InputError(f"{path}: legacy_behaviour: true is not supported: the language follows the source there")
    model_file = next((folder / name for name in SPM if (folder / name).exists()), None)
    if model_file is None:
        raise InputError(f"{folder}: has no {SPM[0]}, the SentencePiece model")
    pieces, transformers = read_pieces(model_file), import_transformers()
    options = {"trust_remote_code": False, "local_files_only": True}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **options)
    except Exception as error:  # The library fails in many ways.
        raise InputError(
            f"{folder}: its tokenizer is damaged, or not of M2M100 or NLLB ({type(error).__name__})"
        ) from None
    ids: dict[str, int] = tokenizer.get_vocab()
    languages = {**getattr(tokenizer, "lang_code_to_id", {})} or _languages_of(tokenizer.get_added_vocab())
    if not languages:
        raise InputError(f"{folder}: has no entries for languages, such as __en__ or eng_Latn")
    of_languages = {*languages.values()}
    entries = {name: index for name, index in ids.items() if name not in SPECIAL and index not in of_languages}
    # Entries that no text has: they are never written, but have a probability.
    named = {*ids.values(), *languages.values()}
    unnamed = {f"[unused {index}]": index for index in range(size) if index not in named}
    unnamed |= {"[mask]": ids[MASK]} if MASK in ids else {}
    return Vocabulary(pieces, dict(sorted((entries | unnamed).items(), key=lambda item: item[1])), languages)


def _languages_of(entries: Mapping[str, int]) -> dict[str, int]:
    matches = ((_LANGUAGE.fullmatch(name), index) for name, index in entries.items())
    return {match[1] or match[2]: index for match, index in matches if match}


def pieces_for(vocabulary: Vocabulary, lines: Iterable[str]) -> set[str]:
    """Pieces without which some line would be split otherwise, and those of single characters of ASCII.

    With bpe, they include the pieces that merges go through. No other merge of a line exists, so its merges stay the
    same. With unigram, the best segmentation stays possible.
    """
    tokenizer = vocabulary.tokenizer()
    used, iterator = set[int](), iter(lines)
    while some := [" ".join(line.split()) for line in islice(iterator, _LINES_AT_ONCE)]:
        used.update(*tokenizer.encode(some))
    names = {*tokenizer.tokens(used - {UNK_ID})} & vocabulary.pieces.scores.keys()
    kept = names | ((_ASCII | {"▁"}) & vocabulary.pieces.scores.keys())
    if not vocabulary.pieces.is_bpe:
        return kept
    return kept.union(*(_derivation(name, vocabulary.pieces.scores) for name in names))


def _derivation(piece: str, scores: Mapping[str, float]) -> set[str]:
    """All pieces that byte-pair encoding makes on the way to a piece."""
    parts, made = list(piece), set(piece)
    while len(parts) > 1:
        rank, place = min((-scores.get("".join(pair), -inf), place) for place, pair in enumerate(pairwise(parts)))
        if rank == inf:
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        made.add(parts[place])
    return made
