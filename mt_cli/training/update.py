"""One update of the weights: accumulate the gradient of micro-batches, then apply it. Eager or as CUDA graphs.

Both forms give the same result. The graphed form records the work for each shape of a micro-batch and the work of the
optimizer once, then replays it. On a GPU, a step of a small model then takes a tenth of the time.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from mt_cli.batching.batches import Batch
from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.errors import one_line
from mt_cli.machine.devices import reason_against_compiling
from mt_cli.machine.graphs import GraphPool
from mt_cli.machine.group import ALONE, Group
from mt_cli.model.kernels import has_variable_length
from mt_cli.model.loss import LossSums, Objective
from mt_cli.training.gradients import GradientAccumulator, Number
from mt_cli.training.optimizer import set_rate, step_if, use_tensor_rates

_MAX_GRAPHS = 128
_LEAST_SECONDS_TO_COMPILE = 240
"""Minimum length of a run whose layers are compiled."""


@dataclass(frozen=True)
class Applied:
    """Result of applying a gradient, as tensors without dimension on the device."""

    grad_norm: Tensor  # Before clipping.
    is_finite: Tensor  # Whether loss and gradient were finite; if not, the weights did not change.


class Update:
    """Gradients and the optimizer that applies them."""

    def __init__(
        self, gradients: GradientAccumulator, optimizer: torch.optim.Optimizer, config: TrainingConfig
    ) -> None:
        self.gradients, self.optimizer = gradients, optimizer
        self._max_grad_norm = config.max_grad_norm or math.inf

    def apply(self, cross_entropy: Tensor, rate: float) -> Applied:
        """Update the weights with this learning rate unless the cross-entropy or the gradient is not finite."""
        set_rate(self.optimizer, rate)
        applied = self._apply(cross_entropy)
        self.optimizer.zero_grad(set_to_none=True)
        return applied

    def _apply(self, cross_entropy: Tensor) -> Applied:
        self.gradients.scaler.unscale_(self.optimizer)
        grad_norm = self.gradients.clip(self._max_grad_norm)
        is_finite = grad_norm.isfinite() & cross_entropy.isfinite()
        step_if(is_finite, self.optimizer)
        self.gradients.scaler.update()
        return Applied(grad_norm, is_finite)


class GraphedUpdate(Update):
    """Update whose work is recorded at its second call, once the optimizer has a state."""

    gradients: GraphedGradientAccumulator

    def __init__(self, gradients: GraphedGradientAccumulator, optimizer: torch.optim.Optimizer, config: TrainingConfig):
        super().__init__(gradients, optimizer, config)
        use_tensor_rates(optimizer, gradients.device)
        self._cross_entropy = torch.zeros((), device=gradients.device)
        self._norm_and_finite = torch.zeros(2, device=gradients.device)
        self._num_calls = 0
        self._pool = GraphPool(gradients.device)  # A separate pool, so that the other graphs can be freed.
        self._work: Callable[[], None] = self._apply_to_memory

    def apply(self, cross_entropy: Tensor, rate: float) -> Applied:
        """See `Update`."""
        set_rate(self.optimizer, rate)
        self._cross_entropy.copy_(cross_entropy)
        self._num_calls += 1
        if self._num_calls == 2:
            self._work = self._pool.capture(self._apply_to_memory) or self._work
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
            self._work()
        grad_norm, is_finite = self._norm_and_finite.clone()
        return Applied(grad_norm, is_finite.bool())

    def _apply_to_memory(self) -> None:
        applied = self._apply(self._cross_entropy)
        self._norm_and_finite.copy_(torch.stack([applied.grad_norm, applied.is_finite.float()]))


@dataclass(frozen=True)
class _Graph:
    """Recorded work, and the memory that it reads."""

    tensors: list[Tensor]  # Tensors of a batch.
    replay: Callable[[], None]
    buffers: list[Tensor]  # Tables of positions, which the model replaces by larger ones.


class GraphedGradientAccumulator(GradientAccumulator):
    """Gradient accumulator that records the work for a shape of batches when the shape occurs for the second time.

    A shape that occurs only once, for example of an oversized pair, costs no graph, and kernels are compiled and loaded
    at the first time. Weights and gradients have fixed addresses. Needs batches with a shape.
    """

    needs_shapes = True

    def __init__(self, objective: Objective, compute_dtype: torch.dtype, group: Group = ALONE) -> None:
        super().__init__(objective, compute_dtype, group)
        self.pool = GraphPool(self.device)
        for parameter in self.parameters:
            parameter.grad = torch.zeros_like(parameter)
        self._num_target_tokens = torch.ones((), device=self.device)
        self._sums = torch.zeros(3, device=self.device)
        self._seen: set[object] = set()
        self._graphs: dict[object, _Graph] = {}
        self._max_graphs = _MAX_GRAPHS

    def _add(self, batch: Batch, num_target_tokens: Number) -> LossSums:
        self._num_target_tokens.fill_(num_target_tokens)
        key = batch.shape, self.is_empty
        if batch.shape is not None and key in self._seen and key not in self._graphs:
            self._record(batch, key)
        if key not in self._graphs:
            with self.pool.stream():
                sums = super()._add(batch, self._num_target_tokens)
            if batch.num_rows < self._smallest_too_large:  # The batch was not split.
                self._seen.add(key)
            return sums
        graph = self._graphs[key]
        for place, tensor in zip(graph.tensors, batch.tensors, strict=True):
            place.copy_(tensor, non_blocking=True)
        graph.replay()
        self.is_empty = False
        return LossSums(*self._sums.clone())

    def try_batch(self, batch: Batch, num_target_tokens: Number, num_moments: int = 0) -> LossSums | None:
        """See `GradientAccumulator`. If the memory does not suffice, free all graphs and try again."""
        sums = super().try_batch(batch, num_target_tokens, num_moments)
        if sums is None and self._graphs:
            self._graphs.clear()
            self._max_graphs = 0
            torch.cuda.empty_cache()
            sums = super().try_batch(batch, num_target_tokens, num_moments)
        return sums

    def _all_reduce(self, sums: LossSums) -> LossSums:
        if self.is_empty:  # This process had no micro-batch at the end of the epoch.
            torch._foreach_zero_([parameter.grad for parameter in self.parameters if parameter.grad is not None])
        return super()._all_reduce(sums)

    def _record(self, batch: Batch, key: object) -> None:
        """Record the work for batches of a shape, unless there are too many graphs or the memory does not suffice."""
        if len(self._graphs) >= self._max_graphs:
            return
        memory = batch.to(self.device).copy()

        def add() -> None:
            sums, gradients = self.loss_and_gradients(memory, self._num_target_tokens)
            self.add_gradients(gradients)
            self._sums.copy_(torch.stack([value.float() for value in vars(sums).values()]))

        if (replay := self.pool.capture(add)) is None:
            self._max_graphs = len(self._graphs)
        else:
            self._graphs[key] = _Graph(memory.tensors, replay, list(self.objective.buffers()))


def build_update(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    compute_dtype: torch.dtype,
    group: Group = ALONE,
    compiles_layers: bool = False,
) -> Update:
    """Update of an objective, as graphs unless `reason_against_graphs` has a reason; only graphs compile layers."""
    device, model = next(objective.parameters()).device, objective.model.config
    if reason_against_graphs(config, model, device, compute_dtype) is not None:
        return Update(GradientAccumulator(objective, compute_dtype, group), optimizer, config)
    gradients = GraphedGradientAccumulator(objective, compute_dtype, group)
    gradients.objective.compiles_loss = True
    if compiles_layers:
        gradients.objective.model.compile_layers()
    return GraphedUpdate(gradients, optimizer, config)


def is_worth_compiling(num_parameters: int, num_tokens: int | None) -> bool:
    """Whether compiling the layers saves more time than it takes in a run of `num_tokens` target tokens.

    Compiling takes about 30 seconds and saves about a sixth of the time. A run of unknown length (None) counts as long.
    The time of a run is estimated for an H100: 0.7 microseconds and 1.6e-14 seconds per parameter for each token.
    """
    if num_tokens is None:
        return True
    return num_tokens * (7e-7 + 1.6e-14 * num_parameters) > _LEAST_SECONDS_TO_COMPILE


def reason_against_graphs(
    config: TrainingConfig, model: ModelConfig, device: torch.device, compute_dtype: torch.dtype
) -> str | None:
    """Reason why the steps of a run cannot be recorded as graphs, in a few words; None if they can."""
    if device.type != "cuda":
        return "only GPUs with CUDA have graphs"
    if not config.cuda_graphs:
        return "training.cuda_graphs is false"
    if compute_dtype == torch.float16:
        return "fp16 scales the loss by a number that steps read"
    if model.attention_dropout:
        return "the attention kernel for graphs has no dropout; set model.attention_dropout to 0"
    if not has_variable_length(device, compute_dtype, model.d_head):
        return "there is no attention kernel of variable length for this GPU, number format, size of heads or PyTorch"
    return reason_against_compiling(device) or _failure_of_compiler(device)


@cache
def _failure_of_compiler(device: torch.device) -> str | None:
    """Reason why compiling a small function fails on a GPU, in one line; None if it works. Tried once in a process."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # With `python -W error`, a warning of the compiler would be a failure.
            torch.compile(_square)(torch.ones(8, device=device))
    except Exception as error:  # Triton, the C compiler and the driver raise errors of many types.
        return f"compiling fails: {one_line(error)}"
    return None


def _square(x: Tensor) -> Tensor:
    return x * x
