"""Values written as YAML that `config/loading.py` reads back unchanged."""

from __future__ import annotations

import re
from typing import Any

import yaml

FLOAT = re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$")
"""A number with an exponent, which YAML 1.1 takes for text unless it has a dot and a sign."""
FLOAT_TAG, FLOAT_BEGINNINGS = "tag:yaml.org,2002:float", list("-+0123456789")
BOOLEAN_TAG = "tag:yaml.org,2002:bool"
_LINE_BREAKS = frozenset("\n\x85\u2028\u2029")


class _Dumper(yaml.SafeDumper):
    """Quotes text that would be read as a number, or as a boolean of YAML 1.1, and escapes line breaks.

    Line breaks would be read as spaces. Values that occur twice are written twice, without aliases.
    """

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if _LINE_BREAKS & set(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_implicit_resolver(FLOAT_TAG, FLOAT, FLOAT_BEGINNINGS)
_Dumper.add_implicit_resolver(BOOLEAN_TAG, re.compile("^[yYnN]$"), list("yYnN"))  # PyYAML takes only these for text.
_Dumper.add_representer(str, _represent_text)


def to_yaml(tree: Any) -> str:
    return str(yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110))


def on_one_line(value: Any) -> str:
    text = yaml.dump([value], Dumper=_Dumper, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**9)
    return str(text).strip()[1:-1]
