"""Resuming: a run that was stopped ends as one that was not, whatever stopped it and whatever was damaged."""

import json
import os
import shutil
import signal
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import yaml
from run_content import assert_equal_tensors, checkpoint_content, metrics_of, report_of, rows_of, tensors_of

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.loading import load_config
from mt_cli.run import averages, finish, loop, setup
from mt_cli.run.log import TrainingLog
from mt_cli.run.validation import Validator
from mt_cli.training.gradients import GradientAccumulator


@pytest.fixture
def train(quick_train):
    """Runs `mt train` on the tiny config under a name, with options of `training`, in four validations and 22 steps."""
    return quick_train(validate_every_steps=6, log_every_steps=4, schedule="constant")


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


SUBWORDS = {"tokenizer.algorithm": "bpe", "tokenizer.vocab_size": 320}
SUBWORDS |= {"batch_tokens": 1000, "validate_every_steps": 1000}  # Few steps, because every step segments words anew.
MIXED = {"tokenizer.shared": "true", "corpus.terms": "true", "concatenated_pairs": 0.5, "inserted_words": 0.5}
LIKELY = {"corpus.both_directions": "true", "corpus.tag": "to_target", "corpus.filters.keep_likely": 0.5}
MOMENTS = (3, 6, 11, 22)
"""In the middle, where a validation is due, at the end of an epoch, at the very end."""
LIMITS = ({"max_minutes": 1e-9}, {"max_steps": 12}, {"max_epochs": 2})
CASES = {
    "muon and average": ({"ema_decay": 0.8, "optimizer": "muon"}, MOMENTS[1:3]),
    "limits": ({}, LIMITS),
    "keep likely": ({**LIKELY, "ema_decay": 0.9, "validate_every_steps": 30}, (30, 33)),
    "bpe dropout": ({**SUBWORDS, "tokenizer.bpe_dropout": 0.2}, (3,)),
}
SLOW_CASES = {
    "default": ({}, MOMENTS[1:3]),
    "rotary, bf16": ({"model.positions": "rotary", "precision": "bf16", "ema_decay": 0.9}, MOMENTS),
    "keep likely, in pools": ({**LIKELY, "save_every_minutes": 1e-9, "max_epochs": 3}, (3, 42, 43, 75)),
    "accumulated, fp16": ({"micro_batches_per_step": 3, "precision": "fp16", "max_epochs": 6}, MOMENTS),
    "augmented": ({**SUBWORDS, **MIXED, "tokenizer.bpe_dropout": 0.2}, (3, 4)),
}


@pytest.mark.parametrize(
    ("options", "stops"),
    [
        *(pytest.param(*case, id=name) for name, case in CASES.items()),
        *(pytest.param(*case, id=name, marks=pytest.mark.slow) for name, case in SLOW_CASES.items()),
    ],
)
def test_a_stopped_run_equals_an_unstopped_one(train, begin, assert_same_run, tmp_path, monkeypatch, options, stops):
    """By signals at steps, or by limits."""
    whole = begin("whole", **options)
    for stop in stops:
        if isinstance(stop, dict):
            status, _, err = train("parts", **options, **stop)
            assert status == 0 and f"Stopped by {next(iter(stop))}" in err
        else:
            act_at(monkeypatch, stop, send(signal.SIGTERM))
            status, _, err = train("parts", **options)
            assert status == 130 and f"step {stop}" in err.splitlines()[-1]
    if isinstance(stops[-1], int):
        status, _, err = train("parts", **options)
        assert status == 0 and f"Resuming from step {stops[-1]}." in err, err
    assert_same_run(tmp_path / "runs/parts", whole)


