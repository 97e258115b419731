"""Several translation directions from one config: `corpus.both_directions` and `tag: to_target`, written out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

TO_TARGET = "to_target"
"""The value of `tag` that stands for a tag with the target language."""
_GROUPS = ("train", "valid", "test")


def tag_of(language: str) -> str:
    """The tag that asks for a translation into a language: `<2gn>` (Johnson et al. 2017)."""
    return f"<2{language}>"


def targets_of(tags: Sequence[str]) -> list[str]:
    """The target languages that tags of a model ask for."""
    return [tag[2:-1] for tag in tags if tag.startswith("<2") and tag.endswith(">")]


def written_out(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tree of `corpus`, with a source for each direction, and with the tags themselves.

    With `both_directions`, the sources of each list are followed by the same ones with `reverse`. Values of a wrong
    type are left as they are, for validation to explain.
    """
    both, tag = str(tree.get("both_directions")).lower() in ("true", "yes", "on"), tree.get("tag")
    tags = [tag, *(source.get("tag") for _, sources in _lists_of(tree) for source in sources)]
    if not both and TO_TARGET not in tags:
        return tree
    default = tree.get("source"), tree.get("target")
    changed: dict[str, Any] = {"both_directions": False, "tag": None if tag == TO_TARGET else tag}
    extra: dict[str, Any] = {}
    for name, sources in _lists_of(tree):
        reverse = [_reversed(source, default) for source in sources] if both else []
        found = [_with_tag(source, tag, default) for source in (*sources, *reverse)]
        (changed if name in _GROUPS else extra)[name] = found
    return {**tree, **changed} | ({"extra_tests": {**tree["extra_tests"], **extra}} if extra else {})


def _lists_of(tree: Mapping[str, Any]) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    """The sources of each corpus that has sources of its own."""
    extra = tree.get("extra_tests")
    groups = {name: tree.get(name) for name in _GROUPS} | (dict(extra) if isinstance(extra, Mapping) else {})
    for name, value in groups.items():
        sources = list(value) if isinstance(value, list | tuple) else [value]
        if all(isinstance(source, Mapping) and "fraction" not in source for source in sources):
            yield name, sources


def _reversed(source: Mapping[str, Any], default: tuple[Any, Any]) -> Mapping[str, Any]:
    first, second = _languages_of(source, default)
    own = {"languages": [second, first], "reverse": not source.get("reverse", False)}
    return {**source, **own} | ({"name": f"{source['name']} reversed"} if source.get("name") else {})


def _with_tag(source: Mapping[str, Any], tag: Any, default: tuple[Any, Any]) -> Mapping[str, Any]:
    own = tag if source.get("tag") is None else source["tag"]
    return {**source, "tag": tag_of(_languages_of(source, default)[1])} if own == TO_TARGET else source


def _languages_of(source: Mapping[str, Any], default: tuple[Any, Any]) -> tuple[Any, Any]:
    given = source.get("languages")
    return (given[0], given[1]) if isinstance(given, list | tuple) and len(given) == 2 else default
