import numpy as np
import pytest
import torch
from matplotlib import image

from mt_cli import figures
from mt_cli.errors import InputError
from mt_cli.figures import (
    attention_pixels,
    missing_characters,
    save_attention,
    save_attention_grid,
    save_norms,
    save_positions,
)
from mt_cli.inspection import note_on_fonts
from mt_cli.model.positions import sinusoids


def test_the_darkest_cell_is_where_the_weight_is(tmp_path):
    weights = torch.zeros(3, 4)
    weights[1, 2] = 1.0
    pixels = attention_pixels(weights, list("abcd"), list("xyz")).astype(float).mean(axis=2)
    # The cells lie at the lower right; each is looked at in its middle.
    height, width = pixels.shape
    cell = 19
    corner = height - 4 - 3 * cell, width - 4 - 4 * cell
    values = [
        [pixels[int(corner[0] + (t + 0.5) * cell), int(corner[1] + (s + 0.5) * cell)] for s in range(4)]
        for t in range(3)
    ]
    assert np.unravel_index(np.argmin(values), (3, 4)) == (1, 2)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_grid_has_a_title_for_every_head_and_all_tokens(tmp_path, ending):
    path = tmp_path / f"grid.{ending}"
    titles = [[f"layer {layer}, head {head}" for head in range(4)] for layer in range(2)]
    maps = [[torch.rand(100, 90) for _ in row] for row in titles]
    tokens = [f"token{number}" for number in range(100)]
    save_attention_grid(maps, titles, tokens[:90], tokens, path)
    if ending == "svg":
        text = path.read_text(encoding="utf-8")
        assert all(title in text for row in titles for title in row)
        assert text.count(">token7<") == 4 + 2 and ">token99<" in text
    else:
        height, width, _ = image.imread(path).shape
        assert 2000 < height <= 12_000 and 4000 < width <= 12_000


def test_the_same_content_gives_the_same_svg(tmp_path):
    for name in ("a.svg", "b.svg"):
        save_attention(torch.eye(3), list("abc"), list("abc"), tmp_path / name)
    lines = [
        [line for line in (tmp_path / name).read_text().splitlines() if "date" not in line]
        for name in ("a.svg", "b.svg")
    ]
    assert lines[0] == lines[1]


@pytest.mark.parametrize("tokens", [["שלום", "עולם"], ["مرحبا", "بالعالم"], ["$x$", "a_b", "%"], ["￭", "▁", "▁a"]])
def test_all_kinds_of_tokens_are_drawn(tmp_path, tokens):
    save_attention(
        torch.eye(2).repeat(1, len(tokens) // 2 + 1)[:2, : len(tokens)], tokens, ["x", "y"], tmp_path / "a.png"
    )
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert missing_characters(["$x$", "a_b", "%", "Łódź", "שלום"]) == ""


def test_characters_that_no_font_has_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [])
    figures._font_file_of.cache_clear()
    try:
        assert missing_characters(["a", "你好", "￭.", "▁b"]) == "你好"
        assert "你 好" in note_on_fonts(["你好"]) and note_on_fonts(["hello"]) is None
        save_attention(torch.ones(1, 1), ["你"], ["a"], tmp_path / "a.png")
        assert attention_pixels(torch.ones(1, 1), ["你"], ["a"]).shape[2] == 3
    finally:
        figures._font_file_of.cache_clear()


def test_positions_and_norms_are_drawn(tmp_path):
    save_positions(sinusoids(100, 64), tmp_path / "positions.png")
    save_norms({"source": torch.rand(500), "target": torch.rand(400)}, tmp_path / "norms.svg")
    assert "target" in (tmp_path / "norms.svg").read_text()


@pytest.mark.parametrize("name", ["a.xyz", "missing/a.png"])
def test_a_picture_that_cannot_be_written_is_named(tmp_path, name):
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        save_attention(torch.ones(1, 1), ["a"], ["b"], tmp_path / name)
