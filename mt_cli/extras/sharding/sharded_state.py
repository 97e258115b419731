"""Model, optimizer and moving average as shards while training; made whole to save and to validate."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from mt_cli.extras.sharding.fsdp import ShardedGradients, scatter, skeleton, whole
from mt_cli.model.transformer import Transformer
from mt_cli.run.setup import ReplicatedState, Setup
from mt_cli.training.averaging import MovingAverage, with_weights
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer

T = TypeVar("T")


class ShardedState(ReplicatedState):
    """Shards of the model, the optimizer and the average of a setup, which the main process alone has, on its CPU.

    All processes must call the same methods in the same order.
    """

    def __init__(self, setup: Setup) -> None:
        gc.collect()  # Frees the shards of a training that diverged, whose modules refer to each other.
        self._setup = setup
        training = setup.config.training
        self._model = skeleton(setup.model)
        self.gradients = ShardedGradients(Objective(self._model, training), setup.device, setup.dtype, setup.group)
        for weight, shard in zip(setup.model.parameters(), self._model.parameters(), strict=True):
            scatter(setup.group.on_main(weight.detach), shard)
        self.optimizer = build_optimizer(self._model, training)
        self._scatter_moments()
        self.average = None
        if setup.average is not None and training.ema_decay is not None:
            self.average = MovingAverage(self._model, training.ema_decay)
            for name, average in setup.average.weights.items():
                scatter(setup.group.on_main(average.detach), self.average.weights[name])

    def _scatter_moments(self) -> None:
        """Fill the optimizer's state: tensors are sharded as their weights, and numbers are the same everywhere."""
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        moments = self._setup.optimizer.state_dict()["state"]  # Nothing before the first step.

        def numbers() -> dict[int, dict[str, Any]]:
            return _changed(moments, lambda value: None if value.dim() else value.clone())

        group = self._setup.group
        state = group.from_main(numbers)
        for index, values in state.items():
            for name in [name for name, value in values.items() if value is None]:
                values[name] = torch.empty_like(weights[index])
                scatter(group.on_main(partial(_at, moments, index, name)), values[name])
        _load(self.optimizer, state)

    @contextmanager
    def averaged(self) -> Iterator[Transformer]:
        """Context manager inside which the setup's model has its averaged weights, if any; gives one to validate.

        That is a whole copy of the model in every process, on its device, in the number format of training.
        """
        setup = self._setup
        average, stored_average = _named(self.average), _named(setup.average)
        weights = []
        for (name, stored), shard in zip(setup.model.named_parameters(), self._model.parameters(), strict=True):
            value = self._stored(average.get(name, shard), stored_average.get(name, stored))
            weights.append(value.to(setup.dtype))
        model = with_weights(setup.model, weights, self._model.buffers())
        with setup.averaged():
            yield model

    @torch.no_grad()
    def sync_to_setup(self) -> None:
        """Copy model, optimizer and average, as whole tensors, into the setup of the main process."""
        setup = self._setup
        for stored, shard in zip(setup.model.parameters(), self._model.parameters(), strict=True):
            self._stored(shard, stored)
        for name, average in _named(setup.average).items():
            self._stored(_named(self.average)[name], average)
        state = _changed(self.optimizer.state_dict()["state"], self._on_main)
        setup.group.on_main(lambda: _load(setup.optimizer, state))

    @torch.no_grad()
    def _stored(self, shard: Tensor, stored: Tensor) -> Tensor:
        """The whole tensor of a shard, which the main process copies to another one."""
        value = whole(shard)
        self._setup.group.on_main(lambda: stored.copy_(value))
        return value

    def _on_main(self, shard: Tensor) -> Tensor | None:
        return self._setup.group.on_main(whole(shard).cpu)


def _at(moments: dict[int, dict[str, Tensor]], index: int, name: str) -> Tensor:
    return moments[index][name]


def _named(average: MovingAverage | None) -> dict[str, Tensor]:
    return {} if average is None else average.weights


def _changed(state: dict[int, dict[str, Tensor]], change: Callable[[Tensor], T]) -> dict[int, dict[str, T]]:
    return {index: {name: change(value) for name, value in values.items()} for index, values in state.items()}


def _load(optimizer: torch.optim.Optimizer, state: dict[int, dict[str, Any]]) -> None:
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
