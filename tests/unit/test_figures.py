import ast
import importlib
import importlib.util
import json
import sys
from datetime import date

import pytest

FIGURES = {"speed": {"value": 2.67, "unit": "times"}, "pairs": {"value": 30444, "unit": "pairs"}}


@pytest.fixture(scope="module")
def figures(root):
    spec = importlib.util.spec_from_file_location("figures", root / "tests/benchmarks/figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_show_the_figures_of_the_file(root, figures):
    known = figures.load(root)
    for page in figures.pages(root):
        assert not figures.problems(page.read_text(encoding="utf-8"), known), page.name


def test_every_figure_of_the_file_is_complete_and_on_a_page(root, figures):
    known = figures.load(root)
    assert len(known) >= 20
    for name, figure in known.items():
        assert tuple(figure) == figures.KEYS, name
        assert isinstance(figure["value"], int | float), name
        assert all(isinstance(figure[key], str) and figure[key] for key in figures.KEYS[1:]), name
        date.fromisoformat(figure["date"])
    texts = [page.read_text(encoding="utf-8") for page in figures.pages(root)]
    assert set(known) == {name for text in texts for *_, name in figures.marks(text)}


@pytest.mark.parametrize("text", ["2.67 times<!-- figure: speed -->", "**2.7**<!-- figure: speed -->",
                                  "| 3<!-- figure: speed --> | 30,444 pairs<!-- figure: pairs --> |"])  # fmt: skip
def test_a_page_may_round_a_figure(figures, text):
    assert not figures.problems(text, FIGURES)


@pytest.mark.parametrize(("text", "message"), [
    ("2.6 times<!-- figure: speed -->", "the page has 2.6, the file 2.67"),
    ("12.67 times<!-- figure: speed -->", "the page has 12.67"),
    ("2.7 minutes<!-- figure: speed -->", "the unit minutes"),
    ("2.7 times<!-- figure: sped -->", "no such figure"),
    ("30,000 pairs<!-- figure: pairs -->", "the page has 30,000"),
    ("fast<!-- figure: speed -->", "1 comments do not follow a number"),
])  # fmt: skip
def test_another_number_unit_or_name_is_found(figures, text, message):
    (problem,) = figures.problems(text, FIGURES)
    assert message in problem


def test_recording_writes_machine_date_and_command(figures, tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    path = tmp_path / "docs" / "figures.json"
    path.write_text(json.dumps(FIGURES))
    monkeypatch.setattr(sys, "argv", [str(figures.ROOT / "tests/benchmarks/some.py"), "--record", "--rounds", "3"])
    with pytest.raises(KeyError):
        figures.record("new", 1, root=tmp_path)
    figures.record("new", 1.0, "hours", "A run.", root=tmp_path)
    known = json.loads(path.read_text())
    assert known["speed"] == FIGURES["speed"]
    assert tuple(known["new"]) == figures.KEYS
    assert (known["new"]["value"], known["new"]["unit"]) == (1, "hours")
    assert known["new"]["command"] == "python tests/benchmarks/some.py --rounds 3"
    assert "torch" in known["new"]["machine"]


def imports_of(tree):
    """Module and name of each import from `mt_cli` in a script, those inside of functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mt_cli":
            yield from ((node.module, alias.name) for alias in node.names)


def test_benchmarks_import_names_that_exist(root):
    for path in (root / "tests/benchmarks").glob("*.py"):
        for module, name in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
            found = hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}")
            assert found, f"{path.name}: {module} has no {name}"
