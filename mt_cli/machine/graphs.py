"""CUDA graphs: the work of a function, recorded once and repeated without its launches. Knows torch; no models.

A training step of a small model launches 2,000 kernels, which takes a CPU longer than the GPU needs for their work. A
graph launches all of them at once. It reads and writes the same memory each time, so the function works on tensors that
stay where they are, in shapes that stay the same, and never asks for a value.
"""

from __future__ import annotations

from collections.abc import Callable

import torch


class GraphPool:
    """Graphs that run one after the other and share their memory for intermediate values."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._memory = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def capture(self, function: Callable[[], None]) -> Callable[[], None]:
        """Record the work that a function starts on the GPU, without doing it; call the result to do it.

        Call the function before, with the same shapes: kernels that are compiled or loaded at their first use cannot be
        recorded. On other devices, the result is the function itself. Raises `torch.OutOfMemoryError`, a RuntimeError.
        """
        if self.device.type != "cuda":
            return function
        graph = torch.cuda.CUDAGraph()
        # Other threads may prepare the next batches in pinned memory meanwhile.
        with torch.cuda.device(self.device), torch.cuda.graph(graph, self._memory, capture_error_mode="thread_local"):
            function()
        return graph.replay
