"""Marian's own files, as in the packages of OPUS-MT: `decoder.yml`, weights in a `.npz` and vocabularies in YAML.

They are brought into the names and shapes of MarianMT in Hugging Face `transformers`, whose reader does the rest. What
that conversion adds is added here, too: an entry `<pad>` with an embedding of zeros, with which translations begin.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mt_cli.checkpoint.untrusted_weights import read_arrays
from mt_cli.config.loading import parse_yaml
from mt_cli.errors import InputError, one_line
from mt_cli.machine.storage import read_regular, reading

_MAX_OPTIONS_BYTES = 2**18
_MAX_VOCABULARY_BYTES = 2**24
_PAD = "<pad>"
_ACTIVATIONS = ("relu", "swish")
_REQUIRED: Mapping[str, Any] = {
    "type": "transformer",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-postprocess-emb": "d",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-train-position-embeddings": False,
    "transformer-tied-layers": [],
    "lemma-dim-emb": 0,
    "ulr": False,
    "factors-combine": "sum",
}
"""The options of `special:model.yml` that are known here, where they exist, with their only value."""
_PARTS = {"Wq": "q_proj", "Wk": "k_proj", "Wv": "v_proj", "Wo": "out_proj"}
_BLOCKS = {"self": "self_attn", "context": "encoder_attn"}


class _Weights(dict[str, Tensor]):
    """Weights by name, which know what was used of them."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.used.add(name)
        return super().__getitem__(name)


def is_native(folder: Path) -> bool:
    """Whether a folder has a model in Marian's own format."""
    return (folder / "decoder.yml").exists() and not (folder / "config.json").exists()


def read_native(folder: Path) -> tuple[dict[str, Any], list[dict[str, int]], dict[str, Tensor]]:
    """The description, as in `config.json`, one or two vocabularies, and the weights by the names of MarianMT.

    Raises InputError if a file is missing or damaged, or the model has something that MarianMT cannot have.
    """
    decoder = _yaml_of(folder / "decoder.yml")
    path, vocabularies = folder / _name(folder, decoder, "models"), _vocabularies(folder, decoder)
    arrays = read_arrays(path)
    options = _options(path, arrays)
    try:
        weights = _Weights({name: torch.from_numpy(each) for name, each in arrays.items() if each.dtype == np.float32})
        found = dict(_layers(weights, options)) | _tables(weights, [len(each) for each in vocabularies])
    except KeyError as error:
        raise InputError(f"{path}: has no weight {error}") from None
    except (ValueError, IndexError, RuntimeError) as error:
        raise InputError(f"{path}: its weights do not have the shapes of a Transformer: {one_line(error)}") from None
    if more := sorted(weights.keys() - weights.used):
        raise InputError(f"{path}: not supported: {more[0]!r:.120} belongs to no layer")
    for vocabulary in vocabularies:
        vocabulary[_PAD] = len(vocabulary)
    heads, d_ff = options["transformer-heads"], options["transformer-dim-ffn"]
    sizes = {"attention_heads": heads, "ffn_dim": d_ff}
    description = {
        "model_type": "marian",
        "d_model": options["dim-emb"],
        "vocab_size": len(vocabularies[0]),
        "decoder_vocab_size": len(vocabularies[-1]),
        **{"encoder_layers": options["enc-depth"], "decoder_layers": options["dec-depth"]},
        **{f"{stack}_{key}": value for stack in ("encoder", "decoder") for key, value in sizes.items()},
        "activation_function": options["transformer-ffn-activation"],
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": "model.shared.weight" in found,
        "tie_word_embeddings": "lm_head.weight" not in found,
        **{"pad_token_id": vocabularies[-1][_PAD], "decoder_start_token_id": vocabularies[-1][_PAD]},
        **{"eos_token_id": vocabularies[0]["</s>"], "num_beams": decoder.get("beam-size", 6)},
    }
    return description, vocabularies, found


def _yaml_of(path: Path) -> dict[str, Any]:
    with reading(path):
        content = read_regular(path, _MAX_OPTIONS_BYTES)
    return _tree_of(content, str(path))


