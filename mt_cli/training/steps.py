"""Optimisation as a generator of step reports.

Nothing here waits for a CUDA device unless its memory runs out: sums stay on the device until the caller reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice, zip_longest

from torch import Tensor

from mt_cli.config.training import TrainingConfig
from mt_cli.data.batch import Batch, collate
from mt_cli.data.batches import PlacedBatch, TrainingPairs, epoch_batches
from mt_cli.errors import CorpusError
from mt_cli.runtime.cpus import in_threads
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.plan import Position
from mt_cli.training.update import Update


@dataclass(frozen=True)
class StepReport:
    """Report on one optimizer update. Tensors are on the device."""

    step: int
    learning_rate: float
    grad_norm: Tensor  # Norm of the gradient before clipping.
    cross_entropy: Tensor  # Sum over the target tokens, in nats.
    num_correct: Tensor  # Target tokens for which the reference had the highest score, with dropout.
    is_finite: Tensor  # True if loss and gradient were finite; if not, the update was skipped.
    num_target_tokens: int
    elapsed_seconds: float  # Time of this step alone; on a GPU, until the work was queued.


def optimization_steps(
    update: Update,
    pairs: TrainingPairs,
    config: TrainingConfig,
    schedule: Callable[[int], float],
    position: Position,
) -> Iterator[StepReport]:
    """Train without end and yield a report after each step; start at `position`, and keep it up to date.

    Batches are collated in threads, a few steps ahead, in pinned memory if they go to a GPU. Several processes share
    the micro-batches of a step.
    """
    gradients, started_at = update.gradients, time.perf_counter()
    objective, shaped_for = gradients.objective, config.tokens_per_batch if gradients.captures else None
    while True:
        place = position.epoch, position.pool, position.num_batches
        batches = epoch_batches(pairs, config.tokens_per_batch, config.seed, *place)
        for step in in_threads(lambda step: step.collate(gradients, shaped_for), _steps(batches, config, position)):
            objective.train()
            number = position.step + 1
            sums = gradients.accumulate(step.micro_batches, step.num_target_tokens, (config.seed, number))
            rate = schedule(number)
            grad_norm, is_finite = update.apply(sums.cross_entropy, rate)
            _advance(position, step)
            yield StepReport(
                step=position.step,
                learning_rate=rate,
                grad_norm=grad_norm,
                cross_entropy=sums.cross_entropy,
                num_correct=sums.num_correct,
                is_finite=is_finite,
                num_target_tokens=step.num_target_tokens,
                elapsed_seconds=time.perf_counter() - started_at,
            )
            started_at = time.perf_counter()


@dataclass(frozen=True)
class _Step:
    """Micro-batches of one update, and those that this process computes."""

    placed: list[PlacedBatch]
    ends_epoch: bool
    num_target_tokens: int = 0
    micro_batches: list[Batch] = field(default_factory=list)

    def collate(self, gradients: GradientAccumulator, shaped_for: int | None) -> _Step:
        rank, num_processes = gradients.group.rank, gradients.group.size
        batches = [collate(placed.pairs, placed.indices, shaped_for) for placed in self.placed[rank::num_processes]]
        if gradients.device.type == "cuda":
            batches = [batch.pin_memory() for batch in batches]
        num_target_tokens = sum(placed.num_target_tokens for placed in self.placed)
        return replace(self, num_target_tokens=num_target_tokens, micro_batches=batches)


def _advance(position: Position, step: _Step) -> None:
    """Move a position to the end of a step."""
    last = step.placed[-1]
    position.step, position.epoch = position.step + 1, position.epoch + step.ends_epoch
    position.pool, position.num_batches = (0, 0) if step.ends_epoch else (last.pool, last.num_batches)
    position.num_target_tokens += step.num_target_tokens
    for placed in step.placed:
        position.num_pairs = [sum(pair) for pair in zip_longest(position.num_pairs, placed.num_pairs, fillvalue=0)]


def _steps(batches: Iterator[PlacedBatch], config: TrainingConfig, position: Position) -> Iterator[_Step]:
    """Steps from a position on; the next step is read ahead, to recognize the last step of the epoch."""
    size = config.micro_batches_per_step * position.num_processes
    placed = list(islice(batches, size))
    if not placed:
        raise CorpusError("corpus.train: there is no pair to train on")
    while placed:
        following = list(islice(batches, size))
        yield _Step(placed, ends_epoch=not following)
        placed = following


def count_steps(config: TrainingConfig, num_processes: int, num_batches: int, num_epochs: int) -> int:
    """Number of steps in `num_epochs` epochs of `num_batches` micro-batches each, with this number of processes."""
    return num_epochs * -(-num_batches // (config.micro_batches_per_step * num_processes))
