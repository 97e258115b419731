import re

import numpy as np
import pytest
from matplotlib.image import imread

from mt_cli.inspection.figures import Axis, font_note, save_attention


def test_a_weight_fills_the_cell_of_its_tokens(tmp_path):
    def pixels(weights):
        save_attention([{"": weights}], Axis("source", "abcd"), Axis("target", "xyz"), tmp_path / "a.png")
        return (imread(tmp_path / "a.png") * 255).astype(int)

    def cell_box(target, source):
        """Where a picture changes when one weight does: top, left, bottom, right."""
        weights = np.zeros((3, 4))
        before = pixels(weights)
        weights[target, source] = 1
        after = pixels(weights)
        changed = np.argwhere((after - before)[..., 3] > 200)  # Filled, not only touched at an edge.
        return *changed.min(axis=0), *changed.max(axis=0)

    top, left, bottom, right = cell_box(0, 0)
    below, beside = cell_box(2, 0), cell_box(0, 3)
    assert below[1::2] == (left, right) and below[0] > bottom
    assert beside[0::2] == (top, bottom) and beside[1] > right


def test_a_token_is_drawn_as_text_and_not_as_markup(tmp_path):
    tokens = ["שלום", "مرحبا", "$x$", "a_b", "￭ing", "▁a"]
    save_attention([{"": np.eye(6)}], Axis("source", tokens), Axis("target", "stuvyz"), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f">{shown}<" in text for shown in ("שלום", "مرحبا", "$x$", "a_b", "ing", "▁a"))
    assert font_note(tokens) is None


@pytest.mark.parametrize(("number", "size"), [(9, 4), (5, 11), (17, 30), (1, 60)])
def test_a_picture_of_attention_fits_on_a_page(number, size, tmp_path):
    maps = {f"head {index}": np.eye(size) for index in range(number)}
    axes = (Axis(name, ["a"] * size) for name in ("source", "target"))
    save_attention([maps], *axes, tmp_path / "a.svg", "Title")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert float(re.search(r'<svg [^>]*width="([\d.]+)pt"', text, re.S)[1]) <= 10.2 * 72
    assert all(f">{words}<" in text for words in ("Title", "source →", "← target", *maps))
    assert text.count(">a<") >= size * (number + 1), "each heat map has its words above"
