"""Configs as files: YAML, `--set`, and messages that list every problem.

Precedence: defaults < preset < YAML < `--set`. Values are not converted: a quoted number is text, not a number.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import ValidationError

from mt_cli.config.base import WILL_BE_FILLED, Section
from mt_cli.config.presets import PRESETS, Values, begins_with_run, filled
from mt_cli.config.sections import Config
from mt_cli.config.sources import KINDS
from mt_cli.config.writing import BOOLEAN_TAG, FLOAT, FLOAT_BEGINNINGS, FLOAT_TAG
from mt_cli.errors import ConfigError, one_line
from mt_cli.runtime.files import read_regular, reading

S = TypeVar("S", bound=Section)

MAX_CONFIG_BYTES = 1_000_000


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, except that booleans follow YAML 1.2, `1e-3` is a number, and dates are text.

    A repeated key is an error. An alias is an error too, because a few lines of aliases can expand to gigabytes.
    """

    yaml_implicit_resolvers: ClassVar = {  # type: ignore[misc]
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in (BOOLEAN_TAG, "tag:yaml.org,2002:timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, f"`*{event.anchor}` is an alias; write the value again", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if key.value in names:
                problem = f"the key `{one_line(key.value)}` occurs twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            names.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(FLOAT_TAG, FLOAT, FLOAT_BEGINNINGS)
_Loader.add_implicit_resolver(BOOLEAN_TAG, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read the config of a YAML file and apply overrides such as `section.key=value`.

    Raises ConfigError with every problem, one per line.
    """
    with reading(path, ConfigError):
        content = read_regular(path, MAX_CONFIG_BYTES)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    return config_of_text(text, str(path), overrides)


def config_of_text(text: str, origin: str, overrides: Sequence[str] = ()) -> Config:
    """Parse a config from YAML text; the message of a ConfigError begins with `origin`."""
    tree = parse_yaml(text, origin)
    if not isinstance(tree, dict):
        raise ConfigError(f"{origin}: a config is a mapping with the keys {', '.join(Config.model_fields)}")
    for override in overrides:
        _apply_override(tree, override)
    return parse_config(tree, origin)


def parse_config(tree: Mapping[str, Any], origin: str) -> Config:
    """Parse a config from a tree of plain values; replace a preset by its values.

    The message of a ConfigError begins with `origin`.
    """
    preset = tree.get("preset")
    if isinstance(preset, str) and preset in PRESETS:
        tree = filled(tree, PRESETS[preset])
    try:
        # With `init.run`, values of that run will replace defaults.
        is_incomplete = begins_with_run(tree) and not {"tokenizer", "model"} <= tree.keys()
        return Config.model_validate(tree, context=WILL_BE_FILLED if is_incomplete else None)
    except ValidationError as error:
        lines = _explain(error, tree, Config)
    heading, separator = (f"{origin}: {len(lines)} problems", "\n  ") if len(lines) > 1 else (origin, " ")
    raise ConfigError(f"{heading}:{separator}" + separator.join(lines))


def with_values(config: Config, values: Values) -> Config:
    """Config with these values for options that it does not set; raises ConfigError if they do not fit together."""
    return parse_config(filled(config.model_dump(mode="json", exclude_unset=True), values), "chosen options")


def changed_section(section: S, changes: Mapping[str, Any]) -> S:
    """Change options of a section; None keeps a value. Raises ConfigError with every problem."""
    changes = {key: value for key, value in changes.items() if value is not None}
    if not changes:
        return section
    tree = section.model_dump(mode="json") | changes
    try:
        return type(section).model_validate(tree)
    except ValidationError as error:
        raise ConfigError("; ".join(_explain(error, tree, type(section)))) from None


def flat(tree: Any, name: str = "") -> dict[str, Any]:
    """Values by dotted key, from a config or from a section, list or value called `name`."""
    tree = tree.model_dump(mode="json") if isinstance(tree, Section) else tree
    children: dict[str, Any] = {}
    if isinstance(tree, dict):
        children = {f"{name}.{key}" if name else str(key): child for key, child in tree.items()}
    elif isinstance(tree, list):
        children = {f"{name}[{index}]": child for index, child in enumerate(tree)}
    if not children:
        return {name: tree}
    return {dotted: value for key, child in children.items() for dotted, value in flat(child, key).items()}


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    flat_old, flat_new = flat(old), flat(new)
    keys = dict.fromkeys([*flat_old, *flat_new])
    return {key: (flat_old.get(key), flat_new.get(key)) for key in keys if flat_old.get(key) != flat_new.get(key)}


def parse_yaml(text: str, origin: str) -> Any:
    """Parse a YAML text, which may be untrusted; the message of a ConfigError begins with `origin`."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{origin}, line {mark.line + 1}, column {mark.column + 1}" if mark else origin
        raise ConfigError(f"{where}: not valid YAML: {error.problem}") from None
    except Exception as error:  # PyYAML raises nearly everything for values that their tags do not allow.
        raise ConfigError(f"{origin}: not valid YAML: {one_line(error)}") from None


def section_overrides(overrides: Sequence[str], section: str) -> dict[str, Any]:
    """Values of `section.key=value` overrides by key; raises ConfigError for another section."""
    tree: dict[str, Any] = {}
    for override in overrides:
        _apply_override(tree, override)
        if override.partition(".")[0].strip() != section:
            raise ConfigError(f"--set {override}: only options of the section {section} can be set here")
    return dict(tree.get(section, {}))


def _apply_override(tree: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    *parents, last = dotted.strip().split(".")
    if not equals or not last or not all(parents):
        raise ConfigError(f"--set {override}: write SECTION.KEY=VALUE")
    for parent in parents:
        section = tree.get(parent, {})
        if not isinstance(section, dict):
            raise ConfigError(f"--set {override}: `{parent}` has no keys")
        tree = tree.setdefault(parent, section)
    tree[last] = parse_yaml(text, f"--set {override}")


def _explain(error: ValidationError, tree: Any, root: type[Section]) -> list[str]:
    """Lines with the dotted key of a problem, the value, and what to do."""
    # A list whose items are all wrong is reported as too short, too; the problems of the items are more helpful.
    problems = [item for item in error.errors(include_url=False) if item["type"] != "too_short" or not item["input"]]
    single = ({**item, "msg": line} for item in problems for line in item["msg"].split("\n"))  # See `if_complete`.
    expected: dict[str, dict[str, None]] = {}  # An option with several types has a problem for each of them.
    for found, separator, text in (_explain_problem(item, tree, root).partition("; it should ") for item in single):
        expected.setdefault(found + separator, {})[text] = None
    return [found + " or ".join(texts) for found, texts in expected.items()]


def _explain_problem(problem: Mapping[str, Any], tree: Any, root: type[Section]) -> str:
    dotted, section = _dotted_key(problem["loc"], tree, root)
    where = f"{dotted}: " if dotted else ""
    if problem["type"] == "extra_forbidden":
        key = dotted.rpartition(".")[2]
        near = difflib.get_close_matches(key, section.model_fields, n=1)
        hint = f", did you mean `{near[0]}`?" if near else f"; known here: {', '.join(section.model_fields)}"
        return f"{where}unknown key `{key}`{hint}"
    if problem["type"] == "missing":
        return f"{where}missing; a config needs it"
    message: str = problem["msg"].removeprefix("Value error, ")
    if problem["type"] in ("value_error", "source"):
        has_key = dotted and re.match(r"[a-z_]+: ", message)  # See `without_problems`.
        return f"{dotted}.{message}" if has_key else where + message
    value = repr(problem["input"])
    shown = value if len(value) < 60 else type(problem["input"]).__name__
    message = message[:1].lower() + message[1:].replace("valid tuple", "valid list")
    return f"{where}found {shown}; {re.sub('^(input|string) should', 'it should', message)}"


def _dotted_key(loc: Sequence[str | int], tree: Any, section: type[Section]) -> tuple[str, type[Section]]:
    """Key as written in the file, without tags of unions and indices into single sources, and its section."""
    parts: list[str] = []
    for part in loc:
        if part in KINDS:
            section = KINDS[str(part)]
        elif isinstance(tree, (list | tuple) if isinstance(part, int) else dict):
            parts.append(one_line(part))
            tree = dict(enumerate(tree) if isinstance(part, int) else tree).get(part)
            if part in section.model_fields:
                inner = section.model_fields[str(part)].annotation
                kinds = [kind for kind in (get_args(inner) or (inner,)) if isinstance(kind, type)]
                section = next((kind for kind in kinds if issubclass(kind, Section)), section)
    return ".".join(parts), section
