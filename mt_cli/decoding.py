"""Greedy and beam search over ids. Knows a model and special tokens; does not know text.

Legend of the shapes: B sentences, N beams, T target positions, S source positions, V vocabulary, R = B x N rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.model.transformer import DecoderCache, Transformer
from mt_cli.tokenizer import EOS_ID, PAD_ID, SOS_ID, UNK_ID

NEVER_PRODUCED = (PAD_ID, UNK_ID, SOS_ID)


@dataclass(frozen=True)
class Hypothesis:
    """One translation."""

    ids: list[int]
    """Without [SOS] and [EOS]."""
    score: float
    """Log-probability (nats, [EOS] included) divided by the length penalty; higher is better."""


@dataclass(frozen=True)
class SearchSettings:
    """What is searched for."""

    beam_size: int = 4
    num_best: int = 1
    """Hypotheses returned per sentence, at most `beam_size`."""
    length_penalty: float = 1.0
    """Our `length_penalty` is the alpha of Wu et al. 2016, equation 14."""
    max_length_ratio: float = 3.0
    """Target tokens allowed per source token, in addition to 10."""


def search(model: Transformer, src_ids: Tensor, settings: SearchSettings) -> list[list[Hypothesis]]:
    """For each sentence of `src_ids` BxS its best hypotheses, best first."""
    src_lengths = (src_ids != PAD_ID).sum(dim=1) - 1
    max_lengths = (src_lengths * settings.max_length_ratio).long() + 10
    if model.max_positions is not None:
        max_lengths = max_lengths.clamp(max=model.max_positions - 1)
    if settings.beam_size == 1:
        return [[best] for best in greedy_search(model, src_ids, max_lengths, settings.length_penalty)]
    return beam_search(model, src_ids, max_lengths, settings)


@torch.inference_mode()
def greedy_search(
    model: Transformer, src_ids: Tensor, max_lengths: Tensor, length_penalty: float = 1.0
) -> list[Hypothesis]:
    """The likeliest token at every position, until [EOS] or `max_lengths` tokens (B) before it."""
    cache = model.start_cache(*model.encode(src_ids))
    sentences = torch.arange(len(src_ids), device=src_ids.device)
    tokens_B = torch.full_like(sentences, SOS_ID)
    scores_B = torch.zeros(len(sentences), device=src_ids.device)
    ids_BT = tokens_B.new_empty(len(sentences), 0)
    hypotheses: dict[int, Hypothesis] = {}
    while len(sentences):
        log_probs_BV = next_log_probs(model, tokens_B, cache)
        log_probs_BV = only_end_at(log_probs_BV, max_lengths == ids_BT.shape[1])
        best_B, tokens_B = log_probs_BV.max(dim=-1)
        scores_B = scores_B + best_B
        ends_B = tokens_B == EOS_ID
        for row in ends_B.nonzero()[:, 0].tolist():
            score = float(scores_B[row]) / penalty(ids_BT.shape[1] + 1, length_penalty)
            hypotheses[int(sentences[row])] = Hypothesis(ids_BT[row].tolist(), score)
        ids_BT = torch.cat([ids_BT, tokens_B[:, None]], dim=1)
        if ends_B.any():
            rows = (~ends_B).nonzero()[:, 0]
            cache.select(rows, rows)
            sentences, tokens_B, scores_B, ids_BT, max_lengths = (
                tensor[rows] for tensor in (sentences, tokens_B, scores_B, ids_BT, max_lengths)
            )
    return [hypotheses[index] for index in range(len(src_ids))]


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


def extend(beams: Beams, log_probs_BNV: Tensor, length_penalty: float) -> Beams:
    """The beams one token later: the N best continuations go on; those among the N best that end are set aside.

    Of 2N candidates at most N end, so that N are always left to go on.
    """
    num_beams, vocab_size = log_probs_BNV.shape[1:]
    totals_BC, flat_BC = (beams.scores[..., None] + log_probs_BNV).flatten(1).topk(min(2, vocab_size) * num_beams)
    parents_BC, tokens_BC = flat_BC // vocab_size, flat_BC % vocab_size
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
    model: Transformer, src_ids: Tensor, max_lengths: Tensor, settings: SearchSettings
) -> list[list[Hypothesis]]:
    """The `num_best` hypotheses of each sentence, with at most `max_lengths` tokens (B) before [EOS]."""
    num_beams, device = settings.beam_size, src_ids.device
    cache = model.start_cache(*model.encode(src_ids))
    sentences = torch.arange(len(src_ids), device=device)
    beams = Beams.start(len(src_ids), num_beams, device)
    cache_rows = sentences.repeat_interleave(num_beams)
    tokens_R = torch.full_like(cache_rows, SOS_ID)
    found: dict[int, list[Hypothesis]] = {}
    while len(sentences):
        log_probs_BNV = next_log_probs(model, tokens_R, cache).unflatten(0, (-1, num_beams))
        log_probs_BNV = only_end_at(log_probs_BNV, (max_lengths == beams.ids.shape[2])[:, None])
        beams = extend(beams, log_probs_BNV, settings.length_penalty)
        done_B = beams.is_done(settings.length_penalty)
        parents_BN = beams.parents + torch.arange(len(sentences), device=device)[:, None] * num_beams
        kept = None
        if done_B.any():
            for index in done_B.nonzero()[:, 0].tolist():
                found[int(sentences[index])] = hypotheses(beams, index)[: settings.num_best]
            kept = (~done_B).nonzero()[:, 0]
            beams, sentences, max_lengths = beams.select(kept), sentences[kept], max_lengths[kept]
            parents_BN = parents_BN[kept]
        cache.select(parents_BN.flatten(), kept)
        tokens_R = beams.ids[:, :, -1].flatten()
    return [found[index] for index in range(len(src_ids))]


def hypotheses(beams: Beams, sentence: int) -> list[Hypothesis]:
    """The finished hypotheses of one sentence, best first."""
    scores = beams.finished_scores[sentence].tolist()
    rows = beams.finished_ids[sentence].tolist()
    return [
        Hypothesis(row[: row.index(EOS_ID)], score)
        for row, score in zip(rows, scores, strict=True)
        if score > -math.inf
    ]


def next_log_probs(model: Transformer, tokens_R: Tensor, cache: DecoderCache) -> Tensor:
    """RxV log-probabilities of the next token, in fp32; what is never produced has -inf."""
    log_probs_RV = model.decode_next(tokens_R, cache).float().log_softmax(dim=-1)
    log_probs_RV[:, list(NEVER_PRODUCED)] = -math.inf
    return log_probs_RV


def only_end_at(log_probs: Tensor, at_limit: Tensor) -> Tensor:
    """`log_probs` (last dimension V) with every token but [EOS] impossible where `at_limit`."""
    if not at_limit.any():
        return log_probs
    is_end_V = torch.arange(log_probs.shape[-1], device=log_probs.device) == EOS_ID
    return log_probs.masked_fill(at_limit[..., None] & ~is_end_V, -math.inf)


def pick(values_BNT: Tensor, indices_BM: Tensor) -> Tensor:
    """BxMxT: for each sentence the rows with these indices."""
    return values_BNT.gather(1, indices_BM[..., None].expand(-1, -1, values_BNT.shape[2]))


def penalty(length: int, length_penalty: float) -> float:
    """((5 + length) / 6)^alpha, with [EOS] counted in the length (Wu et al. 2016, equation 14)."""
    return float(((5 + length) / 6) ** length_penalty)
