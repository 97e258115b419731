import shutil
from types import SimpleNamespace

import pytest

from mt_cli.advice import doctor as findings
from mt_cli.advice.doctor import examine
from mt_cli.runtime import devices


def test_runs_that_cannot_be_used_are_failures(mt, trained, tmp_path):
    status, out, _ = mt("doctor")
    assert status == 0 and "below" not in out
    for name in ("good", "edited", "unreadable"):
        shutil.copytree(trained, tmp_path / "runs" / name)
    with (tmp_path / "runs/edited/tokenizer.source.json").open("a") as file:
        file.write("}")
    (tmp_path / "runs/unreadable/config.yaml").write_text("}{")
    status, out, _ = mt("doctor")
    assert status == 1 and "1 below" in out
    for name in ("edited/tokenizer.source", "unreadable/config.yaml"):
        assert name in "".join(line for line in out.splitlines() if line.startswith("BAD "))


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Examines a machine that has these properties: findings by subject."""

    def look(num_threads=1, num_gpus=0, has_nccl=True, **limits):
        monkeypatch.setattr("torch.get_num_threads", lambda: num_threads)
        monkeypatch.setattr("torch.cuda.device_count", lambda: num_gpus)
        properties = SimpleNamespace(name="GPU", total_memory=2**34)
        monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: properties)
        for module in (devices, findings):
            monkeypatch.setattr(module, "has_fast_bf16", lambda device: True)
        monkeypatch.setattr(findings, "reason_against_compiling", lambda device: limits.get("compiling"))
        monkeypatch.setattr("torch.distributed.is_nccl_available", lambda: has_nccl)
        for name, value in limits.items():
            monkeypatch.setattr(findings, name, value, raising=name.startswith("_"))
        return {finding.subject: finding for finding in examine(tmp_path)}

    return look


def test_threads_memory_disk_and_drivers_are_examined(machine, monkeypatch):
    assert "BAD" not in {finding.kind for finding in machine(num_threads=1).values()}
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/" + name)
    found = machine(num_threads=4096, _MIN_MEMORY=2**60, _MIN_FREE_DISK=2**60)
    assert {found[subject].kind for subject in ("threads", "memory", "disk", "cuda")} == {"BAD"}


def test_several_gpus_need_nccl_and_are_described_once(machine, tmp_path):
    for has_nccl, kind in ((False, "BAD"), (True, "ok")):
        assert machine(num_gpus=4, has_nccl=has_nccl)["processes"].kind == kind
    assert [finding.subject for finding in examine(tmp_path)].count("compiling") == 1
    assert "compiling" not in machine()


def test_a_gpu_says_how_it_trains_and_what_slows_it(machine):
    assert machine(num_gpus=2)["compiling"].kind == "ok"
    compiling = machine(num_gpus=2, compiling="no C compiler")["compiling"]
    assert compiling.kind == "note" and "no C compiler" in compiling.text
