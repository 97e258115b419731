"""A model for two directions, from one config to scores of each."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from run_content import report_of, rows_of

DIGITS = {
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
}


def lines_of(first, last):
    """Numbers from `first` to before `last`, digit by digit, by language."""
    return {
        language: [" ".join(words[int(digit)] for digit in str(number)) for number in range(first, last)]
        for language, words in DIGITS.items()
    }


@pytest.fixture(scope="session")
def two_directions(once):
    """A folder with numbers in two languages."""

    def make(folder):
        for name, first, last in (("train", 100, 700), ("valid", 700, 740)):
            for language, lines in lines_of(first, last).items():
                (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    return once("two_directions", make)


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
training: {max_epochs: 25, batch_tokens: 600, learning_rate: 4.0e-3, warmup_steps: 20, num_threads: 1, device: cpu,
           validate_every_steps: 100}
decoding: {beam_size: 1, max_length_ratio: 0.1}
"""


CHILD = """
name: child
corpus:
  source: de
  target: en
  tag: to_target
  train: {files: [FOLDER/train.de, FOLDER/train.en]}
  valid: {files: [FOLDER/valid.de, FOLDER/valid.en]}
  filters: {overlap: false}
init: {run: RUNS/two, adapter_rank: 2}
training: {max_steps: 3, batch_tokens: 600, learning_rate: 1.0e-4, schedule: constant, num_threads: 1, device: cpu,
           precision: fp32}
decoding: {beam_size: 1, max_length_ratio: 0.1}
"""


@pytest.fixture(scope="session")
def lineage(two_directions, one_thread, once):
    """A folder with models for both directions and for one, a child for one direction, and what each printed."""

    def make(folder):
        from mt_cli.config.loading import config_of_text
        from mt_cli.run.report import format_summary
        from mt_cli.run.train import train

        texts = {"two": CONFIG, "one": CONFIG.replace("tag: to_target", "").replace("both_directions: true", "")}
        texts["one"] = texts["one"].replace("name: two", "name: one").replace("max_epochs: 25", "max_epochs: 3")
        texts["child"] = CHILD.replace("RUNS", str(folder / "runs"))
        for name, text in texts.items():
            config = config_of_text(text.replace("FOLDER", str(two_directions)), name)
            printed = format_summary(train(config, folder / "runs"), Path("runs") / name)
            (folder / f"{name}.printed").write_text(printed, encoding="utf-8")

    return once("lineage", make)


@pytest.fixture
def mt_in(mt, lineage, tmp_path):
    """`mt` in a folder with a copy of the lineage."""
    shutil.copytree(lineage / "runs", tmp_path / "runs")
    return mt


def test_one_model_translates_and_is_scored_in_both_directions(mt_in, lineage, two_directions):
    assert "--to CODE" in (lineage / "two.printed").read_text(encoding="utf-8")
    translate, german, english = ("translate", "--run", "runs/two"), "eins sieben zwei", "one seven two"
    assert mt_in(*translate, "--to", "de", english) == (0, f"{german}\n", "")
    assert mt_in(*translate, "--to", "en", german)[1] == mt_in(*translate, f"<2en> {german}")[1] == f"{english}\n"
    assert mt_in("inspect", "--run", "runs/two", "--to", "en", german)[1].startswith(f"{english}\n")
    assert mt_in(*translate, "--to", "fr", "one")[0] == 2
    assert mt_in(*translate, "--to", "<2de>", english)[1] == f"{german}\n"
    status, out, err = mt_in(*translate, english)
    assert (status, out) == (0, f"{german}\n") and "--to chooses one of de, en" in err
    report = report_of(Path("runs/two"))
    assert list(report["directions"]) == ["en-de", "de-en"]
    means = [sum(each[name]["score"] for each in report["directions"].values()) / 2 for name in ("bleu", "chrf")]
    assert [report["bleu"]["score"], report["chrf"]["score"]] == pytest.approx(means, abs=1e-3)
    last = next(row for row in reversed(rows_of(Path("runs/two"))) if "valid/chrf" in row)
    assert last["valid/chrf"] == pytest.approx((last["valid/chrf/en-de"] + last["valid/chrf/de-en"]) / 2, abs=1e-3)
    evaluate = ("evaluate", "--run", "runs/two", "--json")
    assert json.loads(mt_in(*evaluate)[1])["directions"] == report["directions"]
    files = ("--source", two_directions / "valid.de", "--reference", two_directions / "valid.en")
    expected = report["directions"]["de-en"]["chrf"]
    for options in (files, ()):
        part = json.loads(mt_in(*evaluate, *options, "--to", "en")[1])
        assert part["chrf"] == expected and "directions" not in part
    assert "no target language" in mt_in(*evaluate, *files)[2]
    assert mt_in(*evaluate, "--to", "de", "--split", "none")[0] == 2
    score = ("score", "--run", "runs/two")
    assert mt_in(*score, "--to", "en", german, english)[1] == mt_in(*score, f"<2en> {german}", english)[1]


