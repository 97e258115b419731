"""Pictures of what a model does. Knows tensors and matplotlib; does not know where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from mt_cli.errors import InputError


def save_attention(weights_TS: Tensor, source_tokens: Sequence[str], target_tokens: Sequence[str], path: Path) -> None:
    """Write a heat map of attention, a row for each target token, a column for each source token.

    Raises:
        InputError: if the file's ending names no kind of picture, or it cannot be written.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    width, height = 0.32 * len(source_tokens) + 1.6, 0.32 * len(target_tokens) + 1.2
    figure, axes = pyplot.subplots(figsize=(max(3.2, width), max(2.6, height)), layout="constrained")
    image = axes.imshow(weights_TS.numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
    axes.set_xticks(
        range(len(source_tokens)),
        [_label(token) for token in source_tokens],
        rotation=60,
        ha="left",
        rotation_mode="anchor",
    )
    axes.set_yticks(range(len(target_tokens)), [_label(token) for token in target_tokens])
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, shrink=0.8, label="attention")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: the picture cannot be written: {error}") from None
    finally:
        pyplot.close(figure)


def _label(token: str) -> str:
    """A token without the joiner, which fonts lack."""
    return token.replace("￭", "").replace("$", r"\$")
