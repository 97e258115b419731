"""Counters of a server in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import accumulate

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """Numbers of values up to each bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str) -> Iterator[str]:
        """Lines of the text format."""
        names = [*(f"{bound:g}" for bound in self._bounds), "+Inf"]
        for bound, count in zip(names, accumulate(self._counts), strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_sum {self._sum:.6f}"
        yield f"{name}_count {sum(self._counts)}"


class Metrics:
    """Counters of requests, texts and batches. Several threads may use them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._totals: defaultdict[str, float] = defaultdict(float)
        self._histograms = {"mt_request_seconds": Histogram(_SECONDS), "mt_batch_rows": Histogram(_ROWS)}

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request; `path` is the path of a route, of which there are few."""
        with self._lock:
            self._requests[path, status] += 1
            self._histograms["mt_request_seconds"].add(seconds)

    def count_batch(self, num_rows: int, num_tokens: int, seconds: float) -> None:
        """Count a batch of the scheduler."""
        with self._lock:
            self._histograms["mt_batch_rows"].add(num_rows)
            self._totals["mt_source_tokens_total"] += num_tokens
            self._totals["mt_search_seconds_total"] += seconds

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter; its name ends with `_total`."""
        with self._lock:
            self._totals[name] += amount

    def text(self, gauges: Mapping[str, float], models: Iterator[Mapping[str, str]]) -> str:
        """All values. `gauges` are values of now, and `models` has the labels of each model."""
        with self._lock:
            lines = ["# TYPE mt_requests_total counter"]
            lines += (
                f'mt_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self._requests.items())
            )
            for name, total in sorted(self._totals.items()):
                lines += [f"# TYPE {name} counter", f"{name} {total:.15g}"]
            for name, histogram in self._histograms.items():
                lines += [f"# TYPE {name} histogram", *histogram.lines(name)]
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value:g}"]
        lines.append("# TYPE mt_model_info gauge")
        lines += (f"mt_model_info{{{_labels(model)}}} 1" for model in models)
        return "\n".join([*lines, ""])


def _labels(values: Mapping[str, str]) -> str:
    escaped = {
        name: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, value in values.items()
    }
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())
