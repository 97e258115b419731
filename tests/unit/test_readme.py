import re
import shlex

import pytest

from mt_cli import cli

COMMANDS = {command.callback.__name__ for command in cli.app.registered_commands}


def readme_commands(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^\$ (mt .*)$", text, flags=re.MULTILINE)


def test_every_command_of_the_readme_parses(root):
    import typer

    group = typer.main.get_command(cli.app)
    lines = readme_commands(root)
    assert len(lines) >= 8
    for line in lines:
        name, *arguments = shlex.split(line)[1:]
        assert name in COMMANDS, line
        group.commands[name].make_context(name, arguments)


def test_every_config_of_the_readme_exists(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"configs/\w+\.yaml", text))
    assert named == {f"configs/{path.name}" for path in (root / "configs").glob("*.yaml")}
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (root / link).exists(), link


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_has_a_sentence(name):
    import typer

    command = typer.main.get_command(cli.app).commands[name]
    assert command.help
    assert all(getattr(parameter, "help", None) for parameter in command.params if parameter.name != "help")
