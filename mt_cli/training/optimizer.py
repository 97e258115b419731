"""Optimizers, their parameter groups, and the learning rate of each step."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from mt_cli.config.training import TrainingConfig
from mt_cli.runtime.devices import has_fast_bf16

_BETAS, _ADAM_EPSILON = (0.9, 0.98), 1e-9
"""As in Vaswani et al. 2017, section 5.3."""
_MOMENTUM = 0.95
_UPDATE_SIZE = 0.2
"""Root mean square of the elements of a Muon update at learning rate 1, about that of AdamW (Liu et al. 2025, 2.2)."""
_COEFFICIENTS, _NUM_STEPS, _EPSILON = (3.4445, -4.7750, 2.0315), 5, 1e-7
"""Newton-Schulz iteration (Jordan et al. 2024)."""


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for some matrices and AdamW for all else, with one list of groups and one state.

    Matrices are updated as by `torch.optim.Muon` with `match_rms_adamw`, but in one batch for each shape, and in fp32
    where bf16 is slow: on a core without AVX512-BF16, 64 matrices of 128x128 to 256x128 take 0.12 s instead of 1.94 s.

    As in fused AdamW, nothing changes if a tensor `found_inf` is set and not zero; its value is not read on the CPU.
    """

    found_inf: Tensor | None = None

    def __init__(self, adamw: torch.optim.AdamW, matrices: list[nn.Parameter], weight_decay: float) -> None:
        self._adamw = adamw
        muon = {"params": matrices, "lr": adamw.defaults["lr"], "weight_decay": weight_decay, "is_muon": True}
        super().__init__([*adamw.param_groups, muon], {"fused": False})
        self._share()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._share()

    def _share(self) -> None:
        self._adamw.state = self.state
        self._adamw.param_groups = [group for group in self.param_groups if not _is_muon(group)]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient."""
        if self.found_inf is not None:
            self._adamw.found_inf = self.found_inf  # type: ignore[attr-defined]
        self._adamw.step()
        for group in filter(_is_muon, self.param_groups):
            weights_by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    weights_by_shape[weight.shape].append(weight)
            for weights in weights_by_shape.values():
                self._update(weights, group["lr"], group["weight_decay"])

    def _update(self, weights: list[Tensor], rate: Any, weight_decay: float) -> None:
        """Update matrices of one shape; `momentum_buffer` is the average of the gradients of a matrix."""
        is_finite = None if self.found_inf is None else self.found_inf == 0
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum_buffer"] = torch.zeros_like(weight)
        buffers = [self.state[weight]["momentum_buffer"] for weight in weights]
        before = torch.stack(buffers)
        gradients = torch.stack([weight.grad for weight in weights if weight.grad is not None])
        if is_finite is not None:
            gradients = torch.where(is_finite, gradients, 0.0)
        after = before.lerp(gradients, 1 - _MOMENTUM)
        if is_finite is not None:
            after, rate = torch.where(is_finite, after, before), is_finite * rate
        torch._foreach_copy_(buffers, after.unbind())
        changes = _orthogonal(gradients.lerp(after, _MOMENTUM))  # Of Nesterov's mean of both.
        size = _UPDATE_SIZE * math.sqrt(max(weights[0].shape))
        torch._foreach_mul_(weights, 1 - rate * weight_decay)
        if is_finite is None:
            torch._foreach_add_(weights, changes.unbind(), alpha=-rate * size)
        else:  # The rate is a tensor.
            torch._foreach_add_(weights, (changes.float() * (-size * rate)).unbind())


def _orthogonal(matrices: Tensor) -> Tensor:
    """Move the singular values of each matrix near 1 by Newton-Schulz steps; shape (n, rows, columns)."""
    is_high = matrices.size(1) > matrices.size(2)
    x = matrices.mT if is_high else matrices
    x = x.bfloat16() if has_fast_bf16(x.device) else x.float()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=_EPSILON)
    a, b, c = _COEFFICIENTS
    for _ in range(_NUM_STEPS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x.mT if is_high else x


def _is_muon(group: dict[str, Any]) -> bool:
    return "is_muon" in group


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW (Loshchilov and Hutter 2019), or Muon for the matrices of the layers and AdamW for all else.

    Muon (Jordan et al. 2024) orthogonalises the averaged gradient of a matrix. Scaled as in Liu et al. 2025, section
    2.2, its update has the size of AdamW's, and both use one learning rate. Embeddings and the projection are tables of
    tokens, not maps between hidden states. Weight decay applies only to the matrices of linear maps.
    """
    linear = {id(module.weight): name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in parameters if id(p) in linear and id(p) not in tables]
    hidden = [p for p in decayed if config.optimizer == "muon" and not linear[id(p)].endswith("projection")]
    by_muon, with_decay = ({id(p) for p in matrices} for matrices in (hidden, decayed))
    groups = [
        {"params": [p for p in decayed if id(p) not in by_muon], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if id(p) not in with_decay], "weight_decay": 0.0},
    ]
    has_fused = parameters[0].device.type in ("cpu", "cuda")
    adamw = torch.optim.AdamW(groups, lr=config.learning_rate, betas=_BETAS, eps=_ADAM_EPSILON, fused=has_fused)
    if config.optimizer == "adamw" or not hidden:  # Empty with adapters, which do not map between hidden states.
        return adamw
    return MuonWithAdamW(adamw, hidden, config.weight_decay)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate, in tensors if the optimizer has it in tensors."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def use_tensor_rates(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Hold learning rates in tensors on the device, so that a CUDA graph of the optimizer reads the current ones."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(float(group["lr"]), device=device)
        if not _is_muon(group):
            group["capturable"] = True


def step_if(condition: Tensor, optimizer: torch.optim.Optimizer) -> None:
    """Update the parameters if a scalar condition is true, without waiting for a CUDA device."""
    if optimizer.defaults["fused"] or condition.is_cuda:
        # As in torch.amp.GradScaler, the kernels themselves read this number and skip the step.
        optimizer.found_inf = (~condition).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif condition:
        optimizer.step()


def learning_rate(config: TrainingConfig, step: int, num_steps: int | None) -> float:
    """Learning rate of step 1, 2, ...; `num_steps` is the number of the last step, if known.

    It is the smaller of a linear warm-up to `config.learning_rate` and the decay of the schedule. `inverse_sqrt` is
    equation 3 of Vaswani et al. 2017 if the peak is d_model^-0.5 * warmup_steps^-0.5. `linear` and `cosine` end at zero
    at `num_steps`. They begin to fall halfway at the latest, so a longer warm-up does not reach the peak.
    """
    warmup, peak = config.warmup_steps, config.learning_rate
    rising = peak * step / warmup if step < warmup else peak
    start = 0.0 if num_steps is None else min(warmup, num_steps / 2)
    done = 0.0 if num_steps is None else min(1.0, max(0.0, (step - start) / (num_steps - start)))
    falling = {
        "inverse_sqrt": math.sqrt(max(warmup, 1) / step),
        "linear": 1 - done,
        "cosine": (1 + math.cos(math.pi * done)) / 2,
        "constant": 1.0,
    }
    return min(rising, peak * falling[config.schedule])
