"""Learning from corrections: accepted, refused, nothing new, stopped on the way."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from mt_cli.checkpoint.checkpoint import Checkpoint
from mt_cli.checkpoint.directory import RunDirectory, newest_run
from mt_cli.corpus.corrections import Correction
from mt_cli.run import learn
from mt_cli.run.learn import is_held_out, record_of


def write(path, pairs, languages=("en", "xx")):
    items = [
        Correction(source=s, target=t, draft="?", source_language=languages[0], target_language=languages[1])
        for s, t in pairs
    ]
    path.write_text("".join(item.model_dump_json() + "\n" for item in items), encoding="utf-8")


@pytest.fixture
def run(trained, tmp_path, monkeypatch):
    """A copy of a run that writes words in capitals, in `runs/tiny`; it knows `valid` by heart, so it learns slowly."""
    monkeypatch.setattr(learn, "_RATE_BY_WIDTH", 1e-3)
    shutil.copytree(trained, tmp_path / "runs/tiny")
    return tmp_path / "runs/tiny"


@pytest.fixture
def corrections(corpus, tmp_path):
    """Thirty sentences that are in no corpus, with words in another order."""
    sides = [(corpus / f"{name}.en").read_text(encoding="utf-8").splitlines() for name in ("train", "test")]
    known = {*sides[0], *sides[1]}
    lines = (" ".join(reversed(line[:-1].split())) + "." for line in sides[0])
    pairs = [(line, line.upper()) for line in dict.fromkeys(lines) if line not in known and len(line.split()) > 2][:30]
    write(tmp_path / "corrections.jsonl", pairs)
    return pairs


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_corrections_make_a_run_that_is_replaced_as_they_grow(run, corrections, mt, tmp_path):
    before = files_of(run)
    child, command = tmp_path / "runs/tiny-learned", ("learn", "--run", "runs/tiny", "corrections.jsonl")
    status, out, err = mt(*command)
    assert (status, out, len(err.splitlines()) <= 10) == (0, "runs/tiny-learned\n", True), err
    record = record_of(child)
    assert 0 < record.changes["learned"].num_sentences <= sum(not is_held_out(source) for source, _ in corrections)
    assert {*record.changes} == {"learned", "held out", "valid"} and record.is_accepted
    assert files_of(run) == before and newest_run() == child.relative_to(tmp_path)
    assert mt("evaluate", "--run", child, "--split", "valid")[0] == 0
    finished = files_of(child)
    for unchanged in (command, ("learn", "corrections.jsonl")):  # The newest run is the child.
        status, out, err = mt(*unchanged)
        assert (status, out, "Nothing is new" in err) == (0, "runs/tiny-learned\n", True), err
    assert files_of(child) == finished
    write(tmp_path / "corrections.jsonl", [*corrections, ("one two one two five.", "ONE TWO ONE TWO FIVE.")])
    status, _, err = mt(*command)
    assert status == 0, err
    parents = json.loads((child / "report.json").read_text(encoding="utf-8"))["parents"]
    assert [parent["run"] for parent in parents] == ["tiny"] and record_of(child).digest != record.digest
    assert not [*(tmp_path / "runs").glob(".learning/*")]


@pytest.mark.parametrize(
    ("old", "new"), [("beam_size: 4", "beam_size: 3"), ("seed: 1", "seed: 2"), ("weight: null", "weight: 2.0")]
)
def test_a_child_is_made_anew_with_other_options(run, corrections, mt, tmp_path, old, new):
    def digest():
        learner = learn._Learner(run, tmp_path / "trial", None, learn.current_corrections([Path("corrections.jsonl")]))
        return learner.digest

    before, config = digest(), run / "config.yaml"
    assert digest() == before
    text = config.read_text(encoding="utf-8")
    assert old in text
    config.write_text(text.replace(old, new, 1), encoding="utf-8")
    assert digest() != before


def test_a_worse_run_is_not_used(run, corrections, mt, tmp_path, monkeypatch):
    monkeypatch.setattr(learn, "_RATE_BY_WIDTH", 300.0)
    status, out, err = mt("learn", "--run", "runs/tiny", "corrections.jsonl")
    assert (status, out) == (1, "") and "not accepted" in err, err
    assert newest_run() == run.relative_to(tmp_path) and not (tmp_path / "runs/tiny-learned").exists()


def test_a_run_that_forgets_is_replaced_by_a_mean(run, corrections, mt, tmp_path, monkeypatch):
    command, trial = ("learn", "--run", "runs/tiny", "corrections.jsonl"), tmp_path / "runs/.learning/tiny-learned"
    halve, trained = learn._Learner._halve, []

    def halve_and_stop(*arguments):
        trained.append(Checkpoint(RunDirectory(trial).best_path).weights())
        halve(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(learn.Learned, "fallen", property(lambda record: ["valid"] if record.share > 0.25 else []))
    monkeypatch.setattr(learn._Learner, "_halve", halve_and_stop)
    for expected in (130, 130, 0):
        status, _, err = mt(*command)
        assert status == expected, err
    child = RunDirectory(tmp_path / "runs/tiny-learned")
    before, after = (Checkpoint(path).weights() for path in (RunDirectory(run).best_path, child.best_path))
    for name, weight in after.items():
        torch.testing.assert_close(weight, 0.75 * before[name] + 0.25 * trained[0][name])
    assert record_of(child.path).share == 0.25 and not [*(tmp_path / "runs").glob(".learning/*")]
    assert mt("evaluate", "--run", child.path, "--split", "valid")[0] == 0
    status, out, err = mt(*command)
    assert (status, out, "Nothing is new" in err) == (0, "runs/tiny-learned\n", True), err


def test_mostly_junk_is_refused_before_training(run, corrections, mt, tmp_path):
    write(tmp_path / "corrections.jsonl", [(source, source) for source, _ in corrections])
    status, out, err = mt("learn", "--run", "runs/tiny", "corrections.jsonl")
    assert (status, out, "identical" in err) == (2, "", True), err
    assert not (tmp_path / "runs/tiny-learned").exists()


def test_an_interrupted_command_goes_on_where_it_stopped(run, corrections, mt, tmp_path, monkeypatch):
    def stop(*arguments):
        raise KeyboardInterrupt

    command = "learn", "--run", "runs/tiny", "corrections.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(learn._Learner, "_results", stop)
        assert mt(*command)[0] == 130
    trial = tmp_path / "runs/.learning/tiny-learned"
    weights = (trial / "checkpoints/best.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(learn, "_publish", lambda *paths: stop() if record_of(trial).is_accepted else None)
        assert mt(*command)[0] == 130
    status, out, err = mt(*command)
    assert (status, out, "Nothing is new" in err) == (0, "runs/tiny-learned\n", True), err
    child = tmp_path / "runs/tiny-learned"
    assert (child / "checkpoints/best.safetensors").read_bytes() == weights
    assert mt("translate", "--run", child, "one two.")[0] == 0
    child.rename(trial.with_name("tiny-learned.replaced"))  # Killed between two renames of a later command.
    shutil.copytree(trial.with_name("tiny-learned.replaced"), trial)
    status, out, err = mt("learn", "--run", child, "corrections.jsonl")
    assert (status, out, "Nothing is new" in err) == (0, "runs/tiny-learned\n", True), err


def test_corrections_without_text_to_keep_in_mind_are_refused(run, corrections, mt, tmp_path):
    config = run / "config.yaml"
    text = config.read_text(encoding="utf-8")
    (tmp_path / "other.yaml").write_text(text, encoding="utf-8")
    config.write_text(text.replace("train.en", "gone.en"), encoding="utf-8")
    status, _, err = mt("learn", "--run", "runs/tiny", "corrections.jsonl")
    assert (status, "gone.en" in err, "--config" in err) == (2, True, True), err
    assert mt("learn", "--run", "runs/tiny", "corrections.jsonl", "--config", "other.yaml")[0] == 0


def test_a_held_out_source_stays_held_out():
    sources = [f"sentence {number}" for number in range(2000)]
    share = sum(map(is_held_out, sources)) / len(sources)
    assert 0.1 < share < 0.15 and is_held_out(" sentence  1") == is_held_out("sentence 1")


@pytest.mark.parametrize(("name", "is_accepted"), [("learned", False), ("held out", True), ("valid", False)])
def test_what_was_learned_must_not_get_worse(name, is_accepted):
    scores = tuple({"score": score, "confidence_95": 2.0} for score in (50.0, 40.0))
    change = {"num_sentences": 9, "right": (3, 2), "metric": "chrf", "scores": scores}
    record = {"parent": "tiny", "digest": "", "changes": {name: change}}
    assert bool(learn.Learned.model_validate(record).fallen) is not is_accepted