@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_going_on_keeps_the_best_weights_of_an_end(train, tmp_path, monkeypatch, schedule):
    """With a constant learning rate, the run equals one that never stopped, and says so."""
    options, run = {"schedule": schedule, "best_metric": "loss"}, RunDirectory(tmp_path / "runs/run")
    assert train("run", max_steps=8, **options)[0] == 0
    assert run.best_state().best_step == 8, "not due, and better than the validation at step 6"
    act_at(monkeypatch, 9, send(signal.SIGTERM))
    status, _, err = train("run", max_steps=22, **options)
    best_step = 8 if schedule == "linear" else 6
    assert status == 130 and run.best_state().best_step == run.newest_state().best_step == best_step
    assert ("the best step is 6 again" in err) == (best_step == 6)
    metrics = (run.path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [row["step"] for row in map(json.loads, metrics) if "valid/loss" in row]
    assert rows == ([6, 8] if best_step == 8 else [6])


@pytest.fixture
def slow_steps(monkeypatch):
    """A clock of training that advances with each step, from step 25 half as much as before, and by nothing else."""
    planned_rate, seconds = loop.planned_rate, [0.0]

    def tick(config, step, *others):
        seconds[0] += 0.5 if step < 25 else 0.25
        return planned_rate(config, step, *others)

    monkeypatch.setattr(loop, "planned_rate", tick)
    monkeypatch.setattr("mt_cli.run.loop.time", SimpleNamespace(monotonic=lambda: seconds[0]))


@pytest.mark.usefixtures("slow_steps")
@pytest.mark.parametrize("stops", [(15,), pytest.param((1, 7, 10, 20, 23, 31), marks=pytest.mark.slow)])
def test_a_run_fitted_to_the_clock_ends_at_zero(train, assert_same_run, tmp_path, monkeypatch, stops):
    options = {"schedule": "linear", "max_epochs": "null", "log_every_steps": 1, "validate_every_steps": 8}
    options |= {"max_minutes": 30 / 60, "warmup_steps": 10}
    error = train("whole", **options)[2]
    assert "Stopped by max_minutes" in error and "The machine has become faster" in error
    rates = [row["train/learning_rate"] for row in rows_of(tmp_path / "runs/whole") if "train/loss" in row]
    assert 60 < len(rates) < 110
    assert max(rates) == rates[9] and rates[9:] == sorted(rates[9:], reverse=True) and rates[-1] == 0
    for step in stops:
        act_at(monkeypatch, step, send(signal.SIGTERM))
        assert train("parts", **options)[0] == 130
    assert train("parts", **options)[0] == 0
    assert_same_run(tmp_path / "runs/parts", tmp_path / "runs/whole")


def test_a_run_that_its_limit_ended_is_scored_once(train, begin, monkeypatch):
    """Another process may have trained the run, so its scores, which depend on rounding, are not compared."""
    run, evaluate, scored = begin("run", max_steps=5), finish.evaluate, []
    monkeypatch.setattr(finish, "evaluate", lambda *arguments: scored.append(1) or evaluate(*arguments))
    report, best = report_of(run), tensors_of(run, "best")
    assert report["best_step"] == report["num_steps"] == 5
    assert "nothing is left to do" in train("run", max_steps=5)[2] and not scored
    kept = {key: value for key, value in report.items() if key not in ("bleu", "speed")}
    (run / "report.json").write_text(json.dumps(kept), encoding="utf-8")
    assert train("run", max_steps=5)[0] == 0
    assert len(scored) == 1 and list(report_of(run)) == list(report)
    assert train("run", "--set", "evaluation.bleu_tokenizer=char", max_steps=5)[0] == 0
    assert len(scored) == 2 and "|tok:char|" in report_of(run)["bleu"]["signature"]
    assert_equal_tensors(tensors_of(run, "best"), best)


def test_the_trained_model_is_freed_before_the_best_is_loaded(train, tmp_path, monkeypatch):
    """Its optimizer and graphs, too: both would not fit on a device that training has filled. Precision is as there."""
    load, build, trained, alive = finish.Translator.load, setup.build_optimizer, [], []

    def build_optimizer(model, config):
        optimizer = build(model, config)
        trained.extend(map(weakref.ref, (model, optimizer)))
        return optimizer

    def load_best(path, device, precision):
        assert precision == "bf16"
        alive.extend(reference() is not None for reference in trained)
        return load(path, device, precision)

    monkeypatch.setattr(setup, "build_optimizer", build_optimizer)
    monkeypatch.setattr(finish.Translator, "load", load_best)
    assert train("run", max_steps=3, average_checkpoints=2, precision="bf16")[0] == 0
    assert alive == [False, False] and report_of(tmp_path / "runs/run")["precision"] == "bf16"


def test_a_state_is_saved_now_and_then_and_at_signals(train, tmp_path, monkeypatch):
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


SEARCH = {"beam_size": 1, "length_penalty": 0.5, "max_length_ratio": 0.1, "unk": "keep", "sample": "true", "top_p": 0.5}
RECORDS = {
    **{"validate_every_steps": 2, "save_every_minutes": 1e-9, "keep_last": 0},
    **{"log_every_steps": 3, "average_checkpoints": 2, "tune_decoding": "true", "patience": 100},
    **{"evaluation.bleu_tokenizer": "char"},
}


@pytest.mark.parametrize(
    "changes", [{f"decoding.{key}": value for key, value in SEARCH.items()}, RECORDS], ids=["search", "records"]
)
def test_options_that_may_change_leave_the_weights_equal(train, begin, tmp_path, changes):
    begin("run", max_steps=5)
    whole = begin("whole", max_steps=10)
    status, _, err = train("run", max_steps=10, **changes)
    assert status == 0, err
    assert all((key if "." in key else f"training.{key}") + ": was " in err for key in ("max_steps", *changes))
    assert_equal_tensors(*(tensors_of(run, "last") for run in (tmp_path / "runs/run", whole)))


def test_changes_of_what_is_trained_need_fresh(train, begin, tmp_path):
    begin("run", max_steps=5)
    status, _, err = train("run", max_steps=6, batch_tokens=100, **{"corpus.train.files": "[moved.en, moved.xx]"})
    assert status == 2 and "--fresh" in err and "max_steps" not in err
    assert "training.batch_tokens: was 220, now 100" in err and "corpus.train[0].files[0]: was " in err
    assert train("run", "--fresh", max_steps=1, batch_tokens=100)[0] == 0
    configs = [load_config(tmp_path / "runs" / name / "config.yaml") for name in ("run.old-1", "run")]
    assert [config.training.batch_tokens for config in configs] == [220, 100]


def test_a_run_that_is_being_trained_is_left_alone(train, begin, tmp_path):
    begin("run", max_steps=5)
    with RunDirectory(tmp_path / "runs/run").locked():
        for arguments in ((), ("--fresh",)):
            status, _, err = train("run", *arguments)
            assert status == 2 and "another process trains this run" in err
    assert not (tmp_path / "runs/run.old-1").exists()


def truncate(path):
    os.truncate(path, path.stat().st_size - 1)


def replace_by_folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def edit(path):
    path.write_text(path.read_text(encoding="utf-8").replace("ONE", "EINS", 1), encoding="utf-8")


def remove(path):
    path.unlink()


FAULTS = [
    # file, fault, what the message names, exit status
    ("own.xx", edit, "corpus.train (own.en)", 2),
    ("runs/run/metrics.jsonl", remove, "", 0),
    ("runs/run/checkpoints/last.safetensors", truncate, "renamed to last.safetensors.damaged-1", 0),
]
SLOW_FAULTS = [
    ("runs/run/tokenizer.source.json", remove, "tokenizer.source.json", 2),
    ("runs/run/report.json", replace_by_folder, "report.json", 1),
    ("runs/run/checkpoints/step-6.safetensors", replace_by_folder, "", 0),
]


@pytest.mark.parametrize(
    ("name", "fault", "named", "expected"),
    [*FAULTS, *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW_FAULTS)],
    ids=[row[0] for row in FAULTS + SLOW_FAULTS],
)
def test_a_damaged_file_is_named_and_the_run_goes_on(
    train, begin, assert_same_run, quick_tree, tmp_path, corpus, name, fault, named, expected
):
    for side in ("en", "xx"):
        shutil.copy(corpus / f"train.{side}", tmp_path / f"own.{side}")
    quick_tree["corpus"]["train"] = {"files": ["own.en", "own.xx"]}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(quick_tree), encoding="utf-8")
    run = begin("run", max_steps=12, ema_decay=0.9)
    path, last = tmp_path / name, run / "checkpoints/last.safetensors"
    content, state = path.read_bytes(), last.read_bytes()
    fault(path)
    status, _, err = train("run", max_steps=18, ema_decay=0.9)
    assert status == expected and named in err and "Traceback" not in err
    if expected:
        assert expected == 1 or last.read_bytes() == state
        if path.is_dir():
            path.rmdir()
        path.write_bytes(content)
        assert train("run", max_steps=18, ema_decay=0.9)[0] == 0
    assert report_of(run)["num_steps"] == 18
    if path.suffix == ".safetensors":
        assert path.is_dir() or path.with_name(f"{path.name}.damaged-1").read_bytes() == content[:-1]
        assert_same_run(run, begin("whole", max_steps=18, ema_decay=0.9))


