import torch
from safetensors.torch import save_file


def test_the_doctor_finds_runs_of_another_format_and_damaged_ones(mt, trained, tmp_path):
    status, out, _ = mt("doctor")
    assert "below" not in out
    for name in ("old", "broken"):
        (tmp_path / "runs" / name / "checkpoints").mkdir(parents=True)
    save_file({"a": torch.ones(1)}, tmp_path / "runs/old/checkpoints/best.safetensors", {"format": "1"})
    (tmp_path / "runs/broken/checkpoints/last.safetensors").write_bytes(b"\x80\x04.")
    (tmp_path / "runs" / "good").symlink_to(trained)
    status, out, _ = mt("doctor")
    assert status == 1
    assert "runs/old: best.safetensors was written by an older version of mt (format 1" in out
    assert "runs/broken: last.safetensors is damaged" in out
    assert "1 below" in out


def test_the_doctor_speaks_of_threads_memory_and_disk(mt, monkeypatch):
    monkeypatch.setattr("torch.get_num_threads", lambda: 4096)
    monkeypatch.setattr("mt_cli.doctor._MIN_MEMORY", 2**60)
    monkeypatch.setattr("mt_cli.doctor._MIN_FREE_DISK", 2**60)
    monkeypatch.setattr("mt_cli.doctor.shutil.which", lambda name: "/usr/bin/" + name)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    status, out, _ = mt("doctor")
    assert status == 1
    for words in (
        "set training.num_threads",
        "close other programs",
        "checkpoints may not fit",
        "install a CUDA build",
    ):
        assert words in out
