"""Resuming a run: finding, checking and loading a saved state, and going back to one after divergence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

from mt_cli.checkpoint.files import Checkpoint, open_checkpoint
from mt_cli.checkpoint.state import RunState
from mt_cli.errors import DamagedFileError, DivergenceError, RunError
from mt_cli.machine.console import say
from mt_cli.machine.group import num_processes
from mt_cli.machine.storage import remove, write_text
from mt_cli.model.transformer import Transformer
from mt_cli.run.log import TooManyBadStepsError
from mt_cli.run.report import write_bad_batch
from mt_cli.run.setup import Setup

_MAX_RESTARTS = 2


def resume(setup: Setup, changed: list[str]) -> RunState:
    """Load the last usable state; raises RunError if there is none, or corpora or tokenizers changed."""
    state = _load_state(setup)
    write_text(setup.directory.config_path, setup.config.to_yaml())
    say(f"Resuming from step {state.position.step}.")
    if (number := state.position.num_processes) != num_processes():
        say(f"The run began with {number} process{'es' * (number > 1)}, and keeps the size of its steps.")
    if changed:
        say("\n  ".join(["The config has changed:", *changed]))
    return state


def go_back(setup: Setup, diverged: RunState, error: TooManyBadStepsError) -> RunState:
    """Load the last good state, to train on with half the learning rate.

    Raises DivergenceError if training already went back twice, RunError if no state is usable.
    """
    directory = setup.directory
    if diverged.num_restarts >= _MAX_RESTARTS:
        write_bad_batch(setup, error.last)
        raise DivergenceError(
            f"{directory.path}: training diverged: in {error} the loss or the gradient was not finite, also with "
            f"{0.5**_MAX_RESTARTS:g} of the learning rate. The last batch is in {directory.bad_batch_path.name}. Lower "
            "training.learning_rate, raise training.warmup_steps, or fix these pairs, and start over with --fresh."
        ) from None
    try:
        state = _load_state(setup, lambda state, checkpoint: not state.num_bad_steps_in_row and checkpoint.is_finite())
    except RunError:
        write_bad_batch(setup, error.last)
        raise
    state = state.restarted(diverged)
    say(
        f"The loss or the gradient was not finite in {error}: going back to step {state.position.step:,}, "
        f"with {0.5**state.num_restarts:g} of the learning rate."
    )
    return state


def _load_state(
    setup: Setup, is_usable: Callable[[RunState, Checkpoint], bool] = lambda state, checkpoint: True
) -> RunState:
    """Fill model, optimizer and random generators from the newest usable state; return the rest of it."""
    directory, skipped = setup.directory, list[str]()
    for path in directory.states():
        try:
            with open_checkpoint(path) as checkpoint:
                state = checkpoint.state
                check_data(setup, state)
                if not is_usable(state, checkpoint):
                    continue
                average = None if setup.average is None else setup.average.weights
                checkpoint.restore(setup.model, setup.optimizer, average)
        except DamagedFileError as error:
            skipped.append(str(error))
            continue
        for message in skipped:
            say(f"{message}; skipped, {path.name} is used instead")
        directory.resume_from(path, state.position.step, is_good(state, setup.model))
        return state
    problems = "\n".join([*skipped, f"{directory.path}: no saved state of this run can be used"])
    raise RunError(f"{problems}; use --fresh to start over (the old run is moved aside)")


def check_data(setup: Setup, state: RunState) -> None:
    """Raise RunError unless corpora and tokenizers are those that a state was trained on."""
    setup.directory.check_fixed(state.fingerprints)
    now, before = setup.fingerprints, state.fingerprints
    changed = [name for name in dict.fromkeys([*now, *before]) if now.get(name) != before.get(name)]
    if changed:
        raise RunError(
            f"{', '.join(changed)}: source or target text has changed since {setup.directory.path} began; restore it, "
            "or use --fresh to start over (the old run is moved aside)"
        )


def is_good(state: RunState, model: Transformer) -> bool:
    """Whether the last step was not skipped, and all weights are finite."""
    return not state.num_bad_steps_in_row and all(bool(weight.isfinite().all()) for weight in model.parameters())


def reconcile_best(setup: Setup, state: RunState) -> None:
    """Make the state and the best checkpoint agree about the best step."""
    directory = setup.directory
    directory.restore_best(state.best_step)
    best = directory.best_state()
    is_of_end = best is not None and best.best_step == state.position.step != state.best_step
    if best is not None and (is_of_end or best.averaged_steps):
        # It was validated only because the run ended there; an uninterrupted run would not have it.
        remove(directory.best_path)
        best = None
    if best is not None:
        state.copy_best(best)
    elif state.best_step:
        say("The best checkpoint is missing or damaged; it is replaced by the weights of the last state.")
        state.set_best(state.position.step, None, state.best_loss, state.best_metric)
        with setup.deployed():
            directory.save_best(setup.model, asdict(state))
    if state.best_step and state.best_metric != setup.validator.measure:
        with setup.deployed():
            _choose_best_again(setup, state)


def _choose_best_again(setup: Setup, state: RunState) -> None:
    """Validate all saved weights with another metric than before, and save the best ones as such."""
    model, directory, validator = setup.model, setup.directory, setup.validator
    best = current = {name: weight.clone() for name, weight in model.state_dict().items()}
    validated, number = directory.validated(), setup.config.training.num_validated_kept
    candidates = {state.best_step: directory.best_path}
    say(f"The best checkpoint is chosen again, by {validator.measure}, among the saved ones:")
    for path in (*directory.states(), *validated.values()):
        try:
            with open_checkpoint(path) as checkpoint:
                candidates.setdefault(checkpoint.state.position.step, path)
        except DamagedFileError as error:
            say(f"  {error}; skipped")
    state.reset_best(validator.measure)
    for step, path in sorted(candidates.items()):
        if step:
            with open_checkpoint(path) as checkpoint:
                checkpoint.fill(model)
            found = validator.validate()
            say(f"  step {step:>6,}  {validator.describe(found)}")
            if step in validated and state.keep_validation(step, found.value, found.loss, number):
                directory.save_validated(
                    model, asdict(replace(state, position=replace(state.position, step=step))), step
                )
            if state.is_better(found.value, found.loss):
                state.set_best(step, found.value, found.loss, validator.measure)
                best = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.load_state_dict(best)
    directory.save_best(model, asdict(state))
    model.load_state_dict(current)
