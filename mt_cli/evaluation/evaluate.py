"""Scores of a translator on test sets, as values and as text for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, FiniteFloat, SerializerFunctionWrapHandler, model_serializer, model_validator

from mt_cli.corpus.glossary import Glossary
from mt_cli.corpus.rows import BlankRow, Languages, Pair
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.errors import MtError
from mt_cli.evaluation.scores import (
    LOWER_IS_BETTER,
    METRICS,
    NUM_RESAMPLES,
    DirectionScores,
    Score,
    Scorer,
    TermScores,
    rows_by_direction,
    score_directions,
)
from mt_cli.runtime.console import Progress, say
from mt_cli.runtime.files import write_text
from mt_cli.translation.stream import listed_lines, note_on_repetition
from mt_cli.translation.translator import Translator

_SENTENCES_AT_ONCE = 2048
FEWEST_SENTENCES = 100
"""Number of sentences below which the intervals and p-values of the bootstrap are too small."""
_MISSING = {"blank_source": "no source", "blank_target": "no reference", "blank_pair": "neither side"}


class _Scores(BaseModel):
    """Scores by metric; in JSON, the keys of `METRICS` stand beside the other keys."""

    @model_validator(mode="before")
    @classmethod
    def _collect_scores(cls, tree: Any) -> Any:
        return tree | {"scores": {key: tree[key] for key in METRICS if key in tree}} if isinstance(tree, dict) else tree

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        for key, value in handler(self).items():
            tree |= value if key == "scores" else {key: value}
        return tree


class Baseline(_Scores):
    """Scores of another system on the same test set."""

    system: str
    num_resamples: int
    scores: dict[str, Score]
    directions: DirectionScores = {}
    """Scores and p-values by direction, if there are several; `scores` are then means, without p-values."""
    terms: TermScores | None = None
    notes: list[str]


class SplitScores(_Scores):
    """Scores on one test set, as `mt evaluate --json` prints them; also a part of `report.json`."""

    run: str = ""
    checkpoint: str | None = None
    split: str
    num_sentences: int = 0
    num_left_out: int = 0
    """Pairs that are not scored, because a side is blank."""
    beam_size: int | None = None
    scores: dict[str, Score]
    directions: DirectionScores = {}
    """Scores by direction, if there are several; `scores` are then their means."""
    exact_match: FiniteFloat = 0.0
    """Share of translations that equal their reference, 0-100."""
    terms: TermScores | None = None
    speed: dict[str, FiniteFloat] = {}
    comet: Score | None = None
    notes: list[str] = []
    """Problems of the texts that the scores do not show."""
    against: Baseline | None = None


def evaluate(
    translator: Translator,
    pairs: Sequence[Pair],
    split: str,
    scorer: Scorer,
    languages: Sequence[Languages] = (),
    skipped: Sequence[BlankRow] = (),
    terms: Glossary | None = None,
    **decoding: Any,
) -> tuple[SplitScores, list[str]]:
    """Scores of a translator on pairs, by all metrics that suit the language, and the translations.

    `languages` has the direction of each pair if the model has several; `skipped` has the rows that are not scored.
    The uses of `terms` are counted.
    """
    references = [target for _, target in pairs]
    started_at = time.perf_counter()
    with Progress(f"translate {split}", len(pairs), "sentence") as progress:
        search = decoding | ({"terms": terms} if terms else {})
        hypotheses = translations_of(translator, pairs, progress.advance, **search)
    seconds = time.perf_counter() - started_at
    if note := note_on_repetition([source for source, _ in pairs], hypotheses):
        say(f"note: {split}: {note}")
    num_tokens = sum(len(ids) + 1 for ids in translator.target_tokenizer.encode(hypotheses))
    num_equal = sum(map(str.__eq__, *map(scorer.cleaned, (hypotheses, references))))
    scores, directions = score_directions(scorer, languages, (hypotheses, references), Scorer.score_with_confidence)
    tree = {
        "split": split,
        "num_sentences": len(pairs),
        "num_left_out": len(skipped),
        "beam_size": decoding.get("beam_size", translator.decoding.beam_size),
        **scores,
        "directions": directions,
        "exact_match": round(100 * num_equal / len(pairs), 4),
        "terms": TermScores.of(terms, pairs, hypotheses, translator.protection) if terms else None,
        "speed": {
            "seconds": round(seconds, 3),
            "sentences_per_second": round(len(pairs) / seconds, 2),
            "tokens_per_second": round(num_tokens / seconds, 1),
        },
        "notes": notes_on_texts(hypotheses, references, languages, skipped),
    }
    absent = [key for key in ("num_left_out", "directions", "terms", "notes") if not tree[key]]
    return SplitScores.model_validate({key: tree[key] for key in tree if key not in absent}), hypotheses


def notes_on_texts(
    hypotheses: Sequence[str],
    references: Sequence[str],
    languages: Sequence[Languages] = (),
    skipped: Sequence[BlankRow] = (),
) -> list[str]:
    """All notes on the scores of one system; `languages` has the direction of each pair, if there are several."""
    notes = [_note_on_skipped_rows(skipped, len(references))] if skipped else []
    fewest = min(map(len, rows_by_direction(languages).values()), default=len(references))
    if fewest < FEWEST_SENTENCES:
        notes.append(
            f"{fewest} sentence{'s' * (fewest != 1)}: intervals and p-values mean little below {FEWEST_SENTENCES} "
            "sentences, where single ones decide"
        )
    sides = zip(hypotheses, references, strict=True)
    if number := sum(not text.strip() and bool(reference.strip()) for text, reference in sides):
        notes.append(f"{number:,} of {len(hypotheses):,} translations are empty")
    return notes


def _note_on_skipped_rows(skipped: Sequence[BlankRow], num_pairs: int) -> str:
    """Note on rows that are not scored because a side is blank: number and places."""
    parts = []
    for status, missing in _MISSING.items():
        rows = [row for row in skipped if row.status == status]
        if lines := [f"{row.number:,}" + (f" of {row.origin}" if row.origin else "") for row in rows]:
            parts.append(f"{listed_lines(lines)} {'has' if len(lines) == 1 else 'have'} {missing}")
    are = "is" if len(skipped) == 1 else "are"
    return f"{len(skipped):,} of {num_pairs + len(skipped):,} pairs {are} left out: {'; '.join(parts)}"


def compare(
    system: str,
    scorer: Scorer,
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[str],
    languages: Sequence[Languages] = (),
) -> Baseline:
    """Scores of another system, given its translations, with the p-values of the differences."""
    scores, directions = score_directions(scorer, languages, (hypotheses, baseline, references), Scorer.compare)
    tree = {"system": system, "num_resamples": NUM_RESAMPLES, "notes": [], **scores}
    return Baseline.model_validate(tree | ({"directions": directions} if directions else {}))


def translations_of(
    translator: Translator, pairs: Sequence[Pair], on_done: Callable[[int], object], **decoding: Any
) -> list[str]:
    """Translate the sources; `on_done` is called with the number of sentences after each batch.

    Engines that do not report batches report blocks of many sentences. The sources have their tags already, or get the
    `tag` of `decoding`.
    """
    hypotheses: list[str] = []
    num_reported = limit = 0

    def report(number: int) -> None:
        """Report sentences up to their number, because a sentence of several segments is searched several times."""
        nonlocal num_reported
        number = min(number, limit - num_reported)
        num_reported += number
        on_done(number)

    engine = translator.engine
    if isinstance(engine, TransformerEngine):
        engine = replace(engine, on_done=report)
    translator = replace(translator, engine=engine, tagging=translator.tagging.of_corpora)
    for start in range(0, len(pairs), _SENTENCES_AT_ONCE):
        sources = [source for source, _ in pairs[start : start + _SENTENCES_AT_ONCE]]
        limit += len(sources)
        hypotheses += translator.translate(sources, **decoding)
        report(limit)
    return hypotheses


def write_hypotheses(path: Path, hypotheses: Sequence[str]) -> None:
    """Write translations into a file of the run directory, one a line; if that fails, only print the reason."""
    try:
        path.parent.mkdir(exist_ok=True)
        write_text(path, "".join(f"{hypothesis}\n" for hypothesis in hypotheses))
    except (OSError, ValueError, MtError) as error:  # A test set may have a name that no file can have.
        say(f"The translations were not written to {path}: {error}")


def format_scores(result: SplitScores) -> str:
    lines = [f"{result.split} ({result.num_sentences:,} sentences, beam {result.beam_size})"]
    for name, score in result.scores.items():
        interval = "" if score.confidence_95 is None else f" ± {score.confidence_95:.2f}"
        direction = "lower is better  " if name in LOWER_IS_BETTER else ""
        lines.append(f"  {METRICS[name]:<7}{score.score:6.2f}{interval}  {direction}{score.signature}")
    lines.extend(_table_of_directions(result))
    if result.comet:
        lines.append(f"  COMET  {result.comet.score:6.4f}")
    lines.append(f"  exact  {result.exact_match:6.2f}  % of sentences equal to their reference")
    lines.extend(result.terms.describe() if result.terms else ())
    if {"sentences_per_second", "tokens_per_second"} <= result.speed.keys():
        rates = result.speed["sentences_per_second"], result.speed["tokens_per_second"]
        lines.append("  speed  {:,.1f} sentences and {:,.0f} tokens a second".format(*rates))
    lines.extend(f"  note: {note}" for note in result.notes)
    if baseline := result.against:
        lines.append(f"against {baseline.system} (paired bootstrap, {baseline.num_resamples:,} samples)")
        lines.extend(_comparison(result.scores, baseline.scores))
        lines.extend(baseline.terms.describe() if baseline.terms else ())
        for direction, scores in baseline.directions.items():
            lines.extend(_comparison(result.directions.get(direction, {}), scores, f"{direction}  "))
        lines.extend(f"  note: {note}" for note in baseline.notes)
    return "\n".join(lines)


def _comparison(scores: dict[str, Score], baseline: dict[str, Score], label: str = "") -> Iterator[str]:
    """For each metric, the score of the baseline, and whether the difference is an improvement and significant."""
    for name in [name for name in baseline if name in scores]:
        ours, theirs = scores[name].score, baseline[name].score
        difference, p_value = round(ours, 2) - round(theirs, 2), baseline[name].p_value
        is_better = (difference < 0) == (name in LOWER_IS_BETTER)
        direction = f" ({'better' if is_better else 'worse'})" if abs(difference) >= 0.005 else ""
        line = f"  {label}{METRICS[name]:<7}{theirs:6.2f}  difference {ours - theirs:+.2f}{direction}"
        if p_value is not None:
            line += f", p = {p_value:.3f}: {'significant' if p_value < 0.05 else 'not significant'}"
        yield line


def _table_of_directions(result: SplitScores) -> list[str]:
    if not result.directions:
        return []
    width = max(map(len, result.directions))
    lines = [f"  {'':<{width}}" + "".join(f"{METRICS[name]:>16}" for name in result.scores)]
    for direction, scores in result.directions.items():
        cells = (f"{scores[name].score:.2f} ± {scores[name].confidence_95 or 0:.2f}" for name in result.scores)
        lines.append(f"  {direction:<{width}}" + "".join(f"{cell:>16}" for cell in cells))
    return lines
