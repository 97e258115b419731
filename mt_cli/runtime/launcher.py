"""Start several processes with PyTorch's launcher, join them, and report the first error of any of them.

A process joins a group only if a launcher (`torchrun`, `mt train --devices`) has set its environment variables.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from mt_cli.errors import InputError, LostProcessError, MtError, one_line
from mt_cli.runtime.console import silence
from mt_cli.runtime.cpus import num_usable_cpus
from mt_cli.runtime.group import ALONE, Group
from mt_cli.runtime.signals import STOPS, set_handlers

_TIMEOUT = timedelta(hours=24)
"""Timeout of a process that waits for others. A process that ends is noticed at once; preparation may take hours."""
_JOIN_TIMEOUT = timedelta(minutes=5)
_STOP_SECONDS = 600
"""Time for a launcher to wait, after a signal, until processes have finished a step and a save."""
_ALWAYS_ALLOWED = 2  # Number of processes that any machine may start, to try training with several.
_VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT")
_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Environment variable with the file in which PyTorch's launcher expects the error of a process."""
_failed_status: int | None = None
"""Exit status of this process if it was in a group and failed."""


@contextmanager
def launched_group(if_lost: str = "") -> Iterator[Group]:
    """Context manager that gives the group of the processes that a launcher started; without a launcher, `ALONE`.

    PyTorch's launcher reports the error of the process that failed first, so that there is one message: the processes
    write theirs into a file and raise SystemExit. Raises InputError if the variables of a launcher are incomplete, or
    the processes cannot find each other. LostProcessError says that another process has ended; its message ends with
    `if_lost`.
    """
    global _failed_status
    if launched_processes() is None:
        yield ALONE
        return
    group = _join()
    if group.rank > 0:
        silence()
    try:
        yield group
    except BaseException as error:
        set_handlers(dict.fromkeys(STOPS, signal.SIG_IGN))  # A launcher ends the others as soon as one has failed.
        if isinstance(error, LostProcessError) and if_lost:
            error.args = (f"{error}; {if_lost}",)
        _failed_status = getattr(error, "exit_code", 130 if isinstance(error, KeyboardInterrupt) else 1)
        if _ERROR_FILE in os.environ and isinstance(error, (MtError, KeyboardInterrupt)):
            _record(error)
            raise SystemExit(_failed_status) from None
        raise
    else:
        dist.destroy_process_group()


def _record(error: BaseException) -> None:
    """Write an error for the launcher in PyTorch's format, unless it only follows from an error of another process."""
    if isinstance(error, MtError) and not isinstance(error, LostProcessError):
        extra = {"py_callstack": str(error), "timestamp": str(int(time.time()))}
        message = {"message": str(error), "errorCode": error.exit_code, "extraInfo": extra}
        with suppress(OSError):
            Path(os.environ[_ERROR_FILE]).write_text(json.dumps({"message": message}), encoding="utf-8")


def launched_processes() -> int | None:
    """Number of processes that a launcher started; None without a launcher.

    Raises InputError if the variables of a launcher are incomplete, because this process must not train alone then.
    """
    if "WORLD_SIZE" not in os.environ:
        return None
    size, rank, *_ = values = [os.environ.get(name, "") for name in _VARIABLES]
    is_complete = all(map(str.isdecimal, values)) and int(rank) < int(size) and "MASTER_ADDR" in os.environ
    if not is_complete:
        raise InputError(
            f"WORLD_SIZE is set, as launchers do, but MASTER_ADDR is missing, or {', '.join(_VARIABLES)} cannot be "
            f"{values}; start with torchrun or --devices, or unset WORLD_SIZE"
        )
    return int(size)


def launch(num_devices: int, arguments: Sequence[str], if_lost: str = "") -> int:
    """Run `mt` with these arguments in several processes of this machine; return the exit status.

    If a process fails, PyTorch's launcher ends the others. It passes signals on to all processes. Raises the first
    error of a process, and InputError if there are more processes than devices or CPUs.
    """
    most = max(num_usable_cpus(), torch.cuda.device_count(), _ALWAYS_ALLOWED)
    if num_devices > most:
        raise InputError(f"--devices {num_devices}: by its CPUs and CUDA devices, this machine can use at most {most}")
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)  # The processes print what users need.
    is_nohup = hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, num_usable_cpus() // num_devices)))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_STOP_SECONDS))
    with tempfile.TemporaryDirectory(prefix="mt-") as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=num_devices,
            run_id="mt",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",  # The name of a machine may have no address.
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
            signals_to_handle="SIGTERM,SIGINT,SIGQUIT" + ("" if is_nohup else ",SIGHUP"),
        )
        try:
            elastic_launch(config, sys.executable)("-m", "mt_cli", *arguments)
        except ChildFailedError as failed:
            _raise_first_error(Path(folder))
            statuses = [failure.exitcode for failure in failed.failures.values()]
            if min(statuses) < 0:
                name = signal.Signals(-min(statuses)).name
                raise LostProcessError(f"one of the processes has ended ({name}); {if_lost}") from None
            return max(statuses)  # The processes have printed their tracebacks.
        except (SignalException, KeyboardInterrupt):
            _raise_first_error(Path(folder))
            raise KeyboardInterrupt from None
    return 0


def _raise_first_error(folder: Path) -> None:
    """Raise the first error that a process has written into a file of this folder, if there is one."""
    for path in sorted(folder.rglob("error.json"), key=lambda path: path.stat().st_mtime_ns):
        message = json.loads(path.read_text(encoding="utf-8"))["message"]
        error = MtError(message["message"])
        error.exit_code = message["errorCode"]
        raise error from None


def _join() -> Group:
    """Group of this process and the others of its launcher."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]
    from torch.distributed.rendezvous import rendezvous

    atexit.register(_exit_if_failed)
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if os.environ["MASTER_ADDR"] in ("127.0.0.1", "::1", "localhost") and loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])  # The name of the machine may have no address.
    # While PyTorch waits for other processes, Python's handlers do not run: only a default action ends this process.
    previous = set_handlers(dict.fromkeys(STOPS, signal.SIG_DFL))
    try:
        store, rank, size = next(rendezvous("env://", timeout=_JOIN_TIMEOUT))
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            # After a restart, the launcher's store still has the addresses of the previous processes.
            store = PrefixStore(f"mt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
        dist.all_reduce(torch.zeros(()))  # Barrier: no process may end while others still connect to it.
    except (RuntimeError, ValueError) as error:
        advice = "if this process has no launcher, unset WORLD_SIZE"
        raise InputError(f"the processes of the launcher cannot join: {one_line(error)}; {advice}") from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    launch_id = f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} of process {os.getppid()}"
    return Group(rank, size, int(os.environ["LOCAL_RANK"]), launch_id)


def _exit_if_failed() -> None:
    """End a failed process before Python finalizes: threads of gloo that still report errors would abort it."""
    if _failed_status is not None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # The stream may be closed, or its reader gone.
                stream.flush()
        os._exit(_failed_status)
