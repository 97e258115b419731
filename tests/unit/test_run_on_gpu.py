"""Plan of a run on a GPU, without one: batches and notes."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mt_cli.config.loading import parse_config
from mt_cli.config.training import TrainingConfig
from mt_cli.run import create
from mt_cli.run.create import LARGEST_BATCH, automatic_batch_tokens
from mt_cli.run.describe import note_on_batches, notes_on_device


@pytest.mark.parametrize(
    ("size", "number", "larger"),
    [(6250, 4, (25_000, 1)), (8192, 6, (24_576, 2)), (16_384, 3, None), (8192, 1, None)],
)
def test_a_note_names_the_fewest_micro_batches_of_a_step(size, number, larger):
    note = note_on_batches(TrainingConfig(batch_tokens=size, micro_batches_per_step=number))
    assert (note is None) == (larger is None)
    if larger:
        assert larger[0] * larger[1] == size * number and larger[0] <= LARGEST_BATCH
        assert f" {larger[0]} " in note and f" {larger[1]}" in note


def test_only_a_gpu_is_advised_to_take_larger_batches(tiny_tree):
    config = parse_config(tiny_tree | {"training": tiny_tree["training"] | {"batch_tokens": 4096}}, "tiny")
    (note,) = notes_on_device(config, torch.device("cuda"))
    assert "training.batch_tokens" in note
    assert notes_on_device(config, torch.device("cpu")) == notes_on_device(config, torch.device("mps")) == []


@pytest.mark.parametrize(
    ("num_pairs", "largest_fit", "expected"),
    [(10**6, 10**9, LARGEST_BATCH), (10**6, 10_000, 9216), (30_000, 10**9, 5632), (100, 10**9, 4096)],
)
def test_automatic_batches_fit_and_are_a_hundredth_of_an_epoch(monkeypatch, num_pairs, largest_fit, expected):
    """At most; they are tried in the memory that the run may use."""
    limited, tried = [], []

    def fits(objective, dtype, source_length, target_length, size):
        assert limited == [torch.device("cuda")]
        tried.append(size)
        return size <= largest_fit

    model = SimpleNamespace(to=lambda device: model)
    monkeypatch.setattr(create, "new_model", lambda config, tokenizers: model)
    monkeypatch.setattr(create, "Objective", lambda model, training: None)
    monkeypatch.setattr(create, "limited_memory", lambda device: limited.append(device) or nullcontext())
    monkeypatch.setattr(create, "fits_memory", fits)
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    config = SimpleNamespace(
        training=TrainingConfig(batch_tokens="auto", precision="bf16"),
        corpus=SimpleNamespace(max_tokens=50, is_streaming=False),
    )
    pairs = SimpleNamespace(lengths=lambda: np.full((2, num_pairs), 20))
    data = SimpleNamespace(tokenizers=(), encoded={"train": pairs})
    assert automatic_batch_tokens(config, data, torch.device("cuda")) == expected
    assert max(tried, default=0) <= LARGEST_BATCH