def test_a_comparison_is_in_the_direction_of_the_test(mt_in, two_directions):
    files = ("--source", two_directions / "valid.en", "--reference", two_directions / "valid.de")
    scores = {
        name: json.loads(mt_in("evaluate", "--run", f"runs/{name}", *files, "--to", "de", "--json")[1])["chrf"]["score"]
        for name in ("one", "two")
    }
    for (name, baseline), test in ((("one", "two"), files), (("two", "one"), ("--split", "valid"))):
        compare = ("evaluate", "--run", f"runs/{name}", "--against", f"runs/{baseline}", "--json", "--to", "de")
        status, out, err = mt_in(*compare, *test)
        result = json.loads(out)
        assert status == 0 and "note: no target" not in err, err
        assert (result["chrf"]["score"], result["against"]["chrf"]["score"]) == (scores[name], scores[baseline])
    reverse = ("--source", two_directions / "valid.de", "--reference", two_directions / "valid.en", "--to", "en")
    assert mt_in("evaluate", "--run", "runs/two", "--against", "runs/child", *reverse)[0] == 0
    status, _, err = mt_in("evaluate", "--run", "runs/two", "--against", "runs/one", "--split", "valid")
    assert status == 2 and "the languages must agree" in err


def test_the_printed_commands_give_the_printed_score(lineage, two_directions, mt_in):
    from mt_cli import Translator

    valid, run = {side: two_directions / f"valid.{side}" for side in ("de", "en")}, Path("runs/child")
    report, expected = report_of(run), (run / "hypotheses/valid.txt").read_text(encoding="utf-8")
    printed = (lineage / "child.printed").read_text(encoding="utf-8")
    commands = dict(re.findall(r"^(Evaluate|Translate): +mt (.*)$", printed, re.MULTILINE))
    evaluate = commands["Evaluate"].replace("--source FILE", f"--source {shlex.quote(str(valid['de']))}")
    evaluate = evaluate.replace("--reference FILE", f"--reference {shlex.quote(str(valid['en']))}")
    for direction in ((), ("--to", "en")):
        found = json.loads(mt_in(*shlex.split(evaluate), "--precision", "fp32", "--json", *direction)[1])
        assert (found["chrf"]["score"], found["bleu"]["score"]) == (report["chrf"]["score"], report["bleu"]["score"])
    translate = [word for word in shlex.split(commands["Translate"]) if word != "..."]
    assert mt_in(*translate, "--input", valid["de"], "--precision", "fp32")[1] == expected
    lines, targets = (valid[side].read_text(encoding="utf-8").splitlines() for side in ("de", "en"))
    translator = Translator.load(run, "cpu", "fp32")
    assert translator.translate(lines) == expected.splitlines()
    tagged = [f"<2en> {line}" for line in lines]
    assert translator.score(lines, targets) == translator.score(tagged, targets)
    assert mt_in("export", "--run", run, "--format", "bundle", "--output", "bundle")[0] == 0
    assert mt_in("import", "bundle", "--output", "runs/again")[0] == 0
    assert Translator.load("runs/again", "cpu", "fp32").translate(lines) == expected.splitlines()


