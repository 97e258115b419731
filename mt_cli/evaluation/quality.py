"""Fit of the expected chrF of translations on the validation set of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mt_cli.checkpoint.checkpoint import Checkpoint
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.errors import InputError
from mt_cli.evaluation.scores import sampled_rows, scorer_of
from mt_cli.runtime.console import Progress
from mt_cli.runtime.files import json_text, write_text
from mt_cli.translation.lines import Translation
from mt_cli.translation.quality import MOST_DEVIATIONS, QUALITY, QualityModel, characters_of, features_of
from mt_cli.translation.stream import blocks
from mt_cli.translation.translator import Translator

FEWEST_PAIRS, MOST_PAIRS = 100, 2000
_NUM_FOLDS, _NUM_BLOCKS, _RIDGE = 10, 20, 10.0
_SHARE_UNKNOWN, _GROWTH, _TYPICAL = 0.5, 1.5, 0.995
"""Limits of the estimate: least share of unknown words, length by that of the longest line of `valid`, and share of the
lines of `valid` with fewer tokens per character."""
_LEAST_OF_TEXT = 1 / 16
"""Least variance between texts, by that of a sentence; lines of `valid` seldom come from whole files. Chosen on the
files of Python's documentation, where it makes the interval of 20 of 21 files hold, and of 18 without it."""

Array = NDArray[np.float64]


def fit_quality(
    directory: RunDirectory,
    config: Config,
    translator: Translator,
    pairs: Sequence[Pair],
    languages: Sequence[Languages],
    most: int = MOST_PAIRS,
) -> QualityModel:
    """Translate up to `most` pairs of `valid`, fit the estimate, and write it into the run, which is locked.

    Raises InputError if there are fewer than `FEWEST_PAIRS` pairs.
    """
    rows = sorted(sampled_rows(languages or [("", "")] * len(pairs), most))
    if len(rows) < FEWEST_PAIRS:
        raise InputError(f"valid has {len(rows)} pairs, too few to estimate quality by; give it {FEWEST_PAIRS} or more")
    sources, references = zip(*(pairs[row] for row in rows), strict=True)
    translator, items = replace(translator, tagging=translator.tagging.of_corpora), list[Translation]()
    with Progress("estimate quality", len(sources), "sentence") as progress:
        for block in blocks(sources):
            items += translator.translate_fully(block, with_details=True)
            progress.advance(len(block))
    scores = scorer_of(config, "valid").sentence_chrf([item.text for item in items], references)
    model = fitted(items, scores, Checkpoint(directory.path_of()).digest)
    write_text(directory.path / QUALITY, json_text(model.model_dump(mode="json")))
    return model


def fitted(items: Sequence[Translation], chrf: Sequence[float], digest: str) -> QualityModel:
    """Estimate from translations with details, in the order of their texts, and the chrF of each one."""
    translated = [(item, score) for item, score in zip(items, chrf, strict=True) if item.searched]
    lengths = np.array([[*map(characters_of, (item.plain, item.text))] for item, _ in translated]).sum(axis=0) + 1
    log_length_ratio = float(np.log(lengths[1] / lengths[0]))
    rows = [features_of(item, log_length_ratio) for item, _ in translated]
    features, scores = np.array([[*row.values()] for row in rows]), np.array([score for _, score in translated])
    means, deviations = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
    standard = np.clip((features - means) / deviations, -MOST_DEVIATIONS, MOST_DEVIATIONS)
    expected = np.empty_like(scores)
    for fold in np.array_split(np.arange(len(scores)), _NUM_FOLDS):  # Neighbouring lines may be of one text.
        rest = np.delete(np.arange(len(scores)), fold)
        expected[fold] = scores[rest].mean() + standard[fold] @ _ridge(standard[rest], scores[rest])
    errors = scores - expected
    variance, blocks_of_errors = float(errors.var()), np.array_split(errors, _NUM_BLOCKS)
    text_variance = np.var([block.mean() for block in blocks_of_errors], ddof=1) - variance * _NUM_BLOCKS / len(errors)
    columns = zip(means.tolist(), deviations.tolist(), _ridge(standard, scores).tolist(), strict=True)
    highest = {name: np.quantile([row[name] for row in rows], _TYPICAL) for name in rows[0]}
    return QualityModel(
        digest=digest,
        num_sentences=len(rows),
        correlation=np.corrcoef(expected, scores)[0, 1] if scores.std() else 0.0,
        sentence_error=np.quantile(np.abs(errors), 0.68),
        sentence_variance=variance,
        text_variance=max(_LEAST_OF_TEXT * variance, text_variance),
        log_length_ratio=log_length_ratio,
        intercept=scores.mean(),
        regression=dict(zip(rows[0], columns, strict=True)),
        limits={
            "length": np.log(_GROWTH) + max(row["length"] for row in rows),
            "fertility": highest["fertility"],
            "unknown_words": max(_SHARE_UNKNOWN, highest["unknown_words"]),
        },
    )


def _ridge(features: Array, scores: Array) -> Array:
    """Coefficients of a ridge regression on standardised features."""
    penalty = _RIDGE * np.eye(features.shape[1])
    return np.linalg.solve(features.T @ features + penalty, features.T @ (scores - scores.mean()))