def test_a_lost_best_checkpoint_is_replaced_by_the_average(train, begin):
    options = {"ema_decay": 0.9, "best_metric": "chrf", "max_steps": 6}
    run = begin("run", **options)
    before = tensors_of(run, "last")
    truncate(run / "checkpoints/best.safetensors")
    assert "is damaged and renamed to best.safetensors.damaged-1" in train("run", **options)[2]
    assert_equal_tensors(tensors_of(run, "best"), tensors_of(run, "last", "average"))
    assert_equal_tensors(tensors_of(run, "last"), before)


def test_a_library_that_raises_costs_no_checkpoint(train, begin, assert_same_run, tmp_path, monkeypatch):
    """The traceback is shown, because the fault is not in a file, and the same command resumes without the fault."""
    run, whole = begin("run", max_steps=12), begin("whole", max_steps=18)
    before = {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()}

    def load_state_dict(self, state):
        raise TypeError("load_state_dict() got an unexpected keyword argument 'decoupled'")

    with monkeypatch.context() as patch, pytest.raises(TypeError, match="decoupled"):
        patch.setattr("torch.optim.Optimizer.load_state_dict", load_state_dict)
        train("run", max_steps=18)
    assert {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()} == before
    status, _, err = train("run", max_steps=18)
    assert status == 0 and "Resuming from step 12." in err
    assert_same_run(run, whole)


