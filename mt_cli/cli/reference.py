"""The reference of the commands, generated from the help of Typer.

    python -m mt_cli.cli.reference

writes `docs/commands.md`. A test fails if it is not current.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer
from typer.cli import get_docs_for_click

from mt_cli.cli.main import command_line

_INTRODUCTION = """# Commands

Made from the program by `python -m mt_cli.cli.reference`; `mt COMMAND -h` prints the same. Options of configs are in
[`configuration.md`](configuration.md).

**Exit statuses.**

| status | meaning |
|---|---|
| 0 | done |
| 1 | the work failed: the disk is full, training diverges, a device has too little memory |
| 2 | the command line, the config or the data is wrong; the message says what to change |
| 130 | interrupted (Ctrl-C, and SIGTERM in training); a training has saved its state; the same command resumes it |

**Streams.** Standard output has results alone: translations, scores, JSON, names of written files. Progress, notices
and errors go to standard error; an error begins with `mt: `, and a wrong command line is answered with one line. Texts
are UTF-8 in every locale.

Without `--run`, commands use the newest run below `./runs` and name it on standard error.

"""


def reference() -> str:
    """The page, in Markdown."""
    command: Any = typer.main.get_command(command_line())
    text = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="mt"), name="mt", indent=1)
    text = re.sub(r"docs/(\w+\.md)", r"[`\1`](\1)", text)
    return _INTRODUCTION + re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


if __name__ == "__main__":
    (Path(__file__).parents[2] / "docs" / "commands.md").write_text(reference(), encoding="utf-8")