def _tree_of(content: bytes, origin: str) -> dict[str, Any]:
    """The mapping in the content of a YAML file."""
    try:
        tree = parse_yaml(content.decode("utf-8"), origin)
    except UnicodeDecodeError as error:
        raise InputError(f"{origin}: not UTF-8 at byte {error.start}") from None
    if not isinstance(tree, dict):
        raise InputError(f"{origin}: not a mapping")
    return tree


def _name(folder: Path, decoder: Mapping[str, Any], key: str, index: int = 0) -> str:
    """A file name of `decoder.yml`; it must lie in the folder itself."""
    names = decoder.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) <= index:
        raise InputError(f"{folder / 'decoder.yml'}: names no {key}")
    if key == "models" and len(names) > 1:
        raise InputError(f"{folder / 'decoder.yml'}: an ensemble of {len(names)} models; import them one by one")
    if Path(names[index]).name != names[index] or not names[index].isprintable():
        raise InputError(f"{folder / 'decoder.yml'}: {names[index]!r:.120} is not the name of a file beside it")
    return str(names[index])


def _vocabularies(folder: Path, decoder: Mapping[str, Any]) -> list[dict[str, int]]:
    """The vocabulary of both sides, or those of the source and of the target."""
    names = list(dict.fromkeys(_name(folder, decoder, "vocabs", index) for index in range(2)))
    if wrong := [name for name in names if not name.endswith((".yml", ".yaml"))]:
        raise InputError(f"{folder / wrong[0]}: not supported: a vocabulary that is not a YAML file")
    return [_vocabulary(folder / name) for name in names]


_ENTRY = re.compile(r"(?:\? )?(.+?)(?:\n)?:[ ]+([0-9]{1,9})", re.DOTALL)


def _vocabulary(path: Path) -> dict[str, int]:
    """Entries with their ids, one on each line: `"entry": 7`; long entries are a key and a value on two lines."""
    with reading(path):
        content = read_regular(path, _MAX_VOCABULARY_BYTES)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 at byte {error.start}") from None
    found: dict[int, str] = {}
    for entry in re.split(r"\n(?!: )", text.replace("\r\n", "\n").strip("\n")):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise InputError(f"{path}: not an entry of a vocabulary: {entry[:60]!r}")
        found[int(match[2])] = _unquoted(match[1])
    names = [name for _, name in sorted(found.items())]
    if sorted(found) != list(range(len(found))) or len(set(names)) != len(names):
        raise InputError(f"{path}: the ids of its entries are not 0 to {len(found) - 1:,}, or entries occur twice")
    if names[:2] != ["</s>", "<unk>"]:
        raise InputError(f"{path}: its first entries are not </s> and <unk>")
    if _PAD in names:
        raise InputError(f"{path}: not supported: an entry is called {_PAD}, as the one that is added")
    return {name: index for index, name in enumerate(names)}


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00[01][0-9a-fA-F]{5}|.)", re.DOTALL)
_ESCAPES = dict(zip('0abtnvfre "/\\N_LP', '\0\a\b\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029', strict=True))
"""What single characters stand for after a backslash in YAML."""


def _unquoted(text: str) -> str:
    """A YAML scalar as text, whatever its type would be. PyYAML would take minutes for a large vocabulary."""
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    return _ESCAPE.sub(_character, text[1:-1]) if text[0] == '"' else text


def _character(match: re.Match[str]) -> str:
    """The character of an escape; an unknown escape stays as it is."""
    code = match[1]
    if len(code) == 1:
        return _ESCAPES.get(code, match[0])
    number = int(code[1:], 16)
    return chr(number) if number <= sys.maxunicode else match[0]


