"""Scores of translations in one direction or several: BLEU, chrF, TER and error rates, chosen by language.

Scores are computed by sacreBLEU on detokenised text and carry its signature (Post 2018).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Any, Self

from pydantic import BaseModel, FiniteFloat

from mt_cli.config.sections import Config
from mt_cli.corpus.clean_text import cleaned
from mt_cli.corpus.glossary import Glossary, term_uses
from mt_cli.corpus.languages import CHINESE, primary, writes_spaces
from mt_cli.corpus.languages import bleu_tokenizer as tokenizer_of
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.errors import InputError, one_line

METRICS = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++", "ter": "TER", "cer": "CER", "wer": "WER"}
"""Display names of the metrics, by key; `Scorer` chooses and computes them.

A metric of training is also in `_QUICK_METRICS` of `run/validation.py` and, if it may select the best checkpoint, in
`best_metric` of `config/training.py`."""
LOWER_IS_BETTER = ("ter", "cer", "wer")
BLEU_TOKENIZERS = ("13a", "char", "zh", "intl", "none", "ja-mecab", "ko-mecab", "flores101", "flores200")
NUM_RESAMPLES = 1000
"""Number of random samples for confidence intervals and p-values (bootstrap resampling, Koehn 2004)."""


class Score(BaseModel, extra="allow"):
    """The value of one metric, as in `report.json`. Unknown keys, of older or later reports, are kept."""

    score: FiniteFloat
    signature: str = ""
    confidence_95: FiniteFloat | None = None
    """Half the width of the 95 % confidence interval."""
    lower_is_better: bool = False
    p_value: FiniteFloat | None = None
    """p-value of the difference from another system."""

    @classmethod
    def of(cls, metric: str, value: float, signature: str, **others: float) -> Score:
        """The value of a metric, 0-100, with its signature."""
        direction = {"lower_is_better": True} if metric in LOWER_IS_BETTER else {}
        return cls.model_validate({"score": value, "signature": signature, **others, **direction})


Scores = dict[str, Score]
DirectionScores = dict[str, Scores]
"""Scores by direction (`es-gn`) and metric."""


@dataclass(frozen=True)
class Scorer:
    """Scores of translations into one language.

    BLEU counts the tokens of its tokenizer, which is chosen by language. TER of Chinese and Japanese uses sacreBLEU's
    Asian normalisation. Other languages without spaces have no TER: on characters, it takes minutes for a hundred
    sentences and nearly equals the character error rate. Languages without spaces have no word error rate. chrF and
    the character error rate need no words. chrF++ splits words at spaces in all languages.
    """

    language: str
    bleu_tokenizer: str
    spelling: tuple[str, ...] = ()
    """Changes that the tokenizer makes to hypotheses; signatures name them, because references are not changed."""
    cleans: bool = False
    """True if both sides are compared as models read them (`cleaned`); signatures say so if it changes a reference."""

    @classmethod
    def of(cls, language: str, bleu_tokenizer: str = "auto") -> Scorer:
        """The scorer of a language; `auto` is the BLEU tokenizer that suits the language.

        Raises InputError if the tokenizer is unknown, or not available here.
        """
        name = tokenizer_of(language) if bleu_tokenizer == "auto" else bleu_tokenizer
        if name not in BLEU_TOKENIZERS:
            raise InputError(f"bleu_tokenizer {name!r}: unknown; use auto or one of {', '.join(BLEU_TOKENIZERS)}")
        scorer = cls(language, name)
        try:
            scorer._metric("bleu")
        except Exception as error:  # Packages that are missing or cannot download raise errors of any type.
            raise InputError(f"bleu_tokenizer {name}: cannot be used here: {one_line(error)}") from None
        return scorer

    def for_language(self, language: str) -> Scorer:
        """A copy for another target language; a BLEU tokenizer that was not chosen by language stays."""
        is_automatic = self.bleu_tokenizer == tokenizer_of(self.language)
        tokenizer = tokenizer_of(language) if is_automatic else self.bleu_tokenizer
        return replace(self, language=language, bleu_tokenizer=tokenizer)

    @property
    def names(self) -> tuple[str, ...]:
        needs_spaces = () if writes_spaces(self.language) else ("wer",) if self._is_asian else ("ter", "wer")
        return tuple(name for name in METRICS if name not in needs_spaces)

    @property
    def default_metric(self) -> str:
        """The metric that selects the best checkpoint: BLEU, or chrF for languages without words for BLEU to count."""
        return "bleu" if tokenizer_of(self.language) == "13a" else "chrf"

    def score(self, hypotheses: Sequence[str], references: Sequence[str], names: Sequence[str] = ()) -> Scores:
        """Scores of aligned lines, 0-100, with signatures, by the named metrics or all that suit the language.

        chrF++ is chrF with words and word bigrams in addition to characters (Popovic 2017).
        """
        metrics = {name: self._metric(name) for name in names or self.names}
        sides = self.cleaned(hypotheses), [self.cleaned(references)]
        return {
            name: Score.of(name, round(metric.corpus_score(*sides).score, 4), self._signature(metric, references))
            for name, metric in metrics.items()
        }

    def score_with_confidence(
        self, hypotheses: Sequence[str], references: Sequence[str], names: Sequence[str] = ()
    ) -> Scores:
        """Scores as `score` computes them, with half the width of their 95 % confidence intervals.

        Each metric reads the sentences only once.
        """
        metrics = {name: self._metric(name) for name in names or self.names}
        (results,) = self._resampled([hypotheses], references, metrics)
        scores = {}
        for name, result in results.items():
            signature, interval = self._signature(metrics[name], references), round(float(result.ci), 4)
            scores[name] = Score.of(name, round(result.score, 4), signature, confidence_95=interval)
        return scores

    def sentence_chrf(self, hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
        """ChrF of each line, 0-100."""
        metric, sides = self._metric("chrf"), zip(self.cleaned(hypotheses), self.cleaned(references), strict=True)
        return [metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in sides]

    def compare(self, hypotheses: Sequence[str], baseline: Sequence[str], references: Sequence[str]) -> Scores:
        """Scores of a baseline, given its translations, with p-values of the differences (paired bootstrap)."""
        systems, metrics = [hypotheses, baseline], {name: self._metric(name) for name in self.names}
        ours, results = self._resampled(systems, references, metrics)
        scores = {}
        for name, result in results.items():
            # The p-value of equal scores is 1; sacreBLEU returns 1 / (number of samples + 1).
            p_value = 1.0 if result.score == ours[name].score else round(float(result.p_value), 4)
            scores[name] = Score(score=round(float(result.score), 4), p_value=p_value)
        return scores

    def _resampled(
        self, systems: Sequence[Sequence[str]], references: Sequence[str], metrics: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """Results of sacreBLEU by metric for each system; p-values compare the other systems with the first."""
        from sacrebleu.significance import PairedTest

        named = [(str(number), self.cleaned(system)) for number, system in enumerate(systems)]
        sides = named, metrics, [self.cleaned(references)]
        test = PairedTest(*sides, test_type="bs", n_samples=NUM_RESAMPLES)
        columns = [column for title, column in test()[1].items() if title != "System"]
        return [dict(zip(metrics, row, strict=True)) for row in zip(*columns, strict=True)]

    def cleaned(self, texts: Sequence[str]) -> list[str]:
        return [*map(cleaned, texts)] if self.cleans else [*texts]

    def _signature(self, metric: Any, references: Sequence[str]) -> str:
        changes = [*(["clean"] if self.cleaned(references) != [*references] else []), *self.spelling]
        return str(metric.get_signature()) + (f"|normalize:{'+'.join(changes)}" if changes else "")

    @property
    def _is_asian(self) -> bool:
        return not writes_spaces(self.language) and primary(self.language) in (*CHINESE, "ja")

    def _metric(self, name: str) -> Any:
        from sacrebleu.metrics import BLEU, CHRF, TER

        from mt_cli.evaluation.error_rates import ErrorRate

        match name:
            case "bleu":
                # `force` suppresses the advice of sacreBLEU; notes give advice instead.
                return BLEU(tokenize=self.bleu_tokenizer, force=True)
            case "ter":
                return TER(normalized=self._is_asian, asian_support=self._is_asian)
            case "chrf" | "chrf++":
                return CHRF(word_order=2 if name == "chrf++" else 0)
        return ErrorRate("word" if name == "wer" else "character")


def scorer_of(config: Config, name: str, bleu_tokenizer: str | None = None) -> Scorer:
    """The scorer for the target language of a corpus, with the options of the config, or another BLEU tokenizer.

    Raises InputError if the tokenizer is not available.
    """
    targets = {target for _, target in config.corpus.languages_of(name)}
    language = targets.pop() if len(targets) == 1 else config.corpus.target
    tokenizer = config.evaluation.bleu_tokenizer if bleu_tokenizer is None else bleu_tokenizer
    return replace(Scorer.of(language, tokenizer), spelling=config.tokenizer.changes_of_spelling, cleans=True)


def best_metric_of(config: Config, scorer: Scorer) -> str:
    """Metric that selects the best checkpoint of a run; with several directions, its mean over the directions."""
    metric = config.training.best_metric
    if metric != "auto":
        return metric
    return "chrf" if has_directions(config) else scorer.default_metric


def has_directions(config: Config) -> bool:
    return len(set(config.corpus.languages_of("valid"))) > 1


def metric_id_of(config: Config, scorer: Scorer) -> str:
    """The metric of `best_metric_of` with BLEU's tokenizer (`bleu/13a`); values of different ids are not comparable."""
    metric = best_metric_of(config, scorer)
    name = f"bleu/{scorer.bleu_tokenizer}" if metric == "bleu" else metric
    return f"{name}/mean" if metric != "loss" and has_directions(config) else name


