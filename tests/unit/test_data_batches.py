from itertools import islice, zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import unpacked

from mt_cli.data.batch import batches_in_order, collate
from mt_cli.data.batches import MixedPairs, count_batches, epoch_batches, shares_by_temperature
from mt_cli.data.encode import EncodedPairs
from mt_cli.data.packing import pack, packed_layout
from mt_cli.tokenizer.special_tokens import EOS_ID, PAD_ID, SOS_ID


def pairs_of(lengths, part_sizes=None):
    source = [[4 + index % 7] * length for index, (length, _) in enumerate(lengths)]
    target = [[5 + index % 7] * length for index, (_, length) in enumerate(lengths)]
    pairs = EncodedPairs.from_ids(source, target)
    pairs.part_sizes = tuple(part_sizes or [len(lengths)])
    return pairs


def mixed(lengths, batch_tokens=64, seed=1, part_sizes=None, times=None):
    pairs = pairs_of(lengths, part_sizes)
    return MixedPairs(pairs, times or [1.0] * len(pairs.part_sizes), batch_tokens, seed)


def indices_of(pairs, batch_tokens, seed, epoch, *position):
    return [placed.indices.tolist() for placed in epoch_batches(pairs, batch_tokens, seed, epoch, *position)]


LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=80)
MANY = [(length % 9, length % 7) for length in range(2_000)]


@settings(max_examples=50)
@given(LENGTHS, st.integers(1, 200), st.integers(0, 5), st.integers(0, 3))
def test_every_pair_appears_once_per_epoch_within_batch_tokens(lengths, batch_tokens, seed, epoch):
    pairs = mixed(lengths, batch_tokens, seed)
    batches = indices_of(pairs, batch_tokens, seed, epoch)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for placed in epoch_batches(pairs, batch_tokens, seed, epoch):
        batch = collate(placed.pairs, placed.indices)
        longest = int(max(layout.positions.max() for layout in (batch.source.layout, batch.target.layout))) + 1
        assert len(placed.indices) == 1 or 0 < len(placed.indices) * longest <= batch_tokens


def test_the_order_of_batches_depends_on_seed_and_epoch_alone():
    """Not on what a process did before, so that each of several can take every n-th batch."""
    parts = {"part_sizes": [1_500, 500], "times": [1.0, 2.5]}
    whole = indices_of(mixed(MANY, 8, **parts), 8, 1, 2)
    shares = []
    for rank in range(3):
        np.random.seed(rank)
        pairs = mixed(MANY, 8, **parts)
        for epoch in range(rank):
            assert indices_of(pairs, 8, 1, epoch) != whole
        shares.append([placed.indices.tolist() for placed in islice(epoch_batches(pairs, 8, 1, 2), rank, None, 3)])
    assert pairs.num_pools > 1 and indices_of(mixed(MANY, 8, seed=2, **parts), 8, 2, 2) != whole
    assert [batch for step in zip_longest(*shares) for batch in step if batch is not None] == whole
    assert count_batches(pairs, 8) == pytest.approx(len(whole), rel=0.01), "it is known before an epoch"


def test_an_epoch_resumes_from_any_of_its_positions():
    pairs = mixed(MANY, 8)
    whole = list(epoch_batches(pairs, 8, 1, 1))
    assert pairs.num_pools > 1
    for done in range(0, len(whole), 97):
        position = (whole[done - 1].pool, whole[done - 1].num_batches) if done else (0, 0)
        rest = indices_of(pairs, 8, 1, 1, *position)
        assert rest == [placed.indices.tolist() for placed in whole[done:]]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0.1, 4.0)), min_size=1, max_size=4), st.integers(0, 5))
def test_a_part_is_seen_in_proportion_to_its_weight(parts, seed):
    sizes, times = [size for size, _ in parts], [times for _, times in parts]
    pairs = mixed([(1, 1)] * sum(sizes), seed=seed, part_sizes=sizes, times=times)
    counts = np.zeros(sum(sizes), dtype=int)
    for epoch in range(8):
        for batch in indices_of(pairs, 64, seed, epoch):
            np.add.at(counts, batch, 1)
    first = 0
    for size, weight in zip(sizes, times, strict=True):
        part = counts[first : first + size]
        assert part.sum() == 8 * max(1, round(weight * size))
        assert part.max() - part.min() <= 1
        first += size


@settings(max_examples=20)
@given(st.lists(st.booleans(), min_size=40, max_size=40), st.integers(0, 3), st.integers(0, 5))
def test_a_selection_counts_from_its_place_on_and_keeps_all_lengths(kept, epoch, pool):
    is_kept = np.tile([True, *kept], 60)[:2_000]
    before, pairs = mixed(MANY, 8, part_sizes=[1_500, 500]), mixed(MANY, 8, part_sizes=[1_500, 500])
    pairs.select(is_kept, (1, pool))
    whole = [order.tolist() for _, order in before.pools(epoch, 0)]
    pools = [order.tolist() for _, order in pairs.pools(epoch, 0)]
    first = {0: len(whole), 1: pool}.get(epoch, 0)
    assert pools[:first] == whole[:first] and [*map(len, pools)] == [*map(len, whole)]
    assert all(is_kept[index] for order in pools[first:] for index in order)
    assert pools[2:] == [order.tolist() for _, order in pairs.pools(epoch, 2)]
    if epoch > 1:
        counts = np.bincount(np.concatenate(pools), minlength=2_000)[is_kept]
        assert counts.max() - counts[:1_000].min() <= 2


@given(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=5))
def test_temperature_leaves_an_epoch_its_length(sizes):
    as_they_are, even = shares_by_temperature(sizes, 1.0), shares_by_temperature(sizes, 1e9)
    assert as_they_are == pytest.approx([1.0] * len(sizes))
    mean = sum(sizes) / len(sizes)
    assert [times * size for times, size in zip(even, sizes, strict=True)] == pytest.approx(
        [mean] * len(sizes), rel=1e-4
    )
    warm = shares_by_temperature(sizes, 5.0)
    assert sum(times * size for times, size in zip(warm, sizes, strict=True)) == pytest.approx(sum(sizes))


def test_a_batch_reads_a_prefix_and_predicts_the_next_token():
    batch = collate(EncodedPairs.from_ids([[7, 8], [9]], [[5], [5, 6]]), [0, 1])
    assert batch.source.ids[:5].tolist() == [7, 8, EOS_ID, 9, EOS_ID]
    assert batch.target.ids[:5].tolist() == [SOS_ID, 5, SOS_ID, 5, 6]
    assert batch.tgt_output_ids[:5].tolist() == [5, EOS_ID, 5, 6, EOS_ID]
    assert set(batch.source.ids[5:].tolist()) == set(batch.tgt_output_ids[5:].tolist()) == {PAD_ID}
    assert (batch.num_source_tokens, batch.num_target_tokens) == (5, 5)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 200))
def test_decoding_batches_hold_every_sentence_longest_first(lengths, batch_tokens):
    batches = batches_in_order(lengths, batch_tokens)
    flat = [index for batch in batches for index in batch]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[index] for index in flat] == sorted(lengths, reverse=True)


SEQUENCE_LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=60).map(np.array)


@given(SEQUENCE_LENGTHS, st.integers(1, 4))
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
        padded = unpacked(pack(flat, layout, special, at_end), layout)
        assert [[i for i in row if i] for row in padded.tolist()] == [expected(ids) for ids in sequences]