def _options(path: Path, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """The options of the model, which are text in one of the arrays."""
    name = "special:model.yml"
    if name not in arrays:
        raise InputError(f"{path}: has no description of the model ({name})")
    if arrays[name].nbytes > _MAX_OPTIONS_BYTES:
        raise InputError(f"{path}: {name} is larger than {_MAX_OPTIONS_BYTES:,} bytes")
    options = _tree_of(arrays[name].tobytes().rstrip(b"\0"), f"{path}: {name}")
    options["transformer-ffn-activation"] = str(options.get("transformer-ffn-activation", "swish"))
    for key in ("dim-emb", "enc-depth", "dec-depth", "transformer-heads", "transformer-dim-ffn"):
        if type(options.get(key)) is not int or not 0 < options[key] < 2**31:
            raise InputError(f"{path}: not supported: {key} {options.get(key)!r:.60}")
    for key, value in _REQUIRED.items():
        if key in options and options[key] != value:
            raise InputError(f"{path}: not supported: {key} {options[key]!r:.60}")
    if options["transformer-ffn-activation"] not in _ACTIVATIONS:
        raise InputError(
            f"{path}: not supported: transformer-ffn-activation {options['transformer-ffn-activation']!r:.60}"
        )
    if options.get("transformer-ffn-depth", 2) != 2 or options.get("transformer-decoder-dim-ffn", 0):
        raise InputError(f"{path}: not supported: feed-forward blocks of other depths or sizes in the decoder")
    return dict(options)


def _layers(weights: Mapping[str, Tensor], options: Mapping[str, Any]) -> list[tuple[str, Tensor]]:
    """The weights of the layers."""
    found = []
    for stack, depth in (("encoder", options["enc-depth"]), ("decoder", options["dec-depth"])):
        for number in range(depth):
            theirs, ours = f"{stack}_l{number + 1}", f"model.{stack}.layers.{number}"
            for block in ("self", "context") if stack == "decoder" else ("self",):
                for part, name in _PARTS.items():
                    found.append(
                        (f"{ours}.{_BLOCKS[block]}.{name}.weight", _matrix(weights, f"{theirs}_{block}_{part}").T)
                    )
                    bias = weights[f"{theirs}_{block}_b{part[1]}"].flatten()
                    found.append((f"{ours}.{_BLOCKS[block]}.{name}.bias", bias))
                found += _norm(weights, f"{theirs}_{block}_Wo", f"{ours}.{_BLOCKS[block]}_layer_norm")
            for index in "12":
                found.append((f"{ours}.fc{index}.weight", _matrix(weights, f"{theirs}_ffn_W{index}").T))
                found.append((f"{ours}.fc{index}.bias", weights[f"{theirs}_ffn_b{index}"].flatten()))
            found += _norm(weights, f"{theirs}_ffn_ffn", f"{ours}.final_layer_norm")
    return [(name, weight.contiguous()) for name, weight in found]


def _matrix(weights: Mapping[str, Tensor], name: str) -> Tensor:
    """A weight that has rows and columns; raises ValueError if it has not."""
    if weights[name].ndim != 2:
        raise ValueError(f"{name} is no matrix")
    return weights[name]


def _norm(weights: Mapping[str, Tensor], theirs: str, ours: str) -> list[tuple[str, Tensor]]:
    names = {"weight": "scale", "bias": "bias"}
    return [(f"{ours}.{key}", weights[f"{theirs}_ln_{value}"].flatten()) for key, value in names.items()]


def _tables(weights: Mapping[str, Tensor], sizes: list[int]) -> dict[str, Tensor]:
    """Embeddings, projection and its bias, with zeros for the new entry; a bias that is never generated."""
    names = [name if name in weights else "Wemb" for name in ("encoder_Wemb", "decoder_Wemb")]
    tables = [_matrix(weights, name) for name in names]
    for table, size in zip(tables, (sizes[0], sizes[-1]), strict=True):
        if len(table) != size:
            raise ValueError(f"its tables have {len(table):,} rows, and its vocabularies {size:,} entries")
    found = {}
    if set(names) == {"Wemb"} and len(sizes) == 1:
        found["model.shared.weight"] = _with_zeros(tables[0])
    else:
        found["model.encoder.embed_tokens.weight"] = _with_zeros(tables[0])
        found["model.decoder.embed_tokens.weight"] = _with_zeros(tables[1])
    projection, transposed = "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"
    if projection in weights or transposed in weights:
        table = _matrix(weights, projection) if projection in weights else _matrix(weights, transposed).T
        found["lm_head.weight"] = _with_zeros(table)
    bias = weights["decoder_ff_logit_out_b"].flatten()
    found["final_logits_bias"] = torch.cat([bias, bias.new_full((1,), -1e9)])[None]
    return found


def _with_zeros(table: Tensor) -> Tensor:
    return torch.cat([table, table.new_zeros(1, table.shape[1])])
