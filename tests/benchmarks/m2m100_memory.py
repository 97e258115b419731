"""Memory that fine-tuning M2M100 and NLLB takes, estimated on PyTorch's device `meta`, whose tensors have no values.

python tests/benchmarks/m2m100_memory.py

Counts the bytes of all tensors that exist at once during two updates in bf16 with fp32 weights: weights, gradients,
moments, the copy in bf16 and activations. A GPU needs more for its context, and less for attention, whose kernels keep
no matrices.
"""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mt_cli.batching.batches import collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import InitConfig, ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.model.trainable_weights import add_adapters, freeze
from mt_cli.model.transformer import outline
from mt_cli.training.gradients import GradientAccumulator
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer

SIZES = {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "num_encoder_layers": 12, "num_decoder_layers": 12}
OPTIONS = {"positions": "fairseq", "decoder_start": "eos", "tie_embeddings": "all", "dropout": 0.1}
ENTRIES = {"NLLB-200 (600M), all entries": 256_206, "NLLB-200 (600M), 30,000 entries": 30_000, "M2M100 (418M)": 128_112}
LENGTH = 30
"""Tokens of each side of a pair."""


class Peak(TorchDispatchMode):
    """Context manager that counts the bytes of the tensors that exist at once."""

    def __init__(self):
        super().__init__()
        self.now = self.peak = 0
        self._known = set()

    def add(self, tensor):
        storage = tensor.untyped_storage()
        if tensor.is_meta and id(storage) not in self._known:
            self._known.add(id(storage))
            self.now += storage.nbytes()
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._free, id(storage), storage.nbytes())

    def _free(self, key, num_bytes):
        self._known.discard(key)
        self.now -= num_bytes

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor)
        return result


def peak_bytes(num_entries, num_tokens, init, **training):
    """Parameters, bytes that every update needs, and bytes at the peak with a batch of some target tokens."""
    model = outline(ModelConfig(**SIZES | OPTIONS), num_entries, num_entries).to("meta").train()
    config, init = TrainingConfig(optimizer="adamw", **training), InitConfig(run="parent", **init)
    add_adapters(model, init)
    if init.adapter_rank is None:
        freeze(model, init.freeze)
    number = num_tokens // LENGTH
    pairs = EncodedPairs.from_ids([[5] * (LENGTH - 1)] * number, [[6] * (LENGTH - 1)] * number)
    batch = collate(pairs, range(number))
    with Peak() as peak:
        for weight in model.parameters():
            peak.add(weight)
        gradients = GradientAccumulator(Objective(model, config), torch.bfloat16)
        optimizer = build_optimizer(model, config)
        for _ in range(2):
            gradients.accumulate([batch], batch.num_target_tokens)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return sum(weight.numel() for weight in model.parameters()), peak.now, peak.peak


def main():
    """Print a table."""
    choices = {
        "whole": {},
        "frozen embeddings": {"freeze": ("embeddings",)},
        "adapters of rank 16": {"adapter_rank": 16},
    }
    print(
        "| model | trained | parameters (M) | weights, optimizer (GB) | peak, 2,000 tokens (GB) | 8,000 tokens (GB) |"
    )
    print("|---|---|---|---|---|---|")
    for model, num_entries in ENTRIES.items():
        for name, init in choices.items():
            rows = [peak_bytes(num_entries, num_tokens, init) for num_tokens in (2_000, 8_000)]
            number, fixed, _ = rows[0]
            peaks = " | ".join(f"{peak / 1e9:.1f}" for *_, peak in rows)
            print(f"| {model} | {name} | {number / 1e6:.0f} | {fixed / 1e9:.1f} | {peaks} |", flush=True)


if __name__ == "__main__":
    main()
