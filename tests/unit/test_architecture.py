"""What `import-linter`, mypy and ruff (pyproject.toml) cannot check."""

import ast
import subprocess
import sys

import pytest

HEAVY = (
    *("torch", "numpy", "pyarrow", "pydantic", "yaml", "tokenizers", "regex", "tqdm", "sentencepiece", "xxhash"),
    *("datasets", "transformers", "matplotlib", "tensorboard", "sacrebleu", "langcodes", "jinja2"),
    "huggingface_hub",
)
"""Modules that take milliseconds to import; PyTorch takes seconds."""
SENTENCE = {"torch", "numpy", "pydantic", "yaml", "tokenizers", "regex", "tqdm"}
"""What the translation of a sentence needs."""


def heavy_modules(code, *arguments):
    """Heavy modules that a program has imported when it ends."""
    code = f"import atexit, sys; atexit.register(lambda: print(*{{*{HEAVY}}} & {{*sys.modules}})); {code}"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {*output.splitlines()[-1].split()}


@pytest.mark.parametrize("name", ["config.loading", "corpus.reading", "runtime.cpus", "cli.main"])
def test_configs_and_corpora_are_read_without_torch(name):
    """So wrong configs are answered at once."""
    slow = {"torch", "datasets", "transformers", "matplotlib", "tqdm"}
    assert not heavy_modules(f"import mt_cli.{name}") & slow


@pytest.mark.parametrize(
    ("words", "modules"),
    [
        (["--help"], {"regex"}),
        (["--version"], {"regex"}),
        (["translate", "a b", "--run"], SENTENCE),
    ],
)
def test_a_command_imports_only_what_it_needs(words, modules, trained):
    words = [*words, trained] if words[-1] == "--run" else words
    assert heavy_modules("from mt_cli.cli.main import main; main()", *words) == modules


def test_ctranslate2_translates_without_torch(served):
    """Earlier versions of the library import PyTorch themselves."""
    words = ["translate", "a b", "--json", "--engine", "ctranslate2", "--run", served]
    modules = heavy_modules("from mt_cli.cli.main import main; main()", *words)
    assert modules <= SENTENCE - {"torch"} | heavy_modules("import ctranslate2")


def test_init_files_import_nothing(root):
    for path in (root / "mt_cli").rglob("*/__init__.py"):
        assert all(isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)
