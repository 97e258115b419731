import json
from functools import partial

import pytest
import yaml
from corpora import sentences, write, write_config
from run_content import report_of, rows_of


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
    assert mt("translate", "--run", "runs/checked", "--tag", "<web>", "the dog")[0] == 0
    status, _, err = mt("translate", "--run", "runs/checked", "--tag", "<bt>", "the dog")
    assert status == 2 and "<web>" in err


def test_temperature_mixes_corpora_of_different_sizes(mt, config, tmp_path):
    pairs = sentences(300)
    path = config(pairs, train=[write(tmp_path, "a", pairs[:250]), write(tmp_path, "b", pairs[250:])], temperature=5.0)
    _, out, _ = mt("data", "check", "--config", path, "--json")
    large, small = (row["times_per_epoch"] for row in json.loads(out)["corpora"] if row["corpus"] == "train")
    assert large < 1 < small
    assert 250 * large + 50 * small == pytest.approx(300, abs=0.1)


def test_two_named_columns_of_a_dataset_are_its_sides(mt, config, offline, tmp_path):
    (tmp_path / "hub").mkdir()
    rows = (json.dumps({"question": source, "answer": target}) for source, target in sentences(40))
    (tmp_path / "hub/train.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    source = {"dataset": "hub", "split": "train", "columns": ["question", "answer"]}
    assert mt("data", "show", "--config", config([], train=source), "-n", "1")[0] == 0
    path = config([], train=source | {"columns": ["question", "reply"]})
    status, _, err = mt("data", "show", "--config", path, "-n", "1")
    assert status == 2 and "'reply'" in err and "'answer'" in err


def test_a_stream_trains_resumes_and_is_checked(mt, config, tmp_path):
    settings = ["--config", config(sentences(300)), "--set", "corpus.shuffle_buffer=64"]
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


def test_the_second_start_finds_everything_in_the_cache(mt, config, tmp_path):
    command = ("train", "--config", config(sentences(300)), "--set", "training.max_steps=1")

    def entries():
        return {file: file.stat().st_mtime_ns for file in (tmp_path / "runs/.cache").rglob("*")}

    assert mt(*command)[0] == 0
    before = entries()
    status, _, err = mt(*command, "--set", "name=other", "--set", "model.d_ff=32")
    assert status == 0, err
    assert before and entries() == before


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
    mt("data", "check", "--config", path, "--write-clean", "kept.tsv")
    kept = (tmp_path / "kept.tsv").read_text(encoding="utf-8").split("\n")
    assert kept == [*("\t".join(pair) for pair in pairs), ""]


def test_tokenizers_are_trained_on_a_seeded_sample(mt, config):
    def report(**settings):
        changes = [part for key, value in settings.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]
        status, out, err = mt("tokenize", "--config", path, *changes)
        assert status == 0, err
        return out

    path = config(sentences(300))
    assert report(tokenizer__sample_pairs=50) == report(tokenizer__sample_pairs=50)
    assert report(tokenizer__sample_pairs=50) != report(), "300 pairs have more words"


NO_WORDS = "note: ja has no spaces between words"


@pytest.fixture
def japanese(config, tmp_path):
    """A function that writes a config from English to Japanese with different sentences and returns its path."""
    kana = [chr(0x3042 + index) for index in range(30)]
    targets = ["".join(kana[(number * step) % 30] for step in range(1, 7)) + f"{number}。" for number in range(200)]
    pairs = [(f"one {number} two", target) for number, target in enumerate(targets)]

    def write_config(**tokenizer):
        path = config(pairs[:150], target="ja", valid=write(tmp_path, "other", pairs[150:]), max_tokens=100)
        tree = yaml.safe_load((tmp_path / path).read_text(encoding="utf-8")) | {"tokenizer": tokenizer}
        (tmp_path / path).write_text(yaml.safe_dump(tree), encoding="utf-8")
        return path

    return write_config


def test_words_in_a_language_without_spaces_are_noted(mt, japanese, tmp_path):
    path = japanese()
    for command in (("data", "check"), ("tokenize",), ("train", "--set", "training.max_steps=1")):
        status, _, err = mt(*command, "--config", path)
        assert status == 0 and err.startswith(NO_WORDS), err
    assert NO_WORDS not in mt("data", "check", "--config", japanese(algorithm="char"))[2]


def test_a_vocabulary_is_not_larger_than_asked_for(mt, config):
    pairs = [(f"one {n} two", "".join(chr(0x4E00 + 7 * (n + index)) for index in range(8))) for n in range(300)]
    path = config(pairs, target="zh")
    for algorithm in ("bpe", "unigram"):
        options = ("--set", f"tokenizer.algorithm={algorithm}", "--set", "tokenizer.shared=true")
        status, _, err = mt("tokenize", "--config", path, *options, "--set", "tokenizer.vocab_size=100")
        assert status == 2 and "tokenizer.vocab_size: 100" in err
        status, out, err = mt("tokenize", "--config", path, *options, "--set", "tokenizer.vocab_size=400")
        assert status == 0, err
        rows = [line.split() for line in out.splitlines()[2:]]
        assert all(int(row[1]) <= 400 and row[3] == "0.00%" for row in rows)


def test_many_unknown_tokens_are_noted_with_what_to_do(mt, japanese, tmp_path):
    words = "target tokens of valid are unknown"
    for tokenizer, advice in (
        ({}, "tokenizer.algorithm bpe or unigram"),
        ({"algorithm": "char", "min_frequency": 40}, "too rarely or never"),
        ({"algorithm": "char"}, None),
    ):
        notes = json.loads(mt("data", "check", "--config", japanese(**tokenizer), "--json")[1])["notes"]
        found = [note for note in notes if words in note]
        assert len(found) == bool(advice) and all(advice in note for note in found), tokenizer
    path = japanese(algorithm="bpe", byte_fallback=False)
    (tmp_path / "other.de").write_text("一二三。\n" * 50, encoding="utf-8")
    assert "set tokenizer.byte_fallback to true" in mt("data", "check", "--config", path)[1]


def test_runs_are_not_compared_on_pairs_that_one_has_seen(mt, config, tmp_path):
    """The files of `old` differ from the others, so only the pairs themselves tell."""

    def train(name, pairs, **valid):
        path = config(pairs, valid={"fraction": 0.1, **valid})
        assert mt("train", "--config", path, "--set", f"name={name}", "--set", "training.max_steps=1")[0] == 0

    def compare(name, baseline):
        status, _, err = mt("evaluate", "--split", "valid", "--run", f"runs/{name}", "--against", f"runs/{baseline}")
        return status, err

    grown = sentences(200)[::-1] + [(f"new {one}", f"neu {two}") for one, two in sentences(100)]
    train("old", sentences(200), seed=1)
    train("same", grown, seed=1)
    train("other", grown, seed=2)
    assert compare("old", "same")[0] == 0, "what was held out stays held out"
    for pair in (("old", "other"), ("same", "other")):
        status, err = compare(*pair)
        assert status == 2 and f"runs/{pair[1]}: was trained on " in err
    for number, side in enumerate(("en", "de")):
        (tmp_path / f"t.{side}").write_text("".join(f"{pair[number].upper()}\n" for pair in sentences(40)), "utf-8")
    status, _, err = mt("evaluate", "--run", "runs/old", "--source", "t.en", "--reference", "t.de")
    assert status == 0 and "note: runs/old was trained on " in err and "of these 40 pairs" in err
    for name, content, status in (("other", None, 0), ("same", b"12345678" * 9, 2)):
        record = tmp_path / f"runs/{name}/training_pairs.bin"
        record.unlink()
        if content:
            record.write_bytes(content)
        found, err = compare("old", name)
        assert found == status and f"runs/{name}" in err


def test_pairs_that_the_parent_has_seen_are_counted(mt, config):
    train = ("train", "--set", "training.max_steps=1", "--config")
    assert mt(*train, config(sentences(200), valid={"fraction": 0.1, "seed": 1}), "--set", "name=parent")[0] == 0
    child = config(sentences(200), valid={"fraction": 0.1, "seed": 5})
    status, _, err = mt(*train, child, "--set", "name=child", "--set", "init.run=runs/parent")
    assert status == 0 and "note: runs/parent was trained on " in err
    status, _, err = mt("evaluate", "--run", "runs/child", "--num-resamples", "2")
    assert status == 0 and "note: runs/child was trained on " in err, "what its parent learned, it has seen"
    config(sentences(200)[20:], valid={"fraction": 0.1, "seed": 5})
    status, _, err = mt("evaluate", "--run", "runs/child", "--num-resamples", "2", "--split", "valid")
    assert status == 0 and "note: corpus.train has changed since" in err


def test_test_pairs_in_another_spelling_are_named(mt, config, tmp_path):
    pairs = sentences(200)
    test = write(tmp_path, "test", pairs[:20])
    shouted = [(source.upper(), f"{target[:-1]} !") for source, target in pairs[:20]]
    status, out, _ = mt("data", "check", "--config", config(pairs[20:] + shouted, test=test))
    assert status == 0 and "note: 20 of the 20 pairs of test are kept in train, too" in out
    out = mt("data", "check", "--config", config(pairs[20:] + shouted[:2], test=test))[1]
    assert "are kept in train, too" not in out
