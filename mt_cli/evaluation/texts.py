"""How good translations are: BLEU, chrF, TER and error rates, chosen to suit the language.

Scores are sacreBLEU's, on text as people read it, and carry its signature (Post 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mt_cli.corpus.languages import CHINESE, primary, writes_spaces
from mt_cli.corpus.languages import bleu_tokenizer as tokenizer_of
from mt_cli.errors import InputError

METRICS = ("bleu", "chrf", "chrf++", "ter", "cer", "wer")
BLEU_TOKENIZERS = ("13a", "char", "zh", "intl", "none", "ja-mecab", "ko-mecab", "flores101", "flores200")
_NUM_RESAMPLED = 1000


@dataclass(frozen=True)
class Scorer:
    """Scores of translations into one language.

    Spaces part words in most languages only. BLEU counts what its tokenizer makes of a text, which is chosen by the
    language; TER counts Chinese and Japanese as its Asian normalisation cuts them. Without words, TER and the word
    error rate are left out (TER of characters takes minutes for a hundred sentences, and the character error rate is
    nearly the same). chrF and the character error rate need no words. chrF++ takes what stands between spaces as a
    word, in all languages.
    """

    language: str
    """Code of the language translated into."""
    bleu_tokenizer: str
    """One of sacreBLEU's."""

    @classmethod
    def of(cls, language: str, bleu_tokenizer: str = "auto") -> Scorer:
        """The scorer of a language, with the BLEU tokenizer that suits it (`auto`) or another one.

        Raises:
            InputError: if there is no such tokenizer, or it cannot be had here.
        """
        name = tokenizer_of(language) if bleu_tokenizer == "auto" else bleu_tokenizer
        if name not in BLEU_TOKENIZERS:
            raise InputError(f"bleu_tokenizer {name!r}: unknown; use auto or one of {', '.join(BLEU_TOKENIZERS)}")
        scorer = cls(language, name)
        try:
            scorer._metric("bleu")
        except Exception as error:  # What the packages raise that are missing, or that have no network.
            reason = " ".join(str(error).split()) or type(error).__name__
            raise InputError(f"bleu_tokenizer {name}: cannot be used here: {reason[:300]}") from None
        return scorer

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that make sense in this language."""
        if writes_spaces(self.language):
            return METRICS
        missing = ("wer",) if self._is_asian else ("wer", "ter")
        return tuple(name for name in METRICS if name not in missing)

    @property
    def default_metric(self) -> str:
        """What a model should be best at: chrF where BLEU has no words to count, else BLEU."""
        return "bleu" if tokenizer_of(self.language) == "13a" else "chrf"

    def score(
        self, hypotheses: Sequence[str], references: Sequence[str], names: Sequence[str] = ()
    ) -> dict[str, dict[str, Any]]:
        """`{"bleu": {"score": 0-100, "signature": ...}, "chrf": ...}` of aligned lines, of all metrics or some.

        chrF++ is chrF with single words and pairs of words beside characters (Popovic 2017).

        Raises:
            InputError: if there are no lines, or not as many of both.
        """
        _check_lengths(hypotheses, references)
        metrics = {name: self._metric(name) for name in names or self.names}
        return {
            name: {
                "score": round(metric.corpus_score(list(hypotheses), [list(references)]).score, 4),
                "signature": str(metric.get_signature()),
            }
            for name, metric in metrics.items()
        }

    def confidence(self, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
        """For each metric half the width of the interval that holds 95 % of 1,000 resampled scores (Koehn 2004)."""
        (intervals,) = self._resampled([hypotheses], references)
        return {name: round(float(result.ci), 4) for name, result in intervals.items()}

    def compare(
        self, hypotheses: Sequence[str], rivals: Sequence[str], references: Sequence[str]
    ) -> dict[str, dict[str, float]]:
        """`{"bleu": {"score", "p_value"}, ...}` of rivals: their score, and how likely chance makes the difference.

        By paired bootstrap resampling (Koehn 2004), as sacreBLEU does it.
        """
        own, tested = self._resampled([hypotheses, rivals], references)
        # Chance makes a difference of zero or more always; sacreBLEU would say 1/1,001 of equal systems.
        return {
            name: {
                "score": round(float(result.score), 4),
                "p_value": 1.0 if result.score == own[name].score else round(float(result.p_value), 4),
            }
            for name, result in tested.items()
        }

    def _resampled(self, systems: Sequence[Sequence[str]], references: Sequence[str]) -> list[dict[str, Any]]:
        """SacreBLEU's results for each system by metric, the first being the one that others are compared with."""
        from sacrebleu.significance import PairedTest

        for system in systems:
            _check_lengths(system, references)
        named = [(str(number), list(system)) for number, system in enumerate(systems)]
        metrics = {name: self._metric(name) for name in self.names}
        test = PairedTest(named, metrics, [list(references)], test_type="bs", n_samples=_NUM_RESAMPLED)
        columns = [column for title, column in test()[1].items() if title != "System"]
        return [dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True)]

    @property
    def _is_asian(self) -> bool:
        return not writes_spaces(self.language) and (
            primary(self.language) in CHINESE or primary(self.language) == "ja"
        )

    def _metric(self, name: str) -> Any:
        """A metric of sacreBLEU's making."""
        from sacrebleu.metrics import BLEU, CHRF, TER

        from mt_cli.evaluation.error_rates import CharacterErrorRate, WordErrorRate

        match name:
            case "bleu":
                return BLEU(tokenize=self.bleu_tokenizer)
            case "ter" if self._is_asian:
                return TER(normalized=True, asian_support=True)
        makers = {"chrf": CHRF, "chrf++": lambda: CHRF(word_order=2), "ter": TER}
        return {**makers, "cer": CharacterErrorRate, "wer": WordErrorRate}[name]()


def _check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references) or not references:
        counts = f"{len(hypotheses):,} hypotheses and {len(references):,} references"
        raise InputError(f"found {counts}; give one hypothesis for each reference, and one at least")
