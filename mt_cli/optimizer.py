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


@torch.no_grad()
def weight_and_update_norms(optimizer: torch.optim.AdamW) -> tuple[Tensor, Tensor]:
    """Length of all weights together, and of the last update, worked out anew from AdamW's averages.

    Their ratio is about 1e-3 in a run that goes well; far more is a learning rate that is too high.
    """
    weight_squares: list[Tensor] = []
    update_squares: list[Tensor] = []
    for group in optimizer.param_groups:
        weights = [weight for weight in group["params"] if weight in optimizer.state]
        if not weights:
            continue
        states = [optimizer.state[weight] for weight in weights]
        (beta1, beta2), step = group["betas"], float(states[0]["step"])  # All are updated at the same steps.
        correction = math.sqrt(1 - beta2**step)
        roots = torch._foreach_sqrt([state["exp_avg_sq"] for state in states])
        torch._foreach_add_(roots, group["eps"] * correction)
        updates = torch._foreach_div([state["exp_avg"] for state in states], roots)
        torch._foreach_mul_(updates, group["lr"] * correction / (1 - beta1**step))
        if group["weight_decay"]:
            torch._foreach_add_(updates, weights, alpha=group["lr"] * group["weight_decay"])
        weight_squares.extend(norm.square() for norm in torch._foreach_norm(weights))
        update_squares.extend(norm.square() for norm in torch._foreach_norm(updates))
    if not weight_squares:  # No update was made yet.
        return torch.tensor(math.nan), torch.tensor(math.nan)
    return torch.stack(weight_squares).sum().sqrt(), torch.stack(update_squares).sum().sqrt()


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
