import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from mt_cli.batching.batches import collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.batching.packing import padded_layout
from mt_cli.config.sections import ModelConfig
from mt_cli.model.positions import Embedding, FairseqPositions, rotary_factors, rotate, sinusoids
from mt_cli.model.transformer import Transformer, causal_mask, outline, skeleton
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID

ROTARY = {"positions": "rotary"}
SHAPES = {"d_model": 16, "d_ff": 24, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 3}


def tiny(**options):
    return Transformer(ModelConfig(**{**SHAPES, **options}), 11, 13).eval()


def some_ids():
    src_ids = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]])
    tgt_ids = torch.tensor([[2, 4, 5, 6], [2, 7, 0, 0]])
    return src_ids, tgt_ids


def torch_twin(model, config):
    """PyTorch's own Transformer with the weights of ours; without the norms at its ends if ours has none."""
    theirs = nn.Transformer(
        config.d_model,
        config.num_heads,
        config.num_encoder_layers,
        config.num_decoder_layers,
        config.d_ff,
        activation=config.activation,
        batch_first=True,
        norm_first=config.norm_order == "pre",
    ).eval()
    theirs.encoder.use_nested_tensor = False

    def copy_attention(theirs, ours):
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())

    def copy_layer(theirs, ours):
        copy_attention(theirs.self_attn, ours.self_attention)
        theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
        norms = [ours.self_attention_residual.norm]
        if hasattr(ours, "cross_attention"):
            copy_attention(theirs.multihead_attn, ours.cross_attention)
            norms.append(ours.cross_attention_residual.norm)
        norms.append(ours.feed_forward_residual.norm)
        for index, norm in enumerate(norms, start=1):
            getattr(theirs, f"norm{index}").load_state_dict(norm.state_dict())

    for stack, layers, norm in (
        (theirs.encoder, model.encoder, model.encoder_norm),
        (theirs.decoder, model.decoder, model.decoder_norm),
    ):
        with torch.no_grad():
            for pair in zip(stack.layers, layers, strict=True):
                copy_layer(*pair)
        if isinstance(norm, nn.LayerNorm):
            stack.norm.load_state_dict(norm.state_dict())
        else:
            stack.norm = None

    def embed(embedding, ids):
        return embedding(ids.flatten(), padded_layout(ids)).unflatten(0, ids.shape)

    def forward(src_ids, tgt_ids):
        src_padding, tgt_padding = src_ids == 0, tgt_ids == 0
        hidden = theirs(
            embed(model.source_embedding, src_ids),
            embed(model.target_embedding, tgt_ids),
            tgt_mask=~causal_mask(tgt_ids.shape[1], tgt_ids.device),
            src_key_padding_mask=src_padding,
            tgt_key_padding_mask=tgt_padding,
            memory_key_padding_mask=src_padding,
        )
        return model.projection(hidden)

    return forward


@pytest.mark.parametrize(
    "norms", [{"norm_order": "pre"}, {"norm_order": "post"}, {"norm_order": "post", "final_norm": True}]
)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_model_agrees_with_torch(norms, activation):
    config = ModelConfig(**SHAPES, **norms, activation=activation)
    model = Transformer(config, 11, 13).eval()
    for parameter in model.parameters():  # Biases and norms that are not trivial.
        nn.init.normal_(parameter, std=0.3) if parameter.dim() == 1 else None
    src_ids, tgt_ids = some_ids()
    twin = torch_twin(model, config)
    with torch.no_grad():
        ours, theirs = model(src_ids, tgt_ids), twin(src_ids, tgt_ids)
    is_token = tgt_ids != 0
    assert (ours - theirs)[is_token].abs().max() < 1e-5


