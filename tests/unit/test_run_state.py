import json
from dataclasses import asdict

import pytest
import torch

from mt_cli.config.sections import TrainingConfig
from mt_cli.console import Progress
from mt_cli.errors import DamagedFileError
from mt_cli.experiment.state import RunState, UnloggedStep
from mt_cli.experiment.training_log import TrainingLog
from mt_cli.tracking import Tracker, read_rows
from mt_cli.training import Position, StepReport


def test_a_state_is_read_back_as_it_was():
    progression = RunState(
        Position(step=3, epoch=1, num_pairs=[4, 5]),
        best_value=1.5,
        unlogged=[UnloggedStep(0.1, 2, 0.3, 1)],
        fingerprints={"a": "b"},
    )
    assert RunState.from_state(json.loads(json.dumps(asdict(progression)))) == progression


def test_steps_that_were_saved_without_their_right_tokens_are_read_as_such():
    state = json.loads(json.dumps(asdict(RunState()))) | {"unlogged": [[0.1, 2, 0.3]]}
    assert RunState.from_state(state).unlogged == [UnloggedStep(0.1, 2, 0.3, None)]


def rows_of_steps(folder, *steps, unlogged=()):
    """The rows written of steps with so many right tokens of ten, or that were not finite (None)."""
    weight = torch.nn.Parameter(torch.ones(1))
    with Tracker(folder, 0, {}) as tracker, Progress("train", None, "step") as bar:
        config = TrainingConfig(log_every_steps=len(steps))
        log = TrainingLog(config, RunState(unlogged=list(unlogged)), tracker, bar, torch.optim.AdamW([weight]))
        for step, num_correct in enumerate(steps, start=1):
            sums = torch.tensor(7.0), torch.tensor(float(num_correct or 0))
            log.add(
                StepReport(step, 0.1, torch.tensor(1.0), *sums, torch.tensor(num_correct is not None), 10, 0, 1, [], 0)
            )
    return read_rows(folder / "metrics.jsonl")


@pytest.mark.parametrize(
    ("steps", "unlogged", "expected"),
    [
        ((1, 2, 9), (), 0.4),
        ((1, None, 9), (), 0.5),
        ((4, 4), [UnloggedStep(9.0, 20, 1.0, 20)], 0.7),
        ((4, 4), [UnloggedStep(9.0, 20, 1.0)], 0.4),
        ((None, None), (), None),
    ],
)
def test_token_accuracy_is_the_share_of_right_tokens_of_the_steps_that_are_known(tmp_path, steps, unlogged, expected):
    (row,) = rows_of_steps(tmp_path, *steps, unlogged=unlogged)
    assert row.get("train/token_accuracy") == expected


@pytest.mark.parametrize(
    "change",
    [
        {"position": None},
        {"position": {"step": -1}},
        {"position": {"step": 1.5}},
        {"best_value": "high"},
        {"unlogged": [[1, 2]]},
        {"num_restarts": -1},
    ],
)
def test_a_state_of_another_kind_is_refused(change):
    with pytest.raises(DamagedFileError):
        RunState.from_state(json.loads(json.dumps(asdict(RunState()))) | change)


def test_validations_are_due_at_the_end_of_epochs_or_every_so_many_steps():
    def due(position, every):
        return RunState(position).is_due(TrainingConfig(validate_every_steps=every))

    assert not due(Position(), None)
    assert not due(Position(step=4, num_batches=2), None)
    assert not due(Position(step=4, pool=1), None)
    assert due(Position(step=4, epoch=1), None)
    assert due(Position(step=6, num_batches=2), 3)
    assert not due(Position(step=4, epoch=1), 3)


def test_the_better_value_is_best_and_of_equal_values_the_lower_loss():
    progression = RunState()
    assert progression.is_better(0.0, 5.0)
    progression.best_value, progression.best_loss = 10.0, 2.0
    assert progression.is_better(10.1, 9.0)
    assert progression.is_better(10.0, 1.9)
    assert not progression.is_better(10.0, 2.0)
    assert not progression.is_better(9.9, 0.1)
    for value, loss in ((float("nan"), 1.0), (float("inf"), 1.0), (11.0, float("nan")), (11.0, float("inf"))):
        assert not progression.is_better(value, loss)
