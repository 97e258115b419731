"""Creation of a run: prepare its data, train its tokenizers, check its memory and make its directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from mt_cli.checkpoint.checkpoint import save_checkpoint
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import Data, read
from mt_cli.errors import DeviceMemoryError
from mt_cli.features.data_check.problems import find_problems, refuse_processed
from mt_cli.features.fine_tuning.parent import ParentRun
from mt_cli.machine.console import say
from mt_cli.machine.devices import limited_memory, memory_of, pick_precision
from mt_cli.machine.storage import format_bytes
from mt_cli.model.transformer import outline
from mt_cli.run.compose import prepare_new, with_batch_tokens
from mt_cli.run.context import new_model
from mt_cli.run.plan import Plan
from mt_cli.training.gradients import fits_memory, largest_batch
from mt_cli.training.objective import Objective

_ROWS_OF_STREAM = 10_000
"""Number of rows of a stream that are examined before a run begins."""


def create_run(
    plan: Plan, directory: RunDirectory, cache: Cache, device: torch.device
) -> tuple[Plan, Data, ParentRun | None]:
    """Prepare the data of a new run, train its tokenizers, and write its directory.

    Return the complete plan, the data, and the run whose weights it begins with.

    An older run in the directory is moved aside only after the corpora have been read and the memory has been checked.
    Raises CorpusError for text that is processed already, DeviceMemoryError, and the errors of `prepare_new`.
    """
    config = plan.config
    if config.init.run is None:  # Before tokenizers are trained; a parent's replayed text is known later.
        _refuse_processed(config, cache)
    config, data, parent = prepare_new(config, cache, directory.path)
    if parent is not None:
        _refuse_processed(config, cache)
    check_memory(config, [tokenizer.vocab_size for tokenizer in data.tokenizers], device)
    if config.training.batch_tokens == "auto":
        config = with_batch_tokens(config, automatic_batch_tokens(config, data, device))
    if plan.replaces_run:
        say(f"The old run was moved to {directory.move_aside()}.")
    directory.create(config, data.tokenizers)
    if parent is not None and config.init.adapter_rank is not None:
        model = new_model(config, data.tokenizers)
        parent.load_weights_into(model)
        save_checkpoint(directory.base_path, model, {})
    plan = replace(plan, config=config, tokenizers=data.tokenizers)
    if parent is not None:
        plan = replace(plan, parents=[parent.run.ancestor], longest_source=parent.run.max_tokens)
    return plan, data, parent


def _refuse_processed(config: Config, cache: Cache) -> None:
    """Raise CorpusError if the training text (or the first rows of a stream) is processed already and not accepted."""
    refuse_processed(find_problems(read(config, cache, _ROWS_OF_STREAM), config, cache))


_SMALLEST_BATCH, _BATCHES_PER_EPOCH = 4_096, 100
LARGEST_BATCH = 32_768
"""Largest micro-batch in tokens. Above it, an H100 is not faster, and a model learns more from more steps."""
_BYTES_PER_PARAMETER = 16


def check_memory(config: Config, sizes: Sequence[int], device: torch.device) -> None:
    """Raise DeviceMemoryError if a device cannot hold the model of a config with vocabularies of these `sizes`."""
    num_parameters = sum(weight.numel() for weight in outline(config.model, *sizes).parameters())
    needed, available = num_parameters * _BYTES_PER_PARAMETER, memory_of(device)
    if needed > available:
        raise DeviceMemoryError(
            f"a model of {num_parameters:,} parameters takes {format_bytes(needed)} to train (weights, gradients and "
            f"two moments of each) and {device} has {format_bytes(available)}; use smaller sizes in `model`"
        )


def automatic_batch_tokens(config: Config, data: Data, device: torch.device) -> int:
    """Number of tokens for `batch_tokens: auto`; on a GPU, by trying batches of the longest pairs."""
    size = _SMALLEST_BATCH
    if device.type == "cuda":
        objective = Objective(new_model(config, data.tokenizers).to(device), config.training)
        dtype = pick_precision(config.training.precision, device)
        source = target = config.corpus.max_tokens
        largest = LARGEST_BATCH
        if not config.corpus.is_streaming:
            lengths = data.encoded["train"].lengths()
            most = config.training.most_concatenated
            source, target = (min(config.corpus.max_tokens, most * int(side.max())) for side in lengths)
            largest = min(LARGEST_BATCH, int(lengths.max(axis=0).sum()) // _BATCHES_PER_EPOCH)
        with limited_memory(device):
            size = largest_batch(
                lambda size: fits_memory(objective, dtype, source + 1, target + 1, size), _SMALLEST_BATCH, largest
            )
        del objective
        torch.cuda.empty_cache()
    say(f"training.batch_tokens: auto is {size:,} here")
    return size
