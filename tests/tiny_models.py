"""Small models, pairs and sentences, the same in each call."""

import torch

from mt_cli.config.sections import ModelConfig
from mt_cli.data.batch import pad
from mt_cli.data.encode import EncodedPairs
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID

SIZES = {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.0}


def tiny_model(seed=7, vocab_size=12, spread=1.0, **options):
    """A model with random weights; a larger `spread` makes its distributions less even."""
    torch.manual_seed(seed)
    model = Transformer(ModelConfig(**SIZES | options), vocab_size, vocab_size)
    with torch.no_grad():
        model.projection.weight.mul_(spread)
    return model


def some_sources(number=6, vocab_size=12, longest=7):
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(1, longest + 1, (number,), generator=generator).tolist()
    return [torch.randint(4, vocab_size, (length,), generator=generator).tolist() for length in lengths]


def padded(sources):
    return pad(sources, end=EOS_ID)


def unpacked(ids, layout):
    """Matrix of packed ids with a row for each sequence, padded on the right."""
    return ids[layout.rows][: layout.num_sequences]


def some_pairs(number=40, vocab_size=12, longest=8):
    both = some_sources(2 * number, vocab_size, longest)
    return EncodedPairs.from_ids(both[:number], both[number:])


def weights_of(module):
    return torch.cat([weight.detach().cpu().flatten() for weight in module.parameters()])
