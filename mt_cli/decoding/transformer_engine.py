"""Engine of our own models: search for translations of ids, and forced decoding of given translations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeVar

import torch
from torch import Tensor

from mt_cli.config.sections import DecodingConfig
from mt_cli.data.batch import batches_in_order, pad
from mt_cli.decoding.constraints import ReservedIds
from mt_cli.decoding.engine import Attention, ForcedDecoding, Ids, NBest, Sentence
from mt_cli.decoding.predictor import Predictor
from mt_cli.decoding.search import search
from mt_cli.errors import DeviceMemoryError
from mt_cli.model.cache import SOURCE_MULTIPLE, rounded_sentences
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.devices import in_halves
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID

R = TypeVar("R")
_FORCED_BATCH_TOKENS, _FORCED_BATCH_TOKENS_OF_A_GPU = 2048, 16_384
_LOGITS_AT_ONCE = 2**25
"""Logits of forced decoding that exist at a time: 256 MB in fp32, with the log-probabilities."""
_FRACTION_THAT_FITS = 0.75
"""After a batch did not fit, batches of at least this fraction of its tokens are split at once."""
_TOKENS_OF_A_GPU = 262_144


@dataclass(frozen=True)
class TransformerEngine:
    """Our own model, or an ensemble. Batching and order change results only by rounding."""

    model: Transformer | Ensemble
    on_done: Callable[[int], object] = lambda number: None
    """Callback after each batch of a search, with the number of its sentences."""
    reserved: ReservedIds | None = None
    """Tokens for protected spans; a translation has the reserved tokens of its source."""
    predictor: Predictor = field(default=None, repr=False, compare=False)  # type: ignore[assignment]
    """Predictor of the model, shared by copies of an engine."""

    def __post_init__(self) -> None:
        if self.predictor is None:
            object.__setattr__(self, "predictor", Predictor(self.model))

    def search(self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int = 1) -> list[NBest]:
        """See `Engine`; long sentences come first, in batches of `batch_tokens`, or of more tokens on a GPU."""
        num_beams = num_best if decoding.sample else max(decoding.beam_size, num_best)
        lengths = [len(sentence.ids) for sentence in sentences]

        def compute(indices: Sequence[int]) -> list[NBest]:
            ids, prefixes, orders = zip(*(sentences[index] for index in indices), strict=True)
            return search(
                self.model,
                pad(ids, end=EOS_ID),
                decoding,
                num_best,
                prefixes if any(prefixes) else (),
                self.predictor,
                self.reserved and replace(self.reserved, orders=orders),
            )

        if (fitting := self.predictor.fitting_tokens) is None:
            batches = batches_in_order(lengths, decoding.batch_tokens // num_beams)
        else:
            batches = batches_that_recur(lengths, fitting_batch_tokens(decoding.batch_tokens, fitting) // num_beams)
        return self._results(batches, lengths, compute, self.on_done)

    def _results(
        self,
        batches: Sequence[Sequence[int]],
        lengths: Sequence[int],
        compute: Callable[[Sequence[int]], Sequence[R]],
        on_done: Callable[[int], object] = lambda number: None,
    ) -> list[R]:
        """Results for all indices, a batch after the other; halves of batches that do not fit in memory.

        Raises DeviceMemoryError if a single sequence does not fit.
        """
        self.model.eval()
        limit = math.inf  # Number of tokens from which batches are split without a trial.
        results: dict[int, R] = {}

        def num_tokens(indices: Sequence[int]) -> int:
            return len(indices) * (1 + max(lengths[index] for index in indices))

        def is_too_large(indices: Sequence[int]) -> bool:
            return len(indices) > 1 and num_tokens(indices) >= limit

        def split(indices: Sequence[int]) -> list[Sequence[int]]:
            nonlocal limit
            if not is_too_large(indices):
                self.predictor.release()
                limit = _FRACTION_THAT_FITS * num_tokens(indices)
            if len(indices) == 1:
                device = next(self.model.parameters()).device
                raise DeviceMemoryError(
                    f"one sentence does not fit in the memory of {device}; use fewer beams, shorter sentences or a CPU"
                )
            half = len(indices) // 2
            return [indices[:half], indices[half:]]

        def compute_by_index(indices: Sequence[int]) -> dict[int, R]:
            return dict(zip(indices, compute(indices), strict=True))

        for batch in batches:
            for part in in_halves(batch, compute_by_index, split, is_too_large):
                results |= part
                on_done(len(part))
        return [results[index] for index in range(len(lengths))]

    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        return self._read(pairs, with_scores=True)

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Attention]:
        return [forced.attention for forced in self._read(pairs, with_scores=False) if forced.attention is not None]

    def _read(self, pairs: Sequence[tuple[Ids, Ids]], with_scores: bool) -> list[ForcedDecoding]:
        lengths = [max(len(source), len(target)) for source, target in pairs]
        batch_tokens, fitting = _FORCED_BATCH_TOKENS, self.predictor.fitting_tokens
        if fitting is not None:  # A GPU. Attention maps need several times the memory of a search.
            batch_tokens = max(batch_tokens, min(_FORCED_BATCH_TOKENS_OF_A_GPU, fitting // 16))
        batches = batches_in_order(lengths, batch_tokens)
        return self._results(batches, lengths, lambda rows: self._force([pairs[row] for row in rows], with_scores))

    @torch.inference_mode()
    def _force(self, pairs: Sequence[tuple[Ids, Ids]], with_scores: bool) -> list[ForcedDecoding]:
        device = next(self.model.parameters()).device
        sources, targets = zip(*pairs, strict=True)
        src_ids, tgt_input_ids = pad(sources, end=EOS_ID).to(device), pad(targets, SOS_ID).to(device)
        expected_BT = pad(targets, end=EOS_ID).to(device)
        models = [self.model] if isinstance(self.model, Transformer) else self.model.models
        log_probs, maps = [], []
        for model in models:
            hidden_ND, maps_of_model = model.read_hidden(src_ids, tgt_input_ids)
            # The models of an ensemble may have different numbers of heads.
            maps += [maps_BHTS.float().mean(dim=1) for maps_BHTS in maps_of_model]
            if with_scores:
                log_probs.append(log_probs_of(model, hidden_ND, expected_BT.flatten()).view_as(expected_BT))
        attention_BTS = torch.stack(maps).mean(dim=0).cpu().numpy()
        scores_BT = reduce(torch.logaddexp, log_probs) - math.log(len(models)) if with_scores else expected_BT.float()
        return [
            ForcedDecoding(
                scores_T[: len(target) + 1].tolist() if with_scores else [],
                attention_TS[: len(target) + 1, : len(source) + 1],
            )
            for (source, target), scores_T, attention_TS in zip(pairs, scores_BT.cpu(), attention_BTS, strict=True)
        ]


def log_probs_of(model: Transformer, hidden_ND: Tensor, expected_N: Tensor) -> Tensor:
    """Log-probabilities N of tokens in fp32, computed in blocks, because logits take far more memory than the model."""
    num_rows = max(1, _LOGITS_AT_ONCE // model.projection.out_features)
    blocks = zip(hidden_ND.split(num_rows), expected_N[:, None].split(num_rows), strict=True)
    log_probs = [
        model.projection(hidden).float().log_softmax(dim=-1).gather(1, expected)[:, 0] for hidden, expected in blocks
    ]
    return torch.cat(log_probs)


def fitting_batch_tokens(configured: int, fitting: int) -> int:
    """Number of tokens of a batch on a GPU whose memory has room for `fitting` tokens.

    It is enough to keep a GPU busy within a quarter of the memory, at least the configured number, and never more than
    fits.
    """
    return max(1, min(max(configured, min(_TOKENS_OF_A_GPU, fitting // 4)), fitting))


def batches_that_recur(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices of sequences in batches of similar length and few shapes, longest first.

    Lengths and numbers of sequences are rounded as in a cache. With padding, a batch has at most `batch_tokens` tokens,
    or one sequence.
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        longest = -(-(lengths[order[start]] + 1) // SOURCE_MULTIPLE) * SOURCE_MULTIPLE
        size = next(n for n in range(max(1, batch_tokens // longest), 0, -1) if rounded_sentences(n) == n)
        batches.append(order[start : start + size])
        start += size
    return batches
