"""Files with the weights of a published model: a file of all weights, or shards with an index.

`transformers` writes large models as shards: `model.safetensors.index.json` names the shard of each weight, such as
`model-00001-of-00002.safetensors`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path

from pydantic import BaseModel
from torch import Tensor

from mt_cli.corpus.cache import digest_of_file
from mt_cli.errors import InputError
from mt_cli.exchange.untrusted_weights import read_pickle, read_safetensors
from mt_cli.runtime.files import read_model

WEIGHTS, PICKLED_WEIGHTS = "model.safetensors", "pytorch_model.bin"
_INDEX = ".index.json"
_FILES = (WEIGHTS, WEIGHTS + _INDEX, PICKLED_WEIGHTS, PICKLED_WEIGHTS + _INDEX)
"""Files that a model can have, in the order in which they are preferred."""
_SHARD = re.compile(r"\w[\w.-]{0,200}")
PICKLE_ADVICE = (
    f"the weights are in Python's pickle format ({PICKLED_WEIGHTS}), which can run code when it is read; if you trust "
    "the source, add --allow-pickle, which reads tensors alone (weights_only of torch.load)"
)


class _Index(BaseModel):
    """Key of an index: the file of each weight."""

    weight_map: dict[str, str]


def weights_file(names: Collection[str]) -> str | None:
    """File or index with the weights, among the names of the files of a model."""
    return next((file for file in _FILES if file in names), None)


def is_pickled(name: str) -> bool:
    """Whether a file of weights, or the shards of an index, are in Python's pickle format."""
    return name.startswith(PICKLED_WEIGHTS)


def shards_of(path: Path) -> list[str]:
    """Names of the shards of an index, and of a file of all weights its own; raises InputError for a damaged index."""
    return list(_weights_by_shard(path)) if path.name.endswith(_INDEX) else [path.name]


def _weights_by_shard(index: Path) -> dict[str, list[str]]:
    """Names of the weights of each shard in an index, in the order of the names of the shards."""
    weight_map, suffix = read_model(index, _Index).weight_map, ".bin" if is_pickled(index.name) else ".safetensors"
    shards: dict[str, list[str]] = {shard: [] for shard in sorted({*weight_map.values()})}
    if not shards:
        raise InputError(f"{index}: names no weights")
    for shard in shards:
        if not _SHARD.fullmatch(shard) or not shard.endswith(suffix):
            raise InputError(f"{index}: {shard!r:.80} is not the name of a file in its folder that ends in {suffix}")
    for name, shard in weight_map.items():
        shards[shard].append(name)
    return shards


def read_weights(folder: Path, allow_pickle: bool) -> dict[str, Tensor]:
    """Weights of the folder under the names of `transformers`.

    Raises InputError if there are none, a file is missing or damaged, shards do not have the weights that the index
    names, or they are pickled and `allow_pickle` is false.
    """
    file = weights_file([file for file in _FILES if (folder / file).exists()]) or WEIGHTS
    if is_pickled(file) and not allow_pickle:
        raise InputError(f"{folder}: {PICKLE_ADVICE}")
    read = read_pickle if is_pickled(file) else read_safetensors
    if not file.endswith(_INDEX):
        return read(folder / file)
    by_shard = _weights_by_shard(folder / file)
    for shard in by_shard:  # Before any is read, which takes long.
        if not (folder / shard).exists():
            raise InputError(f"{folder / file}: names {shard}, which is not there; all {len(by_shard)} are needed")
    weights: dict[str, Tensor] = {}
    for shard, names in by_shard.items():
        of_shard = read(folder / shard)
        if missing := [name for name in names if name not in of_shard]:
            raise InputError(f"{folder / file}: names {missing[0]!r:.120} in {shard}, which does not have it")
        if repeated := weights.keys() & of_shard.keys():
            raise InputError(f"{folder / shard}: has {min(repeated)!r:.120}, as an earlier shard has")
        weights |= of_shard
    return weights


def digest_of_weights(folder: Path) -> str:
    """SHA-256 of the file of the weights in a folder; of shards, of their digests."""
    file = weights_file([file for file in _FILES if (folder / file).exists()]) or WEIGHTS
    return combined([digest_of_file(folder / shard) for shard in shards_of(folder / file)])


def combined(digests: list[str]) -> str:
    """The only digest, or the SHA-256 of several."""
    return digests[0] if len(digests) == 1 else sha256("\n".join(digests).encode()).hexdigest()
