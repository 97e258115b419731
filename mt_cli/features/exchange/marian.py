"""Reads published Marian models into our model and tokenizers; `importing.py` makes the run.

They are in folders of Hugging Face `transformers` or of Marian itself, or are our exports. Knows both sets of names,
and how Marian's architecture, or that of Pegasus, is expressed by the options of `model`. The differences:

- Our special tokens are the first four entries. The token that begins a translation has an entry of its own, with the
  embedding of the padding that Marian begins with, and can never be generated.
- Marian has sines in the first half of the dimensions and cosines in the second. Here they alternate, and the
  dimensions of all weights are put in that order, which changes no result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, Field
from torch import Tensor

from mt_cli.checkpoint.untrusted_weights import check_finite, check_names, check_size, read_pickle, read_safetensors
from mt_cli.config.sections import ModelConfig
from mt_cli.errors import InputError, reason
from mt_cli.features.exchange.exported_tokenizer import read_exported_tokenizer
from mt_cli.features.exchange.marian_files import is_native, read_native
from mt_cli.features.exchange.marian_names import interleaved, reordered, their_name
from mt_cli.features.exchange.sentencepiece import Pieces, missing_pieces, read_pieces, tokenizer_of
from mt_cli.machine.storage import read_model
from mt_cli.model.positions import sinusoids
from mt_cli.model.transformer import Transformer, outline
from mt_cli.tokenizer.special import EOS_ID, PAD_ID, SOS_ID, SPECIAL_TOKENS, UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair

WEIGHTS, PICKLED_WEIGHTS = "model.safetensors", "pytorch_model.bin"
PICKLE_ADVICE = (
    f"the weights are in Python's pickle format ({PICKLED_WEIGHTS}), which can run code when it is read; if you trust "
    "the source, add --allow-pickle, which reads tensors alone (weights_only of torch.load)"
)
ARCHITECTURES = ("marian", "pegasus")
"""The values of `model_type` that are read."""
_NEVER = -1e4
"""The logit of an entry that is never generated; not so low that label smoothing, which sees it, loses digits."""
_ACTIVATIONS: Mapping[str, Literal["silu", "relu", "gelu"]] = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
}
_SHARED, _BIAS, _PROJECTION = "model.shared.weight", "final_logits_bias", "lm_head.weight"
_SOURCE_TABLE, _TARGET_TABLE = "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
_EMBEDDINGS = _SHARED, _SOURCE_TABLE, _TARGET_TABLE
_POSITIONS = {"model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"}
_HALF_PRECISION = 1e-2
"""Largest difference between sines and their values in a file, which may be in half precision."""
_TAG = re.compile(r">>\S+<<")


class _Description(BaseModel):
    """The keys of `config.json` that are needed."""

    model_type: Literal["marian", "pegasus"]
    """One of `ARCHITECTURES`."""
    d_model: int = Field(ge=2, le=2**16)
    vocab_size: int = Field(ge=4, le=2**24)
    decoder_vocab_size: int | None = None
    encoder_layers: int = Field(ge=1, le=1000)
    decoder_layers: int = Field(ge=1, le=1000)
    encoder_attention_heads: int = Field(ge=1)
    decoder_attention_heads: int = Field(ge=1)
    encoder_ffn_dim: int = Field(ge=1)
    decoder_ffn_dim: int = Field(ge=1)
    activation_function: str
    dropout: float = Field(default=0.1, ge=0, le=0.99)
    attention_dropout: float = Field(default=0.0, ge=0, le=0.99)
    activation_dropout: float = Field(default=0.0, ge=0, le=0.99)
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = Field(ge=0)
    eos_token_id: int = Field(ge=0)
    decoder_start_token_id: int = Field(ge=0)
    num_beams: int = Field(default=6, ge=1, le=1000)
    normalize_before: bool = False


@dataclass(frozen=True)
class Imported:
    """A model of another program, as a run has it."""

    model: Transformer
    tokenizers: TokenizerPair
    options: Mapping[str, Any]
    """The section `tokenizer` of the config."""
    tags: tuple[str, ...]
    num_beams: int
    unk: int
    """The id of the unknown token of the target, as the other program numbers it."""


@dataclass(frozen=True)
class _Side:
    """The vocabulary of the source or of the target."""

    entries: list[str]
    """From id 4 on."""
    rows: list[int]
    """For each id, that of the same entry in Marian."""
    num_known: int
    """Entries that Marian has; the others are pieces that are unknown to it."""


def read_marian(folder: Path, allow_pickle: bool = False) -> Imported:
    """The model in a folder of MarianMT, of Marian itself (`decoder.yml`), or of `mt export --format huggingface`.

    Raises InputError if a file is missing or damaged, or the model has something that a run cannot have. Weights in
    `pytorch_model.bin` are read only with `allow_pickle`, by the loader of PyTorch that runs no code.
    """
    if is_native(folder):
        tree, vocabularies, weights = read_native(folder)
        found = _native_description(tree, folder)
    else:
        path = folder / "config.json"
        found = _supported(read_model(path, _Description), path)
        if (folder / "tokenizer.json").exists() and not (folder / "source.spm").exists():
            return _read_exported(folder, found, _weights(folder, allow_pickle))
        vocabularies = [_vocabulary(folder / "vocab.json")]
        target_path = folder / "target_vocab.json"  # Tables may be separate and have one vocabulary.
        if not found.share_encoder_decoder_embeddings and target_path.exists():
            vocabularies.append(_vocabulary(target_path))
        weights = _weights(folder, allow_pickle)
    if found.decoder_start_token_id != found.pad_token_id:
        raise InputError(f"{folder}: not supported: translations do not begin with the padding")
    for vocabulary in vocabularies:
        if reserved := sorted(vocabulary.keys() & set(SPECIAL_TOKENS)):
            raise InputError(f"{folder}: not supported: an entry is called {reserved[0]}, as a special token of mt")
    _check_ids(folder, found, vocabularies[-1])
    is_shared = len(vocabularies) == 1
    pieces = [read_pieces(folder / f"{side}.spm") for side in ("source", "target")]
    target = _side(vocabularies[-1], pieces if is_shared else pieces[1:], found.pad_token_id, found.eos_token_id)
    source = target if is_shared else _source_side(vocabularies[0], pieces[0])
    tags = tuple(name for name in source.entries if _TAG.fullmatch(name))
    tokenizers = tokenizer_of(pieces[0], source.entries, tags), tokenizer_of(pieces[1], target.entries)
    model = _filled(folder, found, weights, source, target, [len(vocabularies[0]), len(vocabularies[-1])])
    options = {"algorithm": "sentencepiece", "shared": is_shared}
    return Imported(model, tokenizers, options, tags, found.num_beams, target.rows[UNK_ID])


def _read_exported(folder: Path, found: _Description, weights: Mapping[str, Tensor]) -> Imported:
    """The model in a folder of ours for `transformers`, in which ids are those of the run."""
    ids = found.pad_token_id, found.decoder_start_token_id, found.eos_token_id
    if ids != (PAD_ID, SOS_ID, EOS_ID):
        raise InputError(f"{folder}: not supported: special tokens have other ids than those of mt")
    tokenizer, tags, options = read_exported_tokenizer(folder / "tokenizer.json")
    size = tokenizer.vocab_size
    side = _Side(tokenizer.tokens(range(len(SPECIAL_TOKENS), size)), list(range(size)), size)
    model = _filled(folder, found, weights, side, side, [size, size])
    return Imported(model, (tokenizer, tokenizer), options, tags, found.num_beams, UNK_ID)


def _filled(
    folder: Path,
    found: _Description,
    weights: Mapping[str, Tensor],
    source: _Side,
    target: _Side,
    table_sizes: Sequence[int],
) -> Transformer:
    """Our model with the weights; raises InputError, before memory is allocated, if these do not fit it."""
    try:
        config = _model_config(found)
        check_finite(weights)
        _check_tables(weights, table_sizes, found)
        planned = outline(config, len(source.rows), len(target.rows))
        check_size(planned, weights)
        ours = _our_weights(weights, planned, source, target)
        check_names(planned, ours)
        model = Transformer(config, len(source.rows), len(target.rows))
        model.load_state_dict(ours)
    except (KeyError, IndexError, RuntimeError, ValueError) as error:
        raise InputError(f"{folder}: its weights do not fit its description: {reason(error)}") from None
    return model


def _model_config(found: _Description) -> ModelConfig:
    """The options of the model; raises ValueError if one has no possible value."""
    ties: Literal["all", "target"] = "all" if found.share_encoder_decoder_embeddings else "target"
    return ModelConfig(
        d_model=found.d_model,
        d_ff=found.encoder_ffn_dim,
        num_heads=found.encoder_attention_heads,
        num_encoder_layers=found.encoder_layers,
        num_decoder_layers=found.decoder_layers,
        norm_order="pre" if found.model_type == "pegasus" else "post",
        activation=_ACTIVATIONS[found.activation_function],
        tie_embeddings=ties if found.tie_word_embeddings else "none",
        output_bias=True,
        dropout=found.dropout,
        attention_dropout=found.attention_dropout,
        feed_forward_dropout=found.activation_dropout,
    )


def _check_tables(weights: Mapping[str, Tensor], sizes: Sequence[int], found: _Description) -> None:
    """Raise ValueError unless tables and bias fit the vocabularies, of the source and of the target, and are as tied.

    Tables that are one table may be stored under each of their names.
    """
    source, target = sizes
    pairs = {"vocab_size": (found.vocab_size, source), "decoder_vocab_size": (found.decoder_vocab_size, target)}
    for key, (declared, size) in pairs.items():
        if declared not in (None, size):
            raise ValueError(f"{key} is {declared:,}, and the vocabulary has {size:,} entries")
    tables = {_SHARED: source, _SOURCE_TABLE: source, _TARGET_TABLE: target, _PROJECTION: target}
    for name, size in tables.items():
        shape = list(weights[name].shape) if name in weights else [size, found.d_model]
        if shape != [size, found.d_model]:
            raise ValueError(f"{name} is {shape}, and the vocabulary has {size:,} entries")
    if weights[_BIAS].numel() != target:
        raise ValueError(f"{_BIAS} has another size than the vocabulary of {target:,} entries")
    _check_ties(weights, found)
    for name in _POSITIONS & weights.keys():
        if not _has_sines(weights[name], found.d_model):
            raise ValueError(f"{name} has other values than sines and cosines")


def _check_ties(weights: Mapping[str, Tensor], found: _Description) -> None:
    """Raise ValueError unless tables that are said to be one are equal, and those that are said not to be are there.

    Without `tie_word_embeddings`, `transformers` ties no tables at all.
    """
    target = _TARGET_TABLE if _TARGET_TABLE in weights else _SHARED
    for key, value, names in (
        ("share_encoder_decoder_embeddings", found.share_encoder_decoder_embeddings, _EMBEDDINGS),
        ("tie_word_embeddings", found.tie_word_embeddings, (target, _PROJECTION)),
    ):
        present = [name for name in names if name in weights]
        different = [name for name in present if not torch.equal(weights[name], weights[present[0]])]
        missing = [name for name in names[1:] if name not in weights]
        if value and found.tie_word_embeddings and different:
            raise ValueError(f"{key} is true, and {different[0]} differs from {present[0]}")
        if not value and missing:
            raise ValueError(f"{key} is false, and there is no {missing[0]}")


def _has_sines(table: Tensor, d_model: int) -> bool:
    if table.ndim != 2 or table.shape[1] != d_model:
        return False
    expected = sinusoids(len(table), d_model)[:, interleaved(d_model).argsort()]
    return torch.allclose(table, expected, rtol=0, atol=_HALF_PRECISION)


def _check_ids(folder: Path, found: _Description, target: Mapping[str, int]) -> None:
    """Raise InputError unless the end and the padding of the description have their entries in the vocabulary."""
    for key, index, name in (
        ("eos_token_id", found.eos_token_id, "</s>"),
        ("pad_token_id", found.pad_token_id, "<pad>"),
    ):
        if target.get(name) != index:
            has = f"{name} the id {target[name]:,}" if name in target else f"no {name}"
            raise InputError(f"{folder}: {key} is {index:,}, and the vocabulary has {has}")


def _native_description(tree: Mapping[str, Any], folder: Path) -> _Description:
    """The description in the options of Marian's own files, with the names of `config.json`."""
    try:
        return _supported(_Description.model_validate(tree), folder)
    except ValueError as error:
        raise InputError(f"{folder}: not supported: {reason(error)}") from None


