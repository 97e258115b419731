"""Directory of a new run; model, optimizer, pairs and validator of a training, built once; their description."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from mt_cli.advice.problems import find_problems, refuse_processed
from mt_cli.checkpoint.checkpoint import save_checkpoint
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.parent import ParentRun
from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import Config
from mt_cli.corpus.cache import Cache
from mt_cli.data.batches import TrainingPairs
from mt_cli.data.prepare import Data, estimate_epoch, read
from mt_cli.data.statistics import describe_data
from mt_cli.data.training_pairs import training_pairs
from mt_cli.exchange.destinations import describe_destinations
from mt_cli.model.adapters import add_adapters
from mt_cli.model.loss import Objective
from mt_cli.model.packed_attention import has_row_kernels
from mt_cli.model.transformer import Transformer
from mt_cli.run.config import new_model, prepare_new, with_fitting_batches
from mt_cli.run.rounds import Rounds
from mt_cli.run.validation import Validator
from mt_cli.runtime.console import say
from mt_cli.runtime.devices import describe_hardware, pick_precision, precision_of
from mt_cli.runtime.group import Group
from mt_cli.training.averaging import MovingAverage
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.plan import FIRST_ROUND, SHARE_OF_ROUNDS, Length
from mt_cli.training.steps import count_steps
from mt_cli.training.update import is_worth_compiling, reason_against_graphs

_ROWS_OF_STREAM = 10_000
"""Number of rows of a stream that are examined before a run begins."""


@dataclass(frozen=True)
class Run:
    """Run without its model: what stays when training has ended."""

    config: Config
    """Complete config."""
    data: Data
    directory: RunDirectory
    device: torch.device
    group: Group

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of activations in training."""
        return pick_precision(self.config.training.precision, self.device)

    @property
    def precision(self) -> str:
        return precision_of(self.dtype)


@dataclass(frozen=True)
class Setup:
    """Objects that training uses from first step to last. Loading a checkpoint and training change the weights."""

    run: Run
    objective: Objective
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None
    validator: Validator
    pairs: TrainingPairs
    """Pairs of `train`, without those of rounds."""
    rounds: Rounds | None
    length: Length
    fingerprints: Mapping[str, str]
    """Fingerprints of corpora and frozen files; empty except in the main process, which saves them."""

    @property
    def model(self) -> Transformer:
        return self.objective.model

    def num_steps(self, state: RunState) -> int | None:
        """Number of updates of the run, by its plan if it has one; None if only patience or time ends it."""
        plan = state.plan_for(self.run.config.training)
        return plan.last_step(self.length) if plan else self.length.num_steps

    @property
    def average_weights(self) -> Mapping[str, Tensor] | None:
        """Moving average of the weights by name; None without `training.ema_decay`."""
        return None if self.average is None else self.average.weights

    @contextmanager
    def averaged(self) -> Iterator[Transformer]:
        """Context manager inside which the model has its averaged weights, if any; yields the model."""
        with nullcontext() if self.average is None else self.average.applied():
            yield self.model

    @property
    def reason_against_graphs(self) -> str | None:
        """Reason why steps are not captured as CUDA graphs, in a few words; None if they are."""
        config = self.run.config
        return reason_against_graphs(config.training, config.model, self.run.device, self.run.dtype)

    @property
    def compiles_layers(self) -> bool:
        """True if the layers are compiled. The length of the whole run decides, so that a run resumes as it began."""
        training, num_steps = self.run.config.training, self.length.num_steps
        if training.compile != "auto" or self.reason_against_graphs is not None:
            return training.compile is True and self.reason_against_graphs is None
        num_tokens = None if num_steps is None else num_steps * self.length.step_tokens
        return is_worth_compiling(self.num_parameters, num_tokens)

    @property
    def num_parameters(self) -> int:
        """Number of parameters; shared parameters count once."""
        return sum(weight.numel() for weight in self.model.parameters())


def create(
    config: Config, directory: RunDirectory, cache: Cache, device: torch.device, replaces_run: bool
) -> tuple[Config, Data, ParentRun | None]:
    """Prepare the data of a new run, train its tokenizers, and write its directory.

    Return the complete config, the data, and the run whose weights it begins with. If it replaces an older run in the
    directory, that run is moved aside only after the corpora have been read and the memory has been checked.

    Raises CorpusError for text that is processed already, DeviceMemoryError, and the errors of `prepare_new`.
    """
    if config.init.run is None:  # Before tokenizers are trained.
        _refuse_processed(config, cache)
    config, data, parent = prepare_new(config, cache, directory.path)
    if parent is not None:  # The parent decides how text is normalized.
        _refuse_processed(config, cache)
    config = with_fitting_batches(config, data, device)
    if replaces_run:
        say(f"The old run was moved to {directory.move_aside()}.")
    directory.create(config, data.tokenizers)
    if parent is not None and config.init.adapter_rank is not None:
        model = new_model(config, data.tokenizers)
        parent.load_weights_into(model)
        save_checkpoint(directory.base_path, model, {"parents": [asdict(parent.run.ancestor)]})
    return config, data, parent


def _refuse_processed(config: Config, cache: Cache) -> None:
    """Raise CorpusError if the training text (or the first rows of a stream) is processed already and not accepted."""
    refuse_processed(find_problems(read(config, cache, _ROWS_OF_STREAM), config, cache))


