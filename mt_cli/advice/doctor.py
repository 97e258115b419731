"""State and problems of this machine and of the runs in a folder. Changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.errors import MtError
from mt_cli.runtime.cpus import num_usable_cpus
from mt_cli.runtime.devices import (
    describe_versions,
    has_fast_bf16,
    memory_of,
    reason_against_compiling,
)
from mt_cli.runtime.files import format_bytes, size_of

_MIN_FREE_DISK = 2 * 2**30
_MIN_MEMORY = 2 * 2**30
_Kind = Literal["ok", "note", "BAD"]
"""`note`: worth knowing but not wrong, such as other running programs; `BAD`: needs to be fixed."""


class Finding(NamedTuple):
    """One line of the examination."""

    kind: _Kind
    subject: str
    text: str


def examine(directory: Path) -> list[Finding]:
    runs = directory / "runs"
    return [*_versions(), *_devices(), _threads(), *_memory(), *_storage(directory, runs), *_runs(runs)]


def _finding(is_good: bool, subject: str, text: str, advice: str) -> Finding:
    return Finding("ok", subject, text) if is_good else Finding("BAD", subject, f"{text}; {advice}")


def _versions() -> Iterator[Finding]:
    versions = describe_versions()
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.platform(terse=True)}")
    packages = ", ".join(f"{name} {version}" for name, version in versions.items() if name != "python")
    yield Finding("BAD" if "not installed" in versions.values() else "ok", "packages", packages)


def _devices() -> Iterator[Finding]:
    num_gpus = torch.cuda.device_count()
    for index in range(num_gpus):
        properties = torch.cuda.get_device_properties(index)
        text = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, {_bf16(torch.device('cuda', index))}"
        yield Finding("ok", f"cuda:{index}", text)
    devices = [torch.device("cuda", index) for index in range(num_gpus)]
    for problem in dict.fromkeys(map(reason_against_compiling, devices)):
        text = f"does not work, so training takes longer: {problem}" if problem else "works (Triton)"
        yield Finding("note" if problem else "ok", "compiling", text)
    if not num_gpus and shutil.which("nvidia-smi"):
        text = f"this machine has an NVIDIA driver, but PyTorch {torch.__version__} cannot use it; install a CUDA build"
        yield Finding("BAD", "cuda", text)
    if torch.backends.mps.is_available():
        yield Finding("ok", "mps", "available, fp32")
    yield Finding("ok", "cpu", f"{platform.machine()}, {_bf16(torch.device('cpu'))}")
    if num_gpus > 1:
        has_nccl = torch.distributed.is_nccl_available()
        text = f"--devices {num_gpus} uses all GPUs (NCCL)" if has_nccl else "this PyTorch has no NCCL"
        yield _finding(has_nccl, "processes", text, "install a CUDA build, or use one GPU")


def _bf16(device: torch.device) -> str:
    return "bf16 in hardware (precision auto: bf16)" if has_fast_bf16(device) else "no fast bf16 (precision auto: fp32)"


def _threads() -> Finding:
    available, used = num_usable_cpus(), torch.get_num_threads()
    advice = "more threads than CPUs slow each other down, set training.num_threads"
    return _finding(used <= available, "threads", f"{used} of {available} CPUs", advice)


def _memory() -> Iterator[Finding]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        (available,) = (int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError):  # Not Linux.
        return
    text = f"{available / 2**30:.1f} of {memory_of(torch.device('cpu')) / 2**30:.1f} GiB available"
    advice = "training takes 1 to 3 GiB and may be slow or be killed: close other programs"
    yield _finding(available >= _MIN_MEMORY, "memory", text, advice)


def _storage(directory: Path, runs: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(directory).free
    text = f"{free / 2**30:.1f} GiB free at {directory}"
    yield _finding(free >= _MIN_FREE_DISK, "disk", text, "checkpoints may not fit")
    folder, cache = runs if os.path.lexists(runs) else directory, runs / ".cache"
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        problem = "cannot be written to" if folder.is_dir() else "is no directory"
        yield Finding("BAD", "directory", f"{folder} {problem}, and runs are kept in ./runs; fix it or go elsewhere")
    if cache.is_dir():
        text = f"{format_bytes(size_of([cache]))} of prepared corpora in {cache}"
        yield Finding("ok", "cache", f"{text}; may be deleted, and is made again when needed")


def _runs(runs: Path) -> Iterator[Finding]:
    num_good = 0
    for path in sorted(runs.glob("*/checkpoints")):
        try:
            run = RunDirectory(path.parent)
            run.tokenizers(run.config())
            num_good += 1
        except MtError as error:
            yield Finding("BAD", "run", str(error))
    if num_good:
        yield Finding("ok", "runs", f"{num_good} below {runs} can be read")
