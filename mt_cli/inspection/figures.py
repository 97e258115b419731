"""Pictures of attention, positions, norms and metrics, drawn by matplotlib."""

from __future__ import annotations

import logging
import unicodedata
import warnings
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mt_cli.decoding.engine import Attention
from mt_cli.runtime.console import display_width
from mt_cli.runtime.files import write_atomically

_DEFAULT_FONT = "DejaVu Sans"
_MAX_PIXELS = 12_000
_PAGE_INCHES, _CELL_INCHES = 9.0, (0.09, 0.26)
"""Width of the heat maps of a picture, and the least and the largest width of a cell."""
_NAME_INCHES, _SCALE_INCHES, _GAP, _LARGEST_FONT = 0.3, 0.45, 0.15, 12.0
_MAX_POINTS, _MAX_MARKERS = 400, 60
_JOINER = "￭"
_GREY, _BLUE = "#757e8e", "#3b82f6"  # Legible on white and on black.
_GREY_PARTS = ("text.color", "axes.labelcolor", "axes.titlecolor", "axes.edgecolor", "xtick.color", "ytick.color")
# In an SVG, text stays text, and the same content gives the same file.
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "mt", "text.parse_math": False, **dict.fromkeys(_GREY_PARTS, _GREY)}


class Curve(NamedTuple):
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    """Steps and values, in the order of steps; at least one."""
    colour: str
    is_dashed: bool = False


Layers = Sequence[Mapping[str, Attention]]


class Axis(NamedTuple):
    """One axis of a heat map: its name and its tokens."""

    name: str
    tokens: Sequence[str]


def save_attention(layers: Layers, source: Axis, target: Axis, path: Path, title: str = "") -> None:
    """Write heat maps of attention (T x S), a row for each token of `target`, a column for each token of `source`.

    `layers` has the heat maps by their titles; those of a layer begin a line of the picture. The suffix of `path` is
    the format. Raises MtError if the picture cannot be written.
    """
    with _attention(layers, source, target, title) as figure:
        _save(figure, path)


def attention_chart(weights_TS: Attention, source: Axis, target: Axis) -> str:
    """The picture of `save_attention` as the address of an SVG picture, `data:...`."""
    with _attention([{"": weights_TS}], source, target) as figure:
        return _address_of(figure)


def save_positions(table_PD: NDArray[np.float32], path: Path) -> None:
    """Write a picture of positional encodings, a row for each position; raises as `save_attention`."""
    with _figure((7.5, 4.5), layout="constrained") as figure:
        axes = figure.subplots()
        image = axes.imshow(table_PD, cmap="RdBu", aspect="auto", interpolation="nearest")
        axes.set(xlabel="dimension", ylabel="position", title="positional encoding")
        figure.colorbar(image, ax=axes)
        _save(figure, path)