def rows_by_direction(languages: Sequence[Languages]) -> dict[str, list[int]]:
    """Indices of the pairs of each direction, by its name; empty if there is only one direction.

    `languages` has the source and target language of each pair.
    """
    rows: dict[str, list[int]] = {}
    for row, direction in enumerate(languages):
        rows.setdefault("-".join(direction), []).append(row)
    return rows if len(rows) > 1 else {}


def sampled_rows(languages: Sequence[Languages], number: int) -> list[int]:
    """Indices of the first `number` pairs, taken from each direction in turn."""
    groups = rows_by_direction(languages).values() or [range(len(languages))]
    in_turn = (row for rows in zip_longest(*groups) for row in rows if row is not None)
    return list(islice(in_turn, number))


def score_directions(
    scorer: Scorer, languages: Sequence[Languages], texts: Sequence[Sequence[str]], score: Callable[..., Scores]
) -> tuple[Scores, DirectionScores]:
    """Overall scores, and scores by direction; with several directions, the overall scores are their means.

    `score` is a method of `Scorer` and is called with a scorer and the texts. Means are of the metrics that all
    directions have; their signatures begin with the number of directions.
    """
    directions: DirectionScores = {}
    for direction, rows in rows_by_direction(languages).items():
        rows_of_texts = ([lines[row] for row in rows] for lines in texts)
        directions[direction] = score(scorer.for_language(languages[rows[0]][1]), *rows_of_texts)
    if not directions:
        return score(scorer, *texts), {}
    means = {}
    for name in METRICS:
        values = [scores[name] for scores in directions.values() if name in scores]
        if len(values) == len(directions):
            signatures = dict.fromkeys(value.signature for value in values)
            mean = round(sum(value.score for value in values) / len(values), 4)
            means[name] = Score.of(name, mean, f"mean:{len(values)}|{' or '.join(signatures)}")
    return means, directions


