import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.batching.packing import grid_of, pack, round_up

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=60).map(np.array)


@given(LENGTHS)
def test_the_grid_leads_there_and_back(lengths):
    grid = grid_of(lengths)
    rows, cells = grid.rows.flatten(), grid.cells
    assert torch.equal(rows[cells[: grid.num_tokens]], torch.arange(grid.num_tokens))
    assert not (rows[cells[grid.num_tokens :]] < grid.num_tokens).any()


@given(LENGTHS)
def test_filling_is_a_sequence_of_its_own(lengths):
    grid = grid_of(lengths)
    length = grid.rows.shape[1]
    assert len(grid.positions) > grid.num_tokens
    assert (grid.cells[grid.num_tokens :] // length >= grid.num_sequences).all()
    assert grid.mask.any(dim=1).all()
    assert grid.mask[: grid.num_sequences].sum() == grid.num_tokens == lengths.sum()


@given(st.lists(st.lists(st.integers(4, 99), max_size=12), min_size=1, max_size=30))
def test_packed_ids_are_the_sequences_between_their_ends(sequences):
    grid = grid_of(np.array([len(ids) + 1 for ids in sequences]))
    flat = np.array([i for ids in sequences for i in ids], dtype=np.uint16)
    for options, expected in (({"start": 2}, lambda ids: [2, *ids]), ({"end": 3}, lambda ids: [*ids, 3])):
        padded = grid.padded(pack(flat, grid, **options))
        assert [[i for i in row if i] for row in padded.tolist()] == [expected(ids) for ids in sequences]


@given(st.integers(1, 100_000), st.sampled_from([8, 16]))
def test_rounding_up_costs_little_and_leaves_few_numbers(number, sizes):
    rounded = round_up(number, sizes)
    assert number <= rounded < number + max(8, number / sizes)
    assert rounded % max(8, 2 ** (number.bit_length() - 1) // sizes) == 0
