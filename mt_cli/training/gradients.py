"""Gradient accumulation: over the micro-batches of a step and all processes; splits batches that exceed the memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.amp import GradScaler

from mt_cli.batching.batches import Batch, collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.errors import DeviceMemoryError
from mt_cli.machine.devices import is_out_of_memory
from mt_cli.machine.group import ALONE, Group, copy_all
from mt_cli.model.loss import LossSums, Objective
from mt_cli.model.transformer import with_dtype
from mt_cli.tokenizer.special_tokens import UNK_ID

Number = int | Tensor
"""A number, or a tensor without dimension on the device of the gradients."""


class GradientAccumulator:
    """Accumulates, in fp32, the gradient of the mean loss per target token over the micro-batches of a step.

    `objective` computes micro-batches in `compute_dtype`. It is the given objective, or a copy in this format, to which
    the trained weights are cast once a step. A micro-batch that does not fit in memory is split in two, as often as
    needed; this does not change the gradient. From then on, batches of its size are split at once.

    In fp16 the loss is multiplied by `scaler.get_scale()`, so that small gradients do not become zero (Micikevicius et
    al. 2018, "Mixed Precision Training", section 3.2). The caller divides the gradients by this scale (`unscale_`).
    """

    needs_shapes = False
    """Whether micro-batches need a shape instead of a grid."""

    def __init__(self, objective: Objective, compute_dtype: torch.dtype, group: Group = ALONE) -> None:
        self.group = group
        self.device = next(objective.parameters()).device
        self.scaler = GradScaler(self.device.type, init_scale=2.0**13, enabled=compute_dtype == torch.float16)
        self.parameters: list[Tensor] = [weight for weight in objective.parameters() if weight.requires_grad]
        self.objective = with_dtype(objective, compute_dtype)
        self.num_splits = 0
        self.is_empty = True  # Whether no gradient of the current step was added.
        self._smallest_too_large = math.inf
        self._weights = [weight for weight in self.objective.parameters() if weight.requires_grad]

    def accumulate(self, micro_batches: Iterable[Batch], num_target_tokens: int) -> LossSums:
        """Add to the parameters' `grad`; return the sums over all target tokens, detached.

        `num_target_tokens` counts the tokens of the step in all processes; gradients and sums are added up over the
        processes. Raises DeviceMemoryError if a single pair does not fit in memory.
        """
        if self._weights[0] is not self.parameters[0]:
            copy_all(self.parameters, list(self._weights))
        self.is_empty = True
        parts = [self._add(batch, num_target_tokens) for batch in micro_batches]
        sums = functools.reduce(LossSums.__add__, parts or [LossSums(*self.parameters[0].new_zeros(3))])
        return sums if self.group.size == 1 else self._all_reduce(sums)

    def _all_reduce(self, sums: LossSums) -> LossSums:
        """Add up the gradients and the sums of all processes."""
        for weight in self.parameters:
            if weight.grad is None:  # This process had no micro-batch at the end of the epoch.
                weight.grad = torch.zeros_like(weight)
        values = torch.stack([value.float() for value in vars(sums).values()])
        self.group.all_reduce([*(weight.grad for weight in self.parameters if weight.grad is not None), values])
        return LossSums(*values)

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradient down to a norm of at most `max_norm`; return the norm before that, as a scalar tensor."""
        return torch.nn.utils.clip_grad_norm_(self.parameters, max_norm)

    def _add(self, batch: Batch, num_target_tokens: Number) -> LossSums:
        batch = batch.to(self.device)
        if batch.num_sentences == 1 or batch.num_rows < self._smallest_too_large:
            sums = self.try_batch(batch, num_target_tokens)
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

    def try_batch(self, batch: Batch, num_target_tokens: Number, num_moments: int = 0) -> LossSums | None:
        """Add the gradient of a batch; if it does not fit in memory beside the moments, add nothing and return None."""
        try:
            moments = [torch.empty_like(weight) for weight in self.parameters for _ in range(num_moments)]
            sums, gradients = self.loss_and_gradients(batch, num_target_tokens)
            del moments
            self.add_gradients(gradients)  # Allocates all memory before it adds anything.
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            return None
        self.is_empty = False
        return sums

    def loss_and_gradients(self, batch: Batch, num_target_tokens: Number) -> tuple[LossSums, list[Tensor]]:
        """Sums over a batch, detached, and the gradients of the scaled loss per target token."""
        sums: LossSums = self.objective(batch)
        gradients = torch.autograd.grad(self.scaler.scale(sums.objective / num_target_tokens), self._weights)
        return replace(sums, objective=sums.objective.detach()), list(gradients)

    @torch.no_grad()
    def add_gradients(self, gradients: list[Tensor]) -> None:
        """Add gradients in fp32 to the gradients of the parameters; the first of a step replace the previous values."""
        sums = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if sums and self.is_empty:
            copy_all(gradients, sums)
            return
        if gradients[0].dtype != torch.float32:
            narrow, gradients = gradients, [torch.empty_like(x, dtype=torch.float32) for x in gradients]
            copy_all(narrow, gradients)
        if sums:
            torch._foreach_add_(sums, gradients)
            return
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient


def largest_batch(fits: Callable[[int], bool], smallest: int, largest: int) -> int:
    """Largest number between `smallest` and `largest` that fits, to within an eighth; `smallest` is not tried."""
    size = smallest
    while 2 * size <= largest and fits(2 * size):
        size *= 2
    candidates = (size + size * eighth // 8 for eighth in range(7, 0, -1))
    return next((candidate for candidate in candidates if candidate <= largest and fits(candidate)), size)


def fits_memory(
    objective: Objective, compute_dtype: torch.dtype, source_length: int, target_length: int, batch_tokens: int
) -> bool:
    """Whether an update by AdamW from a batch of pairs of these lengths, [EOS] counted, fits in memory."""
    num_pairs = max(1, batch_tokens // max(source_length, target_length))
    sides = [[[UNK_ID] * (length - 1)] * num_pairs for length in (source_length, target_length)]
    gradients = GradientAccumulator(objective.train(), compute_dtype)
    batch = collate(EncodedPairs.from_ids(*sides), range(num_pairs)).to(gradients.device)
    with torch.random.fork_rng([gradients.device] if gradients.device.type == "cuda" else []):
        try:
            return gradients.try_batch(batch, batch.num_target_tokens, num_moments=2) is not None
        finally:
            objective.zero_grad()
