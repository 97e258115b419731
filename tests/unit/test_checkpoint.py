import os
from dataclasses import asdict

import pytest
import torch
from torch import nn

from mt_cli.checkpoint import checkpoint
from mt_cli.checkpoint.checkpoint import Checkpoint, save_checkpoint
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import Ancestor, RunState
from mt_cli.errors import DamagedFileError, RunError
from mt_cli.run.averages import known_digests


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
    saved = Checkpoint(path)
    saved.load_weights_into(model) if optimizer is None else saved.restore(model, optimizer)
    return saved.state


def test_what_is_loaded_is_what_was_saved(tmp_path):
    path = tmp_path / "last.safetensors"
    model, optimizer = trained_pair()
    state = RunState(best_step=3, best_value=0.1)
    save_checkpoint(path, model, asdict(state), optimizer)
    other = a_model()
    other_optimizer = torch.optim.AdamW(other.parameters(), lr=0.1)
    assert load_checkpoint(path, other, other_optimizer) == state
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
    saved = Checkpoint(path)
    saved.restore(trained, torch.optim.AdamW(trained.parameters()), restored)
    for name in raw:
        assert torch.equal(used.get_parameter(name), average[name]) and torch.equal(restored[name], average[name])
        assert torch.equal(trained.get_parameter(name), raw[name])


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


def test_a_truncated_checkpoint_is_damaged_and_changes_nothing(tmp_path):
    path = tmp_path / "last.safetensors"
    model, optimizer = trained_pair()
    save_checkpoint(path, model, {}, optimizer)
    content = path.read_bytes()
    before = [weight.clone() for weight in model.parameters()]
    for size in range(0, len(content), 997):
        path.write_bytes(content[:size])
        with pytest.raises(DamagedFileError):
            load_checkpoint(path, model, optimizer)
    assert all(map(torch.equal, before, model.parameters()))


def test_the_digest_depends_on_the_weights_alone(tmp_path):
    model, optimizer = trained_pair()
    digests = []
    for state, optimizer_or_none in [({}, None), ({"best_step": 3}, optimizer)]:
        save_checkpoint(tmp_path / "last.safetensors", model, state, optimizer_or_none)
        digests.append(Checkpoint(tmp_path / "last.safetensors").digest)
    model[0].weight.data[0, 0] += 1
    save_checkpoint(tmp_path / "last.safetensors", model, {})
    assert digests[0] == digests[1] != Checkpoint(tmp_path / "last.safetensors").digest


def test_ancestors_of_unknown_weights_are_not_the_same_ancestor():
    bundle = Ancestor("bundle", ("en", "it"), 0, "")
    assert list(known_digests([Ancestor("child", ("en", "it"), 5, "abc", [bundle])])) == ["abc"]


def test_a_checkpoint_that_is_replaced_is_read_to_its_end(tmp_path):
    path, model, loaded = tmp_path / "best.safetensors", nn.Linear(300, 300), nn.Linear(300, 300)
    save_checkpoint(path, model, {})
    saved = Checkpoint(path)
    save_checkpoint(path, nn.Linear(3, 3), {})
    saved.load_weights_into(loaded)
    assert torch.equal(model.weight, loaded.weight)


def test_a_checkpoint_of_another_format_is_named(tmp_path, monkeypatch):
    path = tmp_path / "last.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "FORMAT", 7)
        save_checkpoint(path, a_model(), {})
    with pytest.raises(RunError, match="format") as caught:
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
    assert Checkpoint(directory.state_paths()[1]).state.best_step == 9
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
