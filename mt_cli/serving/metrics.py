"""Counters of a server, in the format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

__all__ = ["CONTENT_TYPE", "Metrics"]
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """Counters of requests, texts and batches."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter("mt_requests", "Requests.", ["path", "status"], registry=registry)
        self.request_seconds = Histogram(
            "mt_request_seconds", "Time until an answer.", buckets=_SECONDS, registry=registry
        )
        self.texts = Counter("mt_texts", "Texts of requests.", registry=registry)
        self.characters = Counter("mt_characters", "Characters of texts.", registry=registry)
        self.files = Counter("mt_files", "Translated files.", registry=registry)
        self.batch_rows = Histogram("mt_batch_rows", "Sentences of a batch.", buckets=_ROWS, registry=registry)
        self.source_tokens = Counter("mt_source_tokens", "Source tokens of batches.", registry=registry)
        self.search_seconds = Counter("mt_search_seconds", "Time for batches.", registry=registry)
        self.models = Gauge("mt_model_info", "Models.", ["model", "source", "target", "engine"], registry=registry)

    def count_batch(self, num_rows: int, num_tokens: int, seconds: float) -> None:
        self.batch_rows.observe(num_rows)
        self.source_tokens.inc(num_tokens)
        self.search_seconds.inc(seconds)

    def show(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Report a value that is asked for at each scrape."""
        Gauge(name, text, registry=self._registry).set_function(value)

    def exposition(self) -> bytes:
        return generate_latest(self._registry)
