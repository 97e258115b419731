"""Architecture that `import-linter` (pyproject.toml) and mypy do not check."""

import ast
import re

import pytest

WITH_FALLBACK = {"_foreach_copy_"}
"""Private names of libraries that have a fallback, and a test that fails when they have gone."""


def test_only_private_names_of_libraries_with_a_fallback_are_used(root):
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (root / "mt_cli").rglob("*.py")}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    own = {node.name for _, node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.attr for _, node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.id for _, node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for path, node in nodes:
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            is_public = ast.unparse(node) == "os._exit"
            assert is_public or node.attr in own | WITH_FALLBACK, f"{path}:{node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and not node.module.startswith("mt_cli"):
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
            assert not any(re.match("_[a-z]", name) for name in names), f"{path}:{node.lineno}: {ast.unparse(node)}"


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


@pytest.mark.parametrize(
    "name", ["mt_cli.config.loading", "mt_cli.corpus.reading", "mt_cli.machine.cpus", "mt_cli.cli.main"]
)
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
    assert not {each.partition(".")[0] for each in seen} & {"torch", "datasets", "transformers", "matplotlib", "tqdm"}


def test_init_files_import_nothing(root):
    """But that of the package, which imports the translator when it is used."""
    for path in (root / "mt_cli").rglob("*/__init__.py"):
        assert all(isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)
