import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mt_cli.batching import EncodedPairs, batches_in_order, collate, epoch_batches
from mt_cli.tokenizer import EOS_ID, PAD_ID, SOS_ID


def pairs_of(lengths, max_tokens=100):
    source = [[4 + index % 7] * length for index, (length, _) in enumerate(lengths)]
    target = [[5 + index % 7] * length for index, (_, length) in enumerate(lengths)]
    return EncodedPairs.from_ids(source, target, max_tokens)


LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=80)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 200), st.integers(0, 5), st.integers(0, 3))
def test_every_pair_appears_once_per_epoch(lengths, batch_tokens, seed, epoch):
    batches = epoch_batches(pairs_of(lengths), batch_tokens, seed, epoch)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(batches)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 200))
def test_a_batch_of_several_pairs_stays_within_its_tokens(lengths, batch_tokens):
    pairs = pairs_of(lengths)
    for indices in epoch_batches(pairs, batch_tokens, 1, 0):
        batch = collate(pairs, indices)
        size = max(batch.src_ids.numel(), batch.tgt_input_ids.numel())
        assert len(indices) == 1 or size <= batch_tokens


def test_the_order_is_a_function_of_seed_and_epoch():
    pairs = pairs_of([(length % 9, length % 7) for length in range(200)])
    same, again = epoch_batches(pairs, 64, 3, 2), epoch_batches(pairs, 64, 3, 2)
    assert same == again
    assert same != epoch_batches(pairs, 64, 3, 3)
    assert same != epoch_batches(pairs, 64, 4, 2)


def test_a_batch_reads_a_prefix_and_predicts_the_next_token():
    pairs = EncodedPairs.from_ids([[7, 8], [9]], [[5], [5, 6]], max_tokens=10)
    batch = collate(pairs, [0, 1])
    assert batch.src_ids.tolist() == [[7, 8, EOS_ID], [9, EOS_ID, PAD_ID]]
    assert batch.tgt_input_ids.tolist() == [[SOS_ID, 5, PAD_ID], [SOS_ID, 5, 6]]
    assert batch.tgt_output_ids.tolist() == [[5, EOS_ID, PAD_ID], [5, 6, EOS_ID]]
    assert (batch.num_source_tokens, batch.num_target_tokens) == (5, 5)


def test_pairs_that_are_too_long_are_counted():
    pairs = pairs_of([(3, 3), (11, 1), (1, 11), (10, 10)], max_tokens=10)
    assert (len(pairs), pairs.num_too_long) == (2, 2)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 200))
def test_decoding_batches_hold_every_sentence_longest_first(lengths, batch_tokens):
    batches = batches_in_order(lengths, batch_tokens)
    flat = [index for batch in batches for index in batch]
    assert sorted(flat) == list(range(len(lengths)))
    assert [lengths[index] for index in flat] == sorted(lengths, reverse=True)


def test_similar_lengths_share_a_batch():
    torch.manual_seed(0)
    lengths = torch.randint(1, 40, (5_000, 1)).expand(-1, 2).tolist()
    pairs = pairs_of(lengths)
    batches = [collate(pairs, indices) for indices in epoch_batches(pairs, 1_000, 1, 0)]
    padding = 1 - sum(batch.num_target_tokens for batch in batches) / sum(b.tgt_input_ids.numel() for b in batches)
    assert padding < 0.05


@pytest.mark.parametrize("source,target", [([], []), ([[4]], [[4]])])
def test_no_pairs_make_no_batches(source, target):
    pairs = EncodedPairs.from_ids(source, target, 5)
    assert len(epoch_batches(pairs, 10, 1, 0)) == len(source)
