"""Configs as files: YAML, `--set`, and messages that name every problem.

Precedence: defaults < YAML < `--set`. Values are taken literally (a quoted number is text and is refused where a number
is wanted), and all problems of a config are reported at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args

import yaml
from pydantic import ValidationError

from mt_cli.config.corpora import KINDS, Section
from mt_cli.config.sections import Config
from mt_cli.errors import ConfigError

S = TypeVar("S", bound=Section)

MAX_CONFIG_BYTES = 1_000_000
_MAX_ALIASES = 30


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but: 1e-3 is a number, dates are text, a key stands once, aliases are few."""

    num_aliases = 0

    yaml_implicit_resolvers: ClassVar = {  # type: ignore[misc]
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """A node; raises ComposerError where a few lines of aliases of aliases would expand to millions of values."""
        if self.check_event(yaml.AliasEvent):
            self.num_aliases += 1
            if self.num_aliases > _MAX_ALIASES:
                mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
                raise yaml.composer.ComposerError(None, None, f"more than {_MAX_ALIASES} aliases", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A dict; raises ConstructorError for a key that stands twice."""
        seen = set()
        for key_node, _ in node.value:
            if key_node.value in seen and key_node.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key `{key_node.value}` stands twice", key_node.start_mark
                )
            seen.add(str(key_node.value))
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """The config of a YAML file, with `section.key=value` overrides applied.

    Raises:
        ConfigError: with every problem found, one a line.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)  # A device has no size that could be asked for.
        if len(content) > MAX_CONFIG_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_CONFIG_BYTES:,} bytes; that is no config")
        text = content.decode("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config file") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    tree = _parse_yaml(text, str(path))
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: a config is a mapping with the keys {', '.join(Config.model_fields)}")
    for override in overrides:
        _apply_override(tree, override)
    return parse_config(tree, str(path))


def parse_config(tree: Mapping[str, Any], origin: str) -> Config:
    """The config of a tree of plain values; `origin` begins the message of a ConfigError."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # A list whose items are all wrong is reported as too short as well: the items say it better.
        lines = [_explain(p, tree) for p in problems if p["type"] != "too_short" or not p["input"]]
    heading = f"{origin}: {len(lines)} problems" if len(lines) > 1 else origin
    separator = "\n  " if len(lines) > 1 else " "
    raise ConfigError(f"{heading}:{separator}" + separator.join(dict.fromkeys(lines)))


def changed_section(section: S, changes: Mapping[str, Any]) -> S:
    """The section with other values for some of its options; None leaves one as it is.

    Raises:
        ConfigError: with every problem found.
    """
    given = {key: value for key, value in changes.items() if value is not None}
    if not given:
        return section
    tree = section.model_dump(mode="json") | given
    try:
        return type(section).model_validate(tree)
    except ValidationError as error:
        lines = [_explain(problem, tree, type(section)) for problem in error.errors(include_url=False)]
    raise ConfigError("; ".join(dict.fromkeys(lines)))


def flat(config: Section, name: str = "") -> dict[str, Any]:
    """Dotted keys of a config, or of the section of that name, with their values."""
    return _flatten(config.model_dump(mode="json"), name)


def differences(old: Config, new: Config) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ, with the old and the new value."""
    flat_old, flat_new = flat(old), flat(new)
    keys = dict.fromkeys([*flat_old, *flat_new])
    return {key: (flat_old.get(key), flat_new.get(key)) for key in keys if flat_old.get(key) != flat_new.get(key)}


def _flatten(tree: Any, prefix: str = "") -> dict[str, Any]:
    children: dict[str, Any] = {}
    if isinstance(tree, dict):
        children = {f"{prefix}.{key}" if prefix else str(key): child for key, child in tree.items()}
    elif isinstance(tree, list):
        children = {f"{prefix}[{index}]": child for index, child in enumerate(tree)}
    if not children:
        return {prefix: tree}
    return {dotted: value for key, child in children.items() for dotted, value in _flatten(child, key).items()}


def _parse_yaml(text: str, origin: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{origin}, line {mark.line + 1}, column {mark.column + 1}" if mark else origin
        raise ConfigError(f"{where}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: not valid YAML: {str(error).splitlines()[0]}") from None


def section_overrides(overrides: Sequence[str], section: str) -> dict[str, Any]:
    """What `section.key=value` overrides say, by key; raises ConfigError for another section."""
    tree: dict[str, Any] = {}
    for override in overrides:
        _apply_override(tree, override)
        if [*tree] != [section]:
            raise ConfigError(f"--set {override}: only options of the section {section} can be set here")
    return dict(tree.get(section, {}))


def _apply_override(tree: dict[str, Any], override: str) -> None:
    dotted, equals, text = override.partition("=")
    *parents, last = dotted.strip().split(".")
    if not equals or not last or not all(parents):
        raise ConfigError(f"--set {override}: write SECTION.KEY=VALUE")
    for parent in parents:
        child = tree.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {override}: `{parent}` holds no keys")
        tree = child
    tree[last] = _parse_yaml(text, f"--set {override}")


def _explain(problem: Mapping[str, Any], tree: Any, root: type[Section] = Config) -> str:
    """One line for a pydantic problem: dotted key, what was found, what to do."""
    dotted, section = _dotted_key(problem["loc"], tree, root)
    kind, found = problem["type"], problem["input"]
    where = f"{dotted}: " if dotted else ""
    if kind == "extra_forbidden":
        key = dotted.rpartition(".")[2]
        near = difflib.get_close_matches(key, section.model_fields if section else (), n=1)
        known = ", ".join(section.model_fields) if section else ""
        hint = f", did you mean `{near[0]}`?" if near else f"; known here: {known}"
        return f"{where}unknown key `{key}`{hint}"
    if kind == "missing":
        return f"{where}missing; a config needs it"
    message: str = problem["msg"].removeprefix("Value error, ")
    if kind in ("value_error", "source"):
        return where + message
    message = message[:1].lower() + message[1:]
    shown = repr(found) if len(repr(found)) < 60 else type(found).__name__
    return f"{where}found {shown}; {message.replace('input should', 'it should')}"


def _dotted_key(loc: Sequence[str | int], tree: Any, root: type[Section]) -> tuple[str, type[Section] | None]:
    """The key as the user wrote it (no union tags, no index into a single source) and its section's model."""
    parts: list[str] = []
    section: type[Section] | None = root
    for position, part in enumerate(loc):
        if part in KINDS or part == "<source>":
            section = KINDS.get(str(part), section)
        elif isinstance(part, int) and not isinstance(tree, list | tuple):
            continue
        else:
            parts.append(str(part))
            if isinstance(tree, dict):
                tree = tree.get(part)
            elif isinstance(tree, list | tuple) and isinstance(part, int) and part < len(tree):
                tree = tree[part]
            if position < len(loc) - 1 and section is not None and part in section.model_fields:
                inner = section.model_fields[str(part)].annotation
                kinds = [kind for kind in (get_args(inner) or (inner,)) if isinstance(kind, type)]
                section = next((kind for kind in kinds if issubclass(kind, Section)), section)
    return ".".join(parts), section
