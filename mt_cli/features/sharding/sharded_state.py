"""Model, optimizer and moving average as shards while training, gathered to save and to validate."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

from mt_cli.config.training import TrainingConfig
from mt_cli.features.sharding.fsdp import ShardedGradientAccumulator, scatter, whole
from mt_cli.machine.group import Group
from mt_cli.model.transformer import Transformer, skeleton
from mt_cli.training.averaging import MovingAverage, with_weights
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import ReplicatedState

T = TypeVar("T")


class ShardedState(ReplicatedState):
    """Shards of a model, its optimizer and its average; only the main process has them whole, on its CPU.

    All processes must call the same methods in the same order.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        average: MovingAverage | None,
        dtype: torch.dtype,
        group: Group,
        device: torch.device,
        config: TrainingConfig,
    ) -> None:
        gc.collect()  # Frees the shards of a training that diverged, whose modules refer to each other.
        self._stored, self._stored_optimizer, self._stored_average = objective.model, optimizer, average
        self._dtype, self._group = dtype, group
        self._model = skeleton(self._stored)
        self.gradients = ShardedGradientAccumulator(Objective(self._model, config), device, dtype, group)
        for weight, shard in zip(self._stored.parameters(), self._model.parameters(), strict=True):
            scatter(group.on_main(weight.detach), shard)
        self.optimizer = build_optimizer(self._model, config)
        self._scatter_moments()
        self.average = None
        if average is not None and config.ema_decay is not None:
            self.average = MovingAverage(self._model, config.ema_decay)
            for name, weights in average.weights.items():
                scatter(group.on_main(weights.detach), self.average.weights[name])

    def _scatter_moments(self) -> None:
        """Fill the optimizer's state: tensors are sharded as their weights, and numbers are copied to all processes."""
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        moments = self._stored_optimizer.state_dict()["state"]  # Nothing before the first step.
        is_main = self._group.rank == 0
        state: dict[int, dict[str, Any]] = self._group.from_main(
            lambda: _map_values(moments, lambda value: None if value.dim() else value.clone())
        )
        for index, values in state.items():
            for name in [name for name, value in values.items() if value is None]:
                values[name] = torch.empty_like(weights[index])
                scatter(moments[index][name] if is_main else None, values[name])
        _load(self.optimizer, state)

    @contextmanager
    def averaged(self) -> Iterator[Transformer]:
        """Context manager inside which the stored model has its averaged weights, if any; gives a model to validate.

        The model to validate is a whole copy in every process, on its device, in the number format of training.
        """
        average, stored_average = _weights_of(self.average), _weights_of(self._stored_average)
        weights = []
        for (name, stored), shard in zip(self._stored.named_parameters(), self._model.parameters(), strict=True):
            value = self._whole(average.get(name, shard), stored_average.get(name, stored))
            weights.append(value.to(self._dtype))
        model = with_weights(self._stored, weights, self._model.buffers())
        with self._stored_average.applied() if self._stored_average else nullcontext():
            yield model

    @torch.no_grad()
    def store(self) -> None:
        """Copy model, optimizer and average, as whole tensors, to the stored ones of the main process."""
        for stored, shard in zip(self._stored.parameters(), self._model.parameters(), strict=True):
            self._whole(shard, stored)
        for name, average in _weights_of(self._stored_average).items():
            self._whole(_weights_of(self.average)[name], average)
        state = _map_values(self.optimizer.state_dict()["state"], lambda shard: self._group.on_main(whole(shard).cpu))
        self._group.on_main(lambda: _load(self._stored_optimizer, state))

    @torch.no_grad()
    def _whole(self, shard: Tensor, stored: Tensor) -> Tensor:
        """Whole tensor of a shard; the main process copies it to the stored one."""
        value = whole(shard)
        self._group.on_main(lambda: stored.copy_(value))
        return value


def _weights_of(average: MovingAverage | None) -> dict[str, Tensor]:
    return {} if average is None else average.weights


def _map_values(state: dict[int, dict[str, Tensor]], change: Callable[[Tensor], T]) -> dict[int, dict[str, T]]:
    return {index: {name: change(value) for name, value in values.items()} for index, values in state.items()}


def _load(optimizer: torch.optim.Optimizer, state: dict[int, dict[str, Any]]) -> None:
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
