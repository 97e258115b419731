import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from mt_cli.advice import doctor as findings
from mt_cli.advice.doctor import examine, problem_of_graphs
from mt_cli.runtime import devices

MEANS = ("attention", "compiling", "CUDA graphs")


def test_runs_that_cannot_be_used_are_failures(mt, trained, tmp_path):
    status, out, _ = mt("doctor")
    assert status == 0 and "below" not in out
    for name in ("good", "old", "broken", "edited", "unreadable"):
        shutil.copytree(trained, tmp_path / "runs" / name)
    save_file({"a": torch.ones(1)}, tmp_path / "runs/old/checkpoints/best.safetensors", {"format": "1"})
    content = (tmp_path / "runs/broken/checkpoints/last.safetensors").read_bytes()
    (tmp_path / "runs/broken/checkpoints/last.safetensors").write_bytes(content[:-1])
    with (tmp_path / "runs/edited/tokenizer.source.json").open("a") as file:
        file.write(" ")
    (tmp_path / "runs/unreadable/config.yaml").write_text("}{")
    status, out, _ = mt("doctor")
    assert status == 1 and "1 below" in out
    damaged = ("old/checkpoints/best", "broken/checkpoints/last", "edited/tokenizer.source", "unreadable/config.yaml")
    for name in damaged:
        assert name in "".join(line for line in out.splitlines() if line.startswith("BAD "))


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Examines a machine that has these properties: findings by subject."""

    def look(num_threads=1, num_idle=None, num_gpus=0, has_nccl=True, **limits):
        monkeypatch.setattr("torch.get_num_threads", lambda: num_threads)
        monkeypatch.setattr("torch.cuda.device_count", lambda: num_gpus)
        properties = SimpleNamespace(name="GPU", total_memory=2**34)
        monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: properties)
        for module in (devices, findings):
            monkeypatch.setattr(module, "has_fast_bf16", lambda device: True)
        capability = limits.pop("capability", (9, 0))
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
        monkeypatch.setattr(findings, "problem_of_graphs", lambda device: limits.get("graphs"))
        monkeypatch.setattr(findings, "reason_against_compiling", lambda device: limits.get("compiling"))
        monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: has_nccl)
        monkeypatch.setattr(findings, "idle_cpus", lambda: num_idle)
        for name, value in limits.items():
            monkeypatch.setattr(findings, name, value, raising=name.startswith("_"))
        return {finding.subject: finding for finding in examine(tmp_path)}

    return look


def test_threads_load_memory_disk_and_drivers_are_examined(machine, monkeypatch):
    assert "BAD" not in {finding.kind for finding in machine(num_threads=1, num_idle=0.2).values()}, "only busy"
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/" + name)
    found = machine(num_threads=4096, num_idle=2.3, _MIN_MEMORY=2**60, _MIN_FREE_DISK=2**60)
    assert {found[subject].kind for subject in ("threads", "memory", "disk", "cuda")} == {"BAD"}
    assert found["CPUs"].kind == "note" and found["CPUs"].text.endswith("training.num_threads=2")


def test_several_gpus_need_nccl_and_are_described_once(machine, tmp_path):
    for has_nccl, kind in ((False, "BAD"), (True, "ok")):
        assert machine(num_gpus=4, has_nccl=has_nccl)["processes"].kind == kind
    assert [finding.subject for finding in examine(tmp_path)].count("attention") == 1
    assert not machine().keys() & set(MEANS)


def test_a_gpu_says_how_it_trains_and_what_slows_it(machine):
    pytest.importorskip("torch", "2.11")
    found = machine(num_gpus=2)
    assert {found[subject].kind for subject in MEANS} == {"ok"}
    found = machine(num_gpus=2, capability=(7, 0), compiling="no C compiler", graphs="no stream")
    assert {found[subject].kind for subject in MEANS} == {"note"}
    assert "no C compiler" in found["compiling"].text and "no stream" in found["CUDA graphs"].text
    assert problem_of_graphs(torch.device("cpu")) is None
