"""Start several processes with PyTorch's launcher, join them, and end all of them with one message and one status.

A process joins a group only if a launcher (`torchrun`, `mt train --devices`) has set its environment variables.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mt_cli.errors import InputError, LostProcessError, one_line
from mt_cli.machine.console import silence
from mt_cli.machine.cpus import num_usable_cpus
from mt_cli.machine.group import ALONE, Group
from mt_cli.machine.storage import is_wrong_path

_TIMEOUT = timedelta(hours=24)
"""Timeout of a process that waits for others. A process that ends is noticed at once; preparation may take hours."""
_JOIN_TIMEOUT = timedelta(minutes=5)
_STATUS_TIMEOUT = timedelta(seconds=10)
_STOP_SECONDS = 600
"""Time for a launcher to wait, after a signal, until processes have finished a step and a save."""
_ALWAYS_ALLOWED = 2  # Number of processes that any machine may start, to try training with several.
_VARIABLES = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_PORT")
_STATUS_FILE = "MT_STATUS_FILE"
"""Environment variable: file for the exit status. After a signal, `launch` can read it nowhere else."""
_failed_status: int | None = None
"""Exit status of this process if it was in a group and failed."""


@contextmanager
def launched_group(if_lost: str = "") -> Iterator[Group]:
    """Context manager that gives the group of the processes that a launcher started; without a launcher, `ALONE`.

    Only the first process that fails raises its error. The others raise SystemExit with its status, so that there is
    one message. Raises InputError if the variables of a launcher are incomplete, or the processes cannot find each
    other; LostProcessError, whose message ends with `if_lost`, if another process has ended without reporting an error.
    """
    global _failed_status
    if launched_processes() is None:
        yield ALONE
        return
    group, store = _join()
    if group.rank > 0:
        silence()
    try:
        yield group
    except BaseException as error:
        _replace_signal_handlers(signal.SIG_IGN)  # A launcher ends the others as soon as one has failed.
        is_first, _failed_status = _record_failure(group, store, _status_of(error))
        if not is_first:
            raise SystemExit(_failed_status) from None
        _write_status(_failed_status)
        if isinstance(error, LostProcessError):
            raise LostProcessError("; ".join(filter(None, (str(error), if_lost)))) from None
        raise
    else:
        group.on_main(lambda: _write_status(0))
        dist.destroy_process_group()


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


def launch(num_devices: int, arguments: Sequence[str]) -> int:
    """Run `mt` with these arguments in several processes of this machine; return the exit status.

    If a process fails, PyTorch's launcher ends the others. It passes signals on to all processes. Raises InputError if
    there are more processes than devices or CPUs.
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
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # It asks the processes to save.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, num_usable_cpus() // num_devices)))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_STOP_SECONDS))
    with tempfile.TemporaryDirectory(prefix="mt-") as folder:
        status_file = Path(folder) / "status"
        os.environ[_STATUS_FILE] = str(status_file)
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
        except ChildFailedError as error:
            return max(1, error.get_first_failure()[1].exitcode)
        except (SignalException, KeyboardInterrupt):
            return int(status_file.read_text(encoding="ascii")) if status_file.exists() else 130
    return 0


def _join() -> tuple[Group, Any]:
    """Group of this process, and the store that its processes share."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]
    from torch.distributed.rendezvous import rendezvous

    atexit.register(_exit_if_failed)
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if os.environ["MASTER_ADDR"] in ("127.0.0.1", "::1", "localhost") and loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])  # The name of the machine may have no address.
    # While PyTorch waits for other processes, Python's handlers do not run: only a default action ends this process.
    previous = _replace_signal_handlers(signal.SIG_DFL)
    try:
        store, rank, size = next(rendezvous("env://", timeout=_JOIN_TIMEOUT))
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            # After a restart, the launcher's store still has the addresses of the previous processes.
            store = PrefixStore(f"mt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        group_store = PrefixStore("group", store)
        dist.init_process_group(backend, store=group_store, rank=rank, world_size=size, timeout=_TIMEOUT)
        dist.all_reduce(torch.zeros(()))  # Barrier: no process may end while others still connect to it.
    except (RuntimeError, ValueError) as error:
        advice = "if this process has no launcher, unset WORLD_SIZE"
        raise InputError(f"the processes of the launcher cannot join: {one_line(error)}; {advice}") from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    store.set_timeout(_TIMEOUT)
    launch_id = f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} of process {os.getppid()}"
    return Group(rank, size, int(os.environ["LOCAL_RANK"]), launch_id), store


def _replace_signal_handlers(handler: signal.Handlers) -> dict[int, Any]:
    """Set the handler of the signals that stop a process, unless they are ignored; return the previous ones."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    active = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in active}


def _record_failure(group: Group, store: Any, status: int) -> tuple[bool, int]:
    """Record a failure; return whether this process failed first, and the exit status of the first failure."""
    try:
        if int(store.add("failures", 1)) > 1:
            store.wait(["status"], _STATUS_TIMEOUT)
            return False, int(store.get("status"))
        store.set("status", str(status))
    except RuntimeError:  # The first machine or the launcher is gone, too: one message for each machine.
        return group.local_rank == 0, status
    return True, status


def _status_of(error: BaseException) -> int:
    """Exit status of the command line after an error."""
    if isinstance(error, OSError) and is_wrong_path(error):
        return 2
    return int(getattr(error, "exit_code", 130 if isinstance(error, KeyboardInterrupt) else 1))


def _write_status(status: int) -> None:
    if path := os.environ.get(_STATUS_FILE):
        with suppress(OSError):
            Path(path).write_text(str(status), encoding="ascii")


def _exit_if_failed() -> None:
    """End a failed process before Python finalizes: threads of gloo that still report errors would abort it."""
    if _failed_status is not None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # The stream may be closed, or its reader gone.
                stream.flush()
        os._exit(_failed_status)
