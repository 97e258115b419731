"""Published Marian models, in folders of Hugging Face `transformers` or of Marian itself, and our exports, as runs.

Knows both sets of names, and how Marian's architecture, or that of Pegasus, is expressed by the options of `model`. The
differences:

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
from pydantic import BaseModel, Field, TypeAdapter
from torch import Tensor

from mt_cli.checkpoint.weights import check_finite, check_names, check_outline, read_pickle, read_safetensors
from mt_cli.config.sections import ModelConfig
from mt_cli.errors import InputError, reason
from mt_cli.extras.exchange.exported import read_exported_tokenizer, tokenizer_options
from mt_cli.extras.exchange.marian_files import is_native, read_native
from mt_cli.extras.exchange.sentencepiece import Pieces, missing_pieces, read_pieces, tokenizer_of
from mt_cli.machine.storage import read_regular, reading
from mt_cli.model.transformer import Transformer, outline
from mt_cli.tokenizer.special import EOS_ID, PAD_ID, SOS_ID, SPECIAL_TOKENS, UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair

_MAX_JSON_BYTES = 2**24
_NEVER = -1e4
"""The logit of an entry that is never generated; not so low that label smoothing, which sees it, loses digits."""
_ACTIVATIONS: Mapping[str, Literal["silu", "relu", "gelu"]] = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
}
_TAG = re.compile(r">>\S+<<")


class _Description(BaseModel):
    """The keys of `config.json` that are needed."""

    model_type: str
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
        found = _description(folder / "decoder.yml", tree)
    else:
        found = _description(folder / "config.json")
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
    tokenizer, tags = read_exported_tokenizer(folder / "tokenizer.json")
    size = tokenizer.vocab_size
    side = _Side(tokenizer.tokens(range(len(SPECIAL_TOKENS), size)), list(range(size)), size)
    model = _filled(folder, found, weights, side, side, [size, size])
    return Imported(model, (tokenizer, tokenizer), tokenizer_options(tokenizer), tags, found.num_beams, UNK_ID)


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
        _check_tables(weights, table_sizes, found.d_model)
        planned = outline(config, len(source.rows), len(target.rows))
        check_outline(planned, weights)
        check_finite(weights)
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


def _check_tables(weights: Mapping[str, Tensor], sizes: Sequence[int], d_model: int) -> None:
    """Raise ValueError unless tables and bias have the sizes of the vocabularies, of the source and of the target."""
    source, target = sizes
    tables = {"model.shared": source, "model.encoder.embed_tokens": source}
    tables |= {"model.decoder.embed_tokens": target, "lm_head": target}
    for table, size in tables.items():
        shape = list(weights[f"{table}.weight"].shape) if f"{table}.weight" in weights else [size, d_model]
        if shape != [size, d_model]:
            raise ValueError(f"{table}.weight is {shape}, and the vocabulary has {size:,} entries")
    if weights["final_logits_bias"].numel() != target:
        raise ValueError(f"final_logits_bias has another size than the vocabulary of {target:,} entries")


def _description(path: Path, tree: Mapping[str, Any] | None = None) -> _Description:
    """The description in a file, or in a tree of it that was read already."""
    try:
        if tree is not None:
            found = _Description.model_validate(tree)
        else:
            with reading(path):
                content = read_regular(path, _MAX_JSON_BYTES)
            found = _Description.model_validate_json(content)
    except ValueError as error:
        raise InputError(f"{path}: not the config.json of a Marian model: {reason(error)}") from None
    for is_problem, problem in (
        (found.model_type not in ("marian", "pegasus"), f"the model is of type {found.model_type[:60]}, not marian"),
        (found.activation_function not in _ACTIVATIONS, f"activation_function {found.activation_function!r:.60}"),
        (not found.scale_embedding, "embeddings are not scaled (scale_embedding)"),
        (found.normalize_before, "norms come first (normalize_before)"),
        (found.encoder_ffn_dim != found.decoder_ffn_dim, "encoder_ffn_dim and decoder_ffn_dim differ"),
        (found.encoder_attention_heads != found.decoder_attention_heads, "encoder and decoder differ in heads"),
        (found.eos_token_id == found.pad_token_id, "the end and the padding are one token"),
        (found.d_model % 2 == 1 or found.d_model % found.encoder_attention_heads > 0, f"d_model {found.d_model}"),
    ):
        if is_problem:
            raise InputError(f"{path}: not supported: {problem}")
    return found


def _vocabulary(path: Path) -> dict[str, int]:
    """Entries with their ids in Marian, in the order of these."""
    with reading(path):
        content = read_regular(path, _MAX_JSON_BYTES)
    try:
        found = TypeAdapter(dict[str, int]).validate_json(content)
    except ValueError as error:
        raise InputError(f"{path}: not a vocabulary: {reason(error)}") from None
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
    path, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    if path.exists() or not pickled.exists():
        return read_safetensors(path)
    if not allow_pickle:
        raise InputError(
            f"{pickled}: the weights are in Python's pickle format, which can run code when it is read; if you "
            "trust the source, add --allow-pickle, which reads tensors alone (weights_only of torch.load)"
        )
    return read_pickle(pickled)


_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_BLOCKS = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
_FEED_FORWARD = {
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}


def their_name(name: str) -> str:
    """Marian's name of a weight of a layer, or of the norm after all layers, which Pegasus has."""
    if name.startswith(("encoder_norm.", "decoder_norm.")):
        return "model." + name.replace("_norm.", ".layer_norm.")
    stack, number, rest = name.split(".", 2)
    module, kind = rest.rsplit(".", 1)
    if module in _FEED_FORWARD:
        theirs = _FEED_FORWARD[module]
    elif module.endswith("_residual.norm"):
        theirs = f"{_BLOCKS[module.removesuffix('_residual.norm')]}_layer_norm"
    else:
        block, _, part = module.partition(".")
        theirs = f"{_BLOCKS[block]}.{_ATTENTION[part]}"
    return f"model.{stack}.layers.{number}.{theirs}.{kind}"


