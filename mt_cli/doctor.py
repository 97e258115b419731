"""What this machine is like, and what is wrong with it. Knows hardware and versions; changes nothing."""

from __future__ import annotations

import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from mt_cli.corpus.cache import format_bytes, size_of
from mt_cli.hardware import describe_versions, has_fast_bf16

_MIN_FREE_DISK = 2 * 2**30


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    is_good: bool
    subject: str
    text: str


def examine(directory: Path) -> list[Finding]:
    """Findings about the machine and the disk that `directory` is on."""
    return [*_versions(), *_devices(), _threads(), _disk(directory), *_cache(directory / "runs" / ".cache")]


def _versions() -> list[Finding]:
    versions = describe_versions()
    missing = [name for name, version in versions.items() if version == "not installed"]
    supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
    note = "" if supported else "; tested with 3.10 to 3.13"
    listed = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "python")
    return [
        Finding(supported, "python", f"{platform.python_version()} on {platform.platform(terse=True)}{note}"),
        Finding(not missing, "packages", listed),
    ]


def _devices() -> list[Finding]:
    findings = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        text = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {_bf16(torch.device('cuda', index))}"
        findings.append(Finding(True, f"cuda:{index}", text))
    if not findings and shutil.which("nvidia-smi"):
        text = f"this machine has an NVIDIA driver, but PyTorch {torch.__version__} cannot use it; install a CUDA build"
        findings.append(Finding(False, "cuda", text))
    if torch.backends.mps.is_available():
        findings.append(Finding(True, "mps", "available, fp32"))
    findings.append(Finding(True, "cpu", f"{platform.machine()}, {_bf16(torch.device('cpu'))}"))
    return findings


def _bf16(device: torch.device) -> str:
    return "bf16 in hardware (precision auto: bf16)" if has_fast_bf16(device) else "no fast bf16 (precision auto: fp32)"


def _threads() -> Finding:
    import os

    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    used = torch.get_num_threads()
    note = "; more threads than CPUs slow each other down, set training.num_threads" if used > available else ""
    return Finding(used <= available, "threads", f"{used} of {available} CPUs{note}")


def _disk(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    note = "" if free >= _MIN_FREE_DISK else "; checkpoints may not fit"
    return Finding(free >= _MIN_FREE_DISK, "disk", f"{free / 2**30:.1f} GiB free at {directory}{note}")


def _cache(cache: Path) -> list[Finding]:
    if not cache.is_dir():
        return []
    size = format_bytes(size_of([cache]))
    return [
        Finding(True, "cache", f"{size} of prepared corpora in {cache}; may be deleted, and is made again when needed")
    ]
