"""The runs that the weights of a run come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mt_cli.checkpoint.state import Ancestor
from mt_cli.checkpoint.trained import TrainedRun


def ancestor_of(run: TrainedRun) -> Ancestor:
    """What the state and the report of a run say about this one, which it began with."""
    return Ancestor(run.config.name, run.config.corpus.languages, run.state.best_step, run.digest, run.state.parents)


def describe_lineage(parents: Sequence[Ancestor], depth: int = 0) -> Iterator[str]:
    """A line for each run that a run comes from, the nearest first, indented by generation."""
    for parent in parents:
        source, target = parent.languages
        indent = "  " * depth
        yield f"{indent}from {parent.run}, {source} to {target}, step {parent.step:,} ({parent.weights[:12]})"
        yield from describe_lineage(parent.parents, depth + 1)
