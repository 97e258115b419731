"""Train a model of a peer in a plain loop and print its speed as JSON. `train_speed.py` runs this for each peer.

    PYTHON tests/benchmarks/peer_loops.py BATCHES marian fp32
    PYTHON tests/benchmarks/peer_loops.py BATCHES marian bf16
    PYTHON tests/benchmarks/peer_loops.py BATCHES tutorial

BATCHES is a file of padded ids. `marian` is `MarianMTModel` of `transformers`, of the size of the other systems.
`tutorial` is the loop of well-known tutorials in fp32: PyTorch's layers, batches of 8 pairs, and every sentence padded
to 350 tokens. Needs no module of this project, so that each peer can have an environment of its own.
"""

import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

VOCAB_SIZE, LENGTH, BATCH = 10_000, 350, 8
PAD_ID, SOS_ID, EOS_ID = 0, 2, 3


class TutorialTransformer(nn.Module):
    def __init__(self, d_model: int = 256) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(VOCAB_SIZE, d_model), nn.Embedding(VOCAB_SIZE, d_model)
        angles = torch.arange(LENGTH)[:, None] * torch.exp(torch.arange(0, d_model, 2) * (-math.log(1e4) / d_model))
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))
        self.transformer = nn.Transformer(d_model, 4, 3, 3, 1024, 0.1, batch_first=True, norm_first=True)
        self.projection = nn.Linear(d_model, VOCAB_SIZE)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        hidden = self.transformer(
            self.source(src) * 16 + self.positions,
            self.target(tgt) * 16 + self.positions,
            tgt_mask=torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1),
            src_key_padding_mask=src == PAD_ID,
            memory_key_padding_mask=src == PAD_ID,
        )
        return self.projection(hidden)


class Marian(nn.Module):
    """`MarianMTModel` with random weights, the same sizes on both sides, and one table of embeddings."""

    def __init__(
        self, vocab_size: int = VOCAB_SIZE, d_model: int = 256, d_ff: int = 1024, num_heads: int = 4,
        num_layers: int = 3, dropout: float = 0.1, attention_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        from transformers import MarianConfig, MarianMTModel

        super().__init__()
        layers = {"layers": num_layers, "attention_heads": num_heads, "ffn_dim": d_ff}
        sides = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in layers.items()}
        ids = {"pad_token_id": PAD_ID, "bos_token_id": SOS_ID, "eos_token_id": EOS_ID, "forced_eos_token_id": None}
        tied = {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True, "scale_embedding": True}
        sizes = {"vocab_size": vocab_size, "decoder_vocab_size": vocab_size, "d_model": d_model}
        dropouts = {"dropout": dropout, "attention_dropout": attention_dropout}
        config = MarianConfig(
            **sizes, **sides, **ids, **tied, **dropouts, activation_function="relu", decoder_start_token_id=SOS_ID
        )
        self.model = MarianMTModel(config)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        mask = src != PAD_ID
        return self.model(input_ids=src, attention_mask=mask, decoder_input_ids=tgt, use_cache=False).logits


def tutorial_batches(batches: list[dict[str, torch.Tensor]]) -> list[dict[str, torch.Tensor]]:
    """A few small batches of random pairs, padded to the length of the tutorials."""
    rows = {
        side: torch.cat([nn.functional.pad(batch[side], (0, LENGTH - batch[side].shape[1])) for batch in batches])
        for side in batches[0]
    }
    parts = torch.randperm(len(rows["src"])).split(BATCH)[:8]
    return [{side: ids[part] for side, ids in rows.items()} for part in parts]


def smoothed_loss(model: nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """Mean loss of the tokens of a padded batch, with label smoothing."""
    logits = model(batch["src"], batch["tgt"]).flatten(0, 1).float()
    return nn.functional.cross_entropy(logits, batch["label"].flatten(), ignore_index=PAD_ID, label_smoothing=0.1)


def update(
    optimizer: torch.optim.Optimizer, loss_of: Callable[[], torch.Tensor], bf16_on: str | None, is_clipped: bool = True
) -> torch.Tensor:
    """Update the weights of a model, and return the loss; `bf16_on` is the kind of device for autocast to bf16."""
    with torch.autocast(bf16_on or "cpu", torch.bfloat16, enabled=bf16_on is not None):
        loss = loss_of()
    optimizer.zero_grad()
    loss.backward()
    if is_clipped:
        nn.utils.clip_grad_norm_([weight for group in optimizer.param_groups for weight in group["params"]], 1.0)
    optimizer.step()
    return loss


def main(path: str, peer: str, precision: str = "fp32") -> None:
    torch.manual_seed(1)
    batches = torch.load(path, weights_only=True)
    is_marian = peer == "marian"
    model = (Marian if is_marian else TutorialTransformer)().train()
    optimizer = (
        torch.optim.AdamW(model.parameters(), lr=5e-4)
        if is_marian
        else torch.optim.Adam(model.parameters(), lr=1e-4, eps=1e-9)
    )
    rates = []
    for batch in batches if is_marian else tutorial_batches(batches):
        started_at = time.perf_counter()
        bf16_on = "cpu" if precision == "bf16" else None
        update(optimizer, partial(smoothed_loss, model, batch), bf16_on, is_clipped=is_marian).item()
        rates.append(int((batch["label"] != PAD_ID).sum()) / (time.perf_counter() - started_at))
    print(json.dumps({"target_tokens_per_second": statistics.median(rates[2:] or rates)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
