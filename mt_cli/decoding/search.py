"""Greedy search, sampling and beam search over ids.

Legend of the shapes: B sentences, N beams, T target positions, V vocabulary, C candidates, R = B x N rows.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import torch
from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.data.packing import round_up
from mt_cli.decoding.constraints import Constraints, Prefixes, ReservedIds, TokenMask, select
from mt_cli.decoding.engine import Hypothesis, NBest, penalty_of
from mt_cli.decoding.next_tokens import best_tokens, sampled_tokens
from mt_cli.decoding.predictor import Predictor
from mt_cli.errors import DivergenceError
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID, PAD_ID, SOS_ID


class Pace(NamedTuple):
    """When a search checks which sentences are done, and removes them from the batch (this copies keys and values)."""

    every_steps: int
    """Steps between two checks."""
    largest_fraction: Fraction
    """Removes sentences only if at most this fraction of them remains."""
    fewest: int
    """Never removes from a batch of this size or less."""


ON_CPU = Pace(1, Fraction(5, 6), 0)
ON_GPU = Pace(4, Fraction(1, 2), 64)
"""Reading idles a GPU, every size of a batch needs a graph, and fewer than 64 sentences save no time."""
_SIZES_PER_OCTAVE = 4


def pace_of(device: torch.device) -> Pace:
    """Pace of a search on a device."""
    return ON_GPU if device.type == "cuda" else ON_CPU


def search(
    model: Transformer | Ensemble,
    src_ids: Tensor,
    decoding: DecodingConfig,
    num_best: int = 1,
    prefixes: Prefixes = (),
    predictor: Predictor | None = None,
    reserved: ReservedIds | None = None,
) -> list[NBest]:
    """The `num_best` hypotheses (or samples) of each sentence of `src_ids` BxS, which is on the CPU, best first.

    A hypothesis begins with the prefix of its sentence, if `prefixes` are given, and has the `reserved` tokens of its
    source. `predictor` must belong to `model`. Raises DivergenceError if a score is not a number.
    """
    device, num_beams = next(model.parameters()).device, max(decoding.beam_size, num_best)
    constraints = Constraints.of(src_ids, decoding, prefixes, reserved)
    state: Independent | Beams
    if decoding.sample or num_beams == 1:
        state = Independent.start(src_ids, constraints, num_best, device)
    else:
        state = Beams.start(len(src_ids), num_beams, decoding.length_penalty, device)
    return run_search(predictor or Predictor(model), src_ids.to(device), constraints.to(device), state, num_best)


@torch.inference_mode()
def run_search(
    predictor: Predictor, src_ids: Tensor, constraints: Constraints, state: Independent | Beams, num_best: int = 1
) -> list[NBest]:
    """Extend a state token by token until every sentence is done; return `num_best` hypotheses of each."""
    num_beams, pace, last = state.scores.shape[1], pace_of(src_ids.device), max(constraints.ends_at)
    tokens_R = torch.full((len(src_ids) * num_beams,), SOS_ID, device=src_ids.device)
    sentences = torch.arange(len(src_ids))  # Of the rows that remain, on the CPU.
    hypotheses: dict[int, NBest] = {}
    with predictor.start(src_ids, num_beams) as prediction:
        while True:
            logits_RV = prediction.next(tokens_R)
            state = state.extend(logits_RV, constraints.next_after(state.ids))
            length, kept = state.ids.shape[2], None
            if length % pace.every_steps == 0 or length > last:  # At the last position, all sentences are done.
                kept = _worth_keeping(~_read_done(state), pace)
            if kept is None:
                prediction.select(state.parents, None)
            else:
                dropped = torch.ones_like(sentences, dtype=torch.bool).index_fill(0, kept, False).nonzero()[:, 0]
                results = select(state, dropped.to(src_ids.device)).hypotheses(num_best)
                hypotheses.update(zip(sentences[dropped].tolist(), results, strict=True))
                if not len(kept):
                    return [hypotheses[sentence] for sentence in range(len(src_ids))]
                rows = kept.to(src_ids.device)
                prediction.select(state.parents, rows)
                sentences, state, constraints = sentences[kept], select(state, rows), select(constraints, rows)
            tokens_R = state.ids[:, :, -1].flatten()


def _read_done(state: Independent | Beams) -> Tensor:
    """B, True where a sentence is done, on the CPU. Raises DivergenceError if a score is not a number."""
    is_done_B: Tensor
    is_done_B, is_nan_B = torch.stack([state.is_done(), state.is_nan()]).cpu()
    if is_nan_B.any():  # The search would never end.
        raise DivergenceError(
            "the scores of this model are not numbers, because its training diverged; lower training.learning_rate "
            "or raise training.warmup_steps, and train again with --fresh"
        )
    return is_done_B


def _worth_keeping(active_B: Tensor, pace: Pace) -> Tensor | None:
    """Indices of the sentences to continue with; None: keep all.

    They are padded with finished ones to a size that recurs, because oneDNN keeps the kernels of such sizes.
    """
    num_active = int(active_B.sum())
    num_kept = min(len(active_B), round_up(num_active, _SIZES_PER_OCTAVE)) if num_active else 0
    if num_active and (num_kept > pace.largest_fraction * len(active_B) or len(active_B) <= pace.fewest):
        return None
    return active_B.to(torch.uint8).argsort(descending=True, stable=True)[:num_kept]


@dataclass(frozen=True)
class Independent:
    """Hypotheses that do not compete, in greedy search and sampling; each is extended by one token."""

    ids: Tensor  # BxNxT; tokens after the first [EOS] do not count.
    scores: Tensor  # BxN, their log-probabilities up to [EOS].
    is_active: Tensor  # BxN, True where a hypothesis has not ended.
    random_numbers: Tensor  # BxNxT, from 0 to 1, one for each token to sample; BxNx0 for greedy search.
    decoding: DecodingConfig
    parents = None

    @classmethod
    def start(cls, src_ids: Tensor, constraints: Constraints, num_hypotheses: int, device: torch.device) -> Independent:
        """Empty hypotheses on a device, with random numbers that depend on the seed and the source alone."""
        decoding, scores = constraints.decoding, torch.zeros(len(src_ids), num_hypotheses, device=device)
        random_numbers = scores.new_empty(*scores.shape, 0)
        if decoding.sample:
            rows, longest = [], int(constraints.max_lengths.max()) + 1
            for ids in src_ids.tolist():
                content = repr((decoding.seed, ids[: ids.index(EOS_ID)]))
                seed = int.from_bytes(hashlib.sha256(content.encode()).digest()[:7], "big")
                rows.append(torch.rand(longest, num_hypotheses, generator=torch.Generator().manual_seed(seed)).T)
            random_numbers = torch.stack(rows).to(device)
        return cls(scores.new_empty(*scores.shape, 0, dtype=torch.int64), scores, scores == 0, random_numbers, decoding)

    def extend(self, logits_RV: Tensor, mask: TokenMask) -> Independent:
        """Append the likeliest token or a sampled token to each hypothesis; ended hypotheses do not change."""
        if self.decoding.sample:
            # Ended hypotheses may have more tokens than random numbers.
            position = min(self.ids.shape[2], self.random_numbers.shape[2] - 1)
            chosen = sampled_tokens(logits_RV, self.random_numbers[:, :, position].flatten(), self.decoding, mask)
        else:
            chosen = best_tokens(logits_RV, 1, mask)
        log_probs_BN, tokens_BN = (values.view_as(self.scores) for values in chosen)
        return replace(
            self,
            ids=torch.cat([self.ids, tokens_BN[..., None]], dim=2),
            scores=torch.where(self.is_active, self.scores + log_probs_BN, self.scores),
            is_active=self.is_active & (tokens_BN != EOS_ID),
        )

    def is_done(self) -> Tensor:
        """B, True where all hypotheses have ended."""
        return ~self.is_active.any(dim=1)

    def is_nan(self) -> Tensor:
        """B, True where a score is not a number."""
        return self.scores.isnan().any(dim=1)

    def hypotheses(self, num_best: int) -> list[NBest]:
        """The best hypotheses of each sentence, best first."""
        alpha, results = self.decoding.length_penalty, []
        for rows, log_probs in zip(self.ids.tolist(), self.scores.tolist(), strict=True):
            ended = [(ids[: ids.index(EOS_ID)], log_prob) for ids, log_prob in zip(rows, log_probs, strict=True)]
            hypotheses = [Hypothesis(ids, log_prob / penalty_of(len(ids) + 1, alpha)) for ids, log_prob in ended]
            results.append(sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:num_best])
        return results


@dataclass(frozen=True)
class Beams:
    """State of a beam search. Hypotheses are sorted, best first."""

    ids: Tensor  # BxNxT ids of the active hypotheses.
    scores: Tensor  # BxN, their log-probabilities.
    parents: Tensor  # BxN, index of the hypothesis that each hypothesis continues.
    finished_ids: Tensor  # BxNxT ids of the best finished hypotheses, padded.
    finished_scores: Tensor  # BxN, their log-probabilities divided by the length penalty; -inf if missing.
    alpha: float  # Of the length penalty.

    @classmethod
    def start(cls, num_sentences: int, num_beams: int, alpha: float, device: torch.device) -> Beams:
        """One empty hypothesis for each sentence; the other beams are impossible."""
        impossible = torch.full((num_sentences, num_beams), -math.inf, device=device)
        parents = torch.zeros_like(impossible, dtype=torch.int64)
        ids = parents.new_empty(num_sentences, num_beams, 0)
        return cls(ids, impossible.index_fill(1, parents.new_zeros(1), 0.0), parents, ids, impossible, alpha)

    def extend(self, logits_RV: Tensor, mask: TokenMask) -> Beams:
        """Continue each beam by one token.

        Of the 2N best continuations of all beams, the N best that do not end in [EOS] are the new beams; those among
        the N best that end compete with the finished hypotheses by length-penalised score. 2N suffice, because each
        beam has only one continuation by [EOS]. The finished hypotheses of a sentence that is done do not change.
        """
        num_beams = self.ids.shape[1]
        candidates = best_tokens(logits_RV, 2 * num_beams, mask)
        log_probs_BNC, tokens_BNC = (values.unflatten(0, (-1, num_beams)) for values in candidates)
        num_candidates = tokens_BNC.shape[2]
        totals_BNC = (self.scores[..., None] + log_probs_BNC).masked_fill(self.is_done()[:, None, None], -math.inf)
        totals_BC, flat_BC = totals_BNC.flatten(1).topk(min(2, num_candidates) * num_beams)
        parents_BC, tokens_BC = flat_BC // num_candidates, tokens_BNC.flatten(1).gather(1, flat_BC)
        ids_BCT = torch.cat([pick(self.ids, parents_BC), tokens_BC[..., None]], dim=2)
        ends_BC = tokens_BC == EOS_ID
        scores_BN, active_BN = totals_BC.masked_fill(ends_BC, -math.inf).topk(num_beams)

        ended_BC = (totals_BC / penalty_of(ids_BCT.shape[2], self.alpha)).masked_fill(~ends_BC, -math.inf)
        finished_scores_BN, kept_BN = torch.cat([self.finished_scores, ended_BC[:, :num_beams]], dim=1).topk(num_beams)
        padded = torch.nn.functional.pad(self.finished_ids, (0, 1), value=PAD_ID)
        finished_ids_BNT = pick(torch.cat([padded, ids_BCT[:, :num_beams]], dim=1), kept_BN)
        parents_BN = parents_BC.gather(1, active_BN)
        return Beams(pick(ids_BCT, active_BN), scores_BN, parents_BN, finished_ids_BNT, finished_scores_BN, self.alpha)

    def is_done(self) -> Tensor:
        """B, True where N hypotheses have ended and no active one scores better at its present length."""
        best_active = self.scores[:, 0] / penalty_of(max(1, self.ids.shape[2]), self.alpha)
        return (self.finished_scores[:, -1] >= best_active) | self.scores[:, 0].isneginf()

    def is_nan(self) -> Tensor:
        """B, True where a score is not a number."""
        return (self.scores + self.finished_scores).isnan().any(dim=1)

    def hypotheses(self, num_best: int) -> list[NBest]:
        """The best finished hypotheses of each sentence, best first."""
        sentences = zip(self.finished_ids[:, :num_best].tolist(), self.finished_scores.tolist(), strict=True)
        return [
            [
                Hypothesis(ids[: ids.index(EOS_ID)], score)
                for ids, score in zip(rows, scores, strict=False)
                if score > -math.inf
            ]
            for rows, scores in sentences
        ]


def pick(values_BNT: Tensor, indices_BM: Tensor) -> Tensor:
    """Rows BxMxT of `values_BNT` at the indices of each sentence."""
    return values_BNT.gather(1, indices_BM[..., None].expand(-1, -1, values_BNT.shape[2]))
