"""Weights of other programs in untrusted files: safetensors, and pickles of PyTorch, of which only tensors are read."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mt_cli.config.sections import ModelConfig
from mt_cli.errors import InputError, one_line, reason
from mt_cli.model.transformer import Transformer, outline
from mt_cli.runtime.files import check_regular, reading

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Read the weights in a safetensors file, in fp32; raises InputError if it is damaged or has other values."""
    with reading(path):
        check_regular(path)
        try:
            weights = load_file(path)
        except SafetensorError as error:
            raise InputError(f"{path}: cannot be read: {one_line(error)}") from None
    return _in_fp32(path, weights)


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Read the weights in a pickle of PyTorch, as `read_safetensors`; the loader runs no code."""
    with reading(path):
        check_regular(path)
    try:
        with warnings.catch_warnings(action="ignore"):
            weights = torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # For damaged content, `torch.load` raises errors of many types.
        raise InputError(f"{path}: is damaged, or holds more than tensors ({type(error).__name__})") from None
    return _in_fp32(path, weights)


def _in_fp32(path: Path, weights: object) -> dict[str, Tensor]:
    """Weights by name in fp32; raises InputError for values that are no dense tensors of floating-point numbers."""
    if not isinstance(weights, dict) or not all(isinstance(name, str) for name in weights):
        raise InputError(f"{path}: holds other values than the weights of a model")
    for name, weight in weights.items():
        is_dense = isinstance(weight, Tensor) and weight.is_cpu and weight.layout == torch.strided
        if not is_dense or weight.dtype not in _FLOATS or weight.nbytes > weight.untyped_storage().nbytes():
            raise InputError(f"{path}: {name!r:.120} is no dense tensor of floating-point numbers")
    return {name: weight.detach().float() for name, weight in weights.items()}


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
        model.load_state_dict({name: weight.to("meta") for name, weight in renamed.items()})
    except (KeyError, IndexError, RuntimeError, ValueError) as error:
        raise InputError(f"{folder}: its weights do not fit its config: {reason(error)}") from None
    for name, weight in model.named_parameters():  # A tied weight, which has several names, stays one.
        torch.utils.swap_tensors(weight, nn.Parameter(renamed[name].clone(), weight.requires_grad))
    return model
