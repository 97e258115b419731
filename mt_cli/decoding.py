"""Greedy and beam search over ids. Knows a model and special tokens; does not know text.

Legend of the shapes: B sentences, N beams, T target positions, S source positions, V vocabulary, R = B x N rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mt_cli.batching.packing import round_up
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer import EOS_ID, PAD_ID, SOS_ID, UNK_ID

NEVER_PRODUCED = (PAD_ID, SOS_ID)
_SIZES_PER_OCTAVE = 4
_STRETCH = 64
_ELEMENTS_AT_ONCE = 2**19


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
    may_be_unknown: bool = False
    """Whether [UNK] may be produced."""

    @property
    def forbidden(self) -> list[int]:
        """Tokens that are never produced."""
        return [*NEVER_PRODUCED] if self.may_be_unknown else [*NEVER_PRODUCED, UNK_ID]


def search(model: Transformer, src_ids: Tensor, settings: SearchSettings) -> list[list[Hypothesis]]:
    """For each sentence of `src_ids` BxS its best hypotheses, best first."""
    src_lengths = (src_ids != PAD_ID).sum(dim=1) - 1
    max_lengths = (src_lengths * settings.max_length_ratio).long() + 10
    if model.max_positions is not None:
        max_lengths = max_lengths.clamp(max=model.max_positions - 1)
    if settings.beam_size == 1:
        return [[best] for best in greedy_search(model, src_ids, max_lengths, settings)]
    return beam_search(model, src_ids, max_lengths, settings)


@torch.inference_mode()
def greedy_search(
    model: Transformer, src_ids: Tensor, max_lengths: Tensor, settings: SearchSettings
) -> list[Hypothesis]:
    """The likeliest token at every position, until [EOS] or `max_lengths` tokens (B) before it."""
    cache = model.start_cache(*model.encode(src_ids))
    sentences = torch.arange(len(src_ids), device=src_ids.device)
    tokens_B = torch.full_like(sentences, SOS_ID)
    scores_B = torch.zeros(len(sentences), device=src_ids.device)
    ids_BT = tokens_B.new_empty(len(sentences), 0)
    going_B = torch.ones_like(sentences, dtype=torch.bool)
    hypotheses: dict[int, Hypothesis] = {}
    while True:
        at_limit_B = max_lengths == ids_BT.shape[1]
        log_probs_B1, tokens_B1 = best_tokens(model.decode_next(tokens_B, cache), 1, settings.forbidden, at_limit_B)
        tokens_B, scores_B = tokens_B1[:, 0], scores_B + log_probs_B1[:, 0]
        ends_B = going_B & (tokens_B == EOS_ID)
        for row in ends_B.nonzero()[:, 0].tolist():
            score = float(scores_B[row]) / penalty(ids_BT.shape[1] + 1, settings.length_penalty)
            hypotheses[int(sentences[row])] = Hypothesis(ids_BT[row].tolist(), score)
        ids_BT = torch.cat([ids_BT, tokens_B[:, None]], dim=1)
        going_B &= ~ends_B
        if len(hypotheses) == len(src_ids):
            return [hypotheses[index] for index in range(len(src_ids))]
        if (kept := worth_keeping(going_B)) is not None:
            cache.select(sentences=kept)
            sentences, tokens_B, scores_B, ids_BT, max_lengths, going_B = (
                tensor[kept] for tensor in (sentences, tokens_B, scores_B, ids_BT, max_lengths, going_B)
            )


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
    model: Transformer, src_ids: Tensor, max_lengths: Tensor, settings: SearchSettings
) -> list[list[Hypothesis]]:
    """The `num_best` hypotheses of each sentence, with at most `max_lengths` tokens (B) before [EOS]."""
    num_beams, device = settings.beam_size, src_ids.device
    cache = model.start_cache(*model.encode(src_ids), num_beams)
    sentences = torch.arange(len(src_ids), device=device)
    beams = Beams.start(len(src_ids), num_beams, device)
    tokens_R = torch.full((len(src_ids) * num_beams,), SOS_ID, device=device)
    going_B = torch.ones_like(sentences, dtype=torch.bool)
    found: dict[int, list[Hypothesis]] = {}
    while True:
        at_limit_R = (max_lengths == beams.ids.shape[2]).repeat_interleave(num_beams)
        logits_RV = model.decode_next(tokens_R, cache)
        candidates = best_tokens(logits_RV, 2 * num_beams, settings.forbidden, at_limit_R)
        log_probs_BNC, tokens_BNC = (each.unflatten(0, (-1, num_beams)) for each in candidates)
        beams = extend(beams, log_probs_BNC, tokens_BNC, settings.length_penalty)
        done_B = going_B & beams.is_done(settings.length_penalty)
        for index in done_B.nonzero()[:, 0].tolist():
            found[int(sentences[index])] = hypotheses(beams, index)[: settings.num_best]
        going_B &= ~done_B
        if len(found) == len(src_ids):
            return [found[index] for index in range(len(src_ids))]
        kept = worth_keeping(going_B)
        cache.select(beams.parents, kept)
        if kept is not None:
            beams = beams.select(kept)
            sentences, max_lengths, going_B = sentences[kept], max_lengths[kept], going_B[kept]
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


def best_tokens(logits_RV: Tensor, number: int, forbidden: Sequence[int], at_limit_R: Tensor) -> tuple[Tensor, Tensor]:
    """RxC log-probabilities in fp32 and tokens, best first, of the `number` likeliest (or V, if there are fewer).

    What is forbidden has -inf, and so has all but [EOS] in rows `at_limit`; these probabilities are not given to
    other tokens.
    """
    is_cpu = logits_RV.device.type == "cpu"
    rows = max(1, _ELEMENTS_AT_ONCE // logits_RV.shape[1]) if is_cpu else len(logits_RV)
    parts = zip(logits_RV.split(rows), at_limit_R.split(rows), strict=True)
    found = [_best_of(logits, number, forbidden, at_limit) for logits, at_limit in parts]
    values, tokens = zip(*found, strict=True)
    return torch.cat(values), torch.cat(tokens)


def _best_of(logits: Tensor, number: int, forbidden: Sequence[int], at_limit: Tensor) -> tuple[Tensor, Tensor]:
    """`best_tokens` of so few rows that all values stay in a processor's cache."""
    log_probs = logits.float().log_softmax(dim=-1)
    for token in forbidden:
        log_probs[:, token] = -math.inf
    if at_limit.any():
        end = log_probs[at_limit, EOS_ID]
        log_probs[at_limit] = -math.inf
        log_probs[at_limit, EOS_ID] = end
    return largest(log_probs, number)