@pytest.mark.parametrize("norm_order", ["pre", "post"])
@pytest.mark.parametrize("options", [{"tie_embeddings": "none"}, {"tie_embeddings": "target"}, ROTARY])
def test_packed_tokens_have_the_logits_and_gradients_of_padded_ones(norm_order, options):
    model = tiny(norm_order=norm_order, **options)
    pairs = EncodedPairs.from_ids([[4, 5, 6, 7], [8, 9], [], [10] * 9], [[5], [6, 7, 8, 9], [4, 4], []])
    batch = collate(pairs, range(4))
    source, target = batch.source.layout, batch.target.layout
    src_ids, tgt_ids = source.padded(batch.source.ids), target.padded(batch.target.ids)
    expected = model(src_ids, tgt_ids)[tgt_ids != 0]
    logits = model.projection(model.hidden_states(batch)[: target.num_tokens])
    assert torch.allclose(logits, expected, atol=1e-5)
    weights, parameters = torch.randn_like(logits), list(model.parameters())
    ours, theirs = (torch.autograd.grad((x * weights).sum(), parameters) for x in (logits, expected))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"norm_order": "post"}, ROTARY])
def test_padding_never_changes_a_sentence(options):
    model = tiny(**options)
    src_ids, tgt_ids = some_ids()
    with torch.no_grad():
        alone = model(src_ids[1:, :3], tgt_ids[1:, :2])
        padded = model(src_ids, tgt_ids)[1:, :2]
    assert torch.allclose(alone, padded, atol=1e-5)


@pytest.mark.parametrize("options", [{}, ROTARY])
def test_decoder_cannot_see_the_future(options):
    model = tiny(**options)
    src_ids, tgt_ids = some_ids()
    changed = tgt_ids.clone()
    changed[:, 2:] = 9
    with torch.no_grad():
        before, after = model(src_ids, tgt_ids), model(src_ids, changed)
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.allclose(before[:, 2:], after[:, 2:])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm_order": "post", "qkv_bias": False},
        {"norm_order": "post", "final_norm": True},
        {"positions": "learned", "max_positions": 64, "activation": "gelu"},
        {"positions": "fairseq", "decoder_start": "eos", "tie_embeddings": "all"},
        {"activation": "swiglu", "num_encoder_layers": 1},
        {"activation": "silu", "output_bias": True},
        ROTARY,
    ],
)
def test_cached_decoding_equals_full_forward(options):
    model = tiny(**options)
    src_ids = some_ids()[0]
    tgt_ids = torch.randint(4, 13, (2, 40))
    with torch.no_grad():
        full = model(src_ids, tgt_ids)
        cache = model.start(src_ids)
        steps = [model.next(tgt_ids[:, position], cache) for position in range(tgt_ids.shape[1])]
    assert torch.allclose(torch.stack(steps, dim=1), full, atol=1e-4)


@pytest.mark.parametrize("options", [{}, ROTARY])
def test_beams_share_the_memory_of_their_sentence_and_continue_their_parents(options):
    model = tiny(**options)
    src_ids = some_ids()[0]
    tgt_ids = torch.randint(4, 13, (6, 5))  # Three rows for each of two sentences.
    with torch.no_grad():
        full = model(src_ids.repeat_interleave(3, dim=0), tgt_ids)
        cache = model.start(src_ids, num_beams=3)
        steps = [model.next(tgt_ids[:, position], cache) for position in range(5)]
        assert torch.allclose(torch.stack(steps, dim=1), full, atol=1e-5)
        rows, sentences = torch.tensor([4, 4, 5]), torch.tensor([1])
        cache.select(torch.tensor([[0, 1, 2], [1, 1, 2]]), sentences)
        following = model.next(torch.tensor([6, 7, 8]), cache)
        prefix = torch.cat([tgt_ids[rows], torch.tensor([[6], [7], [8]])], dim=1)
        expected = model(src_ids[1:].expand(3, -1), prefix)[:, -1]
    assert torch.allclose(following, expected, atol=1e-5)


