"""Whether a machine can hold a model, and how large its batches may be."""

from __future__ import annotations

import torch

from mt_cli.config.sections import Config
from mt_cli.console import say
from mt_cli.errors import DeviceMemoryError
from mt_cli.experiment.data import Data
from mt_cli.hardware import memory_of, pick_precision
from mt_cli.model.transformer import Transformer, outline
from mt_cli.objective import Objective
from mt_cli.storage import format_bytes
from mt_cli.training import fits_memory, largest_batch


def new_model(config: Config, data: Data, device: torch.device) -> Transformer:
    """The model of a config on its device; raises DeviceMemoryError if the machine cannot hold it."""
    sizes = [tokenizer.vocab_size for tokenizer in data.tokenizers]
    num_parameters = sum(weight.numel() for weight in outline(config.model, *sizes).parameters())
    needed, there = num_parameters * _BYTES_PER_PARAMETER, memory_of(device)
    if needed > there:
        raise DeviceMemoryError(
            f"a model of {num_parameters:,} parameters takes {format_bytes(needed)} to train (weights, gradients and "
            f"two moments of each) and {device} has {format_bytes(there)}; lower the sizes of the model"
        )
    return Transformer(config.model, *sizes).to(device)


def resolve_batch_tokens(config: Config, model: Transformer, data: Data) -> Config:
    """The config with a number for `batch_tokens: auto`, found by trying the longest pairs on a GPU."""
    if config.training.batch_tokens != "auto":
        return config
    device = next(model.parameters()).device
    size = _SMALLEST_BATCH
    if device.type == "cuda":
        objective = Objective(model, config.training.label_smoothing)
        dtype = pick_precision(config.training.precision, device)
        if config.corpus.is_streaming:
            source, target, largest = config.corpus.max_tokens, config.corpus.max_tokens, _LARGEST_BATCH
        else:
            lengths = data.encoded["train"].lengths()
            source, target = (int(side.max()) for side in lengths)
            largest = min(_LARGEST_BATCH, int(lengths.max(axis=0).sum()) // _BATCHES_PER_EPOCH)
        size = largest_batch(
            lambda size: fits_memory(objective, dtype, source + 1, target + 1, size), _SMALLEST_BATCH, largest
        )
        torch.cuda.empty_cache()
    say(f"training.batch_tokens: auto is {size:,} here")
    return with_batch_tokens(config, size)


def with_batch_tokens(config: Config, size: int) -> Config:
    """The config with a number for `training.batch_tokens`."""
    return config.model_copy(update={"training": config.training.model_copy(update={"batch_tokens": size})})


_SMALLEST_BATCH, _LARGEST_BATCH, _BATCHES_PER_EPOCH = 4_096, 131_072, 100
_BYTES_PER_PARAMETER = 16
