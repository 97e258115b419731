"""Resuming: a run that was stopped ends as one that was not, whatever stopped it and whatever was damaged."""

import json
import os
import pickle
import shutil
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import flat, load_config
from mt_cli.config.sections import may_change
from mt_cli.run import loop
from mt_cli.run.train import train as train_run
from mt_cli.run.training_log import TrainingLog
from mt_cli.run.validation import Validator
from mt_cli.training.gradients import GradientAccumulator


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def train(mt, quick_tree, tmp_path):
    """Runs `mt train` on the tiny config under a name, with options of `training`, in four validations and 22 steps."""
    quick_tree["training"] |= {"validate_every_steps": 6, "log_every_steps": 4, "schedule": "constant"}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(quick_tree), encoding="utf-8")

    def run(name, *arguments, **training):
        """Options with a dot are of other sections."""
        keys = {key if "." in key else f"training.{key}": value for key, value in training.items()}
        changes = [f"name={name}", *(f"{key}={value}" for key, value in keys.items())]
        return mt(
            "train", "--config", "tiny.yaml", *(part for change in changes for part in ("--set", change)), *arguments
        )

    return run


def act_at(monkeypatch, step, act):
    """Call `act` when training reaches a step for the first time."""
    add, done = TrainingLog.add, []

    def add_and_act(self, report):
        add(self, report)
        if report.step == step and not done:
            done.append(step)
            act()

    monkeypatch.setattr(TrainingLog, "add", add_and_act)


def send(number):
    return lambda: os.kill(os.getpid(), number)


def overflow_at(monkeypatch, first, number=1):
    """Make the loss of some steps of training, the first counted from 1, not a number."""
    accumulate, calls = GradientAccumulator.accumulate, []

    def overflow(self, *batches):
        sums = accumulate(self, *batches)
        calls.append(1)
        is_bad = first <= len(calls) < first + number
        return replace(sums, cross_entropy=sums.cross_entropy * float("nan")) if is_bad else sums

    monkeypatch.setattr(GradientAccumulator, "accumulate", overflow)


@pytest.fixture
def report_of(tmp_path):
    return lambda name="run": json.loads((tmp_path / f"runs/{name}/report.json").read_text(encoding="utf-8"))


SUBWORDS = {"tokenizer.algorithm": "bpe", "tokenizer.vocab_size": 60, "tokenizer.byte_fallback": "false"}
LONG = {"batch_tokens": 1000, "validate_every_steps": 1000}
"""Few steps, because every step segments words anew."""
MOMENTS = (3, 6, 11, 22)
"""In the middle, where a validation is due, at the end of an epoch, at the very end."""
OPTIONS = {
    "default": ({}, MOMENTS),
    "growing steps": ({"micro_batches_per_step": 3, "micro_batches_growth_steps": 12, "max_epochs": 5}, MOMENTS[1:3]),
    "muon and average": ({"ema_decay": 0.8, "optimizer": "muon"}, MOMENTS[1:3]),
    "r-drop": ({"r_drop": 3.0, "r_drop_start_step": 4}, MOMENTS[1:3]),
    "rotary, bf16": ({"model.positions": "rotary", "precision": "bf16", "max_steps": 13}, (11,)),
    "bpe dropout": ({**SUBWORDS, **LONG, "tokenizer.bpe_dropout": 0.2}, (3, 4)),
    "unigram sampling": (
        {**SUBWORDS, **LONG, "tokenizer.algorithm": "unigram", "tokenizer.unigram_alpha": 0.3},
        (3, 4),
    ),
    "augmented": (
        {**SUBWORDS, **LONG, "tokenizer.shared": "true", "tokenizer.bpe_dropout": 0.2}
        | {"concatenated_pairs": 0.5, "inserted_words": 0.5},
        (3, 4),
    ),
}
SLOW_OPTIONS = {
    "pictures": ({"num_pictures": 1}, MOMENTS),
    "accumulated": ({"micro_batches_per_step": 3, "max_epochs": 6}, MOMENTS),
    "average, bf16": ({"precision": "bf16", "ema_decay": 0.9}, MOMENTS),
    "fp16, recomputed": ({"precision": "fp16", "recompute_layers": True}, MOMENTS),
}