def line_chart(curves: Sequence[Curve]) -> str:
    """Address of an SVG picture of curves, `data:...`, for a page with a background of any colour."""
    from matplotlib.ticker import EngFormatter

    with _figure((4.6, 2.3), layout="constrained") as figure:
        axes = figure.subplots()
        for curve in curves:
            every = -(-len(curve.points) // _MAX_POINTS)
            steps, values = zip(*curve.points[::-1][::every], strict=True)
            marker = "o" if len(curve.points) <= _MAX_MARKERS else None
            axes.plot(steps, values, color=curve.colour, ls="--" if curve.is_dashed else "-", marker=marker, ms=2.5)
        axes.tick_params(labelsize=8)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(axis="y", color=_GREY, alpha=0.4)
        axes.spines[:].set_visible(False)
        return _address_of(figure)


def _address_of(figure: Any) -> str:
    content = BytesIO()
    figure.savefig(content, format="svg", transparent=True, metadata={"Date": None})
    return f"data:image/svg+xml;base64,{b64encode(content.getvalue()).decode('ascii')}"


def font_note(tokens: Iterable[str]) -> str | None:
    """Advice on fonts for characters that no installed font has; None if every character can be drawn."""
    missing = [character for character in sorted(set("".join(map(shown_token, tokens)))) if not _font_of(character)]
    if not missing:
        return None
    shown = " ".join(missing[:10]) + (" ..." if len(missing) > 10 else "")
    return (
        f"no installed font has {shown}; such characters are drawn as boxes. Install a font, such as Debian's package "
        "fonts-noto-cjk or fonts-noto-core, or draw SVG and view it where there is one"
    )


def shown_token(token: str) -> str:
    """A token for display: without the marker of a missing space."""
    return token.replace(_JOINER, "") or " "


@contextmanager
def _attention(layers: Layers, source: Axis, target: Axis, title: str = "") -> Iterator[Any]:
    columns, rows = (list(map(shown_token, axis.tokens)) for axis in (source, target))
    has_titles, num_maps = any(map(any, layers)), len(layers[0])
    num_across, cell = _grid_of(num_maps, len(columns))
    size = min(_LARGEST_FONT, 50 * cell)
    name_size = max(size, 9.0)
    left, top = _NAME_INCHES + _label_inches(rows, size), _label_inches(columns, size) + 0.25 * has_titles
    width, height = len(columns) * cell, len(rows) * cell
    lines_per_layer = -(-num_maps // num_across)
    total_width = left + num_across * (width + _GAP) + _SCALE_INCHES
    head = _NAME_INCHES + 0.35 * bool(title)
    total_height = head + len(layers) * lines_per_layer * (top + height + _GAP)
    with _figure((total_width, total_height), [*columns, *rows]) as figure:
        middle = left + num_across * (width + _GAP) / 2
        figure.text(middle / total_width, 1 - 0.1 / total_height, title, size=11, weight="bold", ha="center", va="top")
        name_y = 1 - (head - _NAME_INCHES / 2) / total_height
        figure.text(middle / total_width, name_y, f"{source.name} →", size=name_size, ha="center", va="center")
        figure.text(0.12 / total_width, 0.5, f"← {target.name}", size=name_size, rotation=90, ha="center", va="center")
        places = [(layer, number) for layer in range(len(layers)) for number in range(num_maps)]
        drawn = [item for maps in layers for item in maps.items()]
        for (layer, number), (name, weights) in zip(places, drawn, strict=True):
            down, across = layer * lines_per_layer + number // num_across, number % num_across
            bottom = total_height - head - (down + 1) * (top + height) - down * _GAP
            box = (left + across * (width + _GAP), bottom, width, height)
            axes = _heat_map(figure, weights, box)
            _label(axes, columns, rows if across == 0 else (), size)
            axes.text(0.5, 1 + (top - 0.12) / height, name, size=9, ha="center", va="center", transform=axes.transAxes)
        length = min(2.0, height)
        box = (total_width - _SCALE_INCHES, total_height - head - top - length, 0.12, length)
        axes = _heat_map(figure, np.linspace(1, 0, 100)[:, None], box)
        axes.set_yticks((0, 99), ("1", "0"), fontsize=size)
        axes.yaxis.tick_right()
        yield figure


def _grid_of(number: int, num_columns: int) -> tuple[int, float]:
    """Number of heat maps side by side, and the width of a cell in inches, so that the picture fits on a page."""
    sizes = ((across, (_PAGE_INCHES / across - _GAP) / num_columns) for across in range(number, 0, -1))
    across, cell = next((choice for choice in sizes if choice[1] >= _CELL_INCHES[0]), (1, _CELL_INCHES[0]))
    return across, min(cell, _CELL_INCHES[1])


def _label(axes: Any, columns: Sequence[str], rows: Sequence[str], size: float) -> None:
    rotation = 90 if max(map(len, columns)) > 2 else 0
    for place, token in enumerate(columns):
        axes.text(place, -0.6, token, size=size, rotation=rotation, ha="center", va="bottom")
    for place, token in enumerate(rows):
        axes.text(-0.6, place, token, size=size, ha="right", va="center")


def _heat_map(figure: Any, values: NDArray[Any], box: Sequence[float]) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("attention", [f"{_BLUE}00", f"{_BLUE}ff"])
    axes = figure.add_axes(np.divide(box, np.tile(figure.get_size_inches(), 2)), xticks=(), yticks=())
    axes.patch.set_alpha(0)
    axes.spines[:].set_linewidth(0.6)
    axes.imshow(values, cmap=colours, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    return axes


def _label_inches(tokens: Sequence[str], size: float) -> float:
    return 0.1 + 0.6 * size / 72 * max(map(display_width, tokens), default=0)


@contextmanager
def _figure(size: tuple[float, float], texts: Sequence[str] = (), layout: Any = None) -> Iterator[Any]:
    import matplotlib
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # It warns of weights that fonts lack.
    families = filter(None, map(_font_of, sorted(set("".join(texts)))))
    style: Any = _STYLE | {"font.family": list(dict.fromkeys([_DEFAULT_FONT, *families]))}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # `font_note` reports them.
        yield Figure(figsize=size, dpi=min(150.0, _MAX_PIXELS / max(size)), layout=layout)


def _save(figure: Any, path: Path) -> None:
    write_atomically(path, lambda temporary: figure.savefig(temporary, format=path.suffix[1:], transparent=True))


@cache
def _font_of(character: str) -> str | None:
    """Family of the first installed font that has a character, the default font before others."""
    from matplotlib import font_manager

    if not character.isprintable() or unicodedata.category(character) in ("Mn", "Cf", "Co"):
        return _DEFAULT_FONT
    if ord(character) in _characters_of(font_manager.findfont(_DEFAULT_FONT))[1]:
        return _DEFAULT_FONT
    fonts = map(_characters_of, sorted(font_manager.findSystemFonts()))
    return next((family for family, characters in fonts if ord(character) in characters), None)


@cache
def _characters_of(path: str) -> tuple[str, frozenset[int]]:
    """Family and code points of a font file; none if it cannot be read."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
        font_manager.fontManager.addfont(path)
        return font.family_name, frozenset(font.get_charmap())
    except (RuntimeError, OSError, ValueError):
        return "", frozenset()
