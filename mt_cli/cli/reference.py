"""The reference of the commands, made from the program.

    python -m mt_cli.cli.reference

writes `docs/commands.md`. A test fails if it is not current.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer

from mt_cli.cli.help import Group, Row, examples_of, page_of, panels_of
from mt_cli.cli.main import app

_INTRODUCTION = """# Commands

Made from the program by `python -m mt_cli.cli.reference`; `mt COMMAND -h` prints the same. Options of configs are in
[`configuration.md`](configuration.md).

**Exit statuses.**

| status | meaning |
|---|---|
| 0 | done |
| 1 | the work failed: the disk is full, training diverges, a device has too little memory |
| 2 | the command line, the config or the data is wrong; the message says what to change |
| 130 | interrupted (Ctrl-C, SIGTERM); a training has saved its state, and the same command resumes it |

**Streams.** Standard output has results alone: translations, scores, JSON, names of written files. Progress, notices
and errors go to standard error; an error begins with `mt: `, and a wrong command line is answered with one line. Texts
are UTF-8 in every locale.

Without `--run`, commands use the newest run below `./runs` and name it on standard error.

"""


_HELP = "-h, --help"


def reference() -> str:
    """The page, in Markdown."""
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="mt", **command.context_settings)
    lines = ["| | commands |", "|---|---|"]
    for title, rows in command.commands_by_panel(context).items():
        links = (f"[`{each}`](#mt-{each.replace(' ', '-')})" for row in rows for each in _names(*row))
        lines.append(f"| {title} | {', '.join(links)} |")
    lines += ["", *_section(command, context)]
    for rows in command.commands_by_panel(context).values():
        for name, each in rows:
            lines += _sections(name, each, context)
    return _INTRODUCTION + "\n".join(lines).rstrip("\n") + "\n"


def _names(name: str, command: Any) -> list[str]:
    return [f"{name} {inner}" for inner in command.commands] if isinstance(command, Group) else [name]


def _sections(name: str, command: Any, parent: typer.Context) -> Iterator[str]:
    context = typer.Context(command, parent=parent, info_name=name)
    if isinstance(command, Group):
        for inner, each in command.commands.items():
            yield from _sections(inner, each, context)
    else:
        yield from _section(command, context)


def _section(command: Any, context: typer.Context) -> Iterator[str]:
    """A command: what it does, its usage, its options by panel, and examples."""
    yield from (f"## `{context.command_path}`", "", cleandoc(command.help), "")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield from ("```", usage, "```", "")
    for title, rows in panels_of(command, context).items():
        if cells := [_cells(row) for row in rows if row.name != _HELP]:
            yield from (f"| {title} | default | |", "|---|---|---|", *cells, "")
    if examples := examples_of(command):
        yield from ("```sh", *examples, "```", "")
    if page := page_of(command):
        name = Path(page).name
        yield from (f"More: [`{name}`]({name})", "")


def _cells(row: Row) -> str:
    default = row.default if row.default == "required" or " " in row.default else f"`{row.default}`"
    meaning = f"{row.meaning.removesuffix('.')} ({row.limits})." if row.limits else row.meaning
    cells = (f"`{row.name}`", default if row.default else "", meaning)
    return "| " + " | ".join(cells).replace("<", r"\<") + " |"


if __name__ == "__main__":
    (Path(__file__).parents[2] / "docs" / "commands.md").write_text(reference(), encoding="utf-8")
