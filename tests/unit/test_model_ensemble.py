import pytest
import torch
from tiny_models import padded, some_sources, tiny_model

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Sentence
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.model.ensemble import Ensemble

SOURCES = some_sources(4)


@pytest.fixture
def models():
    """Two models of different sizes."""
    return [tiny_model(1).eval(), tiny_model(2, d_model=32, num_heads=4).eval()]


def test_an_ensemble_predicts_the_mean_of_the_probabilities(models):
    src_ids, tgt_ids = padded([[5, 6]]), torch.tensor([[2, 7, 8]])
    ensemble = Ensemble(models)
    with torch.inference_mode():
        mean = sum(model(src_ids, tgt_ids).softmax(dim=-1) for model in models) / len(models)
        cache = ensemble.start(src_ids)
        for position in range(3):
            torch.testing.assert_close(ensemble.next(tgt_ids[:, position], cache).exp(), mean[:, position])


@pytest.mark.parametrize("beam_size", [1, 4])
def test_an_ensemble_of_equal_models_translates_as_one(models, beam_size):
    decoding = DecodingConfig(beam_size=beam_size, max_length_ratio=0.5)
    one, both = models[0], Ensemble([models[0], models[0]])
    alone, together = (TransformerEngine(model).search([*map(Sentence, SOURCES)], decoding) for model in (one, both))
    for (expected,), (found,) in zip(alone, together, strict=True):
        assert found.ids == expected.ids
        assert found.score == pytest.approx(expected.score, abs=1e-4)
