"""Memory of a machine: whether a model fits, and the size of batches for `batch_tokens: auto`."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mt_cli.config.sections import Config
from mt_cli.data.prepare import Data
from mt_cli.errors import DeviceMemoryError
from mt_cli.machine.console import say
from mt_cli.machine.devices import memory_of, pick_precision
from mt_cli.machine.storage import format_bytes
from mt_cli.model.trainable import freeze
from mt_cli.model.transformer import Transformer, outline
from mt_cli.training.gradients import fits_memory, largest_batch
from mt_cli.training.objective import Objective

_SMALLEST_BATCH, _LARGEST_BATCH, _BATCHES_PER_EPOCH = 4_096, 131_072, 100
_BYTES_PER_PARAMETER = 16


def check_memory(config: Config, sizes: Sequence[int], device: torch.device, num_processes: int) -> None:
    """Raise DeviceMemoryError if a device cannot hold the model of a config with vocabularies of these `sizes`."""
    num_parameters = sum(weight.numel() for weight in outline(config.model, *sizes).parameters())
    shared_by = num_processes if config.training.is_sharded(num_processes) else 1
    needed, available = num_parameters * _BYTES_PER_PARAMETER // shared_by, memory_of(device)
    if needed > available:
        raise DeviceMemoryError(
            f"a model of {num_parameters:,} parameters takes {format_bytes(needed)} to train (weights, gradients and "
            f"two moments of each) and {device} has {format_bytes(available)}; use smaller sizes in `model`"
        )


def automatic_batch_tokens(config: Config, data: Data, device: torch.device) -> int:
    """Number of tokens for `batch_tokens: auto`; on a GPU, by trying batches of the longest pairs."""
    size = _SMALLEST_BATCH
    if device.type == "cuda":
        model = Transformer(config.model, *(tokenizer.vocab_size for tokenizer in data.tokenizers))
        freeze(model, config.init.freeze)
        objective = Objective(model.to(device), config.training)
        dtype = pick_precision(config.training.precision, device)
        source = target = config.corpus.max_tokens
        largest = _LARGEST_BATCH
        if not config.corpus.is_streaming:
            lengths = data.encoded["train"].lengths()
            most = config.training.most_concatenated
            source, target = (min(config.corpus.max_tokens, most * int(side.max())) for side in lengths)
            largest = min(_LARGEST_BATCH, int(lengths.max(axis=0).sum()) // _BATCHES_PER_EPOCH)
        size = largest_batch(
            lambda size: fits_memory(objective, dtype, source + 1, target + 1, size), _SMALLEST_BATCH, largest
        )
        del model, objective
        torch.cuda.empty_cache()
    say(f"training.batch_tokens: auto is {size:,} here")
    return size


def with_batch_tokens(config: Config, size: int) -> Config:
    """Config with this number for `training.batch_tokens`."""
    return config.model_copy(update={"training": config.training.model_copy(update={"batch_tokens": size})})
