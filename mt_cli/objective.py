"""Label-smoothed cross-entropy as sums. Knows hidden states and right answers; does not know steps or averages.

Callers divide once, by a count of tokens, so that batches of any size add up to the same gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mt_cli.batching.batches import Batch
from mt_cli.model.transformer import Transformer

# Legend of the shapes: N target tokens, D d_model, V vocabulary, M tokens of a piece, C tokens of a chunk.

_PIECE_TOKENS = 4096
"""Tokens whose logit gradients exist at a time, in the number format of the activations: what a product needs to be
fast (the weight gradient of 2,500 x 8,000 in bf16 on two cores: 26 ms as one product, 35 ms in pieces of 256)."""
_ROWS_AT_A_TIME = 256
"""Tokens whose probabilities exist at a time on a CPU, in fp32: ten megabytes, which stay in its caches."""


@dataclass(frozen=True)
class LossSums:
    """Sums over the tokens of a batch, as tensors without dimension; in nats."""

    objective: Tensor
    """What is minimised: the cross-entropy against smoothed labels."""
    cross_entropy: Tensor
    """Minus the log-probability of the right tokens; divided by their number, its exponential is the perplexity."""
    num_correct: Tensor
    """Tokens for which the right answer had the highest score."""

    def __add__(self, other: LossSums) -> LossSums:
        """The sums over the tokens of both batches."""
        return LossSums(
            self.objective + other.objective,
            self.cross_entropy + other.cross_entropy,
            self.num_correct + other.num_correct,
        )


class Objective(nn.Module):
    """A model and what it is trained to do, as one module."""

    def __init__(self, model: Transformer, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self._workspace = Workspace()

    def forward(self, batch: Batch) -> LossSums:
        """Sums over the tokens of a batch that are not padding."""
        memory, layout = self.model.encode(batch.src_ids, batch.source_grid)
        hidden_ND = self.model.decode(batch.tgt_input_ids, memory, layout, batch.target_grid)
        return smoothed_cross_entropy(
            hidden_ND,
            self.model.projection.weight,
            batch.tgt_output_ids,
            batch.num_target_tokens,
            self.label_smoothing,
            self._workspace,
        )


class Workspace:
    """Memory for values that nobody needs after the call, kept for the next call.

    Fresh memory costs page faults: of 80 MB for the logits' gradients, 26,000 in some steps and none in others, where a
    fault takes 5 microseconds (two cores, a virtual machine).
    """

    def __init__(self) -> None:
        self._memory: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}

    def matrix(self, name: str, num_rows: int, num_columns: int, like: Tensor, dtype: torch.dtype) -> Tensor:
        """A matrix on the device of `like`, of unknown content; the next one of the same name overwrites it."""
        key = name, like.device, dtype
        size = num_rows * num_columns
        if key not in self._memory or self._memory[key].numel() < size:
            with torch.inference_mode(False):  # What validation takes first, training must be able to use.
                self._memory[key] = torch.empty(size, dtype=dtype, device=like.device)
        return self._memory[key][:size].view(num_rows, num_columns)


def smoothed_cross_entropy(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    num_tokens: int,
    smoothing: float,
    workspace: Workspace | None = None,
) -> LossSums:
    """Sums of the cross-entropy of `hidden_ND @ weight_VD.T` against labels that keep 1 - smoothing of their mass.

    The rest of the mass is spread evenly over all V entries (Szegedy et al. 2016, section 7). Rows after the first
    `num_tokens` are filling and count nothing. The gradient is computed together with the loss, a piece of the tokens
    at a time, so that N x V values never exist at once.
    """
    sums = _SmoothedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden_ND, weight_VD, targets_N, num_tokens, smoothing, torch.is_grad_enabled(), workspace or Workspace()
    )
    return LossSums(*sums)


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Projection and loss in one; needs a few rows of fp32 probabilities at a time instead of N x V."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        targets_N: Tensor,
        num_tokens: int,
        smoothing: float,
        with_gradient: bool,
        workspace: Workspace,
    ) -> tuple[Tensor, Tensor, Tensor]:
        sums = hidden_ND.new_zeros(3, dtype=torch.float32)
        grad_hidden_ND = torch.empty_like(hidden_ND)
        grad_weight_VD: Tensor | None = None
        for start in range(0, len(hidden_ND), _PIECE_TOKENS):
            piece = slice(start, start + _PIECE_TOKENS)
            hidden_MD = hidden_ND[piece]
            num_rows = min(len(hidden_MD), _ROWS_AT_A_TIME if hidden_MD.device.type == "cpu" else _PIECE_TOKENS)
            buffers = _Buffers.of(workspace, hidden_MD, num_rows, len(weight_VD), with_gradient)
            sums += _loss_and_logit_gradients(
                hidden_MD, weight_VD, targets_N[piece], num_tokens - start, smoothing, buffers
            )
            if buffers.grad is not None:
                torch.mm(buffers.grad, weight_VD, out=grad_hidden_ND[piece])
                grad_piece_VD = buffers.grad.T @ hidden_MD
                grad_weight_VD = grad_piece_VD if grad_weight_VD is None else grad_weight_VD.float() + grad_piece_VD
        if grad_weight_VD is not None:
            ctx.save_for_backward(grad_hidden_ND, grad_weight_VD.to(weight_VD.dtype))
        objective, cross_entropy, num_correct = sums.unbind()
        ctx.mark_non_differentiable(cross_entropy, num_correct)
        return objective, cross_entropy, num_correct

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        grad_hidden_ND, grad_weight_VD = ctx.saved_tensors
        return grads[0] * grad_hidden_ND, grads[0] * grad_weight_VD, None, None, None, None, None


@dataclass(frozen=True)
class _Buffers:
    """Memory that `_loss_and_logit_gradients` works in."""

    logits: Tensor
    """CxV, as the activations are."""
    scores: Tensor
    """CxV, the logits in fp32."""
    probs: Tensor
    """CxV, in fp32."""
    grad: Tensor | None
    """MxV, as the activations are; None without gradients."""

    @classmethod
    def of(
        cls, workspace: Workspace, hidden_MD: Tensor, num_rows: int, vocab_size: int, with_gradient: bool
    ) -> _Buffers:
        logits, scores, probs = (
            workspace.matrix(name, num_rows, vocab_size, hidden_MD, dtype)
            for name, dtype in (("logits", hidden_MD.dtype), ("scores", torch.float32), ("probs", torch.float32))
        )
        grad = None
        if with_gradient:
            grad = workspace.matrix("grad", len(hidden_MD), vocab_size, hidden_MD, hidden_MD.dtype)
        return cls(logits, scores, probs, grad)


def _loss_and_logit_gradients(
    hidden_MD: Tensor, weight_VD: Tensor, targets_M: Tensor, num_tokens: int, smoothing: float, buffers: _Buffers
) -> Tensor:
    """The three sums of `LossSums`; fills the buffer `grad`, if there, with the objective's gradient by the logits."""
    sums = hidden_MD.new_zeros(3, dtype=torch.float32)
    num_rows = len(buffers.logits)
    for start in range(0, len(hidden_MD), num_rows):
        hidden_CD, targets_C1 = hidden_MD[start : start + num_rows], targets_M[start : start + num_rows, None]
        logits_CV, scores_CV, probs_CV = (
            buffer[: len(hidden_CD)] for buffer in (buffers.logits, buffers.scores, buffers.probs)
        )
        scores_CV.copy_(torch.mm(hidden_CD, weight_VD.T, out=logits_CV))
        torch.softmax(scores_CV, dim=-1, out=probs_CV)
        # log sum exp, from the largest probability, which is never too small for its logarithm.
        largest_C1 = scores_CV.amax(dim=-1, keepdim=True)
        log_sum_C1 = largest_C1 - probs_CV.amax(dim=-1, keepdim=True).log()
        right_C1 = scores_CV.gather(1, targets_C1)
        each_CX = torch.cat(
            [log_sum_C1 - scores_CV.mean(dim=-1, keepdim=True), log_sum_C1 - right_C1, right_C1 >= largest_C1], dim=1
        )
        num_real = max(0, num_tokens - start)
        to_all, cross_entropy, num_correct = each_CX[:num_real].sum(dim=0)
        sums += torch.stack([(1 - smoothing) * cross_entropy + smoothing * to_all, cross_entropy, num_correct])
        if buffers.grad is not None:
            # d loss / d logits = softmax(logits) - smoothed labels, in the memory of the probabilities.
            probs_CV.sub_(smoothing / probs_CV.shape[1])
            probs_CV.scatter_add_(1, targets_C1, probs_CV.new_full(targets_C1.shape, smoothing - 1))
            probs_CV[num_real:] = 0.0
            buffers.grad[start : start + num_rows] = probs_CV
    return sums
