import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.data.packing import pack, packed_layout

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=60).map(np.array)


@given(LENGTHS, st.integers(1, 4))
def test_rows_and_slots_are_inverse_for_tokens_and_heads(lengths, num_heads):
    layout = packed_layout(lengths)
    for index, num in ((layout, 1), (layout.with_heads(num_heads), num_heads)):
        rows, slots, num_rows = index.rows.flatten(), index.slots.flatten(), layout.num_tokens * num
        assert rows[slots[:num_rows]].tolist() == list(range(num_rows))
        assert not (rows[slots[num_rows:]] < num_rows).any()


@given(st.lists(st.lists(st.integers(4, 99), max_size=12), min_size=1, max_size=30))
def test_packed_ids_are_the_sequences_with_their_special_tokens(sequences):
    layout = packed_layout(np.array([len(ids) + 1 for ids in sequences]))
    flat = np.array([i for ids in sequences for i in ids], dtype=np.uint16)
    for special, at_end, expected in ((2, False, lambda ids: [2, *ids]), (3, True, lambda ids: [*ids, 3])):
        padded = layout.padded(pack(flat, layout, special, at_end))
        assert [[i for i in row if i] for row in padded.tolist()] == [expected(ids) for ids in sequences]
