"""The reference of the commands, generated from the help of Typer.

    python -m mt_cli.cli.reference

writes `docs/commands.md`. A test fails if it is not current.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from mt_cli.cli.main import command_line

_INTRODUCTION = """# Commands

Made from the program by `python -m mt_cli.cli.reference`; `mt COMMAND -h` prints the same, with examples. Options of
configs are in [`configuration.md`](configuration.md).

**Exit statuses.**

| status | meaning |
|---|---|
| 0 | done |
| 1 | the work failed: the disk is full, training diverges, a device has too little memory |
| 2 | the command line, the config or the data is wrong; the message says what to change |
| 130 | interrupted (Ctrl-C, and SIGTERM in training), with the state of a training saved |

**Streams.** Standard output has results alone; progress, notices and errors (`mt: ...`) go to standard error. Texts are
UTF-8 in every locale.

Without `--run`, commands use the newest run below `./runs` and name it on standard error.

**Options of several commands.** A command that has them names them after "also".

"""
_MIN_COMMANDS = 3
"""Options of so many commands are explained once."""


def reference() -> str:
    command: Any = typer.main.get_command(command_line())
    text = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="mt"), name="mt", indent=1)
    text = re.sub(r"Examples:\n\n( .*\n)+\n|\*\*(Options|Arguments)\*\*:\n\n| <(list\[)?str\]?>", "", text)
    text = re.sub(r"docs/(\w+)\.md", r"[\1](\1.md)", text)
    text = re.sub(r"\*\*Usage\*\*:\n\n(```console\n\$ mt [\w -]+ \[OPTIONS\]\n```\n\n)?", "", text)
    text = re.sub(r"\* `--help`.*\n|\*\*Commands\*\*:\n\n(\* `.*\n)+", "", text)
    text = re.sub(r"such as [\w.]+=\S+; can", "such as decoding.no_repeat_ngram=3; can", text)
    counts = Counter(re.findall(r"^\* `--.*$", text, flags=re.MULTILINE))
    common = [line for line, count in reversed(counts.most_common()) if count >= _MIN_COMMANDS]
    shared = sorted({line.split("`")[1]: line for line in common}.values())  # Of two texts, the more common one.
    text = re.sub(r"(?:^\* `--.*\n)+", lambda options: _shortened(options[0], shared), text, flags=re.MULTILINE)
    return _INTRODUCTION + "\n".join(shared) + "\n\n" + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _shortened(options: str, shared: list[str]) -> str:
    """Lines of a command's options; the shared ones are only named, in a last line."""
    lines = options.splitlines()
    names = [re.sub(r"^\* (`--[\w-]+).*", r"\1`", line) for line in lines if line in shared]
    rest = [f"* also {', '.join(names)}"] if names else []
    return "\n".join([line for line in lines if line not in shared] + rest) + "\n"


if __name__ == "__main__":
    (Path(__file__).parents[2] / "docs" / "commands.md").write_text(reference(), encoding="utf-8")
