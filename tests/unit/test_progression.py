import json
from dataclasses import asdict

import pytest

from mt_cli.config.sections import TrainingConfig
from mt_cli.errors import DamagedFileError
from mt_cli.experiment.progression import Progression
from mt_cli.training import Position


def test_a_state_is_read_back_as_it_was():
    progression = Progression(
        Position(step=3, epoch=1, num_pairs=[4, 5]), best_value=1.5, unlogged=[(0.1, 2, 0.3)], fingerprints={"a": "b"}
    )
    assert Progression.from_state(json.loads(json.dumps(asdict(progression)))) == progression


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
        Progression.from_state(json.loads(json.dumps(asdict(Progression()))) | change)


def test_validations_are_due_at_the_end_of_epochs_or_every_so_many_steps():
    def due(position, every):
        return Progression(position).is_due(TrainingConfig(validate_every_steps=every))

    assert not due(Position(), None)
    assert not due(Position(step=4, num_batches=2), None)
    assert not due(Position(step=4, pool=1), None)
    assert due(Position(step=4, epoch=1), None)
    assert due(Position(step=6, num_batches=2), 3)
    assert not due(Position(step=4, epoch=1), 3)
