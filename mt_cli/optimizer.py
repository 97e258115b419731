"""AdamW's parameter groups and the learning rate of each step. Knows parameters; does not know losses or data."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mt_cli.config.sections import TrainingConfig


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov and Hutter 2019); weight decay applies to the matrices of linear maps alone."""
    decayed = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    decayed -= {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if id(p) in decayed], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if id(p) not in decayed], "weight_decay": 0.0},
    ]
    has_fused = parameters[0].device.type in ("cpu", "cuda")
    return torch.optim.AdamW(
        groups, lr=config.learning_rate, betas=config.adam_betas, eps=config.adam_epsilon, fused=has_fused
    )


def step_if(condition: Tensor, optimizer: torch.optim.AdamW) -> None:
    """Update the parameters if a scalar condition holds, and otherwise nothing; a GPU is not waited for."""
    if optimizer.defaults["fused"]:
        # How torch.amp.GradScaler has a fused kernel skip a step: the kernel itself looks at this number.
        optimizer.found_inf = (~condition).float()  # type: ignore[attr-defined]
        optimizer.step()
    elif condition:
        optimizer.step()


def learning_rate(config: TrainingConfig, step: int, num_steps: int | None) -> float:
    """The rate of step 1, 2, ...; `num_steps` is the last one's number, where it is known.

    All schedules rise linearly to the peak at `warmup_steps`. `inverse_sqrt` is that of Vaswani et al. 2017,
    equation 3, whose peak is d_model^-0.5 * warmup_steps^-0.5.
    """
    warmup = config.warmup_steps
    if step < warmup:
        return config.learning_rate * step / warmup
    if config.schedule == "inverse_sqrt":
        return config.learning_rate * math.sqrt(max(warmup, 1) / step)
    if config.schedule == "constant" or num_steps is None:
        return config.learning_rate
    done = min(1.0, (step - warmup) / max(1, num_steps - warmup))
    return config.learning_rate * (1 - done if config.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2)
