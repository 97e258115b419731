import json
import random
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
    assert validated["train/loss/books"] != validated["train/loss/web"]
    assert mt("tokenize", "--run", "runs/checked", "<web> the dog")[1] == "<web> the dog\n"
    assert mt("translate", "--run", "runs/checked", "--tag", "<web>", "the dog")[0] == 0
    status, _, err = mt("translate", "--run", "runs/checked", "--tag", "<bt>", "the dog")
    assert status == 2 and "was not trained with it; it knows <web>" in err


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
    assert status == 2 and "no column 'reply' among 'question', 'answer'" in err


STREAM = ["training.validate_every_steps=2", "training.max_steps=4", "corpus.shuffle_buffer=64"]


def test_a_stream_trains_resumes_and_is_checked_by_its_beginning(mt, config, tmp_path):
    path = config(sentences(300))
    settings = ["--config", path]
    for change in (*STREAM, "corpus.train={files: [train.en, train.de], streaming: true}"):
        settings += ["--set", change]
    longer = [*settings, "--set", "training.max_steps=9"]
    status, out, err = mt("data", "check", *settings, "--json")
    assert status == 0 and json.loads(out)["corpora"][0]["num_read"] == 64, err
    status, _, err = mt("train", *settings)
    assert status == 0, err
    assert "streaming" in err and "not searched for slips" in err
    assert "steps       as many an epoch as the stream gives, at most 4 in all" in err
    report = report_of(tmp_path / "runs/checked")
    assert report["corpora"][0]["num_kept"] >= report["corpora"][0]["num_pairs_seen"] > 0
    status, _, err = mt("train", *longer)
    assert status == 0 and "Resuming from step 4." in err
    assert mt("train", *longer, "--set", "name=straight")[0] == 0
    resumed, straight = (
        {row["step"]: row["train/loss"] for row in rows_of(tmp_path / "runs" / name) if "train/loss" in row}
        for name in ("checked", "straight")
    )
    assert resumed == straight and len(resumed) == 9


def test_the_second_start_finds_everything_in_the_cache(mt, config, tmp_path):
    path = config(sentences(300))

    def entries():
        return {file: file.stat().st_mtime_ns for file in (tmp_path / "runs/.cache").rglob("*")}

    assert mt("train", "--config", path)[0] == 0
    before = entries()
    status, _, err = mt("train", "--config", path, "--set", "name=other", "--set", "model.d_ff=32")
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
    assert "note: 2 pairs of train contain a sentence of valid, test or extra_tests" in err
    mt("data", "check", "--config", path, "--write-clean", "kept.tsv")
    kept = (tmp_path / "kept.tsv").read_text(encoding="utf-8").split("\n")
    assert kept == [*("\t".join(pair) for pair in pairs), ""]


def test_the_tokenizers_of_a_large_corpus_are_trained_on_a_seeded_sample(mt, config, tmp_path):
    path, tokenizers = config(sentences(300)), {}
    for name, seed, number in (("a", 1, 50), ("b", 1, 50), ("c", 2, 50), ("d", 1, "null")):
        settings = [f"training.seed={seed}", f"tokenizer.sample_pairs={number}", f"name={name}", "training.max_steps=1"]
        status, _, err = mt("train", "--config", path, *(part for each in settings for part in ("--set", each)))
        assert (status, "trained on 50 of the pairs" in err) == (0, number == 50), err
        tokenizers[name] = (tmp_path / "runs" / name / "tokenizer.source.json").read_text(encoding="utf-8")
    assert tokenizers["a"] == tokenizers["b"] != tokenizers["c"]
    assert len(tokenizers["a"]) < len(tokenizers["d"])


NO_WORDS = "note: ja has no spaces between words, and tokenizer.algorithm word_level splits at spaces"


@pytest.fixture
def japanese(config, tmp_path):
    """A function that writes a config from English to Japanese with different sentences and returns its path."""
    kana, chance = [chr(place) for place in range(0x3042, 0x3060)], random.Random(1)
    pairs = [(f"one {n} two", "".join(chance.choices(kana, k=6)) + "。") for n in range(200)]

    def write_config(**tokenizer):
        path = config(pairs[:150], target="ja", valid=write(tmp_path, "other", pairs[150:]), max_tokens=100)
        tree = yaml.safe_load((tmp_path / path).read_text(encoding="utf-8")) | {"tokenizer": tokenizer}
        (tmp_path / path).write_text(yaml.safe_dump(tree), encoding="utf-8")
        return path

    return write_config


def test_word_level_with_a_language_without_spaces_is_noted_before_the_text_is_read(mt, japanese, tmp_path):
    path = japanese()
    for command in (("data", "check"), ("tokenize",), ("train", "--set", "training.max_steps=1")):
        status, out, err = mt(*command, "--config", path)
        assert status == 0, err
        assert err.index(NO_WORDS) == 0 and err.count("note: ja") == 1
        assert (NO_WORDS in out) == (command == ("data", "check"))
    for algorithm in ("bpe", "unigram", "char"):
        assert "written without spaces" not in mt("data", "check", "--config", japanese(algorithm=algorithm))[2]
    path = japanese()
    (tmp_path / "train.de").unlink()
    status, _, err = mt("tokenize", "--config", path)
    assert status == 2 and err.startswith(NO_WORDS)


