"""The command line in a process and in a shell of its own."""

import os
import shlex
import shutil
import sys

import pytest

SLOW_TO_IMPORT = (
    *("torch", "datasets", "transformers", "numpy", "pyarrow", "matplotlib", "tqdm", "yaml"),
    *("huggingface_hub", "sacrebleu", "multiprocessing"),
)
PROGRAM = """
import sys
before = set(sys.modules)
sys.argv = ["mt", *sys.argv[1:]]
from mt_cli.__main__ import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted(set({slow}) & (set(sys.modules) - before)), file=sys.stderr)
"""


@pytest.mark.parametrize("words", ["translate --help", pytest.param("data check -h", marks=pytest.mark.slow)])
def test_help_imports_nothing_that_is_slow(run, words):
    program = PROGRAM.format(slow=SLOW_TO_IMPORT)
    done = run([sys.executable, "-c", program, *words.split()], capture_output=True, text=True)
    assert done.returncode == 0 and " Usage: mt " in done.stdout, done.stderr
    assert not done.stderr.strip()


@pytest.mark.slow
def test_translating_imports_no_compiler_and_no_reader_of_corpora(run, trained):
    """Each of them takes a second or more, as long as all the rest."""
    slow = ("torch._dynamo", "torch._inductor", "triton", "sympy", "datasets", "transformers", "matplotlib", "pandas")
    words = ["translate", "--run", str(trained), "--device", "cpu", "one two"]
    done = run([sys.executable, "-c", PROGRAM.format(slow=slow), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr.splitlines()[-1].strip()


COMPLETE = """
COMP_WORDS=({words}) COMP_CWORD=$(({number} - 1))
_mt_completion mt
echo "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def bash(run, root, tmp_path):
    """Runs lines in a real bash in which `mt` is this program, with a home of its own; returns standard output."""
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    program = tmp_path / "bin" / "mt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mt_cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(root)}

    def call(script):
        done = run(["bash", "--norc", "-c", script + "\n:"], env=env, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def completions(bash, script, words):
    number = len(words.split()) + words.endswith(" ")
    words += '""' if words.endswith(" ") else ""
    return bash(script + COMPLETE.format(words=words, number=number)).splitlines()[-1].split()


def test_bash_completes_commands_and_options(bash):
    shown = 'eval "$(mt --show-completion)"'
    assert completions(bash, shown, "mt data ") == ["check", "show"]
    assert completions(bash, shown, "mt train --config x.yaml --fr") == ["--fresh"]


@pytest.mark.slow
def test_completion_is_installed_for_bash(bash, tmp_path):
    assert "bash completion installed" in bash("mt --install-completion")
    assert ".bash_completions/mt.sh" in (tmp_path / ".bashrc").read_text(encoding="utf-8")
    assert completions(bash, "source ~/.bashrc", "mt tok") == ["tokenize"]
