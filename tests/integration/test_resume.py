"""Resuming: a run that was stopped ends as one that was not, whatever stopped it and whatever was damaged."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import yaml
from run_content import checkpoint_content, report_of, rows_of
from safetensors.torch import load_file

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import flat, load_config
from mt_cli.config.sections import may_change
from mt_cli.run import finish, loop
from mt_cli.run.train import train as train_run
from mt_cli.run.training_log import TrainingLog
from mt_cli.run.validation import Validator
from mt_cli.training.gradients import GradientAccumulator


@pytest.fixture
def train(mt, quick_tree, tmp_path):
    """Runs `mt train` on the tiny config under a name, with options of `training`, in four validations and 22 steps."""
    quick_tree["training"] |= {"validate_every_steps": 6, "log_every_steps": 4, "schedule": "constant"}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(quick_tree), encoding="utf-8")

    def run(name, *arguments, **training):
        """Options with a dot are of other sections."""
        keys = {key if "." in key else f"training.{key}": value for key, value in training.items()}
        changes = [f"name={name}", *(f"{key}={value}" for key, value in keys.items())]
        settings = [part for change in changes for part in ("--set", change)]
        return mt("train", "--config", "tiny.yaml", *settings, *arguments)

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


SUBWORDS = {"tokenizer.algorithm": "bpe", "tokenizer.vocab_size": 60, "tokenizer.byte_fallback": "false"}
SUBWORDS |= {"batch_tokens": 1000, "validate_every_steps": 1000}  # Few steps, because every step segments words anew.
MOMENTS = (3, 6, 11, 22)
"""In the middle, where a validation is due, at the end of an epoch, at the very end."""
LIMITS = ({"max_minutes": 1e-9}, {"max_steps": 5}, {"max_steps": 12}, {"max_steps": 13}, {"max_epochs": 2})
CASES = {
    "default": ({}, MOMENTS),
    "limits": ({}, LIMITS),
    "growing steps": ({"micro_batches_per_step": 3, "micro_batches_growth_steps": 12, "max_epochs": 5}, MOMENTS[1:3]),
    "muon and average": ({"ema_decay": 0.8, "optimizer": "muon"}, MOMENTS[1:3]),
    "r-drop": ({"r_drop": 3.0, "r_drop_start_step": 4}, MOMENTS[1:3]),
    "rotary, bf16": ({"model.positions": "rotary", "precision": "bf16", "max_steps": 13}, (11,)),
    "bpe dropout": ({**SUBWORDS, "tokenizer.bpe_dropout": 0.2}, (3, 4)),
    "unigram": ({**SUBWORDS, "tokenizer.algorithm": "unigram", "tokenizer.unigram_alpha": 0.3}, (3, 4)),
    "augmented": (
        {**SUBWORDS, "tokenizer.shared": "true", "tokenizer.bpe_dropout": 0.2}
        | {"concatenated_pairs": 0.5, "inserted_words": 0.5},
        (3, 4),
    ),
}
SLOW_CASES = {
    "pictures": ({"num_pictures": 1}, MOMENTS),
    "accumulated": ({"micro_batches_per_step": 3, "max_epochs": 6}, MOMENTS),
    "average, bf16": ({"precision": "bf16", "ema_decay": 0.9}, MOMENTS),
    "fp16, recomputed": ({"precision": "fp16", "recompute_layers": True}, MOMENTS),
}


@pytest.mark.parametrize(
    ("options", "stops"),
    [
        *(pytest.param(*case, id=name) for name, case in CASES.items()),
        *(pytest.param(*case, id=name, marks=pytest.mark.slow) for name, case in SLOW_CASES.items()),
    ],
)
def test_a_run_stopped_anywhere_ends_as_one_that_was_not(
    train, begin, assert_same_run, tmp_path, monkeypatch, options, stops
):
    """By signals at steps, or by limits; and its clock goes back by a day at each start."""
    whole, clock = begin("whole", **options), time.time
    for number, stop in enumerate(stops):
        monkeypatch.setattr(time, "time", lambda shift=number * 86_400: clock() - shift)
        if isinstance(stop, dict):
            status, _, err = train("parts", **options, **stop)
            assert status == 0 and f"Stopped by {next(iter(stop))}" in err
        else:
            act_at(monkeypatch, stop, send(signal.SIGTERM))
            status, _, err = train("parts", **options)
            assert (status, err.splitlines()[-1].split(";")[0]) == (130, f"mt: interrupted at step {stop}")
    if isinstance(stops[-1], int):
        status, _, err = train("parts", **options)
        assert status == 0 and f"Resuming from step {stops[-1]}." in err
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


TIMED = {"schedule": "linear", "max_epochs": "null", "log_every_steps": 1, "validate_every_steps": 8}


@pytest.mark.usefixtures("slow_steps")
def test_a_run_fitted_to_the_clock_ends_at_zero_on_time_and_as_one_that_was_not_stopped(
    train, assert_same_run, tmp_path, monkeypatch
):
    options = TIMED | {"max_minutes": 10 / 60}
    assert "Stopped by max_minutes" in train("whole", **options)[2]
    rates = [row["train/learning_rate"] for row in rows_of(tmp_path / "runs/whole") if "train/loss" in row]
    assert len(rates) == 20
    assert max(rates) == rates[1] and rates[2:] == sorted(rates[2:], reverse=True) and rates[-1] < 0.1 * rates[1]
    for step in (1, 7, 12):
        act_at(monkeypatch, step, send(signal.SIGTERM))
        assert train("parts", **options)[0] == 130
    assert train("parts", **options)[0] == 0
    assert_same_run(tmp_path / "runs/parts", tmp_path / "runs/whole")


@pytest.mark.usefixtures("slow_steps")
def test_a_limit_in_minutes_that_moves_moves_the_end_of_the_schedule(train, tmp_path):
    assert train("run", max_minutes=5 / 60, **TIMED)[0] == 0
    assert "training.max_minutes: was" in train("run", max_minutes=20 / 60, **TIMED)[2]
    rates = [row["train/learning_rate"] for row in rows_of(tmp_path / "runs/run") if "train/loss" in row]
    assert len(rates) == 40
    assert rates[9] < rates[10] and rates[10:] == sorted(rates[10:], reverse=True) and rates[-1] < 0.1 * rates[10]


def test_the_weights_of_a_run_that_its_limit_ended_are_scored_and_kept(train, begin):
    run = begin("run", max_steps=5)
    assert "nothing is left to do" in train("run", max_steps=5)[2]
    report = report_of(run)
    assert report["best_step"] == report["num_steps"] == 5
    for lost in (list(report), ["bleu", "speed"]):
        (run / "report.json").write_text(json.dumps({key: report[key] for key in report if key not in lost}))
        assert train("run", max_steps=5)[0] == 0
        again = report_of(run)
        assert again["bleu"] == report["bleu"] and list(again) == list(report)


def test_a_state_is_saved_every_so_often_and_at_a_signal(train, tmp_path, monkeypatch):
    steps, save = [], RunDirectory.save_state

    def save_state(self, model, state, optimizer, step, *rest):
        steps.append(step)
        save(self, model, state, optimizer, step, *rest)

    monkeypatch.setattr(RunDirectory, "save_state", save_state)
    assert train("often", save_every_minutes=1e-9, max_steps=3)[0] == 0
    assert steps == [0, 1, 2, 3]
    steps.clear()
    act_at(monkeypatch, 8, send(signal.SIGUSR1))
    assert train("run", keep_last=3)[0] == 0
    assert steps == [0, 6, 8, 12, 18, 22]
    names = {path.stem for path in (tmp_path / "runs/run/checkpoints").glob("[ls]*")}
    assert names == {"last", "step-8", "step-12", "step-18"}


def test_changes_without_effect_on_the_weights_are_shown_and_others_refused(train, begin, corpus, tmp_path):
    begin("run", max_steps=5)
    status, _, err = train("run", max_steps=6, batch_tokens=100)
    assert status == 2
    assert "training.batch_tokens: was 220, now 100" in err and "--fresh" in err and "max_steps" not in err
    status, _, err = train("run", max_steps=6, num_samples=1, keep_last=0)
    assert status == 0
    for change in ("max_steps: was 5, now 6", "num_samples: was 5, now 1", "keep_last: was 1, now 0"):
        assert f"training.{change}" in err
    shutil.copy(corpus / "train.en", tmp_path / "moved.en")
    moved = {"corpus.train": f"{{files: [moved.en, {corpus / 'train.xx'}]}}"}
    _, _, err = train("run", max_steps=6, num_samples=1, keep_last=0, **moved)
    assert "corpus.train[0].files[0]: was " in err and 'now "moved.en"' in err


def test_a_run_that_is_being_trained_is_neither_resumed_nor_moved_aside(train, begin, tmp_path):
    begin("run", max_steps=5)
    with RunDirectory(tmp_path / "runs/run").locked():
        for arguments in ((), ("--fresh",)):
            status, _, err = train("run", *arguments)
            assert status == 2 and "another process trains this run" in err
    assert not (tmp_path / "runs/run.old-1").exists()
    assert train("run", max_steps=5)[0] == 0


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


def remove(path):
    path.unlink()


FAULTS = [
    # file, fault, what the message names, exit status
    ("own.xx", edit, "corpus.train (own.en)", 2),
    ("own.en", remove, "own.en: no such file", 2),
    ("runs/run/tokenizer.target.json", swap_entries, "tokenizer.target.json", 2),
    ("runs/run/tokenizer.source.json", remove, "tokenizer.source.json", 2),
    ("runs/run/config.yaml", lambda path: path.write_text("}{"), "config.yaml", 2),
    ("runs/run/report.json", replace_by_folder, "report.json: cannot be written", 1),
    ("runs/run/metrics.jsonl", remove, "metrics.jsonl: shorter", 0),
    ("runs/run/checkpoints/last.safetensors", flip_bit, "skipped, step-6.safetensors is used instead", 0),
    ("runs/run/checkpoints/step-6.safetensors", replace_by_folder, "", 0),
]


@pytest.mark.parametrize(("name", "fault", "named", "expected"), FAULTS, ids=[row[0] for row in FAULTS])
def test_a_damaged_file_is_named_and_the_run_goes_on(
    train, begin, assert_same_run, tiny_tree, tmp_path, corpus, name, fault, named, expected
):
    for side in ("en", "xx"):
        shutil.copy(corpus / f"train.{side}", tmp_path / f"own.{side}")
    tiny_tree["corpus"]["train"] = {"files": ["own.en", "own.xx"]}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    begin("run", max_steps=12, ema_decay=0.9)
    path, last = tmp_path / name, tmp_path / "runs/run/checkpoints/last.safetensors"
    content, state = path.read_bytes() if path.is_file() else None, last.read_bytes()
    fault(path)
    status, _, err = train("run", max_steps=18, ema_decay=0.9)
    assert status == expected and "Traceback" not in err
    assert named in err
    if expected:
        assert expected == 1 or last.read_bytes() == state
        path.rmdir() if path.is_dir() else None
        if expected == 2:
            path.write_bytes(content)
        assert train("run", max_steps=18, ema_decay=0.9)[0] == 0
    assert report_of(tmp_path / "runs/run")["num_steps"] == 18
    if path.stem in ("last", "step-6"):
        assert_same_run(tmp_path / "runs/run", begin("whole", max_steps=18, ema_decay=0.9))


def test_a_lost_best_checkpoint_is_replaced_by_the_average(train, begin, tmp_path):
    options = {"ema_decay": 0.9, "best_metric": "chrf", "max_steps": 12}
    before = tensors_of(begin("run", **options), "last")
    flip_bit(tmp_path / "runs/run/checkpoints/best.safetensors")
    for changes, words in (({}, "is missing or damaged"), ({"best_metric": "loss"}, "was chosen by chrf")):
        assert words in train("run", **options | changes)[2]
        assert_equal(tensors_of(tmp_path / "runs/run", "best"), tensors_of(tmp_path / "runs/run", "last", "average"))
        assert_equal(tensors_of(tmp_path / "runs/run", "last"), before)


def test_no_file_changes_when_every_state_is_damaged(train, begin, tmp_path):
    begin("run", max_steps=5)
    paths = list((tmp_path / "runs/run/checkpoints").glob("*.safetensors"))
    for path in paths:
        flip_bit(path)
    before = [path.read_bytes() for path in paths]
    status, _, err = train("run")
    assert status == 2
    assert err.count("damaged checkpoint") == 2 and "--fresh" in err
    assert [path.read_bytes() for path in paths] == before
    assert train("run", "--fresh", max_steps=1)[0] == 0


@pytest.mark.parametrize("place", ["runs", "runs/run"])
def test_a_file_in_the_place_of_a_folder_is_named(train, tmp_path, place):
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("not a folder")
    status, _, err = train("run")
    assert status == 2 and "runs/run: " in err


LIMITED = """
import resource, sys
from mt_cli.cli import main as cli

