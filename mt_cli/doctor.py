"""What this machine is like, and what is wrong with it. Knows hardware and versions; changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.files import open_checkpoint
from mt_cli.cpus import idle_cpus
from mt_cli.errors import MtError
from mt_cli.hardware import describe_versions, has_fast_bf16, memory_of
from mt_cli.storage import format_bytes, size_of

_MIN_FREE_DISK = 2 * 2**30
_MIN_MEMORY = 2 * 2**30


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    is_good: bool
    subject: str
    text: str


def examine(directory: Path) -> list[Finding]:
    """Findings about the machine and the disk that `directory` is on."""
    runs = directory / "runs"
    return [
        *(*_versions(), *_devices(), _threads(), *_load(), *_memory(), _disk(directory)),
        *(*_writing(directory), *_cache(runs / ".cache"), *_runs(runs)),
    ]


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
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    used = torch.get_num_threads()
    note = "; more threads than CPUs slow each other down, set training.num_threads" if used > available else ""
    return Finding(used <= available, "threads", f"{used} of {available} CPUs{note}")


def _load() -> list[Finding]:
    idle, wanted = idle_cpus(), torch.get_num_threads()
    if idle is None:
        return []
    is_idle = idle > wanted - 0.5
    fewer = max(1, round(idle))
    advice = f", and {wanted} threads would wait for them; set training.num_threads={fewer}" if fewer < wanted else ""
    note = "" if is_idle else f"; other programs use the rest{advice}"
    return [Finding(is_idle, "load", f"{idle:.1f} of {os.cpu_count()} CPUs have nothing to do{note}")]


def _memory() -> list[Finding]:
    try:
        pages, page = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        kilobytes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
        available = kilobytes[0] * 1024 if kilobytes else pages * page
    except (OSError, ValueError, AttributeError):  # Not Linux.
        return []
    is_enough = available >= _MIN_MEMORY
    note = "" if is_enough else "; training takes 1 to 3 GiB, so that it may be slow or be killed: close other programs"
    there = memory_of(torch.device("cpu"))
    return [Finding(is_enough, "memory", f"{available / 2**30:.1f} of {there / 2**30:.1f} GiB available{note}")]


def _writing(directory: Path) -> list[Finding]:
    runs = directory / "runs"
    place = runs if os.path.lexists(runs) else directory
    if place.is_dir() and os.access(place, os.W_OK):
        return []
    problem = "cannot be written to" if place.is_dir() else "is no directory"
    return [Finding(False, "directory", f"{place} {problem}, and runs are kept in ./runs; mend it or go elsewhere")]


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


def _runs(runs: Path) -> list[Finding]:
    directories = [RunDirectory(path.parent) for path in sorted(runs.glob("*/checkpoints"))]
    problems = {run.path: _problems_of(run) for run in directories}
    num_good = sum(not found for found in problems.values())
    bad = [Finding(False, "run", problem) for found in problems.values() for problem in found]
    return [Finding(True, "runs", f"{num_good} below {runs} can be read")] * bool(num_good) + bad


def _problems_of(run: RunDirectory) -> list[str]:
    """What is wrong with the files that translating and going on need; every checkpoint is read to the end."""
    problems: list[str] = []
    try:
        run.tokenizers(run.config())
    except MtError as error:
        problems.append(str(error))
    for path in dict.fromkeys((run.best_path, run.last_path, *run.states())):
        if os.path.lexists(path):
            try:
                with open_checkpoint(path) as checkpoint:
                    run.check_tokenizers(checkpoint.state["fingerprints"])
            except MtError as error:
                problems.append(str(error))
    return list(dict.fromkeys(problems))
