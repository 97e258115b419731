LAWS = """
from types import SimpleNamespace
from mt_cli.training.averaging import MovingAverage
from mt_cli.batching.batches import collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import ModelConfig, TrainingConfig
from mt_cli.errors import DeviceMemoryError
from mt_cli.features.sharding import ShardedState, whole
from mt_cli.model.transformer import Transformer, skeleton
from mt_cli.training.objective import Objective
from mt_cli.training.optimizer import build_optimizer, set_rate, step_if
from mt_cli.training.gradients import GradientAccumulator

torch.manual_seed(0)
sides = [[[4 + (row * place) % 20 for place in range(1, row + length)] for row in range(1, 10)] for length in (2, 3)]
pairs = EncodedPairs.from_ids(*sides)
batches = [collate(pairs, range(start, start + 3)) for start in (0, 3, 6)]
num_target_tokens = sum(batch.num_target_tokens for batch in batches)

def new_setup(dtype=torch.float32, **options):
    sizes = {"d_model": 16, "d_ff": 24, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2}
    model = Transformer(ModelConfig(**sizes, dropout=0.0, qkv_bias=False, tie_embeddings="all"), 31, 31)
    training = TrainingConfig(max_steps=10, learning_rate=1e-2, ema_decay=0.9, **options)
    setup = SimpleNamespace(
        model=model if group.rank == 0 else skeleton(model), dtype=dtype, device=torch.device("cpu"), group=group,
        config=SimpleNamespace(training=training),
    )
    setup.optimizer, setup.objective = build_optimizer(setup.model, training), Objective(setup.model, training)
    setup.average = MovingAverage(setup.model, 0.9)
    return setup, Objective(model, training).train()  # The second one is whole in every process.

def sharded(setup):
    parts = setup.objective, setup.optimizer, setup.average, setup.dtype, setup.group, setup.device
    return ShardedState(*parts, setup.config.training)

def my_share():
    empty = [batches[0].without_targets()] if group.rank == 1 else []  # This process lacks the third.
    return batches[group.rank::2] + empty

def train(shards, steps):
    for step in steps:
        sums = shards.gradients.accumulate(my_share(), num_target_tokens)
        shards.gradients.clip(1.0)
        set_rate(shards.optimizer, 1e-2)
        step_if(torch.tensor(True), shards.optimizer)
        shards.optimizer.zero_grad()
        shards.average.update(step)
        yield float(sums.cross_entropy)

def gradients_are_those_of_one_process(dtype, recompute_layers, tolerance):
    setup, objective = new_setup(dtype, recompute_layers=recompute_layers)
    shards = sharded(setup)
    shards.gradients.objective.train()
    sums = shards.gradients.accumulate(my_share(), num_target_tokens)
    expected = GradientAccumulator(objective, dtype)  # Of this process alone.
    expected_sums = expected.accumulate(batches, num_target_tokens)
    pairs = list(zip(shards.gradients.parameters, expected.parameters, strict=True))
    assert all((whole(ours.grad) - theirs.grad).abs().max() <= tolerance for ours, theirs in pairs)
    for name, value in vars(sums).items():
        assert torch.allclose(value, getattr(expected_sums, name).float(), rtol=tolerance), name
    norm, expected_norm = shards.gradients.clip(0.5), expected.clip(0.5)
    assert type(norm) is torch.Tensor and torch.allclose(norm, expected_norm, rtol=tolerance)
    assert all((whole(ours.grad) - theirs.grad).abs().max() <= tolerance for ours, theirs in pairs)

def stored(setup):
    moments = setup.optimizer.state_dict()["state"].values()
    return [*setup.model.parameters(), *setup.average.weights.values(), *(each for m in moments for each in m.values())]

def shards_stored_and_scattered_again_train_on_as_if_nothing_had_happened():
    whole_setup, _ = new_setup()
    parted_setup, _ = new_setup()
    parted_setup.model.load_state_dict(whole_setup.model.state_dict())
    parted_setup.average = MovingAverage(parted_setup.model, 0.9)
    for setup, parts in ((whole_setup, [range(1, 5)]), (parted_setup, [range(1, 3), range(3, 5)])):
        for steps in parts:
            shards = sharded(setup)
            list(train(shards, steps))
            shards.store()
    if group.rank == 0:
        pairs = list(zip(stored(whole_setup), stored(parted_setup), strict=True))
        num_weights = len(list(whole_setup.model.parameters()))
        assert len(pairs) == (1 + 1 + 3) * num_weights and all(torch.equal(*pair) for pair in pairs)

def each_process_keeps_half_of_the_weights_moments_and_averages():
    setup, _ = new_setup()
    shards = sharded(setup)
    list(train(shards, [1]))
    moments = [value for values in shards.optimizer.state.values() for value in values.values() if value.dim()]
    tensors = [*shards.gradients.parameters, *moments, *shards.average.weights.values()]
    local, all_of_it = sum(each.to_local().nbytes for each in tensors), sum(each.nbytes for each in tensors)
    num_weights = sum(each.numel() for each in shards.gradients.parameters)
    assert all_of_it == 4 * 4 * num_weights
    assert local <= 0.55 * all_of_it, (local, all_of_it)
    assert sum(group.all_gather(local)) == all_of_it
    assert group.rank == 0 or all(weight.is_meta for weight in setup.model.parameters())

def a_model_in_bf16_learns_and_is_validated_with_averaged_weights_in_every_process():
    setup, _ = new_setup(torch.bfloat16)
    shards = sharded(setup)
    losses = list(train(shards, range(1, 41)))
    assert losses[-1] < 0.5 * losses[0], losses
    expected = [whole(average) for average in shards.average.weights.values()]
    with shards.averaged() as model:
        assert model.projection.weight is model.source_embedding.table.weight
        found = list(model.parameters())
        assert all(torch.equal(ours, theirs.bfloat16()) for ours, theirs in zip(found, expected, strict=True))
        if group.rank == 0:
            assert all(torch.equal(*pair) for pair in zip(setup.model.parameters(), expected, strict=True))

def a_batch_that_does_not_fit_is_not_split_but_an_error():
    shards = sharded(new_setup()[0])
    def fail(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory")
    shards.gradients.objective.forward = fail
    try:
        shards.gradients.accumulate(my_share(), num_target_tokens)
    except DeviceMemoryError as error:
        assert "lower training.batch_tokens" in str(error)
    else:
        raise AssertionError

with launched_group() as group:
    gradients_are_those_of_one_process(torch.float32, True, 1e-6)
    gradients_are_those_of_one_process(torch.bfloat16, False, 1e-2)
    shards_stored_and_scattered_again_train_on_as_if_nothing_had_happened()
    each_process_keeps_half_of_the_weights_moments_and_averages()
    a_model_in_bf16_learns_and_is_validated_with_averaged_weights_in_every_process()
    a_batch_that_does_not_fit_is_not_split_but_an_error()
"""


def test_two_processes_that_share_the_weights_do_the_steps_of_one(run_together):
    """One program for all laws, which a traceback names: starting it takes longer than most of them."""
    assert [(status, err) for status, _, err in run_together(LAWS)] == [(0, "")] * 2
