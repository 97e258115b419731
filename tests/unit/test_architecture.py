import ast
import re
from pathlib import Path

import pytest

from mt_cli import hooks
from mt_cli.config.loading import parse_config
from mt_cli.errors import InputError
from mt_cli.machine.group import Group

ENTRANCES = ("__init__", "translator", "__main__")
"""Modules outside of the order, which only import what they give a name."""
FREE = ("hooks", *ENTRANCES)


def rooms_in(root):
    """The rooms of the package in the order of `docs/design.md`."""
    line = (root / "docs/design.md").read_text(encoding="utf-8").partition("```\n")[2].partition("```")[0]
    return re.split(r"[\s>]+", line.strip())


def room_of(path, package):
    return path.relative_to(package).parts[0].removesuffix(".py")


def imported_names(tree):
    """The full names of what a module imports from the package, by any form of import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.startswith("mt_cli."))


def test_a_room_imports_only_rooms_before_it_and_an_extra_no_other_extra(root):
    """The core imports no extra at all, but through `hooks`."""
    package, rooms = root / "mt_cli", [*rooms_in(root), *ENTRANCES]
    for path in package.rglob("*.py"):
        room, *rest = path.relative_to(package).with_suffix("").parts
        for name in imported_names(ast.parse(path.read_text(encoding="utf-8"))) if room not in FREE else ():
            other, *inner = name.split(".")[1:]
            assert rooms.index(other) <= rooms.index(room), f"{path} imports {name}"
            assert other != "extras" or inner[0] == rest[0], f"{path} imports {name}"


WITH_FALLBACK = {"_foreach_copy_"}
"""Private names of libraries that have a fallback, and a test that fails when they have gone."""


def test_only_private_names_of_libraries_with_a_fallback_are_used(root):
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (root / "mt_cli").rglob("*.py")}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    own = {node.name for _, node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {node.attr for _, node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.id for _, node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for path, node in nodes:
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            is_public = ast.unparse(node) == "os._exit"
            assert is_public or node.attr in own | WITH_FALLBACK, f"{path}:{node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.ImportFrom) and not node.module.startswith("mt_cli"):
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
            assert not any(re.match("_[a-z]", name) for name in names), f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_every_room_is_in_the_order_of_the_design_page_once(root):
    package = root / "mt_cli"
    rooms = {room_of(path, package) for path in package.rglob("*.py")} - {*ENTRANCES}
    assert sorted(rooms_in(root)) == sorted(rooms)


def test_hooks_name_functions_that_exist_as_mypy_knows_them(root):
    """Each hook is imported for mypy from the module that the table names; commands are added by their modules."""
    tree = ast.parse((root / "mt_cli/hooks.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        (alias.asname, node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert typed - {("ParentRun", typed_module("ParentRun", typed)), ("Problem", typed_module("Problem", typed))} == {
        (name, module) for name, (module, _) in hooks.HOOKS.items()
    }
    for name in hooks.HOOKS:
        assert hooks.has(name) and getattr(hooks, name) is not None
    assert {*hooks.FORMATS.values(), *hooks.ENGINES.values()} <= {*hooks.HOOKS}
    assert len(list(hooks.commands())) == len(hooks.COMMANDS)


def typed_module(name, typed):
    """The module of a class that `hooks` imports for annotations alone."""
    return dict(typed)[name]


def test_a_missing_extra_is_refused_by_its_name_and_that_of_the_option(monkeypatch):
    monkeypatch.setitem(hooks.HOOKS, "adopt", ("mt_cli.extras.nothing.parent", "init.run"))
    monkeypatch.setattr(hooks, "COMMANDS", (*hooks.COMMANDS[:2], "mt_cli.extras.nothing.command"))
    assert not hooks.has("adopt")
    assert len(list(hooks.commands())) == 2
    with pytest.raises(InputError, match=r"^init\.run: needs mt_cli\.extras\.nothing, which"):
        _ = hooks.adopt
    with pytest.raises(AttributeError):
        _ = hooks.nothing


CONFIG = {
    "name": "t",
    "corpus": {"source": "en", "target": "it", "train": {"builtin": "reverse-words"}, "valid": {"fraction": 0.1}},
}


@pytest.mark.parametrize(
    ("name", "sections", "num_processes"),
    [
        ("augmented", {"training": {"concatenated_pairs": 0.5}}, 1),
        ("average_at_end", {"training": {"average_checkpoints": 2}}, 1),
        ("resegmented", {"tokenizer": {"algorithm": "bpe", "vocab_size": 500, "bpe_dropout": 0.1}}, 1),
        ("resolve_preset", {"preset": "auto"}, 1),
        ("ShardedState", {"training": {"shard_model": True}}, 2),
        ("tune_at_end", {"training": {"tune_decoding": True}}, 1),
        ("with_replay", {"init": {"run": "runs/other", "replay": 0.5}}, 1),
    ],
)
def test_a_config_with_an_option_of_a_missing_extra_is_refused_before_a_run_begins(
    monkeypatch, tmp_path, name, sections, num_processes
):
    from mt_cli.run.train import train

    option = hooks.HOOKS[name][1]
    monkeypatch.setitem(hooks.HOOKS, name, ("mt_cli.extras.nothing.module", option))
    config = parse_config(CONFIG | sections, "f.yaml")
    with pytest.raises(InputError, match=rf"^{re.escape(option)}: needs mt_cli\.extras\.nothing, which"):
        train(config, tmp_path, group=Group(size=num_processes))
    assert list(tmp_path.iterdir()) == []
    hooks.require_for(parse_config(CONFIG, "f.yaml"), num_processes)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import mt_cli.model.kernels as k", ["mt_cli.model.kernels"]),
        ("from mt_cli import errors, cli", ["mt_cli.errors", "mt_cli.cli"]),
        ("from mt_cli.corpus.reading import Pair", ["mt_cli.corpus.reading.Pair"]),
        ("def f():\n    import mt_cli.cli.main, json", ["mt_cli.cli.main"]),
        ("import torch", []),
    ],
)
def test_every_form_of_import_is_seen(code, names):
    assert list(imported_names(ast.parse(code))) == names


def imports_at_once(path):
    """The full names of what a module imports when it is imported, not in functions or for types alone."""
    nodes = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ClassDef):
            nodes += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
        elif isinstance(node, ast.ImportFrom):
            yield from (name for alias in node.names for name in (node.module, f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize(
    "name", ["mt_cli.config.loading", "mt_cli.corpus.reading", "mt_cli.machine.cpus", "mt_cli.cli.main"]
)
def test_what_reads_configs_and_corpora_does_not_wait_for_torch(root, name):
    """And so `mt --help`, and wrong configs, are answered at once."""
    modules = {".".join(path.relative_to(root).with_suffix("").parts): path for path in (root / "mt_cli").rglob("*.py")}
    seen, found = set(), [name]
    while found:
        module = found.pop()
        if module not in seen:
            seen.add(module)
            found += imports_at_once(modules[module]) if module in modules else []
    assert name in seen and len(seen) > 5
    assert not {each.partition(".")[0] for each in seen} & {"torch", "datasets", "transformers", "matplotlib", "tqdm"}


def test_init_files_import_nothing(root):
    """But that of the package, which imports the translator when it is used."""
    for path in Path(root / "mt_cli").rglob("*/__init__.py"):
        assert all(isinstance(node, ast.Expr) for node in ast.parse(path.read_text(encoding="utf-8")).body)


def test_no_function_is_longer_than_a_screen(root):
    """Commands are an exception: their parameters are the documentation of their options."""
    for path in (root / "mt_cli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                first = node.body[0].lineno if path.parent.name == "cli" or path.name == "command.py" else node.lineno
                assert (node.end_lineno or 0) - first < 45, f"{path}: {node.name}"
