"""Greedy search, sampling and beam search over ids. Knows a predictor and special tokens; does not know text.

Legend of the shapes: B sentences, N beams, T target positions, V vocabulary, C candidates, R = B x N rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter

import torch
from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.finished import SHRINKING_LATE, Flags, reads_late, worth_keeping
from mt_cli.decoding.next_tokens import (
    Constraints,
    Prefixes,
    TokenMask,
    best_tokens,
    sampled_tokens,
    select,
)
from mt_cli.decoding.predictor import EagerPredictor, Predictor
from mt_cli.decoding.reserved_ids import ReservedIds
from mt_cli.decoding.transfers import Arriving, send
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID, PAD_ID, SOS_ID


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a model produced."""

    ids: list[int]  # Without [SOS] and [EOS].
    score: float  # Log-probability (nats, [EOS] included) divided by the length penalty; higher is better.
    attention: Tensor | None = None
    """TxS cross-attention of each token, from engines that return it with a search."""

    def without_first(self, number: int) -> Hypothesis:
        """Copy without the first tokens, with the same score."""
        if not number:
            return self
        return replace(
            self, ids=self.ids[number:], attention=None if self.attention is None else self.attention[number:]
        )


Results = Callable[[], list[list[Hypothesis]]]
"""Function that waits for the hypotheses of some sentences and returns them, best first. Call it only once."""


def search(
    model: Transformer | Ensemble,
    src_ids: Tensor,
    decoding: DecodingConfig,
    num_best: int = 1,
    prefixes: Prefixes = (),
    predictor: Predictor | None = None,
    reserved: ReservedIds | None = None,
) -> list[list[Hypothesis]]:
    """The `num_best` hypotheses (or samples) of each sentence of `src_ids` BxS, best first.

    A hypothesis begins with the prefix of its sentence, if `prefixes` are given, and has the `reserved` entries of its
    source. `predictor` must belong to `model`.
    """
    return start_search(model, src_ids, decoding, num_best, prefixes, predictor, reserved)()


