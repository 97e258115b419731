import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mt_cli.batching.batches import collate
from mt_cli.batching.encoded import EncodedPairs
from mt_cli.config.sections import ModelConfig
from mt_cli.config.training import TrainingConfig
from mt_cli.errors import InputError
from mt_cli.evaluation.error_rates import CharacterErrorRate, WordErrorRate
from mt_cli.evaluation.texts import BLEU_TOKENIZERS, Scorer
from mt_cli.evaluation.tokens import TokenScores, score_tokens
from mt_cli.model.transformer import Transformer
from mt_cli.training.objective import Objective


def test_token_scores_are_those_of_one_large_batch():
    source = [[4 + n % 5] * (1 + n % 6) for n in range(30)]
    pairs = EncodedPairs.from_ids(source, source[::-1])
    objective = Objective(Transformer(ModelConfig(d_model=8, d_ff=8, num_heads=2), 10, 10), TrainingConfig())
    scores = score_tokens(objective, pairs, batch_tokens=20)
    batch = collate(pairs, range(30))
    with torch.no_grad():
        logits = objective.model(
            batch.source.layout.padded(batch.source.ids), batch.target.layout.padded(batch.target.ids)
        )
    tgt_output_ids = batch.target.layout.padded(batch.tgt_output_ids)
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
    assert {name: round(entry.score) for name, entry in scores.items()} == {
        "bleu": 100,
        "chrf": 100,
        "chrf++": 100,
        "ter": 0,
        "cer": 0,
        "wer": 0,
    }
    assert all("version:" in entry.signature for entry in scores.values())
    worse = Scorer.of("en").score(["The dog sits on the mat.", "It is raining."], lines)
    assert worse["bleu"].score < 100 < 100 + worse["ter"].score


SENTENCES = {
    "en": ["The cat sits on the mat today.", "It is raining again, is it not?"],
    "ja": ["今夜は雨が降るでしょう。", "猫がマットの上に座っています。"],
    "zh": ["一只猫坐在垫子上。", "今天又下雨了，不是吗？"],
    "ko": ["고양이가 매트 위에 앉아 있다.", "오늘 또 비가 온다."],
    "th": ["แมวนั่งอยู่บนเสื่อ", "วันนี้ฝนตกอีกแล้วใช่ไหม"],
    "km": ["ឆ្មាអង្គុយលើកន្ទេល។", "ថ្ងៃនេះភ្លៀងទៀតហើយ។"],
    "ar": ["القطة تجلس على السجادة اليوم.", "إنها تمطر مرة أخرى اليوم."],
}


@pytest.mark.parametrize("language", SENTENCES)
def test_scores_are_perfect_for_perfect_translations_and_fall_with_every_error_in_every_language(language):
    references = SENTENCES[language] * 5
    scorer = Scorer.of(language)
    perfect = scorer.score(references, references)
    shorter = scorer.score([text[:-4] for text in references], references)
    for name, scored in perfect.items():
        is_rate = name in ("ter", "cer", "wer")
        assert scored.score == pytest.approx(0.0 if is_rate else 100.0), name
        assert shorter[name].score != pytest.approx(scored.score), name
        # chrF++, and TER after normalising kana, count words, and there may be none left.
        assert 0 < shorter[name].score < 100 or name in ("chrf++", "ter"), name


def test_the_tokenizer_of_bleu_is_in_the_signature_and_follows_the_language():
    expected = {"en": "13a", "de": "13a", "ar": "13a", "he": "13a", "hi": "13a", "zh": "zh", "zho_Hans": "zh"}
    expected |= dict.fromkeys(("ja", "jpn_Jpan", "ko", "th", "tha_Thai", "lo", "km", "my", "bo"), "char")
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


def test_a_bleu_tokenizer_that_is_not_available_is_refused_with_the_reason(monkeypatch):
    with pytest.raises(InputError, match="unknown; use auto or one of 13a"):
        Scorer.of("en", "moses")
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(InputError, match=r"ja-mecab: cannot be used here.*pip install sacrebleu"):
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
    for metric, left, right in ((CharacterErrorRate(), one, other), (WordErrorRate(), one.split(), other.split())):
        edits = plain_edit_distance(left, right)
        expected = 100 * (edits / len(right) if right else float(edits > 0))
        assert metric.corpus_score([one], [[other]]).score == pytest.approx(expected)


def test_error_rates_are_edits_per_hundred_units_of_the_references():
    scores = Scorer.of("en").score(["the cat sat", "no"], ["the cat sits", "no no"], ["cer", "wer"])
    assert scores["wer"].score == pytest.approx(100 * 2 / 5)
    assert scores["cer"].score == pytest.approx(100 * (2 + 3) / (12 + 5), abs=1e-3)
    assert scores["cer"].signature.startswith("nrefs:1|case:mixed|unit:character|version:")


def test_resampling_covers_all_metrics_of_a_language():
    for language in ("en", "ja"):
        scorer = Scorer.of(language)
        references = SENTENCES[language] * 20
        worse = [text[:-2] for text in references]
        assert set(scorer.confidence(worse, references)) == set(scorer.names)
        compared = scorer.compare(references, worse, references)
        assert set(compared) == set(scorer.names)
        assert all(result.p_value < 0.05 for result in compared.values())
        assert all(result.p_value == 1.0 for result in scorer.compare(worse, worse, references).values())


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], []), ([], ["a"]), (["a", "b"], ["a"])])
def test_each_reference_needs_one_hypothesis(hypotheses, references):
    scorer = Scorer.of("en")
    for score in (
        scorer.score,
        scorer.confidence,
        lambda hypotheses, references: scorer.compare(hypotheses, hypotheses, references),
    ):
        with pytest.raises(InputError, match="one hypothesis for each reference"):
            score(hypotheses, references)
