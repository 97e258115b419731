"""Processes that train or translate together: start them with PyTorch's launcher, and join them.

A process joins a group only if a launcher (`torchrun`, `mt train --devices`) has set its environment variables.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from mt_cli.errors import InputError, LostProcessError, one_line
from mt_cli.runtime.console import silence
from mt_cli.runtime.cpus import num_usable_cpus
from mt_cli.runtime.group import LAUNCH_NAME, Group
from mt_cli.runtime.signals import STOPS, set_handlers

_TIMEOUT = timedelta(hours=24)
"""Timeout of a process that waits for others. A process that ends is noticed at once; preparation may take hours."""
_JOIN_TIMEOUT = timedelta(minutes=5)
_STOP_SECONDS = 600
"""Time for a launcher to wait, after a signal, until processes have finished a step and a save."""
_ALWAYS_ALLOWED = 2  # Number of processes that any machine may start, to try training with several.


def launch(num_devices: int, arguments: Sequence[str]) -> int:
    """Run `mt` with these arguments in several processes of this machine; return the exit status.

    Processes print their own errors. If one fails, PyTorch's launcher ends the others; it passes on signals. Raises
    LostProcessError if a process was killed, and InputError if there are more processes than devices or CPUs.
    """
    most = max(num_usable_cpus(), torch.cuda.device_count(), _ALWAYS_ALLOWED)
    if num_devices > most:
        raise InputError(f"--devices {num_devices}: by its CPUs and CUDA devices, this machine can use at most {most}")
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)  # The processes print what users need.
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, num_usable_cpus() // num_devices)))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_STOP_SECONDS))
    with tempfile.TemporaryDirectory(prefix="mt-") as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=num_devices,
            run_id=LAUNCH_NAME,
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
            statuses = [failure.exitcode for failure in error.failures.values()]
            if min(statuses) < 0:
                name = signal.Signals(-min(statuses)).name
                raise LostProcessError(f"a process has ended ({name}); start the same command again") from None
            return max(statuses)
        except (SignalException, KeyboardInterrupt):
            return 130
    return 0


@contextmanager
def launched_group() -> Iterator[Group]:
    """Context manager that joins the processes of the launcher, and leaves them after work that raised no error.

    Raises InputError if the variables of the launcher are incomplete, or the processes cannot find each other.
    """
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if os.environ.get("MASTER_ADDR") in ("127.0.0.1", "::1", "localhost") and loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0])  # The name of the machine may have no address.
    # While PyTorch waits for other processes, Python's handlers do not run: only a default action ends this process.
    previous = set_handlers(dict.fromkeys(STOPS, signal.SIG_DFL))
    try:
        local_rank, (rank, size) = int(os.environ["LOCAL_RANK"]), _join()
    except (RuntimeError, ValueError, KeyError) as error:
        advice = "if this process has no launcher, unset WORLD_SIZE"
        raise InputError(f"the processes of the launcher cannot join: {one_line(error)}; {advice}") from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if rank > 0:
        silence()
    yield Group(rank, size, local_rank)
    dist.destroy_process_group()


def _join() -> tuple[int, int]:
    """Connect to the other processes; return the rank of this process and the number of all."""
    from torch.distributed import PrefixStore  # type: ignore[attr-defined]
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=_JOIN_TIMEOUT))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # After a restart, the launcher's store still has the addresses of the previous processes.
        store = PrefixStore(f"mt/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_TIMEOUT)
    dist.all_reduce(torch.zeros(()))  # Barrier: no process may end while others still connect to it.
    return rank, size
