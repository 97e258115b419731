import json
import random
import re
import shutil

import pytest
import yaml
from texts import TEXTS

from mt_cli.config.loading import load_config
from mt_cli.config.sections import DecodingConfig
from mt_cli.evaluation.texts import Scorer
from mt_cli.features.tuning import at_end, tuning


@pytest.fixture
def train(mt, trained, tmp_path, monkeypatch):
    """Runs `mt train` for the trained run with options. The smallest penalty is chosen; `choose` has its own tests."""
    monkeypatch.setattr(at_end, "_PENALTIES", (0.25,))
    monkeypatch.setattr(at_end, "_NGRAMS", ())
    monkeypatch.setattr(at_end, "_FEWEST_PAIRS", 1)
    monkeypatch.setattr(
        tuning, "choose", lambda trials, margin, longest: min(trials, key=lambda each: each.length_penalty)
    )
    shutil.copytree(trained, tmp_path / "runs" / "tiny")
    (tmp_path / "runs/tiny/report.json").unlink()
    shutil.copy(trained / "config.yaml", tmp_path / "tiny.yaml")

    def run(*settings):
        settings = ["training.tune_decoding=true", *settings]
        return mt("train", "--config", "tiny.yaml", *(part for each in settings for part in ("--set", each)))

    return run


def penalty_of(run):
    return yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["decoding"]["length_penalty"]


def test_the_penalty_chosen_on_valid_is_that_of_the_run_and_of_its_report(train, mt, tmp_path):
    run = tmp_path / "runs/tiny"
    status, _, err = train()
    assert status == 0, err
    assert penalty_of(run) == 0.25
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    valid = json.loads(mt("evaluate", "--run", run, "--split", "valid", "--json")[1])
    assert f"decoding.length_penalty 0.25 (BLEU of valid: {valid['bleu']['score']:.2f} with 0.25, " in err
    assert "Choosing options of the search by " in err
    test = json.loads(mt("evaluate", "--run", run, "--split", report["split"], "--json")[1])
    assert test["bleu"] == report["bleu"]


def test_a_tuned_penalty_stays_when_the_same_command_resumes_the_run(train, tmp_path):
    assert train()[0] == 0
    status, _, err = train()
    assert status == 0 and "nothing is left to do" in err and "length_penalty was" not in err
    assert penalty_of(tmp_path / "runs/tiny") == 0.25


def test_the_penalty_of_the_config_is_tried_and_one_that_is_not_used_is_named(train, tmp_path):
    status, _, err = train("decoding.length_penalty=0.125")
    assert status == 0 and "decoding.length_penalty 0.125 (BLEU of valid: " in err and " with 0.25)" in err
    status, _, err = train("decoding.length_penalty=0.5")
    assert status == 0 and "note: decoding.length_penalty is 0.125, as training.tune_decoding chose" in err
    assert penalty_of(tmp_path / "runs/tiny") == 0.125
    status, _, err = train("decoding.length_penalty=0.5", "training.tune_decoding=false")
    assert status == 0 and penalty_of(tmp_path / "runs/tiny") == 0.5


@pytest.mark.parametrize("option", ["decoding.beam_size=1", "decoding.sample=true"])
def test_without_a_beam_there_is_nothing_to_tune(train, tmp_path, option):
    status, _, err = train(option)
    assert status == 0 and "of valid: " not in err
    assert penalty_of(tmp_path / "runs/tiny") == 1.0


def test_penalties_with_translations_that_are_too_long_are_named(train, monkeypatch):
    monkeypatch.setattr(at_end, "_LONGEST", 0.5)
    status, _, err = train()
    assert status == 0 and "translations too long, compared with the references: " in err and " with 0.25, " in err


