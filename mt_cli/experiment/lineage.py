"""Where the weights of a run come from: the runs that it began with, and those that these began with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from mt_cli.averaging import mean
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.files import save_checkpoint
from mt_cli.checkpoint.state import Ancestor, RunState
from mt_cli.checkpoint.trained import TrainedRun, load_together
from mt_cli.config.sections import Config, InitConfig
from mt_cli.errors import InputError, RunError
from mt_cli.model.transformer import Transformer
from mt_cli.storage import new_folder, real_path
from mt_cli.tokenizer import TokenizerPair

UNKNOWN_CORPUS = "corpus of an imported model (unknown).tsv"
"""Stands in the config of an imported run for the corpus that it was trained on."""


def is_imported(config: Config) -> bool:
    """Whether the config is that of an imported run, whose corpora are not known."""
    return any(getattr(source, "file", None) == UNKNOWN_CORPUS for source in config.corpus.train)


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


def average_runs(paths: Sequence[Path], output: Path) -> list[str]:
    """Write the mean of the weights of related runs as a run into the new folder `output`; return lines for people.

    Means of models that were fine-tuned from one parent are often better than each (Wortsman et al. 2022, "Model
    soups"). Of one run with adapters, this is the run with merged adapters. Raises InputError if languages or
    vocabularies differ, or two runs have no common ancestor: a mean of models that began with different random weights
    is of no use.
    """
    if len({real_path(path) for path in paths}) < len(paths):
        raise InputError("a run is given twice; give different runs")
    runs = load_together(paths, "a mean")
    if len(runs) == 1 and runs[0].config.init.adapter_rank is None:
        raise InputError(f"{paths[0]}: a single run without adapters; give --run twice or more")
    ancestors = [set(_digests([ancestor_of(run)])) for run in runs]
    for path, theirs in zip(paths[1:], ancestors[1:], strict=True):
        if not ancestors[0] & theirs:
            raise InputError(
                f"{path}: does not come from the same run as {paths[0]}; give runs that were fine-tuned from one parent"
            )
    model = runs[0].model
    model.load_state_dict(mean((run.model.state_dict() for run in runs), len(runs)))
    longest, parents = max(run.max_tokens for run in runs), [ancestor_of(run) for run in runs]
    write_run(output, runs[0].config, runs[0].tokenizers, model, longest, parents)
    title = f"the mean of {len(runs)} runs" if len(runs) > 1 else "the run with merged adapters"
    return [f"{output}: {title}", *describe_lineage(parents, depth=1)]


def _digests(ancestors: Sequence[Ancestor]) -> Iterator[str]:
    for each in ancestors:
        yield each.weights
        yield from _digests(each.parents)


def write_run(
    output: Path,
    config: Config,
    tokenizers: TokenizerPair,
    model: Transformer,
    longest_source: int,
    parents: Sequence[Ancestor] = (),
) -> TrainedRun:
    """Write a model that was not trained here as a run into the new folder `output`, whose name it gets.

    Raises RunError, and keeps nothing, if the run cannot be read again.
    """
    config = config.model_copy(update={"name": output.name, "init": InitConfig()})
    with new_folder(output) as folder:
        directory = RunDirectory(folder)
        directory.create(config, tokenizers)
        try:
            digests = directory.fixed_digests()
            state = RunState(fingerprints=digests, longest_source=longest_source, parents=list(parents))
            save_checkpoint(directory.best_path, model, asdict(state))
            return TrainedRun.load(folder)
        except InputError as error:
            raise RunError(f"{output}: the run cannot be read again, so nothing of it is kept: {error}") from None