@pytest.mark.parametrize(
    ("options", "moments"),
    [
        *(pytest.param(*case, id=name) for name, case in OPTIONS.items()),
        *(pytest.param(*case, id=name, marks=pytest.mark.slow) for name, case in SLOW_OPTIONS.items()),
    ],
)
def test_a_run_stopped_by_signals_ends_as_one_that_was_not(
    train, begin, assert_same_run, tmp_path, monkeypatch, options, moments
):
    whole = begin("whole", **options)
    for step in moments:
        act_at(monkeypatch, step, send(signal.SIGTERM))
        status, _, err = train("parts", **options)
        assert (status, err.splitlines()[-1].split(";")[0]) == (130, f"mt: interrupted at step {step}")
    status, _, err = train("parts", **options)
    assert status == 0 and f"Resuming from step {moments[-1]}." in err
    assert_same_run(tmp_path / "runs/parts", whole)


@pytest.mark.parametrize("seconds", [1, 100_000])
def test_a_clock_that_goes_backwards_changes_nothing(train, begin, assert_same_run, tmp_path, monkeypatch, seconds):
    whole, clock = begin("whole"), time.time
    for number, step in enumerate((3, 11, 13)):
        monkeypatch.setattr(time, "time", lambda shift=number * seconds: clock() - shift)
        act_at(monkeypatch, step, send(signal.SIGTERM))
        assert train("parts")[0] == 130
    assert train("parts")[0] == 0
    assert_same_run(tmp_path / "runs/parts", whole)


def test_a_run_stopped_by_its_limits_ends_as_one_that_was_not(train, begin, assert_same_run, tmp_path):
    whole = begin("whole")
    for limit in ({"max_minutes": 1e-9}, {"max_steps": 5}, {"max_steps": 12}, {"max_steps": 13}, {"max_epochs": 2}):
        status, _, err = train("parts", **limit)
        assert status == 0
        assert f"Stopped by {next(iter(limit))}" in err
    assert "training.max_steps: was 13, now null" in err
    assert_same_run(tmp_path / "runs/parts", whole)


@pytest.fixture
def slow_steps(monkeypatch):
    """A clock of training that advances by half a second with each step, and by nothing else."""
    accumulate, seconds = GradientAccumulator.accumulate, [0.0]

    def tick(self, *batches):
        seconds[0] += 0.5
        return accumulate(self, *batches)

    monkeypatch.setattr(GradientAccumulator, "accumulate", tick)
    monkeypatch.setattr("mt_cli.run.loop.time", SimpleNamespace(monotonic=lambda: seconds[0]))


@pytest.mark.usefixtures("slow_steps")
def test_a_run_fitted_to_the_clock_ends_at_zero_on_time_and_as_one_that_was_not_stopped(
    train, assert_same_run, tmp_path, monkeypatch
):
    options = {"schedule": "linear", "max_minutes": 10 / 60, "max_epochs": "null", "log_every_steps": 1}
    assert "Stopped by max_minutes" in train("whole", **options)[2]
    rates = [row["train/learning_rate"] for row in metrics(tmp_path / "runs/whole") if "train/loss" in row]
    assert len(rates) == 20
    assert max(rates) == rates[1] and rates[2:] == sorted(rates[2:], reverse=True)
    assert rates[-1] < 0.1 * rates[1]
    for step in (1, 7, 12):
        act_at(monkeypatch, step, send(signal.SIGTERM))
        assert train("parts", **options)[0] == 130
    assert train("parts", **options)[0] == 0
    assert_same_run(tmp_path / "runs/parts", tmp_path / "runs/whole")


@pytest.mark.usefixtures("slow_steps")
def test_a_limit_in_minutes_that_moves_moves_the_end_of_the_schedule(train, tmp_path):
    options = {"schedule": "linear", "max_epochs": "null", "log_every_steps": 1, "validate_every_steps": 1000}
    assert train("run", max_minutes=5 / 60, **options)[0] == 0
    assert "training.max_minutes: was" in train("run", max_minutes=20 / 60, **options)[2]
    rates = [row["train/learning_rate"] for row in metrics(tmp_path / "runs/run") if "train/loss" in row]
    assert len(rates) == 40
    assert rates[9] < rates[10] and rates[10:] == sorted(rates[10:], reverse=True) and rates[-1] < 0.1 * rates[10]


def test_the_weights_of_a_run_that_its_limit_ended_are_scored_and_kept(train, begin, tmp_path, report_of):
    begin("run", max_steps=5)
    assert "nothing is left to do" in train("run", max_steps=5)[2]
    report = report_of()
    assert report["best_step"] == report["num_steps"] == 5
    path = tmp_path / "runs/run/report.json"
    for lost in (list(report), ["bleu"], ["bleu", "speed"]):
        path.write_text(json.dumps({key: value for key, value in report.items() if key not in lost}))
        assert train("run", max_steps=5)[0] == 0
        again = json.loads(path.read_text(encoding="utf-8"))
        assert again["bleu"] == report["bleu"] and again["best_step"] == 5 and list(again) == list(report)
    path.write_text(json.dumps(report | {"speed": {"seconds": 1.0}}))
    assert train("run", max_steps=5)[0] == 0