def _supported(found: _Description, origin: Path) -> _Description:
    """The same description; raises InputError if a run cannot have what it describes."""
    for is_problem, problem in (
        (found.activation_function not in _ACTIVATIONS, f"activation_function {found.activation_function!r:.60}"),
        (not found.scale_embedding, "embeddings are not scaled (scale_embedding)"),
        (found.normalize_before, "norms come first (normalize_before)"),
        (found.encoder_ffn_dim != found.decoder_ffn_dim, "encoder_ffn_dim and decoder_ffn_dim differ"),
        (found.encoder_attention_heads != found.decoder_attention_heads, "encoder and decoder differ in heads"),
        (found.eos_token_id == found.pad_token_id, "the end and the padding are one token"),
        (found.d_model % 2 == 1 or found.d_model % found.encoder_attention_heads > 0, f"d_model {found.d_model}"),
    ):
        if is_problem:
            raise InputError(f"{origin}: not supported: {problem}")
    return found


def _vocabulary(path: Path) -> dict[str, int]:
    """Entries with their ids in Marian, in the order of these."""
    found = read_model(path, dict[str, int])
    if sorted(found.values()) != list(range(len(found))):
        raise InputError(f"{path}: the ids of its entries are not 0 to {len(found) - 1:,}")
    if "<unk>" not in found:
        raise InputError(f"{path}: has no entry <unk>")
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _source_side(vocabulary: Mapping[str, int], pieces: Pieces) -> _Side:
    """The source of a model with two vocabularies: the description has the ids of the target alone.

    The padding has a place in the table, or none: attention never sees it.
    """
    if "</s>" not in vocabulary:
        raise InputError("the vocabulary of the source has no entry </s>")
    return _side(vocabulary, [pieces], vocabulary.get("<pad>"), vocabulary["</s>"])


