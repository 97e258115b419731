import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.batching.packing import pack, packed_layout, padded_layout, round_up

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=60).map(np.array)


@given(LENGTHS, st.integers(1, 4))
def test_rows_and_slots_are_inverse_for_tokens_and_heads(lengths, num_heads):
    layout = packed_layout(lengths)
    for index, num in ((layout, 1), (layout.with_heads(num_heads), num_heads)):
        rows, slots, num_rows = index.rows.flatten(), index.slots.flatten(), layout.num_tokens * num
        assert rows[slots[:num_rows]].tolist() == list(range(num_rows))
        assert not (rows[slots[num_rows:]] < num_rows).any()


@given(LENGTHS)
def test_padding_belongs_to_empty_sequences(lengths):
    layout = packed_layout(lengths)
    assert len(layout.positions) > layout.num_tokens
    assert (layout.slots[layout.num_tokens :] // layout.num_positions >= layout.num_sequences).all()
    assert layout.mask.any(dim=1).all()
    assert layout.mask[: layout.num_sequences].sum() == layout.num_tokens == lengths.sum()
    assert layout.positions.max() < layout.num_positions == layout.mask.shape[1]


@given(st.lists(st.lists(st.integers(4, 99), max_size=12), min_size=1, max_size=30))
def test_packed_ids_are_the_sequences_with_their_special_tokens(sequences):
    layout = packed_layout(np.array([len(ids) + 1 for ids in sequences]))
    flat = np.array([i for ids in sequences for i in ids], dtype=np.uint16)
    for special, at_end, expected in ((2, False, lambda ids: [2, *ids]), (3, True, lambda ids: [*ids, 3])):
        padded = layout.padded(pack(flat, layout, special, at_end))
        assert [[i for i in row if i] for row in padded.tolist()] == [expected(ids) for ids in sequences]


def test_the_layout_of_padded_ids_is_their_matrix():
    torch = pytest.importorskip("torch")
    layout = padded_layout(torch.tensor([[4, 5, 3], [3, 0, 0]]))
    assert layout.mask.tolist() == [[True, True, True], [True, False, False]]
    assert layout.positions.tolist() == [0, 1, 2, 0, 1, 2]
    assert layout.with_heads(4) is layout


@given(st.integers(1, 100_000), st.sampled_from([8, 16]))
def test_rounding_up_costs_little_and_leaves_few_numbers(number, sizes):
    rounded = round_up(number, sizes)
    assert number <= rounded < number + max(8, number / sizes)
    assert rounded % max(8, 2 ** (number.bit_length() - 1) // sizes) == 0
