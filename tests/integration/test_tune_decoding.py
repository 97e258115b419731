import json
import shutil

import pytest
import yaml

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.loading import load_config
from mt_cli.run.train import train
from mt_cli.translation.translator import Translator

GRID = ("--beam-sizes", "1,3", "--length-penalties", "0,1")


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "runs" / "tiny")
    return tmp_path / "runs" / "tiny"


def tune(mt, run, *options):
    status, out, err = mt("tune-decoding", "--run", run, "--precision", "fp32", "--json", *options)
    assert status == 0, err
    return json.loads(out), err


def test_each_score_of_the_table_is_that_of_mt_evaluate(mt, run):
    found, _ = tune(mt, run, *GRID, "--dry-run")
    settings = [(each["beam_size"], each["length_penalty"]) for each in found["trials"]]
    assert settings == [(1, 0.0), (3, 0.0), (3, 1.0)]
    for each in found["trials"][1:3]:
        options = "--beam-size", each["beam_size"], "--length-penalty", each["length_penalty"]
        status, out, _ = mt("evaluate", "--run", run, "--split", "valid", "--precision", "fp32", *options, "--json")
        assert status == 0
        assert json.loads(out)["bleu"].items() >= {"score": each["score"], "signature": found["signature"]}.items()


def test_the_choice_is_written_for_mt_translate_and_resumption(mt, run):
    sentence, options = "one two.", ("--run", run, "--precision", "fp32", "--json")
    expected = mt("translate", sentence, *options, "--beam-size", "3", "--length-penalty", "0.25")[1]
    old = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    found, err = tune(mt, run, "--beam-sizes", "3", "--length-penalties", "0.25")
    assert found["is_written"] and "decoding.beam_size was 4, now 3" in err
    old["decoding"] |= {"beam_size": 3, "length_penalty": 0.25}
    assert yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8")) == old
    assert mt("translate", sentence, *options)[1] == expected
    report = train(load_config(run / "config.yaml"), run.parent)
    assert report.best_step == json.loads((run / "report.json").read_text(encoding="utf-8"))["best_step"]


def test_greedy_search_keeps_the_penalty_and_chooses_repetitions(mt, run):
    options = ("--beam-sizes", "2", "--length-penalties", "1", "--no-repeat-ngrams")
    assert tune(mt, run, *options, "3")[0]["chosen"]["no_repeat_ngram"] == 3
    found, _ = tune(mt, run, *options, "off,3", "--margin", "100")
    assert [each["no_repeat_ngram"] for each in found["trials"]] == [None, 3]
    assert found["chosen"]["no_repeat_ngram"] is None
    found, _ = tune(mt, run, "--beam-sizes", "1,2", "--length-penalties", "0.25,1.75", "--margin", "100")
    assert (found["chosen"]["beam_size"], found["chosen"]["length_penalty"]) == (1, None)
    assert Translator.load(run).decoding.length_penalty == 1.0


def test_nothing_is_written_while_the_run_is_trained(mt, run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    with RunDirectory(run).locked():
        status, out, err = mt("tune-decoding", "--run", run, *GRID)
        assert (status, out) == (2, "") and "trains this run" in err
        dry, err = tune(mt, run, *GRID, "--dry-run")
        assert not dry["is_written"] and "Nothing was written" in err
    assert {path: path.read_bytes() for path in before} == before
    assert tune(mt, run, *GRID)[0]["chosen"] == dry["chosen"]


@pytest.mark.parametrize("options", ["--beam-sizes 1,x", "--no-repeat-ngrams none,3", "--margin -1"])
def test_wrong_options_are_named_and_change_nothing(mt, run, options):
    before = (run / "config.yaml").read_bytes()
    status, out, err = mt("tune-decoding", "--run", run, *options.split())
    assert (status, out) == (2, "") and options.split()[0] in err
    assert (run / "config.yaml").read_bytes() == before
