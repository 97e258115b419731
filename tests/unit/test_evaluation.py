import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import some_pairs, tiny_model, unpacked

from mt_cli.config.training import TrainingConfig
from mt_cli.data.batch import collate
from mt_cli.data.encode import EncodedPairs
from mt_cli.errors import InputError
from mt_cli.evaluation.error_rates import ErrorRate
from mt_cli.evaluation.scores import BLEU_TOKENIZERS, Scorer
from mt_cli.evaluation.token_loss import pair_losses, score_tokens
from mt_cli.model.loss import Objective


def test_token_scores_are_those_of_one_large_batch():
    pairs, model = some_pairs(30), tiny_model().eval()
    scores, batch = score_tokens(Objective(model, TrainingConfig()), pairs, batch_tokens=20), collate(pairs, range(30))
    source, target = batch.source, batch.target
    with torch.no_grad():
        logits = model(unpacked(source.ids, source.layout), unpacked(target.ids, target.layout))
    tgt_output_ids = unpacked(batch.tgt_output_ids, target.layout)
    is_token = tgt_output_ids != 0
    expected = torch.nn.functional.cross_entropy(logits[is_token], tgt_output_ids[is_token])
    assert scores.loss == pytest.approx(expected.item(), rel=1e-4)
    assert scores.perplexity == pytest.approx(expected.exp().item(), rel=1e-3)
    assert scores.token_accuracy == pytest.approx((logits.argmax(-1) == tgt_output_ids)[is_token].float().mean().item())


def test_losses_of_pairs_add_up_to_the_loss_of_all_tokens():
    pairs, model, done = some_pairs(30), tiny_model().eval(), []
    losses, lengths = pair_losses(model, pairs, 20, done.append), pairs.lengths()[1] + 1
    expected = score_tokens(Objective(model, TrainingConfig()), pairs, batch_tokens=20).loss
    assert (losses @ lengths) / lengths.sum() == pytest.approx(expected, rel=1e-4) and sum(done) == 30
    assert losses == pytest.approx(pair_losses(model, pairs, 1000, done.append), rel=1e-4)


def test_targets_can_be_scored_with_the_sources_of_others():
    pairs, model, others = some_pairs(30), tiny_model().eval(), np.roll(np.arange(30), 7)
    exchanged = EncodedPairs.from_ids([pairs[other][0] for other in others], [target for _, target in pairs])
    expected = pair_losses(model, exchanged, 20, int)
    assert pair_losses(model, pairs, 20, int, sources=others) == pytest.approx(expected, rel=1e-4)


def test_scores_of_some_pairs_read_only_these(monkeypatch):
    pairs, read, lengths = some_pairs(30), [], EncodedPairs.lengths
    monkeypatch.setattr(EncodedPairs, "lengths", lambda self, rows: read.extend(rows) or lengths(self, rows))
    score_tokens(Objective(tiny_model(), TrainingConfig()), pairs, 20, indices=[7, 3])
    assert read == [7, 3]


SENTENCES = {
    "en": ["The cat sits on the mat today.", "It is raining again, is it not?"],
    "ja": ["今夜は雨が降るでしょう。", "猫がマットの上に座っています。"],
    "zh": ["一只猫坐在垫子上。", "今天又下雨了，不是吗？"],
    "ko": ["고양이가 매트 위에 앉아 있다.", "오늘 또 비가 온다."],
    "th": ["แมวนั่งอยู่บนเสื่อ", "วันนี้ฝนตกอีกแล้วใช่ไหม"],
    "ar": ["القطة تجلس على السجادة اليوم.", "إنها تمطر مرة أخرى اليوم."],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_scores_are_perfect_for_perfect_translations_alone(language):
    references = SENTENCES[language] * 5
    scorer = Scorer.of(language)
    perfect = scorer.score(references, references)
    shorter = scorer.score([text[:-4] for text in references], references)
    assert set(perfect) == set(scorer.names)
    for name, score in perfect.items():
        is_rate = name in ("ter", "cer", "wer")
        assert score.score == pytest.approx(0.0 if is_rate else 100.0), name
        assert "version:" in score.signature and score.lower_is_better == is_rate
        assert shorter[name].score > score.score if is_rate else shorter[name].score < score.score, name


def test_the_tokenizer_of_bleu_follows_the_language():
    expected = {"en": "13a", "hi": "13a", "zh": "zh", "zho_Hans": "zh"}
    expected |= dict.fromkeys(("ja", "jpn_Jpan", "ko", "km"), "char")
    for language, tokenizer in expected.items():
        scorer = Scorer.of(language)
        assert f"|tok:{tokenizer}|" in scorer.score(["a"], ["a"], ["bleu"])["bleu"].signature, language
        assert scorer.default_metric == ("bleu" if tokenizer == "13a" else "chrf")
        assert ("wer" in scorer.names) == (tokenizer == "13a" or language == "ko")
    assert "|tok:intl|" in Scorer.of("ja", "intl").score(["a"], ["a"], ["bleu"])["bleu"].signature


def test_ter_counts_words_or_asian_characters_by_language():
    one, other = "今夜 は 雨", "今日 は 雨"
    signatures = {name: Scorer.of(name).score([one], [other])["ter"].signature for name in ("en", "ko", "ja")}
    assert signatures["en"] == signatures["ko"] and "norm:no" in signatures["en"] and "asian:no" in signatures["en"]
    assert "norm:yes" in signatures["ja"] and "asian:yes" in signatures["ja"]
    assert Scorer.of("th").names == ("bleu", "chrf", "chrf++", "cer")


def test_a_bleu_tokenizer_that_is_not_available_is_refused(monkeypatch):
    with pytest.raises(InputError, match="moses"):
        Scorer.of("en", "moses")
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(InputError, match="ja-mecab"):
        Scorer.of("ja", "ja-mecab")
    assert {Scorer.of("en", name).bleu_tokenizer for name in BLEU_TOKENIZERS[:5]} == set(BLEU_TOKENIZERS[:5])


def plain_edit_distance(one, other):
    row = list(range(len(other) + 1))
    for first, left in enumerate(one, start=1):
        before, row = row, [first]
        for second, right in enumerate(other, start=1):
            row.append(min(before[second] + 1, row[-1] + 1, before[second - 1] + (left != right)))
    return row[-1]


@given(one=st.text("ab 日😀\ud800", max_size=40), other=st.text("ab 日😀\ud800", max_size=40))
def test_error_rates_equal_those_of_the_plain_table(one, other):
    one, other = one.strip(), other.strip()
    for unit, left, right in (("character", one, other), ("word", one.split(), other.split())):
        edits = plain_edit_distance(left, right)
        expected = 100 * (edits / len(right) if right else float(edits > 0))
        assert ErrorRate(unit).corpus_score([one], [[other]]).score == pytest.approx(expected)


@pytest.mark.parametrize("language", ["en", "ja"])
def test_resampling_keeps_scores_and_tells_systems_apart(language):
    references, scorer = SENTENCES[language] * 20, Scorer.of(language)
    worse = [text[:-2] for text in references]
    plain, scores = scorer.score(worse, references), scorer.score_with_confidence(worse, references)
    for name in scorer.names:
        assert (scores[name].score, scores[name].signature) == (plain[name].score, plain[name].signature)
        assert 0 <= scores[name].confidence_95 < 20
    compared = scorer.compare(references, worse, references)
    assert set(compared) == set(scorer.names)
    assert all(result.p_value < 0.05 for result in compared.values())
    assert all(result.p_value == 1.0 for result in scorer.compare(worse, worse, references).values())
