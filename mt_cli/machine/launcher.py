"""Starting several processes by PyTorch's launcher, joining them, and ending them with one message and one status.

A process joins the others only if the environment of a launcher (`torchrun`, `mt train --devices`) says so.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from mt_cli.errors import InputError, LostProcessError, one_line
from mt_cli.machine.console import silence
from mt_cli.machine.cpus import num_usable_cpus
from mt_cli.machine.group import ALONE, Group, lost
from mt_cli.machine.storage import is_wrong_path

_TIMEOUT = timedelta(hours=24)
"""How long a process waits for others. The end of a process is noticed at once; a corpus may take hours to prepare."""
_PR_SET_PDEATHSIG = 1
_STATUS_TIMEOUT = timedelta(seconds=10)
_STATUS_FILE = "MT_STATUS_FILE"
"""Environment variable: where the process that fails first, or the main one, leaves its exit status for `launch`."""
_LAUNCHER = "MT_LAUNCHER"
"""Environment variable: the process id of `launch`."""
_ALWAYS_ALLOWED = 2  # Processes, so that training with several can be tried on any machine.
_STOP_SECONDS = 600
"""How long a launcher waits, after a signal, for the end of a step and a save."""
_JOIN_TIMEOUT = timedelta(minutes=5)
_POLL_SECONDS = 0.02
_NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")


_failed_status: int | None = None
"""The exit status of a process that worked together with others and failed."""


@contextmanager
def launched_group(if_lost: str = "") -> Iterator[Group]:
    """Context manager that gives the group of the processes that a launcher started; without one, `ALONE`.

    Only the first process that fails raises its error; the others raise SystemExit with the same status, so that there
    is one message. Raises InputError if the variables of a launcher are incomplete, or the processes cannot find each
    other; LostProcessError, which ends with `if_lost`, if another process has ended without an error of its own.
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
        _ignore_signals()  # A launcher ends the others as soon as one has failed; their status is its status.
        own_status = _status_of(error)
        first_status = _status_of_first_failure(group, store, own_status)
        _failed_status = own_status if first_status is None else first_status
        if first_status is None:
            if _is_of_exchange(error):  # In a pass through a sharded model, which exchanges weights and gradients.
                error = lost(error)
            if isinstance(error, LostProcessError):
                raise LostProcessError("; ".join(filter(None, (str(error), if_lost)))) from None
            raise
        raise SystemExit(_failed_status) from None
    else:
        group.on_main(lambda: _leave_status(0))
        dist.destroy_process_group()


def _ignore_signals() -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _status_of(error: BaseException) -> int:
    """The exit status with which the command line ends a process after an error."""
    if isinstance(error, OSError) and is_wrong_path(error):
        return 2
    return int(getattr(error, "exit_code", 130 if isinstance(error, KeyboardInterrupt) else 1))


def launched_processes() -> int | None:
    """The number of processes that a launcher started; None if there is no launcher.

    Raises InputError if its variables are incomplete: this process must not train alone then.
    """
    if "WORLD_SIZE" not in os.environ:
        return None
    missing = [name for name in (*_NUMBERS, "MASTER_ADDR") if name not in os.environ]
    wrong = [f"{name}={os.environ[name]!r}" for name in _NUMBERS if not os.environ.get(name, "0").isdecimal()]
    if not missing and not wrong and int(os.environ["RANK"]) >= int(os.environ["WORLD_SIZE"]):
        wrong = [f"{name}={os.environ[name]}" for name in ("RANK", "WORLD_SIZE")]
    if missing or wrong:
        problem = f"{', '.join(missing)} is not set" if missing else f"{', '.join(wrong)} cannot be"
        raise InputError(
            f"WORLD_SIZE is set, as launchers do, but {problem}; start with torchrun or --devices, or unset WORLD_SIZE"
        )
    return int(os.environ["WORLD_SIZE"])


