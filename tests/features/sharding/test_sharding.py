import torch

from mt_cli.config.sections import ModelConfig
from mt_cli.model.transformer import Transformer, skeleton


def test_a_skeleton_has_the_shapes_and_ties_of_a_model_without_its_memory():
    config = ModelConfig(d_model=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, tie_embeddings="all")
    model = Transformer(config, 9, 9)
    copy = skeleton(model)
    shapes, copied = ({name: each.shape for name, each in some.named_parameters()} for some in (model, copy))
    assert shapes == copied and all(weight.is_meta for weight in copy.parameters())
    assert copy.projection.weight is copy.source_embedding.table.weight
    for buffer, other in zip(model.buffers(), copy.buffers(), strict=True):
        assert torch.equal(buffer, other) and buffer is not other
