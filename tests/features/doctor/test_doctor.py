import shutil

import pytest
import torch
from safetensors.torch import save_file

from mt_cli.features.doctor.findings import _processes


def test_the_doctor_finds_runs_that_cannot_be_used(mt, trained, tmp_path):
    assert "below" not in mt("doctor")[1]
    for name in ("good", "old", "broken", "edited", "unreadable"):
        shutil.copytree(trained, tmp_path / "runs" / name)
    save_file({"a": torch.ones(1)}, tmp_path / "runs/old/checkpoints/best.safetensors", {"format": "1"})
    content = (tmp_path / "runs/broken/checkpoints/last.safetensors").read_bytes()
    (tmp_path / "runs/broken/checkpoints/last.safetensors").write_bytes(content[:-1] + b"!")
    with (tmp_path / "runs/edited/tokenizer.source.json").open("a") as file:
        file.write(" ")
    (tmp_path / "runs/unreadable/config.yaml").write_text("}{")
    status, out, _ = mt("doctor")
    assert status == 1
    assert "old/checkpoints/best.safetensors: checkpoint format 1, this version reads 2" in out
    assert "broken/checkpoints/last.safetensors: damaged checkpoint" in out
    assert "edited/tokenizer.source.json: not the file" in out
    assert "unreadable/config.yaml" in out
    assert "1 below" in out


def test_the_doctor_reports_a_file_named_runs(mt, tmp_path):
    (tmp_path / "runs").write_text("")
    status, out, _ = mt("doctor")
    assert status == 1
    assert "runs is no directory" in out


def test_the_doctor_advises_on_threads_load_memory_disk_and_drivers(mt, monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 4096)
    monkeypatch.setattr("mt_cli.features.doctor.findings._MIN_MEMORY", 2**60)
    monkeypatch.setattr("mt_cli.features.doctor.findings._MIN_FREE_DISK", 2**60)
    monkeypatch.setattr("mt_cli.features.doctor.findings.shutil.which", lambda name: "/usr/bin/" + name)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("mt_cli.features.doctor.findings.idle_cpus", lambda: 2.3)
    status, out, _ = mt("doctor")
    assert status == 1
    for words in (
        "4096 of",
        "other programs use the rest, and 4096 threads would wait for them; set training.num_threads=2",
        "close other programs",
        "checkpoints may not fit",
        "install a CUDA build",
    ):
        assert words in out


def test_a_busy_machine_is_not_a_failure(mt, monkeypatch):
    monkeypatch.setattr("mt_cli.features.doctor.findings.idle_cpus", lambda: 0.2)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    monkeypatch.setattr("mt_cli.features.doctor.findings.os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    status, out, _ = mt("doctor")
    (line,) = [line for line in out.splitlines() if line.startswith("note")]
    assert line.startswith("note CPUs         0.2 of ") and line.endswith("set training.num_threads=1")
    assert (status, "BAD" in out) == (0, False)


@pytest.mark.parametrize("has_nccl", [True, False])
def test_the_doctor_says_how_to_use_several_gpus(monkeypatch, has_nccl):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: has_nccl)
    (found,) = _processes()
    assert found.kind == ("ok" if has_nccl else "BAD")
    assert ("--devices 4 uses all GPUs" if has_nccl else "has no NCCL") in found.text


def test_doctor_examines(mt):
    status, out, _ = mt("doctor")
    assert status == 0
    for subject in ("python", "packages", "cpu", "threads", "disk"):
        assert subject in out
