"""The optimisation, as a generator of step reports. Knows nothing of files, BLEU or terminals.

Nothing here waits for a CUDA device unless its memory runs out: sums stay on it until the caller reads them.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice, zip_longest

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.func import functional_call

from mt_cli.batching.batches import Batch, PlacedBatch, TrainingPairs, collate, epoch_batches
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import TrainingConfig
from mt_cli.errors import CorpusError, DeviceMemoryError
from mt_cli.machine.cpus import in_threads
from mt_cli.machine.devices import is_out_of_memory, seed_device
from mt_cli.machine.group import add_up, num_processes, rank
from mt_cli.tokenizer.tokenizer import UNK_ID
from mt_cli.training.objective import LossSums, Objective
from mt_cli.training.optimizer import set_rate, step_if


@dataclass
class Position:
    """The position of a run in its data."""

    num_processes: int = 1  # Those that the run began with. It keeps the size of its steps with any other number.
    step: int = 0  # Optimizer updates done.
    epoch: int = 0  # Epochs completed.
    pool: int = 0  # The current pool of batches of the epoch.
    num_batches: int = 0  # Micro-batches of this pool done.
    num_target_tokens: int = 0  # Target tokens seen, [EOS] counted.
    num_pairs: list[int] = field(default_factory=list)  # Pairs seen of each part of the corpus, repetitions counted.

    def advance(self, step: _Step) -> None:
        """Move to the end of a step."""
        self.step, self.epoch = self.step + 1, self.epoch + step.ends_epoch
        self.pool, self.num_batches = (0, 0) if step.ends_epoch else (step.placed[-1].pool, step.placed[-1].num_batches)
        self.num_target_tokens += step.num_target_tokens
        for placed in step.placed:
            self.num_pairs = [sum(pair) for pair in zip_longest(self.num_pairs, placed.num_pairs, fillvalue=0)]


@dataclass(frozen=True)
class StepReport:
    """One optimizer update. Tensors are on the device."""

    step: int
    learning_rate: float
    grad_norm: Tensor  # Norm of the gradient before clipping.
    cross_entropy: Tensor  # Sum over the target tokens, in nats.
    num_correct: Tensor  # Target tokens for which the reference had the highest score, with dropout.
    is_finite: Tensor  # Whether loss and gradient were finite; if not, the update was skipped.
    num_target_tokens: int
    padding_share: float  # Share, 0 to 1, of the rows of both sides, in this process, that are padding.
    elapsed_seconds: float  # Of this step alone; on a GPU, until its work was queued.
    placed: list[PlacedBatch]  # The pairs.
    num_splits: int  # How often, since the start, a micro-batch was split for lack of memory.


def optimization_steps(
    gradients: Gradients,
    optimizer: torch.optim.Optimizer,
    pairs: TrainingPairs,
    config: TrainingConfig,
    schedule: Callable[[int], float],
    position: Position,
) -> Iterator[StepReport]:
    """Train without end, with a report after each step; `position` is where to start and is kept up to date.

    Batches are collated in threads, a few steps ahead, in pinned memory if they go to a GPU. Several processes share
    the micro-batches of a step.
    """
    objective, started_at = gradients.objective, time.perf_counter()
    while True:
        place = position.epoch, position.pool, position.num_batches
        batches = epoch_batches(pairs, config.tokens_per_batch, config.seed, *place)
        for step in in_threads(lambda step: step.collate(gradients), _steps(batches, config, position)):
            objective.train()
            objective.step = position.step + 1
            seeded = step.seeded(config.seed, objective.step, gradients.device)
            sums = gradients.accumulate(seeded, step.num_target_tokens)
            gradients.scaler.unscale_(optimizer)
            grad_norm = gradients.clip(config.max_grad_norm or math.inf)
            rate = set_rate(optimizer, schedule(objective.step))
            is_finite = grad_norm.isfinite() & sums.cross_entropy.isfinite()
            step_if(is_finite, optimizer)
            gradients.scaler.update()
            optimizer.zero_grad(set_to_none=True)
            position.advance(step)
            yield StepReport(
                step=position.step,
                learning_rate=rate,
                grad_norm=grad_norm,
                cross_entropy=sums.cross_entropy,
                num_correct=sums.num_correct,
                is_finite=is_finite,
                num_target_tokens=step.num_target_tokens,
                padding_share=step.padding_share,
                elapsed_seconds=time.perf_counter() - started_at,
                placed=step.placed,
                num_splits=gradients.num_splits,
            )
            started_at = time.perf_counter()


@dataclass(frozen=True)
class _Step:
    """The micro-batches of one update, and those of them that this process computes."""

    placed: list[PlacedBatch]
    ends_epoch: bool
    num_target_tokens: int = 0
    micro_batches: list[Batch] = field(default_factory=list)

    @property
    def padding_share(self) -> float:
        num_tokens = sum(batch.num_target_tokens + batch.num_source_tokens for batch in self.micro_batches)
        return 1 - num_tokens / max(1, sum(batch.num_rows for batch in self.micro_batches))

    def collate(self, gradients: Gradients) -> _Step:
        batches = [collate(each.pairs, each.indices) for each in self.placed[rank() :: num_processes()]]
        if gradients.needs_equal_shares and len(batches) * num_processes() < len(self.placed):
            batches.append(collate(self.placed[0].pairs, self.placed[0].indices[:1]).without_targets())
        return replace(
            self,
            num_target_tokens=sum(each.num_target_tokens for each in self.placed),
            micro_batches=[batch.pin_memory() for batch in batches] if gradients.device.type == "cuda" else batches,
        )

    def seeded(self, seed: int, step: int, device: torch.device) -> Iterator[Batch]:
        """The micro-batches on a device; random numbers that follow one depend only on the seed and its place."""
        for place, batch in zip(count(rank(), num_processes()), self.micro_batches, strict=False):
            seed_device(device, seed, step, place)
            yield batch.to(device)


def _steps(batches: Iterator[PlacedBatch], config: TrainingConfig, position: Position) -> Iterator[_Step]:
    """The steps from a position on; one step is read ahead, to know the last one of the epoch."""
    sizes = (config.num_micro_batches(step) * position.num_processes for step in count(position.step + 1))
    placed = list(islice(batches, next(sizes)))
    if not placed:
        raise CorpusError("corpus.train: there is no pair to train on")
    while placed:
        following = list(islice(batches, next(sizes)))
        yield _Step(placed, ends_epoch=not following)
        placed = following


def count_steps(config: TrainingConfig, num_processes: int, num_batches: int, num_epochs: int) -> int:
    """The number of steps of the first epochs, each of `num_batches` micro-batches, for this number of processes."""
    step = epoch = 0
    while epoch < num_epochs and step < (config.micro_batches_growth_steps or 0):
        done, epoch = 0, epoch + 1
        while done < num_batches:
            step += 1
            done += config.num_micro_batches(step) * num_processes
    return step + (num_epochs - epoch) * -(-num_batches // (config.micro_batches_per_step * num_processes))


class _LossAndGradients(nn.Module):
    """A loss and its gradient as one forward pass: layers that are recomputed need the weights of `functional_call`."""

    def __init__(self, objective: Objective, scaler: GradScaler) -> None:
        super().__init__()
        self.objective, self.scaler = objective, scaler

    def forward(self, batch: Batch, num_target_tokens: int, weights: list[Tensor]) -> tuple[LossSums, list[Tensor]]:
        """The sums over a batch, detached, and the fp32 gradients of the scaled loss per target token."""
        sums: LossSums = self.objective(batch)
        gradients = torch.autograd.grad(self.scaler.scale(sums.objective / num_target_tokens), weights)
        return replace(sums, objective=sums.objective.detach()), [gradient.float() for gradient in gradients]


class Gradients:
    """Accumulates, in fp32, the gradient of the mean loss per target token over the micro-batches of a step.

    Once a step, the fp32 weights are cast to `compute_dtype`, in which a micro-batch is computed; those that are not
    trained are cast once. A micro-batch that does not fit in memory is split in two, as often as needed, which does not
    change the gradient; from then on, batches of its size are split at once.

    In fp16 the gradient is that of the loss times `scaler.get_scale()`, so that small values do not become zero
    (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2); the caller divides by it (`unscale_`).
    """

    needs_equal_shares = False
    """Whether all processes must compute equally many micro-batches of a step."""

    def __init__(self, objective: Objective, compute_dtype: torch.dtype) -> None:
        self.objective = objective
        self.device = next(objective.parameters()).device
        self.scaler = GradScaler(self.device.type, init_scale=2.0**13, enabled=compute_dtype == torch.float16)
        self._loss = _LossAndGradients(objective, self.scaler)
        named = {name: weight for name, weight in self._loss.named_parameters() if weight.requires_grad}
        self.parameters: list[Tensor] = list(named.values())
        self.num_splits = 0
        self._smallest_too_large = math.inf
        self._weights: dict[str, Tensor] = dict(named)
        self._frozen: dict[str, Tensor] = {}
        if compute_dtype != torch.float32:
            frozen = ((name, weight) for name, weight in self._loss.named_parameters() if name not in named)
            self._frozen = {name: weight.detach().to(compute_dtype) for name, weight in frozen}
            self._weights = {name: weight.detach().to(compute_dtype).requires_grad_() for name, weight in named.items()}

    def accumulate(self, micro_batches: Iterable[Batch], num_target_tokens: int) -> LossSums:
        """Add to the parameters' `grad`; return the sums over all target tokens, detached.

        `num_target_tokens` are those of the step, in all processes, whose gradients and sums are added up. Raises
        DeviceMemoryError if a single pair does not fit in memory.
        """
        weights = list(self._weights.values())
        if weights[0] is not self.parameters[0]:
            with torch.no_grad():
                torch._foreach_copy_(weights, self.parameters)
        found = [self._add(batch, num_target_tokens) for batch in micro_batches]
        sums = functools.reduce(LossSums.__add__, found or [LossSums(*self.parameters[0].new_zeros(3))])
        return sums if num_processes() == 1 else self._added_up(sums)

    def _added_up(self, sums: LossSums) -> LossSums:
        """Add up the gradients and the sums of all processes."""
        for weight in self.parameters:
            if weight.grad is None:  # This process had no micro-batch at the end of the epoch.
                weight.grad = torch.zeros_like(weight)
        values = torch.stack([each.float() for each in vars(sums).values()])
        add_up([*(weight.grad for weight in self.parameters if weight.grad is not None), values])
        return LossSums(*values)

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradient down to a norm of at most `max_norm`; return its norm before, without dimension."""
        return torch.nn.utils.clip_grad_norm_(self.parameters, max_norm)

    def fits(self, batch: Batch) -> bool:
        """Whether an update from a batch, with AdamW's two moments, fits in memory; leaves no gradients."""
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            try:
                return self._try(batch, batch.num_target_tokens, num_moments=2) is not None
            finally:
                for weight in self.parameters:
                    weight.grad = None

    def _add(self, batch: Batch, num_target_tokens: int) -> LossSums:
        if batch.num_sentences == 1 or batch.num_rows < self._smallest_too_large:
            sums = self._try(batch, num_target_tokens)
            if sums is not None:
                return sums
            if batch.num_sentences == 1:
                raise DeviceMemoryError(
                    f"one pair of {batch.num_source_tokens:,} and {batch.num_target_tokens:,} tokens does not fit in "
                    f"the memory of {self.device}; lower corpus.max_tokens or the sizes of the model"
                )
            self._smallest_too_large = batch.num_rows
            self.num_splits += 1
        first, second = batch.halves()
        return self._add(first, num_target_tokens) + self._add(second, num_target_tokens)

    def _try(self, batch: Batch, num_target_tokens: int, num_moments: int = 0) -> LossSums | None:
        """Add the whole gradient of a batch; None, with nothing added, if memory runs out."""
        try:
            moments = [torch.empty_like(weight) for weight in self.parameters for _ in range(num_moments)]
            arguments = batch, num_target_tokens, list(self._weights.values())
            sums, gradients = functional_call(self._loss, self._frozen | self._weights, arguments)
            del moments
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return None
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
        found: LossSums = sums
        return found


def largest_batch(fits: Callable[[int], bool], smallest: int, largest: int) -> int:
    """The largest number from `smallest`, which is not tried, to `largest` that fits, to an eighth."""
    size = smallest
    while 2 * size <= largest and fits(2 * size):
        size *= 2
    candidates = (size + size * eighth // 8 for eighth in range(7, 0, -1))
    return next((each for each in candidates if each <= largest and fits(each)), size)


def fits_memory(
    objective: Objective, compute_dtype: torch.dtype, source_length: int, target_length: int, batch_tokens: int
) -> bool:
    """Whether an update from a batch of pairs of these lengths, [EOS] counted, fits in memory."""
    num_pairs = max(1, batch_tokens // max(source_length, target_length))
    sides = [[[UNK_ID] * (length - 1)] * num_pairs for length in (source_length, target_length)]
    objective.step = objective.r_drop_start_step  # The largest steps of the run.
    gradients = Gradients(objective.train(), compute_dtype)
    return gradients.fits(collate(EncodedPairs.from_ids(*sides), range(num_pairs)).to(gradients.device))
