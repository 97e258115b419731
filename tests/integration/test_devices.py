import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from run_content import checkpoint_content, metrics_of

OPTIONS = {"max_steps": 9, "max_epochs": None, "validate_every_steps": 4, "log_every_steps": 1, "num_threads": 1}


@pytest.fixture
def command(tmp_path, tiny_tree):
    """Arguments that train a model with dropout, and without a key bias, whose gradient is noise."""
    tiny_tree["training"] |= OPTIONS
    tiny_tree["model"]["qkv_bias"] = False
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree))

    def build(name, *arguments, **options):
        changes = {"name": name, **{f"training.{key}": value for key, value in options.items()}}
        settings = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
        return ["train", "--config", "tiny.yaml", *settings, *arguments]

    return build


@pytest.fixture
def train(tmp_path, command):
    """Starts `mt train` with its launcher, if any."""

    (tmp_path / "temporary").mkdir()

    def start(name, *arguments, **options):
        environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
        started = [sys.executable, "-m", "mt_cli", *command(name, *arguments, **options)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(started, cwd=tmp_path, env=environment, **pipes)

    return start


@pytest.fixture
def finished(tmp_path, fork_server, command):
    """Trains to the end, in several processes if their number is given; returns what they print."""

    def run(name, number=None, **options):
        fork_server.start(tmp_path, command(name, **options), number=number)
        statuses = fork_server.wait()
        names = ["stream"] if number is None else [f"stream.{rank}" for rank in range(number)]
        err = "".join((tmp_path / f"{name}.2").read_text(encoding="utf-8") for name in names)
        assert not any(statuses), err
        return err

    return run


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
def test_several_processes_do_the_steps_of_one_with_as_much_accumulation(finished, tmp_path, number, streaming):
    tree = yaml.safe_load((tmp_path / "tiny.yaml").read_text())
    if streaming:
        corpus = tree["corpus"]
        corpus |= {"train": corpus["train"] | {"streaming": True}, "valid": corpus["test"], "shuffle_buffer": 30}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tree))
    options = {"optimizer": "muon", "ema_decay": 0.9, "batch_tokens": 60, "recompute_layers": streaming}
    finished("one", micro_batches_per_step=number, **options)
    err = finished("several", number, **options)
    assert err.count("several: en to xx") == 1 and err.count("Stopped by max_steps 9") == 1  # One process alone prints.
    assert_equal_runs(tmp_path / "runs/several", tmp_path / "runs/one")


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3, 4])
def test_fifty_steps_of_several_processes_are_those_of_one(finished, tmp_path, number):
    options = {"batch_tokens": 60, "max_steps": 50, "validate_every_steps": 10}
    finished("one", micro_batches_per_step=number, **options)
    finished("several", number, **options)
    assert_equal_runs(tmp_path / "runs/several", tmp_path / "runs/one")


SHARDED = {"shard_model": True, "ema_decay": 0.9, "batch_tokens": 75, "max_steps": "null", "max_epochs": 1}


def test_a_sharded_run_does_the_steps_of_one_process(finished, tmp_path):
    """With accumulation; of the 29 micro-batches, the last step has one, so that one process has none."""
    finished("one", micro_batches_per_step=4, **SHARDED)
    assert "2 processes, sharded" in finished("several", 2, micro_batches_per_step=2, **SHARDED)
    assert_equal_runs(tmp_path / "runs/several", tmp_path / "runs/one")


