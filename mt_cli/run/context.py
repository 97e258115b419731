"""Context of a training run, built once: model, optimizer, batches and validator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

from mt_cli.batching.batches import TrainingPairs
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.data.prepare import Data, estimate_epoch, fingerprints_of
from mt_cli.features.fine_tuning.parent import ParentRun
from mt_cli.features.training_pairs import training_pairs
from mt_cli.machine.devices import pick_precision, precision_of, seed_everything
from mt_cli.machine.group import Group
from mt_cli.model.adapters import add_adapters, freeze
from mt_cli.model.loss import Objective
from mt_cli.model.transformer import Transformer
from mt_cli.run.plan import Plan
from mt_cli.run.validation import Validator
from mt_cli.tokenizer.tokenizer import TokenizerPair
from mt_cli.training.averaging import MovingAverage
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import count_steps
from mt_cli.training.update import is_worth_compiling, reason_against_graphs


@dataclass(frozen=True)
class Length:
    """Length of a run in steps."""

    step_tokens: int
    """Largest number of tokens of a step."""
    steps_per_epoch: int | None
    """Number of steps in an epoch; None for a stream."""
    num_steps: int | None
    """Largest number of steps; None if only time or patience ends the run."""


@dataclass(frozen=True)
class TrainingContext:
    """Objects that training uses from first step to last. Loading a checkpoint and training change the weights."""

    plan: Plan
    data: Data
    directory: RunDirectory
    device: torch.device
    dtype: torch.dtype
    group: Group
    objective: Objective
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None
    validator: Validator
    pairs: TrainingPairs
    length: Length
    fingerprints: Mapping[str, str]
    """Fingerprints of corpora and frozen files; empty except in the main process, which saves them."""

    @property
    def config(self) -> Config:
        """Complete config of the run."""
        return self.plan.config

    @property
    def model(self) -> Transformer:
        """Model that is trained and saved."""
        return self.objective.model

    @property
    def precision(self) -> str:
        """Name of the number format of training."""
        return precision_of(self.dtype)

    @contextmanager
    def averaged(self) -> Iterator[Transformer]:
        """Context manager inside which the model has its averaged weights, if any; yields the model."""
        with nullcontext() if self.average is None else self.average.applied():
            yield self.model

    @property
    def reason_against_graphs(self) -> str | None:
        """Reason why steps are not recorded as CUDA graphs, in a few words; None if they are."""
        return reason_against_graphs(self.config.training, self.config.model, self.device, self.dtype)

    @property
    def compiles_layers(self) -> bool:
        """Whether the layers are compiled. The length of the whole run decides, so that a run resumes as it began."""
        training, num_steps = self.config.training, self.length.num_steps
        if training.compile != "auto" or self.reason_against_graphs is not None:
            return training.compile is True and self.reason_against_graphs is None
        num_tokens = None if num_steps is None else num_steps * self.length.step_tokens
        return is_worth_compiling(self.num_parameters, num_tokens)

    @property
    def num_parameters(self) -> int:
        """Number of parameters; shared parameters count once."""
        return sum(weight.numel() for weight in self.model.parameters())


def build_context(
    plan: Plan, data: Data, directory: RunDirectory, device: torch.device, group: Group, parent: ParentRun | None
) -> TrainingContext:
    """Build model, optimizer, batches and validator; `parent` gives the first weights of a new run."""
    config, training = plan.config, plan.config.training
    dtype = pick_precision(training.precision, device)
    model = _build_model(config, data.tokenizers, directory, device, group, parent)
    objective = Objective(model, training)
    pairs = training_pairs(data, config, group)
    fingerprints = group.on_main(lambda: fingerprints_of(data.corpora, config) | directory.frozen_file_digests())
    return TrainingContext(
        plan,
        data,
        directory,
        device,
        dtype,
        group,
        objective,
        build_optimizer(model, training),
        None if training.ema_decay is None else MovingAverage(model, training.ema_decay),
        Validator(objective, data, config, dtype, device, plan.longest_source),
        pairs,
        _length(config, pairs, plan.num_processes),
        fingerprints or {},
    )


def _build_model(
    config: Config,
    tokenizers: TokenizerPair,
    directory: RunDirectory,
    device: torch.device,
    group: Group,
    parent: ParentRun | None,
) -> Transformer:
    """Build the model, with adapters if the config has them."""
    model = new_model(config, tokenizers).to(device)
    if config.init.adapter_rank is not None:
        group.on_main(lambda: directory.load_frozen_weights(model))
        add_adapters(model, config.init)
    elif parent is not None:
        parent.load_weights_into(model)
    return model


def _length(config: Config, pairs: TrainingPairs, num_processes: int) -> Length:
    """Count the steps of a run that began with this number of processes."""
    training, num_batches = config.training, estimate_epoch(pairs, config)
    steps_per_epoch = None
    if num_batches is not None:
        steps_per_epoch = count_steps(training, num_processes, num_batches, num_epochs=1)
    in_epochs = count_steps(training, num_processes, num_batches or 0, training.max_epochs or 0)
    return Length(
        training.tokens_per_batch * training.micro_batches_per_step * num_processes,
        steps_per_epoch,
        min((limit for limit in (training.max_steps, in_epochs) if limit), default=None),
    )


def new_model(config: Config, tokenizers: TokenizerPair) -> Transformer:
    """Model of a config on the CPU, with frozen parts and random weights that depend only on the seed."""
    seed_everything(config.training.seed)
    model = Transformer(config.model, *(tokenizer.vocab_size for tokenizer in tokenizers))
    freeze(model, config.init.freeze)
    return model
