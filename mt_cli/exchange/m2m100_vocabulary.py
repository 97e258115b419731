"""Vocabularies of M2M100 and NLLB: entries, languages and pieces, and the part of them that some texts need."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import inf
from pathlib import Path
from typing import Any

from pydantic import BaseModel, field_validator

from mt_cli.errors import InputError
from mt_cli.exchange.fast_tokenizer import read_fast_tokenizer
from mt_cli.exchange.sentencepiece import Pieces, read_pieces, tokenizer_of
from mt_cli.runtime.files import read_model
from mt_cli.tokenizer.special_tokens import SPECIAL_TOKENS, UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer

SPM, VOCABULARY, FAST_TOKENIZER = "sentencepiece.bpe.model", "vocab.json", "tokenizer.json"
BOS, PAD, EOS, UNK, MASK = SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
"""Special entries of M2M100 and NLLB, in the order of their ids; M2M100 has no mask."""
_CODES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps "
    "pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""Languages of M2M100Tokenizer in the order of their ids, which follow the entries of vocab.json; no file has them."""
_CLASSES = (
    *("M2M100Tokenizer", "NllbTokenizer", "NllbTokenizerFast"),
    *("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend"),
)
"""Tokenizers of `transformers` that write the language before the text, as `mt` does."""
_LANGUAGE = re.compile(r"([a-z]{2,3}(?:[_-]\w{2,8})*)|__(\S+)__")
_LINES_AT_ONCE = 10_000
_ASCII = frozenset(map(chr, range(33, 127)))


class _TokenizerConfig(BaseModel):
    """Keys of `tokenizer_config.json` that are needed."""

    language_codes: str = "m2m100"
    legacy_behaviour: bool = False
    tokenizer_class: str | None = None
    added_tokens_decoder: dict[int, dict[str, Any]] = {}
    extra_special_tokens: list[Any] | dict[str, Any] = []

    @field_validator("extra_special_tokens", mode="after")
    @classmethod
    def _are_listed(cls, names: list[Any] | dict[str, Any]) -> list[Any]:
        """Leave out names of attributes, which version 4 writes; they are no entries of their own."""
        return names if isinstance(names, list) else []


class _SpecialTokens(BaseModel):
    """Key of `special_tokens_map.json` that is needed."""

    additional_special_tokens: list[Any] = []


@dataclass(frozen=True)
class Vocabulary:
    """Vocabulary of a model, with the ids of the model."""

    pieces: Pieces
    entries: Mapping[str, int]
    """Ids of the entries that are neither special nor languages."""
    languages: Mapping[str, int]
    special: Mapping[str, int]

    def tokenizer(self, tags: Sequence[str] = (), languages: Sequence[str] | None = None) -> Tokenizer:
        """Tokenizer with the entries from id 4 on, then the languages, by default all."""
        names = [f"<{language}>" for language in (self.languages if languages is None else languages)]
        return tokenizer_of(self.pieces, [*self.entries, *names], tags)

    def with_unknown(self, pieces: Sequence[str]) -> Vocabulary:
        """Vocabulary in which these pieces have the id of the unknown token."""
        return replace(self, entries={**self.entries, **dict.fromkeys(pieces, self.special[UNK])})

    def only(self, kept: Collection[str]) -> Vocabulary:
        """Vocabulary without other pieces, and without entries that are no pieces."""
        pieces = self.pieces.only(kept)
        names = {*pieces.names}
        entries = {entry: index for entry, index in self.entries.items() if entry in names}
        return replace(self, pieces=pieces, entries=entries)


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """Vocabulary of a folder with `size` embeddings; raises InputError if files are missing, damaged or not supported.

    M2M100 has `vocab.json`, and NLLB `tokenizer.json`, or the languages in the files of `_added_entries`.
    """
    path = folder / "tokenizer_config.json"
    config = read_model(path, _TokenizerConfig) if path.exists() else _TokenizerConfig()
    if config.tokenizer_class not in (None, *_CLASSES):
        raise InputError(
            f"{path}: not supported: the tokenizer {config.tokenizer_class!r:.80}; use one of M2M100 or NLLB"
        )
    pieces = read_pieces(folder / SPM) if (folder / SPM).exists() else None
    has_codes = (folder / VOCABULARY).exists()
    if config.legacy_behaviour and not has_codes:
        raise InputError(f"{path}: legacy_behaviour: true is not supported: the language follows the source there")
    source, added, languages = path, dict[str, int](), dict[str, int]()
    if has_codes:
        source, ids = folder / VOCABULARY, read_model(folder / VOCABULARY, dict[str, int])
        codes = _CODES.get(config.language_codes, "").split()
        languages = {code: len(ids) + number for number, code in enumerate(codes)}
    elif (folder / FAST_TOKENIZER).exists():
        source = folder / FAST_TOKENIZER
        of_file, ids, added = read_fast_tokenizer(source, SPECIAL)
        pieces = pieces or of_file
    elif pieces is not None:
        ids = {name: index for index, name in enumerate([*SPECIAL[:4], *pieces.scores])}
    else:
        raise InputError(f"{folder}: has neither {FAST_TOKENIZER} nor {SPM}, so it has no vocabulary")
    if pieces is None:
        raise InputError(f"{folder}: has no {SPM}")
    named = ids | added | {f"__{code}__": index for code, index in languages.items()}
    added |= _added_entries(folder, config, named)
    if not has_codes:
        added |= _entries_without_ids(folder, config, ids | added)
        ids |= added
    languages |= _languages_of(added)
    _check(source, ids, languages, size)
    return _vocabulary(source, pieces, ids, languages, size)