@pytest.mark.parametrize("numbers", [(2, 1), (1, 2)])
def test_a_sharded_run_resumes_as_one_that_is_not_and_the_reverse(finished, tmp_path, numbers):
    def trained(name, number, **options):
        options = {**SHARDED, **options, "micro_batches_per_step": 4 // numbers[0], "shard_model": number == 2}
        return finished(name, number, **options)

    trained("whole", numbers[0])
    trained("parts", numbers[0], max_steps=5)
    assert "Resuming from step 5" in trained("parts", numbers[1])
    assert_equal_runs(tmp_path / "runs/parts", tmp_path / "runs/whole")


def test_a_stopped_run_ends_as_it_would_have_with_another_number_of_processes(train, finished, tmp_path):
    options = {"batch_tokens": 60, "max_epochs": 4, "max_steps": "null"}
    finished("one", micro_batches_per_step=2, **options)
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # As `nohup` does.
    try:
        process = train("parts", "--devices", "2", **options)
    finally:
        signal.signal(signal.SIGHUP, previous)
    wait_for_rows(tmp_path / "runs/parts", 5)
    process.send_signal(signal.SIGHUP)
    wait_for_rows(tmp_path / "runs/parts", len(metrics_of(tmp_path / "runs/parts")) + 2)
    process.send_signal(signal.SIGTERM)
    status, err = ended(process)
    assert status == 130 and err.count("the same command resumes from there") == 1, err
    left = [path.name for path in (tmp_path / "temporary").iterdir() if not path.name.startswith("torchinductor")]
    assert "Stopping after this step" in err and not left
    assert "Resuming from step" in finished("parts", **options)
    assert_equal_runs(tmp_path / "runs/parts", tmp_path / "runs/one")


@pytest.mark.parametrize(("rank", "shard_model"), [(0, False), (1, True)])
def test_a_process_that_is_killed_ends_the_run_with_one_message_and_loses_nothing_saved(
    train, finished, tmp_path, rank, shard_model
):
    options = {"batch_tokens": 60, "max_steps": 16, "validate_every_steps": 4, "shard_model": shard_model}
    process = train("killed", "--devices", "2", **options)
    wait_for_rows(tmp_path / "runs/killed", 8)
    os.kill(workers_of(process)[rank], signal.SIGKILL)
    status, err = ended(process, seconds=30)
    assert status == 1, err
    assert [line for line in err.splitlines() if line.startswith("mt: ")] == [err.splitlines()[-1]]
    assert "another process has ended" in err and "Traceback" not in err
    assert err.endswith("; what was saved last is kept, the same command resumes there\n")
    assert "Resuming from step" in finished("killed", 2, **options)
    finished("whole", 2, **options)
    assert_equal_runs(tmp_path / "runs/killed", tmp_path / "runs/whole")


SCARCE = """
import os, sys, torch
from mt_cli.cli.main import main
from mt_cli.objective import Objective

def scarce(self, batch):
    if os.environ["RANK"] == "1" and batch.num_sentences > {limit} and torch.is_grad_enabled():
        raise torch.OutOfMemoryError("CUDA out of memory")
    return forward(self, batch)

forward, Objective.forward = Objective.forward, scarce
sys.argv = ["mt", *{arguments}]
main()
"""


@pytest.mark.parametrize("limit", [0, 4])
def test_a_process_that_lacks_memory_splits_its_batches_or_ends_all(fork_server, command, finished, tmp_path, limit):
    tree = yaml.safe_load((tmp_path / "tiny.yaml").read_text())
    tree["model"]["dropout"] = 0.0  # A split batch draws other numbers.
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tree))
    options = {"batch_tokens": 120}
    program = tmp_path / "scarce.py"
    program.write_text(SCARCE.format(limit=limit, arguments=command("scarce", **options)))
    fork_server.start(tmp_path, number=2, program=str(program))
    statuses = fork_server.wait()
    err = "".join((tmp_path / f"stream.{rank}.2").read_text() for rank in range(2))
    if limit == 0:
        assert statuses == [1, 1] and err.count("mt: ") == err.count("does not fit in the memory of cpu") == 1, err
    else:
        assert statuses == [0, 0], err
        finished("plenty", micro_batches_per_step=2, **options)
        assert_equal_runs(tmp_path / "runs/scarce", tmp_path / "runs/plenty")


HASTY = """
import sys, time
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.cli.main import main
from mt_cli.experiment import run
from mt_cli.processes import is_main

class Clock:
    @staticmethod
    def monotonic():
        return time.monotonic() * (1 if is_main() else 1e6)

def note(self, model, state, optimizer, step, *rest):
    print("saved", step)
    save_state(self, model, state, optimizer, step, *rest)

save_state, RunDirectory.save_state = RunDirectory.save_state, note
run.time = Clock
sys.argv = ["mt", *{arguments}]
main()
"""


