"""Selection of training pairs by `keep_likely`."""

import re

import numpy as np
import pyarrow as pa
import pytest
import yaml
from run_content import report_of

from mt_cli.config.loading import load_config
from mt_cli.data.encode import SIDES, EncodedPairs
from mt_cli.errors import ConfigError
from mt_cli.run.selection import pair_scores, wrong_sources

WORDS = {
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
}
DAMAGED = range(0, 400, 5)


def write_numbers(path, numbers, language):
    lines = (" ".join(WORDS[language][int(digit)] for digit in str(number)) for number in numbers)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.fixture
def config(tmp_path):
    """Numbers in two languages, of which every fifth has the target of another one."""
    numbers = [int(number) for number in np.random.default_rng(1).permutation(np.arange(1_000, 10_000))[:440]]
    targets = [numbers[(row + 5) % 400] if row in DAMAGED else numbers[row] for row in range(400)]
    write_numbers(tmp_path / "train.en", numbers[:400], "en")
    write_numbers(tmp_path / "train.de", targets, "de")
    for language in WORDS:
        write_numbers(tmp_path / f"valid.{language}", numbers[400:], language)
    tree = {
        "name": "likely",
        "corpus": {
            "source": "en",
            "target": "de",
            "both_directions": True,
            "tag": "to_target",
            "train": {"files": ["train.en", "train.de"]},
            "valid": {"files": ["valid.en", "valid.de"]},
            "filters": {"keep_likely": 0.8},
        },
        "tokenizer": {"algorithm": "word_level", "shared": True},
        "model": {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {"max_steps": 170, "max_epochs": None, "batch_tokens": 600, "learning_rate": 6e-3},
        "decoding": {"beam_size": 1, "max_length_ratio": 0.1},
    }
    tree["model"]["dropout"] = 0.0
    tree["training"] |= {"warmup_steps": 20, "validate_every_steps": 160, "device": "cpu", "num_threads": 1}
    path = tmp_path / "likely.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_least_likely_pairs_are_those_with_wrong_partners(mt, config, tmp_path):
    status, _, err = mt("train", "--config", config)
    assert status == 0 and "trains on 640 of 800 pairs" in err
    rows = [row for row in report_of(tmp_path / "runs/likely")["corpora"] if row["corpus"] == "train"]
    assert [row["num_likely"] for row in rows] == [320, 320]
    status, out, _ = mt("data", "show", "--config", config, "--least-likely", "60")
    shown = re.findall(r"line (\d+): (-?\d+\.\d+)", out)
    assert status == 0 and len(shown) == 60
    assert sum(int(line) - 1 in DAMAGED for line, _ in shown) >= 54
    scores = [float(score) for _, score in shown]
    assert scores == sorted(scores)
    path = tmp_path / "runs/likely/pair_scores.npy"
    path.write_bytes(path.read_bytes()[:-8])
    status, _, err = mt("data", "show", "--config", config, "--least-likely", "60")
    assert status == 2 and "pair_scores.npy: damaged" in err
    path.unlink()
    status, _, err = mt("data", "show", "--config", config, "--least-likely", "60")
    assert status == 2 and "pair_scores.npy" in err


def both_directions(sources, targets):
    """Pairs with ids of these lengths in one part, and the same with exchanged sides in another."""
    sides = ([[5] * length for length in lengths] for lengths in (sources + targets, targets + sources))
    columns = [pa.array(side, pa.list_(pa.uint32())) for side in sides]
    return EncodedPairs([pa.record_batch(columns, SIDES)], [len(sources), len(sources)])


def test_a_wrong_source_is_as_long_and_of_the_same_part():
    lengths = [3, 9] * 20
    pairs = both_directions(lengths, lengths)
    others = wrong_sources(pairs)
    assert sorted(others) == list(range(80)) and (others != np.arange(80)).all()
    assert ((others < 40) == (np.arange(80) < 40)).all()
    assert np.count_nonzero(pairs.lengths()[0] != pairs.lengths()[0][others]) == 4


def test_both_directions_of_a_pair_have_one_score():
    pairs, exchanged = both_directions([8, 8, 8, 4], [6, 6, 3, 3]), np.array([4, 5, 6, -1, 0, 1, 2, -1])
    scores = pair_scores(np.array([4, 1, 4, 4, 2, 1, 2, 4], np.float32), pairs, exchanged)
    assert scores[:4] == pytest.approx(scores[4:], nan_ok=True) and np.isnan(scores[3])
    assert scores[0] == 3 and scores[1] == 1 and 0 < scores[2] < 1.5


def test_pairs_are_selected_only_by_a_run_of_both_directions(mt, config):
    for changes, word in (
        (["corpus.both_directions=false"], "corpus.both_directions: true"),
        (["corpus.train={files: [train.en, train.de], streaming: true}"], "streams"),
    ):
        with pytest.raises(ConfigError, match=word):
            load_config(config, changes)
    assert mt("data", "show", "--config", config, "--least-likely", "3")[0] == 2
