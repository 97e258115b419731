"""Model, optimizer and moving average while they are trained, whole in every process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from mt_cli.machine.group import Group
from mt_cli.model.transformer import Transformer
from mt_cli.training.averaging import MovingAverage
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.objective import Objective


class ReplicatedState:
    """Weights and optimizer of a run, with a copy in every process. All processes must call the same methods."""

    gradients: GradientAccumulator
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None

    def __init__(
        self,
        objective: Objective,
        optimizer: torch.optim.Optimizer,
        average: MovingAverage | None,
        dtype: torch.dtype,
        group: Group,
    ) -> None:
        self._stored = objective.model
        self.gradients = GradientAccumulator(objective, dtype, group)
        self.optimizer, self.average = optimizer, average

    @contextmanager
    def averaged(self) -> Iterator[Transformer]:
        """Context manager inside which the model has its averaged weights, if any; gives the model to validate."""
        with self.average.applied() if self.average else nullcontext():
            yield self._stored

    def store(self) -> None:
        """Copy trained weights to the ones that are saved: nothing to do, because they are the same here."""
