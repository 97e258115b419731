"""Published Marian models as our model and tokenizers; `importing.py` makes the run.

Folders of Hugging Face `transformers` are read. The architecture of Marian is expressed by the options of `model`. The
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
from pydantic import BaseModel, Field, model_validator
from torch import Tensor

from mt_cli.checkpoint.untrusted_weights import load_model, read_pickle, read_safetensors
from mt_cli.config.sections import ModelConfig
from mt_cli.errors import InputError
from mt_cli.features.exchange import names
from mt_cli.features.exchange.sentencepiece import Pieces, missing_pieces, read_pieces, tokenizer_of
from mt_cli.machine.storage import read_model
from mt_cli.model.positions import sinusoids
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import PAD_ID, SOS_ID, SPECIAL_TOKENS, UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair

WEIGHTS, PICKLED_WEIGHTS = "model.safetensors", "pytorch_model.bin"
PICKLE_ADVICE = (
    f"the weights are in Python's pickle format ({PICKLED_WEIGHTS}), which can run code when it is read; if you trust "
    "the source, add --allow-pickle, which reads tensors alone (weights_only of torch.load)"
)
_NEVER = -1e4
"""Logit of an entry that is never generated; not lower, because label smoothing would lose digits."""
_HALF_PRECISION = 1e-2
"""Largest difference between sinusoidal positions and the values in a file, which may be in half precision."""
_TAG = re.compile(r">>\S+<<")


class MarianConfig(BaseModel):
    """Description of a model, `config.json`: keys that are needed; a `Literal` has the values that a run can have."""

    model_type: Literal["marian"]
    d_model: int = Field(ge=2, le=2**16, multiple_of=2)
    vocab_size: int = Field(ge=4, le=2**24)
    decoder_vocab_size: int | None = None
    encoder_layers: int = Field(ge=1, le=1000)
    decoder_layers: int = Field(ge=1, le=1000)
    encoder_attention_heads: int = Field(ge=1)
    decoder_attention_heads: int = Field(ge=1)
    encoder_ffn_dim: int = Field(ge=1, le=2**20)
    decoder_ffn_dim: int = Field(ge=1)
    activation_function: Literal["relu", "gelu", "silu", "swish"]
    dropout: float = Field(default=0.1, ge=0, le=0.99)
    attention_dropout: float = Field(default=0.0, ge=0, le=0.99)
    activation_dropout: float = Field(default=0.0, ge=0, le=0.99)
    scale_embedding: Literal[True]
    normalize_before: Literal[False] = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    pad_token_id: int = Field(ge=0)
    eos_token_id: int = Field(ge=0)
    decoder_start_token_id: int = Field(ge=0)
    num_beams: int = Field(default=6, ge=1, le=1000)

    @model_validator(mode="after")
    def _check(self) -> MarianConfig:
        for keys in names.OPTIONS.values():
            if len({getattr(self, key) for key in keys}) > 1:
                raise ValueError(f"{' and '.join(keys)} differ")
        if self.d_model % self.encoder_attention_heads:
            raise ValueError("d_model is no multiple of encoder_attention_heads")
        return self

    def our_options(self) -> ModelConfig:
        """Section `model` of a config."""
        activations = {name: ours for ours, name in names.ACTIVATIONS.items()}
        ties = "all" if self.share_encoder_decoder_embeddings else "target"
        tree = {ours: getattr(self, keys[0]) for ours, keys in names.OPTIONS.items()}
        tree |= {
            "norm_order": "post",
            "activation": activations.get(self.activation_function, self.activation_function),
            "tie_embeddings": ties if self.tie_word_embeddings else "none",
            "output_bias": True,
        }
        return ModelConfig.model_validate(tree)


@dataclass(frozen=True)
class Imported:
    """Model of another program, converted to the parts of a run."""

    model: Transformer
    tokenizers: TokenizerPair
    options: Mapping[str, Any]
    """Section `tokenizer` of the config."""
    tags: tuple[str, ...]
    num_beams: int
    unk: int
    """Id of the unknown token of the target in the other program."""


@dataclass(frozen=True)
class _Side:
    """Vocabulary of the source or of the target."""

    entries: list[str]
    """Entries from id 4 on."""
    rows: list[int]
    """For each id, the id of the same entry in Marian."""
    num_known: int
    """Number of entries of `entries` that Marian has; it does not know the pieces after them."""
    size: int
    """Number of entries in Marian, special tokens included."""


def read_marian(folder: Path, allow_pickle: bool = False) -> Imported:
    """The model in a folder of MarianMT.

    Raises InputError if a file is missing or damaged, or the model has something that a run cannot have. Weights in
    `pytorch_model.bin` are read only with `allow_pickle`, by the loader of PyTorch that runs no code.
    """
    config, weights = read_model(folder / "config.json", MarianConfig), _read_weights(folder, allow_pickle)
    if not (folder / "source.spm").exists():
        raise InputError(f"{folder}: has no source.spm; a run of mt is imported from mt export --format bundle")
    # The embedding tables may be separate although they share a vocabulary.
    has_two = not config.share_encoder_decoder_embeddings and (folder / "target_vocab.json").exists()
    vocabularies = [_read_vocabulary(folder / name) for name in ("vocab.json", "target_vocab.json")[: 1 + has_two]]
    _check_ids(folder, config, vocabularies[-1])
    pieces = [read_pieces(folder / f"{side}.spm") for side in ("source", "target")]
    is_shared = len(vocabularies) == 1
    pad, eos = config.pad_token_id, config.eos_token_id
    target = _side(folder, vocabularies[-1], pieces if is_shared else pieces[1:], pad, eos)
    source = target
    if not is_shared:  # The config has only the ids of the target.
        if "</s>" not in vocabularies[0]:
            raise InputError(f"{folder}: the vocabulary of the source has no entry </s>")
        # The vocabulary of the source may lack the padding, because attention never sees it.
        ids = vocabularies[0].get("<pad>"), vocabularies[0]["</s>"]
        source = _side(folder, vocabularies[0], pieces[:1], *ids)
    tags = tuple(name for name in source.entries if _TAG.fullmatch(name))
    tokenizers = tokenizer_of(pieces[0], source.entries, tags), tokenizer_of(pieces[1], target.entries)
    model = _model(folder, config, weights, source, target)
    options = {"algorithm": "sentencepiece", "shared": is_shared}
    return Imported(model, tokenizers, options, tags, config.num_beams, target.rows[UNK_ID])


def _read_vocabulary(path: Path) -> dict[str, int]:
    """Entries in the order of their ids; raises InputError unless these are 0, 1, 2 ... and there is `<unk>`."""
    vocabulary = read_model(path, dict[str, int])
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise InputError(f"{path}: the ids of its entries are not 0 to {len(vocabulary) - 1:,}")
    if "<unk>" not in vocabulary:
        raise InputError(f"{path}: has no entry <unk>")
    return dict(sorted(vocabulary.items(), key=lambda item: item[1]))


def _read_weights(folder: Path, allow_pickle: bool) -> dict[str, Tensor]:
    """Weights of the folder under the names of `transformers`."""
    path, pickled = folder / WEIGHTS, folder / PICKLED_WEIGHTS
    if path.exists() or not pickled.exists():
        return read_safetensors(path)
    if not allow_pickle:
        raise InputError(f"{folder}: {PICKLE_ADVICE}")
    return read_pickle(pickled)


def _check_ids(folder: Path, config: MarianConfig, target: Mapping[str, int]) -> None:
    """Raise InputError unless the ids of the end and the padding in the config belong to these entries."""
    if config.decoder_start_token_id != config.pad_token_id:
        raise InputError(f"{folder}: not supported: translations do not begin with the padding")
    for key, name in (("eos_token_id", "</s>"), ("pad_token_id", "<pad>")):
        index = getattr(config, key)
        if target.get(name) != index:
            entry = f"{name} the id {target[name]:,}" if name in target else f"no {name}"
            raise InputError(f"{folder}: {key} is {index:,}, and the vocabulary has {entry}")


def _side(folder: Path, vocabulary: Mapping[str, int], pieces: Sequence[Pieces], pad: int | None, eos: int) -> _Side:
    unk = vocabulary["<unk>"]
    kept = {name: index for name, index in vocabulary.items() if index not in (pad, unk, eos)}
    missing = missing_pieces(pieces, kept)
    if reserved := {*SPECIAL_TOKENS}.intersection([*kept, *missing]):
        raise InputError(f"{folder}: not supported: an entry is called {min(reserved)}, as a special token of mt")
    begin = unk if pad is None else pad
    rows = [begin, unk, begin, eos, *kept.values(), *[unk] * len(missing)]
    return _Side([*kept, *missing], rows, len(SPECIAL_TOKENS) + len(kept), len(vocabulary))


def _model(
    folder: Path, config: MarianConfig, weights: Mapping[str, Tensor], source: _Side, target: _Side
) -> Transformer:
    """Our model with the weights; raises InputError if these do not fit it."""

    def rename(planned: Transformer) -> dict[str, Tensor]:
        return _our_layers(weights, planned) | _our_tables(weights, config, source, target)

    return load_model(folder, config.our_options(), (len(source.rows), len(target.rows)), weights, rename)


def _our_layers(weights: Mapping[str, Tensor], planned: Transformer) -> dict[str, Tensor]:
    """Weights of the layers of our model; raises ValueError for weights that have no place in it."""
    d_model = planned.config.d_model
    order = names.interleaved(d_model)
    layers = {names.transformers_name(n): n for n in planned.state_dict() if n.startswith(("encoder", "decoder"))}
    if unknown := weights.keys() - layers.keys() - {*names.TABLES, names.BIAS, *names.POSITIONS}:
        raise ValueError(f"{min(unknown)!r:.120} belongs to no layer")
    for name in weights.keys() & {*names.POSITIONS}:
        table = weights[name]
        expected = sinusoids(len(table), d_model)[:, order.argsort()] if table.shape[1:] == (d_model,) else None
        if expected is None or not torch.allclose(table, expected, rtol=0, atol=_HALF_PRECISION):
            raise ValueError(f"{name} has other values than sines and cosines")
    return {
        name: names.reordered(weights[transformers_name], name, order) for transformers_name, name in layers.items()
    }


def _our_tables(weights: Mapping[str, Tensor], config: MarianConfig, source: _Side, target: _Side) -> dict[str, Tensor]:
    """Embeddings, projection and its bias; raises ValueError if sizes or tied tables do not fit the config.

    A tied table may be stored under several names. Without `tie_word_embeddings`, `transformers` ties no tables.
    """
    order, bias = names.interleaved(config.d_model), weights[names.BIAS].flatten()
    for key, size in (("vocab_size", source.size), ("decoder_vocab_size", target.size)):
        if getattr(config, key) not in (None, size):
            raise ValueError(f"{key} is {getattr(config, key):,}, and the vocabulary has {size:,} entries")
    if len(bias) != target.size:
        raise ValueError(f"{names.BIAS} has {len(bias):,} values, and the vocabulary {target.size:,} entries")
    shared = [names.SHARED_TABLE] if config.share_encoder_decoder_embeddings else []
    is_tied = config.tie_word_embeddings
    stored = [[names.SOURCE_TABLE, *shared], [names.TARGET_TABLE, *shared], [names.PROJECTION]]
    if is_tied:
        stored = [[*names.TABLES]] * 3 if shared else [stored[0], *[[names.TARGET_TABLE, names.PROJECTION]] * 2]
    ours = {}
    for module, candidates, side in (
        ("source_embedding.table", stored[0], source),
        ("target_embedding.table", stored[1], target),
        ("projection", stored[2], target),
    ):
        present = [name for name in candidates if name in weights]
        if not present:
            raise ValueError(f"there is no {candidates[0]}")
        table = weights[present[0]]
        for name in present:
            if weights[name].shape != (side.size, config.d_model):
                raise ValueError(f"{name} is {[*weights[name].shape]}, and the vocabulary has {side.size:,} entries")
            if is_tied and not torch.equal(weights[name], table):
                raise ValueError(f"{name} differs from {present[0]}, and config.json ties them")
        ours[f"{module}.weight"] = table[side.rows][:, order]
    bias = bias[target.rows]
    bias[[PAD_ID, SOS_ID]] = _NEVER
    bias[target.num_known :] = _NEVER
    return ours | {"projection.bias": bias}
