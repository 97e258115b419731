"""A model for two directions, from one config to scores of each."""

import json

import pytest


@pytest.fixture(scope="module")
def two_directions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("directions")
    digits = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    words = ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
    for name, first, last in (("train", 100, 700), ("valid", 700, 740)):
        for language, texts in (("en", digits), ("de", words)):
            lines = (" ".join(texts[int(digit)] for digit in str(number)) for number in range(first, last))
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


CONFIG = """
name: two
corpus:
  source: en
  target: de
  tag: to_target
  both_directions: true
  temperature: 2
  train: {files: [FOLDER/train.en, FOLDER/train.de]}
  valid: {files: [FOLDER/valid.en, FOLDER/valid.de]}
tokenizer: {algorithm: word_level, shared: true}
model: {d_model: 32, d_ff: 64, num_heads: 2, num_encoder_layers: 1, num_decoder_layers: 1, dropout: 0.0}
training: {max_epochs: 25, batch_tokens: 600, learning_rate: 4.0e-3, warmup_steps: 20, num_threads: 1, device: cpu}
decoding: {beam_size: 1, max_length: 10}
evaluation: {num_resamples: 10}
"""


def test_one_model_translates_in_both_directions_and_has_a_score_for_each(mt, two_directions, tmp_path):
    (tmp_path / "two.yaml").write_text(CONFIG.replace("FOLDER", str(two_directions)), encoding="utf-8")
    status, _, err = mt("train", "--config", "two.yaml")
    assert status == 0, err
    assert mt("translate", "--to", "de", "one seven two") == (0, "eins sieben zwei\n", "Using runs/two\n")
    assert mt("translate", "--to", "en", "eins sieben zwei")[1] == "one seven two\n"
    report = json.loads((tmp_path / "runs/two/report.json").read_text(encoding="utf-8"))
    assert list(report["directions"]) == ["en-de", "de-en"]
    means = [sum(each[name]["score"] for each in report["directions"].values()) / 2 for name in ("bleu", "chrf")]
    assert [report["bleu"]["score"], report["chrf"]["score"]] == pytest.approx(means, abs=1e-3)
    rows = [json.loads(line) for line in (tmp_path / "runs/two/metrics.jsonl").read_text().splitlines()]
    last = next(row for row in reversed(rows) if "valid/chrf" in row)
    assert last["valid/chrf"] == pytest.approx((last["valid/chrf/en-de"] + last["valid/chrf/de-en"]) / 2, abs=1e-3)
    status, out, _ = mt("evaluate", "--run", "runs/two", "--json")
    found = json.loads(out)
    assert status == 0 and found["directions"] == report["directions"]
    text = mt("evaluate", "--run", "runs/two")[1]
    assert "  en-de " in text and "  de-en " in text
    files = ("--source", two_directions / "valid.de", "--reference", two_directions / "valid.en")
    own = json.loads(mt("evaluate", "--run", "runs/two", *files, "--to", "en", "--json")[1])
    assert own["chrf"]["score"] == report["directions"]["de-en"]["chrf"]["score"]
    assert mt("translate", "--to", "fr", "one")[0] == mt("translate", "--to", "de", "--tag", "<2de>", "one")[0] == 2
    status, _, err = mt("translate", "one two")
    assert status == 0 and "choose one with --to" in err
    assert mt("train", "--config", "two.yaml")[0] == 0, "a finished run is not trained again"