def test_with_several_directions_each_tag_has_its_penalty(mt, tiny_config, tmp_path, monkeypatch):
    choices = iter([1.5, 4.0, 2.0])  # For all pairs, then for the tags in their order.

    def choose(trials, margin, longest):
        penalty = next(choices)
        return next(each for each in trials if each.length_penalty == penalty)

    monkeypatch.setattr(tuning, "choose", choose)
    monkeypatch.setattr(tuning, "fitting", lambda trials, longest: [min(trials, key=lambda each: each.score)])
    monkeypatch.setattr(at_end, "_has_learned", lambda translator, compared: True)
    monkeypatch.setattr(at_end, "_FEWEST_PAIRS", 1)
    monkeypatch.setattr(tuning, "_FEWEST_PAIRS_OF_TAG", 1)
    options = ["tag=to_target", "both_directions=true"]
    settings = [*(f"corpus.{each}" for each in options), "training.tune_decoding=true", "training.max_epochs=1"]
    command = ("train", "--config", tiny_config, *(part for each in settings for part in ("--set", each)))
    status, _, err = mt(*command)
    assert status == 0, err
    assert "\ndecoding.length_penalty 1.5 (BLEU of valid: " in err and "each tag with its own" in err
    assert "\n  <2en>  4 (" in err and "\n  <2xx>  2 (" in err
    path = tmp_path / "runs/tiny/config.yaml"
    decoding = yaml.safe_load(path.read_text(encoding="utf-8"))["decoding"]
    penalties = {"<2en>": 4.0, "<2xx>": 2.0}
    assert (decoding["length_penalty"], decoding["length_penalties"]) == (1.5, penalties)
    for tag, penalty in penalties.items():
        translate = ("translate", "one two three.", "--tag", tag, "--json")
        own = mt(*translate)[1]
        assert own == mt(*translate, "--length-penalty", penalty)[1]
        assert own != mt(*translate, "--length-penalty", 1)[1]  # The score depends on the penalty.
    status, _, err = mt("translate", "one two three.", "--set", "decoding.length_penalties={<2yy>: 1}")
    assert status == 2 and "decoding.length_penalties: '<2yy>' is no tag of this model; it knows <2xx>, <2en>" in err
    status, _, err = mt(*command)
    assert status == 0 and "nothing is left to do" in err
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["decoding"] == decoding
    status, _, err = mt(*command, "--set", "decoding.length_penalties={<2xx>: 1}")
    assert status == 0 and "note: decoding.length_penalties is {'<2en>': 4.0, '<2xx>': 2.0}, as training" in err
    status, _, err = mt(*command, "--set", "decoding.length_penalties={<2yy>: 1}")
    assert status == 2 and "decoding.length_penalties: '<2yy>' is no tag of the corpus; it has <2xx>, <2en>" in err


def test_a_limit_of_repetitions_is_tried_and_kept_if_it_is_chosen(train, tmp_path, monkeypatch):
    monkeypatch.setattr(at_end, "_NGRAMS", (None, 3))
    monkeypatch.setattr(tuning, "choose", lambda trials, margin, longest: trials[-1])
    status, _, err = train()
    assert status == 0 and "decoding.length_penalty 1, no_repeat_ngram 3 (BLEU of valid: " in err
    assert "\n  without no_repeat_ngram: " in err
    run = tmp_path / "runs/tiny"
    decoding = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["decoding"]
    assert (decoding["no_repeat_ngram"], decoding["length_penalty"]) == (3, 1.0)
    assert train()[0] == 0
    assert yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["decoding"] == decoding
    assert load_config(run / "config.yaml").greedy_decoding.no_repeat_ngram is None, "validations stay as they were"


def test_a_finished_run_is_not_said_to_be_tuned(train, tmp_path):
    assert train("training.tune_decoding=false")[0] == 0
    status, _, err = train("decoding.length_penalty=2")
    assert status == 0 and "now: mt tune-decoding --run " in err and "as training.tune_decoding chose" not in err
    assert penalty_of(tmp_path / "runs/tiny") == 2.0


def test_a_small_validation_set_chooses_nothing(train, tmp_path, monkeypatch):
    monkeypatch.setattr(at_end, "_FEWEST_PAIRS", 1000)
    status, _, err = train()
    assert status == 0 and re.search("note: valid has [34]. pairs, too few to tune the search by", err)
    assert penalty_of(tmp_path / "runs/tiny") == 1.0


