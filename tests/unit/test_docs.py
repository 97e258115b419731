"""Pages agree with the program: what is generated is current, and what is named exists."""

import ast
import importlib
import json
import re
from decimal import ROUND_HALF_UP, Decimal
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
import yaml
from command_lines import COMMANDS, parse

from mt_cli.cli.reference import reference as commands_page
from mt_cli.config.reference import reference, schema
from mt_cli.config.sources import FilterConfig
from mt_cli.corpus.formats import suffix_of


def read(path):
    return path.read_text(encoding="utf-8")


def test_the_pages_made_from_the_program_are_current(root):
    assert read(root / "docs/configuration.md") == reference(), "run python -m mt_cli.config.reference"
    assert read(root / "configs/schema.json") == schema(), "run python -m mt_cli.config.reference"
    assert read(root / "docs/commands.md") == commands_page(), "run python -m mt_cli.cli.reference"


def test_the_page_of_the_commands_has_a_section_with_an_example_for_each(root):
    text = read(root / "docs/commands.md")
    assert {*map(" ".join, COMMANDS)} <= {*re.findall(r"^#+ `mt ?(.*)`$", text, flags=re.MULTILINE)}
    assert {parse(line)[0] for line in re.findall(r"^    (mt .*)$", text, flags=re.MULTILINE)} == {*COMMANDS}
    for status in ("0", "1", "2", "130"):
        assert f"\n| {status} | " in text


def test_every_option_of_a_config_has_a_sentence():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 70
    assert [row for row in rows if not re.search(r"\| [A-Z`].{10,} \|$", row)] == []
    assert all(
        "description" in field for field in json.loads(schema())["$defs"]["TrainingConfig"]["properties"].values()
    )


@pytest.mark.parametrize("name", sorted(COMMANDS), ids=" ".join)
def test_every_command_and_option_has_a_sentence(name):
    command = COMMANDS[name]
    assert command.help
    assert all(getattr(parameter, "help", None) for parameter in command.params if parameter.name != "help")


def test_the_schema_takes_every_shipped_config_and_refuses_unknown_keys(root):
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    for path in (root / "configs").glob("*.yaml"):
        assert read(path).startswith("# yaml-language-server: $schema=schema.json\n"), path
        tree = yaml.safe_load(read(path))
        assert not list(validator.iter_errors(tree)), path
        tree["model"]["num_head"] = 3
        assert ["num_head" in error.message for error in validator.iter_errors(tree)] == [True]


def anchors_of(page):
    """The anchors of a page's headings, made as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", read(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def test_links_between_pages_and_names_of_files_lead_somewhere(root):
    for page in [*(root / "docs").glob("*.md"), root / "README.md", root / "CHANGELOG.md", root / "tests/README.md"]:
        text = read(page)
        for link, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", text):
            target = page.parent / link if link else page
            assert target.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors_of(target), f"{page.name}: {link}#{anchor}"
        if page.name != "CHANGELOG.md":
            files = re.findall(r"`((?:mt_cli|configs)/[\w/]+\.\w+)`", text)
            assert [file for file in files if not (root / file).exists()] == [], page.name


def test_every_command_of_the_readme_parses_and_every_file_of_it_exists(root):
    text = read(root / "README.md")
    lines = re.findall(r"^\$ (mt .*)$", text, flags=re.MULTILINE)
    assert len(lines) >= 5 and all(map(parse, lines))
    configs, pictures = re.findall(r"configs/\w+\.yaml", text), re.findall(r'<img src="([^"]+)"', text)
    assert "configs/quickstart.yaml" in configs and len(pictures) == 2
    assert all((root / path).exists() for path in configs + pictures)


def test_the_first_two_shell_blocks_of_the_readme_install_and_test(root):
    # .ci/run takes them from there. Each is one command, which may be continued on the next line.
    blocks = re.findall(r"^```sh\n(.*?)^```$", read(root / "README.md"), re.MULTILINE | re.DOTALL)
    assert [block.replace("\\\n", "").count("\n") for block in blocks] == [1, 1]
    assert blocks[0].endswith("mt train --config configs/quickstart.yaml\n") and blocks[1].endswith("pytest\n")


def test_every_filter_is_documented_with_its_default_and_every_documented_format_is_known(root):
    text = read(root / "docs/data.md")
    in_yaml = {True: "true", False: "false", None: "null"}
    defaults = {name: in_yaml.get(value, str(value)) for name, value in FilterConfig()}
    assert re.findall(r"^\| `(\w+)` \| (\S+) \| \S", text, flags=re.MULTILINE) == [*defaults.items()]
    endings = re.findall(r"`file: a(\.\w+)`", text)
    assert len(endings) >= 7 and all(suffix_of(Path(f"a{ending}")) == ending for ending in endings)


FIGURE = re.compile(r"(?<![\d.,])(\d[\d,]*(?:\.\d+)?)\*{0,2}(?:\s[^\s<|\d]+){0,3}<!-- figure: (\w+) -->")


def test_pages_show_the_recorded_figures(root):
    """A comment after a number names its figure in `figures.json`; the page may round it."""
    figures = json.loads(read(root / "docs/figures.json"))
    texts = [read(page) for page in [root / "README.md", *(root / "docs").glob("*.md")]]
    shown = [match.groups() for text in texts for match in FIGURE.finditer(text)]
    assert len(shown) == sum(text.count("<!-- figure:") for text in texts)
    assert {name for _, name in shown} == {*figures}
    for number, name in shown:
        number = Decimal(number.replace(",", ""))
        assert Decimal(str(figures[name]["value"])).quantize(number, ROUND_HALF_UP) == number, name


def test_benchmarks_import_names_that_exist(root):
    for path in (root / "tests/benchmarks").glob("*.py"):
        for node in ast.walk(ast.parse(read(path))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mt_cli"):
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name) or find_spec(f"{node.module}.{name.name}"), (path, name.name)
