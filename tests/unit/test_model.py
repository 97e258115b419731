import math
import re
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
import torch
from tiny_models import padded, unpacked
from torch import nn

from mt_cli.config.sections import ModelConfig
from mt_cli.data.batch import collate
from mt_cli.data.encode import EncodedPairs
from mt_cli.data.packing import padded_layout
from mt_cli.model.positions import rotary_factors, rotate, sinusoids
from mt_cli.model.transformer import Transformer, causal_mask, outline, with_dtype

ROTARY = {"positions": "rotary"}
SHAPES = {"d_model": 16, "d_ff": 24, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 3}
KINDS = [
    {},
    {"norm_order": "post", "qkv_bias": False, "activation": "gelu"},
    {"positions": "fairseq", "output_bias": True, "tie_embeddings": "all"},
    {"positions": "rotary", "activation": "swiglu", "tie_embeddings": "none"},
]
"""Each option in one of its values, but for the activations that `nn.functional` has."""


def tiny(**options):
    return Transformer(ModelConfig(**{**SHAPES, **options}), 13, 13).eval()


def some_ids():
    return padded([[4, 5, 6, 7], [8, 9]]), torch.tensor([[2, 4, 5, 6], [2, 7, 0, 0]])


def torch_weights(model):
    """The weights of our layers and norms by the names that they have in PyTorch's own Transformer."""
    weights = {}
    for name, weight in model.state_dict().items():
        name = name.replace("_residual.norm.", "_norm.").replace("feed_forward.inner", "linear1")
        name = name.replace("feed_forward.outer", "linear2").replace("cross_attention.", "multihead_attn.")
        name = name.replace("self_attention.", "self_attn.").replace("output.", "out_proj.")
        if name.startswith("decoder."):
            name = name.replace("cross_attention_norm", "norm2").replace("feed_forward_norm", "norm3")
        name = name.replace("self_attention_norm", "norm1").replace("feed_forward_norm", "norm2")
        name = re.sub(r"^(encoder|decoder)\.(?=\d)", r"\1.layers.", name).replace("coder_norm", "coder.norm")
        if name.startswith(("encoder", "decoder")):
            weights[name] = weight
    for kind in ("weight", "bias"):
        for name in [name for name in weights if name.endswith(f".query.{kind}")]:
            parts = [weights.pop(name.replace("query", part)) for part in ("query", "key", "value")]
            weights[name.replace(f".query.{kind}", f".in_proj_{kind}")] = torch.cat(parts)
    return weights


def logits_of_torch(model, config, src_ids, tgt_ids):
    """Logits of PyTorch's own Transformer with our weights; without the norms at its ends if ours has none."""
    layers, is_pre = (config.num_encoder_layers, config.num_decoder_layers), config.norm_order == "pre"
    theirs = nn.Transformer(
        config.d_model,
        config.num_heads,
        *layers,
        config.d_ff,
        activation=config.activation,
        batch_first=True,
        norm_first=is_pre,
    ).eval()
    if not is_pre:
        theirs.encoder.norm = theirs.decoder.norm = None
    theirs.load_state_dict(torch_weights(model))

    def embed(embedding, ids):
        return embedding(ids.flatten(), padded_layout(ids)).unflatten(0, ids.shape)

    hidden = theirs(
        embed(model.source_embedding, src_ids),
        embed(model.target_embedding, tgt_ids),
        tgt_mask=~causal_mask(tgt_ids.shape[1], tgt_ids.device),
        src_key_padding_mask=src_ids == 0,
        tgt_key_padding_mask=tgt_ids == 0,
        memory_key_padding_mask=src_ids == 0,
    )
    return model.projection(hidden)


@pytest.mark.parametrize(
    "options", [{"norm_order": "pre"}, {"norm_order": "post", "activation": "gelu"}, KINDS[2] | {"output_bias": False}]
)
@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested tensors")
def test_model_agrees_with_torch(options):
    config = ModelConfig(**SHAPES, **options)
    model = Transformer(config, 13, 13).eval()
    for parameter in model.parameters():  # Biases and norms that are not trivial.
        nn.init.normal_(parameter, std=0.3) if parameter.dim() == 1 else None
    src_ids, tgt_ids = some_ids()
    with torch.no_grad():
        ours, theirs = model(src_ids, tgt_ids), logits_of_torch(model, config, src_ids, tgt_ids)
    assert (ours - theirs)[tgt_ids != 0].abs().max() < 1e-5


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_packed_tokens_have_the_logits_and_gradients_of_padded_ones(options):
    model = tiny(**options)
    pairs = EncodedPairs.from_ids([[4, 5, 6, 7], [8, 9], [], [10] * 9], [[5], [6, 7, 8, 9], [4, 4], []])
    batch = collate(pairs, range(4))
    source, target = batch.source.layout, batch.target.layout
    src_ids, tgt_ids = unpacked(batch.source.ids, source), unpacked(batch.target.ids, target)
    expected = model(src_ids, tgt_ids)[tgt_ids != 0]
    logits = model.projection(model.hidden_states(batch)[: target.num_tokens])
    assert torch.allclose(logits, expected, atol=1e-5)
    weights, parameters = torch.randn_like(logits), list(model.parameters())
    ours, theirs = (torch.autograd.grad((x * weights).sum(), parameters) for x in (logits, expected))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("options", [KINDS[0], KINDS[1], ROTARY], ids=str)
