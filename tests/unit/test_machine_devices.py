import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mt_cli.errors import InputError
from mt_cli.machine import devices
from mt_cli.machine.devices import (
    can_compile,
    cpu_has,
    has_fast_bf16,
    has_varlen_attention,
    is_out_of_memory,
    limited_memory,
    pick_device,
    pick_precision,
    reason_against_compiling,
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
    monkeypatch.setattr("torch.backends.cuda.enable_cudnn_sdp", lambda enabled: None)
    assert pick_device("auto").type == expected
    for name, is_available in (("cpu", True), ("cuda", has_cuda), ("cuda:1", False), ("mps", has_mps), ("tpu", False)):
        if is_available:
            assert pick_device(name) == torch.device(name)
        else:
            with pytest.raises(InputError, match=f"device '?{name}"):
                pick_device(name)


def test_cudnn_attention_is_off_once_a_cuda_device_is_picked(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    was_enabled = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        pick_device("cpu")
        assert torch.backends.cuda.cudnn_sdp_enabled()
        pick_device("cuda")
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """Sets up a CUDA device that can compile, and changes it by what a test needs; returns the device."""

    def set_up(capability=(9, 0), packages=("triton",), commands=("gcc",), has_headers=True, cc=None):
        (tmp_path / "Python.h").unlink(missing_ok=True)
        if has_headers:
            (tmp_path / "Python.h").touch()
        monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
        monkeypatch.setattr(devices, "find_spec", lambda name: name if name in packages else None)
        monkeypatch.setattr("shutil.which", lambda name: name if name in commands else None)
        monkeypatch.setattr("sysconfig.get_path", lambda name, scheme: str(tmp_path))
        monkeypatch.delenv("CC", raising=False)
        if cc is not None:
            monkeypatch.setenv("CC", cc)
        return torch.device("cuda")

    return set_up


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"commands": ("clang",)}, None),
        ({"commands": ("/opt/cc",), "cc": "/opt/cc"}, None),
        ({"capability": (7, 0)}, None),
        ({"capability": (6, 1)}, "compute capability"),
        ({"packages": ()}, "Triton is not installed"),
        ({"commands": ()}, "no C compiler"),
        ({"cc": "/opt/cc"}, "no C compiler"),
        ({"has_headers": False}, "no header files"),
    ],
)
def test_compiling_needs_a_newer_gpu_triton_a_compiler_and_header_files(gpu, changes, problem):
    reason = reason_against_compiling(device := gpu(**changes))
    assert can_compile(device) == (problem is None) == (reason is None)
    assert problem is None or problem in reason
    assert not can_compile(CPU) and not can_compile(torch.device("mps"))


def test_variable_length_attention_is_for_half_precision_on_a_gpu_since_ampere(gpu):
    pytest.importorskip("torch", "2.11")
    ampere, half = gpu(capability=(8, 0)), (torch.bfloat16, torch.float16)
    assert all(has_varlen_attention(ampere, dtype) for dtype in half)
    assert not has_varlen_attention(ampere, torch.float32)
    assert not any(has_varlen_attention(CPU, dtype) for dtype in half)
    assert not has_varlen_attention(gpu(capability=(7, 5)), torch.float16)


def test_variable_length_attention_of_an_earlier_pytorch_is_not_used(gpu, monkeypatch):
    earlier = SimpleNamespace(varlen_attn=lambda query, key, value, cu_seq_q, cu_seq_k, is_causal=False: query)
    for module in (earlier, None):  # None makes the import fail.
        monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", module)
        assert not has_varlen_attention(gpu(), torch.bfloat16)


def test_memory_is_limited_to_a_share_of_what_is_free_until_the_end_or_an_error(monkeypatch):
    limits = []
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 3)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda index: (500, 1000))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda index: 100)
    monkeypatch.setattr(
        "torch.cuda.set_per_process_memory_fraction", lambda fraction, index: limits.append((fraction, index))
    )
    with limited_memory(torch.device("cuda", 1)):
        assert limits == [(pytest.approx(0.4), 1)]
    assert limits[1:] == [(1.0, 1)]
    with pytest.raises(ZeroDivisionError), limited_memory(torch.device("cuda")):
        raise ZeroDivisionError
    assert limits[2:] == [(pytest.approx(0.4), 3), (1.0, 3)]


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
