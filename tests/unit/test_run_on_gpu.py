"""Plan of a run on a GPU, without one: batches, how it computes, and notes."""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mt_cli.config.loading import parse_config
from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.run import create, describe
from mt_cli.run.create import LARGEST_BATCH, automatic_batch_tokens
from mt_cli.run.describe import describe_computing, note_on_batches, notes_on_device


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


def test_steps_of_growing_size_keep_their_micro_batches():
    growing = TrainingConfig(batch_tokens=12_500, micro_batches_per_step=2, micro_batches_growth_steps=100)
    assert note_on_batches(growing) is None


def test_only_a_gpu_is_advised_to_take_larger_batches_than_a_recipe_of_a_cpu(tiny_tree):
    config = parse_config(tiny_tree | {"training": tiny_tree["training"] | {"batch_tokens": 4096}}, "tiny")
    (note,) = notes_on_device(config, torch.device("cuda"))
    assert note.startswith("note: training.batch_tokens is 4,096") and "16384" in note
    assert notes_on_device(config, torch.device("cpu")) == notes_on_device(config, torch.device("mps")) == []


@pytest.mark.parametrize(
    ("is_available", "dropout", "expected"),
    [
        (True, 0.0, "variable-length attention"),
        (True, 0.1, "attention over a grid of padded sentences"),
        (False, 0.0, "attention over a grid of padded sentences"),
    ],
)
def test_a_run_on_a_gpu_says_how_it_computes(monkeypatch, is_available, dropout, expected):
    monkeypatch.setattr(describe, "has_variable_length", lambda device, dtype, d_head: is_available)
    config = SimpleNamespace(model=ModelConfig(attention_dropout=dropout))
    context = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16, precision="bf16", config=config)
    context.reason_against_graphs, context.compiles_layers = "fp16", False
    assert describe_computing(context) == f"bf16, {expected}, no CUDA graphs (fp16)"
    context.reason_against_graphs, context.compiles_layers = None, True
    assert describe_computing(context) == f"bf16, {expected}, CUDA graphs, compiled layers"


@pytest.mark.parametrize(
    ("num_pairs", "largest_fit", "expected"),
    [(10**6, 10**9, LARGEST_BATCH), (10**6, 10_000, 9216), (30_000, 10**9, 5632), (100, 10**9, 4096)],
)
def test_automatic_batches_fit_in_limited_memory_and_are_at_most_a_hundredth_of_an_epoch(
    monkeypatch, num_pairs, largest_fit, expected
):
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
    pairs = SimpleNamespace(lengths=lambda: np.full((2, num_pairs), 20))
    config = SimpleNamespace(
        training=TrainingConfig(batch_tokens="auto", precision="bf16"),
        corpus=SimpleNamespace(max_tokens=50, is_streaming=False),
    )
    data = SimpleNamespace(tokenizers=(), encoded={"train": pairs})
    assert automatic_batch_tokens(config, data, torch.device("cuda")) == expected
    assert max(tried, default=0) <= LARGEST_BATCH
