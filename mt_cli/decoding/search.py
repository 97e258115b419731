"""Greedy search, sampling and beam search over ids. Knows a model and special tokens; does not know text.

Legend of the shapes: B sentences, N beams, T target positions, S source positions, V vocabulary, R = B x N rows.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.batching.packing import round_up
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.candidates import best_tokens, drawn_tokens
from mt_cli.decoding.constraints import Constraints
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer import EOS_ID, PAD_ID, SOS_ID

_SIZES_PER_OCTAVE = 4


@dataclass(frozen=True)
class Hypothesis:
    """One translation."""

    ids: list[int]
    """Without [SOS] and [EOS]."""
    score: float
    """Log-probability (nats, [EOS] included) divided by the length penalty; higher is better."""
    attention: Tensor | None = None
    """TxS, how much each token attends to each source token, from engines that say so only as they search."""


def search(
    model: Transformer,
    src_ids: Tensor,
    decoding: DecodingConfig,
    num_best: int = 1,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """For each sentence of `src_ids` BxS its `num_best` hypotheses, best first; with sampling, as many draws.

    A translation begins with the `prefixes` of its sentence, if any are given.
    """
    constraints = Constraints.of(src_ids, decoding, prefixes, model.max_positions)
    if decoding.sample or max(decoding.beam_size, num_best) == 1:
        return path_search(model, src_ids, constraints, num_best)
    return beam_search(model, src_ids, constraints, num_best)


@torch.inference_mode()
def path_search(
    model: Transformer, src_ids: Tensor, constraints: Constraints, num_paths: int = 1
) -> list[list[Hypothesis]]:
    """Translations, best first, that never look back: greedily the likeliest token at every position, or one drawn."""
    decoding, device = constraints.decoding, src_ids.device
    cache = model.start_cache(*model.encode(src_ids), num_paths)
    sentences = torch.arange(len(src_ids), device=device)
    ids_BNT = torch.empty(len(src_ids), num_paths, 0, dtype=torch.int64, device=device)
    tokens_BN = torch.full((len(src_ids), num_paths), SOS_ID, device=device)
    scores_BN = torch.zeros(len(src_ids), num_paths, device=device)
    going_BN = torch.ones_like(tokens_BN, dtype=torch.bool)
    chances_BNT = _chances(src_ids, constraints, num_paths) if decoding.sample else None
    found: dict[int, list[Hypothesis]] = {index: [] for index in range(len(src_ids))}
    while True:
        logits_RV, allowed = model.decode_next(tokens_BN.flatten(), cache), constraints.next_after(ids_BNT)
        if chances_BNT is None:
            log_probs_R1, tokens_R1 = best_tokens(logits_RV, 1, allowed)
        else:
            # Finished paths that are only filling may have gone beyond their numbers.
            chances_R = chances_BNT[:, :, min(ids_BNT.shape[2], chances_BNT.shape[2] - 1)].flatten()
            log_probs_R1, tokens_R1 = drawn_tokens(logits_RV, chances_R, decoding, allowed)
        tokens_BN, scores_BN = tokens_R1.view_as(tokens_BN), scores_BN + log_probs_R1.view_as(scores_BN)
        ends_BN = going_BN & (tokens_BN == EOS_ID)
        for sentence, path in ends_BN.nonzero().tolist():
            score = float(scores_BN[sentence, path]) / penalty(ids_BNT.shape[2] + 1, decoding.length_penalty)
            found[int(sentences[sentence])].append(Hypothesis(ids_BNT[sentence, path].tolist(), score))
        ids_BNT = torch.cat([ids_BNT, tokens_BN[..., None]], dim=2)
        going_BN &= ~ends_BN
        if not going_BN.any():
            return [sorted(found[index], key=lambda each: -each.score) for index in range(len(src_ids))]
        if (kept := worth_keeping(going_BN.any(dim=1))) is not None:
            cache.select(sentences=kept)
            constraints = constraints.select(kept)
            sentences, tokens_BN, scores_BN, ids_BNT, going_BN = (
                tensor[kept] for tensor in (sentences, tokens_BN, scores_BN, ids_BNT, going_BN)
            )
            chances_BNT = None if chances_BNT is None else chances_BNT[kept]


def _chances(src_ids: Tensor, constraints: Constraints, num_paths: int) -> Tensor:
    """BxNxT numbers from 0 to 1 that depend on the seed and the sentence alone, whatever else is in the batch."""
    longest = int(constraints.max_lengths.max()) + 1
    rows = []
    for ids in src_ids.tolist():
        content = repr((constraints.decoding.seed, ids[: ids.index(EOS_ID)]))
        seed = int.from_bytes(hashlib.sha256(content.encode()).digest()[:7], "big")
        drawn_TN = torch.rand(longest, num_paths, generator=torch.Generator().manual_seed(seed))
        rows.append(drawn_TN.T)
    return torch.stack(rows).to(src_ids.device)


def worth_keeping(going_B: Tensor) -> Tensor | None:
    """Which sentences to go on with, the finished ones among them being filling; None: with all.

    A batch shrinks to sizes that recur, for which oneDNN has its products ready, and only by a sixth at least, since
    every key and value is copied.
    """
    num_kept = min(len(going_B), round_up(int(going_B.sum()), _SIZES_PER_OCTAVE))
    if num_kept * 6 > len(going_B) * 5:
        return None
    return going_B.to(torch.uint8).argsort(descending=True, stable=True)[:num_kept]


@dataclass(frozen=True)
class Beams:
    """The state of a beam search. Hypotheses are sorted, best first."""

    ids: Tensor
    """BxNxT ids of the hypotheses that go on."""
    scores: Tensor
    """BxN, their log-probabilities."""
    parents: Tensor
    """BxN, which of the former hypotheses each continues."""
    finished_ids: Tensor
    """BxNxT ids of the best hypotheses that have ended, padded."""
    finished_scores: Tensor
    """BxN, their log-probabilities divided by the length penalty; -inf where there is none yet."""

    @classmethod
    def start(cls, num_sentences: int, beam_size: int, device: torch.device) -> Beams:
        """One empty hypothesis for each sentence; the others are impossible."""
        ids = torch.empty(num_sentences, beam_size, 0, dtype=torch.int64, device=device)
        impossible = torch.full((num_sentences, beam_size), -math.inf, device=device)
        scores = impossible.clone()
        scores[:, 0] = 0.0
        parents = torch.zeros(num_sentences, beam_size, dtype=torch.int64, device=device)
        return cls(ids, scores, parents, ids, impossible)

    def is_done(self, length_penalty: float) -> Tensor:
        """B, True where N hypotheses have ended and none that goes on has, as it stands, a better score."""
        best_alive = self.scores[:, 0] / penalty(max(1, self.ids.shape[2]), length_penalty)
        return (self.finished_scores[:, -1] >= best_alive) | self.scores[:, 0].isneginf()

    def select(self, sentences: Tensor) -> Beams:
        """The beams of these sentences."""
        return Beams(*(tensor[sentences] for tensor in vars(self).values()))


def extend(beams: Beams, log_probs_BNC: Tensor, tokens_BNC: Tensor, length_penalty: float) -> Beams:
    """The beams one token later: the N best continuations go on; those among the N best that end are set aside.

    Each beam offers its C best tokens, best first. Of the 2N best continuations at most N end, so that N are always
    left to go on.
    """
    num_beams, num_candidates = log_probs_BNC.shape[1:]
    totals_BNC = beams.scores[..., None] + log_probs_BNC
    totals_BC, flat_BC = totals_BNC.flatten(1).topk(min(2, num_candidates) * num_beams)
    parents_BC, tokens_BC = flat_BC // num_candidates, tokens_BNC.flatten(1).gather(1, flat_BC)
    ids_BCT = torch.cat([pick(beams.ids, parents_BC), tokens_BC[..., None]], dim=2)
    ends_BC = tokens_BC == EOS_ID
    scores_BN, alive_BN = totals_BC.masked_fill(ends_BC, -math.inf).topk(num_beams)

    normalised_BN = (totals_BC / penalty(ids_BCT.shape[2], length_penalty)).masked_fill(~ends_BC, -math.inf)
    pool_scores = torch.cat([beams.finished_scores, normalised_BN[:, :num_beams]], dim=1)
    padded = torch.nn.functional.pad(beams.finished_ids, (0, 1), value=PAD_ID)
    pool_ids = torch.cat([padded, ids_BCT[:, :num_beams]], dim=1)
    finished_scores_BN, kept_BN = pool_scores.topk(num_beams)
    return Beams(
        ids=pick(ids_BCT, alive_BN),
        scores=scores_BN,
        parents=parents_BC.gather(1, alive_BN),
        finished_ids=pick(pool_ids, kept_BN),
        finished_scores=finished_scores_BN,
    )


@torch.inference_mode()
def beam_search(
    model: Transformer, src_ids: Tensor, constraints: Constraints, num_best: int = 1
) -> list[list[Hypothesis]]:
    """The `num_best` hypotheses of each sentence, best first."""
    decoding, device = constraints.decoding, src_ids.device
    num_beams = max(decoding.beam_size, num_best)
    cache = model.start_cache(*model.encode(src_ids), num_beams)
    sentences = torch.arange(len(src_ids), device=device)
    beams = Beams.start(len(src_ids), num_beams, device)
    tokens_R = torch.full((len(src_ids) * num_beams,), SOS_ID, device=device)
    going_B = torch.ones_like(sentences, dtype=torch.bool)
    found: dict[int, list[Hypothesis]] = {}
    while True:
        logits_RV = model.decode_next(tokens_R, cache)
        candidates = best_tokens(logits_RV, 2 * num_beams, constraints.next_after(beams.ids))
        log_probs_BNC, tokens_BNC = (each.unflatten(0, (-1, num_beams)) for each in candidates)
        beams = extend(beams, log_probs_BNC, tokens_BNC, decoding.length_penalty)
        done_B = going_B & beams.is_done(decoding.length_penalty)
        for index in done_B.nonzero()[:, 0].tolist():
            found[int(sentences[index])] = hypotheses(beams, index)[:num_best]
        going_B &= ~done_B
        if len(found) == len(src_ids):
            return [found[index] for index in range(len(src_ids))]
        kept = worth_keeping(going_B)
        cache.select(beams.parents, kept)
        if kept is not None:
            beams, constraints = beams.select(kept), constraints.select(kept)
            sentences, going_B = sentences[kept], going_B[kept]
        tokens_R = beams.ids[:, :, -1].flatten()


def hypotheses(beams: Beams, sentence: int) -> list[Hypothesis]:
    """The finished hypotheses of one sentence, best first."""
    scores = beams.finished_scores[sentence].tolist()
    rows = beams.finished_ids[sentence].tolist()
    return [
        Hypothesis(row[: row.index(EOS_ID)], score)
        for row, score in zip(rows, scores, strict=True)
        if score > -math.inf
    ]


def pick(values_BNT: Tensor, indices_BM: Tensor) -> Tensor:
    """BxMxT: for each sentence the rows with these indices."""
    return values_BNT.gather(1, indices_BM[..., None].expand(-1, -1, values_BNT.shape[2]))


def penalty(length: int, length_penalty: float) -> float:
    """((5 + length) / 6)^alpha, with [EOS] counted in the length (Wu et al. 2016, equation 14)."""
    return float(((5 + length) / 6) ** length_penalty)
