import json
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from run_content import assert_equal_tensors, metrics_of, report_of, tensors_of

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.run import averages as averaging
from mt_cli.run.validation import Validator


@pytest.fixture
def train(quick_train):
    """Runs `mt train` on the tiny config under a name, with options of `training`; 22 steps, the last off schedule."""
    return quick_train(validate_every_steps=4, schedule="constant", best_metric="loss")


def file_of(run, name):
    return run / "checkpoints" / f"{name}.safetensors"


def validated_in(run):
    return sorted(int(path.stem.partition("-")[2]) for path in (run / "checkpoints").glob("validated-*"))


def assert_mean(run, name, steps):
    parts = [tensors_of(run, f"validated-{step}") for step in steps]
    mean = {key: torch.stack([part[key] for part in parts]).mean(0) for key in parts[0]}
    weights = tensors_of(run, name)
    assert all(torch.allclose(weights[key], mean[key], rtol=1e-6, atol=1e-7) for key in mean)


@pytest.fixture
def mean_loss(monkeypatch):
    """A function that sets the validation loss of every mean of checkpoints."""
    validate, replaced = Validator.validate, averaging.replaced

    def set_loss(loss):
        def validate_mean(self):
            validation = validate(self)
            return replace(validation, value=-loss, metrics={**validation.metrics, "valid/loss": loss})

        @contextmanager
        def replaced_and_scored(model, weights):
            with replaced(model, weights), pytest.MonkeyPatch.context() as patch:
                patch.setattr(Validator, "validate", validate_mean)
                yield

        monkeypatch.setattr(averaging, "replaced", replaced_and_scored)

    return set_loss


def test_validated_checkpoints_and_means_are_no_event_of_a_run(train, assert_same_run, tmp_path, mt):
    whole, parts = tmp_path / "runs/whole", tmp_path / "runs/parts"
    options = {"average_checkpoints": 3, "ema_decay": 0.9, "learning_rate": 0.03}
    assert train("whole", **options)[0] == 0
    status, _, err = train("parts", max_steps=10, **options)
    assert status == 0 and "mean of steps" in err, err
    assert mt("average", "--run", parts, "--last", 2)[0] == 0
    assert train("parts", **options)[0] == 0
    assert_same_run(parts, whole)
    losses = [(row["valid/loss"], row["step"]) for row in metrics_of(whole) if "valid/loss" in row]
    *saved, end = losses  # The last validation comes after the last save, which removes checkpoints.
    expected = {end[1], *(step for _, step in saved[-3:]), *(step for _, step in sorted(saved)[:3])}
    assert validated_in(parts) == validated_in(whole) == sorted(expected)
    for step in validated_in(whole):
        assert_equal_tensors(tensors_of(parts, f"validated-{step}"), tensors_of(whole, f"validated-{step}"))


def test_a_better_mean_is_the_best_checkpoint_of_its_run(train, mt, mean_loss, tmp_path):
    run = tmp_path / "runs/run"
    mean_loss(0.001)
    status, _, err = train("run", average_checkpoints=2, max_steps=10)
    assert status == 0 and err.count("mean of steps") == 1, err
    assert_mean(run, "best", [8, 10])
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert (report["averaged_steps"], report["best_step"]) == ([8, 10], 10)
    for name in ("validated-8", "validated-10"):
        assert mt("translate", "one.", "--run", run, "--checkpoint", name)[0] == 0
    (run / "report.json").unlink()
    assert train("run", average_checkpoints=2, max_steps=10)[0] == 0
    assert_mean(run, "best", [8, 10])


def test_a_mean_that_is_not_better_never_becomes_the_best(begin, mt, mean_loss):
    run = begin("run", max_steps=14, average_checkpoints=3)
    mean_loss(99.0)
    before = file_of(run, "best").read_bytes()
    status, out, _ = mt("average", "--run", run, "--best", 2)
    assert status == 0 and out.rstrip().endswith("the best checkpoint stays")
    assert file_of(run, "best").read_bytes() == before


def test_resuming_brings_back_what_the_command_averaged(train, mt, mean_loss, tmp_path, assert_same_run):
    whole, run = tmp_path / "runs/whole", tmp_path / "runs/run"
    mean_loss(99.0)
    for name, max_steps in (("run", 14), ("whole", 18)):
        assert train(name, average_checkpoints=3, max_steps=max_steps)[0] == 0
    best, best_step = tensors_of(run, "best"), report_of(run)["best_step"]
    for loss, option, steps in ((0.02, "--last", [8, 12, 14]), (0.01, "--best", [8, 12, 14])):
        mean_loss(loss)
        status, out, _ = mt("average", "--run", run, option, 3)
        assert status == 0 and "the new best" in out
        assert_mean(run, "best", steps)
        assert_equal_tensors(tensors_of(run, f"validated-{best_step}"), best)
    mean_loss(99.0)
    assert train("run", average_checkpoints=3, max_steps=18)[0] == 0
    assert_same_run(run, whole)


@pytest.mark.parametrize(
    ("training", "arguments", "advice"),
    [
        ({"max_steps": 14, "average_checkpoints": 3}, ("--best", 4), "number up to 3"),
        ({"max_steps": 9}, ("--best", 2), "training.average_checkpoints"),
        ({"max_steps": 3, "average_checkpoints": 5}, ("--last", 2), "training.validate_every_steps"),
    ],
)
def test_an_average_without_checkpoints_names_what_helps(begin, mt, training, arguments, advice):
    status, _, err = mt("average", "--run", begin("run", **training), *arguments)
    assert status == 2 and advice in err


def test_a_damaged_checkpoint_is_named_and_training_is_left_alone(begin, mt):
    run = begin("run", max_steps=14, average_checkpoints=2)
    command = ("average", "--run", run, "--last", 2)
    with RunDirectory(run).locked():
        assert "another process" in mt(*command)[2]
    before = file_of(run, "best").read_bytes()
    path = file_of(run, f"validated-{validated_in(run)[-2]}")
    path.write_bytes(path.read_bytes()[:-1])
    status, _, err = mt(*command)
    assert status == 2 and f"{path.name}: damaged" in err
    assert file_of(run, "best").read_bytes() == before
