"""Scores of a translator on test sets, as values and as text for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, FiniteFloat, SerializerFunctionWrapHandler, model_serializer, model_validator

from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.rows import BlankRow, Languages, Pair
from mt_cli.errors import MtError
from mt_cli.evaluation.directions import DirectionScores, compared_by_direction, mean_scores, scores_by_direction
from mt_cli.evaluation.notes import FEWEST_SENTENCES, notes_on_style, notes_on_texts
from mt_cli.evaluation.texts import LOWER_IS_BETTER, METRICS, Score, Scorer
from mt_cli.machine.console import Progress, say
from mt_cli.machine.storage import make_folder, write_text
from mt_cli.tokenizer.spacing import respelled
from mt_cli.translation.repetition import note_on_repetition
from mt_cli.translation.translator import Translator

_SENTENCES_AT_ONCE = 2048
_MANY_OTHERS = 0.05


class _Scores(BaseModel):
    """Scores by metric, made of a tree in which their keys, those of `METRICS`, stand beside the others."""

    @model_validator(mode="before")
    @classmethod
    def _collect_scores(cls, tree: Any) -> Any:
        return tree | {"scores": {key: tree[key] for key in METRICS if key in tree}} if isinstance(tree, dict) else tree

    @model_serializer(mode="wrap")
    def _flat(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in handler(self).items():
            found |= value if key == "scores" else {key: value}
        return found


class Rival(_Scores):
    """Scores of another system on the same test set."""

    system: str
    num_resamples: int
    scores: dict[str, Score]
    directions: DirectionScores = {}
    """If there are several directions, the scores of each, with p-values; `scores` are their means, without."""
    notes: list[str]


class SplitScores(_Scores):
    """Scores on one test set: what `mt evaluate --json` prints, and a part of `report.json`."""

    run: str = ""
    checkpoint: str | None = None
    split: str
    num_sentences: int = 0
    num_left_out: int = 0
    """Pairs that are not scored, because a side is blank."""
    beam_size: int | None = None
    scores: dict[str, Score]
    directions: DirectionScores = {}
    """If there are several directions, the scores of each; `scores` are their means."""
    exact_match: FiniteFloat = 0.0
    """Share of translations that equal their reference, 0-100."""
    speed: dict[str, FiniteFloat] = {}
    comet: Score | None = None
    notes: list[str] = []
    """What the scores do not say about the texts."""
    against: Rival | None = None


def evaluate(
    translator: Translator,
    pairs: Sequence[Pair],
    split: str,
    scorer: Scorer,
    languages: Sequence[Languages] = (),
    left_out: Sequence[BlankRow] = (),
    **decoding: Any,
) -> tuple[SplitScores, list[str]]:
    """Scores of a translator on pairs, by each metric that suits the language, and its translations.

    `languages` has the direction of each pair, of a model for several; `left_out` the rows that are no pairs.
    """
    references = [target for _, target in pairs]
    started_at = time.perf_counter()
    with Progress(f"translate {split}", len(pairs), "sentence") as progress:
        hypotheses = translations_of(translator, pairs, progress.advance, **decoding)
    seconds = time.perf_counter() - started_at
    if note := note_on_repetition([source for source, _ in pairs], hypotheses):
        say(f"note: {split}: {note}")
    num_tokens = sum(len(ids) + 1 for ids in translator.target_tokenizer.encode(hypotheses))
    num_equal = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    with Progress(f"score {split}", len(pairs), "sentence", leave=False) as progress:
        count = progress.advance
        directions = scores_by_direction(scorer, languages, hypotheses, references, on_sentence=count)
        scores = (
            mean_scores(directions) if directions else scorer.score_with_confidence(hypotheses, references, (), count)
        )
    tree = {
        "split": split,
        "num_sentences": len(pairs),
        **({"num_left_out": len(left_out)} if left_out else {}),
        "beam_size": decoding.get("beam_size", translator.decoding.beam_size),
        **scores,
        **({"directions": directions} if directions else {}),
        "exact_match": round(100 * num_equal / len(pairs), 4),
        "speed": {
            "seconds": round(seconds, 3),
            "sentences_per_second": round(len(pairs) / seconds, 2),
            "tokens_per_second": round(num_tokens / seconds, 1),
        },
    }
    notes = notes_on_texts(scorer, hypotheses, references, languages, left_out)
    tree |= {"notes": notes} if notes else {}
    return SplitScores.model_validate(tree), hypotheses


def compare(
    system: str,
    scorer: Scorer,
    hypotheses: Sequence[str],
    rivals: Sequence[str],
    references: Sequence[str],
    languages: Sequence[Languages] = (),
) -> Rival:
    """Scores of another system, given its translations, with the p-values of the differences."""
    with Progress("compare", 2 * len(references), "sentence", leave=False) as progress:
        count = progress.advance
        directions = compared_by_direction(scorer, languages, hypotheses, rivals, references, count)
        scores = mean_scores(directions) if directions else scorer.compare(hypotheses, rivals, references, count)
    notes = notes_on_style(scorer, rivals, references, languages, f"translations of {system}")
    tree = {"system": system, "num_resamples": scorer.num_resamples, "notes": notes}
    tree |= {"directions": directions} if directions else {}
    return Rival.model_validate(tree | scores)


def translations_of(
    translator: Translator, pairs: Sequence[Pair], on_done: Callable[[int], object], **decoding: Any
) -> list[str]:
    """The translations of the sources; `on_done` is called with the number of sentences after each batch.

    Engines that do not report batches report blocks of many sentences. The sources have their tags already, or get the
    `tag` of `decoding`.
    """
    hypotheses: list[str] = []
    num_done, num_reported = 0, 0
    translator = translator.of_corpora

    def report(limit: int, number: int) -> None:
        """Report up to a limit: a sentence of several segments is searched several times."""
        nonlocal num_reported
        number = min(number, limit - num_reported)
        num_reported += number
        on_done(number)

    for start in range(0, len(pairs), _SENTENCES_AT_ONCE):
        sources = [source for source, _ in pairs[start : start + _SENTENCES_AT_ONCE]]
        num_done += len(sources)
        counting = translator.with_callback(partial(report, num_done))
        hypotheses.extend(counting.translate(sources, **decoding))
        report(num_done, num_done)
    return hypotheses


def write_hypotheses(run: Path, split: str, hypotheses: Sequence[str]) -> None:
    """Write translations into the run directory, one a line; if that fails, only print why."""
    path = run / "hypotheses" / f"{split}.txt"
    try:
        make_folder(path.parent)
        write_text(path, "".join(f"{hypothesis}\n" for hypothesis in hypotheses))
    except (OSError, ValueError, MtError) as error:  # A test set may have a name that no file can have.
        say(f"The translations were not written to {path}: {error}")


def note_on_spelling(config: TokenizerConfig, references: Sequence[str]) -> str | None:
    """A note if more than a few references have spellings that translations cannot have."""
    both = [(text, respelled(text, config)) for text in references] if config.changes_of_spelling else []
    others = [(old, new) for old, new in both if old != new]
    if not others or len(others) < _MANY_OTHERS * len(references):
        return None
    words = zip(*(text.split() for text in others[0]), strict=False)
    old, new = next((pair for pair in words if pair[0] != pair[1]), others[0])
    return (
        f"{len(others):,} of {len(references):,} references are spelled as this run never writes "
        f"({', '.join(config.changes_of_spelling)}), as in {old} instead of {new}: its scores are too low"
    )


def format_scores(found: SplitScores) -> str:
    """The scores of one test set for people, several lines."""
    lines = [f"{found.split} ({found.num_sentences:,} sentences, beam {found.beam_size})"]
    for name, each in found.scores.items():
        interval = "" if each.confidence_95 is None else f" ± {each.confidence_95:.2f}"
        direction = "lower is better  " if name in LOWER_IS_BETTER else ""
        lines.append(f"  {METRICS[name]:<7}{each.score:6.2f}{interval}  {direction}{each.signature}")
    lines.extend(_table_of_directions(found))
    if found.comet:
        lines.append(f"  COMET  {found.comet.score:6.4f}")
    lines.append(f"  exact  {found.exact_match:6.2f}  % of sentences equal to their reference")
    if {"sentences_per_second", "tokens_per_second"} <= found.speed.keys():
        rates = found.speed["sentences_per_second"], found.speed["tokens_per_second"]
        lines.append("  speed  {:,.1f} sentences and {:,.0f} tokens a second".format(*rates))
    lines.extend(f"  note: {note}" for note in found.notes)
    if rival := found.against:
        lines.append(f"against {rival.system} (paired bootstrap, {rival.num_resamples:,} samples)")
        for name in [name for name in rival.scores if name in found.scores]:
            difference = _difference(name, found.scores[name].score, rival.scores[name], found.num_sentences)
            lines.append(f"  {METRICS[name]:<7}{rival.scores[name].score:6.2f}  {difference}")
        for key, scores in rival.directions.items():
            for name in [name for name in scores if name in found.directions.get(key, {})]:
                difference = _difference(name, found.directions[key][name].score, scores[name])
                lines.append(f"  {key}  {METRICS[name]:<7}{scores[name].score:6.2f}  {difference}")
        lines.extend(f"  note: {note}" for note in rival.notes)
    return "\n".join(lines)


def _difference(name: str, score: float, rival: Score, num_sentences: int = FEWEST_SENTENCES) -> str:
    """The difference of a score from that of a rival, whether it is better and, with a p-value, significant."""
    difference = round(score, 2) - round(rival.score, 2)
    is_better = (difference < 0) == (name in LOWER_IS_BETTER)
    direction = f" ({'better' if is_better else 'worse'})" if abs(difference) >= 0.005 else ""
    shown = f"difference {score - rival.score:+.2f}{direction}"
    if rival.p_value is None:
        return shown
    verdict = "significant" if rival.p_value < 0.05 else "not significant"
    few = f" for {num_sentences:,} sentences, which are few" if num_sentences < FEWEST_SENTENCES else ""
    return f"{shown}, p = {rival.p_value:.3f}: {verdict}{few}"


def _table_of_directions(found: SplitScores) -> list[str]:
    """The scores above are means; a line for each direction."""
    if not found.directions:
        return []
    names = list(found.scores)
    width = max(map(len, found.directions))
    lines = [f"  {'':<{width}}" + "".join(f"{METRICS[name]:>16}" for name in names)]
    for direction, scores in found.directions.items():
        cells = (f"{scores[name].score:.2f} ± {scores[name].confidence_95 or 0:.2f}" for name in names)
        lines.append(f"  {direction:<{width}}" + "".join(f"{cell:>16}" for cell in cells))
    return lines
