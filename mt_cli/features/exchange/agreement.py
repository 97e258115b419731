"""Comparison of an exported model with the run that it was made of, on the same sentences."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Engine, Ids, TransformerEngine
from mt_cli.errors import MtError
from mt_cli.reporting.records import read_samples

_TOLERANCES = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
_TOLERANCE_OF_INTEGERS = 0.25
"""Largest mean difference of the log-probabilities of tokens, by number format, in nats."""
_TIE = 2
"""Two tokens are a tie if our log-probabilities of them differ by at most this many tolerances."""
_MIN_SHARE_OF_INTEGERS = 0.75
"""Share of sentences on which an export with integer weights must agree; other exports must agree on all."""


@dataclass(frozen=True)
class Agreement:
    """Result of a comparison of two engines by greedy search."""

    num_sentences: int
    num_equal: int
    """Number of translations that are equal."""
    difference: float
    """Mean absolute difference of the log-probabilities of tokens, in nats."""
    gaps: tuple[float, ...] = ()
    """For each translation that differs, how much less likely our model finds the first different token, in nats.

    A negative gap is a likelier token, which our search does not allow."""

    def num_ties(self, number_format: str) -> int:
        """Number of translations that differ because two tokens were about equally likely."""
        return sum(abs(gap) <= _TIE * _tolerance(number_format) for gap in self.gaps)

    def check(self, output: Path, number_format: str = "float32") -> None:
        """Raise MtError if the differences are larger than rounding to this number format explains."""
        tolerance, num_agreeing = _tolerance(number_format), self.num_equal + self.num_ties(number_format)
        problem = ""
        if not self.difference <= tolerance:
            problem = f"log-probabilities differ by {self.difference:.4f} nats per token, more than {tolerance}"
        elif num_agreeing < self.num_sentences * (1.0 if number_format in _TOLERANCES else _MIN_SHARE_OF_INTEGERS):
            problem = (
                f"{self.num_sentences - num_agreeing} of {self.num_sentences} sentences are translated differently, "
                f"with tokens whose log-probabilities differ by up to {max(map(abs, self.gaps)):.4f} nats, more than "
                f"{_TIE * tolerance}"
            )
        if problem:
            raise MtError(f"{output}: the exported model disagrees with ours: {problem}; nothing was exported")

    def describe(self, number_format: str = "float32") -> str:
        """The result as one line."""
        num_ties, num_different = self.num_ties(number_format), self.num_sentences - self.num_equal
        parts = [f"{self.num_equal} of {self.num_sentences} sentences are translated as by mt (greedy)"]
        if num_ties:
            parts.append(f"{num_ties} otherwise where two tokens are about equally likely")
        if num_different > num_ties:
            parts.append(f"{num_different - num_ties} otherwise because of the rounded weights")
        return f"{', '.join(parts)}; log-probabilities differ by {self.difference:.1e} nats per token"


def _tolerance(number_format: str) -> float:
    return _TOLERANCES.get(number_format, _TOLERANCE_OF_INTEGERS)


def sample_sentences(run: Path) -> list[str]:
    """Up to 20 sources from the `samples.txt` of a run directory."""
    samples = []
    with suppress(OSError):
        samples = read_samples(run / "samples.txt")
    return [source for source, *_ in samples[:20]] or ["a b c", "1 2 3"]


def check_export(
    run: TrainedRun, engine: Engine, sentences: Sequence[str], output: Path, number_format: str = "float32"
) -> Agreement:
    """Compare an exported model, as `engine`, with its run; raises MtError if they disagree."""
    sources = [ids[: run.max_tokens] for ids in run.tokenizers[0].encode(sentences) if ids]
    agreement = compare(TransformerEngine(run.model), engine, sources, run.config.decoding)
    agreement.check(output, number_format)
    return agreement


def compare(ours: Engine, theirs: Engine, sources: Sequence[Ids], decoding: DecodingConfig) -> Agreement:
    """Compare greedy translations of two engines, and the log-probabilities that they give to ours."""
    greedy = DecodingConfig(beam_size=1, unk="avoid", max_length_ratio=decoding.max_length_ratio)
    our_ids, their_ids = ([best.ids for (best,) in engine.search(sources, greedy)] for engine in (ours, theirs))
    pairs = list(zip(sources, our_ids, strict=True))
    differences = [
        abs(our_log_prob - their_log_prob)
        for our_reading, their_reading in zip(ours.force_decode(pairs), theirs.force_decode(pairs), strict=True)
        for our_log_prob, their_log_prob in zip(our_reading.log_probs, their_reading.log_probs, strict=True)
    ]
    different = [
        (source, list(first), list(second))
        for source, first, second in zip(sources, our_ids, their_ids, strict=True)
        if list(first) != list(second)
    ]
    mean = sum(differences) / max(1, len(differences))
    return Agreement(len(sources), len(sources) - len(different), mean, _gaps(ours, different))


def _gaps(engine: Engine, different: Sequence[tuple[Ids, list[int], list[int]]]) -> tuple[float, ...]:
    """For a source with two translations, the difference of the log-probabilities of the first tokens that differ.

    The tokens before are equal. The end of a translation counts as a token.
    """
    if not different:
        return ()
    first_readings = engine.force_decode([(source, first) for source, first, _ in different])
    second_readings = engine.force_decode([(source, second) for source, _, second in different])
    gaps = []
    for (_, first, second), first_reading, second_reading in zip(
        different, first_readings, second_readings, strict=True
    ):
        num_equal = next(n for n in range(len(first) + 1) if first[n : n + 1] != second[n : n + 1])
        gaps.append(first_reading.log_probs[num_equal] - second_reading.log_probs[num_equal])
    return tuple(gaps)
