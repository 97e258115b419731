"""What `mt data check` finds and `mt data show` shows."""

import json
import random
import re
from functools import partial

import pytest
from corpora import sentences, write_config

from mt_cli.config.loading import load_config


@pytest.fixture
def config(tmp_path):
    """A function that writes a config with these training pairs and returns its path."""
    return partial(write_config, tmp_path)


def test_the_report_of_a_good_corpus_adds_up(mt, config):
    pairs = [*sentences(500), *sentences(30), ("", "leer"), ("same", "same"), ("valid 3 a", "neu")]
    path = config(pairs)
    status, out, err = mt("data", "check", "--config", path, "--json")
    assert status == 0, err
    report = json.loads(out)
    row = report["corpora"][0]
    assert (row["corpus"], row["num_read"], row["num_kept"]) == ("train", 533, 500)
    assert row["dropped"] == {"blank_source": 1, "identical": 1, "duplicates": 30, "overlap": 1}
    assert report["problems"] == []
    counts = report["tokens"]["train"]["source"]
    assert counts["tokens_per_sentence"] == pytest.approx(counts["num_tokens"] / 500, abs=0.01)
    status, out, _ = mt("data", "check", "--config", path)
    assert status == 0 and "1 pair of train contains a sentence of valid" in out


def test_pairs_that_contradict_a_glossary_are_named(mt, config, tmp_path):
    pairs = [(f"the drum {n} is red", f"die {'Trommel' if n % 3 else 'Walze'} {n} ist rot") for n in range(90)]
    pairs += [(f"a red {n} {{drum}}", f"ein Ding {n}, rot, {{drum}}") for n in range(9)]  # Braces are protected spans.
    path, glossary = config(pairs), tmp_path / "words.csv"
    glossary.write_text("English;German\nDrum;Trommel\nred;rot\n", encoding="utf-8")
    options = ("--terms", glossary, "--set", "corpus.protect=[braces]")
    status, out, err = mt("data", "check", "--config", path, *options)
    assert (status, "2 terms" in err) == (0, True)
    assert "189 times" in out and "30 times" in out
    assert "`Drum` is not `Trommel` in 30 of 90 places: " in out and "line 4" in out and "`red`" not in out
    glossary.write_text("fr;de\nun;ein\n", encoding="utf-8")
    assert mt("data", "check", "--config", path, "--terms", glossary)[0] == 2


@pytest.mark.parametrize("side", [0, 1])
def test_markers_in_place_of_verses_are_dropped_and_named(mt, config, side):
    pairs = [(3 * source, 3 * target) for source, target in sentences(300)]
    pairs[::15] = [tuple("<range>" if index == side else text for index, text in enumerate(row)) for row in pairs[::15]]
    pairs[7::25] = [(f"Yes, my {name}.", "Ja.") for name in "abcdefghijkl"]
    path = config(pairs)
    status, out, err = mt("data", "check", "--config", path, "--set", "corpus.filters.max_length_ratio=null", "--json")
    assert status == 0, err
    report = json.loads(out)
    assert report["corpora"][0]["dropped"] == {"markers": 20}
    assert any("`<range>` in 20" in note for note in report["notes"])


