"""Devices, precision, seeds, memory and versions of this machine."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from mt_cli.errors import InputError
from mt_cli.runtime.cpus import limit_threads
from mt_cli.runtime.group import ALONE, Group

_LIBC = ctypes.CDLL(None)
_PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def pick_device(name: str, group: Group = ALONE) -> torch.device:
    """Device by name; `auto` is CUDA if available, else MPS, else CPU. Raises InputError if it is not available.

    With several processes, `auto` and `cuda` give every process of a machine a different CUDA device.

    Choosing a CUDA device turns off cuDNN's attention in the whole process. cuDNN plans each new shape on the CPU,
    4 ms a call on an H100, and batches of text have a new shape in almost every step. FlashAttention needs no plan.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; use auto, cpu, cuda, cuda:1 or mps") from None
    if group.size > 1 and device.type != "cpu":
        if device.type == "mps" or device.index is not None:
            raise InputError(f"device {name}: several processes need one device each; use auto, cuda or cpu")
        device = torch.device("cuda", group.local_rank)
    counts = {"cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= (count := counts.get(device.type, 1)):
        found = f"PyTorch finds {count} {device.type.upper()} devices, counted from 0"
        raise InputError(f"device {device}: {found}; see `mt doctor`")
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def pick_precision(name: str, device: torch.device) -> torch.dtype:
    """Dtype by name; `auto` is bf16 if `has_fast_bf16`, else fp32. Raises InputError for another name."""
    if name == "auto":
        name = "bf16" if has_fast_bf16(device) else "fp32"
    if name not in _PRECISIONS:
        raise InputError(f"unknown precision {name!r}; use auto, {', '.join(_PRECISIONS)}")
    return _PRECISIONS[name]


def precision_of(dtype: torch.dtype) -> str:
    """Name of a dtype: the inverse of `pick_precision`."""
    return next(name for name, precision in _PRECISIONS.items() if precision == dtype)


def has_fast_bf16(device: torch.device) -> bool:
    """True if a device multiplies bf16 in hardware: CUDA since Ampere, CPUs with AVX512-BF16 or AMX.

    `ATEN_CPU_CAPABILITY=avx2` makes PyTorch treat a CPU as one without AVX512.
    """
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type == "cpu":
        is_limited = torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")
        return not is_limited and any(map(torch.cpu.get_capabilities().get, ("avx512_bf16", "amx_tile")))
    return False


def reason_against_compiling(device: torch.device) -> str | None:
    """Reason not to compile kernels for a device by Triton or `torch.compile`, in a few words; None if there is none.

    When Triton starts, it builds a library with a C compiler and the header files of Python.
    """
    if device.type != "cuda":
        return "only GPUs with CUDA compile"
    if not has_fast_bf16(device):
        return "it has no bf16 in hardware, unlike Ampere and newer GPUs"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if not any(map(shutil.which, [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"])):
        return "no C compiler; install gcc"
    scheme = sysconfig.get_default_scheme()
    # On Debian, the scheme `posix_local` names a folder for header files that no package of Debian fills.
    folder = sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme)
    if not Path(folder, "Python.h").exists():
        return "no header files of Python; install python3-dev"
    return None


def use_threads(number: int | None) -> None:
    """Set the number of threads of PyTorch and `tokenizers`; None limits those of PyTorch to the usable cores."""
    limit = limit_threads(number)
    if number is not None or 0 < limit < torch.get_num_threads():
        torch.set_num_threads(limit)


def seed_device(device: torch.device, *numbers: int) -> None:
    """Seed the generators of torch on the CPU and on a device with a hash of these numbers."""
    seed = int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):  # Otherwise the generator of another device is seeded.
            torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def is_out_of_memory(error: Exception) -> bool:
    """True if an error of PyTorch means that a device has too little memory."""
    messages = ("can't allocate memory", "not enough memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and (
        isinstance(error, torch.OutOfMemoryError) or any(message in str(error) for message in messages)
    )


T = TypeVar("T")
R = TypeVar("R")


def in_halves(
    item: T,
    compute: Callable[[T], R],
    split: Callable[[T], Iterable[T]],
    is_too_large: Callable[[T], bool] = lambda item: False,
) -> Iterator[R]:
    """Yield the result for an item or, if the memory does not suffice, for the parts that `split` returns, in order.

    Parts are split again as often as needed. An item that is known to be too large is split at once.
    """
    if not is_too_large(item):
        try:
            result = compute(item)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        else:
            yield result
            return
    for part in split(item):  # Outside of the handler, so that the tensors of the failed attempt are free.
        yield from in_halves(part, compute, split, is_too_large)


def memory_of(device: torch.device) -> int:
    """Total memory of a device in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory_used(device: torch.device) -> int | None:
    """Bytes that tensors use on a GPU, or this process on a CPU; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    if sys.platform != "linux":
        return None
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def limited_memory(device: torch.device) -> Iterator[None]:
    """Context manager that limits PyTorch to two thirds of the GPU memory that is free or that PyTorch holds.

    An allocation beyond the limit fails as out of memory. The rest is reserved for later allocations, such as CUDA
    graphs, whose memory other tensors cannot use.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(index)
    torch.cuda.set_per_process_memory_fraction(2 / 3 * (free + torch.cuda.memory_reserved(index)) / total, index)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, index)


def free_memory(device: torch.device) -> int:
    """Bytes that this process can still allocate on a CUDA device, after PyTorch's cache is returned to the device.

    Memory that CUDA graphs hold is not free, even while they do not use it.
    """
    with torch.cuda.device(device):
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info(device)[0]


def describe_hardware(device: torch.device) -> dict[str, Any]:
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "num_cpus": os.cpu_count(),
        "num_threads": torch.get_num_threads(),
    }


def describe_versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    versions = {"python": platform.python_version()}
    for package in ("mt-cli", "torch", "datasets", "tokenizers", "safetensors", "sacrebleu", "tensorboard"):
        versions[package] = "not installed"
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def keep_memory() -> None:
    """Let glibc keep freed memory for the next step, and oneDNN and PyTorch fewer kernels for shapes.

    A training step of 4,000 tokens (8.09 M parameters, two cores) has 1,200 page faults instead of 46,000, and a model
    of 1.8 M parameters uses 800 instead of 1,080 MB after 150 steps.
    """
    for variable in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(variable, "100")
    if hasattr(_LIBC, "mallopt"):
        for option, value in {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1, _M_TOP_PAD: 2**26}.items():
            _LIBC.mallopt(option, value)


def release_memory() -> None:
    """Return unused memory to the system; glibc may keep a gigabyte otherwise."""
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
