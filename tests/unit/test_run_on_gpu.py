"""Plan of a run on a GPU, without one: batches, how it computes, and notes."""

import pytest
import torch

from mt_cli.config.loading import parse_config
from mt_cli.config.training import TrainingConfig
from mt_cli.run.create import LARGEST_BATCH
from mt_cli.run.describe import note_on_batches, notes_on_device


@pytest.mark.parametrize(
    ("size", "number", "larger"),
    [(12_500, 2, (25_000, 1)), (6250, 4, (25_000, 1)), (8192, 6, (24_576, 2)), (16_384, 3, None), (8192, 1, None)],
)
def test_a_run_on_a_gpu_names_the_fewest_micro_batches_of_a_step_of_the_same_size(size, number, larger):
    note = note_on_batches(TrainingConfig(batch_tokens=size, micro_batches_per_step=number))
    if larger is None:
        assert note is None
    else:
        assert larger[0] * larger[1] == size * number and larger[0] <= LARGEST_BATCH
        assert f"batch_tokens to {larger[0]} and training.micro_batches_per_step to {larger[1]}" in note


def test_only_a_gpu_is_advised_to_take_larger_batches_than_a_recipe_of_a_cpu(tiny_tree):
    config = parse_config(tiny_tree | {"training": tiny_tree["training"] | {"batch_tokens": 4096}}, "tiny")
    (note,) = notes_on_device(config, torch.device("cuda"))
    assert note.startswith("note: training.batch_tokens is 4,096") and "16384" in note
    assert notes_on_device(config, torch.device("cpu")) == notes_on_device(config, torch.device("mps")) == []
