"""Means of weights: of validated checkpoints of a run, and of related runs as a new run.

Vaswani et al. 2017 (section 6.1) average the last checkpoints; Junczys-Dowmunt et al. 2016 (section 3.3) the best too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path

from mt_cli.checkpoint.checkpoint import Checkpoint
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import Ancestor, RunState, ValidatedStep, best_of, describe_lineage, last_of
from mt_cli.checkpoint.trained import TrainedRun, load_together, write_run
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.data.prepare import prepare
from mt_cli.errors import InputError, RunError, RunInterruptedError
from mt_cli.model.transformer import Transformer
from mt_cli.run.finish import INTERRUPTED
from mt_cli.run.report import Ending
from mt_cli.run.resume import check_data
from mt_cli.run.setup import Setup
from mt_cli.run.validation import Validator
from mt_cli.runtime.console import say
from mt_cli.runtime.devices import keep_memory, pick_device, pick_precision
from mt_cli.training.averaging import mean, replaced


def average_at_end(setup: Setup, ending: Ending) -> None:
    """If the config says so, compute the means of the last and of the best checkpoints; keep a mean that is better.

    Raises RunInterruptedError after a signal, as `finish`.
    """
    state = ending.state
    number = setup.run.config.training.average_checkpoints
    if number is None:
        return
    validations = _available_validations(setup.run.directory, state)
    choices = last_of(validations, number), best_of(validations, number)
    try:
        for steps in sorted({tuple(sorted(validated.step for validated in choice)) for choice in choices}):
            if len(steps) > 1:
                say(_try_mean(setup.run.directory, setup.model, setup.validator, state, steps))
    except KeyboardInterrupt:
        raise RunInterruptedError(INTERRUPTED) from None


def average_run(path: Path, last: int | None, best: int | None) -> list[str]:
    """Average the last or the best checkpoints of a run; return the scores as lines. Another process must not train it.

    The mean becomes `best` if its score on the validation set is better, until training resumes.
    Raises RunError if the run has not kept enough checkpoints or is being trained, and the errors of `prepare` and
    `TrainedRun.load`.
    """
    directory = RunDirectory(path)
    directory.config()  # Raises an error if this is not a run, before the lock makes the directory.
    with directory.locked():
        steps = _steps_to_average(directory, last, best)
        run = TrainedRun.load(path, is_merged=False)
        data = prepare(run.config, Cache(path.parent / ".cache"), run.tokenizers)
        keep_memory()
        device, training, state = pick_device(run.config.training.device), run.config.training, run.state
        check_data(directory, data.fingerprints(run.config) | directory.tokenizer_digests(), state)
        model, seen = run.model.to(device), (state.longest_source, state.sentences_seen)
        validator = Validator(model, data, run.config, pick_precision(training.precision, device), device, *seen)
        validation = validator.validate()
        state.set_best(state.best_step, validation.value, validation.loss, validator.metric_id)
        present = f"best so far, of step {state.best_step:,}: {validator.describe(validation)}"
        return [present, _try_mean(directory, model, validator, state, steps)]


def _steps_to_average(directory: RunDirectory, last: int | None, best: int | None) -> tuple[int, ...]:
    """Steps of the last or the best checkpoints; raises InputError or RunError if there are not enough."""
    if (last is None) == (best is None):
        raise InputError("give --last N or --best N")
    option, number, choose = ("--last", last, last_of) if last is not None else ("--best", best, best_of)
    paths, validations = directory.validated(), list[ValidatedStep]()
    if paths:
        validations = _available_validations(directory, Checkpoint(paths[max(paths)]).state)
    most = min(len(validations), directory.config().training.average_checkpoints or 0)
    if most < 2 or number is None or number > most:
        use = f"use a number up to {most}, or " if most >= 2 else ""
        raise RunError(
            f"{option} {number}: {directory.path} keeps the last {most} and the best {most} validated checkpoints, and "
            f"an average needs at least 2; {use}train or resume with a larger training.average_checkpoints and, if "
            "there were few validations, a smaller training.validate_every_steps"
        )
    return tuple(sorted(validation.step for validation in choose(validations, number)))


def _available_validations(directory: RunDirectory, state: RunState) -> list[ValidatedStep]:
    paths = directory.validated()
    return [validation for validation in state.validations if validation.step in paths]


def _try_mean(
    directory: RunDirectory, model: Transformer, validator: Validator, state: RunState, steps: tuple[int, ...]
) -> str:
    """Validate the mean of the checkpoints of some steps; save it as the best if it is better; return its score."""
    checkpoints = [Checkpoint(directory.validated()[step]) for step in steps]
    with replaced(model, mean((checkpoint.weights() for checkpoint in checkpoints), len(steps))):
        validation = validator.validate()
        is_better = state.is_better(validation.value, validation.loss)
        if is_better:
            state.set_best(steps[-1], validation.value, validation.loss, validator.metric_id)
            directory.save_best(model, {**asdict(state), "averaged_steps": list(steps)})
    verdict = "the new best" if is_better else "not better, the best checkpoint stays"
    return f"mean of steps {', '.join(f'{step:,}' for step in steps)}: {validator.describe(validation)}; {verdict}"


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
