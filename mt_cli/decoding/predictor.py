"""The logits of the next tokens, position by position. Knows models and their caches; does not know how to search.

On a GPU, the kernels of a step take less time than their launches, for models of usual size. `GraphedPredictor` records
a step once for each shape of the cache and replays it; all shapes are rounded, so that they recur.

Legend of the shapes: B sentences, N beams, S source positions, R = B x N rows, V vocabulary.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol

import torch
from torch import Tensor

from mt_cli.machine.graphs import GraphPool
from mt_cli.model.cache import Arena, CacheShape
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import SOS_ID

_STEPS_BEFORE_RECORDING = 24
"""Number of steps of a shape before it is recorded. Recording takes about as long as ten steps."""
_MOST_GRAPHS = 128
_RECORDING = Lock()
"""Only one thread may record at a time."""


class Prediction(Protocol):
    """One batch of sentences whose translations are extended position by position."""

    def next(self, tokens_R: Tensor) -> Tensor:
        """Logits RxV after one more token of each beam; they may change with the next call."""

    def select(self, parents_BN: Tensor | None, sentences: Tensor | None) -> None:
        """Let each beam continue the beam `parents_BN` of its sentence, then keep only `sentences`; None: all."""


class Predictor(Protocol):
    """A model that predicts next tokens."""

    def start(self, src_ids: Tensor, num_beams: int) -> Any:
        """Context manager of a `Prediction` with `num_beams` hypotheses of each sentence, of padded ids BxS."""


def predictor_of(model: Transformer | Ensemble) -> Predictor:
    """The fastest predictor for a model on its device."""
    if isinstance(model, Transformer) and next(model.parameters()).device.type == "cuda":
        return GraphedPredictor(model)
    return EagerPredictor(model)


class EagerPredictor:
    """Predictor that launches each operation. Several threads may use it at once."""

    def __init__(self, model: Transformer | Ensemble) -> None:
        self._model = model

    @contextmanager
    def start(self, src_ids: Tensor, num_beams: int) -> Iterator[Prediction]:
        """See `Predictor`."""
        yield _EagerPrediction(self._model, src_ids, num_beams)


class _EagerPrediction:
    def __init__(self, model: Transformer | Ensemble, src_ids: Tensor, num_beams: int) -> None:
        self._model, self._cache = model, model.start(src_ids, num_beams)

    def next(self, tokens_R: Tensor) -> Tensor:
        return self._model.next(tokens_R, self._cache)  # type: ignore[arg-type]

    def select(self, parents_BN: Tensor | None, sentences: Tensor | None) -> None:
        self._cache.select(parents_BN, sentences)


class GraphedPredictor:
    """Predictor that records the steps of recurring shapes and replays them as CUDA graphs.

    All batches use the same tensors and graphs, so keep the predictor as long as the model; another thread waits until
    a batch is done. On devices other than CUDA, the steps are called directly.
    """

    def __init__(self, model: Transformer) -> None:
        self._model, self._lock = model, Lock()
        self._places: tuple[tuple[int, torch.dtype], ...] = ()
        self.num_recorded = 0
        """Number of steps recorded so far."""
        self._can_record = True
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._arena = Arena(next(self._model.parameters()).device)
        self._num_steps: Counter[CacheShape] = Counter()
        self._forget_graphs()

    def _forget_graphs(self) -> None:
        # A pool cannot be used again once all of its graphs are gone.
        self._graphs: OrderedDict[CacheShape, tuple[Callable[[], None], list[Tensor]]] = OrderedDict()
        self._pool, self._num_moves = GraphPool(self._arena.device), self._arena.num_moves

    @contextmanager
    def start(self, src_ids: Tensor, num_beams: int) -> Iterator[Prediction]:
        """See `Predictor`."""
        with self._lock:
            places = tuple((weight.data_ptr(), weight.dtype) for weight in self._model.parameters())
            if places != self._places:  # The model was moved, or changed to another number format.
                self._places = places
                self._forget_everything()
            with torch.inference_mode():
                self._cache = self._model.start(src_ids, num_beams, self._arena)
                self._tokens().fill_(SOS_ID)
            try:
                yield self
            finally:
                del self._cache

    def _tokens(self) -> Tensor:
        """Ids R of the newest tokens."""
        return self._arena.tensor("tokens", (self._cache.shape.num_rows,), torch.int64)

    def _logits(self) -> Tensor:
        """Logits RxV that a recorded step writes."""
        projection = self._model.projection
        shape = self._cache.shape.num_rows, projection.out_features
        return self._arena.tensor("logits", shape, projection.weight.dtype)

    @torch.inference_mode()
    def next(self, tokens_R: Tensor) -> Tensor:
        """See `Prediction`."""
        self._cache.reserve()
        self._tokens()[: len(tokens_R)].copy_(tokens_R)
        graph = self._graph()
        if graph is None:
            return self._predict()[: len(tokens_R)]
        graph()
        return self._logits()[: len(tokens_R)]

    def select(self, parents_BN: Tensor | None, sentences: Tensor | None) -> None:
        """See `Prediction`."""
        with torch.inference_mode():
            self._cache.select(parents_BN, sentences)

    def _predict(self) -> Tensor:
        return self._model.next(self._tokens(), self._cache)

    def _graph(self) -> Callable[[], None] | None:
        """Recorded step for the shape of the cache; None if the shape is too rare so far, or cannot be recorded."""
        shape, logits_RV = self._cache.shape, self._logits()
        if self._arena.num_moves != self._num_moves:
            self._forget_graphs()
        if shape in self._graphs:
            self._graphs.move_to_end(shape)
            return self._graphs[shape][0]
        self._num_steps[shape] += 1
        if self._num_steps[shape] <= _STEPS_BEFORE_RECORDING or not self._can_record:
            return None

        def write_logits() -> None:
            logits_RV.copy_(self._predict())

        with _RECORDING:
            graph = self._pool.capture(write_logits)
        if graph is None:
            self._can_record = False
            self._forget_graphs()
            return None
        # The model may replace its tables of positions, but the graph reads the current tables.
        self._graphs[shape] = graph, list(self._model.buffers())
        self.num_recorded += 1
        if len(self._graphs) > _MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return graph
