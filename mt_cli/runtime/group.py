"""The processes that train or use one model together, as a value.

Python values travel over gloo (CPUs); gradients travel over NCCL if they are on GPUs. Every process must call the
methods that exchange values in the same order; they raise LostProcessError if another process has ended. PyTorch is
imported at the first exchange, because every command has a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mt_cli.errors import LostProcessError, one_line

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
U = TypeVar("U")

_BUCKET_BYTES = 2**27
LAUNCH_NAME = "mt"
"""Value of TORCHELASTIC_RUN_ID in processes that `--devices` starts."""


@dataclass(frozen=True)
class Group:
    """Group of processes, seen from one of them. In a group of one, methods are neutral: a sum is the value itself."""

    rank: int = 0
    """Number of this process. Process 0 is the main one: it logs, saves and prints."""
    size: int = 1
    local_rank: int = 0
    """Number of this process among the processes of its machine, from 0."""

    def on_main(self, work: Callable[[], T]) -> T | None:
        """Call `work` in the main process and return its result; other processes return None without waiting."""
        return work() if self.rank == 0 else None

    def from_main(self, work: Callable[[], T]) -> T:
        """Call `work` in the main process only, and broadcast its pickled result to every process."""
        if self.size == 1:
            return work()
        results: list[Any] = [self.on_main(work)]
        import torch

        with _exchanging():
            torch.distributed.broadcast_object_list(results, src=0, device=torch.device("cpu"))
        result: T = results[0]
        return result

    def once_per_machine(self, work: Callable[[], T]) -> T:
        """Call `work` in one process of each machine first, then in the others, which can reuse its files."""
        if self.size == 1:
            return work()
        results = [work()] if self.local_rank == 0 else []
        self.all_gather(None)
        return results[0] if results else work()

    def all_gather(self, value: T) -> list[T]:
        """Values of all processes, in the order of their ranks; they are pickled."""
        if self.size == 1:
            return [value]
        import torch

        values: list[Any] = [None] * self.size
        with _exchanging():
            torch.distributed.all_gather_object(values, value)
        return values

    def map_shares(self, work: Callable[[list[T]], Sequence[U]], items: Sequence[T]) -> list[U]:
        """Results of `work` for all items, in order; each process works on its share."""
        return self.join_shares(work(self.share_of(items)), len(items))

    def share_of(self, items: Sequence[T]) -> list[T]:
        """Items of this process: every N-th one of N processes."""
        return list(items[self.rank :: self.size])

    def join_shares(self, results: Sequence[U], number: int) -> list[U]:
        """Results for all items, in order, from those of each process for its share; `number` is that of the items."""
        joined: list[Any] = [None] * number
        for rank, share in enumerate(self.all_gather(list(results))):
            joined[rank :: self.size] = share
        return joined

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in few large messages; all processes have equal shapes."""
        if self.size == 1:
            return
        import torch

        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            with _exchanging():
                torch.distributed.all_reduce(flat)
            parts = flat.split([tensor.numel() for tensor in bucket])
            copy_all([part.view_as(tensor) for tensor, part in zip(bucket, parts, strict=True)], bucket)

    def agree(self, seconds: float, *requests: bool) -> tuple[float, list[bool]]:
        """Return `seconds` of the main process and, for each request, whether any process made it."""
        if self.size == 1:
            return seconds, list(requests)
        import torch

        values = torch.tensor([0.0 if self.rank else seconds, *map(float, requests)], dtype=torch.float64)
        with _exchanging():
            torch.distributed.all_reduce(values)
        seconds, *counts = values.tolist()
        return seconds, [count > 0 for count in counts]


ALONE = Group()


def copy_all(tensors: list[Tensor], places: list[Tensor]) -> None:
    """Copy tensors into `places` of the same shapes; on a GPU in few kernels."""
    import torch

    with torch.no_grad():
        torch._foreach_copy_(places, tensors)


@contextmanager
def _exchanging() -> Iterator[None]:
    """Context manager that turns the errors of gloo and NCCL about a connection into LostProcessError.

    Other errors pass, such as errors of earlier kernels that CUDA reports late.
    """
    from torch.distributed import DistError

    try:
        yield
    except RuntimeError as error:
        # Gloo has no error type of its own; its messages begin with the file that raised them.
        is_of_backend = isinstance(error, DistError) or "/gloo/" in str(error)
        if not is_of_backend or "Cuda failure" in str(error):
            raise
        cause = "" if "by peer" in str(error) else f" ({one_line(error)})"
        raise LostProcessError(f"another process has ended{cause}; start the same command again") from None


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors in order, in groups of limited size with one type and device."""
    bucket: list[Tensor] = []
    num_bytes = 0
    for tensor in tensors:
        has_changed = bool(bucket) and (tensor.dtype, tensor.device) != (bucket[0].dtype, bucket[0].device)
        if bucket and (has_changed or num_bytes + tensor.nbytes > _BUCKET_BYTES):
            yield bucket
            bucket, num_bytes = [], 0
        bucket.append(tensor)
        num_bytes += tensor.nbytes
    if bucket:
        yield bucket