@pytest.fixture
def saved_steps(monkeypatch):
    """Steps whose state is saved, as they are saved."""
    steps, save = [], RunDirectory.save_state

    def save_state(self, model, state, optimizer, step, *rest):
        steps.append(step)
        save(self, model, state, optimizer, step, *rest)

    monkeypatch.setattr(RunDirectory, "save_state", save_state)
    return steps


def test_a_signal_to_save_saves_and_training_continues(train, tmp_path, monkeypatch, saved_steps):
    act_at(monkeypatch, 8, send(signal.SIGUSR1))
    assert train("run", keep_last=3)[0] == 0
    assert saved_steps == [0, 6, 8, 12, 18, 22]
    names = {path.name for path in (tmp_path / "runs/run/checkpoints").glob("[ls]*")}
    assert names == {f"{name}.safetensors" for name in ("last", "step-8", "step-12", "step-18")}


def test_a_state_is_saved_every_so_often(train, saved_steps):
    assert train("run", save_every_minutes=1e-9, max_steps=3)[0] == 0
    assert saved_steps == [0, 1, 2, 3]


def test_changes_without_effect_on_the_weights_are_shown_and_others_refused(train, tmp_path):
    assert train("run", max_steps=5)[0] == 0
    status, _, err = train("run", max_steps=6, batch_tokens=100)
    assert status == 2
    assert "training.batch_tokens: was 220, now 100" in err
    assert "--fresh" in err and "max_steps" not in err
    status, _, err = train("run", max_steps=6, num_samples=1, keep_last=0)
    assert status == 0
    for change in ("max_steps: was 5, now 6", "num_samples: was 5, now 1", "keep_last: was 1, now 0"):
        assert f"training.{change}" in err


def test_a_run_that_is_being_trained_is_neither_resumed_nor_moved_aside(train, begin, tmp_path):
    begin("run", max_steps=2)
    with RunDirectory(tmp_path / "runs/run").locked():
        for arguments in ((), ("--fresh",)):
            status, _, err = train("run", *arguments)
            assert status == 2 and "another process trains this run" in err
    assert not (tmp_path / "runs/run.old-1").exists()
    assert train("run", max_steps=2)[0] == 0


