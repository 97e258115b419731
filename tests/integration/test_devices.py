import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from conftest import checkpoint_content, metrics_of

OPTIONS = {"max_steps": 9, "max_epochs": None, "validate_every_steps": 4, "log_every_steps": 1, "num_threads": 1}


@pytest.fixture
def train(tmp_path, tiny_tree):
    """Starts `mt train` in a process of its own; the model has dropout, and no key bias, whose gradient is noise."""
    tiny_tree["training"] |= OPTIONS
    tiny_tree["model"]["qkv_bias"] = False
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree))

    def start(name, *arguments, **options):
        changes = {"name": name, **{f"training.{key}": value for key, value in options.items()}}
        settings = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "mt_cli", "train", "--config", "tiny.yaml", *settings, *arguments]
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def ended(process, seconds=150):
    """Status and standard error of a process, which must end by itself."""
    try:
        _, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, err


def workers_of(process):
    """The process ids of the workers of a launcher, in the order of their ranks."""
    found = {}
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                status = Path(f"/proc/{folder}/status").read_text()
                environment = Path(f"/proc/{folder}/environ").read_text().split("\0")
            except OSError:
                continue
            variables = dict(part.split("=", 1) for part in environment if "=" in part)
            if f"\nPPid:\t{process.pid}\n" in status and "RANK" in variables:
                found[int(variables["RANK"])] = int(folder)
    return [found[rank] for rank in sorted(found)]


def wait_for_rows(run, number, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (run / "metrics.jsonl").exists() and len(metrics_of(run)) >= number:
            return
        time.sleep(0.05)
    raise AssertionError(f"{run} has too few rows")


def assert_equal_runs(ours, theirs):
    (weights, state), (other_weights, other_state) = (
        checkpoint_content(run / "checkpoints/last.safetensors") for run in (ours, theirs)
    )
    for each in (state, other_state):
        del each["position"]["num_processes"]  # Those that the run began with.
    assert state["position"] == other_state["position"] and state["best_step"] == other_state["best_step"]
    for name, weight in weights.items():
        if not name.startswith("random."):
            assert (weight.double() - other_weights[name].double()).abs().max() <= 1e-5, name
    for row, other in zip(metrics_of(ours), metrics_of(theirs), strict=True):
        same = {key for key in row if "padding" not in key}
        assert {key: row[key] for key in same} == pytest.approx({key: other[key] for key in same}, abs=1e-5, rel=1e-5)
    assert (ours / "samples.txt").read_bytes() == (theirs / "samples.txt").read_bytes()
    reports = [json.loads((run / "report.json").read_text(encoding="utf-8")) for run in (ours, theirs)]
    assert reports[0]["bleu"] == reports[1]["bleu"]


@pytest.mark.parametrize(("number", "streaming"), [(2, False), (3, True), (4, False)])
def test_several_processes_do_the_steps_of_one_with_as_much_accumulation(train, tmp_path, number, streaming):
    tree = yaml.safe_load((tmp_path / "tiny.yaml").read_text())
    if streaming:
        corpus = tree["corpus"]
        corpus |= {"train": corpus["train"] | {"streaming": True}, "valid": corpus["test"], "shuffle_buffer": 30}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tree))
    options = {"optimizer": "muon", "ema_decay": 0.9, "batch_tokens": 60, "recompute_layers": streaming}
    assert ended(train("one", micro_batches_per_step=number, **options))[0] == 0
    status, err = ended(train("several", "--devices", str(number), **options))
    assert status == 0, err
    assert err.count("several: en to xx") == 1 and err.count("Stopped by max_steps 9") == 1  # One process alone prints.
    assert_equal_runs(tmp_path / "runs/several", tmp_path / "runs/one")


SHARDED = {"shard_model": True, "ema_decay": 0.9, "batch_tokens": 75, "max_steps": "null", "max_epochs": 1}


def test_a_sharded_run_does_the_steps_of_one_process(train, tmp_path):
    """With accumulation; of the 29 micro-batches, the last step has one, so that one process has none."""
    assert ended(train("one", micro_batches_per_step=4, **SHARDED))[0] == 0
    status, err = ended(train("several", "--devices", "2", micro_batches_per_step=2, **SHARDED))
    assert status == 0 and "2 processes, sharded" in err, err
    assert_equal_runs(tmp_path / "runs/several", tmp_path / "runs/one")


