"""Attention kernels in Triton, which `packed_attention` and `cached_attention` launch. Importing them needs Triton.

Between packed rows, a program computes BLOCK rows of one head, whatever sequences they belong to. It loops over the
rows of the other side that they attend to, INNER rows at a time. Each row attends to an interval of rows, and a mask
keeps sequences apart. A batch of short sequences therefore needs few programs; FlashAttention launches one of 128 rows
for every sequence.

Softmax is computed online: sums are rescaled whenever a larger score occurs (Dao et al. 2022, algorithm 1). The
backward pass recomputes the weights from the log-sum-exp of each row (Dao 2023, algorithm 2). There are no atomic
additions, so results are deterministic.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Legend: D is the head dim, BLOCK_D the next power of two. Tensors are pointers to their first element; a row
# of queries, keys, values or gradients has its heads side by side. The log-sum-exp and `delta` are HxN, in fp32.

_LOG2_E = tl.constexpr(1.4426950408889634)  # Powers of 2 are cheaper, so scores are in units of log 2.
_LOWEST = tl.constexpr(-1.0e30)  # Used instead of -inf, because -inf minus -inf is NaN.

# Numbers of rows differ between batches. A kernel specialised on them might be compiled during a capture.
_jit = triton.jit(
    do_not_specialize=["num_queries", "num_keys"],
    do_not_specialize_on_alignment=["query_sequences", "key_sequences", "query_starts", "key_starts"],
)


@_jit
def forward(
    query, key, value, mixed, lse, query_sequences, key_starts,
    query_stride, key_stride, value_stride, num_queries,
    D: tl.constexpr, BLOCK_D: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Mixed values of a tile of queries, and their log-sum-exp."""
    head, first = tl.program_id(0), tl.program_id(1) * BLOCK
    heads = tl.num_programs(0)
    rows = first + tl.arange(0, BLOCK)
    q = _load(query, query_stride, first, num_queries, D, BLOCK_D, BLOCK)
    firsts, ends = _intervals(query_sequences, key_starts, first, num_queries, BLOCK)
    if IS_CAUSAL:
        ends = tl.minimum(ends, rows + 1)
    end = tl.max(ends, 0)
    largest = tl.full([BLOCK], _LOWEST, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    summed = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    for inner in range(tl.min(firsts, 0), end, INNER):
        k = _load(key, key_stride, inner, end, D, BLOCK_D, INNER)
        v = _load(value, value_stride, inner, end, D, BLOCK_D, INNER)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (D**-0.5 * _LOG2_E)
        scores = tl.where(_mask(firsts, ends, inner, INNER), scores, float("-inf"))
        largest, total, summed = _with_scores(scores, v, largest, total, summed)
    total = tl.where(total > 0, total, 1.0)  # It is 0 for rows without keys.
    _store(mixed, heads * D, first, num_queries, summed / total[:, None], D, BLOCK_D, BLOCK)
    tl.store(lse + head * num_queries + rows, largest + tl.log2(total), mask=rows < num_queries)


@_jit
def query_gradient(
    query, key, value, mixed, grad, lse, delta, query_grad, query_sequences, key_starts,
    query_stride, key_stride, value_stride, grad_stride, num_queries,
    D: tl.constexpr, BLOCK_D: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Gradient of a tile of queries, and `delta`, the inner product of mixed values and their gradient."""
    head, first = tl.program_id(0), tl.program_id(1) * BLOCK
    heads = tl.num_programs(0)
    rows = first + tl.arange(0, BLOCK)
    q = _load(query, query_stride, first, num_queries, D, BLOCK_D, BLOCK)
    do = _load(grad, grad_stride, first, num_queries, D, BLOCK_D, BLOCK)
    o = _load(mixed, heads * D, first, num_queries, D, BLOCK_D, BLOCK)
    deltas = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(delta + head * num_queries + rows, deltas, mask=rows < num_queries)
    lses = _load_row(lse + head * num_queries, first, num_queries, BLOCK)
    firsts, ends = _intervals(query_sequences, key_starts, first, num_queries, BLOCK)
    if IS_CAUSAL:
        ends = tl.minimum(ends, rows + 1)
    end = tl.max(ends, 0)
    summed = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    for inner in range(tl.min(firsts, 0), end, INNER):
        k = _load(key, key_stride, inner, end, D, BLOCK_D, INNER)
        v = _load(value, value_stride, inner, end, D, BLOCK_D, INNER)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (D**-0.5 * _LOG2_E)
        mask = _mask(firsts, ends, inner, INNER)
        weights = tl.exp2(tl.where(mask, scores - lses[:, None], float("-inf")))
        weight_grads = tl.dot(do, tl.trans(v), input_precision="ieee")
        score_grads = weights * (weight_grads - deltas[:, None])
        summed += tl.dot(score_grads.to(k.dtype), k, input_precision="ieee")
    _store(query_grad, heads * D, first, num_queries, summed * D**-0.5, D, BLOCK_D, BLOCK)


@_jit
def key_gradient(
    query, key, value, grad, lse, delta, key_grad, value_grad, key_sequences, query_starts,
    query_stride, key_stride, value_stride, grad_stride, num_queries, num_keys,
    D: tl.constexpr, BLOCK_D: tl.constexpr, IS_CAUSAL: tl.constexpr, BLOCK: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of keys and their values; scores and weights are transposed, keys x queries."""
    head, first = tl.program_id(0), tl.program_id(1) * BLOCK
    heads = tl.num_programs(0)
    rows = first + tl.arange(0, BLOCK)
    k = _load(key, key_stride, first, num_keys, D, BLOCK_D, BLOCK)
    v = _load(value, value_stride, first, num_keys, D, BLOCK_D, BLOCK)
    firsts, ends = _intervals(key_sequences, query_starts, first, num_keys, BLOCK)
    if IS_CAUSAL:
        firsts = tl.maximum(firsts, rows)
    end = tl.max(ends, 0)
    key_sum = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    value_sum = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    for inner in range(tl.min(firsts, 0), end, INNER):
        q = _load(query, query_stride, inner, end, D, BLOCK_D, INNER)
        do = _load(grad, grad_stride, inner, end, D, BLOCK_D, INNER)
        lses = _load_row(lse + head * num_queries, inner, end, INNER)
        deltas = _load_row(delta + head * num_queries, inner, end, INNER)
        scores = tl.dot(k, tl.trans(q), input_precision="ieee") * (D**-0.5 * _LOG2_E)
        mask = _mask(firsts, ends, inner, INNER)
        weights = tl.exp2(tl.where(mask, scores - lses[None, :], float("-inf")))
        value_sum += tl.dot(weights.to(do.dtype), do, input_precision="ieee")
        weight_grads = tl.dot(v, tl.trans(do), input_precision="ieee")
        score_grads = weights * (weight_grads - deltas[None, :])
        key_sum += tl.dot(score_grads.to(q.dtype), q, input_precision="ieee")
    _store(key_grad, heads * D, first, num_keys, key_sum * D**-0.5, D, BLOCK_D, BLOCK)
    _store(value_grad, heads * D, first, num_keys, value_sum, D, BLOCK_D, BLOCK)


@triton.jit(do_not_specialize=["num_queries", "num_keys", "capacity", "sentence_stride", "query_stride"])
def attend_cached(
    query, key, value, bias, mixed, num_queries, num_keys, capacity, sentence_stride, query_stride,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """Mixed values of the queries of a sentence, at most BLOCK, for one head; strides are those of the bias.

    Queries have their heads side by side. Each head has its keys one after the other, with room for `capacity`.
    """
    head, sentence = tl.program_id(0), tl.program_id(1)
    heads = tl.num_programs(0)
    first, queries = sentence * num_queries, tl.arange(0, BLOCK)
    q = _load(query, heads * D, first, first + num_queries, D, BLOCK_D, BLOCK)
    bias += tl.cast(sentence, tl.int64) * sentence_stride + (queries * query_stride)[:, None]
    start = (tl.cast(sentence * heads + head, tl.int64) * capacity - head) * D  # `_load` adds the offset of the head.
    largest = tl.full([BLOCK], _LOWEST, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    summed = tl.zeros([BLOCK, BLOCK_D], tl.float32)
    for inner in range(0, num_keys, INNER):
        keys = inner + tl.arange(0, INNER)
        k = _load(key + start, D, inner, num_keys, D, BLOCK_D, INNER)
        v = _load(value + start, D, inner, num_keys, D, BLOCK_D, INNER)
        has_bias = (queries < num_queries)[:, None] & (keys < num_keys)[None, :]
        biases = tl.load(bias + keys[None, :], mask=has_bias, other=float("-inf")).to(tl.float32)
        scores = (tl.dot(q, tl.trans(k), input_precision="ieee") * D**-0.5 + biases) * _LOG2_E
        largest, total, summed = _with_scores(scores, v, largest, total, summed)
    total = tl.where(total > 0, total, 1.0)  # It is 0 for queries without keys.
    _store(mixed, heads * D, first, first + num_queries, summed / total[:, None], D, BLOCK_D, BLOCK)


@triton.jit
def _with_scores(scores, v, largest, total, summed):
    """Largest score of each row, and the sums of its weights and of its weighted values, with those of a tile."""
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    weights = tl.exp2(scores - new_largest[:, None])
    decay = tl.exp2(largest - new_largest)
    total = total * decay + tl.sum(weights, 1)
    summed = summed * decay[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return new_largest, total, summed


@triton.jit
def _intervals(sequences, starts, first, num_rows, BLOCK: tl.constexpr):
    """First row and end of the interval that each row of a tile attends to; empty from row `num_rows` on."""
    rows = first + tl.arange(0, BLOCK)
    mask = rows < num_rows
    sequences = tl.load(sequences + rows, mask=mask, other=0)
    firsts = tl.load(starts + sequences, mask=mask, other=2**31 - 1)
    return firsts, tl.load(starts + sequences + 1, mask=mask, other=0)


@triton.jit
def _mask(firsts, ends, inner, INNER: tl.constexpr):
    """True where rows of a tile attend to rows of the other side, from row `inner` on."""
    others = inner + tl.arange(0, INNER)[None, :]
    return (others >= firsts[:, None]) & (others < ends[:, None])


@triton.jit
def _load_row(pointer, first, end, BLOCK: tl.constexpr):
    """Numbers from `first` on, one for each row of a tile; 0 from `end` on."""
    rows = first + tl.arange(0, BLOCK)
    return tl.load(pointer + rows, mask=rows < end, other=0.0)


@triton.jit
def _load(pointer, stride, first, end, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr):
    """Tile of a head, BLOCKxBLOCK_D, from row `first` on; 0 from row `end` on and after column D."""
    places, mask = _places(pointer, stride, first, end, D, BLOCK_D, BLOCK)
    return tl.load(places, mask=mask, other=0.0)


@triton.jit
def _store(pointer, stride, first, end, tile, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr):
    """Write a tile where `_load` reads it."""
    places, mask = _places(pointer, stride, first, end, D, BLOCK_D, BLOCK)
    tl.store(places, tile.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def _places(pointer, stride, first, end, D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr):
    """Pointers to the elements of a tile, and which of them exist."""
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK_D)[None, :]
    # The index of the first element may need 64 bits; offsets from it fit in 32.
    pointer += tl.cast(first, tl.int64) * stride + tl.program_id(0) * D
    return pointer + (rows * stride + columns), (first + rows < end) & (columns < D)
