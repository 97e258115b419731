"""One update of the weights: accumulate the gradient of micro-batches, then apply it. Eager or as CUDA graphs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.model.loss import Objective
from mt_cli.model.packed_attention import has_row_kernels
from mt_cli.runtime.cuda_graphs import GraphPool
from mt_cli.runtime.devices import reason_against_compiling
from mt_cli.runtime.group import ALONE, Group
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.optimizer import set_rate, step_if, use_tensor_rates


class Update:
    """Gradients and the optimizer that applies them; the optimizer is captured if the gradients are.

    The first call is eager: it creates the state of the optimizer. The second is captured, and replayed from then on.
    """

    def __init__(
        self, gradients: GradientAccumulator, optimizer: torch.optim.Optimizer, config: TrainingConfig
    ) -> None:
        self.gradients, self.optimizer = gradients, optimizer
        self._max_grad_norm = config.max_grad_norm or math.inf
        self._cross_entropy, self._result = (torch.zeros(size, device=gradients.device) for size in ((), 2))
        self._num_calls = 0
        self._work: Callable[[], None] = self._apply
        if gradients.captures:
            use_tensor_rates(optimizer, gradients.device)
            self._pool = GraphPool(gradients.device)  # A separate pool, so that the other graphs can be freed.

    def apply(self, cross_entropy: Tensor, rate: float) -> tuple[Tensor, Tensor]:
        """Update the weights with this learning rate unless the cross-entropy or the gradient is not finite.

        Return the norm of the gradient before clipping, and True if it and the cross-entropy were finite, as tensors.
        """
        set_rate(self.optimizer, rate)
        self._cross_entropy.copy_(cross_entropy)
        self._num_calls += 1
        if self.gradients.captures and self._num_calls == 2:
            self._work = self._pool.capture(self._apply) or self._apply
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This instance was constructed with capturable=True")
            self._work()
        if not self.gradients.captures:
            self.optimizer.zero_grad(set_to_none=True)
        grad_norm, is_finite = self._result.clone()
        return grad_norm, is_finite.bool()

    def _apply(self) -> None:
        self.gradients.scaler.unscale_(self.optimizer)
        grad_norm = torch.nn.utils.clip_grad_norm_(self.gradients.parameters, self._max_grad_norm)
        is_finite = grad_norm.isfinite() & self._cross_entropy.isfinite()
        step_if(is_finite, self.optimizer)
        self.gradients.scaler.update()
        self._result.copy_(torch.stack([grad_norm, is_finite.float()]))


def build_gradients(
    objective: Objective, config: TrainingConfig, compute_dtype: torch.dtype, group: Group = ALONE
) -> GradientAccumulator:
    """Gradients of an objective, captured with a compiled loss unless `reason_against_graphs` has a reason."""
    device = next(objective.parameters()).device
    captures = reason_against_graphs(config, objective.model.config, device, compute_dtype) is None
    gradients = GradientAccumulator(objective, compute_dtype, group, captures)
    gradients.objective.compiles_loss = captures
    return gradients


def build_update(
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    compute_dtype: torch.dtype,
    group: Group = ALONE,
    compiles_layers: bool = False,
) -> Update:
    """Update of an objective, captured where possible; only graphs compile layers."""
    gradients = build_gradients(objective, config, compute_dtype, group)
    if compiles_layers and gradients.captures:
        gradients.objective.model.compile_layers()
    return Update(gradients, optimizer, config)


def is_worth_compiling(num_parameters: int, num_tokens: int | None) -> bool:
    """True if a run of `num_tokens` target tokens (None: unknown) takes four minutes or more on an H100.

    Compiling the layers takes about 30 seconds and saves about a sixth of the time. An H100 takes 0.7 microseconds and
    1.6e-14 seconds per parameter for each token.
    """
    return num_tokens is None or num_tokens * (7e-7 + 1.6e-14 * num_parameters) > 240


def reason_against_graphs(
    config: TrainingConfig, model: ModelConfig, device: torch.device, compute_dtype: torch.dtype
) -> str | None:
    """Reason why the steps of a run cannot be captured as graphs, in a few words; None if they can."""
    if device.type != "cuda":
        return "only GPUs with CUDA have graphs"
    if config.compile is False:
        return "training.compile is false"
    if compute_dtype == torch.float16:
        return "fp16 scales the loss by a number that steps read"
    if model.attention_dropout:
        return "the attention kernel for graphs has no dropout; set model.attention_dropout to 0"
    if not has_row_kernels(device, compute_dtype, model.d_head):  # Their trial compiles, too.
        return reason_against_compiling(device) or "our attention kernel does not work for this GPU, dtype or head dim"
    return None