def flip_bit(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def replace_by_folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def swap_entries(path):
    tree = json.loads(path.read_text(encoding="utf-8"))
    vocabulary = tree["model"]["vocab"]
    vocabulary["ONE"], vocabulary["TWO"] = vocabulary["TWO"], vocabulary["ONE"]
    path.write_text(json.dumps(tree), encoding="utf-8")


def edit(path):
    path.write_text(path.read_text(encoding="utf-8").replace("ONE", "EINS", 1), encoding="utf-8")


FAULTS = [
    # file, fault, what the message names, exit status, whether the file must be restored
    ("own.xx", edit, "corpus.train (own.en)", 2, True),
    ("own.en", lambda path: path.unlink(), "own.en: no such file", 2, True),
    ("runs/run/tokenizer.target.json", swap_entries, "tokenizer.target.json", 2, True),
    ("runs/run/tokenizer.source.json", lambda path: path.unlink(), "tokenizer.source.json", 2, True),
    ("runs/run/config.yaml", lambda path: path.write_text("}{"), "config.yaml", 2, True),
    ("runs/run/report.json", replace_by_folder, "report.json: cannot be written", 1, True),
    ("runs/run/metrics.jsonl", lambda path: path.unlink(), "metrics.jsonl: shorter", 0, False),
    ("runs/run/checkpoints/last.safetensors", flip_bit, "last.safetensors: damaged", 0, False),
    ("runs/run/checkpoints/best.safetensors", flip_bit, "best checkpoint is missing or damaged", 0, False),
    ("runs/run/checkpoints/step-6.safetensors", replace_by_folder, "", 0, False),
]


@pytest.mark.parametrize(
    ("name", "fault", "named", "expected", "is_restored"), FAULTS, ids=[f"{row[0]}-{row[2]}" for row in FAULTS]
)
def test_a_damaged_file_is_named_and_the_run_goes_on(
    train, begin, tiny_tree, tmp_path, corpus, report_of, name, fault, named, expected, is_restored
):
    for side in ("en", "xx"):
        shutil.copy(corpus / f"train.{side}", tmp_path / f"own.{side}")
    tiny_tree["corpus"]["train"] = {"files": ["own.en", "own.xx"]}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    begin("run", max_steps=6)
    path, last = tmp_path / name, tmp_path / "runs/run/checkpoints/last.safetensors"
    content, state = path.read_bytes() if path.is_file() else None, last.read_bytes()
    fault(path)
    status, _, err = train("run", max_steps=12)
    assert status == expected and "Traceback" not in err
    assert named in err
    if is_restored:
        assert expected == 1 or last.read_bytes() == state
        path.rmdir() if path.is_dir() else None
        if expected == 2:
            path.write_bytes(content)
        assert train("run", max_steps=12)[0] == 0
    assert report_of()["num_steps"] == 12


@pytest.mark.parametrize("options", [{}, {"ema_decay": 0.9}])
def test_a_damaged_state_is_named_and_the_one_before_it_used(train, begin, assert_same_run, tmp_path, options):
    whole = begin("whole", **options)
    assert train("parts", max_steps=18, **options)[0] == 0
    flip_bit(tmp_path / "runs/parts/checkpoints/last.safetensors")
    status, _, err = train("parts", **options)
    assert status == 0
    assert "last.safetensors: damaged checkpoint: its checksum is wrong" in err
    assert "skipped, step-12.safetensors is used instead" in err
    assert "Resuming from step 12." in err
    assert_same_run(tmp_path / "runs/parts", whole)


def tensors_of(tmp_path, run, name, kind="model"):
    tensors = load_file(tmp_path / f"runs/{run}/checkpoints/{name}.safetensors")
    return {key.removeprefix(f"{kind}."): value for key, value in tensors.items() if key.startswith(f"{kind}.")}


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys() and ours
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


def test_an_average_is_validated_saved_as_the_best_and_loaded_and_training_does_not_notice_it(train, tmp_path):
    validated = []
    validate = Validator.validate

    def note(self, *model):
        validated.append({name: each.detach().clone() for name, each in self._objective.model.named_parameters()})
        return validate(self, *model)

    assert train("without", max_steps=6)[0] == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Validator, "validate", note)
        assert train("with", ema_decay=0.9, max_steps=6)[0] == 0
    average, raw = (tensors_of(tmp_path, "with", "last", kind) for kind in ("average", "model"))
    assert_equal(raw, tensors_of(tmp_path, "without", "last"))
    assert not any(torch.equal(average[name], raw[name]) for name in raw)
    assert_equal(average, validated[-1])
    assert_equal(average, tensors_of(tmp_path, "with", "best"))
    for name, kind in (("with", "best"), ("without", "last")):
        assert not tensors_of(tmp_path, name, kind, "average")
    for name in ("last", "best"):
        loaded = TrainedRun.load(tmp_path / "runs/with", name).model
        assert_equal({name: each.detach() for name, each in loaded.named_parameters()}, average)
    status, _, err = train("with", ema_decay=0.8, max_steps=7)
    assert status == 2 and "training.ema_decay: was 0.9, now 0.8" in err


def test_the_average_of_a_run_is_the_plain_recurrence_over_its_steps_skipped_ones_included(
    train, tmp_path, monkeypatch
):
    overflow_at(monkeypatch, 4)
    assert train("run", ema_decay=0.4, max_steps=8, save_every_minutes=1e-9, keep_last=100)[0] == 0
    names = [*(f"step-{step}" for step in (0, 1, 2, 3, 3, 5, 6, 7)), "last"]  # No state is kept after a skipped step.
    states = [[tensors_of(tmp_path, "run", name, kind) for kind in ("model", "average")] for name in names]
    expected = states[0][0]
    for step, (weights, average) in enumerate(states):
        decay = min(0.4, (1 + step) / (10 + step))
        expected = {key: decay * expected[key] + (1 - decay) * weights[key] for key in weights}
        if step != 4:
            assert all(torch.allclose(average[key], expected[key], atol=1e-6) for key in average), step


def test_an_average_goes_back_with_the_weights(train, tmp_path, monkeypatch):
    """As if the learning rate had been half from step 6 on: its state is the one that training returns to."""
    options = {"ema_decay": 0.9, "max_bad_steps": 2, "max_steps": 12, "warmup_steps": 0}
    with monkeypatch.context() as patch:
        overflow_at(patch, 9, 2)
        assert "going back to step 6" in train("run", **options)[2]
    with monkeypatch.context() as patch:
        assert train("other", **options | {"max_steps": 6})[0] == 0
        rate = loop.learning_rate
        patch.setattr(loop, "learning_rate", lambda *arguments: rate(*arguments) / 2)
        assert train("other", **options)[0] == 0
    for kind in ("model", "average"):
        assert_equal(tensors_of(tmp_path, "run", "last", kind), tensors_of(tmp_path, "other", "last", kind))


