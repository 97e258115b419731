"""Trial of our Triton kernels: one is used only if it agrees with its definition on this device."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from mt_cli.errors import one_line
from mt_cli.runtime.console import say
from mt_cli.runtime.devices import can_compile, is_out_of_memory

LARGEST_ERROR = 0.02
"""Norm of a difference, relative to the norm of the definition; half precision rounds to 0.2 to 0.8 %."""


class Case(NamedTuple):
    """A kernel, its definition, and inputs for both."""

    kernel: Callable[..., Tensor]
    definition: Callable[..., Tensor]
    inputs: list[Tensor]
    has_gradient: bool = True


@cache
def kernel_works(
    name: str, cases: Callable[[int], Iterable[Case]], device: torch.device, dtype: torch.dtype, d_head: int
) -> bool:
    """True if a kernel compiles for this device, dtype and head dim and agrees with its definition in some cases.

    It is tried once per process. If it fails or differs, a line is printed and PyTorch's kernels are used. Too little
    memory for the trial is no verdict: that error passes.
    """
    if device.type != "cuda" or d_head > 128 or not can_compile(device):
        return False
    try:  # An error that is NaN is not below the limit.
        is_right = all(error_of(case, device, dtype) < LARGEST_ERROR for case in cases(d_head))
        problem = "is wrong here"
    except Exception as error:  # The compiler and the driver raise errors of many types.
        if is_out_of_memory(error):
            raise
        is_right, problem = False, f"fails here ({one_line(error)})"
    if not is_right:
        say(f"note: our {name} kernel {problem}; PyTorch's is used, which takes longer")
    return is_right


def error_of(case: Case, device: torch.device, dtype: torch.dtype) -> float:
    """Largest relative error of the results and gradients in a dtype, compared with the definition in fp32."""
    inputs, results = [x.to(dtype) for x in case.inputs], []
    for function, place, precision in ((case.kernel, device, dtype), (case.definition, "cpu", torch.float32)):
        with torch.inference_mode(False), torch.set_grad_enabled(case.has_gradient):
            leaves = [x.to(place, precision).requires_grad_(case.has_gradient) for x in inputs]
            result = function(*leaves)
            gradients = torch.autograd.grad(result.square().sum(), leaves) if case.has_gradient else ()
            results.append([x.detach().cpu().float() for x in (result, *gradients)])
    return float(torch.stack([(x - right).norm() / right.norm() for x, right in zip(*results, strict=True)]).max())
