"""Pages agree with the program: what is generated is current, and what is named exists."""

import json
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import jsonschema
import yaml
from command_lines import COMMANDS, parse

from mt_cli.cli.reference import reference as commands_page
from mt_cli.config.loading import load_config
from mt_cli.config.reference import reference, schema
from mt_cli.config.sources import FilterConfig
from mt_cli.corpus.formats.table import suffix_of


def read(path):
    return path.read_text(encoding="utf-8")


def test_the_pages_made_from_the_program_are_current(root):
    assert read(root / "docs/configuration.md") == reference(), "run python -m mt_cli.config.reference"
    assert read(root / "configs/schema.json") == schema(), "run python -m mt_cli.config.reference"
    assert read(root / "docs/commands.md") == commands_page(), "run python -m mt_cli.cli.reference"


def test_every_command_and_option_has_a_sentence():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 70
    assert [row for row in rows if not re.search(r"\| [A-Z`].{10,} \|$", row)] == []
    for name, command in COMMANDS.items():
        assert command.help, name
        parameters = [parameter for parameter in command.params if parameter.name != "help"]
        assert [parameter.name for parameter in parameters if not getattr(parameter, "help", None)] == [], name


def test_shipped_configs_load_and_fit_the_schema(root):
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    paths = [*(root / "configs").glob("*.yaml")]
    assert paths
    for path in paths:
        assert read(path).startswith("# yaml-language-server: $schema=schema.json\n"), path
        assert not list(validator.iter_errors(yaml.safe_load(read(path)))), path
        assert load_config(path).name == path.stem


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


def test_commands_and_files_of_the_readme_exist(root):
    text = read(root / "README.md")
    lines = re.findall(r"^\$ (mt .*)$", text, flags=re.MULTILINE)
    assert len(lines) >= 5 and all(map(parse, lines))
    configs, pictures = re.findall(r"configs/\w+\.yaml", text), re.findall(r'src(?:set)?="([^"]+)"', text)
    assert "configs/quickstart.yaml" in configs and len(pictures) == 3
    assert all((root / path).exists() for path in configs + pictures)


def test_documented_filters_and_formats_are_those_of_the_program(root):
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