resource.setrlimit(resource.RLIMIT_FSIZE, ({num_bytes}, {num_bytes}))
sys.argv = ["mt", *"train --config tiny.yaml --set name=run --set training.max_steps=12".split()]
cli.main()
"""
"""Runs `mt` in a process that cannot write larger files."""


def test_a_disk_that_fills_up_while_saving_leaves_the_previous_checkpoint(train, begin, mt, fork_server, tmp_path):
    begin("run", max_steps=5)
    checkpoints = tmp_path / "runs/run/checkpoints"
    before = (checkpoints / "last.safetensors").read_bytes()
    program = tmp_path / "limited.py"
    program.write_text(LIMITED.format(num_bytes=len(before) // 2), encoding="utf-8")
    fork_server.start(tmp_path, program=str(program))
    [status] = fork_server.wait()
    err = (tmp_path / "stream.2").read_text(encoding="utf-8")
    assert status == 1 and "Traceback" not in err, err
    assert "cannot be written" in err and "safetensors" in err and not list(checkpoints.glob("*.tmp"))
    assert (checkpoints / "last.safetensors").read_bytes() == before
    assert mt("translate", "one.", "--run", "runs/run")[0] == 0
    assert train("run", max_steps=12)[0] == 0


def tensors_of(run, name, kind="model"):
    tensors = load_file(run / f"checkpoints/{name}.safetensors")
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
    average, raw = (tensors_of(tmp_path / "runs/with", "last", kind) for kind in ("average", "model"))
    assert_equal(raw, tensors_of(tmp_path / "runs/without", "last"))
    assert not any(torch.equal(average[name], raw[name]) for name in raw)
    assert_equal(average, validated[-1])
    assert_equal(average, tensors_of(tmp_path / "runs/with", "best"))
    for name, kind in (("with", "best"), ("without", "last")):
        assert not tensors_of(tmp_path / "runs" / name, kind, "average")
    for name in ("last", "best"):
        loaded = TrainedRun.load(tmp_path / "runs/with", name).model
        assert_equal({name: each.detach() for name, each in loaded.named_parameters()}, average)


def test_the_average_of_a_run_is_the_plain_recurrence_over_its_steps_skipped_ones_included(
    train, tmp_path, monkeypatch
):
    overflow_at(monkeypatch, 4)
    assert train("run", ema_decay=0.4, max_steps=8, save_every_minutes=1e-9, keep_last=100)[0] == 0
    names = [*(f"step-{step}" for step in (0, 1, 2, 3, 3, 5, 6, 7)), "last"]  # No state is kept after a skipped step.
    states = [[tensors_of(tmp_path / "runs/run", name, kind) for kind in ("model", "average")] for name in names]
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
        assert_equal(tensors_of(tmp_path / "runs/run", "last", kind), tensors_of(tmp_path / "runs/other", "last", kind))


@pytest.mark.parametrize(
    ("keep_last", "learning_rate", "every"),
    [
        (1, 1e30, 6),
        (0, 1e30, 4),
        (1, 1e6, 1),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(0, 1e6, 1), (1, 1e30, 4), (3, 1e6, 1)]),
    ],
)
def test_training_that_diverges_goes_back_twice_and_then_stops(train, tmp_path, keep_last, learning_rate, every):
    options = {"validate_every_steps": every, "keep_last": keep_last, "learning_rate": learning_rate}
    options |= {"max_bad_steps": 3 if every == 6 else 9, "warmup_steps": 0, "label_smoothing": 0.0, "max_epochs": 100}
    status, _, err = train("run", **options)
    assert status == 1, err
    assert err.count("going back to step") == 2 and ", with 0.25 of the learning rate" in err
    assert f"mt: runs/run: training diverged: in {options['max_bad_steps']} steps in a row" in err
    assert "no saved state" not in err and not (tmp_path / "runs/run/report.json").exists()
    rows = [json.loads(line) for line in (tmp_path / "runs/run/bad_batch.jsonl").read_text().splitlines()]
    assert rows and all(row["source"].upper() == row["target"] for row in rows)
    if every == 6:
        status, _, err = train("run", **options)  # Not a fourth time from the beginning.
        assert status == 1 and "going back" not in err


@pytest.mark.parametrize(
    ("keep_last", "is_stopped", "bad_from"),
    [
        *((0, False, 7), (2, True, 3), (0, True, 14)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(0, False, 3), (0, False, 14), (2, True, 7), (2, True, 14), (0, True, 3), (0, True, 7)]
        ),
    ],
)
def test_a_run_whose_steps_go_wrong_for_a_while_goes_back_before_that(
    train, tmp_path, monkeypatch, keep_last, bad_from, is_stopped
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
    report = report_of(tmp_path / "runs/run")
    assert (report["num_bad_steps"], report["num_restarts"], report["num_steps"]) == (12, 1, bad_from + 14)
    assert len(list((tmp_path / "runs/run/checkpoints").glob("step-*"))) == keep_last


def test_a_single_bad_step_is_skipped_and_counted(train, tmp_path, monkeypatch):
    overflow_at(monkeypatch, 7)
    status, _, err = train("run", max_bad_steps=2)
    assert status == 0
    assert err.count("the loss or the gradient is not finite") == 1 and "1 steps were skipped" in err
    report = report_of(tmp_path / "runs/run")
    assert (report["num_bad_steps"], report["num_restarts"], report["num_steps"]) == (1, 0, 22)
    rows = rows_of(tmp_path / "runs/run")
    assert [row["step"] for row in rows if "train/loss" in row] == [4, 8, 12, 16, 20]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_that_ends_with_scores_that_are_not_numbers_reports_it(train, mt, precision):
    status, _, err = train("run", learning_rate=1e30, warmup_steps=0, max_steps=1, precision=precision)
    assert status == 1, err
    assert "mt: the scores of this model are not numbers, because its training diverged" in err
    for words in (["--beam-size", "1"], ["--beam-size", "3"], ["--sample"]):
        status, out, err = mt("translate", "one.", "--run", "runs/run", *words)
        assert (status, out) == (1, "") and "are not numbers" in err


@pytest.mark.parametrize(
    ("owner", "name", "message"),
    [
        (Validator, "validate", "interrupted after the last step; the same command does the rest"),
        (finish, "evaluate", "the model is saved"),
    ],
)
def test_an_interrupt_after_the_last_step_says_so_and_the_same_command_does_the_rest(
    train, tmp_path, monkeypatch, owner, name, message
):
    work, report = getattr(owner, name), tmp_path / "runs/run/report.json"

    def interrupted(*arguments, **options):
        os.kill(os.getpid(), signal.SIGINT)
        return work(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        status, _, err = train("run", max_steps=4)
    assert status == 130 and message in err and not report.exists()
    assert train("run", max_steps=4)[0] == 0 and report.exists()


def test_the_best_begins_anew_when_its_metric_changes(train, tmp_path):
    def best():
        return checkpoint_content(tmp_path / "runs/one/checkpoints/best.safetensors")[1]

    assert train("one", best_metric="bleu", max_steps=12, keep_last=5)[0] == 0
    assert best()["best_metric"] == "bleu/13a"
    status, _, err = train("one", best_metric="loss", max_steps=12, keep_last=5)
    assert status == 0 and "was chosen by bleu/13a; from here on it is chosen by loss" in err
    assert (best()["best_metric"], best()["best_step"]) == ("loss", 12)
    assert "nothing is left to do" in train("one", best_metric="loss", max_steps=12, keep_last=5)[2]
    status, _, err = train("one", best_metric="loss", max_steps=22, keep_last=5)
    assert status == 0 and "was chosen by" not in err
    losses = {row["step"]: row["valid/loss"] for row in rows_of(tmp_path / "runs/one") if "valid/loss" in row}
    losses = {step: loss for step, loss in losses.items() if step >= 12}
    assert best()["best_step"] == min(losses, key=losses.get)
    assert -best()["best_value"] == pytest.approx(min(losses.values()), rel=1e-4)


def test_a_finished_run_is_scored_again_with_another_tokenizer(train, begin, tmp_path):
    begin("one", max_steps=5)
    assert "|tok:13a|" in report_of(tmp_path / "runs/one")["bleu"]["signature"]
    status, _, err = train("one", "--set", "evaluation.bleu_tokenizer=char", max_steps=5)
    assert status == 0 and "nothing is left" not in err
    assert "|tok:char|" in report_of(tmp_path / "runs/one")["bleu"]["signature"]


def test_a_finished_run_stays_finished_though_its_test_is_in_another_language(train, corpus):
    files = f"[{corpus / 'test.en'}, {corpus / 'test.xx'}]"
    test = ("--set", f"corpus.test={{files: {files}, languages: [en, ja]}}")
    assert train("one", *test, max_steps=5)[0] == 0
    assert "nothing is left to do" in train("one", *test, max_steps=5)[2]


CHANGES = {
    "search": {
        **{
            "beam_size": 1,
            "length_penalty": 0.5,
            "length_penalties": "{<2xx>: 2.0}",
            "max_length_ratio": 1.0,
            "capitals": "lower",
        },
        **{"min_length": 2, "max_length": 3, "no_repeat_ngram": 1, "unk": "keep", "batch_tokens": 50, "sample": "true"},
        **{"temperature": 2.0, "top_k": 3, "top_p": 0.5, "seed": 2},
    },
    "records": {
        **{"best_metric": "loss", "validate_every_steps": 2, "save_every_minutes": 1e-9, "keep_last": 0},
        **{"max_bad_steps": 1, "log_every_steps": 3, "num_samples": 0, "num_pictures": 1, "keep_validated": 2},
        **{"average_checkpoints": 2, "tune_decoding": "true", "recompute_layers": "true", "shard_model": "true"},
        **{"compile": "true", "cuda_graphs": "true", "planned_for": "cpu", "evaluation.num_resamples": 5},
        **{"evaluation.bleu_tokenizer": "char", "corpus.accept_processed": "true"},
    },
    "rounding": {"device": "auto", "num_threads": 2},  # Numbers are added in another order.
    **{name: {name: value} for name, value in {"max_steps": 7, "max_epochs": 1, "patience": 1}.items()},
    "max_minutes": {"max_minutes": 1e-9},
}
"""Options of `decoding`, or of `training` unless they have a dot, by groups that are changed together."""
NUM_STEPS = 12


def dotted(group):
    section = "decoding" if group == "search" else "training"
    return {key if "." in key else f"{section}.{key}": value for key, value in CHANGES[group].items()}


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
    changed = [key for group in CHANGES for key in dotted(group)]
    assert sorted(key for key in flat(config) if may_change(key)) == sorted(changed)


@pytest.mark.parametrize("group", CHANGES)
def test_options_that_may_change_leave_the_weights_equal(saved_at_each_step, tmp_path, group):
    run, folder = saved_at_each_step
    num_threads = torch.get_num_threads()
    shutil.copytree(folder / "part", tmp_path / "runs")
    try:
        few = ["training.max_steps=5"] * (group == "rounding")  # Threads may wait for each other.
        step = run(tmp_path / "runs", *(f"{key}={value}" for key, value in dotted(group).items()), *few).num_steps
    finally:
        torch.set_num_threads(num_threads)
    assert step > 3 or group == "max_minutes"
    whole = RunDirectory(folder / "whole" / "tiny")
    expected = whole.last_path if step == NUM_STEPS else whole.path_of(f"step-{step}")
    ours, theirs = (load_file(path) for path in (tmp_path / "runs/tiny/checkpoints/last.safetensors", expected))
    assert ours.keys() == theirs.keys()
    atol = 1e-5 if group == "rounding" else 0.0
    assert all(torch.allclose(ours[name], theirs[name], rtol=0, atol=atol) for name in ours)
