"""Means of weights: of validated checkpoints, and of related runs as a new run.

Vaswani et al. 2017 (section 6.1) average the last checkpoints; Junczys-Dowmunt et al. 2016 (section 3.3) the best too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path

from mt_cli.checkpoint.checkpoint import Checkpoint
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import Ancestor, RunState, ValidatedStep, best_of, describe_lineage, last_of
from mt_cli.checkpoint.trained import load_together, write_run
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.errors import InputError, RunError
from mt_cli.training.averaging import mean


def steps_to_average(directory: RunDirectory, last: int | None, best: int | None) -> tuple[int, ...]:
    """Steps of the last or the best checkpoints; raises InputError or RunError if there are not enough."""
    if (last is None) == (best is None):
        raise InputError("give --last N or --best N")
    option, number, choose = ("--last", last, last_of) if last is not None else ("--best", best, best_of)
    paths, validations = directory.validated(), list[ValidatedStep]()
    if paths:
        validations = available_validations(directory, Checkpoint(paths[max(paths)]).state)
    most = min(len(validations), directory.config().training.average_checkpoints or 0)
    if most < 2 or number is None or number > most:
        use = f"use a number up to {most}, or " if most >= 2 else ""
        raise RunError(
            f"{option} {number}: {directory.path} keeps the last {most} and the best {most} validated checkpoints, and "
            f"an average needs at least 2; {use}train or resume with a larger training.average_checkpoints and, if "
            "there were few validations, a smaller training.validate_every_steps"
        )
    return tuple(sorted(validation.step for validation in choose(validations, number)))


def available_validations(directory: RunDirectory, state: RunState) -> list[ValidatedStep]:
    paths = directory.validated()
    return [validation for validation in state.validations if validation.step in paths]


def average_runs(paths: Sequence[Path], output: Path) -> list[str]:
    """Write the mean of the weights of related runs as a run into the new folder `output`; return lines for people.

    Means of models that were fine-tuned from one parent are often better than each model (Wortsman et al. 2022, "Model
    soups"). For a single run with adapters, the result is the run with merged adapters. Raises InputError if
    languages, vocabularies or tags differ, or if two runs have no common ancestor: a mean of models that began with
    different random weights is useless.
    """
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError("a run is given twice; give different runs")
    runs = load_together(paths, "a mean")
    if len(runs) == 1 and runs[0].config.init.adapter_rank is None:
        raise InputError(f"{paths[0]}: a single run without adapters; give --run twice or more")
    parents = [run.ancestor for run in runs]
    lineages = [set(known_digests([parent])) for parent in parents]
    for path, lineage in zip(paths[1:], lineages[1:], strict=True):
        if not lineages[0] & lineage:
            raise InputError(
                f"{path}: does not come from the same run as {paths[0]}; give runs that were fine-tuned from one parent"
            )
    model = runs[0].model
    model.load_state_dict(mean((run.model.state_dict() for run in runs), len(runs)))
    max_tokens = max(run.max_tokens for run in runs)
    seen = [run.state.sentences_seen for run in runs if run.state.sentences_seen is not None]
    all_seen = reduce(SentencesSeen.with_other, seen) if len(seen) == len(runs) else None
    write_run(output, runs[0].config, runs[0].tokenizers, model, max_tokens, parents, all_seen)
    title = f"the mean of {len(runs)} runs" if len(runs) > 1 else "the run with merged adapters"
    return [f"{output}: {title}", *describe_lineage(parents, depth=1)]


def known_digests(ancestors: Sequence[Ancestor]) -> Iterator[str]:
    """Digests of the weights of ancestors and their ancestors."""
    for ancestor in ancestors:
        if ancestor.weights:  # Unknown for ancestors of an imported bundle.
            yield ancestor.weights
        yield from known_digests(ancestor.parents)
