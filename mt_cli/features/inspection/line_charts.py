"""Line charts of `mt report`: the scales that place curves in an SVG picture. Knows numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

_MAX_POINTS = 400
_FLAT, _TINY = 1e-9, 1e-90


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    """Steps and values, in the order of steps."""
    colour: int
    """The number of one of the page's colours."""
    is_dashed: bool = False


class Chart:
    """Curves, each with at least one point, in a picture of `width` x `height`; of long ones, 400 points are kept."""

    width, height = 460, 230
    left, right, top, bottom = 52, 10, 12, 30

    def __init__(self, title: str, curves: Sequence[Curve]) -> None:
        self.title = title
        self.curves = [replace(curve, points=_thinned(curve.points)) for curve in curves]
        self._last = max(1.0, *(step for curve in curves for step, _ in curve.points))
        self.steps = [step for step in _scale([0.0, self._last]) if step <= self._last]
        self.values = _scale([value for curve in curves for _, value in curve.points])

    def x(self, step: float) -> float:
        """Where a step is, from the left."""
        return round(self.left + step / self._last * (self.width - self.left - self.right - 14), 1)

    def y(self, value: float) -> float:
        """Where a value is, from the top."""
        share = (value - self.values[0]) / (self.values[-1] - self.values[0])
        return round(self.height - self.bottom - share * (self.height - self.top - self.bottom), 1)


def short_number(value: float) -> str:
    """A number for an axis: `1.5M`, `20k`, `0.25`."""
    if abs(value) >= 1e4:
        return f"{value / 1e6:g}M" if abs(value) >= 1e6 else f"{value / 1e3:g}k"
    return f"{value:.6g}"


def _scale(values: Sequence[float]) -> list[float]:
    """About five round numbers at equal distances, from below the smallest value to above the largest."""
    low, high = min(values), max(values)
    size = max(abs(low), abs(high))
    if high - low <= max(_FLAT * size, _TINY):
        size = size if size > _TINY else 1.0
        low, high = low - size / 2, high + size / 2
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    distance = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / distance + 1e-9), math.ceil(high / distance - 1e-9)
    return [index * distance for index in range(first, last + 1)]


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most 400 of the points, evenly spaced, the last one among them."""
    every = -(-len(points) // _MAX_POINTS)
    return points[::-1][::every][::-1]