class TermScores(BaseModel):
    """Shares of the terms in the sources of a test set, 0-100."""

    num_found: int
    used: FiniteFloat
    """Terms whose translation is as in the glossary."""
    inflected: FiniteFloat
    """Terms whose translation is in another form."""
    in_references: FiniteFloat
    """Terms that the references have, in any form."""

    @classmethod
    def of(cls, glossary: Glossary, pairs: Sequence[Pair], hypotheses: Sequence[str], protection: Protection) -> Self:
        """Shares of the terms in the sources of pairs, without their protected spans, by hypotheses and references."""
        terms = [glossary.find(protection.protect(source).text) for source, _ in pairs]
        counts, in_references = (
            Counter(use.status for row in zip(terms, texts, strict=True) for use in term_uses(*row))
            for texts in (hypotheses, [reference for _, reference in pairs])
        )
        numbers = counts["used"], counts["inflected"], in_references["used"] + in_references["inflected"]
        used, inflected, of_references = (round(100 * number / max(1, counts.total()), 2) for number in numbers)
        return cls(num_found=counts.total(), used=used, inflected=inflected, in_references=of_references)

    def describe(self) -> Iterator[str]:
        if not self.num_found:
            yield "  terms  none of the glossary are in the sources"
            return
        forms = f"{self.used:.2f} as in the glossary, {self.inflected:.2f} in another form"
        yield f"  terms  {self.used + self.inflected:6.2f}  % of {self.num_found:,} used: {forms}"
        yield f"         {self.in_references:6.2f}  % of them are in the references"
