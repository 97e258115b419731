import pytest
import torch

from mt_cli.errors import InputError
from mt_cli.machine import launcher
from mt_cli.machine.devices import pick_device
from mt_cli.machine.group import Group


def test_several_processes_of_a_machine_have_a_device_each(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.backends.cuda.enable_cudnn_sdp", lambda enabled: None)
    for number in (0, 1, 2):
        group = Group(number + 4, 8, number)
        assert pick_device("cpu", group) == torch.device("cpu")
        if number < 2:
            assert pick_device("auto", group) == pick_device("cuda", group) == torch.device("cuda", number)
        with pytest.raises(InputError, match="one device each"):
            pick_device("cuda:1", group)
    with pytest.raises(InputError, match="2 CUDA devices"):
        pick_device("cuda", group)


LAUNCHED = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({}, "MASTER_ADDR"),
        (LAUNCHED | {"LOCAL_RANK": None}, "LOCAL_RANK"),
        (LAUNCHED | {"WORLD_SIZE": "two"}, "'two'"),
        (LAUNCHED | {"RANK": "2"}, "RANK"),
    ],
)
def test_a_process_with_half_of_a_launcher_is_refused(monkeypatch, variables, word):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert launcher.launched_processes() is None
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    assert launcher.launched_processes() == 2
    for name in LAUNCHED:
        value = variables.get(name, "2" if name == "WORLD_SIZE" else None)
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=word), launcher.launched_group():
        pass


@pytest.mark.parametrize(("num_cpus", "num_gpus", "most"), [(1, 0, 2), (1, 8, 8), (16, 2, 16)])
def test_no_more_processes_start_than_cpus_or_gpus(monkeypatch, num_cpus, num_gpus, most):
    monkeypatch.setattr("mt_cli.machine.launcher.num_usable_cpus", lambda: num_cpus)
    monkeypatch.setattr("torch.cuda.device_count", lambda: num_gpus)
    with pytest.raises(InputError, match=rf"--devices {most + 1}: .* {most}"):
        launcher.launch(most + 1, ["train"])
