import numpy as np
import pytest
import torch
from matplotlib import image

from mt_cli.errors import InputError, MtError
from mt_cli.features.inspection import figures
from mt_cli.features.inspection.figures import (
    attention_pixels,
    font_note,
    save_attention,
)


def cell_box(target, source):
    """Where a picture changes when one weight does: top, left, bottom, right."""
    weights = torch.zeros(3, 4)
    pictures = []
    for weight in (0.0, 1.0):
        weights[target, source] = weight
        pictures.append(attention_pixels(weights, list("abcd"), list("xyz")).astype(int))
    changed = np.argwhere((pictures[0] - pictures[1]).sum(axis=2) > 300)  # Darker, not only touched at an edge.
    return *changed.min(axis=0), *changed.max(axis=0)


def test_a_weight_darkens_the_cell_in_the_row_of_its_target_and_the_column_of_its_source_token():
    boxes = [[cell_box(target, source) for source in range(4)] for target in range(3)]
    for target in range(3):
        for source in range(4):
            top, left, bottom, right = boxes[target][source]
            assert (top, bottom) == boxes[target][0][0::2] and (left, right) == boxes[0][source][1::2]
            assert target == 0 or top > boxes[target - 1][source][2]
            assert source == 0 or left > boxes[target][source - 1][3]


@pytest.mark.parametrize("suffix", ["svg", pytest.param("png", marks=pytest.mark.slow)])
def test_a_grid_has_a_title_for_every_head_and_all_tokens(tmp_path, suffix):
    path = tmp_path / f"grid.{suffix}"
    titles = [[f"layer {layer}, head {head}" for head in range(4)] for layer in range(2)]
    tokens = [f"token{number}" for number in range(100)]
    save_attention(torch.rand(2, 4, 100, 90), tokens[:90], tokens, path, titles)
    if suffix == "svg":
        text = path.read_text(encoding="utf-8")
        assert all(title in text for row in titles for title in row)
        assert text.count(">token7<") == 4 + 2 and ">token99<" in text
    else:
        height, width, _ = image.imread(path).shape
        assert 2000 < height <= 12_000 and 4000 < width <= 12_000


@pytest.mark.parametrize(
    ("token", "shown"),
    [("שלום", "שלום"), ("مرحبا", "مرحبا"), ("$x$", "$x$"), ("a_b", "a_b"), ("￭ing", "ing"), ("▁a", "▁a")],
)
def test_a_token_is_drawn_as_text_and_not_as_markup(tmp_path, token, shown):
    save_attention(torch.eye(2), [token, "x"], ["y", "z"], tmp_path / "a.svg")
    assert f">{shown}<" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert font_note([token]) is None


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