def test_a_model_for_one_direction_refuses_others(mt_in, trained):
    assert mt_in("translate", "--run", trained, "--to", "xx", "one")[0] == 0
    status, _, err = mt_in("translate", "--run", trained, "--to", "en", "one")
    assert status == 2 and "--to en" in err and "from en to xx only" in err
    for names in (("two", "child"), ("child", "two")):
        runs = [word for name in names for word in ("--run", f"runs/{name}")]
        assert mt_in("translate", *runs, "one")[0] == 2, "an ensemble needs equal directions"


def test_a_model_with_kinds_of_text_asks_for_a_tag(mt, two_directions, tmp_path):
    """Test and valid have both kinds, so no tag is the default."""
    sources = "[{files: [F/K.en, F/K.de], tag: <a>}, {files: [F/K.de, F/K.en], tag: <b>, EXTRA}]".replace(
        "F/", f"{two_directions}/"
    )
    train = sources.replace("K", "train").replace("EXTRA", "filters: {wrong_language: false}")
    valid = sources.replace("K", "valid").replace("EXTRA", "name: other")
    corpus = f"{{source: en, target: de, train: {train}, valid: {valid}}}"
    text = CONFIG[CONFIG.index("tokenizer:") :].replace("max_epochs: 25", "max_steps: 2")
    (tmp_path / "kinds.yaml").write_text(f"name: kinds\ncorpus: {corpus}\n{text}", encoding="utf-8")
    status, _, err = mt("train", "--config", "kinds.yaml")
    assert status == 0 and "--to TAG" in err, err
    files = ("--source", two_directions / "valid.en", "--reference", two_directions / "valid.de")
    for command in (("translate", "one"), ("score", "one", "eins"), ("inspect", "one"), ("evaluate", *files)):
        status, _, err = mt(*command)
        assert status == 2 and "one of <a>, <b> (--to)" in err
        assert mt(*command, "--to", "<a>")[0] == 0
    status, out, _ = mt("evaluate", "--against", "runs/kinds", "--json")
    found = json.loads(out)
    assert status == 0 and found["against"]["chrf"]["score"] == found["chrf"]["score"]


def test_one_worse_direction_keeps_corrections_from_being_learned(mt_in, tmp_path, monkeypatch):
    from mt_cli.advice import correction_check
    from mt_cli.corpus.corrections import Correction, append_corrections
    from mt_cli.run import learn

    monkeypatch.setattr(correction_check, "_are_unrelated", lambda items, *_: [False] * len(items))
    monkeypatch.setattr(learn, "_RATE_BY_WIDTH", 0.06)
    monkeypatch.setattr(learn, "_LEAST_SHARE", 1.0)
    numbers, next_word = lines_of(100, 160), dict(zip(DIGITS["en"], [*DIGITS["en"][1:], "zero"], strict=True))
    wrong = [" ".join(map(next_word.__getitem__, line.split())) for line in numbers["en"]]
    corrections = [Correction.of(*pair, "?", ("de", "en"), "two") for pair in zip(numbers["de"], wrong, strict=True)]
    append_corrections(tmp_path / "wrong.jsonl", corrections)
    status, out, err = mt_in("learn", "--run", "runs/two", "wrong.jsonl")
    assert (status, out) == (1, "") and "valid de-en" in err.splitlines()[-1] and not Path("runs/two-learned").exists()
    changes = learn.record_of(Path("runs/.learning/two-learned")).changes
    assert [changes[f"valid {direction}"].has_fallen for direction in ("en-de", "de-en")] == [False, True], err
