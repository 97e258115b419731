"""Vocabularies of M2M100 and NLLB: entries, languages and pieces, and the part of them that some texts need."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from math import inf
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mt_cli.errors import InputError, one_line
from mt_cli.features.exchange.sentencepiece import LOWEST_SCORE, Pieces, ranked, read_pieces, tokenizer_of
from mt_cli.machine.storage import read_model, read_regular, reading
from mt_cli.tokenizer.special_tokens import SPECIAL_TOKENS, UNK_ID
from mt_cli.tokenizer.tokenizer import MAX_FILE_BYTES, Tokenizer

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
_MERGED_SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}}
_STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
_LINES_AT_ONCE = 10_000
_ASCII = frozenset(map(chr, range(33, 127)))


class _TokenizerConfig(BaseModel):
    """Keys of `tokenizer_config.json` that are needed."""

    language_codes: str = "m2m100"
    legacy_behaviour: bool = False
    tokenizer_class: str | None = None
    added_tokens_decoder: dict[int, dict[str, Any]] = {}


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
        scores = {piece: score for piece, score in self.pieces.scores.items() if piece in kept}
        pieces = replace(self.pieces, scores=scores)
        names = {*pieces.names}
        entries = {entry: index for entry, index in self.entries.items() if entry in names}
        return replace(self, pieces=pieces, entries=entries)


def read_vocabulary(folder: Path, size: int) -> Vocabulary:
    """Vocabulary of a folder with `size` embeddings; raises InputError if files are missing, damaged or not supported.

    M2M100 has `vocab.json`, and NLLB `tokenizer.json` or the languages in `tokenizer_config.json`.
    """
    path = folder / "tokenizer_config.json"
    config = read_model(path, _TokenizerConfig) if path.exists() else _TokenizerConfig()
    if config.tokenizer_class not in (None, *_CLASSES):
        raise InputError(
            f"{path}: not supported: the tokenizer {config.tokenizer_class!r:.80}; use one of M2M100 or NLLB"
        )
    pieces = replace(read_pieces(folder / SPM), controls=()) if (folder / SPM).exists() else None
    if (folder / VOCABULARY).exists():
        source, ids = folder / VOCABULARY, read_model(folder / VOCABULARY, dict[str, int])
        codes = _CODES.get(config.language_codes, "").split()
        languages = {code: len(ids) + number for number, code in enumerate(codes)}
    else:
        if config.legacy_behaviour:
            raise InputError(f"{path}: legacy_behaviour: true is not supported: the language follows the source there")
        if (folder / FAST_TOKENIZER).exists():
            source = folder / FAST_TOKENIZER
            of_file, ids, added = _read_fast(source)
            pieces = pieces or of_file
        elif pieces is not None:
            source, names = path, [*SPECIAL[:4], *pieces.scores]
            ids = {name: index for index, name in enumerate(names)}
            added = {str(token.get("content")): index for index, token in config.added_tokens_decoder.items()}
        else:
            raise InputError(f"{folder}: has neither {FAST_TOKENIZER} nor {SPM}, so it has no vocabulary")
        ids |= added
        matches = ((_LANGUAGE.fullmatch(name), index) for name, index in added.items())
        languages = {match[1] or match[2]: index for match, index in matches if match}
    if pieces is None:
        raise InputError(f"{folder}: has no {SPM}")
    _check(source, ids, languages, size)
    special = {name: ids[name] for name in SPECIAL if name in ids}
    if reserved := {*SPECIAL_TOKENS, *(f"<{language}>" for language in languages)}.intersection(ids):
        raise InputError(f"{source}: not supported: an entry is called {min(reserved)}, as one of mt")
    of_languages = {*languages.values()}
    entries = {name: index for name, index in ids.items() if name not in special and index not in of_languages}
    # Entries that no text has: they are never written, but have a probability.
    named = {*ids.values(), *languages.values()}
    if size > 2 * len(named):
        raise InputError(f"{source}: has {len(named):,} entries for {size:,} embeddings")
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


def _read_fast(path: Path) -> tuple[Pieces, dict[str, int], dict[str, int]]:
    """Pieces and entries of a `tokenizer.json` that splits text as SentencePiece does, and its added entries."""
    with reading(path):
        content = read_regular(path, MAX_FILE_BYTES)
    try:
        tree = json.loads(content)
        model, is_bpe = tree["model"], tree["model"]["type"] == "BPE"
        if model["type"] not in ("BPE", "Unigram") or model.get("byte_fallback"):
            raise ValueError("it is neither a bpe nor a unigram model without bytes")
        vocab = model["vocab"] if is_bpe else {str(piece): index for index, (piece, _) in enumerate(model["vocab"])}
        ids = {str(name): int(index) for name, index in vocab.items()}
        added = {str(token["content"]): int(token["id"]) for token in tree.get("added_tokens") or []}
        names = [name for name in ids if name not in SPECIAL and name not in added]
        scores = _ranks_of(model["merges"], names) if is_bpe else _scores_of(model["vocab"], {*names})
        if not all(abs(score) < inf for score in scores.values()):
            raise ValueError("a score is not a finite number")
        charsmap, adds_prefix = _steps_of(tree)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: not a tokenizer of M2M100 or NLLB: {one_line(error)}") from None
    return Pieces(is_bpe, scores, charsmap, adds_prefix, True), ids, added


def _steps_of(tree: Mapping[str, Any]) -> tuple[bytes, bool]:
    """Compiled normalisation, and whether a space is put before a text; raises ValueError for other steps."""
    normalizer = tree.get("normalizer") or {"type": "Sequence", "normalizers": []}
    steps = normalizer["normalizers"] if normalizer["type"] == "Sequence" else [normalizer]
    kinds = [step["type"] for step in steps if step != _STRIP and not _MERGED_SPACES.items() <= step.items()]
    if kinds not in ([], ["Precompiled"]) or tree["pre_tokenizer"]["type"] != "Metaspace":
        raise ValueError("its steps are not those of SentencePiece")
    charsmaps = [step.get("precompiled_charsmap") or "" for step in steps if step["type"] == "Precompiled"]
    adds_prefix = tree["pre_tokenizer"].get("prepend_scheme", "always") != "never"
    return b64decode("".join(charsmaps), validate=True), adds_prefix


def _ranks_of(merges: Iterable[Any], names: Sequence[str]) -> dict[str, float]:
    """Scores by which SentencePiece makes the same merges: the piece that is merged first has the highest.

    Entries that no merge makes are no pieces, except for single characters.
    """
    pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in merges]
    made = {left + right for left, right in pairs}
    ranks = ranked(pairs, names)
    return {name: ranks[name] for name in names if name in made or len(name) == 1}


def _scores_of(vocab: Iterable[Any], names: Collection[str]) -> dict[str, float]:
    """Scores of the pieces of a unigram model; entries with the lowest score that `mt` writes are no pieces."""
    return {str(name): float(score) for name, score in vocab if name in names and score > LOWEST_SCORE}


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
    ranks = {(left, right): rank for rank, (left, right) in enumerate(tokenizer.model()["merges"])}
    return kept.union(*(_derivation(name, ranks) for name in names))


def _derivation(piece: str, ranks: Mapping[tuple[str, str], int]) -> set[str]:
    """All pieces that byte-pair encoding makes on the way to a piece."""
    parts, made = list(piece), set(piece)
    while len(parts) > 1:
        rank, place = min((ranks.get(pair, len(ranks)), place) for place, pair in enumerate(pairwise(parts)))
        if rank == len(ranks):
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        made.add(parts[place])
    return made