def test_a_vocabulary_that_is_too_small_is_named_and_one_with_many_characters_keeps_its_size(mt, config, tmp_path):
    pairs = [(f"one {n} two", "".join(chr(0x4E00 + 7 * (n + place)) for place in range(8))) for n in range(300)]
    path = config(pairs, target="zh")
    for algorithm in ("bpe", "unigram"):
        options = ("--set", f"tokenizer.algorithm={algorithm}", "--set", "tokenizer.shared=true")
        status, _, err = mt("tokenize", "--config", path, *options, "--set", "tokenizer.vocab_size=100")
        assert status == 2 and "tokenizer.vocab_size: 100 is too small" in err
        status, out, err = mt("tokenize", "--config", path, *options, "--set", "tokenizer.vocab_size=400")
        assert status == 0, err
        rows = [line.split() for line in out.splitlines()[2:]]
        assert all(int(row[1]) <= 400 and row[3] == "0.00%" for row in rows)


def test_many_unknown_tokens_are_noted_with_what_to_do(mt, japanese, tmp_path):
    notes = json.loads(mt("data", "check", "--config", japanese(), "--json")[1])["notes"]
    (note,) = [note for note in notes if "target tokens of valid are unknown" in note]
    assert note.startswith("50 % of the target tokens") and "tokenizer.algorithm bpe or unigram" in note
    path = japanese(algorithm="bpe", byte_fallback=False)
    assert "are unknown" not in mt("data", "check", "--config", path)[1]
    (tmp_path / "other.de").write_text("一二三。\n" * 50, encoding="utf-8")
    out = mt("data", "check", "--config", path)[1]
    assert "75 % of the target tokens of valid are unknown: set tokenizer.byte_fallback to true" in out
    out = mt("data", "check", "--config", japanese(algorithm="char", min_frequency=40))[1]
    assert "% of the target tokens of valid are unknown: train has these characters too rarely or never" in out
    for algorithm in ("bpe", "unigram", "char"):
        assert "are unknown" not in mt("data", "check", "--config", japanese(algorithm=algorithm))[1]


def test_runs_are_not_compared_on_pairs_that_one_of_them_trained_on(mt, config, tmp_path):
    """The files of `old` differ from the others, so only the pairs themselves tell."""

    def train(name, pairs, training_seed, **valid):
        path = config(pairs, valid={"fraction": 0.1, **valid})
        settings = ("--set", f"name={name}", "--set", f"training.seed={training_seed}")
        assert mt("train", "--config", path, *settings)[0] == 0

    def compare(name, baseline):
        status, _, err = mt("evaluate", "--split", "valid", "--run", f"runs/{name}", "--against", f"runs/{baseline}")
        return status, err

    grown = sentences(200)[::-1] + [(f"new {one}", f"neu {two}") for one, two in sentences(100)]
    train("old", sentences(200), 1, seed=1)
    train("same", grown, 3, seed=1)
    train("other", grown, 5)
    assert compare("old", "same")[0] == 0, "what was held out stays held out"
    for pair in (("old", "other"), ("other", "old"), ("same", "other")):
        status, err = compare(*pair)
        assert status == 2 and f"runs/{pair[1]}: was trained on " in err and "the other system was not" in err
    for number, side in enumerate(("en", "de")):
        (tmp_path / f"t.{side}").write_text("".join(f"{pair[number].upper()}\n" for pair in sentences(40)), "utf-8")
    status, _, err = mt("evaluate", "--run", "runs/old", "--source", "t.en", "--reference", "t.de")
    assert status == 0 and "note: runs/old was trained on " in err and "of these 40 pairs" in err
    (tmp_path / "runs/other/training_pairs.bin").unlink()
    status, err = compare("old", "other")
    assert status == 0 and "runs/other keeps no record of its training pairs" in err
    (tmp_path / "runs/same/training_pairs.bin").write_bytes(b"12345678" * 9)
    status, err = compare("old", "same")
    assert status == 2 and "training_pairs.bin: is damaged" in err


def test_evaluation_pairs_that_the_parent_trained_on_are_counted(mt, config, tmp_path):
    train = ("train", "--set", "training.max_steps=2", "--config")
    assert mt(*train, config(sentences(200), valid={"fraction": 0.1, "seed": 1}), "--set", "name=parent")[0] == 0
    child = config(sentences(200), valid={"fraction": 0.1, "seed": 5})
    status, _, err = mt(*train, child, "--set", "name=child", "--set", "init.run=runs/parent")
    assert status == 0 and "note: runs/parent was trained on " in err and "pairs of valid, so scores on them" in err
    status, _, err = mt("evaluate", "--run", "runs/child", "--num-resamples", "2")
    assert status == 0 and "note: runs/child was trained on " in err, "what its parent learned, it has seen"


def test_evaluation_pairs_that_train_has_in_another_spelling_are_named(mt, config, tmp_path):
    pairs = sentences(200)
    for number, side in enumerate(("en", "de")):
        (tmp_path / f"test.{side}").write_text("".join(f"{pair[number]}\n" for pair in pairs[:20]), "utf-8")
    test = {"files": ["test.en", "test.de"]}
    shouted = [(source.upper(), f"{target[:-1]} !") for source, target in pairs[:20]]
    status, out, _ = mt("data", "check", "--config", config(pairs[20:] + shouted, test=test))
    assert status == 0 and "note: 20 of the 20 pairs of test are kept in train, too, apart from case" in out
    out = mt("data", "check", "--config", config(pairs[20:] + shouted[:2], test=test))[1]
    assert "are kept in train, too" not in out


def test_a_held_out_set_of_changed_text_is_scored_with_a_note(mt, config, tmp_path):
    path = config(sentences(200), valid={"fraction": 0.1, "seed": 1})
    assert mt("train", "--config", path, "--set", "training.max_steps=2")[0] == 0
    evaluate = ("evaluate", "--num-resamples", "2", "--split", "valid")
    assert "has changed since" not in mt(*evaluate)[2]
    config(sentences(200)[20:], valid={"fraction": 0.1, "seed": 1})
    status, _, err = mt(*evaluate)
    assert status == 0 and "note: corpus.train has changed since this run was trained" in err
