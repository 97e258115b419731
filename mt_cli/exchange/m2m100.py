"""M2M100 and NLLB as our model and tokenizers; `importing.py` makes the run.

Their architecture is expressed by the options of `model`, and no weight is changed. The differences:

- Our special tokens are the first four entries. [SOS] has the entry `<s>`, which is never used there, and the decoder
  begins with the embedding of [EOS] (`model.positions: fairseq`).
- A source begins with its language, and a translation with its own. One tag names both, such as `<eng_Latn>fao_Latn>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, permutations
from pathlib import Path
from typing import Literal

from pydantic import Field
from torch import Tensor

from mt_cli.config.sections import ModelConfig
from mt_cli.config.tags import tag_of_direction
from mt_cli.corpus.languages import LANGUAGE_CODE, primary
from mt_cli.corpus.lines import read_lines
from mt_cli.errors import InputError
from mt_cli.exchange import names
from mt_cli.exchange.m2m100_vocabulary import UNK, Vocabulary, pieces_for, read_vocabulary
from mt_cli.exchange.marian import Imported
from mt_cli.exchange.sentencepiece import missing_pieces
from mt_cli.exchange.transformers_folder import load_model, read_weights
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.files import read_model

ARCHITECTURE = "m2m_100"
_BOS, _PAD, _EOS, _UNK = range(4)


class M2M100Config(names.TransformersConfig):
    """Keys of M2M100 and NLLB."""

    model_type: Literal["m2m_100"]
    d_model: int = Field(ge=4, le=2**16, multiple_of=2)
    vocab_size: int = Field(ge=5, le=2**24)
    activation_function: Literal["relu", "gelu", "silu", "swish"] = "relu"
    attention_dropout: float = Field(default=0.1, ge=0, le=0.99)
    scale_embedding: Literal[True] = True
    tie_word_embeddings: Literal[True] = True
    bos_token_id: Literal[0] = 0
    pad_token_id: Literal[1] = 1
    eos_token_id: Literal[2] = 2
    decoder_start_token_id: Literal[2] = 2
    num_beams: int = Field(default=5, ge=1, le=1000)

    def our_options(self) -> ModelConfig:
        kind = {"norm_order": "pre", "positions": "fairseq", "tie_embeddings": "all"}
        return ModelConfig.model_validate(self.common_options() | kind)


@dataclass(frozen=True)
class Selection:
    """Part of the languages and of the vocabulary of a model that is imported."""

    languages: Sequence[str] = ()
    """Languages that are kept; none means all."""
    vocabulary_from: Sequence[Path] = ()
    """Files of text whose pieces are kept; none means all pieces."""
    new_languages: Mapping[str, str] = field(default_factory=dict)
    """For each new language, the language with whose embedding it begins."""


def read_m2m100(folder: Path, allow_pickle: bool, selection: Selection, direction: Sequence[str | None]) -> Imported:
    """Model in a folder of `M2M100ForConditionalGeneration`, with tags for its directions.

    `direction` has the source and the target language; the first two of `selection` stand for missing ones. Raises
    InputError if a file is missing or damaged, a language is missing, or the model has something that a run cannot
    have.
    """
    config = read_model(folder / "config.json", M2M100Config)
    weights = read_weights(folder, allow_pickle)
    vocabulary = read_vocabulary(folder, config.vocab_size)
    kept = [*dict.fromkeys([*(selection.languages or vocabulary.languages), *selection.new_languages])]
    _check_languages(folder, vocabulary, selection)
    source, target = _direction(folder, direction, selection, kept)
    if selection.vocabulary_from:
        lines = chain.from_iterable(map(read_lines, selection.vocabulary_from))
        vocabulary = vocabulary.only(pieces_for(vocabulary, lines))
    elif selection.languages:
        vocabulary = vocabulary.only(vocabulary.pieces.scores.keys())
    missing = missing_pieces([vocabulary.pieces], vocabulary.entries)
    vocabulary = replace(vocabulary, entries={**vocabulary.entries, **dict.fromkeys(missing, _UNK)})
    languages = [vocabulary.languages[selection.new_languages.get(language, language)] for language in kept]
    rows = [_PAD, _UNK, _BOS, _EOS, *vocabulary.entries.values(), *languages]
    directed = kept if selection.languages or selection.new_languages else [source, target]
    pairs = [(source, target), *permutations(dict.fromkeys([source, target, *directed]), 2)]
    tags = tuple(dict.fromkeys(tag_of_direction(*pair) for pair in pairs))
    pair = vocabulary.tokenizer(tags, kept), vocabulary.tokenizer((), kept)
    model = _model(folder, config, weights, rows)
    options = {"algorithm": "sentencepiece", "shared": True}
    notes = _notes(config, len(rows), missing)
    return Imported(model, pair, options, tags, config.num_beams, _UNK, (source, target), tags[0], notes)


def _check_languages(folder: Path, vocabulary: Vocabulary, selection: Selection) -> None:
    for language in (*selection.languages, *selection.new_languages.values()):
        if language not in vocabulary.languages and language not in selection.new_languages:
            raise InputError(_no_language(folder, language, vocabulary.languages))
    for language, near in selection.new_languages.items():
        if language in vocabulary.languages:
            raise InputError(f"--new-language {language}={near}: {folder} has {language} already")
        if not LANGUAGE_CODE.fullmatch(language):
            raise InputError(f"--new-language {language}={near}: use a code such as quy_Latn for the new language")


def _no_language(folder: Path, language: str, known: Iterable[str]) -> str:
    known = sorted(known)
    near = [code for code in known if primary(code) == primary(language)] or known[:5]
    return (
        f"{folder}: has no language {language!r:.40}; did you mean {' or '.join(near[:5])}? It has {len(known)} "
        "languages. Add a new one with --new-language NEW=NEAR, the code of a near language that it has"
    )


def _direction(
    folder: Path, chosen: Sequence[str | None], selection: Selection, kept: Sequence[str]
) -> tuple[str, str]:
    first = [*selection.languages, *selection.new_languages] if selection.languages else []
    source, target = (code or (first[side] if side < len(first) else None) for side, code in enumerate(chosen))
    if source is None or target is None:
        raise InputError(
            f"{folder}: translates between {len(kept)} languages; give --source-language and --target-language, or "
            "--languages with the source and the target first"
        )
    for language in (source, target):
        if language not in kept:
            raise InputError(_no_language(folder, language, kept))
    if source == target:
        raise InputError(f"{folder}: source and target language are both {source}")
    return source, target


def _notes(config: M2M100Config, num_rows: int, missing: Sequence[str]) -> tuple[str, ...]:
    removed = (config.vocab_size - num_rows) * config.d_model
    notes = [
        f"{num_rows:,} of {config.vocab_size:,} entries are kept: {abs(removed):,} parameters "
        f"{'fewer' if removed >= 0 else 'more'}"
    ]
    if missing:
        notes.append(f"{len(missing):,} pieces have no entry, and the embedding of {UNK}")
    return tuple(notes)


def _model(folder: Path, config: M2M100Config, weights: Mapping[str, Tensor], rows: Sequence[int]) -> Transformer:

    def rename(planned: Transformer) -> dict[str, Tensor]:
        ours = [name for name in planned.state_dict() if name.startswith(("encoder", "decoder"))]
        tables = ("source_embedding.table.weight", "target_embedding.table.weight", "projection.weight")
        kept = dict.fromkeys(tables, weights[names.SHARED_TABLE][rows])
        return kept | {name: weights[names.transformers_name(name)] for name in ours}

    return load_model(folder, config.our_options(), (len(rows), len(rows)), rename)