def interleaved(d_model: int) -> Tensor:
    """For each of our dimensions, that of Marian, which has all sines before the cosines."""
    return torch.arange(d_model).view(2, -1).T.flatten()


def _our_weights(theirs: Mapping[str, Tensor], model: Transformer, source: _Side, target: _Side) -> dict[str, Tensor]:
    """The state of our model."""
    order = interleaved(model.config.d_model)
    found = {}
    layers = {their_name(name): name for name in model.state_dict() if name.startswith(("encoder", "decoder"))}
    is_layer = re.compile(r"\.layers\.|coder\.layer_norm\.")
    if more := [name for name in theirs if is_layer.search(name) and name not in layers]:
        raise KeyError(f"{more[0]} belongs to no layer")
    for their, name in layers.items():
        found[name] = reordered(theirs[their], name, order)
    shared = theirs.get("model.shared.weight")
    tables = {
        "source_embedding.table.weight": (theirs.get("model.encoder.embed_tokens.weight", shared), source),
        "target_embedding.table.weight": (theirs.get("model.decoder.embed_tokens.weight", shared), target),
    }
    tables["projection.weight"] = theirs.get("lm_head.weight", tables["target_embedding.table.weight"][0]), target
    for name, (table, side) in tables.items():
        if table is None:
            raise KeyError(name)
        found[name] = table[side.rows][:, order]
    bias = theirs["final_logits_bias"].flatten()[target.rows]
    if target.rows[PAD_ID] == target.rows[SOS_ID]:  # Our exports have both, with their own biases.
        bias[[PAD_ID, SOS_ID]] = _NEVER
    bias[target.num_known :] = _NEVER
    found["projection.bias"] = bias
    return found


def reordered(weight: Tensor, name: str, order: Tensor) -> Tensor:
    """A weight of a layer with the dimensions of the hidden states in another order."""
    is_input = re.search(r"\.(query|key|value|inner)\.", name) is not None
    if not is_input:
        return weight[order]
    return weight[:, order] if weight.dim() == 2 else weight
