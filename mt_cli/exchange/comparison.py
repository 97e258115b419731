"""Comparison of an exported model with its run, on the same sentences."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from rapidfuzz.distance import Indel

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Engine, Ids, Sentence
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.errors import MtError
from mt_cli.evaluation.results import read_samples

_TOLERANCES = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
_TOLERANCE_OF_INTEGERS = 0.25
"""Largest mean difference of the log-probabilities of tokens, by number format, in nats."""
_TIE = 2
"""Two tokens are a tie if our log-probabilities of them differ by at most this many tolerances."""
_MIN_SHARE_OF_INTEGERS = 0.75
"""Share of sentences on which an export with integer weights must agree; other exports must agree on all."""
_MIN_SIMILARITY = 0.5
"""Least similarity of translations, also if they differ after ties; ten `int8` exports of trained models, also of weak
ones, had at least 0.88."""


@dataclass(frozen=True)
class Agreement:
    """Result of a comparison of two engines by greedy search."""

    num_sentences: int
    difference: float
    """Mean absolute difference of the log-probabilities of tokens, in nats."""
    gaps: tuple[float, ...]
    """For each translation that differs, how much less likely the first different token is in our model, in nats.

    A negative gap means a likelier token, which our search does not allow."""
    similarity: float = 1.0
    """Share of the tokens of both translations that are in both, in the same order."""

    @property
    def num_equal(self) -> int:
        return self.num_sentences - len(self.gaps)

    def num_ties(self, number_format: str) -> int:
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
        elif self.similarity < _MIN_SIMILARITY:
            problem = (
                f"{len(self.gaps)} of {self.num_sentences} sentences are translated otherwise, with only "
                f"{self.similarity:.0%} of their tokens in common; use another --quantization"
            )
        if problem:
            raise MtError(f"{output}: the exported model disagrees with ours: {problem}; nothing was exported")

    def describe(self, number_format: str = "float32") -> str:
        num_ties, num_different = self.num_ties(number_format), len(self.gaps)
        has_few_equal = 2 * self.num_equal < self.num_sentences
        beginning = "WARNING: only " if has_few_equal else ""
        share = f"{self.num_equal} of {self.num_sentences} sentences ({self.num_equal / self.num_sentences:.0%})"
        parts = [f"{beginning}{share} are translated as by mt (greedy)"]
        if num_ties:
            parts.append(f"{num_ties} otherwise where two tokens are about equally likely")
        if num_different > num_ties:
            parts.append(f"{num_different - num_ties} otherwise because of the rounded weights")
        if has_few_equal:
            parts.append(f"{self.similarity:.0%} of the tokens are in common")
        advice = "; score it before you use it, or export with another --quantization" if has_few_equal else ""
        return f"{', '.join(parts)}; log-probabilities differ by {self.difference:.1e} nats per token{advice}"


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
    texts, tokenizer = with_tags(run, sentences), run.tokenizers[0]
    rows = zip(tokenizer.encode(texts), tokenizer.first_target_ids(texts), strict=True)
    sources, prefixes = zip(*((ids[: run.max_tokens], first) for ids, first in rows if ids), strict=True)
    agreement = compare(TransformerEngine(run.model), engine, sources, run.config.decoding, prefixes)
    agreement.check(output, number_format)
    return agreement


def with_tags(run: TrainedRun, sentences: Sequence[str]) -> list[str]:
    """Sentences with tags, if the vocabulary of the run has languages, so that no sentence can do without."""
    tags = run.config.corpus.tags if run.tokenizers[0].languages else ()
    return [text if not tags or text.partition(" ")[0] in tags else f"{tags[0]} {text}" for text in sentences]


def compare(
    reference: Engine, exported: Engine, sources: Sequence[Ids], decoding: DecodingConfig, prefixes: Sequence[Ids] = ()
) -> Agreement:
    """Compare greedy translations of two engines, and the log-probabilities that they give to those of `reference`."""
    greedy = DecodingConfig(beam_size=1, unk="avoid", max_length_ratio=decoding.max_length_ratio)
    sentences = [Sentence(*both) for both in zip_longest(sources, prefixes, fillvalue=())]
    expected, actual = (
        [list(best.ids) for (best,) in engine.search(sentences, greedy)] for engine in (reference, exported)
    )
    pairs = list(zip(sources, expected, strict=True))
    forced = zip(reference.force_decode(pairs), exported.force_decode(pairs), strict=True)
    differences = [
        abs(expected_log_prob - log_prob)
        for decodings in forced
        for expected_log_prob, log_prob in zip(*(result.log_probs for result in decodings), strict=True)
    ]
    translations = zip(sources, expected, actual, strict=True)
    gaps = [_gap(reference, source, first, second) for source, first, second in translations if first != second]
    num_tokens = sum(map(len, [*expected, *actual]))
    num_other = sum(map(Indel.distance, expected, actual))
    similarity = 1 - num_other / max(1, num_tokens)
    return Agreement(len(sources), sum(differences) / max(1, len(differences)), tuple(gaps), similarity)


def _gap(engine: Engine, source: Ids, first: list[int], second: list[int]) -> float:
    """Difference of the log-probabilities of the first tokens that differ between two translations.

    The end of a translation counts as a token.
    """
    num_equal = next(n for n in range(len(first) + 1) if first[n : n + 1] != second[n : n + 1])
    decodings = engine.force_decode([(source, first), (source, second)])
    first_log_prob, second_log_prob = (result.log_probs[num_equal] for result in decodings)
    return first_log_prob - second_log_prob