def _languages_of(entries: Mapping[str, int]) -> dict[str, int]:
    """Ids of the languages among entries, such as `__en__` and `eng_Latn`."""
    matches = ((_LANGUAGE.fullmatch(name), index) for name, index in entries.items())
    return {match[1] or match[2]: index for match, index in matches if match}


def _added_entries(folder: Path, config: _TokenizerConfig, ids: Mapping[str, int]) -> dict[str, int]:
    """Entries that were added to those of the vocabulary, with their ids.

    They are in `added_tokens_decoder` of `tokenizer_config.json` (since version 4.34 of `transformers`) or in
    `added_tokens.json` (version 4). Raises InputError if two files, or a file and the vocabulary, give an entry
    different ids.
    """
    added = {str(token.get("content")): index for index, token in config.added_tokens_decoder.items()}
    path = folder / "added_tokens.json"
    numbered = [*added.items(), *(read_model(path, dict[str, int]) if path.exists() else {}).items()]
    for name, index in numbered:
        if (known := ids.get(name, added.setdefault(name, index))) != index:
            raise InputError(f"{folder}: its files give the entry {name!r:.60} the ids {known:,} and {index:,}")
    return added


def _entries_without_ids(folder: Path, config: _TokenizerConfig, ids: Mapping[str, int]) -> dict[str, int]:
    """Languages and the mask of NLLB, if they are listed without ids: they follow the entries with ids.

    Since version 5, these are the mask and `extra_special_tokens`, and before 4.34, `additional_special_tokens` of
    `special_tokens_map.json` and the mask. Empty if all languages that are listed have ids.
    """
    path = folder / "special_tokens_map.json"
    older = read_model(path, _SpecialTokens).additional_special_tokens if path.exists() else []
    named = [MASK, *config.extra_special_tokens] if config.extra_special_tokens else [*older, MASK]
    names = [name for name in named if isinstance(name, str) and name not in ids]
    if not _languages_of(dict.fromkeys(names, 0)):
        return {}
    return {name: index for index, name in enumerate(dict.fromkeys(names), start=1 + max(ids.values(), default=0))}


def _vocabulary(
    path: Path, pieces: Pieces, ids: Mapping[str, int], languages: Mapping[str, int], size: int
) -> Vocabulary:
    """Vocabulary with these ids; raises InputError if `mt` has an entry of the same name, or most entries lack one."""
    special = {name: ids[name] for name in SPECIAL if name in ids}
    if reserved := {*SPECIAL_TOKENS, *(f"<{language}>" for language in languages)}.intersection(ids):
        raise InputError(f"{path}: not supported: an entry is called {min(reserved)}, as one of mt")
    of_languages = {*languages.values()}
    entries = {name: index for name, index in ids.items() if name not in special and index not in of_languages}
    # Entries that no text has: they are never written, but have a probability.
    named = {*ids.values(), *languages.values()}
    if size > 2 * len(named):
        raise InputError(f"{path}: has {len(named):,} entries for {size:,} embeddings")
    unnamed = {f"[unused {index}]": index for index in range(size) if index not in named}
    unnamed |= {"[mask]": special[MASK]} if MASK in special else {}
    entries = dict(sorted((entries | unnamed).items(), key=lambda item: item[1]))
    return Vocabulary(pieces, entries, languages, special)


def _check(path: Path, ids: Mapping[str, int], languages: Mapping[str, int], size: int) -> None:
    """Raise InputError unless special entries and languages exist, and ids are different and have embeddings."""
    for name in SPECIAL[:4]:
        if name not in ids:
            raise InputError(f"{path}: has no entry {name}")
    if not languages:
        raise InputError(f"{path}: has no entries for languages, such as __en__ or eng_Latn")
    for numbers in ([*ids.values()], [*languages.values()]):
        if len({*numbers}) == len(numbers) and 0 <= min(numbers) <= max(numbers) < size:
            continue
        raise InputError(f"{path}: the ids of its entries are not different numbers from 0 to {size - 1:,}")


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
