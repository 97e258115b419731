"""Averages of weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from mt_cli.model.adapters import saved_weights


class MovingAverage:
    """Exponential moving average of the weights of a model, in fp32 (Polyak and Juditsky 1992).

    Averages translate better than the last weights (Morishita et al. 2017, section 4).
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model, self._decay = model, decay
        current = {name: weight.detach() for name, weight in saved_weights(model).items()}
        self._current = list(current.values())
        self.weights: dict[str, Tensor] = {name: weight.clone() for name, weight in current.items()}

    def update(self, step: int) -> None:
        """Add the weights after step 1, 2, ...; call it once per step.

        The decay rate is min(decay, (1 + step) / (10 + step)), so that the average soon forgets the random
        initial weights.
        """
        decay = min(self._decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(list(self.weights.values()), self._current, step)

    def applied(self) -> AbstractContextManager[None]:
        """Context manager inside which the model has the averaged weights."""
        return replaced(self._model, self.weights)


def mean(models: Iterable[Mapping[str, Tensor]], number: int) -> dict[str, Tensor]:
    """Mean, in fp32, of the weights of `number` models, by name; the models are read one after another."""
    sums: dict[str, Tensor] = {}
    for weights in models:
        for name, weight in weights.items():
            sums[name] = sums[name] + weight if name in sums else weight.detach().double()
    return {name: (total / number).float() for name, total in sums.items()}


@contextmanager
def replaced(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """Context manager inside which a model has other weights, by name; restores the previous weights exactly."""
    current = saved_weights(model)
    previous = {name: weight.detach().clone() for name, weight in current.items()}
    try:
        _copy(weights, current)
        yield
    finally:
        _copy(previous, current)


@torch.no_grad()
def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, weight in target.items():
        weight.copy_(source[name])
