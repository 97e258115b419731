"""A model for two directions, from one config to scores of each."""

import json
import re
import shlex
from pathlib import Path

import pytest
from run_content import report_of, rows_of

from mt_cli import Translator
from mt_cli.config.loading import config_of_text
from mt_cli.reporting.report import format_summary
from mt_cli.run.train import train


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
training: {max_epochs: 25, batch_tokens: 600, learning_rate: 4.0e-3, warmup_steps: 20, num_threads: 1, device: cpu,
           validate_every_steps: 100}
decoding: {beam_size: 1, max_length: 10}
evaluation: {num_resamples: 10}
"""


def test_a_model_for_one_direction_knows_its_target_and_refuses_others(mt, trained):
    assert mt("translate", "--run", trained, "--to", "xx", "one")[0] == 0
    status, _, err = mt("translate", "--run", trained, "--to", "en", "one")
    assert status == 2 and "--to en" in err and "from en to xx only" in err


CHILD = """
name: NAME
corpus:
  source: SOURCE
  target: TARGET
  tag: to_target
  train: {files: [FOLDER/train.SOURCE, FOLDER/train.TARGET]}
  valid: {files: [FOLDER/valid.SOURCE, FOLDER/valid.TARGET]}
  filters: {overlap: false}
init: {run: runs/two, adapter_rank: RANK}
training: {max_steps: 3, batch_tokens: 600, learning_rate: 1.0e-4, schedule: constant, num_threads: 1, device: cpu,
           precision: fp32}
