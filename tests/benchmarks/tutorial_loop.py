"""The loop of the well-known tutorials: batches of 8 pairs, every sentence padded to 350 tokens, fp32.

PyTorch's own layers, full-length padding and masks, logits of all positions at once, Adam. Prints a line of JSON. Used
by train_speed.py.
"""

import json
import math
import sys
import time

import torch
from numbered_pairs import some_pairs
from torch import nn

from mt_cli.config.sections import TokenizerConfig
from mt_cli.tokenizer.special import EOS_ID, PAD_ID, SOS_ID
from mt_cli.tokenizer.training import train_tokenizer

LENGTH, BATCH = 350, 8


class TutorialTransformer(nn.Module):
    def __init__(self, vocab_size: int, d_model: int = 256) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocab_size, d_model), nn.Embedding(vocab_size, d_model)
        angles = torch.arange(LENGTH)[:, None] * torch.exp(torch.arange(0, d_model, 2) * (-math.log(1e4) / d_model))
        self.register_buffer("positions", torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1))
        self.transformer = nn.Transformer(d_model, 4, 3, 3, 1024, 0.1, batch_first=True, norm_first=True)
        self.projection = nn.Linear(d_model, vocab_size)

    def forward(self, src: torch.Tensor, tgt: torch.Tensor) -> torch.Tensor:
        causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        hidden = self.transformer(
            self.source(src) * 16 + self.positions,
            self.target(tgt) * 16 + self.positions,
            tgt_mask=causal,
            src_key_padding_mask=src == PAD_ID,
            memory_key_padding_mask=src == PAD_ID,
        )
        return self.projection(hidden)


def padded(ids: list[int]) -> list[int]:
    return ids[:LENGTH] + [PAD_ID] * (LENGTH - len(ids))


def main(num_steps: int) -> None:
    torch.manual_seed(1)
    pairs = some_pairs()
    tokenizer = train_tokenizer(
        (text for pair in pairs for text in pair), TokenizerConfig(algorithm="bpe", vocab_size=10_000)
    )
    model = TutorialTransformer(tokenizer.vocab_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, eps=1e-9)
    loss_of = nn.CrossEntropyLoss(ignore_index=PAD_ID, label_smoothing=0.1)
    rates = []
    for step in range(num_steps):
        started_at = time.perf_counter()
        batch = pairs[step * BATCH : (step + 1) * BATCH]
        source, target = (tokenizer.encode([pair[side] for pair in batch]) for side in (0, 1))
        src = torch.tensor([padded([SOS_ID, *ids, EOS_ID]) for ids in source])
        tgt = torch.tensor([padded([SOS_ID, *ids]) for ids in target])
        label = torch.tensor([padded([*ids, EOS_ID]) for ids in target])
        loss = loss_of(model(src, tgt).flatten(0, 1), label.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        rates.append(int((label != PAD_ID).sum()) / (time.perf_counter() - started_at))
    print(json.dumps({"target_tokens_per_second": sorted(rates[1:])[len(rates) // 2]}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