@pytest.mark.parametrize("tie,num_tables", [("none", 3), ("target", 2), ("all", 1)])
def test_tied_tables_are_one(tie, num_tables):
    model = Transformer(ModelConfig(**SHAPES, tie_embeddings=tie), 11, 11)
    tables = {model.source_embedding.table.weight, model.target_embedding.table.weight, model.projection.weight}
    assert len(tables) == num_tables


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "swiglu"])
def test_feed_forward_dropout_applies_to_the_output_of_the_non_linearity_in_training_alone(activation):
    block = tiny(activation=activation, feed_forward_dropout=0.5, d_ff=16).encoder[0].feed_forward
    nn.init.eye_(block.outer.weight)  # The block's output is then that of the non-linearity.
    x = torch.randn(200, SHAPES["d_model"])
    with torch.no_grad():
        whole, dropped = block.eval()(x), block.train()(x)
    is_kept = dropped != 0
    assert torch.allclose(dropped[is_kept], 2 * whole[is_kept])
    assert is_kept[whole != 0].float().mean().item() == pytest.approx(0.5, abs=0.05)


def test_positions_are_the_sines_of_the_paper():
    table = sinusoids(50, 16)
    for position, dimension in [(0, 0), (1, 0), (7, 3), (49, 10), (49, 15)]:
        angle = position / 10_000 ** (2 * (dimension // 2) / 16)
        expected = math.cos(angle) if dimension % 2 else math.sin(angle)
        assert table[position, dimension] == pytest.approx(expected, abs=1e-4)


def test_positions_of_fairseq_begin_with_the_third_and_have_all_sines_before_the_cosines():
    table = FairseqPositions.encodings(50, 16)
    for position, dimension in [(0, 0), (1, 3), (7, 7), (49, 8), (49, 15)]:
        angle = (position + 2) / 10_000 ** (dimension % 8 / 7)
        expected = math.sin(angle) if dimension < 8 else math.cos(angle)
        assert table[position, dimension] == pytest.approx(expected, abs=1e-4)


def test_a_decoder_that_starts_with_eos_reads_its_embedding_in_place_of_sos():
    model = tiny(decoder_start="eos", tie_embeddings="all")
    src_ids = some_ids()[0]
    with torch.no_grad():
        logits, same = (model(src_ids, torch.tensor([[start, 5]] * len(src_ids))) for start in (SOS_ID, EOS_ID))
    assert torch.equal(logits, same)


def test_the_table_of_sines_grows_with_the_sentence():
    model = tiny()
    src_ids = torch.randint(4, 11, (1, 700))
    with torch.no_grad():
        assert model(src_ids, torch.tensor([[2]])).isfinite().all()
    assert torch.allclose(model.source_embedding.positions.table[:256], sinusoids(256, 16), atol=1e-5)


def test_each_pair_of_a_head_turns_by_its_position_times_its_frequency():
    positions, d_head = torch.tensor([0, 3, 1, 99, 7]), 6
    x = torch.randn(5, 2 * d_head)
    turned = rotate(x, rotary_factors(sinusoids(100, d_head)[positions]))
    for row, first in [(0, 0), (1, 0), (3, 2), (4, 4), (4, 10)]:
        angle = positions[row] / 10_000 ** ((first % d_head) / d_head)
        matrix = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
        assert torch.allclose(turned[row, first : first + 2], matrix @ x[row, first : first + 2], atol=1e-5)


def rotary_attention(rows, positions):
    """The first self-attention of an encoder, of random rows at these positions of one sentence."""
    model = tiny(**ROTARY)
    attention = model.encoder[0].self_attention
    layout = replace(
        padded_layout(torch.ones(1, len(positions), dtype=torch.int64)), positions=positions, num_positions=99
    )
    weights = []
    with torch.no_grad():
        attention(rows, model.rotation(layout), torch.zeros(1), weights=weights)
    return weights[0]


def test_rotary_attention_depends_on_the_distance_of_positions_and_not_on_the_positions():
    rows, places = torch.randn(5, SHAPES["d_model"]), torch.tensor([0, 1, 2, 3, 4])
    weights = []
    for each in (places, places + 50, 2 * places):
        torch.manual_seed(1)
        weights.append(rotary_attention(rows, each))
    here, elsewhere, further = weights
    assert torch.allclose(here, elsewhere, atol=1e-5)
    assert not torch.allclose(here, further, atol=1e-3)


def test_embeddings_begin_near_unit_size_and_matrices_are_xavier():
    model = Transformer(ModelConfig(d_model=256, d_ff=512, num_heads=4), 1_000, 1_000)
    ids = torch.arange(4, 1_000)[None]
    assert model.source_embedding.eval().scale == 16.0
    assert (model.source_embedding.table(ids) * 16.0).std().item() == pytest.approx(1.0, abs=0.05)
    weight = model.encoder[0].feed_forward.inner.weight
    assert weight.abs().max() <= math.sqrt(6 / (256 + 512))


def test_reading_gives_the_logits_and_a_distribution_for_every_head_of_every_layer():
    model = tiny()
    src_ids, tgt_ids = some_ids()
    with torch.no_grad():
        logits, attention = model.read(src_ids, tgt_ids)
        assert torch.equal(logits, model(src_ids, tgt_ids))
    assert [len(layers) for layers in attention] == [2, 3, 3]
    weights = attention.cross[2]
    assert weights.shape == (2, 4, 4, 5)
    assert torch.allclose(weights.sum(dim=-1), torch.ones(2, 4, 4))
    assert (weights[1, :, :, 3:] == 0).all()


@pytest.mark.parametrize("options", [{}, ROTARY])
def test_a_model_in_bf16_stays_near_fp32(options):
    model = tiny(**options)
    src_ids, tgt_ids = some_ids()
    with torch.no_grad():
        exact = model(src_ids, tgt_ids)
        rough = model.to(torch.bfloat16)(src_ids, tgt_ids)
    assert rough.dtype == torch.bfloat16
    assert (exact - rough.float()).abs().max() < 0.1 * exact.abs().max()


@pytest.mark.parametrize(
    "options", [{"tie_embeddings": "all"}, {"positions": "learned"}, {"norm_order": "post"}, ROTARY]
)
def test_outlines_and_skeletons_have_the_shapes_and_ties_of_a_model_without_its_memory(options):
    config = ModelConfig(**SHAPES, **options)
    model, state = Transformer(config, 11, 11), torch.get_rng_state()
    for copy in (outline(config, 11, 11), skeleton(model)):
        shapes, expected = ({name: x.shape for name, x in each.named_parameters()} for each in (copy, model))
        assert shapes == expected and all(weight.is_meta for weight in copy.parameters())
        is_tied = copy.projection.weight is copy.source_embedding.table.weight
        assert is_tied == (model.projection.weight is model.source_embedding.table.weight)
    assert torch.equal(torch.get_rng_state(), state)
    for buffer, copied in zip(model.buffers(), copy.buffers(), strict=True):
        assert torch.equal(buffer, copied) and buffer is not copied


def test_word_dropout_drops_whole_words_and_keeps_the_mean():
    config = ModelConfig(d_model=8, d_ff=8, num_heads=2, dropout=0.0, word_dropout=0.25)
    embedding = Embedding(config, 10)
    with torch.no_grad():
        embedding.table.weight.fill_(1.0)
    layout = padded_layout(torch.full((1, 20_000), 5))
    words = embedding.train()(torch.full((20_000,), 5), layout) - embedding.positions(layout.positions, 20_000)
    is_dropped = (words == 0).all(dim=1)
    assert is_dropped.float().mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.allclose(words[~is_dropped], torch.tensor(8**0.5 / 0.75), rtol=1e-3)
    assert (embedding.eval()(torch.full((4,), 5), padded_layout(torch.full((1, 4), 5))) != 0).all()


def test_the_dropout_of_embeddings_is_that_of_sub_layers_unless_it_has_a_rate_of_its_own():
    sizes = {"d_model": 8, "d_ff": 8, "num_heads": 2, "dropout": 0.3}
    for rate, expected in ((None, 0.3), (0.1, 0.1), (0.0, 0.0)):
        model = Transformer(ModelConfig(**sizes, embedding_dropout=rate), 10, 10)
        assert model.source_embedding.dropout == expected
        assert model.encoder[0].feed_forward_residual.dropout == 0.3
