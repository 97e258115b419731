import os
import time

import pytest
import torch
from torch import nn

from mt_cli.checkpoint.directory import RunDirectory, newest_run
from mt_cli.checkpoint.files import open_checkpoint, save_checkpoint, write_atomically, write_text
from mt_cli.errors import MtError, RunError


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
        checkpoint.fill(model, optimizer)
        return checkpoint.state


def test_what_is_loaded_is_what_was_saved(tmp_path):
    path = tmp_path / "last.safetensors"
    model, optimizer = trained_pair()
    save_checkpoint(path, model, {"step": 3, "best": 0.1}, optimizer)
    drawn = torch.rand(5)
    other = a_model()
    other_optimizer = torch.optim.AdamW(other.parameters(), lr=0.1)
    assert load_checkpoint(path, other, other_optimizer) == {"step": 3, "best": 0.1}
    assert torch.equal(torch.rand(5), drawn)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        for name, value in optimizer.state[ours].items():
            assert torch.equal(value, other_optimizer.state[theirs][name])


def test_a_checkpoint_of_another_shape_is_refused(tmp_path):
    path = tmp_path / "best.safetensors"
    save_checkpoint(path, a_model(3), {})
    with pytest.raises(RunError, match=r"0.weight is \[4, 3\]"):
        load_checkpoint(path, a_model(5))
    with pytest.raises(RunError, match="no weight"):
        load_checkpoint(path, nn.Sequential(*a_model(3), nn.Linear(4, 4)))


@pytest.mark.parametrize("content", [b"", b"x", b"\x80\x02}q\x00.", b"\xff" * 100])
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "best.safetensors"
    path.write_bytes(content)
    with pytest.raises(RunError, match="damaged checkpoint"):
        load_checkpoint(path, a_model())


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail_halfway(temporary):
        with open(temporary, "w") as file:
            file.write("ne")
        raise OSError(28, "No space left on device")

    with pytest.raises(MtError, match="No space left"):
        write_atomically(path, fail_halfway)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_newest_run_is_the_one_whose_weights_were_written_last(tmp_path):
    with pytest.raises(RunError, match="no trained run"):
        newest_run(tmp_path)
    for age, name in ((300, "old"), (10, "new"), (200, "older")):
        directory = RunDirectory(tmp_path / name)
        directory.best_path.parent.mkdir(parents=True)
        directory.best_path.write_bytes(b"")
        os.utime(directory.best_path, (time.time() - age,) * 2)
    assert newest_run(tmp_path).name == "new"


def test_a_run_moved_aside_is_never_overwritten(tmp_path):
    for number in (1, 2):
        (tmp_path / "run").mkdir()
        assert RunDirectory(tmp_path / "run").move_aside().name == f"run.old-{number}"