def build_setup(run: Run, state: RunState, parent: ParentRun | None) -> Setup:
    """Build model, optimizer, batches and validator.

    `state` is the state that training begins with, before its weights are loaded; `parent` gives the first weights of a
    new run.
    """
    config, data, training = run.config, run.data, run.config.training
    model = new_model(config, data.tokenizers).to(run.device)
    if config.init.adapter_rank is not None:
        run.directory.load_frozen_weights(model)
        add_adapters(model, config.init)
    elif parent is not None:
        parent.load_weights_into(model)
    objective = Objective(model, training)
    pairs = training_pairs(data, config, run.group)
    fingerprints = run.group.on_main(lambda: data.fingerprints(config) | run.directory.tokenizer_digests())
    length = _length(config, data, pairs, state.position.num_processes)
    seen = state.longest_source, state.sentences_seen
    validator = Validator(model, data, config, run.dtype, run.device, *seen)
    return Setup(
        run,
        objective,
        build_optimizer(model, training),
        None if training.ema_decay is None else MovingAverage(model, training.ema_decay),
        validator,
        pairs,
        Rounds(run, validator, length.steps_per_epoch or 1) if data.monolingual else None,
        length,
        fingerprints or {},
    )


def _length(config: Config, data: Data, pairs: TrainingPairs, num_processes: int) -> Length:
    """Count the steps of a run that began with this number of processes, and the tokens that it scores."""
    training, num_batches = config.training, estimate_epoch(pairs, config)
    steps_per_epoch = None
    if num_batches is not None:
        steps_per_epoch = count_steps(training, num_processes, num_batches, num_epochs=1)
    in_epochs = count_steps(training, num_processes, num_batches or 0, training.max_epochs or 0)
    tokens = {name: counts.target.num_tokens for name, counts in data.statistics.items()}
    scored = [name for name in tokens if name not in ("train", "valid")] or ["valid"]
    texts = config.corpus.monolingual
    return Length(
        min((limit for limit in (training.max_steps, in_epochs) if limit), default=None),
        steps_per_epoch,
        training.tokens_per_batch * training.micro_batches_per_step * num_processes,
        tokens["valid"],
        sum(map(tokens.__getitem__, scored)),
        SHARE_OF_ROUNDS * (1 - FIRST_ROUND) if texts and texts.sides_of_rounds else 0.0,
    )


def describe_training(setup: Setup, cache: Cache) -> list[str]:
    """Data, model, length and device of a run, and notes, as lines of text."""
    config, data = setup.run.config, setup.run.data
    num_trained = sum(weight.numel() for weight in setup.model.parameters() if weight.requires_grad)
    source, target = (tokenizer.vocab_size for tokenizer in data.tokenizers)
    entries = f"{source:,} entries, shared" if config.tokenizer.shared else f"{source:,} and {target:,} entries"
    frozen = f", {num_trained:,} trained" if num_trained < setup.num_parameters else ""
    directions = dict.fromkeys(f"{source} to {target}" for source, target in config.corpus.languages_of("train"))
    # `mt data check` reports the problems of the kind `text`.
    problems = [problem for problem in find_problems(data.corpora, config, cache) if problem.kind != "text"]
    return [
        f"{config.name}: {', '.join(directions)}, into {setup.run.directory.path}",
        *(f"  {line}" for line in [*describe_data(data, config), *(problem.with_repair for problem in problems)]),
        *(setup.rounds.describe() if setup.rounds else []),
        f"  vocabulary  {entries} ({config.tokenizer.algorithm})",
        f"  model       {setup.num_parameters:,} parameters{frozen}",
        f"  exports to  {describe_destinations(config)}",
        f"  steps       {_describe_steps(setup.length, config.training.max_minutes)}",
        f"  watch       tensorboard --logdir {setup.run.directory.path.parent}",
        f"  device      {_describe_device(setup)}",
        *([f"  computes    {describe_computing(setup)}"] if setup.run.device.type == "cuda" else []),
    ]


def _describe_steps(length: Length, max_minutes: float | None) -> str:
    steps = f"{length.steps_per_epoch:,} an epoch" if length.steps_per_epoch else "as many an epoch as the stream gives"
    limit = f", about {length.num_steps:,} in all" if length.num_steps and max_minutes is None else ""
    return f"{steps}{limit}; {length.step_tokens:,} tokens each at most"


def _describe_device(setup: Setup) -> str:
    num_threads, number = torch.get_num_threads(), setup.run.group.size
    description = f"{describe_hardware(setup.run.device)['device']}, {setup.run.precision}"
    if setup.run.device.type == "cpu":
        description += f", {num_threads} thread{'s' * (num_threads > 1)}"
    if number > 1:
        description += f"; {number} processes"
    return description


def describe_computing(setup: Setup) -> str:
    """Dtype, attention kernel, CUDA graphs and compilation on a GPU, in one line."""
    model, reason = setup.run.config.model, setup.reason_against_graphs
    is_packed = has_row_kernels(setup.run.device, setup.run.dtype, model.d_head) and not model.attention_dropout
    kernel = "attention without padding" if is_packed else "attention over a grid of padded sentences"
    graphs = "CUDA graphs" if reason is None else f"no CUDA graphs ({reason})"
    return ", ".join([setup.run.precision, kernel, graphs, *(["compiled layers"] if setup.compiles_layers else [])])
