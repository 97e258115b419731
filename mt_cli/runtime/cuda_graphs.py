"""CUDA graphs: capture the kernels of a function once, and replay them with one launch.

A training step of a small model launches 2,000 kernels, which takes a CPU longer than the GPU needs for their work. A
graph launches all of them at once. It reads and writes the same memory each time, so the function works on tensors that
stay where they are, in shapes that stay the same, and never asks for a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from mt_cli.runtime.devices import is_out_of_memory


class GraphPool:
    """Graphs that run one after the other and share their memory for intermediate values."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._memory = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Context manager that queues work on the stream of `capture`.

        Compute gradients inside it before capturing them: if they were first computed on another stream, autograd
        waits for that stream, and the capture fails.
        """
        if self._stream is None:
            yield
            return
        outside = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(outside)
        with torch.cuda.stream(self._stream):
            yield
        outside.wait_stream(self._stream)

    def capture(self, function: Callable[[], None]) -> Callable[[], None] | None:
        """Capture the kernels that a function launches, without running them; return a function that replays them.

        Call `function` once before, with the same shapes, because kernels that are compiled or loaded at first use
        cannot be captured. Returns None if the memory does not suffice, and `function` itself on other devices.
        """
        if self.device.type != "cuda":
            return function
        graph = torch.cuda.CUDAGraph()
        # Other threads may prepare the next batches in pinned memory during the capture.
        capture = torch.cuda.graph(graph, self._memory, self._stream, capture_error_mode="thread_local")
        outside = torch.cuda.current_stream(self.device)
        try:
            with torch.cuda.device(self.device), _separate_workspaces(), capture:
                function()
        except RuntimeError as error:
            torch.cuda.set_stream(outside)  # If a capture fails at its end, PyTorch keeps its stream.
            if not is_out_of_memory(error):
                raise
            return None
        return graph.replay


@contextmanager
def _separate_workspaces() -> Iterator[None]:
    """Context manager in which matrix products are captured with workspaces in the memory of their graph.

    PyTorch keeps one workspace of cuBLAS for each stream, and a graph contains its address. When a graph is deleted,
    PyTorch 2.12 also frees the workspace of its stream, which other graphs of this stream still use
    (https://github.com/pytorch/pytorch/issues/193402).
    """
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)
    clear()  # So that the capture allocates a workspace.
    try:
        yield
    finally:
        clear()
