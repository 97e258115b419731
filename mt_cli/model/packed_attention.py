"""Attention between packed rows without a grid: its definition, and on a GPU our kernels (`row_attention`).

Shapes alone decide what is launched, so that the operations can be compiled and captured.

Legend of the shapes: N rows of queries, M rows of keys, B sequences, H heads, K head dim.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mt_cli.data.packing import PackedLayout, moved, shaped_layout
from mt_cli.model.kernel_trial import Case, kernel_works


def attend_packed(
    query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, queries: PackedLayout, keys: PackedLayout, is_causal: bool
) -> Tensor:
    """Attention within the sequences of two layouts, NxHxK; 0 for a row without keys.

    With `is_causal`, a row attends to no later row of its sequence.
    """
    if not query_NHK.is_cuda:
        return attention_of_sequences(query_NHK, key_MHK, value_MHK, queries, keys, is_causal)
    from mt_cli.model.row_attention import attend_rows  # Takes milliseconds that only a GPU needs.

    return attend_rows(query_NHK, key_MHK, value_MHK, queries, keys, is_causal)


def attention_of_sequences(
    query_NHK: Tensor, key_MHK: Tensor, value_MHK: Tensor, queries: PackedLayout, keys: PackedLayout, is_causal: bool
) -> Tensor:
    """Attention within sequences by its definition: one attention between all rows, masked."""
    assert queries.sequences is not None and keys.sequences is not None
    mask_NM = queries.sequences[:, None] == keys.sequences
    mask_NM = mask_NM.tril() if is_causal else mask_NM
    query_HNK, key_HMK, value_HMK = (rows.transpose(0, 1) for rows in (query_NHK, key_MHK, value_MHK))
    return F.scaled_dot_product_attention(query_HNK, key_HMK, value_HMK, mask_NM).transpose(0, 1)


def has_row_kernels(device: torch.device, dtype: torch.dtype, d_head: int) -> bool:
    """True if `attend_rows` works for this device, dtype and head dim, so that attention needs no grid."""
    return dtype != torch.float32 and d_head % 8 == 0 and kernel_works("attention", trial_cases, device, dtype, d_head)


def trial_cases(d_head: int) -> Iterator[Case]:
    """With and without a causal mask; sequences begin and end inside of tiles, and some are empty."""
    from mt_cli.model.row_attention import attend_rows

    lengths = np.array([5, 40, 1, 0, 70, 130, 33, 9]), np.array([30, 2, 0, 7, 64, 100, 65, 20])
    generator = torch.Generator().manual_seed(1)
    for is_causal in (False, True):
        layouts = [shaped_layout(side, 320, 16, 256) for side in (lengths[0], lengths[0 if is_causal else 1])]

        def attend(function: Any, *rows: Tensor, layouts: Any = layouts, is_causal: bool = is_causal) -> Tensor:
            return function(*rows, *(moved(layout, lambda x: x.to(rows[0].device)) for layout in layouts), is_causal)

        inputs = [torch.randn(320, 2, d_head, generator=generator) for _ in range(3)]
        yield Case(partial(attend, attend_rows), partial(attend, attention_of_sequences), inputs)
