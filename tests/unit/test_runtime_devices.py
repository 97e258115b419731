import pytest
import torch

from mt_cli.errors import InputError
from mt_cli.runtime import devices
from mt_cli.runtime.cpus import in_threads
from mt_cli.runtime.devices import (
    has_fast_bf16,
    is_out_of_memory,
    limited_memory,
    pick_device,
    pick_precision,
    reason_against_compiling,
    seed_device,
)

CPU = torch.device("cpu")


def test_random_numbers_depend_on_all_numbers_of_the_seed():
    def of_device(*numbers):
        seed_device(CPU, *numbers)
        return torch.randint(2**60, ()).item()

    assert of_device(1, 2, 3) == of_device(1, 2, 3)
    assert len({of_device(*numbers) for numbers in [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3)]}) == 4


@pytest.mark.parametrize(
    ("has_cuda", "has_mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_is_the_first_available_device(monkeypatch, has_cuda, has_mps, expected):
    monkeypatch.setattr("torch.cuda.is_available", lambda: has_cuda)
    monkeypatch.setattr("torch.cuda.device_count", lambda: int(has_cuda))
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: has_mps)
    changes = []
    monkeypatch.setattr("torch.backends.cuda.enable_cudnn_sdp", changes.append)
    assert pick_device("auto").type == expected
    assert changes == [False] * has_cuda, "the attention of cuDNN is off where it would be used"
    for name, is_available in (("cpu", True), ("cuda", has_cuda), ("cuda:1", False), ("mps", has_mps), ("tpu", False)):
        if is_available:
            assert pick_device(name) == torch.device(name)
        else:
            with pytest.raises(InputError, match=f"device '?{name}"):
                pick_device(name)


def test_compiling_needs_a_compiler_and_headers(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(devices, "find_spec", lambda name: name)
    monkeypatch.setattr("sysconfig.get_path", lambda name, scheme: str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: name)
    assert "header" in reason_against_compiling(torch.device("cuda"))
    (tmp_path / "Python.h").touch()
    assert not reason_against_compiling(torch.device("cuda")) and "CUDA" in reason_against_compiling(CPU)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "compiler" in reason_against_compiling(torch.device("cuda"))
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (7, 5))
    assert "bf16" in reason_against_compiling(torch.device("cuda"))


def test_memory_is_limited_until_the_end_or_an_error(monkeypatch):
    limits = []
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: None)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda index: (500, 1000))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda index: 100)
    monkeypatch.setattr("torch.cuda.set_per_process_memory_fraction", lambda *limit: limits.append(limit))
    with pytest.raises(ZeroDivisionError), limited_memory(torch.device("cuda", 1)):
        assert limits == [(pytest.approx(0.4), 1)]
        raise ZeroDivisionError
    assert limits[1:] == [(1.0, 1)]


@pytest.mark.parametrize("is_fast", [True, False])
def test_auto_precision_is_bf16_where_hardware_multiplies_it(monkeypatch, is_fast):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"amx_tile": is_fast})
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512" if is_fast else "AVX2")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0) if is_fast else (7, 5))
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    for device in (CPU, torch.device("cuda")):
        assert has_fast_bf16(device) is is_fast
        assert pick_precision("auto", device) == (torch.bfloat16 if is_fast else torch.float32)
    assert pick_precision("fp32", CPU) == torch.float32 and pick_precision("bf16", CPU) == torch.bfloat16
    with pytest.raises(InputError, match="fp8"):
        pick_precision("fp8", CPU)


def test_only_a_failed_allocation_is_out_of_memory():
    with pytest.raises(RuntimeError) as failed:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(failed.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    with pytest.raises(RuntimeError) as failed:
        torch.ones(2) @ torch.ones(3)
    assert not is_out_of_memory(failed.value)


def test_results_of_threads_come_in_the_order_of_items():
    taken = []

    def items():
        for number in range(20):
            taken.append(number)
            yield number

    for done, result in enumerate(in_threads(lambda number: number * 10, items())):
        assert result == done * 10 and len(taken) <= done + 4
    results = in_threads(lambda number: 1 // number, [1, 1, 0, 1])
    assert [next(results), next(results)] == [1, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
