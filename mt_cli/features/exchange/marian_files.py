"""Marian's own files, as in the packages of OPUS-MT: `decoder.yml`, weights in a `.npz` and vocabularies in YAML.

They get the names and shapes of MarianMT in Hugging Face `transformers`, which `marian.py` reads. The conversion of
`transformers` adds an entry `<pad>` with an embedding of zeros, with which translations begin; so does this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
import torch
import yaml
from pydantic import BaseModel, Field
from torch import Tensor

from mt_cli.checkpoint.untrusted_weights import read_arrays
from mt_cli.config.loading import parse_yaml
from mt_cli.errors import InputError, one_line, reason
from mt_cli.features.exchange import names
from mt_cli.features.exchange.marian_config import MarianConfig
from mt_cli.machine.storage import read_regular, reading

_MAX_OPTIONS_BYTES = 2**18
_MAX_VOCABULARY_BYTES = 2**24
_PAD = "<pad>"
_Size = Annotated[int, Field(gt=0, lt=2**31, strict=True)]
_Weights = Annotated[str, Field(pattern=r"^[^/\x00-\x1f\x7f]+\.npz$")]
_Vocabulary = Annotated[str, Field(pattern=r"^[^/\x00-\x1f\x7f]+\.ya?ml$")]
T = TypeVar("T", bound=BaseModel)


class _Decoder(BaseModel):
    """Keys of `decoder.yml` that are needed: names of files beside it. An ensemble has several models."""

    models: tuple[_Weights]
    vocabs: tuple[_Vocabulary, _Vocabulary]
    num_beams: int = Field(default=6, alias="beam-size", ge=1, le=1000)


class _Options(BaseModel, alias_generator=lambda name: name.replace("_", "-")):
    """Options in `special:model.yml`; a `Literal` has the values that a run can have."""

    dim_emb: _Size
    enc_depth: _Size
    dec_depth: _Size
    transformer_heads: _Size
    transformer_dim_ffn: _Size
    transformer_ffn_activation: Literal["relu", "swish"] = "swish"
    transformer_ffn_depth: Literal[2] = 2
    transformer_decoder_dim_ffn: Literal[0] = 0
    transformer_decoder_autoreg: Literal["self-attention"] = "self-attention"
    transformer_no_projection: Literal[False] = False
    transformer_preprocess: Literal[""] = ""
    transformer_postprocess: Literal["dan"] = "dan"
    transformer_postprocess_emb: Literal["d"] = "d"
    transformer_postprocess_top: Literal[""] = ""
    transformer_tied_layers: tuple[()] = ()
    transformer_train_position_embeddings: Literal[False] = False
    type: Literal["transformer"] = "transformer"
    factors_combine: Literal["sum"] = "sum"
    lemma_dim_emb: Literal[0] = 0
    ulr: Literal[False] = False


def is_native(folder: Path) -> bool:
    """Whether a folder has a model in Marian's own format."""
    return (folder / "decoder.yml").exists() and not (folder / "config.json").exists()


def read_native(folder: Path) -> tuple[MarianConfig, list[dict[str, int]], dict[str, Tensor]]:
    """Config, one or two vocabularies, and weights under the names of `transformers`.

    Raises InputError if a file is missing or damaged, or the model has something that MarianMT cannot have.
    """
    decoder_path = folder / "decoder.yml"
    with reading(decoder_path):
        content = read_regular(decoder_path, _MAX_OPTIONS_BYTES)
    decoder = _parse(content, str(decoder_path), _Decoder)
    vocabularies = [read_vocabulary(folder / name) for name in dict.fromkeys(decoder.vocabs)]
    path = folder / decoder.models[0]
    arrays = read_arrays(path)
    options = _options(path, arrays)
    left = {name: torch.from_numpy(array) for name, array in arrays.items() if array.dtype == np.float32}
    try:
        weights = _layers(left, options) | _tables(left, len(vocabularies) == 1)
    except KeyError as error:
        raise InputError(f"{path}: has no weight {error}") from None
    except (ValueError, IndexError, RuntimeError) as error:
        raise InputError(f"{path}: its weights do not have the shapes of a Transformer: {one_line(error)}") from None
    if left:
        raise InputError(f"{path}: not supported: {min(left)!r:.120} belongs to no layer")
    for vocabulary in vocabularies:
        vocabulary[_PAD] = len(vocabulary)
    try:
        config = _config_of(options, vocabularies, weights, decoder.num_beams)
    except ValueError as error:
        raise InputError(f"{folder}: not supported: {reason(error)}") from None
    return config, vocabularies, weights


