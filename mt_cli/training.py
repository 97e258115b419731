"""The optimisation, as a generator of step reports. Knows nothing of files, BLEU or terminals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice, zip_longest

import torch
from torch import Tensor
from torch.func import functional_call

from mt_cli.batching.batches import Batch, PlacedBatch, TrainingPairs, collate, epoch_batches
from mt_cli.config.sections import TrainingConfig
from mt_cli.errors import CorpusError
from mt_cli.objective import LossSums, Objective


@dataclass
class Position:
    """How far a run has come."""

    step: int = 0
    """Optimizer updates done."""
    epoch: int = 0
    """Epochs completed."""
    pool: int = 0
    """The pool of batches, of the current epoch, that is being read."""
    num_batches: int = 0
    """Micro-batches done of this pool."""
    num_target_tokens: int = 0
    """Target tokens seen, [EOS] counted."""
    num_pairs: list[int] = field(default_factory=list)
    """Pairs seen of each part of the corpus, repetitions counted."""


@dataclass(frozen=True)
class StepReport:
    """One optimizer update."""

    step: int
    learning_rate: float
    grad_norm: float
    """Length of the gradient before clipping."""
    cross_entropy: float
    """Sum over the target tokens, in nats."""
    num_target_tokens: int
    elapsed_seconds: float
    """Of this step alone."""
    ends_epoch: bool


def optimization_steps(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    pairs: TrainingPairs,
    config: TrainingConfig,
    schedule: Callable[[int], float],
    position: Position,
    compute_dtype: torch.dtype,
) -> Iterator[StepReport]:
    """Train for ever, a report at each step; `position` says where to begin and is kept up to date.

    Weights and optimizer state stay in fp32. Once a step they are cast to `compute_dtype`, in which activations live,
    and the gradient flows back through the cast. The gradient is that of the mean loss per target token of all
    micro-batches of the step.
    """
    device = next(objective.parameters()).device
    parameters = [parameter for parameter in objective.parameters() if parameter.requires_grad]
    started_at = time.perf_counter()
    while True:
        batches = epoch_batches(
            pairs, config.batch_tokens, config.seed, position.epoch, position.pool, position.num_batches
        )
        for placed, ends_epoch in _in_steps(batches, config.micro_batches_per_step):
            objective.train()
            micro_batches = [collate(each.pairs, each.indices).to(device) for each in placed]
            sums = accumulate_gradient(objective, micro_batches, compute_dtype)
            grad_norm = torch.nn.utils.clip_grad_norm_(parameters, config.max_grad_norm or math.inf)
            rate = schedule(position.step + 1)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            num_target_tokens = sum(batch.num_target_tokens for batch in micro_batches)
            _advance(position, placed[-1], micro_batches, ends_epoch)
            yield StepReport(
                step=position.step,
                learning_rate=rate,
                grad_norm=float(grad_norm),
                cross_entropy=float(sums),
                num_target_tokens=num_target_tokens,
                elapsed_seconds=time.perf_counter() - started_at,
                ends_epoch=ends_epoch,
            )
            started_at = time.perf_counter()


def _in_steps(batches: Iterator[PlacedBatch], size: int) -> Iterator[tuple[list[PlacedBatch], bool]]:
    """The micro-batches of each step, and whether it is the last of the epoch, for which one step is read ahead."""
    step = list(islice(batches, size))
    if not step:
        raise CorpusError("corpus.train: there is no pair to train on")
    while step:
        following = list(islice(batches, size))
        yield step, not following
        step = following


def _advance(position: Position, last: PlacedBatch, batches: list[Batch], ends_epoch: bool) -> None:
    """Move a position beyond the micro-batches of a step."""
    position.step += 1
    position.epoch += ends_epoch
    position.pool, position.num_batches = (0, 0) if ends_epoch else (last.pool, last.num_batches)
    position.num_target_tokens += sum(batch.num_target_tokens for batch in batches)
    for batch in batches:
        position.num_pairs = [sum(pair) for pair in zip_longest(position.num_pairs, batch.num_pairs, fillvalue=0)]


def accumulate_gradient(objective: Objective, micro_batches: list[Batch], compute_dtype: torch.dtype) -> Tensor:
    """Add the gradient of the mean loss over all tokens of the micro-batches; return the sum of cross-entropies."""
    num_target_tokens = sum(batch.num_target_tokens for batch in micro_batches)
    weights = {name: weight.to(compute_dtype) for name, weight in objective.named_parameters()}
    cross_entropy = torch.zeros((), device=micro_batches[0].src_ids.device)
    for batch in micro_batches:
        sums: LossSums = functional_call(objective, weights, (batch,))
        (sums.objective / num_target_tokens).backward()
        cross_entropy += sums.cross_entropy
    return cross_entropy
