import math

import pytest
import torch

from mt_cli.batching.batches import collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import ModelConfig
from mt_cli.evaluation.texts import Scorer
from mt_cli.evaluation.tokens import TokenScores, score_tokens
from mt_cli.model.transformer import Transformer
from mt_cli.objective import Objective


def test_token_scores_are_those_of_one_large_batch():
    source = [[4 + n % 5] * (1 + n % 6) for n in range(30)]
    pairs = EncodedPairs.from_ids(source, source[::-1])
    objective = Objective(Transformer(ModelConfig(d_model=8, d_ff=8, num_heads=2), 10, 10), 0.1)
    scores = score_tokens(objective, pairs, batch_tokens=20)
    batch = collate(pairs, range(30))
    with torch.no_grad():
        logits = objective.model(batch.source_grid.padded(batch.src_ids), batch.target_grid.padded(batch.tgt_input_ids))
    tgt_output_ids = batch.target_grid.padded(batch.tgt_output_ids)
    is_token = tgt_output_ids != 0
    expected = torch.nn.functional.cross_entropy(logits[is_token], tgt_output_ids[is_token])
    assert scores.loss == pytest.approx(expected.item(), rel=1e-4)
    assert scores.token_accuracy == pytest.approx((logits.argmax(-1) == tgt_output_ids)[is_token].float().mean().item())


def test_perplexity_is_the_exponential_of_the_loss():
    assert TokenScores(2.0, 0.5).perplexity == pytest.approx(math.exp(2.0))
    assert math.isfinite(TokenScores(1e6, 0.0).perplexity)


def test_a_perfect_translation_scores_100_and_carries_signatures():
    lines = ["The cat sits on the mat.", "It is raining again today."]
    scores = Scorer.of("en").score(lines, lines)
    assert {name: round(entry["score"]) for name, entry in scores.items()} == {
        "bleu": 100,
        "chrf": 100,
        "chrf++": 100,
        "ter": 0,
        "cer": 0,
        "wer": 0,
    }
    assert all("version:" in entry["signature"] for entry in scores.values())
    worse = Scorer.of("en").score(["The dog sits on the mat.", "It is raining."], lines)
    assert worse["bleu"]["score"] < 100 < 100 + worse["ter"]["score"]
