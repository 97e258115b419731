import numpy as np
import pytest
import torch

from mt_cli.errors import InputError, MtError
from mt_cli.features.inspection import figures
from mt_cli.features.inspection.figures import (
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


def test_a_grid_has_a_title_for_every_head_and_all_tokens(tmp_path):
    path = tmp_path / "grid.svg"
    titles = [[f"layer {layer}, head {head}" for head in range(4)] for layer in range(2)]
    tokens = [f"token{number}" for number in range(20)]
    save_attention(torch.rand(2, 4, 20, 15), tokens[:15], tokens, path, titles)
    text = path.read_text(encoding="utf-8")
    assert all(title in text for row in titles for title in row)
    assert text.count(">token7<") == 4 + 2 and ">token19<" in text


def test_a_token_is_drawn_as_text_and_not_as_markup(tmp_path):
    tokens = ["שלום", "مرحبا", "$x$", "a_b", "￭ing", "▁a"]
    save_attention(torch.eye(6), tokens, list("stuvyz"), tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert all(f">{shown}<" in text for shown in ("שלום", "مرحبا", "$x$", "a_b", "ing", "▁a"))
    assert font_note(tokens) is None


def test_characters_that_no_font_has_are_named_and_drawn_as_boxes(tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [])
    figures._font_of.cache_clear()
    try:
        assert "no installed font has 你 好;" in font_note(["a", "你好", "￭.", "▁b"])
        assert font_note(["hello"]) is None
        save_attention(torch.ones(1, 1), ["你"], ["a"], tmp_path / "a.png")
        missing = attention_pixels(torch.ones(1, 1), ["你"], ["a"])
        assert not np.array_equal(missing, attention_pixels(torch.ones(1, 1), [" "], ["a"]))
    finally:
        figures._font_of.cache_clear()


@pytest.mark.parametrize(("name", "error"), [("a.xyz", InputError), ("missing/a.png", MtError)])
def test_a_picture_that_cannot_be_written_is_named(tmp_path, name, error):
    with pytest.raises(error, match=name.replace(".", r"\.")):
        save_attention(torch.ones(1, 1), ["a"], ["b"], tmp_path / name)
