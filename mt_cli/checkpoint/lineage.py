"""Lineage of a model: the runs, and imported models, whose weights its run began with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class Ancestor:
    """Run whose weights another run, or an average of runs, began with."""

    run: str
    languages: tuple[str, str]
    step: int
    weights: str
    """SHA-256 of the checkpoint."""
    parents: list[Ancestor] = field(default_factory=list)
    license: str | None = None
    """Licence of an imported model, by its model card."""


def describe_lineage(parents: Sequence[Ancestor], depth: int = 0) -> Iterator[str]:
    """Describe each ancestor of a run in a line, the nearest first, indented by generation."""
    for parent in parents:
        source, target = parent.languages
        indent = "  " * depth
        licence = f", licence {parent.license}" if parent.license else ""
        yield f"{indent}from {parent.run}, {source} to {target}, step {parent.step:,} ({parent.weights[:12]}){licence}"
        yield from describe_lineage(parent.parents, depth + 1)


def licences_of(parents: Sequence[Ancestor]) -> dict[str, str]:
    """Licences of imported models among the ancestors of a run, by their names."""
    licences = {parent.run: parent.license for parent in parents if parent.license}
    for parent in parents:
        licences |= licences_of(parent.parents)
    return licences
