"""Attention kernels of GPUs, run by the interpreter of Triton on a CPU. It is chosen when Triton is imported."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
import torch

from mt_cli.data.packing import shaped_layout
from mt_cli.model import cached_attention, kernel_trial, packed_attention, row_attention
from mt_cli.model.attention import attend
from mt_cli.model.cached_attention import attend_to_cache, suits_cached_attention
from mt_cli.model.kernel_trial import LARGEST_ERROR, error_of
from mt_cli.model.packed_attention import attention_of_sequences, has_row_kernels
from mt_cli.model.row_attention import attend_rows

CPU = torch.device("cpu")

# Lengths of the sequences of queries and of keys, with empty ones on both sides; and numbers of rows, with padding.
LENGTHS = [
    [[3, 0, 70, 9, 1, 40], [5, 12, 0, 30, 80, 1], (136, 152)],
    [[1, 2], [1, 1], (8, 16)],
    [[64], [128], (64, 136)],
]


def layouts_of(index):
    *sides, num_rows = LENGTHS[index]
    return [shaped_layout(np.array(side), number, 12, 100) for side, number in zip(sides, num_rows, strict=True)]


def check(index, d_head, dtype, is_causal):
    """Compare values and gradients with the definition, for views of wider rows."""
    queries, keys = layouts_of(index)
    if is_causal:
        keys = queries
    generator = torch.Generator().manual_seed(7)
    sizes = [len(layout.positions) for layout in (queries, keys, keys)]
    inputs = [torch.randn(number, 6, d_head, generator=generator).to(dtype)[:, 1:3] for number in sizes]
    weights = torch.randn(sizes[0], 2, d_head, generator=generator)
    results = []
    for kind in (dtype, torch.float32):
        leaves = [x.detach().to(kind).requires_grad_() for x in inputs]
        if kind == dtype:
            mixed = attend_rows(*leaves, queries, keys, is_causal)
            assert mixed.dtype == dtype
        else:
            mixed = attention_of_sequences(*leaves, queries, keys, is_causal)
        results.append([mixed, *torch.autograd.grad((mixed * weights).sum(), leaves)])
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    for ours, definition in zip(*results, strict=True):
        error = float((ours.detach().float() - definition.detach()).norm() / definition.detach().norm())
        assert error <= tolerance, (index, d_head, dtype, is_causal, error)


def shifted(*arguments):
    *tensors, queries, keys, causal = arguments
    return attention_of_sequences(*tensors, queries, replace(keys, sequences=keys.sequences.roll(1)), causal)


def silent(*arguments):
    mixed = attention_of_sequences(*arguments)
    return mixed * (torch.arange(len(mixed)) > 5)[:, None, None]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_trial_of_the_kernels_tells_rounding_from_errors(monkeypatch, dtype):
    """It allows what half precision rounds; not a row that sees a neighbour too many, nor one sequence too few."""
    for kernel in (attention_of_sequences, shifted, silent):
        with monkeypatch.context() as patch:
            patch.setattr(row_attention, "attend_rows", kernel)
            errors = [error_of(case, CPU, dtype) for case in packed_attention.trial_cases(32)]
        if kernel is attention_of_sequences:
            assert max(errors) < LARGEST_ERROR / 2
        else:
            assert not any(error < 2 * LARGEST_ERROR for error in errors)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_kernels_that_fail_are_not_used(monkeypatch, capsys):
    """Too little memory for the trial is no verdict."""

    def without_memory(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(kernel_trial, "reason_against_compiling", lambda device: None)
    kernel_trial.kernel_works.cache_clear()
    with monkeypatch.context() as patch, pytest.raises(torch.OutOfMemoryError):
        patch.setattr(kernel_trial, "error_of", without_memory)
        has_row_kernels(torch.device("cuda"), torch.bfloat16, 32)
    assert not has_row_kernels(torch.device("cuda"), torch.bfloat16, 32)
    assert "attention kernel fails here" in capsys.readouterr().err
    kernel_trial.kernel_works.cache_clear()


def inputs(num_sentences=256, num_queries=2):
    room = torch.randn(num_sentences, 4, 48, 16)
    return torch.randn(num_sentences, 4, num_queries, 16), room[:, :, :40], room.clone()[:, :, :40]


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_trial_of_the_kernel_notices_a_wrong_result(monkeypatch, is_wrong):
    def plain(query, key, value, bias):
        return attend(query, key, value, torch.zeros_like(bias) if is_wrong else bias)

    monkeypatch.setattr(cached_attention, "attend_to_cache", plain)
    for case in cached_attention.trial_cases(16):
        assert (error_of(case, CPU, torch.float32) < LARGEST_ERROR) != is_wrong


def test_the_kernel_is_used_for_many_rows_of_few_queries(monkeypatch):
    monkeypatch.setattr(cached_attention, "has_cached_kernel", lambda *_: True)
    bias = torch.zeros(256, 1, 1, 40)
    with torch.no_grad():
        assert suits_cached_attention(*inputs(), bias)
        assert not suits_cached_attention(*inputs(255), bias[:255])
        assert not suits_cached_attention(*inputs(num_queries=17), bias)
        query, key, value = inputs()
        copied = value.transpose(1, 2).contiguous().transpose(1, 2)
        assert not suits_cached_attention(query, key, copied, bias)
        assert not suits_cached_attention(query, key, value, bias.expand(-1, 4, -1, -1))
    assert not suits_cached_attention(*inputs(), bias)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed; PyTorch for GPUs brings it")
def test_kernels_have_the_values_and_gradients_of_their_definitions():
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def interpreted_range(start, end, step):
    """`range` for the kernels: NumPy 2.4 no longer makes numbers of the interpreter's arrays of one element."""
    return range(*(each if isinstance(each, int) else each.handle.data.item() for each in (start, end, step)))


if __name__ == "__main__":
    from mt_cli.model import triton_attention

    triton_attention.range = interpreted_range
    # The interpreter multiplies numbers in bf16 as if they were integers.
    for options in product(range(len(LENGTHS)), (24, 32, 64), (torch.float32, torch.float16), (False, True)):
        check(*options)
    torch.cuda.device_of = lambda tensor: torch.no_grad()
    for d_head, dtype in product((24, 32, 64), (torch.float32, torch.float16)):
        for case in cached_attention.trial_cases(d_head):
            assert error_of(case, CPU, dtype) < LARGEST_ERROR
    query, key, value = inputs(3, 16)
    mixed = attend_to_cache(query, key, value, torch.full((3, 1, 1, 40), -torch.inf))
    assert torch.equal(mixed, torch.zeros_like(query))
