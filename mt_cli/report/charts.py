"""Curves as inline SVG, which takes its colours from the page. Knows numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 460, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 12, 30
_MAX_POINTS = 400
_NUM_COLOURS = 6
_FLAT, _TINY = 1e-9, 1e-90


@dataclass(frozen=True)
class Curve:
    """One line of a chart."""

    name: str
    points: Points
    """Steps and values, in the order of steps."""
    colour: int
    """The number of one of the page's colours."""
    is_dashed: bool = False


def line_chart(title: str, curves: Sequence[Curve]) -> str:
    """A figure with a legend; nothing if no curve has a point."""
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    steps = [step for curve in curves for step, _ in curve.points]
    values = [value for curve in curves for _, value in curve.points]
    last, up = max(1.0, max(steps)), _scale(values)
    body = [_grid(last, up)]
    for curve in curves:
        points = [(_x(step, last), _y(value, up)) for step, value in _thinned(curve.points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        colour = f"var(--c{curve.colour % _NUM_COLOURS})"
        dashes = ' stroke-dasharray="5 3"' if curve.is_dashed else ""
        body.append(f'<polyline class="curve" points="{path}" stroke="{colour}"{dashes}/>')
        if len(points) <= 60:
            body.extend(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"><title>'
                f"{escape(curve.name)}, step {step:,.0f}: {value:.4g}</title></circle>"
                for (x, y), (step, value) in zip(points, _thinned(curve.points), strict=True)
            )
    svg = f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(body)}</svg>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{svg}{_legend(curves)}</figure>"


def _legend(curves: Sequence[Curve]) -> str:
    items = (
        f'<span><i class="{"dashed" if curve.is_dashed else ""}" '
        f'style="border-color: var(--c{curve.colour % _NUM_COLOURS})"></i>{escape(curve.name)}</span>'
        for curve in curves
    )
    return f'<div class="legend">{"".join(items)}</div>'


def _grid(last: float, up: list[float]) -> str:
    lines = []
    for value in up:
        y = _y(value, up)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(value)}</text>')
    for step in (tick for tick in _scale([0.0, last]) if tick <= last):
        lines.append(f'<text x="{_x(step, last):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">{_number(step)}</text>')
    return "".join(lines)


def _x(step: float, last: float) -> float:
    return _LEFT + step / last * (_WIDTH - _LEFT - _RIGHT - 14)


def _y(value: float, ticks: list[float]) -> float:
    return _HEIGHT - _BOTTOM - (value - ticks[0]) / (ticks[-1] - ticks[0]) * (_HEIGHT - _TOP - _BOTTOM)


def _scale(values: Sequence[float], number: int = 5) -> list[float]:
    """Round numbers in equal distance, about `number` of them, from below the smallest value to above the largest."""
    low, high = min(values), max(values)
    size = max(abs(low), abs(high))
    if high - low <= max(_FLAT * size, _TINY):
        size = size if size > _TINY else 1.0
        low, high = low - size / 2, high + size / 2
    rough = (high - low) / (number - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    distance = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / distance + 1e-9), math.ceil(high / distance - 1e-9)
    return [index * distance for index in range(first, last + 1)]


def _number(value: float) -> str:
    if abs(value) >= 1e4:
        return f"{value / 1e6:g}M" if abs(value) >= 1e6 else f"{value / 1e3:g}k"
    return f"{value:.6g}"


def _thinned(points: Points) -> Points:
    """At most so many of the points that a curve needs, the last one among them."""
    every = -(-len(points) // _MAX_POINTS)
    return list(points[::-1][::every])[::-1]
