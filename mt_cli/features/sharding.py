"""Model, optimizer and moving average as shards while training, gathered to save and to validate.

PyTorch's `fully_shard` is stage 3 of ZeRO (Rajbhandari et al. 2020): each process keeps an equal part of the rows of
every weight. A layer is gathered just before it computes, and released after; in the backward pass, gradients are added
up and split. A split tensor is a `DTensor`, whose operations all processes must call in the same order. Knows no runs
or files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from mt_cli.batching.batches import Batch
from mt_cli.config.training import TrainingConfig
from mt_cli.errors import DeviceMemoryError
from mt_cli.machine.devices import is_out_of_memory
from mt_cli.machine.group import Group
from mt_cli.model.transformer import Transformer, skeleton
from mt_cli.training.averaging import MovingAverage, with_weights
from mt_cli.training.gradients import GradientAccumulator, Number
from mt_cli.training.objective import LossSums, Objective
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.steps import ReplicatedState
from mt_cli.training.update import Update

T = TypeVar("T")


class _MeanLoss(nn.Module):
    """Loss as one forward pass, which `fully_shard` needs."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, batch: Batch, num_target_tokens: Number) -> tuple[Tensor, LossSums]:
        """Loss of a batch per target token of its step, and the sums over the batch, detached."""
        sums: LossSums = self.objective(batch)
        return sums.objective / num_target_tokens, replace(sums, objective=sums.objective.detach())


class ShardedGradientAccumulator(GradientAccumulator):
    """Accumulates, in shards in fp32, the gradient of the mean loss per target token over the micro-batches of a step.

    The weights of the objective, on `meta`, are replaced by uninitialised shards on `device`. A layer is gathered in
    `compute_dtype`, and gradients are added up in fp32. A batch that does not fit in memory is not split, because all
    other processes would have to split theirs.
    """

    needs_equal_shares = True

    def __init__(self, objective: Objective, device: torch.device, compute_dtype: torch.dtype, group: Group) -> None:
        self._mean_loss = _MeanLoss(objective)
        _shard(self._mean_loss, objective.model, device, compute_dtype)
        super().__init__(objective, torch.float32, group)

    def clip(self, max_norm: float) -> Tensor:
        """Scale the gradient down to a norm of at most `max_norm`; return the norm of all shards together before."""
        return whole(super().clip(max_norm))

    def _add(self, batch: Batch, num_target_tokens: Number) -> LossSums:
        try:
            loss, sums = self._mean_loss(batch.to(self.device), num_target_tokens)
            loss.backward()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise DeviceMemoryError(
                f"a batch does not fit in the memory of {self.device}, and with training.shard_model it is not split; "
                "lower training.batch_tokens"
            ) from None
        return cast("LossSums", sums)

    def _all_reduce(self, sums: LossSums) -> LossSums:
        values = torch.stack([value.float() for value in vars(sums).values()])
        self.group.all_reduce([values])
        return LossSums(*values)


def _shard(loss: nn.Module, model: Transformer, device: torch.device, compute_dtype: torch.dtype) -> None:
    """Replace the weights of a loss by uninitialised shards on a device; each layer of its model is gathered alone."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    dtype = None if compute_dtype == torch.float32 else compute_dtype
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    buffers = dict(loss.named_buffers())
    loss.to("meta")
    for module in (*model.encoder, *model.decoder, loss):
        sharded = fully_shard(module, mesh=mesh, mp_policy=policy)
        sharded.set_gradient_divide_factor(1.0)  # The shards hold sums, not means.
        sharded.set_force_sum_reduction_for_comms(True)
    loss.to_empty(device=device)
    for name, buffer in loss.named_buffers():
        buffer.copy_(buffers[name])


@torch.no_grad()
def scatter(value: Tensor | None, shard: Tensor) -> None:
    """Fill the shards of all processes with a whole tensor of the main process; `value` is None in the others."""
    assert isinstance(shard, DTensor)
    tensor = torch.empty(shard.shape, dtype=shard.dtype) if value is None else value
    shard.copy_(distribute_tensor(tensor.to(shard.device), shard.device_mesh, shard.placements))


def whole(tensor: Tensor) -> Tensor:
    """Gather the shards of all processes into a whole tensor; return an ordinary tensor unchanged."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class ShardedState(ReplicatedState):
    """Shards of a model, its optimizer and its average; only the main process has whole copies, on its CPU.

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
        self._stored, self._stored_optimizer, self._stored_average = objective.model, optimizer, average
        self._dtype, self._group = dtype, group
        self._model = skeleton(self._stored)
        self.gradients = ShardedGradientAccumulator(Objective(self._model, config), device, dtype, group)
        for weight, shard in zip(self._stored.parameters(), self._model.parameters(), strict=True):
            scatter(group.on_main(weight.detach), shard)
        self.optimizer = build_optimizer(self._model, config)
        self.update = Update(self.gradients, self.optimizer, config)
        self._scatter_moments()
        self.average = None
        if average is not None and config.ema_decay is not None:
            self.average = MovingAverage(self._model, config.ema_decay)
            for name, weights in average.weights.items():
                scatter(group.on_main(weights.detach), self.average.weights[name])

    def _scatter_moments(self) -> None:
        """Fill the optimizer's state: shard tensors like their weights, and copy numbers to all processes."""
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        moments = self._stored_optimizer.state_dict()["state"]  # Empty before the first step.
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
        """Gather model, optimizer and average, and copy them to the whole copies of the main process."""
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
