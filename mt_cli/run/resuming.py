"""Saving and loading of the training state, to resume, and to go back after divergence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from mt_cli.checkpoint.checkpoint import Checkpoint
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState
from mt_cli.errors import DamagedFileError, DivergenceError, RunError
from mt_cli.machine.console import say
from mt_cli.machine.storage import remove, write_text
from mt_cli.model.transformer import Transformer
from mt_cli.run.context import TrainingContext
from mt_cli.run.training_log import TooManyBadStepsError
from mt_cli.training.steps import Position, StepReport

_MAX_RESTARTS = 2


def restore(context: TrainingContext) -> RunState:
    """Load the newest usable checkpoint into the context and return its state; for a new run, its first state.

    Raises RunError if no checkpoint can be used, or corpora or tokenizers have changed.
    """
    plan = context.plan

    def first() -> RunState:
        position, parents = Position(plan.num_processes), list(plan.parents)
        return RunState(position, parents=parents, longest_source=plan.longest_source, launch_id=plan.launch_id)

    return _broadcast_from_main(context, first if plan.is_new else lambda: _resumed(context))


def _resumed(context: TrainingContext) -> RunState:
    """Load the state to resume from; make config and best checkpoint agree with it."""
    state = _load(context)
    write_text(context.directory.config_path, context.config.to_yaml())
    say(f"Resuming from step {state.position.step}.")
    if (number := state.position.num_processes) != context.group.size:
        say(f"The run began with {number} process{'es' * (number > 1)}, and keeps the size of its steps.")
    if context.plan.changes:
        say(context.plan.changes)
    _reconcile_best(context, state)
    return state


def save_state(context: TrainingContext, state: RunState, tracked_bytes: dict[str, int]) -> None:
    """Save everything that resuming needs; `tracked_bytes` has the sizes of the files that grow."""
    state.set_files(dict(context.fingerprints), tracked_bytes, context.validator.longest_source)
    step, keep_last = state.position.step, context.config.training.keep_last
    good, average = _is_good(state, context.model), context.average.weights if context.average else None
    context.directory.save_state(context.model, asdict(state), context.optimizer, step, keep_last, good, average)
    context.directory.prune_validated([validation.step for validation in state.validations])


def go_back(context: TrainingContext, diverged: RunState, error: TooManyBadStepsError) -> RunState:
    """Load the last good state, to continue with half the learning rate.

    Raises DivergenceError if training already went back twice, RunError if no state is usable.
    """
    return _broadcast_from_main(context, lambda: _before_divergence(context, diverged, error))


def _before_divergence(context: TrainingContext, diverged: RunState, error: TooManyBadStepsError) -> RunState:
    directory = context.directory
    if diverged.num_restarts >= _MAX_RESTARTS:
        _write_bad_batch(context, error.last)
        raise DivergenceError(
            f"{directory.path}: training diverged: in {error} the loss or the gradient was not finite, also with "
            f"{0.5**_MAX_RESTARTS:g} of the learning rate. The last batch is in {directory.bad_batch_path.name}. Lower "
            "training.learning_rate, raise training.warmup_steps, or fix these pairs, and start over with --fresh."
        ) from None
    try:
        state = _load(context, has_diverged=True)
    except RunError:
        _write_bad_batch(context, error.last)
        raise
    state = state.restarted(diverged)
    say(
        f"The loss or the gradient was not finite in {error}: going back to step {state.position.step:,}, "
        f"with {0.5**state.num_restarts:g} of the learning rate."
    )
    return state


def _write_bad_batch(context: TrainingContext, skipped: StepReport) -> None:
    """Write the pairs of a skipped step to `bad_batch.jsonl`."""
    pairs = (batch.pairs[int(index)] for batch in skipped.placed for index in batch.indices)
    sides = [
        tokenizer.decode([ids.tolist() for ids in side])
        for tokenizer, side in zip(context.data.tokenizers, zip(*pairs, strict=True), strict=True)
    ]
    rows = ({"source": source, "target": target} for source, target in zip(*sides, strict=True))
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text(context.directory.bad_batch_path, text)


def _load(context: TrainingContext, has_diverged: bool = False) -> RunState:
    """Load model, optimizer and random generators of the newest usable state; return the state.

    After divergence, a state is usable only if all weights are finite and its last step was not skipped. Damaged files
    are renamed, never deleted.
    """
    directory, damaged = context.directory, dict[Path, DamagedFileError]()
    average = None if context.average is None else context.average.weights
    for path in directory.state_paths():
        try:
            checkpoint = Checkpoint(path)
            state = checkpoint.state
            check_data(directory, context.fingerprints, state)
            if has_diverged and (state.num_bad_steps_in_row or not checkpoint.is_finite()):
                continue
            checkpoint.restore(context.model, context.optimizer, average)
        except DamagedFileError as error:
            damaged[path] = error
            continue
        for damaged_path, problem in damaged.items():
            aside = directory.set_aside(damaged_path)
            say(f"{problem}; renamed to {aside.name}, {path.name} is used instead")
        directory.discard_states_after(path, state.position.step, _is_good(state, context.model))
        return state
    problems = "\n".join([*map(str, damaged.values()), f"{directory.path}: no saved state of this run can be used"])
    raise RunError(f"{problems}; use --fresh to start over (the old run is moved aside)")


def check_data(directory: RunDirectory, now: Mapping[str, str], state: RunState) -> None:
    """Raise RunError if the fingerprints of corpora or tokenizers differ from those in a state."""
    directory.check_frozen_files(state.fingerprints)
    before = state.fingerprints
    changed = [name for name in dict.fromkeys([*now, *before]) if now.get(name) != before.get(name)]
    if changed:
        raise RunError(
            f"{', '.join(changed)}: source or target text has changed since {directory.path} began; restore it, "
            "or use --fresh to start over (the old run is moved aside)"
        )


def _is_good(state: RunState, model: Transformer) -> bool:
    """Whether the last step was not skipped, and all weights are finite."""
    return not state.num_bad_steps_in_row and all(bool(weight.isfinite().all()) for weight in model.parameters())


def _reconcile_best(context: TrainingContext, state: RunState) -> None:
    """Make state and best checkpoint agree about the best step and the metric that selects it."""
    directory, metric_id = context.directory, context.validator.metric_id
    directory.restore_best(state.best_step)
    best = directory.best_state()
    is_of_end = best is not None and best.best_step == state.position.step != state.best_step
    if best is not None and (is_of_end or best.averaged_steps):
        # The run validated only because it ended there; an uninterrupted run would not have this validation.
        remove(directory.best_path)
        best = None
    if best is not None:
        state.copy_best(best)
    elif state.best_step:
        where = "missing"
        if directory.best_path.exists():
            where = f"damaged and renamed to {directory.set_aside(directory.best_path).name}"
        say(f"The best checkpoint is {where}; it is replaced by the weights of the last state.")
        state.set_best(state.position.step, None, state.best_loss, state.best_metric)
        with context.averaged() as model:
            directory.save_best(model, asdict(state))
    if state.best_step and state.best_metric != metric_id:
        say(f"The best checkpoint was chosen by {state.best_metric}; from here on it is chosen by {metric_id}.")
        state.reset_best(metric_id)


def _broadcast_from_main(context: TrainingContext, load: Callable[[], RunState]) -> RunState:
    """Load a state in the main process; send it with model, optimizer and average to the other processes."""
    group, average = context.group, {} if context.average is None else context.average.weights
    if group.size == 1:
        return load()

    def load_all() -> tuple[RunState, Any]:
        state = load()
        return state, _to_cpu((context.model.state_dict(), context.optimizer.state_dict(), average))

    state, (model, optimizer, averaged) = group.from_main(load_all)
    if group.rank == 0:
        return state
    context.model.load_state_dict(model)
    context.optimizer.load_state_dict(optimizer)
    for name, weight in average.items():
        weight.copy_(averaged[name])
    return replace(state, tracked_bytes={})  # This process writes no files.


def _to_cpu(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_to_cpu, value))
    return value.cpu() if isinstance(value, torch.Tensor) else value
