"""Pictures of what a model does. Knows tensors and matplotlib; does not know where they come from."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mt_cli.errors import InputError, MtError
from mt_cli.storage import write_atomically

_DEFAULT_FONT = "DejaVu Sans"
_MAX_PIXELS = 12_000
_CELL_INCHES = (0.13, 0.32)
_COLOURS = "Blues"
_DARKEST = (8, 48, 107)
_CELL_PIXELS = 19
_JOINER, _SPACE = "￭", "▁"


def save_attention(weights_TS: Tensor, source_tokens: Sequence[str], target_tokens: Sequence[str], path: Path) -> None:
    """Write a heat map of attention, a row for each target token, a column for each source token.

    Raises:
        InputError: if the file's ending names no kind of picture, or it cannot be written.
    """
    save_attention_grid([[weights_TS]], [[""]], source_tokens, target_tokens, path)


def save_attention_grid(
    weights: Sequence[Sequence[Tensor]],
    titles: Sequence[Sequence[str]],
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    path: Path,
) -> None:
    """Write heat maps TxS in rows and columns, each with a title; they share the tokens at the left and at the top.

    Raises:
        InputError: if the file's ending names no kind of picture, or it cannot be written.
    """
    num_rows, num_columns = len(weights), max(map(len, weights))
    longest = max(len(source_tokens), len(target_tokens))
    cell = min(_CELL_INCHES[1], max(_CELL_INCHES[0], 5 / longest))
    size = min(9.0, 0.75 * 72 * cell)
    left, top = (_label_inches(tokens, size) for tokens in (target_tokens, source_tokens))
    width, height = len(source_tokens) * cell, len(target_tokens) * cell
    gap, margin, title = 0.15, 0.2, 0.3 if any(map(any, titles)) else 0.05
    bar = 0.7
    total = left + num_columns * (width + gap) + bar + margin, top + num_rows * (height + title) + 2 * margin
    with _figure(total, [*source_tokens, *target_tokens]) as figure:
        image = None
        for row, maps in enumerate(weights):
            for column, weights_TS in enumerate(maps):
                bottom = margin + (num_rows - 1 - row) * (height + title)
                box = (left + column * (width + gap), bottom, width, height)
                axes = figure.add_axes([box[0] / total[0], box[1] / total[1], box[2] / total[0], box[3] / total[1]])
                values = weights_TS.float().cpu().numpy()
                image = axes.imshow(values, cmap=_COLOURS, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
                _label(axes, source_tokens if row == 0 else (), target_tokens if column == 0 else (), size)
                if titles[row][column]:
                    axes.set_xlabel(titles[row][column], fontsize=8)
        scale_height = min(2.0, 0.8 * height)
        box = (total[0] - bar, total[1] - top - title / 2 - margin - scale_height, 0.12, scale_height)
        scale = figure.add_axes([box[0] / total[0], box[1] / total[1], box[2] / total[0], box[3] / total[1]])
        figure.colorbar(image, cax=scale).ax.tick_params(labelsize=7)
        _save(figure, path)


def save_positions(table_PD: Tensor, path: Path) -> None:
    """Write a picture of positional encodings, positions downwards, dimensions to the right.

    Raises:
        InputError: as `save_attention`.
    """
    with _figure((7.5, 4.5), layout="constrained") as figure:
        axes = figure.subplots()
        image = axes.imshow(table_PD.float().cpu().numpy(), cmap="RdBu", aspect="auto", interpolation="nearest")
        axes.set(xlabel="dimension", ylabel="position", title="positional encoding")
        figure.colorbar(image, ax=axes)
        _save(figure, path)


def save_norms(norms: dict[str, Tensor], path: Path) -> None:
    """Write curves of the lengths of embeddings, each a tensor of V, by the rank of the entry in its vocabulary.

    Raises:
        InputError: as `save_attention`.
    """
    with _figure((7.5, 3.5), layout="constrained") as figure:
        axes = figure.subplots()
        for name, norms_V in norms.items():
            axes.plot(norms_V.float().cpu().numpy(), marker=".", markersize=1.5, linestyle="none", label=name)
        axes.set(xlabel="entry, frequent ones first", ylabel="length of the embedding", title="embeddings")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, markerscale=6)
        axes.spines[["top", "right"]].set_visible(False)
        _save(figure, path)


def attention_pixels(
    weights_TS: Tensor, source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> NDArray[np.uint8]:
    """What `save_attention` draws, small, as height x width x 3; by Pillow, in 5 ms instead of matplotlib's 90."""
    from PIL import Image, ImageDraw

    cell, gap = _CELL_PIXELS, 4
    labels = [[_label_pixels(token) for token in tokens] for tokens in (source_tokens, target_tokens)]
    top, left = (max(label.width for label in side) + 2 * gap for side in labels)
    turned = any(len(shown_token(token)) > 2 for token in source_tokens)
    shares = weights_TS.float().cpu().nan_to_num(0).clamp(0, 1).numpy().repeat(cell, axis=0).repeat(cell, axis=1)
    colours = 255 - shares[..., None] * (255 - np.array(_DARKEST))
    size = left + colours.shape[1] + gap, top + colours.shape[0] + gap
    picture = Image.new("RGB", size, "white")
    picture.paste(Image.fromarray(colours.astype(np.uint8)), (left, top))
    for place, label in enumerate(labels[0]):
        upright = label.rotate(90, expand=True) if turned else label
        picture.paste(upright, (left + place * cell + (cell - upright.width) // 2, top - gap - upright.height))
    for place, label in enumerate(labels[1]):
        picture.paste(label, (left - gap - label.width, top + place * cell + (cell - label.height) // 2))
    ImageDraw.Draw(picture).rectangle((left - 1, top - 1, size[0] - gap, size[1] - gap), outline="silver")
    return np.asarray(picture)


def _label_pixels(token: str) -> Any:
    """A token as a Pillow picture, in the font of its first character that the usual one lacks."""
    from PIL import Image, ImageDraw, ImageFont

    text = shown_token(token)
    paths = [_font_file_of(character) for character in text]
    usual = _font_file_of(" ") or ""
    font = ImageFont.truetype(next((path for path in paths if path and path != usual), usual), _CELL_PIXELS - 6)
    box = font.getbbox(text)
    label = Image.new("RGB", (max(1, round(box[2])), _CELL_PIXELS - 1), "white")
    ImageDraw.Draw(label).text((0, label.height // 2), text, fill="black", font=font, anchor="lm")
    return label


def missing_characters(texts: Iterable[str]) -> str:
    """The characters of some tokens that no installed font can draw."""
    return "".join(
        character for character in sorted(set("".join(map(shown_token, texts)))) if _font_of(character) is None
    )


def _font_of(character: str) -> str | None:
    """The name of the first installed font that has a character; the usual one if it has it."""
    path = _font_file_of(character)
    return None if path is None else _characters_of(path)[0]


@cache
def _font_file_of(character: str) -> str | None:
    from matplotlib import font_manager

    usual: str = font_manager.findfont(_DEFAULT_FONT)
    if not character.isprintable() or unicodedata.category(character) in ("Mn", "Cf", "Co"):
        return usual
    paths = (path for some in ([usual], sorted(font_manager.findSystemFonts())) for path in some)
    return next((path for path in paths if ord(character) in _characters_of(path)[1]), None)


@cache
def _characters_of(path: str) -> tuple[str, frozenset[int]]:
    """Name and code points of a font file; none if it cannot be read."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    try:
        font = FT2Font(path)
        font_manager.fontManager.addfont(path)
        return font.family_name, frozenset(font.get_charmap())
    except (RuntimeError, OSError, ValueError):
        return "", frozenset()


@contextmanager
def _figure(size: tuple[float, float], texts: Sequence[str] = (), layout: Any = None) -> Iterator[Any]:
    """A figure of this size, in inches, with fonts for some texts; a large one has fewer dots per inch."""
    import matplotlib
    from matplotlib.figure import Figure

    others = [_font_of(character) for character in sorted(set("".join(texts)))]
    families = dict.fromkeys([_DEFAULT_FONT, *(name for name in others if name)])
    dots = min(150.0, _MAX_PIXELS / max(size))
    # An SVG has text as text, and the same content gives the same file.
    settings: Any = {
        "font.family": list(families),
        "svg.fonttype": "none",
        "svg.hashsalt": "mt",
        "text.parse_math": False,
    }
    with matplotlib.rc_context(settings):
        yield Figure(figsize=size, dpi=dots, layout=layout)


def _save(figure: Any, path: Path) -> None:
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing")  # `missing_characters` tells.
            kind = path.suffix.removeprefix(".").lower() or "png"
            write_atomically(path, lambda temporary: figure.savefig(temporary, format=kind))
    except (MtError, ValueError) as error:
        raise InputError(f"{path}: the picture cannot be written: {error}") from None


def _label(axes: Any, source_tokens: Sequence[str], target_tokens: Sequence[str], size: float) -> None:
    """Tokens along the top and the left; none where there are none."""
    shown = [shown_token(token) for token in source_tokens]
    rotation = 90 if max(map(len, shown), default=0) > 2 else 0
    axes.set_xticks(range(len(shown)), shown, rotation=rotation, ha="center", fontsize=size)
    axes.set_yticks(range(len(target_tokens)), [shown_token(token) for token in target_tokens], fontsize=size)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0, pad=2)
    axes.spines[:].set_linewidth(0.4)


def _label_inches(tokens: Sequence[str], size: float) -> float:
    """Room for tokens of this font size; characters of East Asian scripts are twice as wide."""
    widths = (sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in shown_token(token)) for token in tokens)
    return 0.15 + 0.62 * size / 72 * max(widths, default=0)


def shown_token(token: str) -> str:
    """A token as people read it: without the marker of a missing space, and with a dot for a space."""
    return token.replace(_JOINER, "").replace(_SPACE, "·") or " "
