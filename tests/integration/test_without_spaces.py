import json
import random

import pytest
import yaml
from run_content import report_of, rows_of

WORDS = ["one", "two", "three", "four", "five"]
NUMERALS = dict(zip(WORDS, "一二三四五", strict=True))


@pytest.fixture
def english_japanese(tiny_tree, tmp_path):
    """A config of two hundred pairs of words and numerals, for a shared vocabulary of sub-words."""
    generator = random.Random(1)
    chosen = [generator.choices(WORDS, k=generator.randrange(2, 5)) for _ in range(220)]
    lines = ["\t".join((" ".join(words) + ".", "".join(map(NUMERALS.get, words)) + "。")) for words in chosen]
    for name, some in (("train", lines[:200]), ("test", lines[200:])):
        (tmp_path / f"{name}.tsv").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    corpus = {"source": "en", "target": "ja", "train": {"file": "train.tsv"}, "test": {"file": "test.tsv"}}
    tiny_tree["corpus"] = {**corpus, "valid": {"fraction": 0.1}}
    tiny_tree["tokenizer"] = {"algorithm": "bpe", "shared": True, "vocab_size": 304}
    tiny_tree["model"] |= {"d_model": 32, "d_ff": 64, "dropout": 0.0}
    tiny_tree["training"] |= {"max_steps": 120, "learning_rate": 0.01, "warmup_steps": 10, "schedule": "linear"}
    tiny_tree["training"] |= {"max_epochs": None, "validate_every_steps": 30, "precision": "fp32"}
    tiny_tree["decoding"] = {"beam_size": 1, "max_length": 12}
    path = tmp_path / "ja.yaml"
    path.write_text(yaml.safe_dump(tiny_tree, allow_unicode=True), encoding="utf-8")
    return path


def test_a_language_without_spaces_is_trained_translated_and_scored_as_such(mt, english_japanese, tmp_path):
    assert mt("train", "--config", english_japanese)[0] == 0
    report = report_of(tmp_path / "runs/tiny")
    assert "|tok:char|" in report["bleu"]["signature"]
    assert "|asian:yes|" in report["ter"]["signature"]
    assert "wer" not in report and 0 <= report["cer"]["score"] < 100
    rows = rows_of(tmp_path / "runs/tiny")
    scores = {row["step"]: row["valid/chrf"] for row in rows if "valid/chrf" in row}
    assert len(scores) == 4 and scores[report["best_step"]] == max(scores.values()) > 30
    assert report["best_step"] > min(scores)

    status, out, err = mt("translate", "--run", "runs/tiny", "one two three.", "four five.", "--json")
    assert status == 0, err
    for line in out.splitlines():
        row = json.loads(line)
        assert row["translation"] and " " not in row["translation"]
        assert max(target for _, target in row["word_alignment"]) < len(row["translation"])
    hypotheses = (tmp_path / "runs/tiny/hypotheses/test.txt").read_text(encoding="utf-8")
    assert " " not in hypotheses

    status, out, _ = mt(
        "evaluate", "--run", "runs/tiny", "--bleu-tokenizer", "intl", "--against", "runs/tiny", "--json"
    )
    scored = json.loads(out)
    assert status == 0 and "|tok:intl|" in scored["bleu"]["signature"]
    assert scored["against"]["chrf"]["p_value"] == 1.0
    status, _, err = mt("evaluate", "--run", "runs/tiny", "--bleu-tokenizer", "moses")
    assert status == 2 and "evaluation" not in err.split(":")[0] and "moses" in err
    assert "CER" in mt("evaluate", "--run", "runs/tiny")[1]


def test_a_bleu_tokenizer_that_is_not_installed_is_named_before_training(mt, english_japanese, monkeypatch, tmp_path):
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    status, _, err = mt("train", "--config", english_japanese, "--set", "evaluation.bleu_tokenizer=ja-mecab")
    assert status == 2
    assert "ja-mecab: cannot be used here" in err and "pip install sacrebleu[ja]" in err
    assert not (tmp_path / "runs").exists()
