"""Directives of reStructuredText by what their arguments and bodies hold; all others stay as they are."""

from __future__ import annotations

from enum import Enum

_BODY = """
    attention caution danger error hint important note tip warning seealso todo impl-detail compound container epigraph
    highlights pull-quote tab-set grid
"""
_TITLED = "admonition topic sidebar rubric centered contents list-table tab-item dropdown card tab grid-item-card"
_VERSION = "versionadded versionchanged deprecated versionremoved"
_ARGUMENT = """
    figure only class rst-class function method staticmethod classmethod attribute property data exception decorator
    decoratormethod describe object option envvar confval module setting templatetag templatefilter opcode pdbcommand
    cmdoption type
"""


class Directive(Enum):
    """Place of the text of a directive."""

    BODY = "the body, which may begin on the first line"
    TITLED = "the argument, and the body"
    VERSION = "what follows the version"
    VERSIONS = "what follows two versions"
    ARGUMENT = "the body, without the argument"


_KINDS = {
    name: kind
    for kind, names in {
        Directive.BODY: _BODY,
        Directive.TITLED: _TITLED,
        Directive.VERSION: _VERSION,
        Directive.VERSIONS: "deprecated-removed",
        Directive.ARGUMENT: _ARGUMENT,
    }.items()
    for name in names.split()
}
_DOMAINS = ("py:", "c:", "cpp:", "js:", "rst:", "http:", "std:")


def directive_of(name: str) -> Directive | None:
    """Kind of a directive, or None if it has no text; those of domains describe objects."""
    name = name.lower()
    return _KINDS.get(name, Directive.ARGUMENT if name.startswith(_DOMAINS) else None)
