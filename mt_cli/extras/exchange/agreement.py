"""How far another engine agrees with our own about the same sentences."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Engine, Ids
from mt_cli.run.records import read_samples

TOLERANCES = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}


@dataclass(frozen=True)
class Agreement:
    """The result of comparing two engines."""

    num_sentences: int
    num_equal: int
    """Greedy translations that are equal."""
    difference: float
    """Mean absolute difference of the log-probabilities of tokens, in nats."""


def sample_sentences(run: Path) -> list[str]:
    """Some sources from the `samples.txt` of a run directory."""
    samples = []
    with suppress(OSError):
        samples = read_samples(run / "samples.txt")
    return [source for source, *_ in samples[:20]] or ["a b c", "1 2 3"]


def compare(ours: Engine, theirs: Engine, sources: Sequence[Ids], decoding: DecodingConfig) -> Agreement:
    """Compare greedy translations of two engines, and the log-probabilities that both give to ours."""
    greedy = DecodingConfig(beam_size=1, unk="avoid", max_length_ratio=decoding.max_length_ratio)
    expected, found = ([best.ids for (best,) in engine.search(sources, greedy)] for engine in (ours, theirs))
    pairs = list(zip(sources, expected, strict=True))
    differences = [
        abs(log_prob - other)
        for reading, their_reading in zip(ours.read(pairs), theirs.read(pairs), strict=True)
        for log_prob, other in zip(reading.log_probs, their_reading.log_probs, strict=True)
    ]
    num_equal = sum(one == other for one, other in zip(expected, found, strict=True))
    return Agreement(len(sources), num_equal, sum(differences) / max(1, len(differences)))