def test_no_file_changes_when_every_state_is_damaged(train, begin):
    run = begin("run", max_steps=5)
    paths = list((run / "checkpoints").glob("*.safetensors"))
    for path in paths:
        truncate(path)
    before = [path.read_bytes() for path in paths]
    status, _, err = train("run")
    assert status == 2 and "damaged" in err and "--fresh" in err
    assert [path.read_bytes() for path in paths] == before


def test_an_average_is_validated_and_saved_as_the_best(train, begin, tmp_path, monkeypatch):
    from mt_cli.checkpoint.trained import TrainedRun

    without, validated, validate = begin("without", max_steps=6), [], Validator.validate

    def note(self, *model):
        validated.append({name: each.detach().clone() for name, each in self._model.named_parameters()})
        return validate(self, *model)

    monkeypatch.setattr(Validator, "validate", note)
    assert train("with", ema_decay=0.9, max_steps=6)[0] == 0
    run = tmp_path / "runs/with"
    average = tensors_of(run, "last", "average")
    assert_equal_tensors(tensors_of(run, "last"), tensors_of(without, "last"))
    assert_equal_tensors(average, validated[-1])
    assert_equal_tensors(average, tensors_of(run, "best"))
    for name in ("last", "best"):
        model = TrainedRun.load(run, name).model
        assert_equal_tensors({name: each.detach() for name, each in model.named_parameters()}, average)


def test_training_that_diverges_ends_with_a_message(train, tmp_path, monkeypatch):
    overflow_at(monkeypatch, 8, 1000)
    for resumed in ("", "Resuming from step 12."):
        status, _, err = train("run", max_epochs=100)
        assert status == 1 and "mt: training diverged" in err and resumed in err, err
    assert not (tmp_path / "runs/run/report.json").exists()


def test_a_single_bad_step_is_skipped_and_counted(train, tmp_path, monkeypatch):
    overflow_at(monkeypatch, 7)
    status, _, err = train("run", max_steps=12)
    assert status == 0 and "1 steps were skipped" in err
    report = report_of(tmp_path / "runs/run")
    assert (report["num_bad_steps"], report["num_steps"]) == (1, 12)
    assert [row["step"] for row in metrics_of(tmp_path / "runs/run") if "train/loss" in row] == [4, 8, 12]


def test_an_interrupted_end_is_repeated(train, begin, assert_same_run, tmp_path, monkeypatch):
    """The run can go on as one that ended otherwise."""
    options = {"average_checkpoints": 2, "tune_decoding": "true"}
    options["corpus.extra_tests"] = "{web: {files: [test.en, test.xx]}}"
    short, long = (begin(f"whole{steps}", max_steps=steps, **options) for steps in (9, 15))
    run, interrupted = tmp_path / "runs/run", []

    def interrupt_once(patch, owner, name):
        work = getattr(owner, name)

        def interruptible(*arguments, **other):
            if name not in interrupted:
                interrupted.append(name)
                os.kill(os.getpid(), signal.SIGINT)
            return work(*arguments, **other)

        patch.setattr(owner, name, interruptible)

    with monkeypatch.context() as patch:
        for owner, name in ((averages, "replaced"), (finish, "tune_at_end"), (finish, "evaluate")):
            interrupt_once(patch, owner, name)
        while train("run", max_steps=9, **options)[0] == 130:
            assert not (run / "report.json").exists()
    assert interrupted == ["replaced", "tune_at_end", "evaluate"]
    assert_same_run(run, short)
    assert train("run", max_steps=15, **options)[0] == 0
    assert_same_run(run, long)


def test_the_best_begins_anew_when_its_metric_changes(train, begin):
    run = begin("run", max_steps=12, best_metric="bleu", keep_last=5)

    def best():
        return checkpoint_content(run / "checkpoints/best.safetensors")[1]

    assert best()["best_metric"] == "bleu/13a"
    options = {"best_metric": "loss", "keep_last": 5}
    status, _, err = train("run", max_steps=12, **options)
    assert status == 0 and "was chosen by bleu/13a" in err
    assert (best()["best_metric"], best()["best_step"]) == ("loss", 12)
    status, _, err = train("run", max_steps=22, **options)
    assert status == 0 and "was chosen by" not in err
    losses = {row["step"]: row["valid/loss"] for row in rows_of(run) if "valid/loss" in row and row["step"] >= 12}
    assert best()["best_step"] == min(losses, key=losses.get)
