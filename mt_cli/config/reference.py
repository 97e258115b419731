"""The documentation and the JSON schema of a config, made from the docstrings of its options.

    python -m mt_cli.config.reference

writes `docs/configuration.md` and `configs/schema.json`. A test fails if they are not current.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from mt_cli.config.base import Section
from mt_cli.config.sections import Config, may_change
from mt_cli.config.sources import KINDS, TextSource

_INTRODUCTION = """# Configuration

Every option, written by `python -m mt_cli.config.reference`. The YAML file overrides the defaults, and
`--set SECTION.KEY=VALUE` the file. `null` means "off" or "no limit". Options marked with * may change when a run
resumes. With [`schema.json`](../configs/schema.json), editors complete and check a file.

## Outside of sections
"""
_CORPORA = """
## Corpora

A corpus is one of these mappings, or a list of them. Each may have these keys too:
"""


def reference() -> str:
    _describe_options()
    lines = [_INTRODUCTION, *_table(Config, names=["name", "preset"])]
    sections: list[tuple[str, Any]] = [(name, field.annotation) for name, field in Config.model_fields.items()]
    for name, section in sections:
        if isinstance(section, type) and issubclass(section, Section):
            lines += ["", f"## `{name}`", "", _text(section.__doc__), "", *_table(section, f"{name}.")]
    lines += [_CORPORA, *_table(TextSource)]
    for tag, kind in KINDS.items():
        key = tag.strip("<>")
        options = [name for name in kind.model_fields if name not in (key, *TextSource.model_fields)]
        options.sort(key=lambda name: name not in kind.__annotations__)  # Inherited options come last.
        lines += ["", f"### `{key}`", "", _text(kind.__doc__), "", *_table(kind, names=[key, *options])]
    return "\n".join(lines) + "\n"


def schema() -> str:
    _describe_options()
    return json.dumps(Config.model_json_schema(), indent=1, ensure_ascii=False) + "\n"


@cache
def _describe_options(section: type[Section] = Section) -> None:
    """Make the docstrings of options their descriptions, in all sections.

    Pydantic's `use_attribute_docstrings` does so when a class is made, and every command would wait for it.
    """
    for kind in section.__subclasses__():
        for base in kind.__mro__[: kind.__mro__.index(Section)]:
            for name, text in _docstrings(base).items():
                kind.model_fields[name].description = text
        kind.model_rebuild(force=True)
        _describe_options(kind)


def _docstrings(section: type) -> dict[str, str]:
    (tree,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        option.target.id: inspect.cleandoc(text.value.value)
        for option, text in pairwise(tree.body)
        if isinstance(option, ast.AnnAssign) and isinstance(option.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _table(section: type[Section], prefix: str = "", names: list[str] | None = None) -> Iterator[str]:
    yield "| option | default; other values | meaning |"
    yield "|---|---|---|"
    for name in names or section.model_fields:
        field = section.model_fields[name]
        label = f"`{name}`{' *' if may_change(prefix + name) else ''}"
        values = "; ".join(filter(None, (_default(field), _values(field))))
        cells = (label, values, _text(field.description))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return "" if isinstance(value, Section) else f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _values(field: FieldInfo) -> str:
    """The other choices of an option, or its limits without obvious ones and those that only keep numbers finite."""
    inner = get_args(field.annotation)
    for option in (field.annotation, *inner, *chain.from_iterable(map(get_args, inner))):
        if get_origin(option) is Literal:
            return ", ".join(f"`{choice}`" for choice in get_args(option) if choice and choice != field.default)
    words = {"ge": "from", "gt": "more than", "le": "to", "lt": "less than"}
    limits = ((word, getattr(limit, name, None)) for limit in field.metadata for name, word in words.items())
    text = " ".join(f"{word} {value:,}" for word, value in limits if value == 0 or 1e-3 <= (value or 0) <= 1e5)
    return "" if text in ("from 0", "from 1") else text


def _text(docstring: str | None) -> str:
    return " ".join((docstring or "").split())


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    (root / "docs" / "configuration.md").write_text(reference(), encoding="utf-8")
    (root / "configs" / "schema.json").write_text(schema(), encoding="utf-8")
