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


@pytest.fixture
def gpu_tables(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "tests/benchmarks"))
    yield importlib.import_module("gpu_tables")
    for name in ("gpu_tables", "figures"):
        sys.modules.pop(name, None)


def rows_of_a_gpu():
    """Rows as gpu_speed.py writes them: another speed for each system."""
    machine = {"kind": "machine", "flops": 8e14, "device": "a GPU", "torch": "2.11", "date": "2026-11-26"}
    rows = [machine | {"command": "python tests/benchmarks/gpu_speed.py"}]
    for number, system in enumerate(("mt", "plain loop", "compiled loop")):
        for size, batch_tokens in (("base", 8192), ("base", 25000), ("big", 8192)):
            row = {"kind": "train", "size": size, "batch_tokens": batch_tokens, "system": system, "settings": ""}
            rows.append(row | {"speed": 1e5 / (number + 1) + batch_tokens, "flop_per_token": 4e8, "memory": 2**30})
    for number, system in enumerate(("mt bf16", "CTranslate2 float16")):
        for beam in (1, 4):
            for batch_tokens in (4096, 32768):
                row = {"kind": "translate", "size": "base", "system": system, "beam": beam}
                rows.append(row | {"batch_tokens": batch_tokens, "speed": (number + 1) * 1e4 * batch_tokens / beam})
    rows.append({"kind": "limit", "size": "base", "system": "limit", "speed": 469_000, "flop_per_token": 4e8})
    return rows


def test_tables_of_a_gpu_show_the_figures_that_are_recorded(gpu_tables, figures):
    rows = rows_of_a_gpu()
    recorded = gpu_tables.recorded_figures(rows)
    known = {name: {"value": round(value, 2), "unit": unit} for name, (value, unit, _) in recorded.items()}
    text = gpu_tables.section(rows, is_marked=True)
    assert not figures.problems(text, known)
    assert {name for *_, name in figures.marks(text)} == set(known) and len(known) == 5
    assert not list(figures.marks(gpu_tables.section(rows)))
    assert all(len({line.count("|") for line in part.splitlines()}) == 1 for part in text.split("\n\n"))


def test_hours_of_training_follow_from_the_fastest_speed_of_mt(gpu_tables):
    base, big, _ = (line.split(" | ") for line in gpu_tables.times_table(rows_of_a_gpu()).splitlines()[2:])
    assert base[2:4] == [f"{2.5e9 / 125_000 / 3600:.1f} hours", f"{2.5e9 / 125_000 / 3600 / 7.2:.1f} hours"]
    assert big[2] == f"{7.5e9 / 108_192 / 3600:.1f} hours"


def test_rows_measured_again_replace_the_earlier_ones_and_rows_of_two_gpus_are_refused(gpu_tables, tmp_path):
    rows = rows_of_a_gpu()
    again = [row | {"speed": 2 * row["speed"]} if "speed" in row else row for row in rows]
    for name, written in (("first", rows), ("second", [*again, rows[-1] | {"skipped": "no file", "speed": None}])):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in written))
    assert gpu_tables.read_rows([tmp_path / "first", tmp_path / "second"]) == again
    (tmp_path / "second").write_text(json.dumps(rows[0] | {"device": "another GPU"}) + "\n")
    with pytest.raises(SystemExit, match="2 devices"):
        gpu_tables.read_rows([tmp_path / "first", tmp_path / "second"])
