"""Sum and segment maxima of each row of logits in one pass; the likeliest tokens are in the segments of largest maxima.

`log_softmax` writes all log-probabilities in fp32, and computing maxima of segments reads them again: 0.5 ms for 2,048
rows of 32,000 logits in bf16 on an H100. On a GPU, a kernel in Triton's language only reads the logits, once. Knows
matrices; does not know tokens.

Legend of the shapes: R rows, V vocabulary, G segments.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from mt_cli.machine.devices import can_compile, is_right

SEGMENT = 64
_SEGMENTS_AT_ONCE, _WARPS = 64, 8
_LOGITS_BEFORE_COMPILING = 2**32
"""Number of logits (64 positions of 2,048 rows) after which the kernel is compiled; compiling takes a second."""


def segment_maxima(logits_RV: Tensor) -> Tensor:
    """RxG maxima of the whole segments of each row."""
    num_segments = logits_RV.shape[1] // SEGMENT
    maxima_RG: Tensor = logits_RV[:, : num_segments * SEGMENT].unflatten(1, (num_segments, SEGMENT)).amax(dim=-1)
    return maxima_RG


def plain_statistics(logits_RV: Tensor) -> tuple[Tensor, Tensor]:
    """Rx1 logarithms of the sums of exponentials, in fp32, and `segment_maxima`: the definition."""
    return logits_RV.float().logsumexp(dim=1, keepdim=True), segment_maxima(logits_RV)


class RowStatistics:
    """`plain_statistics` in one kernel, which is compiled only after many logits."""

    def __init__(self) -> None:
        self._num_logits = 0

    def are_ready(self, logits_RV: Tensor) -> bool:
        """Count the logits; return whether the kernel is ready for them."""
        if not logits_RV.is_cuda:
            return False
        self._num_logits += logits_RV.numel()
        return self._num_logits > _LOGITS_BEFORE_COMPILING and has_kernel(logits_RV.device, logits_RV.dtype)

    def of(self, logits_RV: Tensor) -> tuple[Tensor, Tensor]:
        """See `plain_statistics`."""
        with torch.cuda.device_of(logits_RV):
            return compiled_statistics(logits_RV)


def compiled_statistics(logits_RV: Tensor) -> tuple[Tensor, Tensor]:
    """`plain_statistics` by the kernel, on the current device."""
    logits_RV = logits_RV.contiguous()
    num_rows, size = logits_RV.shape
    num_segments = size // SEGMENT
    log_sums_R1 = logits_RV.new_empty(num_rows, 1, dtype=torch.float32)
    maxima_RG = logits_RV.new_empty(num_rows, num_segments)
    _kernel()[(num_rows,)](logits_RV, log_sums_R1, maxima_RG, size, num_segments, num_warps=_WARPS)
    return log_sums_R1, maxima_RG


@cache
def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether the kernel equals its definition on a device, in a number format; tried once in a process."""
    if not can_compile(device):
        return False

    def is_equal() -> bool:
        logits_RV = torch.randn(3, 1000, generator=torch.Generator().manual_seed(1)).to(device, dtype)
        with torch.cuda.device_of(logits_RV):
            ours, definition = compiled_statistics(logits_RV), plain_statistics(logits_RV)
        return all(torch.allclose(x.float(), y.float(), rtol=1e-3) for x, y in zip(ours, definition, strict=True))

    return is_right("softmax", is_equal)


@cache
def _kernel() -> Any:
    """Compiled function of pointers and sizes; each of its programs reads one row."""
    global tl, _BLOCK, _COLUMNS  # Triton's language looks up names in the module.
    triton, tl = import_module("triton"), import_module("triton.language")
    _BLOCK, _COLUMNS = tl.constexpr(_SEGMENTS_AT_ONCE), tl.constexpr(SEGMENT)
    return triton.jit(_read_row)


tl: Any
_BLOCK: Any
_COLUMNS: Any


def _read_row(logits, log_sums, maxima, size, num_segments):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    segments = tl.arange(0, _BLOCK)
    columns = segments[:, None] * _COLUMNS + tl.arange(0, _COLUMNS)[None, :]
    # Each line of a block has a maximum and a sum; lines are combined only at the end. The first maximum is finite,
    # because exp(-inf - -inf) is not a number.
    largest = tl.full([_BLOCK], -1e30, tl.float32)
    sums = tl.zeros([_BLOCK], tl.float32)
    for start in range(0, size, _BLOCK * _COLUMNS):
        places = start + columns
        values = tl.load(logits + row * size + places, mask=places < size, other=float("-inf")).to(tl.float32)
        maxima_of_lines = tl.max(values, axis=1)
        numbers = start // _COLUMNS + segments
        tl.store(maxima + row * num_segments + numbers, maxima_of_lines, mask=numbers < num_segments)
        larger = tl.maximum(largest, maxima_of_lines)
        sums = sums * tl.exp(largest - larger) + tl.sum(tl.exp(values - larger[:, None]), axis=1)
        largest = larger
    largest_of_row = tl.max(largest, axis=0)
    total = tl.sum(sums * tl.exp(largest - largest_of_row), axis=0)
    tl.store(log_sums + row, largest_of_row + tl.log(total))
