"""Pictures of attention, positions, norms and metrics, drawn by matplotlib."""

from __future__ import annotations

import logging
import unicodedata
import warnings
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mt_cli.errors import InputError
from mt_cli.runtime.files import write_atomically

Tokens = Sequence[str]
Titles = Sequence[Sequence[str]]
_DEFAULT_FONT = "DejaVu Sans"
_MAX_PIXELS = 12_000
_CELL_INCHES = (0.13, 0.32)
_MAX_POINTS, _MAX_MARKERS = 400, 60
_JOINER = "￭"
# In an SVG, text stays text, and the same content gives the same file.
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "mt", "text.parse_math": False}
_GREY = "#7b8494"  # Legible on white and on black.


class Curve(NamedTuple):
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    """Steps and values, in the order of steps; at least one."""
    colour: str
    is_dashed: bool = False


def save_attention(
    weights: Tensor, source_tokens: Tokens, target_tokens: Tokens, path: Path, titles: Titles = ()
) -> None:
    """Write heat maps of attention, a row for each target token, a column for each source token.

    `weights` are one heat map (T x S), or a grid of them (rows x columns x T x S) with `titles` (rows x columns). The
    suffix of `path` is the format. Raises InputError if it is not a picture format, MtError if it cannot be written.
    """
    with _attention(weights, source_tokens, target_tokens, titles) as figure:
        _save(figure, path)


def attention_pixels(weights_TS: Tensor, source_tokens: Tokens, target_tokens: Tokens) -> NDArray[np.uint8]:
    """The picture of `save_attention` as height x width x 3."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with _attention(weights_TS, source_tokens, target_tokens, ()) as figure:
        figure.set_dpi(100)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        return np.array(canvas.buffer_rgba())[..., :3]


def save_positions(table_PD: Tensor, path: Path) -> None:
    """Write a picture of positional encodings, a row for each position; raises as `save_attention`."""
    with _figure((7.5, 4.5), layout="constrained") as figure:
        axes = figure.subplots()
        image = axes.imshow(table_PD.float().cpu().numpy(), cmap="RdBu", aspect="auto", interpolation="nearest")
        axes.set(xlabel="dimension", ylabel="position", title="positional encoding")
        figure.colorbar(image, ax=axes)
        _save(figure, path)


def line_chart(curves: Sequence[Curve]) -> str:
    """Address of an SVG picture of curves, `data:...`, for a page with a background of any colour."""
    from matplotlib.ticker import EngFormatter

    content = BytesIO()
    with _figure((4.6, 2.3), layout="constrained") as figure:
        axes = figure.subplots()
        for curve in curves:
            every = -(-len(curve.points) // _MAX_POINTS)
            steps, values = zip(*curve.points[::-1][::every], strict=True)
            marker = "o" if len(curve.points) <= _MAX_MARKERS else None
            axes.plot(steps, values, color=curve.colour, ls="--" if curve.is_dashed else "-", marker=marker, ms=2.5)
        axes.tick_params(color=_GREY, labelcolor=_GREY, labelsize=8)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.grid(axis="y", color=_GREY, alpha=0.4)
        axes.spines[:].set_visible(False)
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
def _attention(weights: Tensor, source_tokens: Tokens, target_tokens: Tokens, titles: Titles) -> Iterator[Any]:
    maps = weights.float().cpu().numpy()
    maps = maps.reshape(-1, maps.shape[1] if maps.ndim == 4 else 1, *maps.shape[-2:])
    source_tokens, target_tokens = (list(map(shown_token, tokens)) for tokens in (source_tokens, target_tokens))
    cell = min(_CELL_INCHES[1], max(_CELL_INCHES[0], 5 / max(maps.shape[-2:])))
    size = min(9.0, 0.75 * 72 * cell)
    left, top = (_label_inches(tokens, size) for tokens in (target_tokens, source_tokens))
    width, height = len(source_tokens) * cell, len(target_tokens) * cell
    gap, margin, title, scale = 0.15, 0.2, 0.3 if titles else 0.05, 0.7
    total_width = left + maps.shape[1] * (width + gap) + scale + margin
    total_height = top + maps.shape[0] * (height + title) + 2 * margin
    rotation = 90 if max(map(len, source_tokens)) > 2 else 0
    with _figure((total_width, total_height), [*source_tokens, *target_tokens]) as figure:
        for row, column in np.ndindex(*maps.shape[:2]):
            bottom = margin + (len(maps) - 1 - row) * (height + title)
            axes = _heat_map(figure, maps[row, column], (left + column * (width + gap), bottom, width, height))
            for place, token in enumerate(source_tokens if row == 0 else ()):
                axes.text(place, -0.6, token, size=size, rotation=rotation, ha="center", va="bottom")
            for place, token in enumerate(target_tokens if column == 0 else ()):
                axes.text(-0.6, place, token, size=size, ha="right", va="center")
            if titles:
                axes.set_xlabel(titles[row][column], fontsize=8)
        length = min(2.0, 0.8 * height)
        bottom = total_height - top - title / 2 - margin - length
        axes = _heat_map(figure, np.linspace(1, 0, 100)[:, None], (total_width - scale, bottom, 0.12, length))
        axes.set_yticks((0, 99), ("1", "0"), fontsize=7)
        axes.yaxis.tick_right()
        yield figure


def _heat_map(figure: Any, values: NDArray[Any], box: Sequence[float]) -> Any:
    axes = figure.add_axes(np.divide(box, np.tile(figure.get_size_inches(), 2)), xticks=(), yticks=())
    axes.spines[:].set_linewidth(0.4)
    axes.imshow(values, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    return axes


def _label_inches(tokens: Tokens, size: float) -> float:
    """Space for tokens of this font size; East Asian characters are twice as wide."""
    widths = (sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in token) for token in tokens)
    return 0.15 + 0.62 * size / 72 * max(widths, default=0)


@contextmanager
def _figure(size: tuple[float, float], texts: Sequence[str] = (), layout: Any = None) -> Iterator[Any]:
    """A figure of this size in inches, with fonts for the texts; a large figure has fewer dots per inch."""
    import matplotlib
    from matplotlib.figure import Figure

    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # It warns of weights that fonts lack.
    families = filter(None, map(_font_of, sorted(set("".join(texts)))))
    style: Any = _STYLE | {"font.family": list(dict.fromkeys([_DEFAULT_FONT, *families]))}
    with matplotlib.rc_context(style), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # `font_note` reports them.
        yield Figure(figsize=size, dpi=min(150.0, _MAX_PIXELS / max(size)), layout=layout)


def _save(figure: Any, path: Path) -> None:
    kind = path.suffix.removeprefix(".").lower() or "png"
    try:
        write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind))
    except ValueError:
        raise InputError(f"{path}: no format of pictures; use .png, .svg or .pdf") from None


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
