"""Selection of training pairs by how much each side helps to predict the other, with the model in training.

Forced decoding in both directions is from Junczys-Dowmunt 2018, "Dual Conditional Cross-Entropy Filtering of Noisy
Parallel Corpora", whose score is |H(y|x) - H(x|y)| + (H(y|x) + H(x|y)) / 2. Ours is the gain H(y|x') - H(y|x) in nats
per token, where x' is the source of another pair, as the mean of both directions, times the cube of the ratio of the
lengths (shorter to longer, relative to the median of the part). H alone mostly says how common the words are; lengths
show truncated sides. On captions with damaged pairs (docs/data.md), which chose the constants, the area under the curve
is 0.77 with the score of the paper, 0.87 with gains in it, 0.98 with ours. The higher, the more likely. The scores are
a column of the pairs in `pair_scores.npy` of a run, and its state says from where on they count.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState, SelectedPairs
from mt_cli.config.sections import Config
from mt_cli.corpus.cleaning import KEPT, Mask
from mt_cli.corpus.source_rows import places_in
from mt_cli.data.batches import TrainingPairs
from mt_cli.data.encode import SIDES, EncodedPairs
from mt_cli.data.prepare import Data
from mt_cli.errors import RunError
from mt_cli.evaluation.token_loss import pair_losses
from mt_cli.model.transformer import with_dtype
from mt_cli.run.setup import Setup
from mt_cli.runtime.console import Progress, say, truncate
from mt_cli.runtime.files import read_regular, reading, write_bytes

Scores = NDArray[np.float32]
_LONGEST_SHOWN = 2_000
_HEADER_BYTES = 1_000
_LENGTH_POWER, _ADDED_TOKENS = 3, 3  # Tokens are added for [EOS], and since the ratio of short sentences varies more.


def select_pairs(setup: Setup, state: RunState) -> None:
    """Score the training pairs with the averaged weights, save the scores, and select the most likely pairs in a state.

    They count from the next pool of batches on, because a pool that has begun is finished as it is. Does nothing
    without `keep_likely`.
    """
    run, position = setup.run, state.position
    if not any(_shares_kept(run.config)):
        return
    pairs, batch_tokens = run.data.encoded["train"], run.config.training.tokens_per_batch
    with setup.averaged() as model, Progress("scoring pairs", 2 * len(pairs), "pair", leave=False) as bar:
        scored = with_dtype(model, run.dtype, run.device)
        losses = pair_losses(scored, pairs, batch_tokens, bar.advance, run.group)
        baselines = pair_losses(scored, pairs, batch_tokens, bar.advance, run.group, wrong_sources(pairs))
    scores = pair_scores(baselines - losses, pairs, exchanged_pairs(run.data, run.config))
    content = io.BytesIO()
    np.save(content, scores)
    run.group.on_main(lambda: write_bytes(run.directory.pair_scores_path, content.getvalue()))
    parts = np.split(likely_pairs(scores, run.data, run.config), np.cumsum(pairs.part_sizes)[:-1])
    num_kept = [int(part.sum()) for part in parts]
    state.selected = SelectedPairs(position.epoch, position.pool + (position.num_batches > 0), num_kept)
    shown = f"trains on {sum(num_kept):,} of {len(scores):,} pairs from here on"
    run.group.on_main(lambda: say(f"filters.keep_likely: {shown}; see `mt data show --least-likely 20`"))


def follow_selection(setup: Setup, state: RunState, pairs: TrainingPairs) -> None:
    """Draw the training pairs that a state has selected, if any, and all synthetic ones.

    Raises RunError if the file of the scores is missing.
    """
    selected, run = state.selected, setup.run
    if selected is None:
        return
    scores = run.group.from_main(lambda: read_scores(run.directory, state, len(run.data.encoded["train"])))
    pairs.select(likely_pairs(scores, run.data, run.config), (selected.epoch, selected.pool))


def note_unselected(config: Config, state: RunState) -> None:
    """Say so if a run has ended before pairs were selected."""
    if state.selected is None and any(_shares_kept(config)):
        say("note: filters.keep_likely: no pair was dropped, because no validation came after half of the updates")


def read_scores(directory: RunDirectory, state: RunState, num_pairs: int) -> Scores:
    """Scores of all pairs; raises RunError if the run has none."""
    path = directory.pair_scores_path
    if state.selected is None:
        raise RunError(f"{directory.path}: filters.keep_likely has not scored the pairs yet")
    with reading(path, RunError):
        content = read_regular(path, num_pairs * np.float32().nbytes + _HEADER_BYTES)
    with suppress(ValueError, EOFError):
        scores: Scores = np.load(io.BytesIO(content), allow_pickle=False)
        if scores.shape == (num_pairs,):
            return scores
    raise RunError(f"{path}: damaged; restore it, or use --fresh to start over (the old run is moved aside)")


def wrong_sources(pairs: EncodedPairs) -> NDArray[np.int64]:
    """For each pair, the next pair of its part by length of source, because the length changes the loss of [EOS]."""
    # Equal lengths are in a fixed random order, because neighbours in a text often share their topic.
    lengths, order_of_equals = pairs.lengths()[0], np.random.default_rng(1).permutation(len(pairs))
    others = np.empty(len(pairs), np.int64)
    for part in np.split(np.arange(len(pairs)), np.cumsum(pairs.part_sizes)[:-1]):
        order = part[np.lexsort((order_of_equals[part], lengths[part]))]
        others[order] = np.roll(order, -1)
    return others


def pair_scores(gains: Scores, pairs: EncodedPairs, exchanged: NDArray[np.int64]) -> Scores:
    """Score of each pair from the gains of all pairs; NaN for a pair without a pair with its sides exchanged."""
    lengths = pairs.lengths()[1] + _ADDED_TOKENS
    reverse_gains, reverse_lengths = (np.where(exchanged < 0, np.nan, x[exchanged]) for x in (gains, lengths))
    ratios = np.log(lengths / reverse_lengths)
    for part in np.split(ratios, np.cumsum(pairs.part_sizes)[:-1]):
        if not np.isnan(part).all():
            part -= np.nanmedian(part)
    return np.asarray((gains + reverse_gains) / 2 * np.exp(-_LENGTH_POWER * np.abs(ratios)), np.float32)


def exchanged_pairs(data: Data, config: Config) -> NDArray[np.int64]:
    """For each training pair, the index of the pair with its sides exchanged; -1 if there is none."""
    corpus = data.corpora["train"]
    rows = np.flatnonzero(data.statuses("train") == KEPT)
    index_of_row = np.full(len(corpus.statuses), -1)
    index_of_row[rows] = np.arange(len(rows))
    exchanged = np.full(len(rows), -1)
    for part, other in zip(corpus.parts, config.corpus.exchanged, strict=True):
        # Both parts read the same rows in the same order, but filters may drop one of two rows.
        if other is not None and corpus.parts[other].num_rows == part.num_rows:
            start, end = np.searchsorted(rows, [part.span.start, part.span.stop])
            exchanged[start:end] = index_of_row[rows[start:end] - part.first_row + corpus.parts[other].first_row]
    return exchanged


def likely_pairs(scores: Scores, data: Data, config: Config) -> Mask:
    """Mask of the pairs that stay: of each part, its share with the highest scores, and all without a score."""
    is_kept = np.ones(len(scores), bool)
    ends = np.cumsum(data.encoded["train"].part_sizes)
    for part, share, end in zip(np.split(scores, ends[:-1]), _shares_kept(config), ends, strict=True):
        if share is not None:
            ranked = np.argsort(-part, kind="stable")[: np.count_nonzero(~np.isnan(part))]  # NaN is last.
            is_kept[end - len(part) + ranked[max(1, round(share * len(ranked))) :]] = False
    return is_kept


def _shares_kept(config: Config) -> list[float | None]:
    return [config.corpus.filters_of(source).keep_likely for source in config.corpus.train]


def least_likely(scores: Scores, data: Data, config: Config, number: int) -> Iterator[str]:
    """Lines that show the least likely pairs of each text with their places and scores, the worst first."""
    corpus = data.corpora["train"]
    shown = np.zeros(len(scores), bool)
    ends = np.cumsum(data.encoded["train"].part_sizes)
    for index in config.corpus.once("train"):
        shown[ends[index] - data.encoded["train"].part_sizes[index] : ends[index]] = True
    ranked = np.argsort(np.where(shown, scores, np.nan), kind="stable")
    chosen = np.sort(ranked[: min(number, np.count_nonzero(shown & ~np.isnan(scores)))])
    rows = np.flatnonzero(data.statuses("train") == KEPT)[chosen]
    mask = np.zeros(len(corpus.statuses), bool)
    mask[rows] = True
    shown_rows = list(corpus.rows_of_parts(mask))
    places = places_in(config.corpus, "train", [(part.name, line) for part, (line, _, _) in shown_rows])
    for place in np.argsort(scores[chosen], kind="stable").tolist():
        part, (line, *sides) = shown_rows[place]
        yield f"{part.name}, {places[part.name, line]}: {scores[chosen[place]]:.2f}"
        for label, text in zip(SIDES, sides, strict=True):
            yield f"  {label}  {truncate(text, _LONGEST_SHOWN)}"
