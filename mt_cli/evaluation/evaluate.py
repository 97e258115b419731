"""Scores of a translator on test sets, as values and as text for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, FiniteFloat, SerializerFunctionWrapHandler, model_serializer, model_validator

from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.errors import MtError
from mt_cli.evaluation.directions import DirectionScores, mean_scores, scores_by_direction
from mt_cli.evaluation.texts import METRICS, Score, Scorer
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
    notes: list[str]


class SplitScores(_Scores):
    """Scores on one test set: what `mt evaluate --json` prints, and a part of `report.json`."""

    run: str = ""
    checkpoint: str | None = None
    split: str
    num_sentences: int = 0
    beam_size: int | None = None
    scores: dict[str, Score]
    directions: DirectionScores = {}
    """If there are several directions, the scores of each; `scores` are their means."""
    exact_match: FiniteFloat = 0.0
    """Share of translations that equal their reference, 0-100."""
    speed: dict[str, FiniteFloat] = {}
    comet: Score | None = None
    against: Rival | None = None


def evaluate(
    translator: Translator,
    pairs: Sequence[Pair],
    split: str,
    scorer: Scorer,
    languages: Sequence[Languages] = (),
    **decoding: Any,
) -> tuple[SplitScores, list[str]]:
    """Scores of a translator on pairs, by each metric that suits the language, and its translations.

    `languages` has the direction of each pair, of a model for several.
    """
    references = [target for _, target in pairs]
    started_at = time.perf_counter()
    with Progress(f"translate {split}", len(pairs), "sentence", is_quiet=True) as progress:
        hypotheses = translations_of(translator, pairs, progress.advance, **decoding)
    seconds = time.perf_counter() - started_at
    if note := note_on_repetition([source for source, _ in pairs], hypotheses):
        say(f"note: {split}: {note}")
    num_tokens = sum(len(ids) + 1 for ids in translator.target_tokenizer.encode(hypotheses))
    num_equal = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    directions = scores_by_direction(scorer, languages, hypotheses, references, with_confidence=True)
    scores = mean_scores(directions) if directions else _with_confidence(scorer, hypotheses, references)
    tree = {
        "split": split,
        "num_sentences": len(pairs),
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
    return SplitScores.model_validate(tree), hypotheses


def _with_confidence(scorer: Scorer, hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    scores = scorer.score(hypotheses, references)
    for name, half_width in scorer.confidence(hypotheses, references).items():
        scores[name].confidence_95 = half_width
    return scores


def translations_of(
    translator: Translator, pairs: Sequence[Pair], on_done: Callable[[int], object], **decoding: Any
) -> list[str]:
    """The translations of the sources; `on_done` is called with the number of sentences after each block.

    The sources have their tags already, or get the `tag` of `decoding`.
    """
    hypotheses: list[str] = []
    translator = translator.of_corpora
    for start in range(0, len(pairs), _SENTENCES_AT_ONCE):
        sources = [source for source, _ in pairs[start : start + _SENTENCES_AT_ONCE]]
        hypotheses.extend(translator.translate(sources, **decoding))
        on_done(len(sources))
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
        lines.append(f"  {METRICS[name]:<7}{each.score:6.2f}{interval}  {each.signature}")
    lines.extend(_table_of_directions(found))
    if found.comet:
        lines.append(f"  COMET  {found.comet.score:6.4f}")
    lines.append(f"  exact  {found.exact_match:6.2f}  % of sentences equal to their reference")
    if {"sentences_per_second", "tokens_per_second"} <= found.speed.keys():
        rates = found.speed["sentences_per_second"], found.speed["tokens_per_second"]
        lines.append("  speed  {:,.1f} sentences and {:,.0f} tokens a second".format(*rates))
    if rival := found.against:
        lines.append(f"against {rival.system} (paired bootstrap, {rival.num_resamples:,} samples)")
        for name in [name for name in rival.scores if name in found.scores]:
            score, p_value = rival.scores[name].score, rival.scores[name].p_value
            verdict = "significant" if p_value < 0.05 else "not significant"
            difference = f"difference {found.scores[name].score - score:+.2f}, p = {p_value:.3f}: {verdict}"
            lines.append(f"  {METRICS[name]:<7}{score:6.2f}  {difference}")
        lines.extend(f"  note: {note}" for note in rival.notes)
    return "\n".join(lines)


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