def _join() -> tuple[Group, Any]:
    """The group of this process, and the store of this start of the processes."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]
    from torch.distributed.rendezvous import rendezvous

    _stop_without_launcher()
    atexit.register(_end_if_failed)
    _use_loopback()
    # While PyTorch waits for the other processes, only a signal without a handler of Python ends this one at once.
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR2") if hasattr(signal, name)]
    previous = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    try:
        store, rank, num_processes = next(rendezvous("env://", timeout=_JOIN_TIMEOUT))
        own = PrefixStore(_common_name(store, rank, num_processes), store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        exchange = PrefixStore("group", own)
        dist.init_process_group(backend, store=exchange, rank=rank, world_size=num_processes, timeout=_TIMEOUT)
        dist.all_reduce(torch.zeros(()))  # None goes on, and perhaps ends, while others still connect to it.
    except (RuntimeError, ValueError) as error:
        raise InputError(
            f"the processes of the launcher cannot join: {one_line(error)}\nIf this process has no launcher, unset "
            "WORLD_SIZE."
        ) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    store.set_timeout(_TIMEOUT)
    launch_id = f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} of process {os.getppid()}"
    return Group(rank, num_processes, int(os.environ["LOCAL_RANK"]), launch_id), own


def _use_loopback() -> None:
    """Let gloo use the loopback interface if all processes are on this machine, whose name may have no address."""
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if os.environ["MASTER_ADDR"] in ("127.0.0.1", "::1", "localhost") and loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])


def _common_name(store: Any, rank: int, num_processes: int) -> str:
    """A name that the first process gives to this start of all processes, once all of them are there.

    The store may be that of the processes before a restart, and still have their addresses. The launchers of several
    machines do not count restarts alike. So each process asks under a name of its own.
    """
    own = uuid.uuid4().hex
    if rank > 0:
        store.set(f"mt/asks/{rank}", own)
        name = str(store.get(f"mt/name/{own}").decode("ascii"))
        store.set(f"{name}/has/{rank}", "")
        return name
    name, missing, end = f"mt/{own}", list(range(1, num_processes)), time.monotonic() + _JOIN_TIMEOUT.total_seconds()
    while missing:
        if time.monotonic() > end:
            raise RuntimeError(f"{len(missing)} of {num_processes} processes are missing")
        for other in missing:
            if store.check([f"mt/asks/{other}"]):
                store.set(f"mt/name/{store.get(f'mt/asks/{other}').decode('ascii')}", name)
        time.sleep(_POLL_SECONDS)
        missing = [other for other in missing if not store.check([f"{name}/has/{other}"])]
    return name


def _stop_without_launcher() -> None:
    """Send SIGTERM to this process, once, when its launcher ends, which may have been killed; Linux only.

    Linux sends its signal again for other threads of the launcher that end; a second SIGTERM would stop at once.
    """
    is_stopping = False

    def stop(number: int, frame: object) -> None:
        nonlocal is_stopping
        if not is_stopping:
            is_stopping = True
            signal.raise_signal(signal.SIGTERM)

    with suppress(OSError, AttributeError):
        prctl = ctypes.CDLL(None).prctl
        signal.signal(signal.SIGUSR2, stop)
        prctl(_PR_SET_PDEATHSIG, signal.SIGUSR2)
    if os.environ.get(_LAUNCHER, str(os.getppid())) != str(os.getppid()):
        stop(0, None)  # It has ended before this process asked for the signal.


def _end_if_failed() -> None:
    """End a failed process before Python is finalized, as threads of gloo that still report errors would abort it."""
    if _failed_status is None:
        return
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # The stream may be closed.
            stream.flush()
    os._exit(_failed_status)


def _status_of_first_failure(group: Group, store: Any, own_status: int) -> int | None:
    """The exit status of the process that failed first; None if this one did."""
    try:
        if int(store.add("failures", 1)) > 1:
            store.wait(["status"], _STATUS_TIMEOUT)
            return int(store.get("status"))
        store.set("status", str(own_status))
    except RuntimeError:  # The first machine or the launcher is gone, too: one message for each machine.
        if group.local_rank != 0:
            return own_status
    _leave_status(own_status)
    return None


def _leave_status(status: int) -> None:
    """Leave the exit status for `launch`, which learns of none after a signal."""
    if path := os.environ.get(_STATUS_FILE):
        with suppress(OSError), open(path, "w", encoding="ascii") as file:
            file.write(str(status))


def launch(num_devices: int, arguments: Sequence[str]) -> int:
    """Run `mt` with these arguments in several processes of this machine; return the exit status.

    The launcher is that of `torchrun`. If a process fails, it ends the others; a signal is passed on to all. Raises
    InputError if there are more processes than devices or CPUs.
    """
    _check_number(num_devices)
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, num_usable_cpus() // num_devices)))
    os.environ[_LAUNCHER] = str(os.getpid())
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # The processes print what users need.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_STOP_SECONDS))
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # It asks the processes to save.
    is_nohup = hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    with tempfile.TemporaryDirectory(prefix="mt-") as folder:
        os.environ[_STATUS_FILE] = os.path.join(folder, "status")
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
            return _left_status()
    return 0


def _check_number(num_devices: int) -> None:
    num_cpus, num_gpus = num_usable_cpus(), torch.cuda.device_count()
    most = max(num_cpus, num_gpus, _ALWAYS_ALLOWED)
    if num_devices > most:
        found = f"{num_cpus} CPU{'s' * (num_cpus != 1)} and {num_gpus} CUDA device{'s' * (num_gpus != 1)}"
        raise InputError(f"--devices {num_devices}: this machine has {found}; use at most {most}")


def _left_status() -> int:
    with suppress(OSError, ValueError), open(os.environ[_STATUS_FILE], encoding="ascii") as file:
        return int(file.read())
    return 130


def _is_of_exchange(error: BaseException) -> bool:
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