@pytest.mark.parametrize("numbers", [(2, 1), (1, 2)])
def test_a_sharded_run_resumes_as_one_that_is_not_and_the_reverse(train, tmp_path, numbers):
    def trained(name, number, **options):
        options = {**SHARDED, **options, "micro_batches_per_step": 4 // numbers[0], "shard_model": number == 2}
        status, err = ended(train(name, "--devices", str(number), **options))
        assert status == 0, err
        return err

    trained("whole", numbers[0])
    trained("parts", numbers[0], max_steps=5)
    assert "Resuming from step 5" in trained("parts", numbers[1])
    assert_equal_runs(tmp_path / "runs/parts", tmp_path / "runs/whole")


def test_a_stopped_run_ends_as_it_would_have_with_another_number_of_processes(train, tmp_path):
    options = {"batch_tokens": 60, "max_epochs": 4, "max_steps": "null"}
    assert ended(train("one", micro_batches_per_step=2, **options))[0] == 0
    process = train("parts", "--devices", "2", **options)
    wait_for_rows(tmp_path / "runs/parts", 5)
    process.send_signal(signal.SIGTERM)
    status, err = ended(process)
    assert status == 130 and err.count("the same command resumes from there") == 1, err
    status, err = ended(train("parts", **options))
    assert status == 0 and "Resuming from step" in err, err
    assert_equal_runs(tmp_path / "runs/parts", tmp_path / "runs/one")


@pytest.mark.parametrize(("rank", "shard_model"), [(0, False), (1, False), (1, True)])
def test_a_process_that_is_killed_ends_the_run_with_one_message_and_loses_nothing_saved(
    train, tmp_path, rank, shard_model
):
    options = {"batch_tokens": 60, "max_steps": 60, "validate_every_steps": 2, "shard_model": shard_model}
    process = train("killed", "--devices", "2", **options)
    wait_for_rows(tmp_path / "runs/killed", 8)
    os.kill(workers_of(process)[rank], signal.SIGKILL)
    status, err = ended(process, seconds=30)
    assert status == 1, err
    assert [line for line in err.splitlines() if line.startswith("mt: ")] == [err.splitlines()[-1]]
    assert "a process of this run has ended" in err and "Traceback" not in err
    status, err = ended(train("killed", "--devices", "2", **options))
    assert status == 0 and "Resuming from step" in err, err
    assert ended(train("whole", "--devices", "2", **options))[0] == 0
    assert_equal_runs(tmp_path / "runs/killed", tmp_path / "runs/whole")


def test_workers_whose_launcher_is_killed_save_and_stop(train, tmp_path):
    options = {"batch_tokens": 60, "max_steps": 100_000, "validate_every_steps": 100_000}
    process = train("alone", "--devices", "2", **options)
    wait_for_rows(tmp_path / "runs/alone", 3)
    process.send_signal(signal.SIGUSR1)  # Ignored by the launcher.
    os.kill(workers_of(process)[0], signal.SIGUSR1)
    wait_for_rows(tmp_path / "runs/alone", len(metrics_of(tmp_path / "runs/alone")) + 2)
    assert process.poll() is None
    process.kill()
    _, err = process.communicate(timeout=30)  # The workers hold its standard error open until they end.
    assert "Saving after this step" in err and err.count("the same command resumes from there") == 1, err


@pytest.mark.slow
def test_ten_random_kills_of_random_processes_change_nothing(train, tmp_path):
    options = {"batch_tokens": 60, "max_steps": 150, "validate_every_steps": 5, "save_every_minutes": 0.001}
    assert ended(train("whole", "--devices", "2", **options))[0] == 0
    generator, num_kills = random.Random(1), 0
    while num_kills < 10:
        process = train("killed", "--devices", "2", **options)
        rows = tmp_path / "runs/killed/metrics.jsonl"
        num_rows = len(metrics_of(rows.parent)) if rows.exists() else 0
        wait_for_rows(rows.parent, num_rows + generator.randrange(1, 8))
        time.sleep(generator.random() / 10)
        os.kill(workers_of(process)[generator.randrange(2)], signal.SIGKILL)
        status, err = ended(process, seconds=30)
        assert status == 1 and err.count("mt: ") == 1, err
        num_kills += 1
    assert ended(train("killed", "--devices", "2", **options))[0] == 0
    assert_equal_runs(tmp_path / "runs/killed", tmp_path / "runs/whole")


def test_an_error_is_one_message_for_all_processes(train):
    status, err = ended(train("wrong", "--devices", "2", "--set", "corpus.train.files=[missing.en, missing.it]"))
    assert status == 2
    assert [line[:4] for line in err.splitlines()] == ["mt: "], err
    status, err = ended(train("wrong", "--devices", "2", "--set", "model.num_head=3"))
    assert status == 2 and err.count("num_heads") == 1, err


def test_devices_must_be_those_of_the_launcher(train, monkeypatch):
    common = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in common.items():
        monkeypatch.setenv(name, value)
    status, err = ended(train("both", "--devices", "3"))
    assert status == 2 and "the launcher of this process says 2" in err


def test_a_file_translated_by_two_processes_is_that_of_one(trained, corpus, tmp_path):
    def translate(name, *arguments):
        command = [sys.executable, "-m", "mt_cli", "translate", "--run", trained, "--precision", "fp32", *arguments]
        outputs = ["--output", f"{name}.xx", "--alignment", f"{name}.align"]
        return subprocess.run([*command, *outputs], cwd=tmp_path, capture_output=True, text=True, input="")

    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    (tmp_path / "in.en").write_text("\n".join(["", *lines, "unseen words here", "", *lines * 20]) + "\n")
    for name, arguments in (("one", ()), ("two", ("--devices", "2"))):
        done = translate(name, "--input", "in.en", *arguments)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    for suffix in ("xx", "align"):
        assert (tmp_path / f"two.{suffix}").read_bytes() == (tmp_path / f"one.{suffix}").read_bytes() != b""
    done = translate("none", "--devices", "2")
    assert done.returncode == 2 and done.stderr.count("cannot share a stream") == 1
    assert not (tmp_path / "none.xx").exists()