def start_search(
    model: Transformer | Ensemble,
    src_ids: Tensor,
    decoding: DecodingConfig,
    num_best: int = 1,
    prefixes: Prefixes = (),
    predictor: Predictor | None = None,
    reserved: ReservedIds | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> Results:
    """Search like `search`, but return while a GPU still works on the last position.

    The results of a batch can then be read while the GPU works on the next batch. `meanwhile` is called as soon as the
    GPU has work. With `src_ids` on the CPU, nothing waits for the GPU at the start.
    """
    device = next(model.parameters()).device
    constraints = Constraints.of(src_ids, decoding, prefixes, reserved)
    predictor, num_beams = predictor or EagerPredictor(model), max(decoding.beam_size, num_best)
    state: Samples | Beams
    if decoding.sample or num_beams == 1:
        state = Samples.start(src_ids, constraints, num_best, device)
    else:
        state = Beams.start(len(src_ids), num_beams, device)
    return run_search(predictor, send(src_ids, device), constraints.to(device), state, num_best, meanwhile)


@torch.inference_mode()
def run_search(
    predictor: Predictor,
    src_ids: Tensor,
    constraints: Constraints,
    state: Samples | Beams,
    num_best: int = 1,
    meanwhile: Callable[[], object] = lambda: None,
) -> Results:
    """Extend a state token by token until every sentence is done; the results are `num_best` hypotheses of each.

    Each step reads which sentences are done. On a GPU, it reads the flags of the step before while the GPU works on the
    current step; sentences that are done do not change any more. If a score is not a number, this function or the
    results raise DivergenceError.
    """
    length_penalty, last = constraints.decoding.length_penalty, max(constraints.ends_at)
    num_beams, is_late = state.ids.shape[1], reads_late(src_ids.device)
    tokens_R = torch.full((len(src_ids) * num_beams,), SOS_ID, device=src_ids.device)
    sentences = torch.arange(len(src_ids))  # On the CPU, like `is_read_B` and `kept`.
    is_read_B = torch.zeros_like(sentences, dtype=torch.bool)
    parts: list[tuple[list[int], Results]] = []
    flags: Flags | None = None
    frozen_B: Tensor | None = None  # On the device.
    with predictor.start(src_ids, num_beams) as prediction:
        while True:
            logits_RV = prediction.next(tokens_R)
            state = state.extend(logits_RV, constraints.next_after(state.ids), constraints.decoding, frozen_B)
            if state.ids.shape[2] == 1:
                meanwhile()
            is_last = state.ids.shape[2] > last  # At the last position, all sentences are done.
            if is_last or not is_late:
                flags = Flags(state.is_done(length_penalty), state.is_nan())
            is_done_B = is_read_B
            if is_last and is_late:
                is_done_B = torch.ones_like(is_read_B)
            elif flags is not None:
                is_done_B = is_read_B | flags.read_done()
            kept = worth_keeping(~is_done_B, *(SHRINKING_LATE if is_late else ()))
            # On a GPU, hypotheses stay there until their rows are dropped.
            unread = (is_done_B & ~is_read_B).nonzero()[:, 0]
            if len(unread) and (not is_late or kept is not None or is_done_B.all()):
                parts.append((sentences[unread].tolist(), state.start_reading(unread, length_penalty, num_best)))
                is_read_B = is_done_B
            if is_done_B.all():
                return partial(_joined, parts, flags if is_late else None)
            rows = None if kept is None else send(kept, src_ids.device)
            prediction.select(state.parents, rows)
            if kept is not None and rows is not None:
                state, constraints = select(state, rows), select(constraints, rows)
                sentences, is_read_B = sentences[kept], is_read_B[kept]
            frozen_B = state.is_done(length_penalty) if is_late else None
            flags = None if frozen_B is None else Flags(frozen_B, state.is_nan())
            tokens_R = state.ids[:, :, -1].flatten()


def _joined(parts: list[tuple[list[int], Results]], flags: Flags | None) -> list[list[Hypothesis]]:
    """Hypotheses of all parts of a batch, in the order of the sentences; also reads flags that are still unread."""
    if flags is not None:
        flags.read_done()
    pairs = chain.from_iterable(zip(sentences, results(), strict=True) for sentences, results in parts)
    return [hypotheses for _, hypotheses in sorted(pairs, key=itemgetter(0))]


@dataclass(frozen=True)
class Samples:
    """State of greedy search or sampling: independent hypotheses, each extended by one token."""

    ids: Tensor  # BxNxT; tokens after the first [EOS] do not count.
    scores: Tensor  # BxN, their log-probabilities up to [EOS].
    is_active: Tensor  # BxN, True where a hypothesis has not ended.
    random_numbers: Tensor  # BxNxT, from 0 to 1, one for each token to sample; BxNx0 for greedy search.
    parents = None

    @classmethod
    def start(cls, src_ids: Tensor, constraints: Constraints, num_samples: int, device: torch.device) -> Samples:
        """Empty hypotheses on a device, with random numbers that depend on the seed and the source alone."""
        scores = torch.zeros(len(src_ids), num_samples, device=device)
        random_numbers = scores.new_empty(*scores.shape, 0)
        if constraints.decoding.sample:
            rows, longest = [], int(constraints.max_lengths.max()) + 1
            for ids in src_ids.tolist():
                content = repr((constraints.decoding.seed, ids[: ids.index(EOS_ID)]))
                seed = int.from_bytes(hashlib.sha256(content.encode()).digest()[:7], "big")
                rows.append(torch.rand(longest, num_samples, generator=torch.Generator().manual_seed(seed)).T)
            random_numbers = send(torch.stack(rows), device)
        return cls(scores.new_empty(*scores.shape, 0, dtype=torch.int64), scores, scores == 0, random_numbers)

    def extend(
        self, logits_RV: Tensor, mask: TokenMask, decoding: DecodingConfig, frozen_B: Tensor | None = None
    ) -> Samples:
        """Append the likeliest token or a sampled token to each hypothesis; ended hypotheses do not change."""
        if decoding.sample:
            # Ended hypotheses may have more tokens than random numbers.
            position = min(self.ids.shape[2], self.random_numbers.shape[2] - 1)
            chosen = sampled_tokens(logits_RV, self.random_numbers[:, :, position].flatten(), decoding, mask)
        else:
            chosen = best_tokens(logits_RV, 1, mask)
        chosen = mask.without_prefix(chosen[0]), chosen[1]
        log_probs_BN, tokens_BN = (values.view_as(self.scores) for values in chosen)
        ids_BNT = torch.cat([self.ids, tokens_BN[..., None]], dim=2)
        scores_BN = torch.where(self.is_active, self.scores + log_probs_BN, self.scores)
        return Samples(ids_BNT, scores_BN, self.is_active & (tokens_BN != EOS_ID), self.random_numbers)

    def is_done(self, length_penalty: float) -> Tensor:
        """B, True where all hypotheses have ended."""
        return ~self.is_active.any(dim=1)

    def is_nan(self) -> Tensor:
        """B, True where a score is not a number."""
        return self.scores.isnan().any(dim=1)

    def start_reading(self, sentences: Tensor, length_penalty: float, num_best: int) -> Results:
        """Begin to read the hypotheses of some sentences, indices on the CPU."""
        return partial(_samples, Arriving(self.ids), Arriving(self.scores), sentences, length_penalty, num_best)


@dataclass(frozen=True)
class Beams:
    """State of a beam search. Hypotheses are sorted, best first."""

    ids: Tensor  # BxNxT ids of the active hypotheses.
    scores: Tensor  # BxN, their log-probabilities.
    parents: Tensor  # BxN, index of the hypothesis that each hypothesis continues.
    finished_ids: Tensor  # BxNxT ids of the best finished hypotheses, padded.
    finished_scores: Tensor  # BxN, their log-probabilities divided by the length penalty; -inf if missing.

    @classmethod
    def start(cls, num_sentences: int, num_beams: int, device: torch.device) -> Beams:
        """One empty hypothesis for each sentence; the other beams are impossible."""
        impossible = torch.full((num_sentences, num_beams), -math.inf, device=device)
        parents = torch.zeros_like(impossible, dtype=torch.int64)
        ids = parents.new_empty(num_sentences, num_beams, 0)
        return cls(ids, impossible.index_fill(1, parents.new_zeros(1), 0.0), parents, ids, impossible)

    def extend(
        self, logits_RV: Tensor, mask: TokenMask, decoding: DecodingConfig, frozen_B: Tensor | None = None
    ) -> Beams:
        """Continue each beam by its 2N best tokens and keep the best N of all continuations.

        Continuations that end and are among the N best become finished hypotheses. Of the 2N best continuations, at
        most N end, so N active hypotheses remain. The finished hypotheses of frozen sentences do not change; these
        sentences are done.
        """
        num_beams = self.ids.shape[1]
        log_probs_RC, tokens_RC = best_tokens(logits_RV, 2 * num_beams, mask)
        candidates = mask.without_prefix(log_probs_RC), tokens_RC
        log_probs_BNC, tokens_BNC = (values.unflatten(0, (-1, num_beams)) for values in candidates)
        num_candidates = tokens_BNC.shape[2]
        totals_BNC = self.scores[..., None] + log_probs_BNC
        if frozen_B is not None:
            totals_BNC = totals_BNC.masked_fill(frozen_B[:, None, None], -math.inf)
        totals_BC, flat_BC = totals_BNC.flatten(1).topk(min(2, num_candidates) * num_beams)
        parents_BC, tokens_BC = flat_BC // num_candidates, tokens_BNC.flatten(1).gather(1, flat_BC)
        ids_BCT = torch.cat([pick(self.ids, parents_BC), tokens_BC[..., None]], dim=2)
        ends_BC = tokens_BC == EOS_ID
        scores_BN, active_BN = totals_BC.masked_fill(ends_BC, -math.inf).topk(num_beams)

        normalised_BC = totals_BC / penalty(ids_BCT.shape[2], decoding.length_penalty)
        ended_BC = normalised_BC.masked_fill(~ends_BC, -math.inf)
        finished_scores_BN, kept_BN = torch.cat([self.finished_scores, ended_BC[:, :num_beams]], dim=1).topk(num_beams)
        padded = torch.nn.functional.pad(self.finished_ids, (0, 1), value=PAD_ID)
        finished_ids_BNT = pick(torch.cat([padded, ids_BCT[:, :num_beams]], dim=1), kept_BN)
        parents_BN = parents_BC.gather(1, active_BN)
        return Beams(pick(ids_BCT, active_BN), scores_BN, parents_BN, finished_ids_BNT, finished_scores_BN)

    def is_done(self, length_penalty: float) -> Tensor:
        """B, True where N hypotheses have ended and no active one scores better at its present length."""
        best_active = self.scores[:, 0] / penalty(max(1, self.ids.shape[2]), length_penalty)
        return (self.finished_scores[:, -1] >= best_active) | self.scores[:, 0].isneginf()

    def is_nan(self) -> Tensor:
        """B, True where a score is not a number."""
        return (self.scores + self.finished_scores).isnan().any(dim=1)

    def start_reading(self, sentences: Tensor, length_penalty: float, num_best: int) -> Results:
        """Begin to read the finished hypotheses of some sentences, indices on the CPU."""
        ids, scores = Arriving(self.finished_ids[:, :num_best]), Arriving(self.finished_scores[:, :num_best])
        return partial(_finished, ids, scores, sentences)


def _finished(ids: Arriving, scores: Arriving, sentences: Tensor) -> list[list[Hypothesis]]:
    ids_BNT, scores_BN = ids.read()[sentences].tolist(), scores.read()[sentences].tolist()
    return [
        [
            Hypothesis(row[: row.index(EOS_ID)], score)
            for row, score in zip(rows, scores_N, strict=True)
            if score > -math.inf
        ]
        for rows, scores_N in zip(ids_BNT, scores_BN, strict=True)
    ]


def _samples(
    ids: Arriving, scores: Arriving, sentences: Tensor, length_penalty: float, num_best: int
) -> list[list[Hypothesis]]:
    ids_BNT, scores_BN = ids.read()[sentences].tolist(), scores.read()[sentences].tolist()
    pairs = zip(ids_BNT, scores_BN, strict=True)
    return [best_samples(rows, scores_N, length_penalty)[:num_best] for rows, scores_N in pairs]


def best_samples(ids: Sequence[Sequence[int]], log_probs: Sequence[float], length_penalty: float) -> list[Hypothesis]:
    """Hypotheses of one sentence from their ids up to the first [EOS], sorted by their normalised scores."""
    rows = [list(row[: row.index(EOS_ID)]) for row in ids]
    totals = zip(rows, log_probs, strict=True)
    hypotheses = (Hypothesis(row, total / penalty(len(row) + 1, length_penalty)) for row, total in totals)
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)


def pick(values_BNT: Tensor, indices_BM: Tensor) -> Tensor:
    """Rows BxMxT of `values_BNT` at the indices of each sentence."""
    return values_BNT.gather(1, indices_BM[..., None].expand(-1, -1, values_BNT.shape[2]))


def penalty(length: int, length_penalty: float) -> float:
    """((5 + length) / 6)^alpha, with [EOS] counted in the length (Wu et al. 2016, equation 14)."""
    return float(((5 + length) / 6) ** length_penalty)
