import json
import shutil
from functools import partial

import pytest
from corpora import sentences, write, write_config
from run_content import report_of, rows_of

from mt_cli.data import prepare


@pytest.fixture
def config(tmp_path):
    """A function that writes a config with these training pairs and returns its path."""
    return partial(write_config, tmp_path)


def test_corpora_are_mixed_tagged_and_reported(mt, config, tmp_path):
    pairs = sentences(300)
    first = {**write(tmp_path, "a", pairs[:200]), "name": "books"}
    second = {**write(tmp_path, "b", pairs[200:]), "name": "web", "tag": "<web>", "weight": 3.0}
    second["filters"] = {"max_characters": 60}
    path = config(pairs, train=[first, second])
    status, _, err = mt("train", "--config", path, "--set", "training.max_steps=null", "--set", "training.max_epochs=1")
    assert status == 0, err
    assert "books" in err and "each 3 times an epoch" in err
    report = report_of(tmp_path / "runs/checked")
    books, web = (row for row in report["corpora"] if row["corpus"] == "train")
    assert (books["num_kept"], books["num_pairs_seen"]) == (200, 200)
    assert 0 < web["num_kept"] < 100 and web["dropped"] == {"max_characters": 100 - web["num_kept"]}
    assert web["num_pairs_seen"] == 3 * web["num_kept"]
    rows = rows_of(tmp_path / "runs/checked")
    seen = [row for row in rows if "train/num_pairs/web" in row][-1]
    assert (seen["train/num_pairs/books"], seen["train/num_pairs/web"]) == (200, web["num_pairs_seen"])
    (validated,) = (row for row in rows if "valid/loss" in row)
    assert 0 < validated["train/loss/books"] < 8 and 0 < validated["train/loss/web"] < 8
    assert mt("tokenize", "--run", "runs/checked", "<web> the dog")[1] == "<web> the dog\n"
    assert mt("translate", "--run", "runs/checked", "--to", "<web>", "the dog")[0] == 0
    status, _, err = mt("translate", "--run", "runs/checked", "--to", "<bt>", "the dog")
    assert status == 2 and "<web>" in err


def test_a_stream_trains_resumes_and_is_checked(mt, config, tmp_path, monkeypatch):
    monkeypatch.setattr("mt_cli.data.streams.SHUFFLE_BUFFER", 64)
    settings = ["--config", config(sentences(300))]
    settings += ["--set", "training.validate_every_steps=2"]
    settings += ["--set", "corpus.train={files: [train.en, train.de], streaming: true}"]
    longer = [*settings, "--set", "training.max_steps=5"]
    status, out, err = mt("data", "check", *settings, "--json")
    assert status == 0 and json.loads(out)["corpora"][0]["num_read"] == 64, err
    status, _, err = mt("train", *settings, "--set", "training.max_steps=2")
    assert status == 0 and "streaming" in err, err
    report = report_of(tmp_path / "runs/checked")
    assert report["corpora"][0]["num_kept"] >= report["corpora"][0]["num_pairs_seen"] > 0
    status, _, err = mt("train", *longer)
    assert status == 0 and "Resuming from step 2." in err
    assert mt("train", *longer, "--set", "name=straight")[0] == 0
    resumed, straight = (
        {row["step"]: row["train/loss"] for row in rows_of(tmp_path / "runs" / name) if "train/loss" in row}
        for name in ("checked", "straight")
    )
    assert resumed == straight and len(resumed) == 5


def test_every_dropped_pair_is_counted_and_nothing_shifts(mt, config, tmp_path):
    pairs = sentences(50)
    rows = list(pairs)
    for index, separator in enumerate("\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e"):  # They end no line.
        rows[index] = (pairs[index][0].replace(" ", separator, 1), pairs[index][1])
    rows += [("the dog and " * 120 + "now", "der Hund und " * 120 + "jetzt")]
    rows += [("valid 3 a", "etwas neues"), ("something new", "gültig 4 a")]
    for index, pair in [(10, ("", "leer")), (20, ("blank", "\u00a0")), (30, ("", ""))]:
        rows.insert(index, pair)
    path = config(rows)
    status, _, err = mt("train", "--config", path, "--set", "training.max_steps=1")
    counts = "1 blank_source, 1 blank_target, 1 blank_pair, 2 overlap, 1 max_tokens"
    assert status == 0 and f"50 pairs, dropped {counts}" in err
    mt("data", "check", "--config", path, "--write-clean", "clean")
    kept = [(tmp_path / f"clean/train.{code}").read_text(encoding="utf-8").splitlines() for code in ("en", "de")]
    assert list(zip(*kept, strict=True)) == pairs


def test_tokenizers_are_trained_on_a_seeded_sample(mt, config, monkeypatch, tmp_path):
    command = ("tokenize", "--config", config(sentences(300)))
    outputs = []
    for number in (50, 50, 300):
        shutil.rmtree(tmp_path / "runs", ignore_errors=True)
        monkeypatch.setattr(prepare, "_PAIRS_OF_TOKENIZERS", number)
        outputs.append(mt(*command))
    assert outputs[0][0] == 0 and outputs[0] == outputs[1] != outputs[2], "300 pairs have more words"


def test_many_unknown_tokens_are_noted_with_what_to_do(mt, config, tmp_path):
    kana = [chr(0x3042 + index) for index in range(30)]
    targets = ["".join(kana[(number * step) % 30] for step in range(1, 7)) + f"{number}。" for number in range(200)]
    pairs = [(f"one {number} two", target) for number, target in enumerate(targets)]
    path = config(pairs[:150], target="ja", valid=write(tmp_path, "other", pairs[150:]), max_tokens=100)
    char = ("--set", "tokenizer.algorithm=char")
    for options, advice in (
        ((), "tokenizer.algorithm bpe or unigram"),
        ((*char, "--set", "tokenizer.min_frequency=40"), "too rarely or never"),
        (char, None),
    ):
        notes = json.loads(mt("data", "check", "--config", path, "--json", *options)[1])["notes"]
        found = [note for note in notes if "target tokens of valid are unknown" in note]
        assert len(found) == bool(advice) and all(advice in note for note in found), options


def test_test_pairs_in_another_spelling_are_named(mt, config, tmp_path):
    pairs = sentences(200)
    test = write(tmp_path, "test", pairs[:20])
    shouted = [(source.upper(), f"{target[:-1]} !") for source, target in pairs[:20]]
    status, out, _ = mt("data", "check", "--config", config(pairs[20:] + shouted, test=test))
    assert status == 0 and "note: 20 of the 20 pairs of test are kept in train, too" in out
    out = mt("data", "check", "--config", config(pairs[20:] + shouted[:2], test=test))[1]
    assert "are kept in train, too" not in out
