import json

import pytest
import yaml
from run_content import report_of

NUMERALS = "零一二三四五六七八九"
PAIRS = [(f"number {n}.", "".join(NUMERALS[int(digit)] for digit in str(n)) + "。") for n in range(100, 900, 13)]


@pytest.fixture
def config(tiny_tree, tmp_path):
    """A config of English words and Japanese numerals, for a shared vocabulary of subwords."""
    for name, pairs in (("train", PAIRS[:52]), ("test", PAIRS[52:])):
        (tmp_path / f"{name}.tsv").write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    corpus = {"source": "en", "target": "ja", "train": {"file": "train.tsv"}, "test": {"file": "test.tsv"}}
    tiny_tree["corpus"] = {**corpus, "valid": {"fraction": 0.1}}
    tiny_tree["tokenizer"] = {"algorithm": "bpe", "shared": True, "vocab_size": 304}
    tiny_tree["training"] |= {"max_steps": 2, "max_epochs": None}
    tiny_tree["decoding"] = {"beam_size": 1, "max_length_ratio": 0.5}
    (tmp_path / "ja.yaml").write_text(yaml.safe_dump(tiny_tree, allow_unicode=True), encoding="utf-8")
    return "ja.yaml"


def test_a_language_without_spaces_is_scored_by_characters(mt, config, tmp_path):
    status, _, err = mt("train", "--config", config)
    assert status == 0, err
    report = report_of(tmp_path / "runs/tiny")
    assert "|tok:char|" in report["bleu"]["signature"] and "|asian:yes|" in report["ter"]["signature"]
    assert "wer" not in report and report["cer"]["score"] >= 0
    status, out, err = mt("translate", "--run", "runs/tiny", "one two three.", "--json")
    row = json.loads(out)
    assert status == 0 and max(target for _, target in row["word_alignment"]) < len(row["translation"]), err
    evaluate = ("evaluate", "--run", "runs/tiny", "--bleu-tokenizer")
    status, out, _ = mt(*evaluate, "intl", "--against", "runs/tiny", "--json")
    scored = json.loads(out)
    assert status == 0 and "|tok:intl|" in scored["bleu"]["signature"]
    assert scored["against"]["chrf"]["p_value"] == 1.0
    status, _, err = mt(*evaluate, "moses")
    assert status == 2 and "moses" in err
