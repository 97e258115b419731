"""Position of a run in its data, which checkpoints save."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Position:
    """Position of a run in its data."""

    num_processes: int = 1  # At the first start. With another number, a run keeps the size of its steps.
    step: int = 0  # Optimizer updates done.
    epoch: int = 0  # Epochs completed.
    pool: int = 0  # The current pool of batches of the epoch.
    num_batches: int = 0  # Micro-batches of this pool done.
    num_target_tokens: int = 0  # Target tokens seen, [EOS] counted.
    num_pairs: list[int] = field(default_factory=list)  # Pairs seen of each part of the corpus, with repetitions.