def test_processes_whose_clocks_disagree_save_after_the_same_steps(fork_server, command, finished, tmp_path):
    """A save with shards needs all processes."""
    options = {"shard_model": True, "batch_tokens": 60}
    program = tmp_path / "hasty.py"
    program.write_text(HASTY.format(arguments=command("hasty", save_every_minutes=60, **options)))
    fork_server.start(tmp_path, number=2, program=str(program))
    assert fork_server.wait() == [0, 0], (tmp_path / "stream.0.2").read_text()
    saved = (tmp_path / "stream.0.1").read_text().split()[1::2]
    assert saved == ["0", "4", "8", "9"]
    finished("plain", 2, **options)
    assert_equal_runs(tmp_path / "runs/hasty", tmp_path / "runs/plain")


@pytest.fixture
def launch(tmp_path, command):
    """Starts the launchers of two machines, each with one process; the first launcher has the store of both."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    settings = ["--nnodes", "2", "--max-restarts", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint]
    environment = os.environ | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    started = []

    def start(*arguments, **options):
        store = ["--rdzv-conf", f"keep_alive_interval=1,is_host={not started}"]  # Both are on the machine of the store.
        launcher = [sys.executable, "-m", "torch.distributed.run", *settings, *store, "-m", "mt_cli"]
        with open(tmp_path / f"err.{len(started)}", "w") as err:
            command_line = [*launcher, *command(*arguments, **options)]
            started.append(subprocess.Popen(command_line, cwd=tmp_path, env=environment, stderr=err))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


def test_a_machine_that_is_lost_and_returns_changes_nothing(launch, finished, tmp_path):
    options = {"batch_tokens": 60, "max_steps": 24, "validate_every_steps": 4}
    launchers = [launch("two", **options) for _ in range(2)]
    wait_for_rows(tmp_path / "runs/two", 8)
    for pid in (launchers[1].pid, *workers_of(launchers[1])):
        os.kill(pid, signal.SIGKILL)
    launchers[1].wait()
    returned = launch("two", **options)
    assert [each.wait(timeout=120) for each in (launchers[0], returned)] == [0, 0], "".join(
        path.read_text() for path in tmp_path.glob("err.*")
    )
    messages = "".join((tmp_path / f"err.{number}").read_text() for number in range(3))
    assert messages.count("another process has ended") == 1 and "Resuming from step" in messages, messages
    finished("one", micro_batches_per_step=2, **options)
    assert_equal_runs(tmp_path / "runs/two", tmp_path / "runs/one")


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
def test_ten_random_kills_of_random_processes_change_nothing(train, finished, tmp_path):
    options = {"batch_tokens": 60, "max_steps": 150, "validate_every_steps": 5, "save_every_minutes": 0.001}
    finished("whole", 2, **options)
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
    finished("killed", 2, **options)
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


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pipe", "several processes cannot share a stream"),
        ("/dev/fd/963", "several processes cannot share a stream"),  # As `<(...)` of the shell that started a launcher.
        ("folder", "folder: is a directory"),
    ],
)
def test_several_processes_do_not_read_one_stream(name, message, trained, fork_server, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    fork_server.start(tmp_path, ["translate", "--run", trained, "--input", name, "--output", "out"], number=2)
    assert fork_server.wait() == [2, 2]
    err = "".join((tmp_path / f"stream.{rank}.2").read_text() for rank in range(2))
    assert err.count(f"mt: {message}") == 1 and not (tmp_path / "out").exists()


def test_fresh_counts_until_the_old_run_was_moved_aside(finished, fork_server, command, tmp_path):
    """A launcher may start the processes again before and after that."""
    finished("again", 2)
    for restarts in range(3):
        options = {"program": str(tmp_path / "fails.py")} if restarts == 0 else {}
        (tmp_path / "fails.py").write_text("from mt_cli.processes import joined\nwith joined():\n    raise ValueError")
        fork_server.start(tmp_path, [*command("again"), "--fresh"], number=2, restarts=restarts, **options)
        assert fork_server.wait() == ([1, 1] if restarts == 0 else [0, 0])
        moved = [path.name for path in (tmp_path / "runs").iterdir() if path.name.startswith("again.old")]
        assert len(moved) == (restarts > 0)


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
