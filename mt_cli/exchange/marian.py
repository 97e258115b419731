"""Published Marian models as our model and tokenizers; `importing.py` makes the run.

Folders of Hugging Face `transformers` and of our own exports are read. The architecture of Marian, or of Pegasus, is
expressed by the options of `model`. The differences:

- Our special tokens are the first four entries. The token that begins a translation has an entry of its own, with the
  embedding of the padding that Marian begins with, and can never be generated.
- Marian has sines in the first half of the dimensions and cosines in the second. Here they alternate, and the
  dimensions of all weights are put in that order, which changes no result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from mt_cli.errors import InputError
from mt_cli.exchange import names
from mt_cli.exchange.sentencepiece import Pieces, missing_pieces, read_pieces, tokenizer_of
from mt_cli.exchange.transformers_folder import load_model, read_weights
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.files import read_model
from mt_cli.tokenizer.special_tokens import PAD_ID, SOS_ID, SPECIAL_TOKENS, UNK_ID
from mt_cli.tokenizer.tokenizer import MAX_FILE_BYTES, Tokenizer, TokenizerPair

_NEVER = -1e4
"""Logit of an entry that is never generated; not lower, because label smoothing would lose digits."""
_TAG = re.compile(r">>\S+<<")


@dataclass(frozen=True)
class Imported:
    """Model of another program, converted to the parts of a run."""

    model: Transformer
    tokenizers: TokenizerPair
    options: Mapping[str, Any]
    tags: tuple[str, ...]
    num_beams: int
    unk: int
    """Id of the unknown token of the target in the other program."""
    languages: tuple[str, str]
    default_tag: str | None = None
    """Tag of this direction, if the vocabulary has entries for languages."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Side:
    entries: list[str]
    """Entries from id 4 on."""
    rows: list[int]
    """For each id, the id of the same entry in Marian."""
    num_known: int
    """Number of entries of `entries` that Marian has; it does not know the pieces after them."""
    size: int
    """Number of entries in Marian, special tokens included."""


def read_marian(folder: Path, allow_pickle: bool, languages: tuple[str, str]) -> Imported:
    """The model in a folder of MarianMT, or of `mt export --format huggingface`, for these languages.

    Raises InputError if a file is missing or damaged, or the model has something that a run cannot have. Weights in
    `pytorch_model.bin` are read only with `allow_pickle`, by the loader of PyTorch that runs no code.
    """
    config, weights = read_model(folder / "config.json", names.MarianConfig), read_weights(folder, allow_pickle)
    if (folder / "tokenizer.json").exists() and not (folder / "source.spm").exists():
        return _read_exported(folder, config, weights, languages)
    # The embedding tables may be separate although they share a vocabulary.
    has_two = not config.share_encoder_decoder_embeddings and (folder / "target_vocab.json").exists()
    vocabularies = [_read_vocabulary(folder / name) for name in ("vocab.json", "target_vocab.json")[: 1 + has_two]]
    _check_ids(folder, config, vocabularies[-1])
    pieces = [read_pieces(folder / f"{side}.spm") for side in ("source", "target")]
    is_shared = len(vocabularies) == 1
    pad, eos = config.pad_token_id, config.eos_token_id
    target = _side(vocabularies[-1], pieces if is_shared else pieces[1:], pad, eos)
    source = target
    if not is_shared:  # The config has only the ids of the target.
        # The vocabulary of the source may lack the padding, because attention never sees it.
        ids = vocabularies[0].get("<pad>"), vocabularies[0]["</s>"]
        source = _side(vocabularies[0], pieces[:1], *ids)
    tags = tuple(name for name in source.entries if _TAG.fullmatch(name))
    tokenizers = tokenizer_of(pieces[0], source.entries, tags), tokenizer_of(pieces[1], target.entries)
    model = _model(folder, config, weights, source, target)
    options = {"algorithm": "sentencepiece", "shared": is_shared}
    return Imported(model, tokenizers, options, tags, config.num_beams, target.rows[UNK_ID], languages)


def _read_exported(
    folder: Path, config: names.MarianConfig, weights: Mapping[str, Tensor], languages: tuple[str, str]
) -> Imported:
    """The model in a folder that `mt export` wrote, in which ids are those of the run."""
    tokenizer, tags, options = _read_exported_tokenizer(folder)
    size = tokenizer.vocab_size
    side = _Side(tokenizer.tokens(range(len(SPECIAL_TOKENS), size)), list(range(size)), size, size)
    model = _model(folder, config, weights, side, side)
    return Imported(model, (tokenizer, tokenizer), options, tags, config.num_beams, UNK_ID, languages)


