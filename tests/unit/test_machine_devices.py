import random

import numpy as np
import pytest
import torch

from mt_cli.errors import InputError
from mt_cli.machine.devices import (
    cpu_has,
    has_fast_bf16,
    is_out_of_memory,
    pick_device,
    pick_precision,
    seed_everything,
    use_threads,
)
from mt_cli.machine.group import copy_all

CPU = torch.device("cpu")


def test_equal_seeds_give_equal_random_numbers_in_python_numpy_and_torch():
    def numbers(seed):
        seed_everything(seed)
        return random.random(), np.random.random(), torch.rand(()).item()

    first, second = numbers(1), numbers(2)
    assert numbers(1) == first and all(one != two for one, two in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("has_cuda", "has_mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_is_the_first_available_device(monkeypatch, has_cuda, has_mps, expected):
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_cuda)
    monkeypatch.setattr("torch.cuda.device_count", lambda: int(has_cuda))
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: has_mps)
    assert pick_device("auto").type == expected
    for name, is_available in (("cpu", True), ("cuda", has_cuda), ("cuda:1", False), ("mps", has_mps), ("tpu", False)):
        if is_available:
            assert pick_device(name) == torch.device(name)
        else:
            with pytest.raises(InputError, match=f"device '?{name}"):
                pick_device(name)


@pytest.mark.parametrize("instructions", ["avx512_bf16", "amx_tile"])
def test_this_pytorch_says_whether_the_cpu_multiplies_bf16(instructions):
    assert cpu_has(instructions) is not None, "bf16 is no longer chosen on any CPU, which halves the speed of training"


def test_a_pytorch_without_public_capabilities_is_asked_by_its_private_function(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    for answer in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda answer=answer: answer, raising=False)
        assert cpu_has("avx512_bf16") is answer
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")
    assert cpu_has("avx512_bf16") is None


def test_copying_all_tensors_does_not_need_the_private_function_that_is_fast_on_a_gpu(monkeypatch):
    assert hasattr(torch, "_foreach_copy_"), "weights are now copied one by one, which takes longer on a GPU"
    tensors = [torch.arange(6.0).view(2, 3), torch.tensor(7.0)]
    for _ in range(2):
        places = [torch.zeros(2, 3, dtype=torch.bfloat16, requires_grad=True), torch.zeros(())]
        copy_all(tensors, places)
        assert all(torch.equal(place.float(), tensor) for place, tensor in zip(places, tensors, strict=True))
        monkeypatch.delattr(torch, "_foreach_copy_", raising=False)


def test_auto_precision_is_bf16_only_where_the_hardware_multiplies_it():
    assert pick_precision("fp32", CPU) == torch.float32 and pick_precision("bf16", CPU) == torch.bfloat16
    assert (pick_precision("auto", CPU) == torch.bfloat16) == has_fast_bf16(CPU)
    with pytest.raises(InputError, match="unknown precision 'fp8'"):
        pick_precision("fp8", CPU)


def test_only_a_failed_allocation_is_out_of_memory():
    with pytest.raises(RuntimeError) as failed:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(failed.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    with pytest.raises(RuntimeError) as failed:
        torch.ones(2) @ torch.ones(3)
    assert not is_out_of_memory(failed.value)


@pytest.mark.parametrize(("idle", "option", "expected"), [(None, None, 4), (1, None, 1), (9, None, 4), (1, 3, 3)])
def test_the_number_of_threads_is_the_option_or_the_number_of_idle_cpus(monkeypatch, idle, option, expected):
    number = [4]
    monkeypatch.setattr("mt_cli.machine.devices.threads_if_busy", lambda: idle)
    monkeypatch.setattr(torch, "get_num_threads", lambda: number[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda new: number.append(new) or number.pop(0))
    use_threads(option)
    assert number == [expected]