def test_a_lost_best_checkpoint_is_replaced_by_the_average(train, tmp_path):
    options = {"ema_decay": 0.9, "best_metric": "chrf", "keep_last": 5}
    assert train("run", max_steps=12, **options)[0] == 0
    before = tensors_of(tmp_path, "run", "last")
    flip_bit(tmp_path / "runs/run/checkpoints/best.safetensors")
    assert "best checkpoint is missing or damaged" in train("run", max_steps=12, **options)[2]
    assert_equal(tensors_of(tmp_path, "run", "best"), tensors_of(tmp_path, "run", "last", "average"))
    assert_equal(tensors_of(tmp_path, "run", "last"), before)
    assert "was chosen by chrf" in train("run", max_steps=12, **options | {"best_metric": "loss"})[2]
    assert_equal(tensors_of(tmp_path, "run", "best"), tensors_of(tmp_path, "run", "last", "average"))
    assert_equal(tensors_of(tmp_path, "run", "last"), before)


def test_no_file_changes_when_every_state_is_damaged(train, begin, tmp_path):
    begin("run", max_steps=12)
    paths = list((tmp_path / "runs/run/checkpoints").glob("*.safetensors"))
    for path in paths:
        flip_bit(path)
    before = [path.read_bytes() for path in paths]
    status, _, err = train("run")
    assert status == 2
    assert err.count("damaged checkpoint") == 2 and "--fresh" in err
    assert [path.read_bytes() for path in paths] == before
    assert train("run", "--fresh", max_steps=1)[0] == 0


def test_training_that_diverges_goes_back_twice_and_then_stops(train, tmp_path):
    limits = {"max_bad_steps": 3, "warmup_steps": 0}
    status, _, err = train("run", learning_rate=1e30, **limits)
    assert status == 1
    assert "going back to step 0, with 0.5 of the learning rate" in err
    assert "going back to step 0, with 0.25 of the learning rate" in err
    assert "mt: runs/run: training diverged: in 3 steps in a row" in err
    rows = [json.loads(line) for line in (tmp_path / "runs/run/bad_batch.jsonl").read_text().splitlines()]
    assert rows and all(row["source"].upper() == row["target"] for row in rows)
    status, _, err = train("run", learning_rate=1e30, **limits)  # Not a fourth time from the beginning.
    assert status == 1
    assert "going back" not in err


@pytest.mark.parametrize(
    ("keep_last", "learning_rate", "every"),
    [
        (0, 1e30, 4),
        (1, 1e6, 1),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((0, 1e30, 1), (0, 1e30, 7), (1, 1e6, 4), (1, 1e6, 7))
        ),
    ],
)
def test_states_saved_while_steps_are_skipped_never_replace_the_last_good_one(
    train, tmp_path, every, keep_last, learning_rate
):
    options = {"validate_every_steps": every, "keep_last": keep_last, "warmup_steps": 0, "learning_rate": learning_rate}
    status, _, err = train("run", max_bad_steps=9, label_smoothing=0.0, max_epochs=100, **options)
    assert status == 1, err
    assert err.count("going back to step") == 2
    assert "training diverged" in err and "no saved state" not in err
    assert (tmp_path / "runs/run/bad_batch.jsonl").stat().st_size
    assert not (tmp_path / "runs/run/report.json").exists()


@pytest.mark.parametrize(
    ("keep_last", "is_stopped", "bad_from"),
    [
        (0, False, 7),
        (2, True, 3),
        (0, True, 14),
        *(
            pytest.param(*ways, bad_from, marks=pytest.mark.slow)
            for ways, others in (((0, False), (3, 14)), ((2, True), (7, 14)), ((0, True), (3, 7)))
            for bad_from in others
        ),
    ],
)
def test_a_run_whose_steps_go_wrong_for_a_while_goes_back_before_that(
    train, tmp_path, monkeypatch, report_of, keep_last, bad_from, is_stopped
):
    options = {"max_bad_steps": 12, "keep_last": keep_last, "validate_every_steps": 4}
    options |= {"max_steps": bad_from + 14, "max_epochs": 3}
    overflow_at(monkeypatch, bad_from, 12)
    if is_stopped:
        act_at(monkeypatch, bad_from + 5, send(signal.SIGTERM))
        assert train("run", **options)[0] == 130
    status, _, err = train("run", **options)
    assert status == 0, err
    assert f"going back to step {(bad_from - 1) // 4 * 4}, with 0.5" in err
    report = report_of()
    assert (report["num_bad_steps"], report["num_restarts"], report["num_steps"]) == (12, 1, bad_from + 14)
    assert len(list((tmp_path / "runs/run/checkpoints").glob("step-*"))) == keep_last


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_that_ends_with_scores_that_are_not_numbers_reports_it(train, mt, tmp_path, precision):
    options = {"learning_rate": 1e30, "warmup_steps": 0, "max_steps": 1, "precision": precision}
    status, _, err = train("run", **options)
    assert status == 1, err
    assert "mt: the scores of this model are not numbers, because its training diverged" in err
    for words in (["--beam-size", "1"], ["--beam-size", "3"], ["--sample"]):
        status, out, err = mt("translate", "one.", "--run", "runs/run", *words)
        assert (status, out) == (1, "") and "are not numbers" in err


