import ast
import json
import re

import jsonschema
import pytest
import yaml
from command_lines import COMMANDS, parse

from mt_cli.cli.reference import reference as commands_page
from mt_cli.config.reference import reference, schema
from mt_cli.evaluation.texts import METRICS
from mt_cli.features.inspection.page import better_values


def test_the_pages_made_from_the_config_are_current(root):
    advice = "run python -m mt_cli.config.reference"
    assert (root / "docs/configuration.md").read_text(encoding="utf-8") == reference(), advice
    assert (root / "configs/schema.json").read_text(encoding="utf-8") == schema(), advice


def test_the_section_of_each_kind_of_source_begins_with_the_key_that_selects_it():
    for key in ("dataset", "files", "file", "folder", "builtin", "fraction"):
        assert re.search(rf"### `{key}`\n\n.+\n\n.+\n.+\n\| `{key}` \| required", reference()), key


def test_the_page_of_the_commands_is_current(root):
    text = (root / "docs/commands.md").read_text(encoding="utf-8")
    assert text == commands_page(), "run python -m mt_cli.cli.reference"


def test_the_page_of_the_commands_has_a_section_and_a_link_for_each(root):
    text = (root / "docs/commands.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## `mt ?(.*)`$", text, flags=re.MULTILINE)
    assert titles[0] == "" and sorted(titles[1:]) == sorted(map(" ".join, COMMANDS))
    for title in titles[1:]:
        assert f"[`{title}`](#mt-{title.replace(' ', '-')})" in text
    for status in ("0", "1", "2", "130"):
        assert f"\n| {status} | " in text


def test_every_example_on_the_page_of_the_commands_parses(root):
    text = (root / "docs/commands.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)```$", text, flags=re.MULTILINE | re.DOTALL)
    examples = [line for block in blocks for line in block.splitlines()]
    assert len(examples) > 25 and {parse(line)[0] for line in examples} == {*COMMANDS}


def test_every_option_has_a_sentence():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 70
    for row in rows:
        assert re.search(r"\| [A-Z`].{10,} \|$", row), row
    assert all(
        "description" in field for field in json.loads(schema())["$defs"]["TrainingConfig"]["properties"].values()
    )


def test_every_shipped_config_names_the_schema(root):
    for path in (root / "configs").glob("*.yaml"):
        assert path.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=schema.json\n"), path


def test_the_schema_takes_every_shipped_config_and_refuses_unknown_keys(root):
    validator = jsonschema.Draft202012Validator(json.loads(schema()))
    for path in (root / "configs").glob("*.yaml"):
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert not list(validator.iter_errors(tree)), path
        tree["model"]["num_head"] = 3
        assert ["num_head" in error.message for error in validator.iter_errors(tree)] == [True]


def names_in(tree, prefix=""):
    """Names of functions, classes, methods and fields of a module."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from names_in(node, prefix + node.name + ".")
        elif isinstance(node, ast.AnnAssign):
            yield prefix + ast.unparse(node.target)
        elif isinstance(node, ast.Assign):
            yield from (prefix + ast.unparse(target) for target in node.targets)


def test_every_part_of_the_transformer_is_where_the_design_says(root):
    text = (root / "docs/design.md").read_text(encoding="utf-8")
    table = text.partition("| part | file | symbols | source |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert len(rows) >= 10
    for part, files, symbols, _ in rows:
        paths = [root / "mt_cli" / name for name in re.findall(r"`([^`]+)`", files)]
        there = {name for path in paths for name in names_in(ast.parse(path.read_text(encoding="utf-8")))}
        missing = set(re.findall(r"`([^`]+)`", symbols)) - there
        assert not missing, f"{part}: {missing}"


def test_every_symbol_and_file_of_how_it_works_is_there(root):
    text = (root / "docs/how_it_works.md").read_text(encoding="utf-8")
    for path in re.findall(r"`(mt_cli/[\w/]+\.py)`", text):
        assert (root / path).is_file(), path
    code = "".join(path.read_text(encoding="utf-8") for path in (root / "mt_cli").rglob("*.py"))
    names = re.findall(r"`([A-Z][A-Za-z]+(?:\.\w+)?|[a-z]+_[a-z_]+)`", text)
    assert len(names) >= 15
    for name in names:
        assert re.search(rf"(def|class) {name.rpartition('.')[2]}\b|\b{name.rpartition('.')[2]}\s*[:=]", code), name


def test_the_page_of_benchmarks_has_a_place_for_the_table_of_gpus(root):
    text = (root / "docs/benchmarks.md").read_text(encoding="utf-8")
    assert re.findall("<!-- gpu:(begin|end) -->", text) == ["begin", "end"]


def anchors_of(page):
    """The anchors of a page's headings, made as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def test_links_between_pages_lead_somewhere(root):
    for page in [*(root / "docs").glob("*.md"), root / "README.md", root / "CHANGELOG.md", root / "tests/README.md"]:
        for link, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", page.read_text(encoding="utf-8")):
            target = page.parent / link if link else page
            assert target.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors_of(target), f"{page.name}: {link}#{anchor}"


HOW_TO = ["tutorial", "few_pairs", "localisation", "fine_tuning", "compare", "translating", "scaling"]
TERM = re.compile(r"\b(BLEU|chrF|TER|greedy|beam|epoch|checkpoint)\b")


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}.md" for name in HOW_TO)])
def test_a_page_leads_to_the_glossary_no_later_than_its_first_term(root, page):
    text = re.sub(r"^```.*?^```$|`[^`]*`", "", (root / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    first = TERM.search(text)
    end_of_paragraph = text.find("\n\n", first.start())
    assert "glossary.md" in text[:end_of_paragraph], first[0]


def test_the_glossary_says_for_every_metric_which_values_are_better(root):
    text = (root / "docs/glossary.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    better = {name: row[-1] for row in rows for name in row[0].split(", ")}
    for metric, label in METRICS.items():
        assert better[label] == better_values(metric)
