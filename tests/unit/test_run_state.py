import functools
import json
import math
from dataclasses import asdict, fields
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.checkpoint.state import (
    Ancestor,
    Round,
    RunState,
    SelectedPairs,
    UnloggedStep,
    ValidatedStep,
    best_of,
    last_of,
)
from mt_cli.config.training import TrainingConfig
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.training.plan import Plan, Position


def test_a_state_is_read_back_as_it_was():
    """Every field, each with another value than at the start of a run."""
    values = {int: 7, float: 0.5, float | None: 1.5, int | None: 9, str: "chrf", dict[str, str]: {"a": "b"}}
    values |= {dict[str, int]: {"a": 1}, dict[str, int | float]: {"a": 1.5}, list[int] | None: [3]}
    values |= {list[Ancestor]: [Ancestor("a", ("en", "it"), 3, "0", [Ancestor("b", ("en", "it"), 2, "1")])]}
    values |= {list[ValidatedStep]: [ValidatedStep(3, 1.0, 2.0)], list[UnloggedStep]: [UnloggedStep(0.1, 2, 0.3, 1)]}
    kinds = get_type_hints(RunState) | {"position": Position}
    values[SentencesSeen | None] = SentencesSeen(0.5, 0.25)
    values[Plan | None] = Plan(5.0, 10, 3.0, 400, 40, 50, 200.0, 9.0, 0.5, 0.1)
    values[SelectedPairs | None] = SelectedPairs(1, 2, [3])
    values[Round] = Round(2, 1, 40, {"target": 7})
    values[Position] = Position(step=3, epoch=1, num_pairs=[4, 5])
    state = RunState(**{field.name: values[kinds[field.name]] for field in fields(RunState)})
    assert RunState.from_state(json.loads(json.dumps(asdict(state)))) == state


ANCESTOR = {"run": "a", "languages": ["en", "it"], "step": 1, "weights": "0"}


@pytest.mark.parametrize(
    "change",
    [
        {"position": None},
        {"elapsed_seconds": math.nan},
        {"unlogged": [[1, 2]]},
        {"best_step": 10**400},
        {"parents": functools.reduce(lambda parents, _: [ANCESTOR | {"parents": parents}], range(900), [])},
    ],
)
def test_a_state_with_invalid_values_is_refused(change):
    with pytest.raises(ValueError):
        RunState.from_state(json.loads(json.dumps(asdict(RunState()))) | change)


@pytest.mark.parametrize(
    ("position", "every", "is_due"),
    [
        (Position(), None, False),
        (Position(step=4, num_batches=2), None, False),
        (Position(step=4, pool=1), None, False),
        (Position(step=4, epoch=1), None, True),
        (Position(step=6, num_batches=2), 3, True),
        (Position(step=4, epoch=1), 3, False),
    ],
)
def test_validations_are_due_after_epochs_or_every_few_steps(position, every, is_due):
    assert RunState(position).is_validation_due(TrainingConfig(validate_every_steps=every)) == is_due


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_steps": 5}, "max_steps 5"),
        ({"max_steps": 6, "max_epochs": 2}, "max_epochs 2"),
        ({"max_minutes": 1.0}, "max_minutes 1.0"),
        ({"patience": 3}, "patience 3"),
        ({"max_steps": 6, "max_epochs": 3, "max_minutes": 2.0, "patience": 4}, None),
    ],
)
def test_the_first_limit_that_is_reached_stops(limits, expected):
    state = RunState(Position(step=5, epoch=2), elapsed_seconds=61.0, num_validations_without_better=3)
    assert state.reason_to_stop(TrainingConfig(**{"max_epochs": None, **limits})) == expected


def test_of_equal_values_the_lower_loss_is_best():
    state = RunState()
    assert state.is_better(0.0, 5.0)
    state.best_value, state.best_loss = 10.0, 2.0
    assert state.is_better(10.1, 9.0)
    assert state.is_better(10.0, 1.9)
    assert not state.is_better(10.0, 2.0)
    assert not state.is_better(9.9, 0.1)
    for value, loss in ((float("nan"), 1.0), (float("inf"), 1.0), (11.0, float("nan")), (11.0, float("inf"))):
        assert not state.is_better(value, loss)


def test_validations_count_towards_patience_after_the_warm_up():
    def add(state, step, value):
        state.position.step = step
        return state.add_validation(value, 1.0, "chrf", warmup_steps=5)

    state = RunState()
    assert [add(state, step, value) for step, value in ((3, 2.0), (5, 1.0), (8, 2.0), (9, 1.0))] == [1, 0, 0, 0]
    assert (state.best_step, state.best_value, state.best_metric) == (3, 2.0, "chrf")
    assert (state.validated_step, state.num_validations_without_better) == (9, 2)
    assert add(state, 12, 3.0) and state.num_validations_without_better == 0
    assert add(state, 12, 2.5)  # A run that went back and reached its best step again.


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=12), st.integers(0, 4))
def test_the_last_and_the_best_validations_are_kept(scores, number):
    state, every = RunState(), []
    for step, (value, loss) in enumerate(scores, start=1):
        every.append(ValidatedStep(step, value, loss))
        assert state.keep_validation(step, value, loss, number) == (number > 0)
        assert not state.keep_validation(99, math.nan, loss, number)
    assert set(state.validations) == {*last_of(every, number), *best_of(every, number)}
    for fewer in range(1, number + 1):
        assert last_of(state.validations, fewer) == every[-fewer:]
        assert best_of(state.validations, fewer) == best_of(every, fewer)