def test_a_single_bad_step_is_skipped_and_counted(train, tmp_path, monkeypatch, report_of):
    overflow_at(monkeypatch, 7)
    status, _, err = train("run", max_bad_steps=2)
    assert status == 0
    assert err.count("the loss or the gradient is not finite") == 1
    assert "1 steps were skipped" in err or "1 step was skipped" in err
    report = report_of()
    assert (report["num_bad_steps"], report["num_restarts"], report["num_steps"]) == (1, 0, 22)
    rows = metrics(tmp_path / "runs/run")
    assert [row["step"] for row in rows if "train/loss" in row] == [4, 8, 12, 16, 20]


LIMITED = """
import resource, sys
from mt_cli.cli import main as cli

resource.setrlimit(resource.RLIMIT_FSIZE, ({num_bytes}, {num_bytes}))
sys.argv = ["mt", *{arguments}]
cli.main()
"""
"""Runs `mt` in a process that cannot write larger files."""


def test_a_disk_that_fills_up_while_saving_leaves_the_previous_checkpoint(train, begin, mt, fork_server, tmp_path):
    begin("run", max_steps=6)
    checkpoints = tmp_path / "runs/run/checkpoints"
    before = {path.name: path.read_bytes() for path in checkpoints.iterdir()}
    size = len(before["last.safetensors"])
    arguments = ["train", "--config", "tiny.yaml", "--set", "name=run", "--set", "training.max_steps=12"]
    program = tmp_path / "limited.py"
    program.write_text(LIMITED.format(num_bytes=size // 2, arguments=arguments), encoding="utf-8")
    fork_server.start(tmp_path, program=str(program))
    [status] = fork_server.wait()
    err = (tmp_path / "stream.2").read_text(encoding="utf-8")
    assert status == 1, err
    assert "Traceback" not in err
    assert "cannot be written" in err and "safetensors" in err
    assert not list(checkpoints.glob("*.tmp"))
    assert (checkpoints / "last.safetensors").read_bytes() == before["last.safetensors"]
    assert mt("translate", "one.", "--run", "runs/run")[0] == 0
    assert train("run", max_steps=12)[0] == 0


@pytest.mark.parametrize("place", ["runs", "runs/run"])
def test_a_file_in_the_place_of_a_folder_is_named(train, tmp_path, place):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("not a folder")
    status, _, err = train("run")
    assert status == 2 and "runs/run: " in err


def test_nothing_planted_in_a_run_directory_is_executed(train, begin, mt, tmp_path):
    begin("run", max_steps=6)
    run = tmp_path / "runs/run"
    files = [path for path in run.rglob("*") if path.is_file()]
    files += [run / "checkpoints" / "step-3.safetensors", run / "checkpoints" / "last.pt"]
    for path in files:
        kept = path.read_bytes() if path.exists() else None
        path.write_bytes(pickle.dumps(Planted(str(tmp_path / "executed"))))
        for status, _, err in (
            mt("translate", "one.", "--run", "runs/run"),
            mt("tokenize", "one.", "--run", "runs/run"),
            mt("evaluate", "--run", "runs/run"),
            train("run", max_steps=7),
        ):
            assert status in (0, 1, 2) and "Traceback" not in err, (path, err)
        assert not (tmp_path / "executed").exists()
        path.unlink(missing_ok=True)
        if kept is not None:
            path.write_bytes(kept)


class Planted:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_a_corpus_that_has_moved_is_shown_as_what_has_changed(train, begin, tiny_tree, tmp_path, corpus):
    for side in ("en", "xx"):
        shutil.copy(corpus / f"train.{side}", tmp_path / f"own.{side}")
    tiny_tree["corpus"]["train"] = {"files": ["own.en", "own.xx"]}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    begin("run", max_steps=2)
    (tmp_path / "own.en").rename(tmp_path / "moved.en")
    tiny_tree["corpus"]["train"]["files"][0] = "moved.en"
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    assert 'corpus.train[0].files[0]: was "own.en", now "moved.en"' in train("run", max_steps=3)[2]


def test_an_interrupt_during_the_final_test_reports_that_the_model_is_saved(train, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mt_cli.run.finish.evaluate", interrupt)
        status, _, err = train("run", max_steps=6)
    assert status == 130
    assert "the model is saved" in err
    assert train("run", max_steps=6)[0] == 0
    assert (tmp_path / "runs/run/report.json").exists()


def test_an_interrupt_during_the_last_validation_ends_the_run_there(train, tmp_path, monkeypatch):
    validate, report = Validator.validate, tmp_path / "runs/run/report.json"

    def interrupted(self, *arguments):
        os.kill(os.getpid(), signal.SIGINT)
        return validate(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Validator, "validate", interrupted)
        status, _, err = train("run", max_steps=4)
    assert status == 130 and "interrupted after the last step; the same command does the rest" in err
    assert not report.exists()
    assert train("run", max_steps=4)[0] == 0 and report.exists()


def test_the_best_begins_anew_when_its_metric_changes(train, tmp_path):
    def state_of(name):
        with safe_open(tmp_path / f"runs/one/checkpoints/{name}.safetensors", framework="pt") as file:
            return json.loads(file.metadata()["state"])

    assert train("one", best_metric="bleu", max_steps=12, keep_last=5)[0] == 0
    assert state_of("best")["best_metric"] == "bleu/13a"
    status, _, err = train("one", best_metric="loss", max_steps=12, keep_last=5)
    assert status == 0
    assert "training.best_metric" in err and "was chosen by bleu/13a; from here on it is chosen by loss" in err
    best = state_of("best")
    assert (best["best_metric"], best["best_step"]) == ("loss", 12)
    assert "nothing is left to do" in train("one", best_metric="loss", max_steps=12, keep_last=5)[2]
    status, _, err = train("one", best_metric="loss", max_steps=22, keep_last=5)
    assert status == 0 and "was chosen by" not in err
    losses = {row["step"]: row["valid/loss"] for row in metrics(tmp_path / "runs/one") if "valid/loss" in row}
    losses = {step: loss for step, loss in losses.items() if step >= 12}
    best = state_of("best")
    assert best["best_step"] == min(losses, key=losses.get)
    assert -best["best_value"] == pytest.approx(min(losses.values()), rel=1e-4)


def test_patience_waits_until_the_warm_up_is_over(train, tmp_path):
    options = {"learning_rate": 1e-12, "warmup_steps": 12, "validate_every_steps": 3, "patience": 1, "max_epochs": 9}
    status, _, err = train("patient", **options)
    assert status == 0
    assert "Stopped by patience 1 after 15 steps" in err


def test_a_finished_run_is_scored_again_with_another_tokenizer(train, report_of):
    def signature():
        return report_of("one")["bleu"]["signature"]

    options = {"max_steps": 12, "keep_last": 5, "best_metric": "chrf"}
    char = ("--set", "evaluation.bleu_tokenizer=char")
    assert train("one", **options)[0] == 0
    assert "|tok:13a|" in signature()
    status, _, err = train("one", *char, **options)
    assert status == 0 and "nothing is left" not in err
    assert "|tok:char|" in signature()


def test_a_finished_run_stays_finished_though_its_test_is_in_another_language(train, corpus):
    files = f"[{corpus / 'test.en'}, {corpus / 'test.xx'}]"
    test = ("--set", f"corpus.test={{files: {files}, languages: [en, ja]}}")
    assert train("one", *test, max_steps=5)[0] == 0
    assert "nothing is left to do" in train("one", *test, max_steps=5)[2]


CHANGES = {
    **{"training.max_steps": 7, "training.max_epochs": 1, "training.max_minutes": 1e-9, "training.patience": 1},
    **{"training.best_metric": "loss", "training.validate_every_steps": 2, "training.save_every_minutes": 1e-9},
    **{"training.keep_last": 0, "training.max_bad_steps": 1, "training.log_every_steps": 3, "training.num_samples": 0},
    **{"training.num_pictures": 1, "evaluation.num_resamples": 5},
    **{"training.keep_validated": 2, "training.average_checkpoints": 2, "training.tune_decoding": "true"},
    **{"training.device": "auto", "training.num_threads": 2, "evaluation.bleu_tokenizer": "char"},
    **{"training.recompute_layers": "true", "training.shard_model": "true"},
    **{"training.compile": "true", "training.cuda_graphs": "true"},
    **{"decoding.beam_size": 1, "decoding.length_penalty": 0.5, "decoding.max_length_ratio": 1.0},
    **{"decoding.length_penalties": "{<2xx>: 2.0}"},
    **{"decoding.min_length": 2, "decoding.max_length": 3, "decoding.no_repeat_ngram": 1, "decoding.unk": "keep"},
    **{"decoding.sample": "true", "decoding.temperature": 2.0, "decoding.top_k": 3, "decoding.top_p": 0.5},
    **{"decoding.seed": 2, "decoding.batch_tokens": 50},
    **{"corpus.accept_processed": "true", "training.planned_for": "cpu"},
}
STOPS = ("training.max_steps", "training.max_epochs", "training.max_minutes", "training.patience")
ROUNDING = ("training.device", "training.num_threads")
"""Another device or number of threads adds numbers in another order."""
TOGETHER = {
    "search": [key for key in CHANGES if key.startswith("decoding.")],
    "records": [key for key in CHANGES if not key.startswith("decoding.") and key not in (*STOPS, *ROUNDING)],
    "machine": list(ROUNDING),
    **{key: [key] for key in STOPS},
}
"""Options by groups: a group whose weights are equal has no option that changes them."""
NEED_SAMPLE = ("decoding.temperature", "decoding.top_k", "decoding.top_p", "decoding.seed")


NUM_STEPS = 12


@pytest.fixture(scope="module")
def saved_at_each_step(corpus, one_thread, tmp_path_factory):
    """A function that trains a run of 12 steps, and a folder with the run after 3 steps and with each of its states."""
    folder = tmp_path_factory.mktemp("each_step")
    tree = {
        "name": "tiny",
        "corpus": {"source": "en", "target": "xx", "tag": "to_target", "valid": {"fraction": 0.02}},
        "model": {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {"max_steps": NUM_STEPS, "batch_tokens": 200, "warmup_steps": 2, "validate_every_steps": 3},
        "evaluation": {"num_resamples": 10},
    }
    tree["training"] |= {"device": "cpu", "save_every_minutes": None, "precision": "fp32", "num_pictures": 0}
    tree["model"]["qkv_bias"] = False  # AdamW turns the rounding errors in a key bias' zero gradient into updates.
    tree["corpus"]["train"] = {"files": [str(corpus / "train.en"), str(corpus / "train.xx")]}

    def run(runs, *overrides):
        (folder / "tiny.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
        return train_run(load_config(folder / "tiny.yaml", overrides), runs)

    run(folder / "part", "training.max_steps=3")
    run(folder / "whole", "training.save_every_minutes=1e-9", "training.keep_last=100")
    return run, folder


def test_every_option_that_may_change_is_tested(saved_at_each_step):
    config = RunDirectory(saved_at_each_step[1] / "whole" / "tiny").config()
    assert {key for key in flat(config) if may_change(key)} == set(CHANGES)
    assert sorted(key for keys in TOGETHER.values() for key in keys) == sorted(CHANGES)


@pytest.mark.parametrize(
    "keys",
    [
        *(pytest.param(keys, id=name) for name, keys in TOGETHER.items()),
        *(pytest.param([key], id=key, marks=pytest.mark.slow) for key in CHANGES if key not in STOPS),
    ],
)
def test_an_option_that_may_change_leaves_the_weights_equal(saved_at_each_step, tmp_path, keys):
    run, folder = saved_at_each_step
    num_threads = torch.get_num_threads()
    shutil.copytree(folder / "part", tmp_path / "runs")
    try:
        also = ["decoding.sample=true"] * bool(set(keys) & set(NEED_SAMPLE))
        also += ["training.max_steps=5"] * bool(set(keys) & set(ROUNDING))  # Threads may wait for each other.
        report = run(tmp_path / "runs", *(f"{key}={CHANGES[key]}" for key in keys), *also)
    finally:
        torch.set_num_threads(num_threads)
    step = report.num_steps
    assert step > 3 or keys == ["training.max_minutes"]
    whole = RunDirectory(folder / "whole" / "tiny")
    expected = whole.last_path if step == NUM_STEPS else whole.path_of(f"step-{step}")
    ours, theirs = (load_file(path) for path in (tmp_path / "runs/tiny/checkpoints/last.safetensors", expected))
    assert ours.keys() == theirs.keys()
    atol = 1e-5 if set(keys) & set(ROUNDING) else 0.0
    assert all(torch.allclose(ours[name], theirs[name], rtol=0, atol=atol) for name in ours)
