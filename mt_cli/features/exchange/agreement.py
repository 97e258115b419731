"""How far another engine agrees with our own about the same sentences."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Engine, Ids
from mt_cli.errors import MtError
from mt_cli.reporting.records import read_samples

_TOLERANCES = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
_TOLERANCE_OF_INTEGERS = 0.25
"""Largest mean difference of the log-probabilities of tokens, by number format, in nats."""
_TIE = 2
"""Two tokens are a tie if our model gives them log-probabilities that differ by at most so many tolerances."""
_LEAST_SHARE_OF_INTEGERS = 0.75
"""Least share of sentences on which an export with integer weights must agree; other exports agree on all."""


@dataclass(frozen=True)
class Agreement:
    """The result of comparing two engines."""

    num_sentences: int
    num_equal: int
    """Greedy translations that are equal."""
    difference: float
    """Mean absolute difference of the log-probabilities of tokens, in nats."""
    gaps: tuple[float, ...] = ()
    """For each translation that differs: how much less likely, in nats, our model finds the first other token.

    A negative one is more likely: our search does not allow it."""

    def num_ties(self, number_format: str) -> int:
        """Translations that differ because two tokens were about equally likely."""
        return sum(abs(gap) <= _TIE * _tolerance(number_format) for gap in self.gaps)

    def check(self, output: Path, number_format: str = "float32") -> None:
        """Raise MtError if an export in this number format computes something else than our model."""
        tolerance, agreeing = _tolerance(number_format), self.num_equal + self.num_ties(number_format)
        if not self.difference <= tolerance:
            raise MtError(
                f"{output}: the exported model disagrees with ours: log-probabilities differ by "
                f"{self.difference:.4f} nats per token, more than {tolerance}; nothing was exported"
            )
        least = 1.0 if number_format in _TOLERANCES else _LEAST_SHARE_OF_INTEGERS
        if agreeing < least * self.num_sentences:
            raise MtError(
                f"{output}: the exported model disagrees with ours: {self.num_sentences - agreeing} of "
                f"{self.num_sentences} sentences are translated otherwise, with tokens whose log-probabilities differ "
                f"by up to {max(map(abs, self.gaps)):.4f} nats, more than {_TIE * tolerance}; nothing was exported"
            )

    def describe(self, number_format: str = "float32") -> str:
        """How far both agree, for people."""
        ties, others = self.num_ties(number_format), self.num_sentences - self.num_equal
        parts = [f"{self.num_equal} of {self.num_sentences} sentences are translated as by mt (greedy)"]
        parts += [f"{ties} otherwise where two tokens are about equally likely"] if ties else []
        parts += [f"{others - ties} otherwise because of the rounded weights"] if others > ties else []
        return f"{', '.join(parts)}; log-probabilities differ by {self.difference:.1e} nats per token"


def _tolerance(number_format: str) -> float:
    return _TOLERANCES.get(number_format, _TOLERANCE_OF_INTEGERS)


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
        for reading, their_reading in zip(ours.force_decode(pairs), theirs.force_decode(pairs), strict=True)
        for log_prob, other in zip(reading.log_probs, their_reading.log_probs, strict=True)
    ]
    changed = [
        (source, one, other)
        for source, one, other in zip(sources, expected, found, strict=True)
        if list(one) != list(other)
    ]
    return Agreement(
        len(sources), len(sources) - len(changed), sum(differences) / max(1, len(differences)), _gaps(ours, changed)
    )


def _gaps(engine: Engine, changed: Sequence[tuple[Ids, Ids, Ids]]) -> tuple[float, ...]:
    """For each source with two translations: how much less likely the first token of the second that differs is.

    In nats, by the engine; both have the same tokens before. The end of a translation is a token, too.
    """
    ours, theirs = (
        engine.force_decode([(source, each[side]) for source, *each in changed]) if changed else [] for side in (0, 1)
    )
    gaps = []
    for (_, one, other), reading, their_reading in zip(changed, ours, theirs, strict=True):
        place = next(
            (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
        )
        gaps.append(reading.log_probs[place] - their_reading.log_probs[place])
    return tuple(gaps)
