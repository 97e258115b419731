"""The config described for people and for editors, out of its own docstrings.

    python -m mt_cli.config.reference

writes `docs/configuration.md` and `configs/schema.json` anew; a test keeps both current.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from mt_cli.config.corpora import KINDS, CorpusConfig, FilterConfig, Section, TextSource
from mt_cli.config.sections import Config, DecodingConfig, ModelConfig, TokenizerConfig, TrainingConfig

_INTRODUCTION = """# Configuration

Every option of a run, made from the docstrings in `mt_cli/config` by `python -m mt_cli.config.reference`. Defaults are
overridden by the YAML file, and that by `--set SECTION.KEY=VALUE`. `null` stands for "off" or "no limit". The first
line of a config in `configs/` names [`schema.json`](../configs/schema.json), with which editors that know YAML schemas
complete and check as you type.
"""
_SECTIONS: dict[str, type[Section]] = {
    "corpus": CorpusConfig,
    "corpus.filters": FilterConfig,
    "tokenizer": TokenizerConfig,
    "model": ModelConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}


def reference() -> str:
    """The page, in Markdown."""
    lines = [_INTRODUCTION, "## The whole", "", *_table(Config)]
    for name, section in _SECTIONS.items():
        lines.extend(["", f"## `{name}`", "", _text(section.__doc__), "", *_table(section)])
    lines.extend(
        [
            "",
            "## Corpora",
            "",
            "A corpus is one of these mappings, or a list of them. Each may have these keys too:",
            "",
        ]
    )
    lines.extend(_table(TextSource))
    for kind in KINDS.values():
        own = [name for name in kind.model_fields if name not in TextSource.model_fields]
        lines.extend(["", f"### `{own[0]}`", "", _text(kind.__doc__), "", *_table(kind, own)])
    return "\n".join(lines) + "\n"


def schema() -> str:
    """The JSON schema of a config file."""
    return json.dumps(Config.model_json_schema(), indent=1, ensure_ascii=False) + "\n"


def _table(section: type[Section], names: list[str] | None = None) -> Iterator[str]:
    yield "| option | default | values | meaning |"
    yield "|---|---|---|---|"
    for name, field in section.model_fields.items():
        if names is None or name in names:
            cells = (f"`{name}`", _default(field), _values(field), _text(field.description))
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if field.is_required():
        return "required"
    if isinstance(value, Section):
        return "see below"
    plain = list(value) if isinstance(value, tuple) else value
    return f"`{json.dumps(plain)}`"


def _values(field: FieldInfo) -> str:
    """What may stand there, as far as the type says more than the default does."""
    options = [field.annotation, *get_args(field.annotation)]
    choices = next((get_args(option) for option in options if get_origin(option) is Literal), ())
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    words = {"ge": "from", "gt": "more than", "le": "to", "lt": "less than"}
    limits = ((word, getattr(limit, name, None)) for limit in field.metadata for name, word in words.items())
    return " ".join(f"{word} {value:,}" for word, value in limits if value is not None)


def _text(docstring: str | None) -> str:
    return " ".join((docstring or "").replace("None:", "`null`:").split())


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    (root / "docs" / "configuration.md").write_text(reference(), encoding="utf-8")
    (root / "configs" / "schema.json").write_text(schema(), encoding="utf-8")
