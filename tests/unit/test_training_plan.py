"""Plans of runs with `max_minutes`, on a clock that the test moves."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.checkpoint.state import RunState
from mt_cli.config.training import TrainingConfig
from mt_cli.training.plan import Length, Position, advanced, planned_rate

CONFIG = TrainingConfig(schedule="linear", warmup_steps=50, learning_rate=0.5, max_minutes=1, max_steps=2_000)
LENGTH = Length(2_000, 100, 4_096, 20_000, 20_000)


def train(config, length, seconds_of, state=None, last_step=10**9):
    """State and rates of the updates of a run; `seconds_of` gives the time of an update."""
    state, rates = state or RunState(), []
    while state.reason_to_stop(config) is None and state.position.step < last_step:
        plan = state.plan_for(config)
        rates.append(planned_rate(config, state.position.step + 1, length, plan, state.elapsed_seconds))
        state.position = Position(step=state.position.step + 1, num_target_tokens=2_000 * (state.position.step + 1))
        state.elapsed_seconds += seconds_of(state.position.step)
        position = state.position.step, state.position.num_target_tokens
        state.plan = advanced(state.plan, config, length, position, state.elapsed_seconds)
    return state, rates


@given(st.floats(0.05, 1.0), st.sampled_from(["linear", "cosine"]), st.integers(0, 200))
def test_the_schedule_of_any_machine_rises_once_and_ends_at_zero(seconds, schedule, warmup_steps):
    config = CONFIG.model_copy(update={"schedule": schedule, "warmup_steps": warmup_steps})
    state, rates = train(config, LENGTH, lambda step: seconds)
    plan = state.plan_for(config)
    assert state.position.step == min(2_000, plan.num_steps) and state.elapsed_seconds <= plan.training_seconds
    assert plan.warmup_steps <= 0.1 * plan.num_steps
    peak = rates.index(max(rates))
    assert rates[: peak + 1] == sorted(rates[: peak + 1]) and rates[-1] == pytest.approx(0, abs=1e-12)
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[peak:]))
    assert plan.num_steps >= 2_000 or 0.4 * 60 < plan.num_steps * seconds < 60


@given(st.floats(0.1, 2.0))
def test_a_machine_that_becomes_slower_ends_with_a_low_rate_in_time(factor):
    state, rates = train(CONFIG, LENGTH, lambda step: 0.1 if step <= 100 else factor)
    assert state.elapsed_seconds <= state.plan.training_seconds + factor
    assert rates[-1] <= 0.5 * factor / (0.1 * state.plan.training_seconds) + 1e-9


@given(st.integers(20, 40), st.floats(1.0, 4.0), st.sampled_from(["linear", "cosine", "inverse_sqrt"]))
def test_a_machine_that_becomes_faster_early_uses_its_time(step_of_change, factor, schedule):
    config, length = CONFIG.model_copy(update={"schedule": schedule}), Length(None, None, 4_096, 1_000, 1_000)
    state, rates = train(config, length, lambda step: 0.3 if step <= step_of_change else 0.3 / factor)
    assert state.elapsed_seconds >= 0.75 * state.plan.training_seconds
    assert state.reason_to_stop(config) == "max_minutes 1.0"
    peak = rates.index(max(rates))
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[peak:]))
    assert schedule == "inverse_sqrt" or rates[-1] == pytest.approx(0, abs=1e-12)


def test_a_plan_that_is_used_up_early_is_named():
    state, _ = train(CONFIG, Length(None, None, 4_096, 0, 0), lambda step: 0.3 if step <= 130 else 0.05)
    assert state.position.step == state.plan.num_steps
    assert state.reason_to_stop(CONFIG) == "the plan for max_minutes 1.0"


@given(st.integers(1, 220), st.integers(20, 80), st.floats(0.2, 5.0))
def test_a_run_that_stops_anywhere_keeps_its_plan(stop, step_of_change, factor):
    def seconds_of(step):
        return 0.25 if step <= step_of_change else 0.25 / factor

    whole = train(CONFIG, LENGTH, seconds_of)
    state, before = train(CONFIG, LENGTH, seconds_of, last_step=stop)
    state, after = train(CONFIG, LENGTH, seconds_of, RunState.from_state(vars(state)))
    assert (state, before + after) == whole


@given(st.integers(200, 20_000), st.floats(0.05, 2.0), st.integers(0, 10_000))
def test_the_minutes_for_some_updates_are_enough_and_hardly_more(num_steps, seconds, num_scored):
    length = Length(None, None, 4_096, 0, num_scored)
    state, _ = train(CONFIG, length, lambda step: seconds)
    minutes = state.plan.minutes_for(num_steps, state.elapsed_seconds / state.position.step)
    state, _ = train(CONFIG.model_copy(update={"max_minutes": minutes}), length, lambda step: seconds, last_step=20)
    assert num_steps <= state.plan.num_steps + 1 <= 1.2 * num_steps + 60 / seconds + 2


def test_more_minutes_for_a_finished_run_make_a_new_plan():
    state, _ = train(CONFIG, LENGTH, lambda step: 0.1)
    longer = CONFIG.model_copy(update={"max_minutes": 2})
    num_steps = state.plan.num_steps
    state, rates = train(longer, LENGTH, lambda step: 0.1, state)
    assert state.plan.num_steps > 1.8 * num_steps and rates[-1] == pytest.approx(0, abs=1e-12)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.05, 0.5))
def test_validations_and_scores_leave_half_of_the_time_for_training(num_valid, num_test, seconds):
    state, _ = train(CONFIG, Length(None, None, 4_096, num_valid, num_test), lambda step: seconds)
    plan = state.plan
    assert plan.training_seconds >= 30
    assert plan.training_seconds + plan.closing_seconds <= 60 + 1e-9 or plan.training_seconds == 30
