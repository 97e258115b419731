import ast
import importlib
import importlib.util
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


@pytest.mark.parametrize(("text", "message"), [
    ("2.67 times<!-- figure: speed -->", None),
    ("| 3<!-- figure: speed --> | **30,444** pairs<!-- figure: pairs --> |", None),  # A page may round.
    ("12.67 times<!-- figure: speed -->", "the page has 12.67, the file 2.67"),
    ("2.7 minutes<!-- figure: speed -->", "the unit minutes"),
    ("2.7 times<!-- figure: sped -->", "no such figure"),
    ("fast<!-- figure: speed -->", "1 comments do not follow a number"),
])  # fmt: skip
def test_another_number_unit_or_name_is_found(figures, text, message):
    problems = figures.problems(text, FIGURES)
    assert not problems if message is None else message in problems[0]


def test_benchmarks_import_names_that_exist(root):
    for path in (root / "tests/benchmarks").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mt_cli"):
                module = importlib.import_module(node.module)
                for name in (alias.name for alias in node.names):
                    found = hasattr(module, name) or importlib.util.find_spec(f"{node.module}.{name}")
                    assert found, f"{path.name}: {node.module} has no {name}"
