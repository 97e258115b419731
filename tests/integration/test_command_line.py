"""The command line in a process and in a shell of its own."""

import os
import shlex
import shutil
import sys

import pytest

from mt_cli.__main__ import others_compute


@pytest.mark.parametrize(
    ("load", "expected"), [("0.5 0.4 0.3 1/234 99", False), ("0.0 0.0 0.0 3/234 99", True), ("", False), (None, False)]
)
def test_other_programs_are_noticed_where_the_kernel_tells(load, expected, tmp_path):
    path = tmp_path / "loadavg"
    if load is not None:
        path.write_text(load, encoding="utf-8")
    assert others_compute(path, looks=2) is expected


COMPLETE = """
COMP_WORDS=({words}) COMP_CWORD=$(({number} - 1))
_mt_completion mt
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_completes_commands_and_options(run, root, tmp_path):
    """In a real bash in which `mt` is this program."""
    program = tmp_path / "bin" / "mt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m mt_cli "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | {"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(root)}
    tries = [COMPLETE.format(words=words, number=number) for words, number in (('mt data ""', 3), ("mt train --fr", 3))]
    script = 'eval "$(mt --show-completion)"\n' + "".join(tries)
    done = run(["bash", "--norc", "-c", script], env=env, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines() == ["check show pick corrections", "--fresh"], done.stderr
