"""The help of commands: usage, options by panel with their defaults, and examples. Knows no command."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

_ORDER = ("init", "data")
_COLUMNS_OF_A_NAME = 26
_LONGEST_UNBROKEN = 44
_UNBROKEN_SPACE = "\xa0"
_OTHER = "Other"
"""The panel of options without one, which is the last."""
_MORE = "More: "


def add_command(
    app: typer.Typer, function: Any, panel: str, *examples: str, name: str | None = None, page: str = ""
) -> None:
    """Add a command to a panel of the list of commands; its help ends with examples and a page of the documentation."""
    epilog = "\n".join([*examples, *([_MORE + page] if page else [])])
    app.command(name, cls=Command, rich_help_panel=panel or None, epilog=epilog)(function)


class Row(NamedTuple):
    """An option or argument as help shows it."""

    name: str
    """With its short form and what stands for its value, such as `-n, --number N`."""
    meaning: str
    default: str
    """Empty if it has none; `required` if it must be given."""
    limits: str
    """Such as `1-1000` or `1 or more`; empty if it has none."""

    @property
    def text(self) -> str:
        """All but the name, for people."""
        default = self.default if self.default in ("", "required") else f"default: {self.default}"
        notes = f"[{'; '.join(filter(None, (default, self.limits)))}]"
        if len(notes) <= _LONGEST_UNBROKEN:
            notes = notes.replace(" ", _UNBROKEN_SPACE)
        return f"{self.meaning}  {notes}" if notes != "[]" else self.meaning


def panels_of(command: Any, context: typer.Context) -> dict[str, list[Row]]:
    """The options and arguments of a command by the title of their panel, in the order of help; hidden ones are not."""
    panels: dict[str, list[Row]] = {"Arguments": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            is_argument = parameter.param_type_name == "argument"
            title = getattr(parameter, "rich_help_panel", None) or ("Arguments" if is_argument else _OTHER)
            name = _name_of(parameter).strip("[]") if is_argument else record[0]
            panels.setdefault(title, []).append(_row(name, parameter.help or "", record[1]))
    others = panels.pop(_OTHER, [])
    panels[_OTHER if len(panels) > 1 else "Options"] = others
    return {title: rows for title, rows in panels.items() if rows}


def _row(name: str, meaning: str, record: str) -> Row:
    """A row from Typer's text, which is the meaning and notes in brackets: `[default: 1; 1<=x<=1000; required]`."""
    default = limits = ""
    for note in re.split(r"; (?=x[<>]|\d\S*<=x|required)", record.removeprefix(meaning).strip().strip("[]")):
        if note.startswith("default: "):
            default = re.sub(r"^\((.*)\)$", r"\1", note.removeprefix("default: "))
        elif note == "required":
            default = note
        elif note:
            limits = _in_words(note)
    return Row(name, meaning, default, limits)


def _in_words(limits: str) -> str:
    low, high = (re.search(pattern, limits) for pattern in (r"([\d.]+)<=x|x>=([\d.]+)", r"x<=([\d.]+)"))
    first, last = (f"{float(next(filter(None, found.groups()))):.12g}" if found else "" for found in (low, high))
    if not (low or high):
        return limits
    return f"{first}-{last}" if low and high else f"{first} or more" if low else f"{last} or less"


def _name_of(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def usage_of(command: Any, context: typer.Context) -> str:
    """The words after the name of a command, such as `[OPTIONS] [SENTENCE]...`; hidden arguments are not among them."""
    words = [command.options_metavar]
    for argument in command.params:
        if argument.param_type_name == "argument" and not argument.hidden:
            name = _name_of(argument)
            dots = "..." if argument.nargs != 1 and not name.startswith("[") else ""
            words.append((name if argument.required or name.startswith("[") else f"[{name}]") + dots)
    return " ".join(words)


def examples_of(command: Any) -> list[str]:
    """The examples of a command, each a command line; of a group, those whose command there is."""
    lines = [line for line in (command.epilog or "").splitlines() if line.startswith("mt ")]
    names = getattr(command, "commands", None)
    return lines if names is None else [line for line in lines if not names.keys().isdisjoint(line.split()[1:3])]


def page_of(command: Any) -> str:
    """The page of the documentation with more on a command; empty if there is none."""
    return next((line[len(_MORE) :] for line in (command.epilog or "").splitlines() if line.startswith(_MORE)), "")


def _write(formatter: Any, panels: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    """Write tables of two columns that are aligned with each other."""
    tables = list(panels)
    width = min(max(len(name) for _, rows in tables for name, _ in rows), _COLUMNS_OF_A_NAME)
    for title, rows in tables:
        with formatter.section(title):
            formatter.write_dl([(name.ljust(width), text) for name, text in rows], col_max=width)
    formatter.buffer[:] = [text.replace(_UNBROKEN_SPACE, " ") for text in formatter.buffer]


def _write_epilog(command: Any, formatter: Any) -> None:
    if examples := examples_of(command):
        with formatter.section("Examples"):
            for example in examples:
                formatter.write(f"  {example}\n")
    if page := page_of(command):
        formatter.write(f"\n{_MORE}{page}\n")


class Command(TyperCommand):
    """A command whose help has its options in panels."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of `usage_of`."""
        return [usage_of(self, ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write options by panel."""
        panels = panels_of(self, ctx)
        _write(formatter, [(title, [(row.name, row.text) for row in rows]) for title, rows in panels.items()])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, each on a line of its own."""
        _write_epilog(self, formatter)


class Group(TyperGroup):
    """A group of commands, whose help has the commands in panels, and then its options."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands in the order of help; Typer has groups last."""
        return sorted(self.commands, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))

    def commands_by_panel(self, ctx: Any) -> dict[str, list[tuple[str, Any]]]:
        """The names and commands that are not hidden by the title of their panel."""
        panels: dict[str, list[tuple[str, Any]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.commands[name]
            if not command.hidden:
                panels.setdefault(command.rich_help_panel or "Commands", []).append((name, command))
        return panels

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by panel, and then the options."""
        limit = formatter.width - 4 - max(map(len, self.commands))
        panels = self.commands_by_panel(ctx).items()
        _write(
            formatter,
            [(title, [(name, each.get_short_help_str(limit)) for name, each in rows]) for title, rows in panels],
        )
        options = [(row.name, row.text) for rows in panels_of(self, ctx).values() for row in rows]
        _write(formatter, [("Options", options)])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, each on a line of its own."""
        _write_epilog(self, formatter)
