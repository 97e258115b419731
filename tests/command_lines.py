"""Every command of `mt`, and command lines as its parser sees them."""

import shlex

import typer

from mt_cli.cli import main as cli


def commands():
    """Every command by its words, such as ("data", "check")."""
    found = {}
    for name, command in typer.main.get_command(cli.command_line()).commands.items():
        inner = getattr(command, "commands", None)
        found |= {
            (name, *rest): each
            for rest, each in ([((key,), value) for key, value in inner.items()] if inner else [((), command)])
        }
    return found


COMMANDS = commands()


def parse(line):
    """The command of a line such as `mt train --config FILE` and its context; raises what the parser raises."""
    program, *words = shlex.split(line)
    assert program == "mt", line
    name = next((tuple(words[:length]) for length in (1, 2) if tuple(words[:length]) in COMMANDS), None)
    assert name, line
    return name, COMMANDS[name].make_context(name[-1], words[len(name) :])