@pytest.fixture
def calls(monkeypatch):
    """The pairs and the margin of each call of `tune`."""
    found = []

    def tune(translator, compared, settings, margin, *limits):
        found.append((len(compared.pairs), margin))
        return tuning.tune(translator, compared, settings, margin, *limits)

    monkeypatch.setattr(at_end, "tune", tune)
    return found


def test_of_long_sentences_fewer_are_translated(train, calls, tmp_path, monkeypatch):
    assert train()[0] == 0
    monkeypatch.setattr(at_end, "_PAIRS", 40)
    monkeypatch.setattr(at_end, "_TOKENS_OF_SENTENCE", 1)
    (tmp_path / "runs/tiny/report.json").unlink()
    assert train()[0] == 0
    (all_pairs, _), (some, _) = calls
    assert all_pairs > 30 and 1 < some < 20


def test_a_smaller_gain_of_chrf_is_taken_than_of_bleu(train, calls, tmp_path):
    assert train()[0] == 0
    (tmp_path / "runs/tiny/report.json").unlink()
    assert train("training.best_metric=chrf")[0] == 0
    (_, of_bleu), (_, of_chrf) = calls
    assert of_chrf < of_bleu


class Saying:
    """Translates sources into references of its choice."""

    decoding = DecodingConfig()

    def __init__(self, say):
        self.say = say

    def with_decoding(self, decoding):
        assert decoding.beam_size == 1
        return self

    def with_callback(self, on_done):
        return self

    @property
    def of_corpora(self):
        return self

    def translate(self, sources):
        return list(map(self.say, sources))


@pytest.mark.parametrize("language", ["eng_Latn", "zho_Hans", "amh_Ethi", "tha_Thai"])
def test_a_model_has_learned_nothing_if_its_translations_do_not_depend_on_their_sources(language):
    units = list(TEXTS[language]) if language in ("zho_Hans", "tha_Thai") else TEXTS[language].split()
    glue, rng = "" if language in ("zho_Hans", "tha_Thai") else " ", random.Random(1)
    references = [glue.join(rng.choices(units, k=9)) for _ in range(100)]
    pairs = [(str(number), reference) for number, reference in enumerate(references)]
    compared = tuning.TuningSet(pairs, (), Scorer.of(language), "chrf")

    def half(text):
        return text[: len(text) // 3]

    says = {
        "the same": (lambda source: references[0], False),
        "a loop": (lambda source: "de de de de de de", False),
        "nothing": (lambda source: "", False),
        "a third": (lambda source: half(references[int(source)]), True),
        "all": (lambda source: references[int(source)], True),
    }
    found = {name: at_end._has_learned(Saying(say), compared) for name, (say, _) in says.items()}
    assert found == {name: expected for name, (_, expected) in says.items()}


def test_a_model_that_has_learned_nothing_is_not_tuned(train, tmp_path, monkeypatch):
    monkeypatch.setattr(at_end, "_LEAST_GAIN", 101.0)
    monkeypatch.setattr(at_end, "_LEARNED", 101.0)
    status, _, err = train()
    assert status == 0 and "the model has learned nothing yet" in err and "Choosing options" not in err
    assert penalty_of(tmp_path / "runs/tiny") == 1.0


def test_tuning_that_runs_out_of_time_says_so(train, tmp_path, monkeypatch):
    monkeypatch.setattr(at_end, "_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(at_end, "_SHARE_OF_TIME", 0.0)
    status, _, err = train()
    assert status == 0 and "too short to try one setting" in err and "mt tune-decoding --run " in err
    assert penalty_of(tmp_path / "runs/tiny") == 1.0
    tune = tuning.tune

    def tune_two(translator, compared, settings, margin, longest, max_seconds):
        return tune(translator, compared, settings[:1], margin, longest) | {"num_settings": len(settings)}

    monkeypatch.setattr(at_end, "tune", tune_two)
    (tmp_path / "runs/tiny/report.json").unlink()
    status, _, err = train()
    assert status == 0 and "the time was enough for 1 of 2 settings, so the choice depends on the speed" in err
