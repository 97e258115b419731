"""Gradient accumulation over the micro-batches of a step and all processes; splits batches that exceed the memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.amp import GradScaler

from mt_cli.data.batch import Batch
from mt_cli.errors import DeviceMemoryError
from mt_cli.model.loss import LossSums, Objective
from mt_cli.model.transformer import with_dtype
from mt_cli.runtime.console import say
from mt_cli.runtime.cuda_graphs import GraphPool
from mt_cli.runtime.devices import in_halves, seed_device
from mt_cli.runtime.group import ALONE, Group, copy_all

MAX_GRAPHS = 128


class _Part(NamedTuple):
    """Micro-batch or a part of one: part 1 is the whole, and the halves of part n are 2n and 2n + 1."""

    batch: Batch
    seed: tuple[int, ...] = ()
    number: int = 1

    @property
    def num_rows(self) -> tuple[int, int]:
        return len(self.batch.source.ids), len(self.batch.target.ids)


class GradientAccumulator:
    """Accumulates, in fp32, the gradient of the mean loss per target token over the micro-batches of a step.

    `objective` is the given objective, or a copy in `compute_dtype`, to which the trained weights are cast once a step.
    A micro-batch that does not fit in memory is split in two, as often as needed. Each part draws its own random
    numbers, so that a run that resumes has the same bits whether it has seen batches that do not fit or not.

    In fp16 the loss is multiplied by `scaler.get_scale()`, so that small gradients do not become zero (Micikevicius et
    al. 2018, "Mixed Precision Training", section 3.2). The caller divides the gradients by this scale (`unscale_`).

    With `captures`, the work for batches of one shape is captured as a CUDA graph when the shape occurs for the second
    time, and replayed, with the same result. A step of a small model then takes a tenth of the time. Batches need a
    shape, and gradients have fixed addresses.
    """

    def __init__(
        self, objective: Objective, compute_dtype: torch.dtype, group: Group = ALONE, captures: bool = False
    ) -> None:
        self.group, self.captures = group, captures
        self.device = next(objective.parameters()).device
        self.scaler = GradScaler(self.device.type, init_scale=2.0**13, enabled=compute_dtype == torch.float16)
        self.parameters: list[Tensor] = [weight for weight in objective.parameters() if weight.requires_grad]
        self.objective = with_dtype(objective, compute_dtype)
        self._is_empty = True  # True if no gradient of the current step was added.
        self.too_large: list[tuple[int, int]] = []  # Rows of both sides of batches that did not fit.
        self._weights = [weight for weight in self.objective.parameters() if weight.requires_grad]
        self.graphs: dict[object, _Graph] = {}
        self.max_graphs = MAX_GRAPHS if captures else 0
        self._seen: set[object] = set()
        self._num_target_tokens, self._sums = (torch.zeros(size, device=self.device) for size in ((), 3))
        if captures:
            self._pool = GraphPool(self.device)
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)

    def accumulate(
        self, micro_batches: Iterable[Batch], num_target_tokens: int, seed: tuple[int, ...] = ()
    ) -> LossSums:
        """Add to the parameters' `grad`; return the sums over all target tokens, detached.

        `num_target_tokens` counts the tokens of the step in all processes; gradients and sums are added up over the
        processes. Micro-batches draw random numbers that depend on `seed` and on their position in the step alone.
        Raises DeviceMemoryError if a single pair does not fit in memory.
        """
        if self._weights[0] is not self.parameters[0]:
            copy_all(self.parameters, list(self._weights))
        self._is_empty = True
        self._num_target_tokens.fill_(num_target_tokens)
        parts: list[LossSums] = []
        for index, batch in enumerate(micro_batches):
            place = self.group.rank + index * self.group.size
            parts.append(self._add(_Part(batch.to(self.device), seed and (*seed, place))))
        sums = functools.reduce(LossSums.__add__, parts or [LossSums(*self.parameters[0].new_zeros(3))])
        if self.group.size == 1:
            return sums
        if self._is_empty:  # This process had no micro-batch at the end of the epoch.
            for weight in self.parameters:
                weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad.zero_()
        values = torch.stack([value.float() for value in vars(sums).values()])
        self.group.all_reduce([*(weight.grad for weight in self.parameters if weight.grad is not None), values])
        return LossSums(*values)

    def fits(self, batch: Batch, num_moments: int) -> bool:
        """True if the gradient of a batch can be computed beside this number of moments of every weight."""

        def compute(part: _Part) -> LossSums:
            moments = [torch.empty_like(weight) for weight in self.parameters for _ in range(num_moments)]
            sums = self._compute(part)
            del moments
            return sums

        self._num_target_tokens.fill_(batch.num_target_tokens)
        return any(True for _ in in_halves(_Part(batch.to(self.device)), compute, split=lambda part: ()))

    def _add(self, part: _Part) -> LossSums:
        """Add the gradient of a micro-batch, by a graph if there is one for its shape."""
        batch, key = part.batch, (part.batch.shape, self._is_empty)
        if key in self._seen and key not in self.graphs and len(self.graphs) < self.max_graphs:
            self._capture(batch, key)
        if key in self.graphs:
            self._seed(part)
            self.graphs[key].replay(batch)
            self._is_empty = False
            return LossSums(*self._sums.clone())
        with self._pool.stream() if self.captures else nullcontext():
            parts = list(in_halves(part, self._compute, self._split, self._is_too_large))
        if self.captures and batch.shape is not None and len(parts) == 1:
            self._seen.add(key)
        return functools.reduce(LossSums.__add__, parts)

    def _is_too_large(self, part: _Part) -> bool:
        """True if a batch that was larger on neither side did not fit."""
        source, target = part.num_rows
        return part.batch.num_sentences > 1 and any(source >= rows[0] and target >= rows[1] for rows in self.too_large)

    def _split(self, part: _Part) -> list[_Part]:
        """Both halves of a batch that does not fit in memory; the batch itself if there were graphs to free."""
        if self.graphs:
            self.graphs.clear()
            self.max_graphs = 0
            torch.cuda.empty_cache()
            return [part]
        batch = part.batch
        if batch.num_sentences == 1:
            raise DeviceMemoryError(
                f"one pair of {batch.num_source_tokens:,} and {batch.num_target_tokens:,} tokens does not fit in "
                f"the memory of {self.device}; lower corpus.max_tokens or the sizes of the model"
            )
        if not self._is_too_large(part):
            if not self.too_large:
                say("A batch did not fit in memory and was split; later batches are split too. The gradient is equal.")
            self.too_large.append(part.num_rows)
        return [_Part(half, part.seed, 2 * part.number + index) for index, half in enumerate(batch.halves())]

    def _seed(self, part: _Part) -> None:
        if part.seed:
            seed_device(self.device, *part.seed, *([part.number] if part.number > 1 else []))

    def _compute(self, part: _Part) -> LossSums:
        """Add the gradient of a batch and return its sums, detached. Memory is allocated before anything is added."""
        self._seed(part)
        grad_scale = self.scaler.scale(1 / self._num_target_tokens)
        sums: LossSums = self.objective(part.batch, grad_scale if self.scaler.is_enabled() else None)
        gradients = torch.autograd.grad(grad_scale * sums.objective, self._weights)
        self._add_gradients(list(gradients))
        self._is_empty = False
        return replace(sums, objective=sums.objective.detach())

    @torch.no_grad()
    def _add_gradients(self, gradients: list[Tensor]) -> None:
        """Add gradients in fp32 to the gradients of the parameters; the first of a step replace the previous values."""
        sums = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if sums and self._is_empty:
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

    def _capture(self, batch: Batch, key: object) -> None:
        """Capture the work for batches of a shape, if the memory suffices."""
        memory, is_empty = batch.copy(), self._is_empty

        def add() -> None:
            self._is_empty = is_empty
            sums = self._compute(_Part(memory))
            self._sums.copy_(torch.stack([value.float() for value in vars(sums).values()]))

        replay = self._pool.capture(add)
        self._is_empty = is_empty
        if replay is None:
            self.max_graphs = len(self.graphs)
        else:
            self.graphs[key] = _Graph(memory, replay, list(self.objective.buffers()))


class _Graph(NamedTuple):
    memory: Batch
    work: Callable[[], None]
    buffers: list[Tensor]  # Tables of positions, which the model replaces by larger ones.

    def replay(self, batch: Batch) -> None:
        """Run the work on another batch of the same shape."""
        for memory, tensor in zip(self.memory.tensors, batch.tensors, strict=True):
            memory.copy_(tensor, non_blocking=True)
        self.work()
