import re

import pytest
from command_lines import COMMANDS, parse

from mt_cli.config.sources import FilterConfig
from mt_cli.corpus.formats import BY_SUFFIX


def readme_commands(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^\$ (mt .*)$", text, flags=re.MULTILINE)


def test_every_command_of_the_readme_parses(root):
    lines = readme_commands(root)
    assert len(lines) >= 5
    for line in lines:
        parse(line)


def test_every_config_and_file_of_the_readme_exists(root):
    text = (root / "README.md").read_text(encoding="utf-8")
    configs = re.findall(r"configs/\w+\.yaml", text)
    pictures = re.findall(r'<img src="([^"]+)"', text)
    assert "configs/quickstart.yaml" in configs and len(pictures) == 2
    for link in [*configs, *pictures, *re.findall(r"\]\(([^)#:]+)[)#]", text)]:
        assert (root / link).exists(), link


def test_the_first_two_shell_blocks_of_the_readme_install_and_test(root):
    # .ci/run takes them from there. Each is one command, which may be continued on the next line.
    blocks = re.findall(
        r"^```sh\n(.*?)^```$", (root / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert [block.replace("\\\n", "").count("\n") for block in blocks] == [1, 1]
    assert blocks[0].endswith("mt train --config configs/quickstart.yaml\n") and blocks[1].endswith("pytest\n")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_has_a_sentence(name):
    command = COMMANDS[name]
    assert command.help
    assert all(getattr(parameter, "help", None) for parameter in command.params if parameter.name != "help")


def test_every_filter_and_format_is_documented(root):
    text = (root / "docs/data.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)` \| (\S+) \| \S", text, flags=re.MULTILINE)
    in_yaml = {True: "true", False: "false", None: "null"}
    defaults = {name: in_yaml.get(value, str(value)) for name, value in FilterConfig()}
    assert dict(table) == defaults
    assert [name for name, _ in table] == list(defaults)
    for ending in BY_SUFFIX:
        assert f"`file: a{ending}`" in text