def _config_of(
    options: _Options, vocabularies: list[dict[str, int]], weights: Mapping[str, Tensor], num_beams: int
) -> MarianConfig:
    """Keys of `config.json`; raises ValueError if a run cannot have such a model."""
    source, target = vocabularies[0], vocabularies[-1]
    values = {
        "d_model": options.dim_emb,
        **{"num_encoder_layers": options.enc_depth, "num_decoder_layers": options.dec_depth},
        **{"num_heads": options.transformer_heads, "d_ff": options.transformer_dim_ffn},
    }
    tree = {key: value for ours, value in values.items() for key in names.OPTIONS[ours]} | {
        **{"model_type": "marian", "activation_function": options.transformer_ffn_activation, "scale_embedding": True},
        **{"vocab_size": len(source), "decoder_vocab_size": len(target)},
        "share_encoder_decoder_embeddings": names.SHARED_TABLE in weights,
        "tie_word_embeddings": names.PROJECTION not in weights,
        **{"pad_token_id": target[_PAD], "decoder_start_token_id": target[_PAD], "eos_token_id": source["</s>"]},
        "num_beams": num_beams,
    }
    return MarianConfig.model_validate(tree)


def _parse(content: bytes, origin: str, kind: type[T]) -> T:
    """Options in the content of a YAML file; raises InputError, which begins with `origin`, for other values."""
    try:
        return kind.model_validate(parse_yaml(content.decode("utf-8"), origin))
    except ValueError as error:
        raise InputError(f"{origin}: not supported: {reason(error)}") from None


def read_vocabulary(path: Path) -> dict[str, int]:
    """Entries with their ids, from a YAML mapping.

    It is read as events, which is fast, does not recurse, and leaves all entries text: `no` and `7` too.
    """
    with reading(path):
        content = read_regular(path, _MAX_VOCABULARY_BYTES)
    scalars: list[str] = []
    event = None
    try:
        events = yaml.parse(content.decode("utf-8"), Loader=getattr(yaml, "CBaseLoader", yaml.BaseLoader))
        for event in islice(events, 3, None):  # The first three begin the file, the document and the mapping.
            if not isinstance(event, yaml.ScalarEvent):
                break
            scalars.append(event.value)
        entries = dict(zip(scalars[::2], map(int, scalars[1::2]), strict=True))
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: not a vocabulary: {one_line(error)}") from None
    if not isinstance(event, yaml.MappingEndEvent):
        raise InputError(f"{path}: not a vocabulary: not a mapping of entries to ids")
    if _PAD in entries:
        raise InputError(f"{path}: not supported: an entry is called {_PAD}, as the one that is added")
    if entries.get("</s>") != 0 or entries.get("<unk>") != 1:
        raise InputError(f"{path}: its first entries are not </s> and <unk>")
    return ordered(entries, path)


def ordered(vocabulary: Mapping[str, int], path: Path) -> dict[str, int]:
    """A vocabulary in the order of its ids; raises InputError unless these are 0, 1, 2 ... and there is `<unk>`."""
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise InputError(f"{path}: the ids of its entries are not 0 to {len(vocabulary) - 1:,}")
    if "<unk>" not in vocabulary:
        raise InputError(f"{path}: has no entry <unk>")
    return dict(sorted(vocabulary.items(), key=lambda item: item[1]))


def _options(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> _Options:
    """Options of the model, which are text in one of the arrays."""
    name = "special:model.yml"
    if name not in arrays:
        raise InputError(f"{path}: has no description of the model ({name})")
    if arrays[name].nbytes > _MAX_OPTIONS_BYTES:
        raise InputError(f"{path}: {name} is larger than {_MAX_OPTIONS_BYTES:,} bytes")
    return _parse(arrays[name].tobytes().rstrip(b"\0"), f"{path}: {name}", _Options)


def _layers(left: dict[str, Tensor], options: _Options) -> dict[str, Tensor]:
    """Weights of the layers, which are removed from `left`."""
    depths = {"encoder": options.enc_depth, "decoder": options.dec_depth}
    return {
        name: _matrix(left, native_name).T.contiguous() if is_matrix else left.pop(native_name).flatten()
        for name, native_name, is_matrix in names.marian_names(depths)
    }


def _matrix(left: dict[str, Tensor], name: str) -> Tensor:
    """A weight that has rows and columns, which is removed from `left`; raises ValueError if it has not."""
    if left[name].ndim != 2:
        raise ValueError(f"{name} is no matrix")
    return left.pop(name)


def _tables(left: dict[str, Tensor], has_one_vocabulary: bool) -> dict[str, Tensor]:
    """Embeddings, projection and its bias, with zeros for the added entry and a bias with which it is never generated.

    They are removed from `left`.
    """
    source, target = (name if name in left else "Wemb" for name in ("encoder_Wemb", "decoder_Wemb"))
    matrices = {name: _matrix(left, name) for name in dict.fromkeys((source, target))}
    weights = {names.SOURCE_TABLE: matrices[source], names.TARGET_TABLE: matrices[target]}
    if source == target and has_one_vocabulary:
        weights = {names.SHARED_TABLE: matrices[source]}
    if "decoder_ff_logit_out_Wt" in left:
        weights[names.PROJECTION] = _matrix(left, "decoder_ff_logit_out_Wt")
    elif "decoder_ff_logit_out_W" in left:
        weights[names.PROJECTION] = _matrix(left, "decoder_ff_logit_out_W").T
    weights = {name: torch.cat([table, table.new_zeros(1, table.shape[1])]) for name, table in weights.items()}
    bias = left.pop("decoder_ff_logit_out_b").flatten()
    return weights | {names.BIAS: torch.cat([bias, bias.new_full((1,), -1e9)])[None]}
