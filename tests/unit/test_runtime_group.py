import pytest
import torch

from mt_cli.errors import InputError, LostProcessError
from mt_cli.runtime import launcher
from mt_cli.runtime.devices import pick_device
from mt_cli.runtime.group import Group


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


@pytest.mark.parametrize("missing", ["LOCAL_RANK", "RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_a_process_with_half_of_a_launcher_is_refused(monkeypatch, missing):
    variables = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "here", "MASTER_PORT": "29500"}
    for name, value in variables.items():
        monkeypatch.delenv(name, raising=False) if name == missing else monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=rf"\b{missing}\b"), launcher.launched_group():
        raise AssertionError("it joined")


@pytest.mark.parametrize(("num_cpus", "num_gpus", "most"), [(1, 0, 2), (1, 8, 8), (16, 2, 16)])
def test_no_more_processes_start_than_cpus_or_gpus(monkeypatch, num_cpus, num_gpus, most):
    monkeypatch.setattr("mt_cli.runtime.launcher.num_usable_cpus", lambda: num_cpus)
    monkeypatch.setattr("torch.cuda.device_count", lambda: num_gpus)
    with pytest.raises(InputError, match=rf"--devices {most + 1}: .* {most}"):
        launcher.launch(most + 1, ["train"])


EXCHANGES = {
    "all_reduce": lambda: Group(0, 2).all_reduce([torch.ones(2)]),
    "broadcast_object_list": lambda: Group(0, 2).from_main(int),
    "all_gather_object": lambda: Group(0, 2).all_gather(1),
}


@pytest.mark.parametrize("name", EXCHANGES)
@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:37803"), True),
        (torch.distributed.DistBackendError("NCCL error: remote process exited"), True),
        (torch.distributed.DistBackendError("NCCL error: Last error: Cuda failure 2 'out of memory'"), False),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), False),
        (torch.AcceleratorError("CUDA error: an illegal memory access was encountered"), False),
    ],
)
def test_only_an_error_of_the_connection_means_a_lost_process(monkeypatch, name, error, is_lost):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(torch.distributed, name, fail)
    with pytest.raises(LostProcessError if is_lost else type(error)):
        EXCHANGES[name]()
