import os
import random
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import nn

from mt_cli.checkpoint import files
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.files import open_checkpoint, save_checkpoint
from mt_cli.checkpoint.state import RunState
from mt_cli.errors import DamagedFileError, RunError


def a_model(width=3):
    model = nn.Sequential(nn.Linear(width, 4), nn.Linear(4, 4))
    model[1].weight = nn.Parameter(torch.randn(4, 4))
    return model


def trained_pair():
    model = a_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(2, 3)).sum().backward()
        optimizer.step()
    return model, optimizer


def load_checkpoint(path, model, optimizer=None):
    with open_checkpoint(path) as checkpoint:
        checkpoint.load_weights_into(model) if optimizer is None else checkpoint.restore(model, optimizer)
        return checkpoint.state


def test_what_is_loaded_is_what_was_saved(tmp_path):
    """The state of every random generator, too."""

    def sample():
        return random.random(), random.gauss(0, 1), float(np.random.rand()), float(torch.rand(()))

    path = tmp_path / "last.safetensors"
    model, optimizer = trained_pair()
    state = RunState(best_step=3, best_value=0.1)
    sample()
    save_checkpoint(path, model, asdict(state), optimizer)
    sampled = sample()
    other = a_model()
    other_optimizer = torch.optim.AdamW(other.parameters(), lr=0.1)
    assert load_checkpoint(path, other, other_optimizer) == state
    assert sample() == sampled
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        for name, value in optimizer.state[ours].items():
            assert torch.equal(value, other_optimizer.state[theirs][name])


def test_the_average_is_used_and_restored_beside_the_weights(tmp_path):
    path = tmp_path / "last.safetensors"
    model, optimizer = trained_pair()
    raw = {name: weight.detach() for name, weight in model.named_parameters()}
    average = {name: torch.randn_like(weight) for name, weight in raw.items()}
    save_checkpoint(path, model, {}, optimizer, average)
    used, trained, restored = a_model(), a_model(), {name: torch.zeros_like(weight) for name, weight in raw.items()}
    load_checkpoint(path, used)
    with open_checkpoint(path) as checkpoint:
        checkpoint.restore(trained, torch.optim.AdamW(trained.parameters()), restored)
        assert checkpoint.is_finite()
    for name in raw:
        assert torch.equal(used.get_parameter(name), average[name]) and torch.equal(restored[name], average[name])
        assert torch.equal(trained.get_parameter(name), raw[name])
    average["0.weight"][0, 0] = float("nan")
    save_checkpoint(path, model, {}, optimizer, average)
    with open_checkpoint(path) as checkpoint:
        assert not checkpoint.is_finite()


@pytest.mark.parametrize(
    ("average", "model", "named"),
    [
        ({"0.weight": torch.ones(1)}, a_model(), "0.weight"),
        (None, a_model(5), "0.weight"),
        (None, nn.Sequential(*a_model(), nn.Linear(4, 4)), "2.weight"),
    ],
)
def test_weights_or_an_average_of_another_shape_are_refused(tmp_path, average, model, named):
    path, saved = tmp_path / "last.safetensors", a_model()
    save_checkpoint(path, saved, {}, torch.optim.AdamW(saved.parameters()), average)
    with pytest.raises(RunError, match=named):
        load_checkpoint(path, model)


