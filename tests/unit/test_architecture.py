import ast
import re
from pathlib import Path

import pytest


def rooms_in(root):
    """The rooms of the package in the order of `docs/design.md`."""
    line = (root / "docs/design.md").read_text(encoding="utf-8").partition("```\n")[2].partition("```")[0]
    return re.split(r"[\s>]+", line.strip())


def room_of(path, package):
    return path.relative_to(package).parts[0].removesuffix(".py")


def imported_rooms(tree):
    """The rooms of the package that a module imports, by any form of import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("mt_cli."))


def test_a_room_imports_only_rooms_to_its_left(root):
    package, rooms = root / "mt_cli", [*rooms_in(root), "__main__"]
    for path in package.rglob("*.py"):
        if path.parent != package or path.name != "__init__.py":
            for name in imported_rooms(ast.parse(path.read_text(encoding="utf-8"))):
                assert rooms.index(name) <= rooms.index(room_of(path, package)), f"{path} imports {name}"


def test_every_room_is_in_the_order_of_the_design_page_once(root):
    package = root / "mt_cli"
    rooms = {room_of(path, package) for path in package.rglob("*.py")} - {"__init__", "__main__"}
    assert sorted(rooms_in(root)) == sorted(rooms)


@pytest.mark.parametrize(
    ("code", "rooms"),
    [
        ("import mt_cli.model.kernels as k", ["model"]),
        ("from mt_cli import errors, cli", ["errors", "cli"]),
        ("from mt_cli.corpus.reading import Pair", ["corpus"]),
        ("def f():\n    import mt_cli.cli.main, json", ["cli"]),
        ("import torch", []),
    ],
)
def test_every_form_of_import_is_seen(code, rooms):
    assert list(imported_rooms(ast.parse(code))) == rooms


def imports_at_once(path):
    """The full names of what a module imports when it is imported, not in functions or for types alone."""
    nodes = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            nodes += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
        elif isinstance(node, ast.ImportFrom):
            yield from (name for alias in node.names for name in (node.module, f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("name", ["mt_cli.config.loading", "mt_cli.corpus.reading", "mt_cli.cpus", "mt_cli.cli.main"])
def test_what_reads_configs_and_corpora_does_not_wait_for_torch(root, name):
    """And so `mt --help`, and wrong configs, are answered at once."""
    modules = {".".join(path.relative_to(root).with_suffix("").parts): path for path in (root / "mt_cli").rglob("*.py")}
    seen, found = set(), [name]
    while found:
        module = found.pop()
        if module not in seen:
            seen.add(module)
            found += imports_at_once(modules[module]) if module in modules else []
    assert name in seen and len(seen) > 5
    assert not {each.partition(".")[0] for each in seen} & {"torch", "datasets", "transformers", "matplotlib"}


def test_init_files_import_nothing(root):
    for path in Path(root / "mt_cli").rglob("__init__.py"):
        assert all(isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)


def test_no_function_is_longer_than_a_screen(root):
    """Commands of `mt_cli/cli` are an exception: their parameters are the documentation of their options."""
    for path in (root / "mt_cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                first = node.body[0].lineno if path.parent.name == "cli" else node.lineno
                assert (node.end_lineno or 0) - first < 45, f"{path}: {node.name}"
