"""Attention to a cache: its kernel, in Triton's interpreter, against its definition; and where it is used."""

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import product

import pytest
import torch

from mt_cli.model import cached_attention
from mt_cli.model.attention import attend
from mt_cli.model.cached_attention import attend_to_cache, suits_cached_attention, trial_cases
from mt_cli.model.kernel_trial import LARGEST_ERROR, error_of


def inputs(num_sentences=256, num_queries=2):
    room = torch.randn(num_sentences, 4, 48, 16)
    return torch.randn(num_sentences, 4, num_queries, 16), room[:, :, :40], room.clone()[:, :, :40]


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed; PyTorch for GPUs brings it")
def test_attention_to_a_cache_is_that_of_its_definition():
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    result = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_trial_of_the_kernel_notices_a_wrong_result(monkeypatch, is_wrong):
    def plain(query, key, value, bias):
        return attend(query, key, value, torch.zeros_like(bias) if is_wrong else bias)

    monkeypatch.setattr(cached_attention, "attend_to_cache", plain)
    for case in trial_cases(16):
        assert (error_of(case, torch.device("cpu"), torch.float32) < LARGEST_ERROR) != is_wrong


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


if __name__ == "__main__":
    from test_packed_attention import interpreted_range

    from mt_cli.model import triton_attention

    triton_attention.range = interpreted_range
    torch.cuda.device_of = lambda tensor: torch.no_grad()
    # The interpreter multiplies numbers in bf16 as if they were integers.
    for d_head, dtype in product((24, 32, 64), (torch.float32, torch.float16)):
        for case in trial_cases(d_head):
            assert error_of(case, torch.device("cpu"), dtype) < LARGEST_ERROR
    query, key, value = inputs(3, 16)
    mixed = attend_to_cache(query, key, value, torch.full((3, 1, 1, 40), -torch.inf))
    assert torch.equal(mixed, torch.zeros_like(query))