def largest(values_RV: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """RxC values and indices, largest first, of the `number` largest in each row (or V, if there are fewer).

    They are in those `number` stretches of a row whose maxima are largest; the rest need not be sorted (256 x 8,000 on
    one core: 1.7 ms, against 3.1 for `topk` of whole rows).
    """
    size = values_RV.shape[1]
    num_stretches = size // _STRETCH
    if num_stretches <= number:
        values_RC, indices_RC = values_RV.topk(min(number, size))
        return values_RC, indices_RC
    end = num_stretches * _STRETCH
    stretches_RC = values_RV[:, :end].unflatten(1, (num_stretches, _STRETCH)).amax(dim=-1).topk(number).indices
    within = torch.arange(_STRETCH, device=values_RV.device)
    rest = torch.arange(end, size, device=values_RV.device).expand(len(values_RV), -1)
    candidates = torch.cat([(stretches_RC[..., None] * _STRETCH + within).flatten(1), rest], dim=1)
    values_RC, ranks_RC = values_RV.gather(1, candidates).topk(number)
    return values_RC, candidates.gather(1, ranks_RC)


def pick(values_BNT: Tensor, indices_BM: Tensor) -> Tensor:
    """BxMxT: for each sentence the rows with these indices."""
    return values_BNT.gather(1, indices_BM[..., None].expand(-1, -1, values_BNT.shape[2]))


def penalty(length: int, length_penalty: float) -> float:
    """((5 + length) / 6)^alpha, with [EOS] counted in the length (Wu et al. 2016, equation 14)."""
    return float(((5 + length) / 6) ** length_penalty)
