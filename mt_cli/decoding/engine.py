"""Engines of a translator: search for translations of ids, and forced decoding of given translations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mt_cli.batching.batches import batches_in_order, pad
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.batch_size import batches_that_recur, bytes_per_token, fitting_batch_tokens
from mt_cli.decoding.predictor import Predictor, predictor_of
from mt_cli.decoding.reserved_ids import ReservedIds
from mt_cli.decoding.search import Hypothesis, Results, start_search
from mt_cli.errors import DeviceMemoryError
from mt_cli.machine.devices import free_memory, is_out_of_memory
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID

Ids = Sequence[int]
_FORCED_BATCH_TOKENS, _FORCED_BATCH_TOKENS_OF_A_GPU = 2048, 16_384


@dataclass(frozen=True)
class ForcedDecoding:
    """Probabilities and attention of a given translation, by teacher forcing."""

    log_probs: list[float]  # One for each token and for [EOS], in nats.
    attention: Tensor | None
    """(T+1)x(S+1), mean over layers and heads of the cross-attention; the last row and column are [EOS]."""

    def without_first(self, number: int) -> ForcedDecoding:
        """Copy without the first tokens."""
        return ForcedDecoding(self.log_probs[number:], None if self.attention is None else self.attention[number:])


class Sentence(NamedTuple):
    """Source to translate."""

    ids: Ids
    prefix: Ids = ()
    """First tokens of its translations."""
    order: Ids = ()
    """Numbers of its reserved characters that keep their order."""


class Engine(Protocol):
    """A model that translates ids and knows no text."""

    def search(
        self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int = 1
    ) -> list[list[Hypothesis]]:
        """Search for the best hypotheses of each sentence, best first."""

    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        """Compute the probabilities of the target of each pair, given its source."""

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Tensor]:
        """Compute the cross-attention of each pair, (T+1)x(S+1); see `ForcedDecoding.attention`."""


class SearchMeans:
    """Predictor and memory limit that all searches with a model share; the first search makes them."""

    def __init__(self, model: Transformer | Ensemble) -> None:
        self.model = model

    @cached_property
    def predictor(self) -> Predictor:
        """Predictor of the model."""
        return predictor_of(self.model)

    @cached_property
    def fitting_tokens(self) -> int | None:
        """Number of tokens that fit in the memory that a GPU had free at first; None on other devices."""
        device = next(self.model.parameters()).device
        return free_memory(device) // bytes_per_token(self.model) if device.type == "cuda" else None

    def release(self) -> None:
        """Free the memory of the predictor; the next search makes another, and measures the free memory again."""
        for name in ("predictor", "fitting_tokens"):
            self.__dict__.pop(name, None)


@dataclass(frozen=True)
class TransformerEngine:
    """Our own model, or an ensemble. Batching and order change results only by rounding."""

    model: Transformer | Ensemble
    on_done: Callable[[int], object] = lambda number: None
    """Callback after each batch of a search, with the number of its sentences."""
    reserved: ReservedIds | None = None
    """Entries for protected spans; a translation has the reserved entries of its source."""
    means: SearchMeans = field(default=None, repr=False, compare=False)  # type: ignore[assignment]
    """Shared by copies of an engine with the same model."""

    def __post_init__(self) -> None:
        if self.means is None or self.means.model is not self.model:
            object.__setattr__(self, "means", SearchMeans(self.model))

    def search(
        self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int = 1
    ) -> list[list[Hypothesis]]:
        """See `Engine`; long sentences come first, in batches of `batch_tokens`, or of more tokens on a GPU."""
        self.model.eval()
        num_beams = num_best if decoding.sample else max(decoding.beam_size, num_best)
        hypotheses: dict[int, list[Hypothesis]] = {}

        unread: list[tuple[Sequence[int], Results]] = []  # The last batch, which a GPU may still compute.

        def read() -> None:
            if unread:
                indices, results = unread[0]
                hypotheses.update(zip(indices, results(), strict=True))
                unread.clear()  # Not before: reading needs memory, too.
                self.on_done(len(indices))

        def start(indices: Sequence[int]) -> None:
            ids, prefixes, orders = zip(*(sentences[index] for index in indices), strict=True)
            reserved = self.reserved and replace(self.reserved, orders=orders)
            results = start_search(
                self.model,
                pad(ids, end=EOS_ID),
                decoding,
                num_best,
                prefixes if any(prefixes) else (),
                self.means.predictor,
                reserved,
                read,
            )
            unread.append((indices, results))

        lengths = [len(sentence.ids) for sentence in sentences]
        self._for_each(self._batches(lengths, decoding.batch_tokens, num_beams), start, read)
        read()
        return [hypotheses[index] for index in range(len(sentences))]

    def _for_each(
        self,
        batches: Sequence[Sequence[int]],
        compute: Callable[[Sequence[int]], object],
        before_retry: Callable[[], object] = lambda: None,
    ) -> None:
        """Compute batches one after the other; if one does not fit in memory, go on with halves of all that remain.

        Batches have about the same number of tokens. Raises DeviceMemoryError if a single sequence does not fit.
        """
        waiting = list(reversed(batches))
        while waiting:
            indices = waiting.pop()
            if _fits(compute, indices):
                continue
            before_retry()
            self.means.release()
            if len(indices) == 1:
                device = next(self.model.parameters()).device
                raise DeviceMemoryError(
                    f"one sentence does not fit in the memory of {device}; use fewer beams, shorter sentences or a CPU"
                )
            waiting = [half for batch in (*waiting, indices) for half in reversed(_halves(batch))]

    def _batches(self, lengths: Sequence[int], batch_tokens: int, num_beams: int) -> list[list[int]]:
        fitting_tokens = self.means.fitting_tokens
        if fitting_tokens is None:
            return batches_in_order(lengths, batch_tokens // num_beams)
        return batches_that_recur(lengths, fitting_batch_tokens(batch_tokens, fitting_tokens) // num_beams)

    @torch.inference_mode()
    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        """See `Engine`."""
        self.model.eval()
        lengths = [max(len(source), len(target)) for source, target in pairs]
        decoded: dict[int, ForcedDecoding] = {}

        def compute(indices: Sequence[int]) -> None:
            decoded.update(zip(indices, self._force_decode([pairs[index] for index in indices]), strict=True))

        batch_tokens, fitting = _FORCED_BATCH_TOKENS, self.means.fitting_tokens
        if fitting is not None:  # A GPU. Logits and attention weights need several times the memory of a search.
            batch_tokens = max(batch_tokens, min(_FORCED_BATCH_TOKENS_OF_A_GPU, fitting // 16))
        self._for_each(batches_in_order(lengths, batch_tokens), compute)
        return [decoded[index] for index in range(len(pairs))]

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Tensor]:
        """See `Engine`."""
        return [forced.attention for forced in self.force_decode(pairs) if forced.attention is not None]

    def _force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
        logits_BTV, weights = self.model.read(self._padded(sources, end=EOS_ID), self._padded(targets, start=SOS_ID))
        expected_BT1 = self._padded(targets, end=EOS_ID)[..., None]
        log_probs_BT = logits_BTV.float().log_softmax(dim=-1).gather(2, expected_BT1)[..., 0].cpu()
        # The models of an ensemble may have different numbers of heads.
        means_BTS = [weights_BHTS.float().mean(dim=1) for weights_BHTS in weights.cross]
        attention_BTS = torch.stack(means_BTS).mean(dim=0).cpu()
        return [
            ForcedDecoding(log_probs_T[: len(target) + 1].tolist(), attention_TS[: len(target) + 1, : len(source) + 1])
            for (source, target), log_probs_T, attention_TS in zip(pairs, log_probs_BT, attention_BTS, strict=True)
        ]

    def _padded(self, sequences: Sequence[Ids], start: int | None = None, end: int | None = None) -> Tensor:
        return pad(sequences, start, end).to(next(self.model.parameters()).device)


def _halves(batch: Sequence[int]) -> list[Sequence[int]]:
    """Both halves of a batch, or the batch itself if it has one sequence."""
    half = len(batch) // 2
    return [batch[:half], batch[half:]] if half else [batch]


def _fits(compute: Callable[[Sequence[int]], object], indices: Sequence[int]) -> bool:
    """Whether the memory sufficed to compute a batch. Its tensors are free when this function returns."""
    try:
        compute(indices)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True