def _side(vocabulary: Mapping[str, int], pieces: Sequence[Pieces], pad: int | None, eos: int) -> _Side:
    unk = vocabulary["<unk>"]
    kept = {name: index for name, index in vocabulary.items() if index not in (pad, unk, eos)}
    missing = missing_pieces(pieces, list(kept))
    begin = unk if pad is None else pad
    rows = [begin, unk, begin, eos, *kept.values(), *[unk] * len(missing)]
    return _Side([*kept, *missing], rows, len(SPECIAL_TOKENS) + len(kept))


def _weights(folder: Path, allow_pickle: bool) -> dict[str, Tensor]:
    """The weights of the folder by Marian's names."""
    path, pickled = folder / WEIGHTS, folder / PICKLED_WEIGHTS
    if path.exists() or not pickled.exists():
        return read_safetensors(path)
    if not allow_pickle:
        raise InputError(f"{folder}: {PICKLE_ADVICE}")
    return read_pickle(pickled)


def _our_weights(theirs: Mapping[str, Tensor], model: Transformer, source: _Side, target: _Side) -> dict[str, Tensor]:
    """The state of our model."""
    order = interleaved(model.config.d_model)
    found = {}
    layers = {their_name(name): name for name in model.state_dict() if name.startswith(("encoder", "decoder"))}
    if more := sorted(theirs.keys() - layers.keys() - {*_EMBEDDINGS, _BIAS, _PROJECTION, *_POSITIONS}):
        raise ValueError(f"{more[0]!r:.120} belongs to no layer")
    for their, name in layers.items():
        found[name] = reordered(theirs[their], name, order)
    shared = theirs.get(_SHARED)
    tables = {
        "source_embedding.table.weight": (theirs.get(_SOURCE_TABLE, shared), source),
        "target_embedding.table.weight": (theirs.get(_TARGET_TABLE, shared), target),
    }
    tables["projection.weight"] = theirs.get(_PROJECTION, tables["target_embedding.table.weight"][0]), target
    for name, (table, side) in tables.items():
        if table is None:
            raise KeyError(name)
        found[name] = table[side.rows][:, order]
    bias = theirs[_BIAS].flatten()[target.rows]
    if target.rows[PAD_ID] == target.rows[SOS_ID]:  # Our exports have both, with their own biases.
        bias[[PAD_ID, SOS_ID]] = _NEVER
    bias[target.num_known :] = _NEVER
    found["projection.bias"] = bias
    return found
