"""The logits of the next tokens, position by position.

On a GPU, the kernels of a step take less time than their launches, for models of usual size. `Predictor` captures a
step once for each shape of the cache and replays it; all shapes are rounded, so that they recur.

Legend of the shapes: B sentences, N beams, S source positions, R = B x N rows, V vocabulary.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from threading import Lock
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mt_cli.model.cache import SOURCE_MULTIPLE, Arena, CacheShape
from mt_cli.model.ensemble import Ensemble
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.cuda_graphs import GraphPool
from mt_cli.runtime.devices import free_memory
from mt_cli.tokenizer.special_tokens import SOS_ID

_STEPS_BEFORE_CAPTURE = 24
"""Number of eager steps of a shape before it is captured. A capture takes about as long as ten steps."""
_MOST_GRAPHS = 128
_COPIES_OF_KEYS = 6
"""Keys and values per source token, in tokens: the source token twice, during a copy, and four target tokens."""
_BYTES_OF_A_LOGIT = 16
"""Bytes per logit: two copies in the dtype of the model, and two in fp32."""
_CAPTURE = Lock()
"""Only one thread may capture at a time."""


class Prediction(NamedTuple):
    """One batch of sentences whose translations are extended position by position."""

    next: Callable[[Tensor], Tensor]
    """Logits RxV after one more token of each beam, given their ids R; they may change with the next call."""
    select: Callable[[Tensor | None, Tensor | None], None]
    """Let each beam continue the beam BxN of its sentence, then keep only some sentences; None: all."""


class Predictor:
    """Predicts next tokens with a model, in inference mode. Several threads may use it.

    With `captures` (by default, for a single model on a GPU), the steps of recurring shapes are captured and replayed
    as CUDA graphs. All batches then use the same tensors and graphs, so keep the predictor as long as the model;
    another thread waits until a batch is done. On a CPU, captured steps are called directly.
    """

    def __init__(self, model: Transformer | Ensemble, captures: bool | None = None) -> None:
        device = next(model.parameters()).device
        self._model: Any = model
        self._captures = isinstance(model, Transformer) and device.type == "cuda" if captures is None else captures
        self._lock = Lock()
        self._addresses: list[tuple[int, torch.dtype]] = []
        self.num_captured = 0
        """Number of steps captured so far."""
        self._reset(device)

    @cached_property
    def fitting_tokens(self) -> int | None:
        """Number of tokens of a batch that fit in the memory that a GPU had free at first; None on other devices.

        Padding and beams are included.
        """
        device = next(self._model.parameters()).device
        if device.type != "cuda":
            return None
        bytes_per_token = 0
        for model in [self._model] if isinstance(self._model, Transformer) else self._model.models:
            config, projection = model.config, model.projection
            keys_values = 2 * config.num_decoder_layers * config.d_model * projection.weight.element_size()
            logits = _BYTES_OF_A_LOGIT * projection.out_features // SOURCE_MULTIPLE
            bytes_per_token += _COPIES_OF_KEYS * keys_values + logits
        return free_memory(device) // bytes_per_token

    def release(self) -> None:
        """Free the memory of tensors and graphs between two batches; the free memory is measured again."""
        with self._lock:
            self._reset(self._arena.device)
        self.__dict__.pop("fitting_tokens", None)

    @contextmanager
    def start(self, src_ids: Tensor, num_beams: int) -> Iterator[Prediction]:
        """Context manager of a `Prediction` with `num_beams` hypotheses of each sentence, of padded ids BxS."""
        if not self._captures:
            eager = self._model.start(src_ids, num_beams)
            yield Prediction(partial(self._model.next, cache=eager), eager.select)
            return
        with self._lock:
            addresses = [(weight.data_ptr(), weight.dtype) for weight in self._model.parameters()]
            if addresses != self._addresses:  # The first batch, or the model was moved or changed to another dtype.
                self._addresses = addresses
                self._reset(src_ids.device)
            self._cache = self._model.start(src_ids, num_beams, self._arena)
            self._tokens().fill_(SOS_ID)
            try:
                yield Prediction(self._next, self._cache.select)
            finally:
                del self._cache

    def _reset(self, device: torch.device) -> None:
        self._arena = Arena(device)
        self._num_steps: Counter[CacheShape] = Counter()
        self._can_capture = True
        self._forget_graphs()

    def _forget_graphs(self) -> None:
        # A pool cannot be used again once all of its graphs are gone.
        self._graphs: OrderedDict[CacheShape, tuple[Callable[[], None], list[Tensor]]] = OrderedDict()
        self._pool, self._num_moves = GraphPool(self._arena.device), self._arena.num_moves

    def _tokens(self) -> Tensor:
        return self._arena.tensor("tokens", (self._cache.shape.num_rows,), torch.int64)

    def _next(self, tokens_R: Tensor) -> Tensor:
        self._cache.reserve()
        ids_R, projection = self._tokens(), self._model.projection
        ids_R[: len(tokens_R)].copy_(tokens_R)
        logits_RV = self._arena.tensor("logits", (len(ids_R), projection.out_features), projection.weight.dtype)

        def step() -> None:
            logits_RV.copy_(self._model.next(ids_R, self._cache))

        (self._graph(step) or step)()
        return logits_RV[: len(tokens_R)]

    def _graph(self, step: Callable[[], None]) -> Callable[[], None] | None:
        """Captured step for the shape of the cache; None if the shape is too rare so far, or cannot be captured."""
        shape = self._cache.shape
        if self._arena.num_moves != self._num_moves:
            self._forget_graphs()
        if shape in self._graphs:
            self._graphs.move_to_end(shape)
            return self._graphs[shape][0]
        self._num_steps[shape] += 1
        if self._num_steps[shape] <= _STEPS_BEFORE_CAPTURE or not self._can_capture:
            return None
        with _CAPTURE:
            graph = self._pool.capture(step)
        if graph is None:
            self._can_capture = False
            self._forget_graphs()
            return None
        # The model may replace its tables of positions, but the graph reads the current tables.
        self._graphs[shape] = graph, list(self._model.buffers())
        self.num_captured += 1
        if len(self._graphs) > _MOST_GRAPHS:
            self._graphs.popitem(last=False)
        return graph
