"""Scores of a model for several directions: by direction, and their mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, zip_longest

from mt_cli.corpus.rows import Languages
from mt_cli.evaluation.texts import LOWER_IS_BETTER, Score, Scorer

DirectionScores = dict[str, dict[str, Score]]
"""Scores by direction (`es-gn`) and metric."""


def rows_by_direction(languages: Sequence[Languages]) -> dict[str, list[int]]:
    """The indices of the pairs of each direction, by its name; empty if there is only one.

    `languages` has the source and target language of each pair.
    """
    found: dict[str, list[int]] = {}
    for row, both in enumerate(languages):
        found.setdefault("-".join(both), []).append(row)
    return found if len(found) > 1 else {}


def sampled_rows(languages: Sequence[Languages], number: int) -> list[int]:
    """The indices of the first pairs, of each direction in turn."""
    groups = rows_by_direction(languages).values() or [range(len(languages))]
    in_turn = (row for rows in zip_longest(*groups) for row in rows if row is not None)
    return list(islice(in_turn, number))


def scores_by_direction(
    scorer: Scorer,
    languages: Sequence[Languages],
    hypotheses: Sequence[str],
    references: Sequence[str],
    names: Sequence[str] = (),
    on_sentence: Callable[[], object] | None = None,
) -> DirectionScores:
    """The scores of each direction by the metrics that suit its target language; empty if there is only one direction.

    `scorer` decides the rest: a BLEU tokenizer that does not suit its own language is one that was asked for. With
    `on_sentence`, scores have confidence intervals, as those of `Scorer.score_with_confidence`.
    """
    found: DirectionScores = {}
    for direction, rows in rows_by_direction(languages).items():
        own = scorer.for_language(languages[rows[0]][1])
        chosen = [name for name in names or own.names if name in own.names]
        sides = [hypotheses[row] for row in rows], [references[row] for row in rows]
        if on_sentence is None:
            found[direction] = own.score(*sides, chosen)
        else:
            found[direction] = own.score_with_confidence(*sides, chosen, on_sentence)
    return found


def compared_by_direction(
    scorer: Scorer,
    languages: Sequence[Languages],
    hypotheses: Sequence[str],
    rivals: Sequence[str],
    references: Sequence[str],
    on_sentence: Callable[[], object],
) -> DirectionScores:
    """The scores of rivals and their p-values in each direction; empty if there is only one direction."""
    found: DirectionScores = {}
    for direction, rows in rows_by_direction(languages).items():
        own, other, correct = ([texts[row] for row in rows] for texts in (hypotheses, rivals, references))
        found[direction] = scorer.for_language(languages[rows[0]][1]).compare(own, other, correct, on_sentence)
    return found


def mean_scores(found: DirectionScores) -> dict[str, Score]:
    """The mean over directions of each metric that all of them have; its signature begins with their number."""
    first, *others = found.values()
    means = {}
    for name in [name for name in first if all(name in each for each in others)]:
        scores = [each[name] for each in found.values()]
        signatures = dict.fromkeys(score.signature for score in scores)
        value = round(sum(score.score for score in scores) / len(scores), 4)
        direction = {"lower_is_better": True} if name in LOWER_IS_BETTER else {}
        means[name] = Score(score=value, signature=f"mean:{len(scores)}|{' or '.join(signatures)}", **direction)
    return means
