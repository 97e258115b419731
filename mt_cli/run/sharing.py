"""What the processes of one training have in common: the config, the data and the state of the main process.

The main process alone reads and writes the run directory. The others compute the same from a copy of its state, and
write what they write into a temporary directory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import Config
from mt_cli.machine.group import is_main, num_processes, of_main, once_per_machine
from mt_cli.run.data import Data, prepare
from mt_cli.run.setup import Setup
from mt_cli.tokenizer.tokenizer import TokenizerPair


@contextmanager
def own_directory(path: Path) -> Iterator[RunDirectory]:
    """Context manager that locks the run directory in the main process, and gives others a temporary one."""
    directory = RunDirectory(path)
    if is_main():
        with directory.locked():
            yield directory
        return
    with tempfile.TemporaryDirectory(prefix="mt-") as folder:
        yield RunDirectory(Path(folder))


def shared_data(config: Config, data: Data | None, cache_path: Path) -> tuple[Config, Data]:
    """The config and the data of the main process, which others prepare with its tokenizers, once for each machine."""

    def common() -> tuple[Config, TokenizerPair]:
        assert data is not None
        return config, data.tokenizers

    agreed, tokenizers = of_main(common)
    found = once_per_machine(lambda: data or prepare(agreed, cache_path, tokenizers))
    return agreed, found


def shared_state(setup: Setup, find: Callable[[], RunState]) -> RunState:
    """The state that `find` gives in the main process; model, optimizer and average become those of the main one.

    If the model is sharded, the main process keeps these to itself.
    """
    if num_processes() == 1:
        return find()

    def found() -> tuple[RunState, dict[str, Any]]:
        return find(), {} if setup.is_sharded else _to_cpu(_tensors_of(setup))

    state, tensors = of_main(found)
    if tensors and not is_main():
        setup.model.load_state_dict(tensors["model"])
        setup.optimizer.load_state_dict(tensors["optimizer"])
        if setup.average is not None:
            for name, weight in setup.average.weights.items():
                weight.copy_(tensors["average"][name])
    return state if is_main() else replace(state, tracked_bytes={})


def _tensors_of(setup: Setup) -> dict[str, Any]:
    average = {} if setup.average is None else dict(setup.average.weights)
    return {"model": setup.model.state_dict(), "optimizer": setup.optimizer.state_dict(), "average": average}


def _to_cpu(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_cpu(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_to_cpu, value))
    return value.cpu() if isinstance(value, torch.Tensor) else value
