import logging
import os
import re
import signal
from pathlib import Path

import pytest
import torch
from torch.distributed.elastic.multiprocessing.api import SignalException

from mt_cli.errors import InputError
from mt_cli.machine import launcher
from mt_cli.machine.devices import pick_device, seed_device
from mt_cli.machine.group import ALONE, Group


def test_alone_every_method_is_neutral():
    with launcher.launched_group() as group:
        assert group == ALONE == Group(rank=0, size=1, local_rank=0, launch_id="")
        tensor = torch.arange(3.0)
        group.all_reduce([tensor])
        assert tensor.tolist() == [0, 1, 2]
        value = object()
        assert group.from_main(lambda: value) is group.once_per_machine(lambda: value) is value
        assert group.on_main(lambda: value) is value
        assert group.all_gather(value) == [value]
        assert group.map_shares(lambda items: [item * 2 for item in items], [1, 2, 3]) == [2, 4, 6]
        assert group.agree(2.5, True, False) == (2.5, [True, False])


def test_random_numbers_depend_on_all_numbers_of_the_seed():
    def drawn(*numbers):
        seed_device(torch.device("cpu"), *numbers)
        return torch.rand(3).tolist()

    assert drawn(1, 2, 3) == drawn(1, 2, 3)
    assert len({tuple(drawn(*numbers)) for numbers in [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3)]}) == 4


def test_several_processes_of_a_machine_have_a_device_each(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert pick_device("auto") == torch.device("cuda")
    for number in (0, 1, 2):
        group = Group(number + 4, 8, number)
        assert pick_device("cpu", group) == torch.device("cpu")
        if number < 2:
            assert pick_device("auto", group) == pick_device("cuda", group) == torch.device("cuda", number)
        with pytest.raises(InputError, match="one device each"):
            pick_device("cuda:1", group)
    with pytest.raises(InputError, match="there are 2 CUDA devices"):
        pick_device("cuda", group)


LAUNCHED = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "MASTER_ADDR"),
        (LAUNCHED | {"LOCAL_RANK": None}, "LOCAL_RANK"),
        (LAUNCHED | {"WORLD_SIZE": "two"}, "'two'"),
        (LAUNCHED | {"LOCAL_RANK": "y"}, "'y'"),
        (LAUNCHED | {"WORLD_SIZE": ""}, "WORLD_SIZE"),
        (LAUNCHED | {"RANK": "2"}, "RANK"),
    ],
)
def test_a_process_with_half_of_a_launcher_is_refused(monkeypatch, variables, words):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name, value in variables.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=re.escape(words)), launcher.launched_group():
        pass


def test_without_the_variable_of_launchers_a_process_is_alone(monkeypatch):
    assert launcher.launched_processes() is None
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    assert launcher.launched_processes() == 2


@pytest.mark.parametrize(("num_cpus", "num_gpus", "most"), [(1, 0, 2), (1, 8, 8), (16, 2, 16)])
def test_a_launcher_starts_no_more_processes_than_there_are_cpus_or_gpus(monkeypatch, num_cpus, num_gpus, most):
    monkeypatch.setattr("mt_cli.machine.launcher.num_usable_cpus", lambda: num_cpus)
    monkeypatch.setattr("torch.cuda.device_count", lambda: num_gpus)
    with pytest.raises(InputError, match=rf"--devices {most + 1}: .* at most {most}"):
        launcher.launch(most + 1, ["train"])


@pytest.mark.parametrize(("written", "status"), [("", 130), ("0", 0), ("2", 2)])
def test_after_a_signal_the_status_is_the_one_that_the_processes_wrote(monkeypatch, written, status):
    """A run may have been done when the signal arrived."""

    def elastic_launch(config, entrypoint):
        if written:
            Path(os.environ["MT_STATUS_FILE"]).write_text(written)
        raise SignalException("SIGTERM", signal.SIGTERM)

    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(logging, "disable", lambda level: None)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", elastic_launch)
    assert launcher.launch(2, ["train"]) == status