def write_tsv(folder, name, sources, targets):
    lines = (f"{source}\t{target}\n" for source, target in zip(sources, targets, strict=False))
    (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")


def slipped(pairs):
    english, german = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    del german[300]
    german.insert(800, "etwas anderes")
    return list(zip(english, german, strict=True))


def dutch(pairs):
    lines = ["der Hund und die Katze sind in dem Haus"] * 500 + ["de hond en de kat zijn in het huis"] * 500
    return [(f"the dog and the cat are in the house {n}.", f"{line} {n}.") for n, line in enumerate(lines)]


def swapped(pairs):
    return [*pairs[:500], *(pair[::-1] for pair in pairs[500:])]


def exchanged(pairs):
    return [pair[::-1] for pair in pairs]


PROBLEMS = {
    slipped: "lines 302 to 801: line N of the source seems to belong to line N - 1",
    swapped: r"lines 50\d to (?:99\d|1,000): the two languages seem to be swapped",
    exchanged: "lines 1 to 1,000: the two languages seem to be swapped in nearly all lines; exchange",
    dutch: "lines 501 to 1,000: the target looks like `nl`, not `de`",
}


@pytest.mark.parametrize("change", PROBLEMS)
def test_a_stretch_that_does_not_belong_is_a_problem(mt, config, change):
    path = config(change(sentences(1_000)), filters={"wrong_language": False})
    status, out, _ = mt("data", "check", "--config", path)
    assert status == 2 and re.search(f"PROBLEM in train: train.en, {PROBLEMS[change]}", out)
    if change is swapped:
        status, _, err = mt("train", "--config", path)
        assert status == 0 and re.search(f"PROBLEM in train: train.en, {PROBLEMS[change]}", err.splitlines()[-1])
        status, _, err = mt("init", "--files", "train.en", "train.de", "--name", "new")
        assert status == 0 and "PROBLEM in train" in err


@pytest.mark.parametrize("change", PROBLEMS)
def test_validation_sets_are_checked_as_training_sets_are(mt, config, tmp_path, change):
    pairs = sentences(1_500)
    path = config(pairs[1_000:], filters={"wrong_language": False})
    write_tsv(tmp_path, "valid", *zip(*change(pairs[:1_000]), strict=True))
    status, out, _ = mt("data", "check", "--config", path, "--set", "corpus.valid={file: valid.tsv}")
    assert status == 2 and re.search(f"PROBLEM in valid: valid.tsv, {PROBLEMS[change]}", out)


def clean_pairs(folder, name="train"):
    sides = [(folder / f"{name}.{code}").read_text(encoding="utf-8").splitlines() for code in ("en", "de")]
    return list(zip(*sides, strict=True))


@pytest.mark.parametrize("change", PROBLEMS)
def test_the_clean_text_has_no_problems_and_true_pairs(mt, config, tmp_path, change):
    pairs = sentences(1_000)
    path = config(change(pairs), filters={"wrong_language": False})
    original = (tmp_path / "train.de").read_bytes()
    status, _, err = mt("data", "check", "--config", path, "--write-clean", "clean")
    assert status == 0 and err.splitlines()[-1] == "Then:  mt train --config clean/checked.yaml", err
    status, out, _ = mt("data", "check", "--config", "clean/checked.yaml", "--json")
    report = json.loads(out)
    assert status == 0 and report["problems"] == []
    written = clean_pairs(tmp_path / "clean")
    assert report["corpora"][0]["num_kept"] == len(written) and report["corpora"][0]["dropped"] == {}
    if change is not dutch:
        assert {*written} <= {*pairs} and len(written) > (999 if change is exchanged else 980)
    (words,) = [line for line in err.splitlines() if line.startswith("  dropped: ")]
    dropped = sum(int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", words))
    assert dropped == 1_000 - len(written) and (tmp_path / "train.de").read_bytes() == original


def test_every_source_has_a_clean_copy_with_its_options(mt, config, tmp_path):
    rows = [*sentences(30), ("two\u2028lines", "zwei Zeilen"), ("", "leer"), ('"All" "b', "'s")]
    lines = (json.dumps({"en": source, "de": target}) for source, target in rows)
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    write_tsv(tmp_path, "more", *zip(*sentences(60)[25:], strict=True))
    train = [{"file": "pairs.jsonl", "weight": 2.0}, {"file": "more.tsv", "name": "back", "tag": "<bt>"}]
    path = config([("a", "b")], train=train, both_directions=True, tag="to_target", valid={"fraction": 0.1})
    status, _, err = mt("data", "check", "--config", path, "--write-clean", "clean")
    assert status == 0, err
    assert clean_pairs(tmp_path / "clean", "train.1")[-1] == ('"All" "b', "'s")
    before, after = (load_config(tmp_path / name).corpus for name in (path, "clean/checked.yaml"))
    options = [
        [(source.tag, source.weight, source.name, source.reverse) for source in corpus.train]
        for corpus in (before, after)
    ]
    assert options[0] == options[1] and len(options[1]) == 4 and after.valid == before.valid
    status, _, err = mt("data", "check", "--config", "c.yaml", "--write-clean", "clean")
    assert status == 2 and "new folder" in err


def test_pairs_are_shown_with_tokens_and_dropped_ones_with_filters(mt, config):
    path = config([*sentences(40), *sentences(40), ("same", "same"), ("x " * 300, "y " * 300)])
    status, out, _ = mt("data", "show", "--config", path, "-n", "2")
    assert status == 0 and out.splitlines()[0] == "train.en, line 1" and out.count("tokens") == 4 and "￭." in out
    out = mt("data", "show", "--config", path, "--dropped", "any", "-n", 7)[1]
    dropped = [line.rpartition("dropped: ")[2] for line in out.splitlines() if ", dropped: " in line]
    assert sorted(dropped) == [*["duplicates"] * 5, "identical", "max_tokens"]
    out = mt("data", "show", "--config", path, "--dropped", "identical")[1]
    assert out.splitlines()[:2] == ["train.en, line 81, dropped: identical", "  source  same"]
    status, _, err = mt("data", "show", "--config", path, "--dropped", "boredom")
    assert status == 2 and "boredom" in err


@pytest.fixture
def check(mt, tmp_path):
    """Checks corpora in TSV files, called as the files of `train`, `valid` and `test`; returns the output."""

    def run(languages, names, **tokenizer):
        sets = dict(zip(("train", "valid", "test"), ({"file": f"{name}.tsv"} for name in names), strict=False))
        corpus = {"source": languages[0], "target": languages[1], "valid": {"fraction": 0.1}} | sets
        (tmp_path / "t.yaml").write_text(json.dumps({"name": "t", "corpus": corpus, "tokenizer": tokenizer}))
        status, out, err = mt("data", "check", "--config", "t.yaml")
        assert status == 0, err
        return out

    return run


def random_words(number, letters, length=12, seed=1):
    generator = random.Random(seed)
    return ["".join(generator.choices(letters, k=length)) for _ in range(number)]


def random_lines(number, words, weights=None, seed=1):
    generator = random.Random(seed)
    return [" ".join(generator.choices(words, weights, k=8)) for _ in range(number)]


def test_spellings_that_differ_are_named_until_they_are_changed(check, tmp_path):
    syllables = [f"{consonant}{vowel}" for consonant in "gjkmnprst" for vowel in ("a", "ã", "ẽ", "e'")]
    targets = random_lines(400, random_words(4_000, syllables, 3))
    targets[::10] = [text.replace("'", "’") for text in targets[::10]]
    write_tsv(tmp_path, "train", [f"una casa {n}" for n in range(300)], targets[:300])
    held_out = [text.replace("ã", "â").replace("ẽ", "ê") for text in targets[300:]]
    write_tsv(tmp_path, "dev", [f"otra casa {n}" for n in range(100)], held_out)
    out = check(("es", "gn"), ("train", "dev"))
    assert "normalize: [apostrophes] would" in out and '{"ã": "â", "ẽ": "ê"} would' in out
    assert "ã, ẽ (U+0303 tilde), mostly written â, ê (U+0302 circumflex accent)" in out
    out = check(("es", "gn"), ("train", "dev"), letters={"ã": "â", "ẽ": "ê"}, normalize=["apostrophes"])
    assert "normalize makes them equal (apostrophes)" in out and "tokenizer.letters writes" in out


def test_an_evaluation_set_of_another_kind_is_named(check, tmp_path):
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "bdfgklmnprst"]
    common = [1 / (rank + 1) for rank in range(len(words))]
    half = len(words) // 2
    unlike = [*(f"x{word}" for word in words[:half]), *words[half:]]
    for seed, (name, vocabulary) in enumerate({"train": words, "same": words, "other": unlike}.items()):
        lines = random_lines(500 if name == "train" else 60, vocabulary, common, seed)
        write_tsv(tmp_path, name, [f"{line}." for line in lines], [line[::-1] for line in lines])
    out = check(("ay", "gn"), ("train", "same", "other"))
    assert "test looks unlike train in ay" in out and "test looks unlike train in gn" in out
    assert "valid looks unlike" not in out
