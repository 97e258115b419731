"""Asynchronous copies between the CPU and a GPU. Knows tensors; does not know their content."""

from __future__ import annotations

import torch
from torch import Tensor


def send(values: Tensor, device: torch.device) -> Tensor:
    """Copy on a device; a GPU continues its work during the copy."""
    if device.type != "cuda" or values.is_cuda:
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


class Arriving:
    """Values on their way to the CPU."""

    def __init__(self, values: Tensor) -> None:
        self._values = values
        self._arrived: torch.cuda.Event | None = None
        if values.is_cuda:
            pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._values = pinned.copy_(values.contiguous(), non_blocking=True)
            # The device of the values may not be the current device.
            self._arrived = torch.cuda.current_stream(values.device).record_event()

    def read(self) -> Tensor:
        """Values on the CPU; waits until they have arrived."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._values.cpu()