def test_padding_never_changes_a_sentence(options):
    model = tiny(**options)
    src_ids, tgt_ids = some_ids()
    with torch.no_grad():
        alone = model(src_ids[1:, :3], tgt_ids[1:, :2])
        padded = model(src_ids, tgt_ids)[1:, :2]
    assert torch.allclose(alone, padded, atol=1e-5)


def test_attention_maps_are_those_of_the_pass_that_reads_them():
    """Although other threads use the model at the same time."""
    model = tiny()
    src_ids, tgt_ids = some_ids()
    with ThreadPoolExecutor(3) as pool:
        logits, maps = model.read(src_ids, tgt_ids)
        assert torch.equal(logits, model(src_ids, tgt_ids))
        for layer_maps, number, shape in zip(maps, (2, 3, 3), ((5, 5), (4, 4), (4, 5)), strict=True):
            assert [x.shape for x in layer_maps] == [(2, 4, *shape)] * number
            assert all(torch.allclose(x.sum(dim=-1), torch.ones(2, 4, shape[0])) for x in layer_maps)
        assert (maps.cross[0][1, :, :, 3:] == 0).all() and (maps.decoder[0].triu(1) == 0).all()
        for _, others in pool.map(lambda _: model.read(src_ids, tgt_ids), range(20)):
            for ours, theirs in zip(maps, others, strict=True):
                assert len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("options", [{}, ROTARY])
def test_decoder_cannot_see_the_future(options):
    model = tiny(**options)
    src_ids, tgt_ids = some_ids()
    changed = tgt_ids.clone()
    changed[:, 2:] = 9
    with torch.no_grad():
        before, after = model(src_ids, tgt_ids), model(src_ids, changed)
    assert torch.equal(before[:, :2], after[:, :2])


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_cached_decoding_equals_full_forward(options):
    model = tiny(**options)
    src_ids = some_ids()[0]
    tgt_ids = torch.randint(4, 13, (2, 40))
    with torch.no_grad():
        full = model(src_ids, tgt_ids)
        cache = model.start(src_ids)
        steps = [model.next(tgt_ids[:, position], cache) for position in range(tgt_ids.shape[1])]
    assert torch.allclose(torch.stack(steps, dim=1), full, atol=1e-4)


def test_positions_are_the_sines_of_the_paper():
    table = sinusoids(50, 16)
    for position, dimension in [(0, 0), (1, 0), (7, 3), (49, 10), (49, 15)]:
        angle = position / 10_000 ** (2 * (dimension // 2) / 16)
        expected = math.cos(angle) if dimension % 2 else math.sin(angle)
        assert table[position, dimension] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("positions", ["sinusoidal", "fairseq", "rotary"])
def test_positions_stay_exact_in_any_dtype(positions):
    model = tiny(positions=positions)
    tables = [table.clone() for table in model.buffers()]
    short, long, half = some_ids(), (torch.full((1, 700), 5), torch.tensor([[2]])), torch.bfloat16
    with torch.no_grad():
        copy, moved = with_dtype(model, half), deepcopy(model).to(half)
        before = moved(*short)
        assert moved(*long).isfinite().all()
        assert torch.equal(moved(*short), before) and torch.equal(copy(*short), before)
    for table, old, new in zip(tables, model.buffers(), moved.buffers(), strict=True):
        assert torch.equal(old, table) and torch.equal(new[: len(table)], table)


def test_rotary_pairs_turn_by_position_times_frequency():
    positions, d_head = torch.tensor([0, 3, 1, 99, 7]), 6
    x = torch.randn(5, 2 * d_head)
    turned = rotate(x, rotary_factors(sinusoids(100, d_head)[positions]))
    for row, first in [(0, 0), (1, 0), (3, 2), (4, 4), (4, 10)]:
        angle = positions[row] / 10_000 ** ((first % d_head) / d_head)
        matrix = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
        assert torch.allclose(turned[row, first : first + 2], matrix @ x[row, first : first + 2], atol=1e-5)


@pytest.mark.parametrize(("tie", "num_tables"), [("none", 3), ("target", 2), ("all", 1)])
def test_an_outline_has_the_shapes_and_ties_of_a_model(tie, num_tables):
    config = ModelConfig(**SHAPES, tie_embeddings=tie)
    model, state = Transformer(config, 11, 11), torch.get_rng_state()
    for each in (model, outline(config, 11, 11)):
        tables = {each.source_embedding.table.weight, each.target_embedding.table.weight, each.projection.weight}
        assert len(tables) == num_tables
        assert {name: x.shape for name, x in each.named_parameters()} == {
            name: x.shape for name, x in model.named_parameters()
        }
        assert each is model or all(weight.is_meta for weight in each.parameters())
        for buffer, copied in zip(model.buffers(), each.buffers(), strict=True):
            assert torch.equal(buffer, copied)
    assert torch.equal(torch.get_rng_state(), state)
