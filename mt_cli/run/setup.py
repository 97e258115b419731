"""Builds what a run works with, once: model, optimizer, batches and validator. `plan.py` decided their sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from mt_cli import hooks
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.config.training import TrainingConfig
from mt_cli.machine.devices import describe_hardware, pick_precision, precision_of, seed_everything
from mt_cli.machine.group import Group
from mt_cli.model.trainable import add_adapters, freeze
from mt_cli.model.transformer import Transformer
from mt_cli.run.data import Data, estimate_epoch, fingerprints_of, training_pairs
from mt_cli.run.data_report import describe_data
from mt_cli.run.plan import Plan
from mt_cli.run.validation import Validator
from mt_cli.tokenizer.tokenizer import TokenizerPair
from mt_cli.training.averaging import MovingAverage
from mt_cli.training.gradients import Gradients
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import count_steps


class Setup:
    """What a run works with, from its first step to its last. Loading a checkpoint and training change its weights.

    If the model is sharded, the main process alone has its weights, and they are on the CPU.
    """

    def __init__(self, plan: Plan, data: Data, directory: RunDirectory, device: torch.device, group: Group) -> None:
        config, training = plan.config, plan.config.training
        self.plan, self.config, self.data, self.directory, self.group = plan, config, data, directory, group
        self.device, self.dtype = device, pick_precision(training.precision, device)
        self.precision = precision_of(self.dtype)
        self.is_sharded = training.is_sharded(group.size)
        self.model = model = self._build()
        self.num_parameters = sum(weight.numel() for weight in model.parameters())
        self.num_trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        self.objective = Objective(model, training)
        self.optimizer = build_optimizer(model, training)
        self.average = None if training.ema_decay is None else MovingAverage(model, training.ema_decay)
        self.validator = Validator(self.objective, data, config, self.dtype, device, plan.state.longest_source)
        own = group.on_main(lambda: fingerprints_of(data.corpora, config) | directory.frozen_file_digests())
        self.fingerprints = own or {}
        """Of the main process alone, which saves them."""
        self.pairs = training_pairs(data, config, group)
        self._count_steps(plan.state.position.num_processes)

    def _build(self) -> Transformer:
        """The model, with adapters if the config has them; with `shard_model`, of other processes, only its shapes."""
        config = self.config
        model = new_model(config, self.data.tokenizers)
        if not self.is_sharded:
            model.to(self.device)
        if config.init.adapter_rank is not None:
            self.group.on_main(lambda: self.directory.load_frozen_weights(model))
            add_adapters(model, config.init)
        elif self.plan.parent is not None:
            self.plan.parent.load_weights_into(model)
        return (self.group.on_main(lambda: model) or hooks.skeleton(model)) if self.is_sharded else model

    def _count_steps(self, num_processes: int) -> None:
        """Count the steps of a run that began with this number of processes."""
        training, num_batches = self.config.training, estimate_epoch(self.pairs, self.config)
        self.step_tokens = training.tokens_per_batch * training.micro_batches_per_step * num_processes
        """Largest number of tokens of a step."""
        self.steps_per_epoch = None
        if num_batches is not None and training.micro_batches_growth_steps is None:
            self.steps_per_epoch = count_steps(training, num_processes, num_batches, num_epochs=1)
        in_epochs = count_steps(training, num_processes, num_batches or 0, training.max_epochs or 0)
        self.num_steps = min((limit for limit in (training.max_steps, in_epochs) if limit), default=None)

    def averaged(self) -> AbstractContextManager[None]:
        """Context manager inside which the model has its averaged weights, if there is an average."""
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
        num_threads, number = torch.get_num_threads(), self.group.size
        together = f"; {number} processes" if number > 1 else ""
        if (num_micro_batches := self.step_tokens // training.tokens_per_batch) % number:
            together += f", some of which wait: a step has {num_micro_batches} micro-batches"
        threads = f", {num_threads} thread{'s' * (num_threads > 1)}" if self.device.type == "cpu" else ""
        together += ", sharded" if self.is_sharded else ""
        directions = dict.fromkeys(f"{one} to {other}" for one, other in config.corpus.languages_of("train"))
        return [
            f"{config.name}: {', '.join(directions)}, into {self.directory.path}",
            *(f"  {line}" for line in describe_data(self.data, config)),
            f"  vocabulary  {entries} ({config.tokenizer.algorithm}{learned})",
            f"  model       {self.num_parameters:,} parameters{frozen}",
            f"  steps       {steps}; {self.step_tokens:,} tokens each at most",
            f"  watch       tensorboard --logdir {self.directory.path.parent}",
            f"  device      {describe_hardware(self.device)['device']}, {self.precision}{threads}{together}",
            *notes_on_device(config, self.device),
        ]


def notes_on_device(config: Config, device: torch.device) -> list[str]:
    """A note if the config was written for a CPU, with a smaller model than a GPU could train."""
    if config.training.planned_for != "cpu" or device.type == "cpu":
        return []
    return [
        "note: mt init wrote this config on a CPU, for a smaller model than these pairs allow (training.planned_for); "
        "mt init on this machine writes one for the GPU"
    ]


def note_on_patience(training: TrainingConfig, steps_per_epoch: int | None, num_steps: int | None) -> str | None:
    """A note if `training.patience` cannot end a run of so many steps, or if it waits for a long warm-up."""
    every = training.validate_every_steps or steps_per_epoch
    if training.patience is None or every is None:
        return None
    # The first validation is the best one so far, and those of the warm-up do not count.
    first = max(2, training.warmup_steps // every + 1)
    earliest = every * (first + training.patience - 1)
    if num_steps is not None and earliest >= num_steps:
        return (
            f"training.patience {training.patience} cannot end this run: the earliest step for that is {earliest:,} (a "
            f"validation every {every:,} steps; those of the {training.warmup_steps:,} warm-up steps do not count), "
            f"and the run ends at step {num_steps:,}, by training.max_steps or max_epochs"
        )
    if training.warmup_steps >= every * training.patience:
        return (
            f"training.patience {training.patience} cannot end this run before step {earliest:,}: validations during "
            f"the {training.warmup_steps:,} steps of training.warmup_steps do not count"
        )
    return None


def new_model(config: Config, tokenizers: TokenizerPair) -> Transformer:
    """The model of a config, on the CPU, with random weights that depend only on the seed, and with frozen parts."""
    seed_everything(config.training.seed)
    model = Transformer(config.model, *(tokenizer.vocab_size for tokenizer in tokenizers))
    freeze(model, config.init.freeze)
    return model


class ReplicatedState:
    """The model, the optimizer and the average of a setup, whole in every process."""

    gradients: Gradients
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self.gradients = Gradients(setup.objective, setup.dtype, setup.group)
        self.optimizer, self.average = setup.optimizer, setup.average

    @contextmanager
    def averaged(self) -> Iterator[Transformer]:
        """Context manager inside which the setup's model has its averaged weights, if any; gives one to validate."""
        with self._setup.averaged():
            yield self._setup.model

    def sync_to_setup(self) -> None:
        """Copy what training has changed into the setup: here nothing, because training changes the setup itself."""