def _read_exported_tokenizer(folder: Path) -> tuple[Tokenizer, tuple[str, ...], dict[str, Any]]:
    """Tokenizer of both sides, its tags and the options of `tokenizer`; raises InputError if it is not one of ours.

    The export has added what `transformers` needs: special tokens and tags as added tokens, and the end of a sentence.
    """
    path, settings = folder / "tokenizer.json", names.read_optional(folder / names.SETTINGS, names.TokenizerSettings)
    if (options := settings.mt_tokenizer) is None:
        raise InputError(f"{path}: not a tokenizer of `mt`, which names its options in {names.SETTINGS}")
    state = read_model(path, dict[str, Any], MAX_FILE_BYTES)
    tags = tuple(token["content"] for token in state["added_tokens"] if not token["special"])
    original = json.dumps(state | {"added_tokens": [], "post_processor": None})
    return Tokenizer.parse(original.encode("utf-8"), path, options, tags), tags, options.model_dump(mode="json")


def _read_vocabulary(path: Path) -> dict[str, int]:
    vocabulary = read_model(path, dict[str, int])
    if "<unk>" not in vocabulary or sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise InputError(f"{path}: the ids of its entries are not 0 to {len(vocabulary) - 1:,}, or there is no <unk>")
    return dict(sorted(vocabulary.items(), key=lambda item: item[1]))


def _check_ids(folder: Path, config: names.MarianConfig, target: Mapping[str, int]) -> None:
    pad, eos = target.get("<pad>"), target.get("</s>")
    expected = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": eos}
    for key, index in expected.items():
        if getattr(config, key) != index:
            raise InputError(
                f"{folder}: not supported: {key} is {getattr(config, key):,}, and by its vocabulary {index}"
            )


def _side(vocabulary: Mapping[str, int], pieces: Sequence[Pieces], pad: int | None, eos: int) -> _Side:
    unk = vocabulary["<unk>"]
    kept = {name: index for name, index in vocabulary.items() if index not in (pad, unk, eos)}
    missing = missing_pieces(pieces, kept)
    begin = unk if pad is None else pad
    rows = [begin, unk, begin, eos, *kept.values(), *[unk] * len(missing)]
    return _Side([*kept, *missing], rows, len(SPECIAL_TOKENS) + len(kept), len(vocabulary))


def _model(
    folder: Path, config: names.MarianConfig, weights: Mapping[str, Tensor], source: _Side, target: _Side
) -> Transformer:

    def rename(planned: Transformer) -> dict[str, Tensor]:
        return _our_layers(weights, planned) | _our_tables(weights, config, source, target)

    sizes = len(source.rows), len(target.rows)
    return load_model(folder, config.our_options(), sizes, rename)


def _our_layers(weights: Mapping[str, Tensor], planned: Transformer) -> dict[str, Tensor]:
    order = names.interleaved(planned.config.d_model)
    ours = [name for name in planned.state_dict() if name.startswith(("encoder", "decoder"))]
    return {name: names.reordered(weights[names.transformers_name(name)], name, order) for name in ours}


def _our_tables(
    weights: Mapping[str, Tensor], config: names.MarianConfig, source: _Side, target: _Side
) -> dict[str, Tensor]:
    """Embeddings, projection and its bias; raises ValueError if their sizes are not those of the vocabularies."""
    order, ours = names.interleaved(config.d_model), dict[str, Tensor]()
    for module, name, side in (
        ("source_embedding.table", names.SOURCE_TABLE, source),
        ("target_embedding.table", names.TARGET_TABLE, target),
        ("projection", names.PROJECTION, target),
    ):
        if len(weights[name]) != side.size:
            raise ValueError(f"{name} has {len(weights[name]):,} rows, and the vocabulary {side.size:,} entries")
        ours[f"{module}.weight"] = weights[name][side.rows][:, order]
    bias = weights[names.BIAS].flatten()
    bias = bias[target.rows]
    if target.rows[PAD_ID] == target.rows[SOS_ID]:  # Our exports have both, with their own biases.
        bias[[PAD_ID, SOS_ID]] = _NEVER
    bias[target.num_known :] = _NEVER
    return ours | {"projection.bias": bias}
