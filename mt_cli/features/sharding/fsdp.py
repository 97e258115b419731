"""Gradients of a model that is split over processes. The optimizer's state is in `sharded_state.py`.

PyTorch's `fully_shard` is stage 3 of ZeRO (Rajbhandari et al. 2020): each process keeps an equal part of the rows of
every weight. A layer is gathered just before it computes, and released after; in the backward pass, gradients are added
up and split. A split tensor is a `DTensor`, whose operations all processes must call in the same order. Knows no runs
or files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from mt_cli.batching.batches import Batch
from mt_cli.errors import DeviceMemoryError
from mt_cli.machine.devices import is_out_of_memory
from mt_cli.machine.group import Group
from mt_cli.model.transformer import Transformer
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.objective import LossSums, Objective


class _MeanLoss(nn.Module):
    """Loss as one forward pass, which `fully_shard` needs."""

    def __init__(self, objective: Objective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, batch: Batch, num_target_tokens: int) -> tuple[Tensor, LossSums]:
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

    def _add(self, batch: Batch, num_target_tokens: int) -> LossSums:
        try:
            loss, sums = self._mean_loss(batch, num_target_tokens)
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
        sharded.set_gradient_divide_factor(1.0)  # Sums, not means.
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
    """Whole tensor of the shards of all processes; an ordinary tensor is returned as it is."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
