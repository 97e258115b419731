import numpy as np
import torch

from mt_cli.inspection.figures import (
    attention_pixels,
    font_note,
    save_attention,
)


def test_a_weight_darkens_the_cell_of_its_tokens():
    def cell_box(target, source):
        """Where a picture changes when one weight does: top, left, bottom, right."""
        weights = torch.zeros(3, 4)
        before = attention_pixels(weights, list("abcd"), list("xyz")).astype(int)
        weights[target, source] = 1
        after = attention_pixels(weights, list("abcd"), list("xyz")).astype(int)
        changed = np.argwhere((before - after).sum(axis=2) > 300)  # Darker, not only touched at an edge.
        return *changed.min(axis=0), *changed.max(axis=0)

    top, left, bottom, right = cell_box(0, 0)
    below, beside = cell_box(2, 0), cell_box(0, 3)
    assert below[1::2] == (left, right) and below[0] > bottom
    assert beside[0::2] == (top, bottom) and beside[1] > right


def test_a_token_is_drawn_as_text_and_not_as_markup(tmp_path):
    tokens = ["שלום", "مرحبا", "$x$", "a_b", "￭ing", "▁a"]
    save_attention(torch.eye(6), tokens, list("stuvyz"), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f">{shown}<" in text for shown in ("שלום", "مرحبا", "$x$", "a_b", "ing", "▁a"))
    assert font_note(tokens) is None
