"""Character and word error rates as sacreBLEU metrics, so that sacreBLEU adds resampling, comparison and signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rapidfuzz.distance import Levenshtein
from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.utils import sum_of_lists


class _UnitSignature(Signature):  # type: ignore[misc]
    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.info.update({"case": "mixed", "unit": args["unit"]})


class ErrorRate(Metric):  # type: ignore[misc]
    """Insertions, deletions and substitutions per 100 units of the references (Levenshtein 1966).

    The unit is `character`, spaces included, or `word`, split at spaces.
    """

    _SIGNATURE_TYPE = _UnitSignature

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def _units(self, text: str) -> Sequence[str]:
        return text.split() if self.unit == "word" else text

    def _preprocess_segment(self, sent: str) -> str:
        return sent.strip()

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"references": [self._units(reference) for reference in refs]}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[int]:
        units = self._units(hypothesis)
        references = ref_kwargs["references"]
        return list(min((Levenshtein.distance(units, reference), len(reference)) for reference in references))

    def _aggregate_and_compute(self, stats: list[list[int]]) -> Score:
        return self._compute_score_from_stats(sum_of_lists(stats))

    def _compute_score_from_stats(self, stats: Sequence[float]) -> Score:
        num_edits, num_units = stats
        share = num_edits / num_units if num_units else float(num_edits > 0)
        return Score(self.unit, 100 * share)