decoding: {beam_size: 1, max_length: 10}
evaluation: {num_resamples: 10}
"""


@pytest.fixture(scope="module")
def lineage(two_directions, tmp_path_factory):
    """A folder with models for both directions and for one, and a child of each direction; what each printed."""
    folder = tmp_path_factory.mktemp("lineage")
    one = CONFIG.replace("tag: to_target", "").replace("both_directions: true", "").replace("name: two", "name: one")
    texts = {"two": CONFIG, "one": one}
    for name, source, target, rank in (("forward", "en", "de", "null"), ("back", "de", "en", "2")):
        text = CHILD.replace("NAME", name).replace("RANK", rank).replace("runs/two", str(folder / "runs/two"))
        texts[name] = text.replace("SOURCE", source).replace("TARGET", target)
    printed = {}
    for name, text in texts.items():
        text = text.replace("FOLDER", str(two_directions))
        config = config_of_text(text, name)
        printed[name] = format_summary(train(config, folder / "runs"), Path("runs") / name)
    return folder, printed


@pytest.fixture
def mt_in(mt, lineage, monkeypatch):
    """`mt` in the folder of the lineage."""
    monkeypatch.chdir(lineage[0])
    return mt


def test_one_model_translates_in_both_directions_and_has_a_score_for_each(mt_in, lineage, two_directions):
    run, printed = lineage[0] / "runs/two", lineage[1]["two"]
    assert 'mt translate --run runs/two --to CODE "..."' in printed
    translate = ("translate", "--run", "runs/two")
    assert mt_in(*translate, "--to", "de", "one seven two") == (0, "eins sieben zwei\n", "")
    assert mt_in(*translate, "--to", "en", "eins sieben zwei")[1] == "one seven two\n"
    assert mt_in(*translate, "<2en> eins sieben zwei")[1] == "one seven two\n"
    inspected = mt_in("inspect", "--run", "runs/two", "--to", "en", "eins sieben zwei")
    assert inspected[1].startswith("one seven two\n") and "no target" not in inspected[2]
    assert mt_in(*translate, "--to", "fr", "one")[0] == mt_in(*translate, "--to", "de", "--tag", "<2de>", "one")[0] == 2
    status, out, err = mt_in(*translate, "one seven two")
    assert (status, out) == (0, "eins sieben zwei\n")
    assert "note: no target language is chosen; this is de, and --to chooses one of de, en" in err
    report = report_of(run)
    assert list(report["directions"]) == ["en-de", "de-en"]
    means = [sum(each[name]["score"] for each in report["directions"].values()) / 2 for name in ("bleu", "chrf")]
    assert [report["bleu"]["score"], report["chrf"]["score"]] == pytest.approx(means, abs=1e-3)
    rows = rows_of(run)
    last = next(row for row in reversed(rows) if "valid/chrf" in row)
    assert last["valid/chrf"] == pytest.approx((last["valid/chrf/en-de"] + last["valid/chrf/de-en"]) / 2, abs=1e-3)
    evaluate = ("evaluate", "--run", "runs/two")
    files = ("--source", two_directions / "valid.de", "--reference", two_directions / "valid.en")
    assert json.loads(mt_in(*evaluate, "--json")[1])["directions"] == report["directions"]
    _, text, err = mt_in(*evaluate)
    assert "  en-de " in text and "  de-en " in text and "no target language" not in err
    german = json.loads(mt_in(*evaluate, *files, "--to", "en", "--json")[1])
    assert german["chrf"]["score"] == report["directions"]["de-en"]["chrf"]["score"]
    assert "no target language" in mt_in(*evaluate, *files)[2]
    samples = (run / "samples.txt").read_text(encoding="utf-8")
    assert "<2de> " in samples and "<2en> " in samples


def test_models_for_one_and_for_several_directions_are_compared_in_the_direction_of_the_test(mt_in, two_directions):
    files = ("--source", two_directions / "valid.en", "--reference", two_directions / "valid.de")
    scores = {
        name: json.loads(mt_in("evaluate", "--run", f"runs/{name}", *files, "--to", "de", "--json")[1])["chrf"]["score"]
        for name in ("one", "two", "forward")
    }
    assert min(scores.values()) > 20
    for name, baseline in (("one", "two"), ("two", "one"), ("two", "forward"), ("forward", "two")):
        compare = ("evaluate", "--run", f"runs/{name}", "--against", f"runs/{baseline}", "--json", "--to", "de")
        for test in (files, ("--split", "valid")):
            status, out, err = mt_in(*compare, *test)
            result = json.loads(out)
            assert status == 0 and "note: no target" not in err, err
            assert (result["chrf"]["score"], result["against"]["chrf"]["score"]) == (scores[name], scores[baseline])
    status, _, err = mt_in("evaluate", "--run", "runs/two", "--against", "runs/one", "--split", "valid")
    assert status == 2 and "the languages must agree" in err


def test_one_direction_of_a_test_set_can_be_scored(mt_in):
    whole = json.loads(mt_in("evaluate", "--run", "runs/two", "--json")[1])
    part = json.loads(mt_in("evaluate", "--run", "runs/two", "--to", "en", "--json")[1])
    assert (part["split"], part["num_sentences"]) == ("valid.en", whole["num_sentences"] / 2)
    assert part["chrf"] == whole["directions"]["de-en"]["chrf"] and "directions" not in part
    assert mt_in("evaluate", "--run", "runs/two", "--to", "de", "--split", "none")[0] == 2
    score, (source, target) = ("score", "--run", "runs/two"), ("eins zwei", "one two")
    default, tagged = mt_in(*score, source, target), mt_in(*score, f"<2en> {source}", target)
    english = mt_in(*score, "--to", "en", source, target)
    assert default[0] == english[0] == 0 and default[1] != english[1] == tagged[1]
    assert "no target language is chosen" in default[2] and "note" not in english[2]


def test_each_tag_is_searched_with_its_length_penalty(mt_in):
    penalties = {"<2de>": 2.0, "<2en>": 0.25}
    for tag, penalty in penalties.items():
        translate = ("translate", "--run", "runs/two", "one two", "--tag", tag, "--json")
        beams = ("--beam-size", 3, "--set")
        by_tag = mt_in(*translate, *beams, f"decoding.length_penalties={json.dumps(penalties)}")[1]
        assert by_tag == mt_in(*translate, *beams, f"decoding.length_penalty={penalty}")[1]
        assert by_tag != mt_in(*translate, "--beam-size", 3)[1], "the score depends on the penalty"
    status, _, err = mt_in("translate", "--run", "runs/two", "one", "--set", "decoding.length_penalties={<2yy>: 1}")
    assert status == 2 and "<2yy>" in err and "<2de>, <2en>" in err


@pytest.mark.parametrize(("name", "source", "target"), [("forward", "en", "de"), ("back", "de", "en")])
def test_the_commands_that_training_prints_give_the_score_that_it_printed(
    lineage, two_directions, mt_in, name, source, target
):
    folder, printed = lineage
    valid = {side: two_directions / f"valid.{side}" for side in (source, target)}
    report = report_of(folder / f"runs/{name}")
    expected = (folder / f"runs/{name}/hypotheses/valid.txt").read_text(encoding="utf-8")
    references = valid[target].read_text(encoding="utf-8")
    assert report["chrf"]["score"] > 50 and expected != "\n" * 40
    commands = dict(re.findall(r"^(Evaluate|Translate): +mt (.*)$", printed[name], re.MULTILINE))
    evaluate = commands["Evaluate"].replace("--source FILE", f"--source {shlex.quote(str(valid[source]))}")
    evaluate = evaluate.replace("--reference FILE", f"--reference {shlex.quote(str(valid[target]))}")
    for direction in ((), ("--to", target)):
        found = json.loads(mt_in(*shlex.split(evaluate), "--precision", "fp32", "--json", *direction)[1])
        assert (found["chrf"]["score"], found["bleu"]["score"]) == (report["chrf"]["score"], report["bleu"]["score"])
    translate = [word for word in shlex.split(commands["Translate"]) if word != "..."]
    assert mt_in(*translate, "--input", valid[source], "--precision", "fp32")[1] == expected
    exported = folder / f"served-{name}"
    assert mt_in("export", "--run", f"runs/{name}", "--output", exported)[0] == 0
    served = ("--run", exported, "--engine", "ctranslate2")
    assert mt_in("translate", *served, "--input", valid[source])[1] == expected
    lines = valid[source].read_text(encoding="utf-8").splitlines()
    translator = Translator.load(folder / f"runs/{name}", "cpu", "fp32")
    assert translator.translate(lines) == expected.splitlines()
    assert mt_in("inspect", "--run", f"runs/{name}", lines[0])[1].startswith(expected.splitlines()[0] + "\n")
    tagged = [f"<2{target}> {line}" for line in lines]
    targets = references.splitlines()
    assert translator.score(lines, targets) == translator.score(tagged, targets)
    *tokens, weights = translator.attention(lines[0], targets[0])
    *own_tokens, own_weights = translator.attention(tagged[0], targets[0])
    assert tokens == own_tokens and (weights == own_weights).all()


def test_runs_with_other_tags_are_no_ensemble_in_either_order(mt_in):
    for names in (("two", "forward"), ("forward", "two")):
        runs = [word for name in names for word in ("--run", f"runs/{name}")]
        status, _, err = mt_in("translate", *runs, "one")
        assert status == 2 and "an ensemble needs equal tags" in err and "<2de>, <2en>" in err


def test_a_bundle_keeps_the_tag_of_a_sentence(lineage, mt_in):
    folder, _ = lineage
    assert mt_in("export", "--run", "runs/forward", "--format", "bundle", "--output", folder / "bundle")[0] == 0
    assert mt_in("import", folder / "bundle", "--output", "runs/again")[0] == 0
    translations = [mt_in("translate", "--run", f"runs/{name}", "one two six")[1] for name in ("forward", "again")]
    assert translations[0] == translations[1] != "\n"


@pytest.mark.parametrize("options", [("--split", "valid"), ("--split", "valid", "--to", "en")])
def test_a_run_compared_with_itself_differs_in_nothing(mt_in, options):
    run = ("evaluate", "--run", "runs/two", "--against", "runs/two", "--json", *options)
    status, out, err = mt_in(*run)
    assert status == 0, err
    found = json.loads(out)
    for name in ("bleu", "chrf", "ter", "cer"):
        assert found["against"][name]["score"] == found[name]["score"]
    directions = found["against"].get("directions", {})
    assert len(directions) == (0 if "--to" in options else 2)
    assert all(score["p_value"] == 1.0 for scores in directions.values() for score in scores.values())
    assert "difference +0.00" in mt_in(*(word for word in run if word != "--json"))[1]


def test_a_test_set_with_the_pairs_of_a_run_is_seen_through_the_tags_of_the_other(mt_in, lineage, two_directions):
    """The pairs of `two` have tags, those of the other run have none."""
    text = CONFIG.replace("tag: to_target", "filters: {overlap: false}").replace("FOLDER", str(two_directions))
    for old, new in {"both_directions: true": "", "temperature: 2": "", "name: two": "name: leak"}.items():
        text = text.replace(old, new)
    text = text.replace("/train.", "/valid.").replace("max_epochs: 25", "max_steps: 2")
    train(config_of_text(text, "leak"), lineage[0] / "runs")
    status, _, err = mt_in("evaluate", "--run", "runs/two", "--to", "de", "--against", "runs/leak", "--split", "valid")
    assert status == 2 and "runs/leak: was trained on 40 of these 40 pairs" in err


def test_a_model_with_tags_for_kinds_of_text_asks_for_one_and_compares_by_them(mt, two_directions, tmp_path):
    """Test and valid have both kinds, so no tag is the default."""
    sources = "[{files: [F/K.en, F/K.de], tag: <a>}, {files: [F/K.de, F/K.en], tag: <b>, languages: [en, de]}]"
    corpus = (
        f"{{source: en, target: de, train: {sources.replace('K', 'train')}, valid: {sources.replace('K', 'valid')}}}"
    )
    text = CONFIG[CONFIG.index("tokenizer:") :].replace("max_epochs: 25", "max_epochs: 6")
    text = f"name: kinds\ncorpus: {corpus.replace('F/', f'{two_directions}/')}\n{text}"
    text = text.replace("languages: [en, de]}", "filters: {wrong_language: false}}", 1)
    text = text.replace("languages: [en, de]}", "name: other}", 1)
    (tmp_path / "kinds.yaml").write_text(text, encoding="utf-8")
    status, _, err = mt("train", "--config", "kinds.yaml")
    assert status == 0 and "mt evaluate --run runs/kinds --tag TAG --source FILE" in err, err
    for command in (("translate", "one"), ("score", "one", "eins"), ("inspect", "one")):
        status, _, err = mt(*command)
        assert status == 2 and "this model needs a tag; choose one of <a>, <b> (--tag)" in err
        assert mt(*command, "--tag", "<a>")[0] == 0
    files = ("evaluate", "--source", two_directions / "valid.en", "--reference", two_directions / "valid.de")
    status, _, err = mt(*files)
    assert status == 2 and "this model needs a tag" in err and mt(*files, "--tag", "<a>")[0] == 0
    status, out, _ = mt("evaluate", "--against", "runs/kinds", "--json")
    found = json.loads(out)
    assert status == 0 and found["against"]["chrf"]["score"] == found["chrf"]["score"] > 20