def test_no_bit_of_a_checkpoint_can_change_unnoticed(tmp_path):
    path = tmp_path / "last.safetensors"
    model, optimizer = trained_pair()
    save_checkpoint(path, model, {"step": 3}, optimizer)
    content = path.read_bytes()
    damaged = [content[:size] for size in range(0, len(content), 1_999)] + [b"\x80\x02}q\x00.", b"\xff" * 100]
    for place in [*range(0, len(content), 997), *range(8, 400, 9)]:
        damaged.append(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
    for wrong in damaged:
        path.write_bytes(wrong)
        with pytest.raises(DamagedFileError):
            load_checkpoint(path, model)


@pytest.mark.parametrize("change", ["cut off", "overwritten"])
def test_a_checkpoint_that_changes_while_it_is_read_is_damaged(tmp_path, change):
    path = tmp_path / "best.safetensors"
    save_checkpoint(path, nn.Linear(300, 300), asdict(RunState()))
    with pytest.raises(DamagedFileError), open_checkpoint(path) as checkpoint:
        with path.open("r+b") as file:
            if change == "overwritten":
                file.seek(-100, os.SEEK_END)
                file.write(bytes(100))
            else:
                file.truncate(path.stat().st_size // 2)
        os.utime(path, ns=(1, 1))  # The clock of a file system may be coarse.
        checkpoint.load_weights_into(nn.Linear(300, 300))


def test_a_checkpoint_that_is_replaced_is_read_to_its_end(tmp_path):
    path, model, loaded = tmp_path / "best.safetensors", nn.Linear(300, 300), nn.Linear(300, 300)
    save_checkpoint(path, model, asdict(RunState()))
    with open_checkpoint(path) as checkpoint:
        save_checkpoint(path, nn.Linear(3, 3), asdict(RunState()))
        checkpoint.load_weights_into(loaded)
    assert torch.equal(model.weight, loaded.weight)


def test_a_checkpoint_of_another_format_is_named(tmp_path, monkeypatch):
    path = tmp_path / "last.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(files, "FORMAT", 7)
        save_checkpoint(path, a_model(), {})
    with pytest.raises(RunError, match=r"format 7.* 2") as caught:
        load_checkpoint(path, a_model())
    assert not isinstance(caught.value, DamagedFileError)


@pytest.mark.parametrize("has_hard_links", [True, False])
def test_the_newest_states_are_kept_on_any_file_system(tmp_path, monkeypatch, has_hard_links):
    def refuse(*paths):
        raise OSError("no links here")

    if not has_hard_links:
        monkeypatch.setattr(os, "link", refuse)
    directory = RunDirectory(tmp_path)
    directory.last_path.parent.mkdir()
    model, optimizer = trained_pair()

    def save(step):
        directory.save_state(model, {"best_step": step}, optimizer, step, keep_last=2)
        return [path.stem for path in directory.state_paths()]

    assert save(0) == ["step-0"]
    assert save(5) == ["last", "step-0"]
    assert save(9) == ["last", "step-5", "step-0"]
    assert save(100) == ["last", "step-9", "step-5"]
    assert save(100) == ["last", "step-9", "step-5"]
    with open_checkpoint(directory.state_paths()[1]) as checkpoint:
        assert checkpoint.state.best_step == 9
    directory.discard_states_after(directory.state_paths()[2], 5)
    assert [path.stem for path in directory.state_paths()] == ["step-5"]
    assert save(7) == ["last", "step-5"]


def test_the_best_that_no_saved_state_knows_is_taken_back(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.last_path.parent.mkdir()
    model, optimizer = trained_pair()
    directory.save_best(model, {"best_step": 5})
    directory.save_state(model, {}, optimizer, 5, keep_last=1)
    directory.save_best(model, {"best_step": 7})
    directory.restore_best(9)
    assert directory.best_state() == RunState(best_step=7)
    directory.restore_best(5)
    assert directory.best_state() == RunState(best_step=5)
    assert not directory.former_best_path.exists()
    directory.best_path.write_bytes(b"damaged")
    assert directory.best_state() is None


def test_a_lock_and_an_empty_directory_end_with_the_holder(tmp_path):
    path = tmp_path / "runs" / "run"
    with RunDirectory(path).locked():
        for _ in range(2):
            with pytest.raises(RunError, match="another process"), RunDirectory(path).locked():
                pass
    assert not (tmp_path / "runs").exists()
    directory = RunDirectory(path)
    with directory.locked():
        (path / "kept").touch()
        aside = directory.move_aside()
        assert (aside / "kept").exists() and not (path / "kept").exists()
        with pytest.raises(RunError, match="another process"), RunDirectory(path).locked():
            pass
        (path / "something").touch()
    assert (path / "something").exists()
