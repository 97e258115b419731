"""Weights of published models: safetensors, or pickles of PyTorch of which only tensors are read, whole or in shards.

`transformers` writes large models as shards: `model.safetensors.index.json` names the shard of each weight, such as
`model-00001-of-00002.safetensors`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from pathlib import Path

import torch
from pydantic import BaseModel
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mt_cli.config.sections import ModelConfig
from mt_cli.corpus.cache import digest_of_file
from mt_cli.errors import InputError
from mt_cli.model.transformer import Transformer, outline
from mt_cli.runtime.files import check_regular, read_model, reading

WEIGHTS, PICKLED_WEIGHTS = "model.safetensors", "pytorch_model.bin"
_INDEX = ".index.json"
_FILES = (WEIGHTS, WEIGHTS + _INDEX, PICKLED_WEIGHTS, PICKLED_WEIGHTS + _INDEX)
"""Files that a model can have, in the order in which they are preferred."""
PICKLE_ADVICE = (
    f"the weights are in Python's pickle format ({PICKLED_WEIGHTS}), which can run code when it is read; if you trust "
    "the source, add --allow-pickle, which reads tensors alone (weights_only of torch.load)"
)


class _Index(BaseModel):
    weight_map: dict[str, str]


def weights_file(names: Collection[str]) -> str | None:
    """File or index with the weights, among the names of the files of a model."""
    return next((file for file in _FILES if file in names), None)


def is_pickled(name: str) -> bool:
    """True if a file of weights, or the shards of an index, are in Python's pickle format."""
    return name.startswith(PICKLED_WEIGHTS)


def shards_of(path: Path) -> list[str]:
    """Names of the shards of an index, and of a file of all weights its own; raises InputError for a damaged index."""
    if not path.name.endswith(_INDEX):
        return [path.name]
    shards = sorted({*read_model(path, _Index).weight_map.values()})
    for shard in shards:
        if Path(shard).name != shard:
            raise InputError(f"{path}: {shard!r:.80} is not the name of a file in its folder")
    return shards


def read_weights(folder: Path, allow_pickle: bool) -> dict[str, Tensor]:
    """Weights of the folder in fp32 under the names of `transformers`.

    Raises InputError if there are none, a file is missing or damaged, or they are pickled and `allow_pickle` is false.
    """
    file = weights_file([file for file in _FILES if (folder / file).exists()]) or WEIGHTS
    if is_pickled(file) and not allow_pickle:
        raise InputError(f"{folder}: {PICKLE_ADVICE}")
    weights: dict[str, Tensor] = {}
    for shard in shards_of(folder / file):
        weights |= read_shard(folder / shard, is_pickled(file))
    return weights


def read_shard(path: Path, pickled: bool = False) -> dict[str, Tensor]:
    """Weights of one file in fp32; raises InputError if it is damaged or has values that are no weights."""
    with reading(path):
        check_regular(path)
    try:
        with warnings.catch_warnings(action="ignore"):
            weights = torch.load(path, "cpu", weights_only=True) if pickled else load_file(path)
    except SafetensorError:
        raise InputError(f"{path}: not a file of safetensors, or damaged; get it again") from None
    except Exception as error:  # For damaged content, `torch.load` raises errors of many types.
        if not pickled:
            raise
        raise InputError(f"{path}: is damaged, or holds more than tensors ({type(error).__name__})") from None
    if not isinstance(weights, dict):
        raise InputError(f"{path}: holds other values than the weights of a model")
    for name, weight in weights.items():
        is_dense = isinstance(weight, Tensor) and weight.is_cpu and weight.layout == torch.strided
        # A view can claim more numbers than are stored.
        if not is_dense or not weight.is_floating_point() or weight.nbytes > weight.untyped_storage().nbytes():
            raise InputError(f"{path}: {name!r:.120} is no dense tensor of floating-point numbers")
    return {name: weight.detach().float() for name, weight in weights.items()}


def digest_of_weights(folder: Path) -> str:
    """SHA-256 of the file of the weights in a folder; of shards, of their digests."""
    file = weights_file([file for file in _FILES if (folder / file).exists()]) or WEIGHTS
    return combined([digest_of_file(folder / shard) for shard in shards_of(folder / file)])


def combined(digests: list[str]) -> str:
    """The only digest, or the SHA-256 of several."""
    return digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode()).hexdigest()


def load_model(
    folder: Path,
    config: ModelConfig,
    vocab_sizes: tuple[int, int],
    weights: Mapping[str, Tensor],
    rename: Callable[[Transformer], Mapping[str, Tensor]],
) -> Transformer:
    """Model with the weights of a folder; raises InputError, before memory is allocated, if the weights do not fit.

    `rename` gives the weights the names and shapes of a model on the device `meta`.
    """
    try:
        for name, weight in weights.items():
            if not weight.isfinite().all():
                raise ValueError(f"{name} has values that are not finite numbers")
        model = outline(config, *vocab_sizes)
        renamed = rename(model)
        expected = {name: weight.shape for name, weight in model.state_dict().items()}
        given = {name: weight.shape for name, weight in renamed.items()}
        if wrong := [name for name in [*expected, *given] if expected.get(name) != given.get(name)]:
            raise ValueError(f"{wrong[0]} is missing, has another shape, or has no place in the model")
    except (KeyError, IndexError, RuntimeError, ValueError) as error:
        problem = str(error) if isinstance(error, ValueError) else f"{error.args[0]!s:.120}"
        problem = f"there is no {problem}" if isinstance(error, KeyError) else problem
        raise InputError(f"{folder}: its weights do not fit its config: {problem}") from None
    for name, weight in model.named_parameters():  # A tied weight, which has several names, stays one.
        torch.utils.swap_tensors(weight, nn.Parameter(renamed[name].clone(), weight.requires_grad))
    return model
