"""Weights of other programs in untrusted files: safetensors, and pickles of PyTorch.

Memory is allocated only after two checks: the declared sizes against the size of the file, and the described model
against the weights. Only tensors are unpickled.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from mt_cli.config.sections import ModelConfig
from mt_cli.errors import InputError, one_line, reason
from mt_cli.machine.storage import check_regular
from mt_cli.model.transformer import Transformer, outline

FLOATS = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
"""Number formats of weights, by their names in safetensors files."""
_MAX_EXPANSION = 4
"""Largest ratio of declared to stored bytes or numbers; one table of embeddings may be declared under four names."""


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the weights in a safetensors file, in fp32; raises InputError if it is damaged or has other values."""
    with _reading(path):
        size = check_regular(path)
        return _in_fp32(load_file(path), size)


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Read the weights in a pickle of PyTorch, as `read_safetensors`; the loader runs no code.

    Weights are mapped where possible: the file must not change while they are used.
    """
    with _reading(path):
        size = check_regular(path)
        with path.open("rb") as file:
            is_zip = file.read(4) == b"PK\x03\x04"
        if is_zip:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
            if any(member.compress_type != zipfile.ZIP_STORED for member in members):
                raise ValueError("it is compressed")
            _check_expansion(size, (member.file_size for member in members))
        # Mapped tensors are never larger than the file. Files from before PyTorch 1.6 cannot be mapped.
        weights = torch.load(path, "cpu", weights_only=True, mmap=is_zip)
        if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights):
            raise ValueError("it holds other values than the weights of a model")
        if wrong := [name for name, weight in weights.items() if not _is_plain(weight)]:
            raise ValueError(f"it holds other values than the weights of a model: {wrong[0][:60]}")
        return _in_fp32({name: weight.detach() for name, weight in weights.items()}, size)


def check_finite(weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless all weights are finite."""
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise ValueError(f"{name} has values that are not finite numbers")


def check_size(planned: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError if the declared model is much larger than the weights in the file.

    The model is on the device `meta`, so that a small file that declares a large model allocates no memory.
    """
    described = sum(weight.numel() for weight in planned.parameters())
    stored = sum(weight.numel() for weight in weights.values())
    if described > _MAX_EXPANSION * stored:
        raise ValueError(f"the model that is described has {described:,} weights, and the file {stored:,}")


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
        planned = outline(config, *vocab_sizes)
        check_finite(weights)
        check_size(planned, weights)
        renamed = rename(planned)
        planned.load_state_dict({name: weight.to("meta") for name, weight in renamed.items()})
        model = Transformer(config, *vocab_sizes)
        model.load_state_dict(renamed)
    except (KeyError, IndexError, RuntimeError, ValueError) as error:
        raise InputError(f"{folder}: its weights do not fit its config: {reason(error)}") from None
    return model


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Context manager that turns errors of libraries into an InputError, and prints no warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except pickle.UnpicklingError:
        raise InputError(f"{path}: is damaged, or holds more than tensors and is not read") from None
    except Exception as error:  # For damaged content, libraries raise errors of many types.
        problem = reason(error) if isinstance(error, OSError) else one_line(error)
        raise InputError(f"{path}: cannot be read: {problem}") from None


def _is_plain(value: object) -> bool:
    """Whether a value is a dense tensor on the CPU that lies within its storage."""
    if not isinstance(value, Tensor) or type(value) not in (Tensor, nn.Parameter) or not value.is_cpu:
        return False
    if value.layout != torch.strided or value.is_nested:
        return False
    steps = zip(value.shape, value.stride(), strict=True)
    end = value.storage_offset() + sum((size - 1) * stride for size, stride in steps) + 1 if value.numel() else 0
    return end * value.element_size() <= value.untyped_storage().nbytes()


def _in_fp32(weights: Mapping[str, Tensor], file_size: int) -> dict[str, Tensor]:
    """Check the types and sizes of weights; return them in fp32."""
    for name, weight in weights.items():
        if weight.dtype not in FLOATS.values():
            raise ValueError(f"{name} has values of type {weight.dtype}, not finite numbers in floating point")
    _check_expansion(file_size, (weight.numel() * weight.element_size() for weight in weights.values()))
    return {name: weight.float() for name, weight in weights.items()}


def _check_expansion(file_size: int, sizes: Iterable[int]) -> None:
    total = sum(sizes)
    if total > _MAX_EXPANSION * file_size:
        raise ValueError(f"it declares {total:,} bytes, and has {file_size:,}")
