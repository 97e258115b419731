"""What `import-linter`, mypy and ruff (pyproject.toml) cannot check."""

import ast
import subprocess
import sys

import pytest

HEAVY = ("torch", "datasets", "transformers", "matplotlib", "tqdm")


@pytest.mark.parametrize("name", ["config.loading", "corpus.reading", "runtime.cpus", "cli.main"])
def test_configs_and_corpora_are_read_without_torch(name):
    """So `mt --help`, and wrong configs, are answered at once."""
    code = f"import sys, mt_cli.{name}; print(*sorted({{*{HEAVY}}} & {{*sys.modules}}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_init_files_import_nothing(root):
    for path in (root / "mt_cli").rglob("*/__init__.py"):
        assert all(isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)
