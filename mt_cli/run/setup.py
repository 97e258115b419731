"""Builds what a run works with: model, optimizer and batches, in the sizes that the machine can hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from mt_cli import hooks
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config, TrainingConfig
from mt_cli.errors import DeviceMemoryError
from mt_cli.machine.console import say
from mt_cli.machine.devices import describe_hardware, memory_of, pick_device, pick_precision, precision_of
from mt_cli.machine.group import is_main, num_processes
from mt_cli.machine.storage import format_bytes
from mt_cli.model.trainable import freeze
from mt_cli.model.transformer import Transformer, outline
from mt_cli.run.data import Data, count_epoch, fingerprints_of, training_pairs
from mt_cli.run.data_report import describe_data
from mt_cli.run.validation import Validator
from mt_cli.training.averaging import MovingAverage
from mt_cli.training.gradients import Gradients, fits_memory, largest_batch
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import count_steps

_SMALLEST_BATCH, _LARGEST_BATCH, _BATCHES_PER_EPOCH = 4_096, 131_072, 100
_BYTES_PER_PARAMETER = 16


class Setup:
    """What a run works with, from its first step to its last. Training and loading change weights and average.

    If the model is sharded, the main process alone has its weights, and they are on the CPU.
    """

    def __init__(self, directory: RunDirectory, config: Config, model: Transformer, data: Data) -> None:
        training = config.training
        self.is_sharded = is_sharded(training)
        if self.is_sharded and not is_main():
            model = hooks.skeleton(model)
        self.directory, self.config, self.model, self.data = directory, config, model, data
        self.device = pick_device(training.device) if self.is_sharded else next(model.parameters()).device
        self.dtype = pick_precision(training.precision, self.device)
        self.precision = precision_of(self.dtype)
        self.num_parameters = sum(weight.numel() for weight in model.parameters())
        self.num_trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        self.objective = Objective(model, training)
        self.optimizer = build_optimizer(model, training)
        self.average = None if training.ema_decay is None else MovingAverage(model, training.ema_decay)
        self.validator = Validator(self.objective, data, config, self.dtype, self.device)
        self.fingerprints = fingerprints_of(data.corpora, config) | directory.fixed_digests()
        self.pairs = training_pairs(data, config)
        self._num_batches = count_epoch(self.pairs, config)
        self.count_steps(num_processes())

    def count_steps(self, num_processes: int) -> None:
        """Count the steps of a run that began with this number of processes."""
        training, num_batches = self.config.training, self._num_batches
        self.step_tokens = training.tokens_per_batch * training.micro_batches_per_step * num_processes
        """Largest number of tokens of a step."""
        self.steps_per_epoch = None
        if num_batches is not None and training.micro_batches_growth_steps is None:
            self.steps_per_epoch = count_steps(training, num_processes, num_batches, num_epochs=1)
        in_epochs = count_steps(training, num_processes, num_batches or 0, training.max_epochs or 0)
        self.num_steps = min((limit for limit in (training.max_steps, in_epochs) if limit), default=None)

    def deployed(self) -> AbstractContextManager[None]:
        """Context manager inside which the model has the weights to translate with: their average, if there is one."""
        return nullcontext() if self.average is None else self.average.applied()

    def describe(self) -> list[str]:
        """What will be trained on what, for people, several lines."""
        config, training = self.config, self.config.training
        source, target = (tokenizer.vocab_size for tokenizer in self.data.tokenizers)
        entries = f"{source:,} entries, shared" if config.tokenizer.shared else f"{source:,} and {target:,} entries"
        sample = config.tokenizer.sample_pairs
        is_sample = sample is not None and len(self.data.corpora.get("train", ())) > sample
        learned = f", trained on {sample:,} of the pairs" if is_sample else ""
        is_growing = training.micro_batches_growth_steps is not None
        unknown = "of growing size" if is_growing else "as many an epoch as the stream gives"
        steps = f"{self.steps_per_epoch:,} an epoch" if self.steps_per_epoch else unknown
        steps += f", at most {self.num_steps:,} in all" if self.num_steps else ""
        frozen = f", {self.num_trained:,} trained" if self.num_trained < self.num_parameters else ""
        num_threads, number = torch.get_num_threads(), num_processes()
        together = f"; {number} processes" if number > 1 else ""
        if (num_micro_batches := self.step_tokens // training.tokens_per_batch) % number:
            together += f", some of which wait: a step has {num_micro_batches} micro-batches"
        threads = f", {num_threads} thread{'s' * (num_threads > 1)}" if self.device.type == "cpu" else ""
        together += ", sharded" if self.is_sharded else ""
        return [
            f"{config.name}: {config.corpus.source} to {config.corpus.target}, into {self.directory.path}",
            *(f"  {line}" for line in describe_data(self.data, config)),
            f"  vocabulary  {entries} ({config.tokenizer.algorithm}{learned})",
            f"  model       {self.num_parameters:,} parameters{frozen}",
            f"  steps       {steps}; {self.step_tokens:,} tokens each at most",
            f"  watch       tensorboard --logdir {self.directory.path.parent}",
            f"  device      {describe_hardware(self.device)['device']}, {self.precision}{threads}{together}",
        ]


def is_sharded(config: TrainingConfig) -> bool:
    """Whether the processes of a training share out its weights."""
    return config.shard_model and num_processes() > 1


def new_model(config: Config, data: Data, device: torch.device, parent: hooks.Parent | None = None) -> Transformer:
    """The model of a config on its device, with the weights of its parent if there is one, and frozen parts.

    If it will be sharded, it is on the CPU. Raises DeviceMemoryError if the machine cannot hold it.
    """
    sizes = [tokenizer.vocab_size for tokenizer in data.tokenizers]
    num_parameters = sum(weight.numel() for weight in outline(config.model, *sizes).parameters())
    shared_by = num_processes() if is_sharded(config.training) else 1
    needed, available = num_parameters * _BYTES_PER_PARAMETER // shared_by, memory_of(device)
    if needed > available:
        raise DeviceMemoryError(
            f"a model of {num_parameters:,} parameters takes {format_bytes(needed)} to train (weights, gradients and "
            f"two moments of each) and {device} has {format_bytes(available)}; use smaller sizes in `model`"
        )
    model = Transformer(config.model, *sizes)
    if parent is not None:
        parent.fill(model)
    freeze(model, config.init.freeze)
    return model if is_sharded(config.training) else model.to(device)


def resolve_batch_tokens(config: Config, model: Transformer, data: Data) -> Config:
    """The config with a number for `batch_tokens: auto`; on a GPU, found by trying batches of the longest pairs."""
    if config.training.batch_tokens != "auto":
        return config
    device = next(model.parameters()).device
    size = _SMALLEST_BATCH
    if device.type == "cuda":
        objective = Objective(model, config.training)
        dtype = pick_precision(config.training.precision, device)
        source = target = config.corpus.max_tokens
        largest = _LARGEST_BATCH
        if not config.corpus.is_streaming:
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


class Whole:
    """The model, the optimizer and the average of a setup, whole in every process."""

    gradients: Gradients
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.gradients = Gradients(setup.objective, setup.dtype)
        self.optimizer, self.average = setup.optimizer, setup.average

    @contextmanager
    def deployed(self) -> Iterator[Transformer]:
        """Context manager inside which the setup's model has the weights to translate with; gives one to validate."""
        with self._setup.deployed():
            yield self._setup.model

    def store(self) -> None:
        """Bring the setup up to date."""
