"""Scores of a model for several directions: of each direction, and their mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice, zip_longest
from typing import TypeVar

from mt_cli.corpus.rows import Languages
from mt_cli.evaluation.texts import Score, Scorer

T = TypeVar("T")
Scores = dict[str, Score]
"""Scores by metric."""
DirectionScores = dict[str, Scores]
"""Scores by direction (`es-gn`) and metric."""


def rows_by_direction(languages: Sequence[Languages]) -> dict[str, list[int]]:
    """Indices of the pairs of each direction, by its name; empty if there is only one direction.

    `languages` has the source and target language of each pair.
    """
    rows: dict[str, list[int]] = {}
    for row, direction in enumerate(languages):
        rows.setdefault("-".join(direction), []).append(row)
    return rows if len(rows) > 1 else {}


def sampled_rows(languages: Sequence[Languages], number: int) -> list[int]:
    """Indices of the first pairs, of each direction in turn."""
    groups = rows_by_direction(languages).values() or [range(len(languages))]
    in_turn = (row for rows in zip_longest(*groups) for row in rows if row is not None)
    return list(islice(in_turn, number))


def by_direction(
    scorer: Scorer, languages: Sequence[Languages], texts: Sequence[Sequence[str]], work: Callable[..., T]
) -> dict[str, T]:
    """Result of `work` for each direction, with a scorer of its language and its rows of each of `texts`.

    Empty if there is only one direction.
    """
    results = {}
    for direction, rows in rows_by_direction(languages).items():
        rows_of_texts = ([lines[row] for row in rows] for lines in texts)
        results[direction] = work(scorer.for_language(languages[rows[0]][1]), *rows_of_texts)
    return results


def score_directions(
    scorer: Scorer, languages: Sequence[Languages], texts: Sequence[Sequence[str]], score: Callable[..., Scores]
) -> tuple[Scores, DirectionScores]:
    """Scores of all texts, and of each direction; of several directions, the scores of all are means.

    `score` is a method of `Scorer` and is called with a scorer and the texts.
    """
    directions = by_direction(scorer, languages, texts, score)
    return (mean_scores(directions) if directions else score(scorer, *texts)), directions


def mean_scores(directions: Mapping[str, Scores]) -> Scores:
    """Mean over directions of each metric that all of them have; its signature begins with their number."""
    first, *others = directions.values()
    means = {}
    for name in [name for name in first if all(name in scores for scores in others)]:
        scores = [by_metric[name] for by_metric in directions.values()]
        signatures = dict.fromkeys(score.signature for score in scores)
        value = round(sum(score.score for score in scores) / len(scores), 4)
        means[name] = Score.of(name, value, f"mean:{len(scores)}|{' or '.join(signatures)}")
    return means
