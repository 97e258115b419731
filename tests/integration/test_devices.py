import os
import signal
import time
from pathlib import Path

import pytest
import yaml
from run_content import checkpoint_content, metrics_of, report_of

OPTIONS = {
    "precision": "fp32",
    "learning_rate": 0.1,
    "adam_epsilon": 1.0,
    "ema_decay": 0.9,
    "max_epochs": 1,
    "batch_tokens": 75,
    "validate_every_steps": 3,
    "num_threads": 1,
}
"""An epoch has 29 micro-batches of this size.

The runs that are compared add up the same gradients in another order. With the usual epsilon, AdamW divides a gradient
by its own size, so a weight whose gradient is only rounding moves by the learning rate, in a direction that depends on
the order and on the CPU. With an epsilon of 1, it moves by less than the learning rate times its gradient.
"""
TOLERANCE = 1e-5
"""Of a weight. A gradient has a norm of at most 1 (`max_grad_norm`), and the sums of fp32 that it consists of have a
relative error of about 1e-6. So a step of rate 0.1 adds about 1e-7, and the steps of an epoch add less than 1e-6 if
they let it grow no more than tenfold."""
PATIENCE = 300
"""Seconds after which a condition is taken never to become true."""


@pytest.fixture
def config(tmp_path, tiny_tree):
    """Writes the config of all runs of a test, which train a model with dropout; returns its text."""

    def write(model=None, **corpus):
        tiny_tree["training"] |= OPTIONS
        tiny_tree["model"] |= model or {}
        tiny_tree["corpus"] |= corpus
        text = yaml.safe_dump(tiny_tree)
        (tmp_path / "tiny.yaml").write_text(text, encoding="utf-8")
        return text

    write()
    return write


def command(name, *arguments, **options):
    changes = {"name": name, **{f"training.{key}": value for key, value in options.items()}}
    settings = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    return ["train", "--config", "tiny.yaml", *settings, *arguments]


PROGRAM = """
import os, sys, time
import torch
from mt_cli.cli.main import main

{body}

sys.argv = ["mt", *{arguments}]
main()
"""


@pytest.fixture
def forked(tmp_path, config, fork_server):
    """Runs `mt`, in several processes if their number is given; returns exit statuses, and all that is printed.

    `body` is run before; `meanwhile` gets the process ids.
    """

    def run(arguments, number=None, body=None, meanwhile=None, **options):
        if body is not None:
            (tmp_path / "program.py").write_text(PROGRAM.format(body=body, arguments=arguments), encoding="utf-8")
            options["program"] = str(tmp_path / "program.py")
        processes = fork_server.start(tmp_path, arguments, number=number, **options)
        if meanwhile is not None:
            meanwhile(processes)
        statuses = fork_server.wait()
        names = ["stream"] if number is None else [f"stream.{rank}" for rank in range(number)]
        out, err = (
            "".join((tmp_path / f"{name}.{stream}").read_text(encoding="utf-8") for name in names) for stream in (1, 2)
        )
        return statuses, out, err

    return run


@pytest.fixture
def finished(forked):
    """Trains to the end, in several processes if their number is given; returns what they print."""

    def run(name, number=None, body=None, **options):
        statuses, _, err = forked(command(name, **options), number, body)
        assert not any(statuses), err
        return err

    return run


@pytest.fixture(scope="session")
def runs_of_one(tmp_path_factory):
    """A folder of runs, and their numbers."""
    return tmp_path_factory.mktemp("one"), {}


@pytest.fixture
def run_of_one(runs_of_one, tmp_path, config, fork_server):
    """The finished run of one process with the config of the test and these options; equal ones are trained once."""

    def find(body=None, **options):
        folder, numbers = runs_of_one
        text = (tmp_path / "tiny.yaml").read_text(encoding="utf-8")
        number = numbers.setdefault((text, body, str(options)), len(numbers))
        run = folder / "runs" / f"one-{number}"
        if not run.exists():
            (folder / "tiny.yaml").write_text(text, encoding="utf-8")
            arguments = command(run.name, **options)
            program = {}
            if body is not None:
                (folder / "program.py").write_text(PROGRAM.format(body=body, arguments=arguments), encoding="utf-8")
                program = {"program": str(folder / "program.py")}
            fork_server.start(folder, arguments, **program)
            assert fork_server.wait() == [0], (folder / "stream.2").read_text(encoding="utf-8")
        return run

    return find


HOLD = """
import os, sys, time

def hold(event, arguments):
    if event == "open" and arguments[1] == "a" and str(arguments[0]).endswith("metrics.jsonl"):
        num_rows = 0
        if os.path.exists(arguments[0]):
            with open(arguments[0]) as file:
                num_rows = len(file.readlines())
        if num_rows in {rows} and not os.path.exists(f"held.{{num_rows}}"):
            open(f"held.{{num_rows}}", "x").close()
            while not os.path.exists(f"released.{{num_rows}}"):
                time.sleep(0.01)

sys.addaudithook(hold)
"""
"""Lets the main process wait, once its metrics have these numbers of rows, until the file `released.NUMBER` exists.

Validated every 3 steps, a run has saved step 3 when it has 5 rows.
"""


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_until(condition, *pids):
    """Wait for a condition, which these processes bring about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end and not any(map(has_ended, pids))
        time.sleep(0.01)


@pytest.fixture
def is_held(tmp_path):
    return lambda num_rows: (tmp_path / f"held.{num_rows}").exists()


@pytest.fixture
def release(tmp_path):
    return lambda num_rows: (tmp_path / f"released.{num_rows}").touch()


@pytest.fixture
def holding(tmp_path):
    """Variables of the environment with which the main process of a launcher waits at these numbers of rows."""

    def prepare(*rows):
        (tmp_path / "startup").mkdir()
        (tmp_path / "startup/sitecustomize.py").write_text(HOLD.format(rows=rows), encoding="utf-8")
        paths = filter(None, (str(tmp_path / "startup"), os.environ.get("PYTHONPATH")))
        return {"PYTHONPATH": os.pathsep.join(paths)}

    return prepare


def workers_of(launcher):
    """The process ids of the workers of a launcher, in the order of their ranks."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_bytes()
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"\nPPid:\t%d\n" % launcher in status:
            found |= {int(part[5:]): int(folder.name) for part in environment if part.startswith(b"RANK=")}
    return [found[rank] for rank in sorted(found)]


def ignores(pid, number):
    [signals] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:")]
    return bool(int(signals.split()[1], 16) >> number - 1 & 1)


def assert_equal_runs(run, reference):
    (weights, state), (reference_weights, reference_state) = (
        checkpoint_content(folder / "checkpoints/last.safetensors") for folder in (run, reference)
    )
    for position in (state["position"], reference_state["position"]):
        del position["num_processes"]  # Number at the start of the run.
    assert state["position"] == reference_state["position"] and state["best_step"] == reference_state["best_step"]
    assert weights.keys() == reference_weights.keys()
    for name, weight in weights.items():
        if not name.startswith("random."):
            difference = (weight.double() - reference_weights[name].double()).abs().max()
            assert difference <= TOLERANCE, (name, difference)
    for row, reference_row in zip(metrics_of(run), metrics_of(reference), strict=True):
        for key in row:
            if "padding" not in key:
                assert row[key] == pytest.approx(reference_row[key], abs=tolerance_of(key), rel=1e-5), key
    samples = [(folder / "samples.txt").read_text(encoding="utf-8").splitlines() for folder in (run, reference)]
    assert sum(line != expected for line, expected in zip(*samples, strict=True)) <= 1
    reports = [report_of(folder) for folder in (run, reference)]
    assert reports[0]["bleu"]["score"] == pytest.approx(reports[1]["bleu"]["score"], abs=tolerance_of("bleu"))


def tolerance_of(tag):
    """Rounding may choose between two hypotheses that are equally probable: one sentence of forty."""
    is_of_hypotheses = tag.endswith(("bleu", "chrf", "cer", "wer"))
    return 100 / 40 if is_of_hypotheses else TOLERANCE


# Where bf16 is fast, Muon orthogonalises in bf16 whatever the precision of training, and rounding does not stay small.
EXACT_MUON = "from mt_cli.training import optimizer; optimizer.has_fast_bf16 = lambda device: False"


@pytest.mark.parametrize(
    ("number", "streaming"), [(2, False), (3, True), pytest.param(4, False, marks=pytest.mark.slow)]
)
def test_several_processes_do_the_steps_of_one_with_as_much_accumulation(
    finished, run_of_one, config, tmp_path, number, streaming
):
    if streaming:
        tree = yaml.safe_load((tmp_path / "tiny.yaml").read_text())["corpus"]
        config(train=tree["train"] | {"streaming": True}, valid=tree["test"], shuffle_buffer=30)
    options = {"optimizer": "muon", "batch_tokens": 60, "max_epochs": "null", "max_steps": 5, "log_every_steps": 1}
    options |= {"recompute_layers": streaming, "body": EXACT_MUON}
    err = finished("several", number, **options)
    assert err.count("several: en to xx") == 1 and err.count("Stopped by max_steps 5") == 1  # One process alone prints.
    one = run_of_one(micro_batches_per_step=number, **options)
    assert_equal_runs(tmp_path / "runs/several", one)


HASTY = """
from mt_cli.run import loop

class Clock:
    @staticmethod
    def monotonic():
        return time.monotonic() * (1 if os.environ["RANK"] == "0" else 1e6)

loop.time = Clock
"""


@pytest.mark.parametrize("numbers", [pytest.param((2, 1), marks=pytest.mark.slow), (1, 2)])
def test_a_sharded_run_resumes_as_one_that_is_not_and_the_reverse_though_clocks_disagree(
    finished, run_of_one, tmp_path, numbers
):
    """The last step has one micro-batch, so that one process has none. A save needs both."""

    def trained(number, **options):
        options |= {"micro_batches_per_step": 4 // numbers[0], "shard_model": number == 2, "save_every_minutes": 60}
        return finished("parts", number, HASTY if number == 2 else None, **options)

    trained(numbers[0], max_steps=5)
    err = trained(numbers[1])
    assert "Resuming from step 5" in err and ("2 processes, sharded" in err) == (numbers[1] == 2)
    assert_equal_runs(tmp_path / "runs/parts", run_of_one(micro_batches_per_step=4))


UNDER_NOHUP = "import signal, tempfile; tempfile.tempdir = 'temporary'; signal.signal(signal.SIGHUP, signal.SIG_IGN)"


def test_a_stopped_run_ends_as_it_would_have_with_another_number_of_processes(
    forked, holding, finished, run_of_one, tmp_path, is_held, release
):
    """Under `nohup`, so that only SIGTERM stops it."""
    options = {"micro_batches_per_step": 2, "log_every_steps": 1}
    (tmp_path / "temporary").mkdir()

    def stop(launchers):
        [launcher] = launchers
        wait_until(lambda: is_held(5), launcher)
        assert all(ignores(pid, signal.SIGHUP) for pid in (launcher, *workers_of(launcher)))
        os.kill(launcher, signal.SIGTERM)
        wait_until(lambda: "Stopping after this step" in (tmp_path / "stream.2").read_text("utf-8"), launcher)
        release(5)

    launched = command("parts", "--devices", "2", **options)
    statuses, _, err = forked(launched, None, UNDER_NOHUP, stop, environment=holding(5))
    assert statuses == [130] and err.count("the same command resumes from there") == 1, err
    assert not [path.name for path in (tmp_path / "temporary").iterdir()]
    assert "Resuming from step" in finished("parts", **options)
    assert_equal_runs(tmp_path / "runs/parts", run_of_one(micro_batches_per_step=4, log_every_steps=1))


@pytest.mark.parametrize(
    ("rank", "shard_model"),
    [(0, False), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(0, True), (1, True)])],
)
def test_a_process_that_is_killed_ends_the_run_with_one_message_and_loses_nothing_saved(
    forked, holding, finished, run_of_one, tmp_path, is_held, release, rank, shard_model
):
    options = {"micro_batches_per_step": 2, "log_every_steps": 1, "shard_model": shard_model}

    def kill_one(launchers):
        wait_until(lambda: is_held(5), *launchers)
        os.kill(workers_of(launchers[0])[rank], signal.SIGKILL)
        release(5)

    launched = command("killed", "--devices", "2", **options)
    statuses, _, err = forked(launched, meanwhile=kill_one, environment=holding(5))
    assert statuses == [1], err
    assert [line for line in err.splitlines() if line.startswith("mt: ")] == [err.splitlines()[-1]]
    assert "another process has ended" in err and "Traceback" not in err
    assert err.endswith("; what was saved last is kept, the same command resumes there\n")
    assert "Resuming from step 3" in finished("killed", 2, **options)
    assert_equal_runs(tmp_path / "runs/killed", run_of_one(micro_batches_per_step=4, log_every_steps=1))


SCARCE = """
from mt_cli.training.objective import Objective

def scarce(self, batch):
    if os.environ["RANK"] == "1" and batch.num_sentences > {limit} and torch.is_grad_enabled():
        raise torch.OutOfMemoryError("CUDA out of memory")
    return forward(self, batch)

forward, Objective.forward = Objective.forward, scarce
"""


def test_a_process_that_lacks_memory_splits_its_batches(forked, config, run_of_one, tmp_path):
    config(model={"dropout": 0.0})  # A split batch draws other numbers.
    options = {"max_steps": 4}
    statuses, _, err = forked(command("scarce", **options), 2, SCARCE.format(limit=4))
    assert statuses == [0, 0], err
    assert_equal_runs(tmp_path / "runs/scarce", run_of_one(micro_batches_per_step=2, **options))


def test_a_process_that_lacks_memory_for_one_sentence_ends_all(forked):
    statuses, _, err = forked(command("scarce"), 2, SCARCE.format(limit=0))
    assert statuses == [1, 1] and err.count("mt: ") == err.count("does not fit in the memory of cpu") == 1, err


@pytest.mark.slow
def test_workers_save_on_request(forked, holding, is_held, release):
    def save(launchers):
        [launcher] = launchers
        wait_until(lambda: is_held(2), launcher)
        os.kill(launcher, signal.SIGUSR1)  # Ignored by the launcher.
        os.kill(workers_of(launcher)[0], signal.SIGUSR1)
        release(2)
        wait_until(lambda: is_held(5), launcher)
        release(5)

    launched = command("alone", "--devices", "2", log_every_steps=1)
    statuses, _, err = forked(launched, meanwhile=save, environment=holding(2, 5))
    assert statuses == [0] and "Saving after this step" in err


MISSING = ("--set", "corpus.train.files=[missing.en, missing.it]")


@pytest.mark.parametrize(
    ("wrong", "number"),
    [
        (MISSING, 2),
        (("--set", "model.num_head=3"), 2),
        pytest.param(("--devices", "2", *MISSING), None, marks=pytest.mark.slow),
    ],
)
def test_an_error_is_one_message_with_one_status_for_all_processes(forked, wrong, number):
    statuses, _, err = forked(command("wrong", *wrong), number)
    assert statuses == [2] * (number or 1) and err.count("mt: ") == 1, err


def test_devices_must_be_those_of_the_launcher(forked):
    common = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    statuses, _, err = forked(command("both", "--devices", "3"), environment=common)
    assert statuses == [2] and "the launcher of this process says 2" in err


def test_several_processes_do_not_read_one_stream(trained, forked, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for arguments in ((), ("--input", "pipe"), ("--input", "/dev/fd/963")):  # As `<(...)` of a launcher's shell.
        statuses, _, err = forked(["translate", "--run", trained, *arguments, "--output", "out"], 2)
        assert statuses == [2, 2] and not (tmp_path / "out").exists()
        assert err.count("several processes cannot share a stream") == err.count("mt: ") == 1


def test_fresh_counts_until_the_old_run_was_moved_aside(forked, finished, tmp_path):
    """A launcher may start the processes again before and after that."""
    options = {"max_steps": 2}
    finished("again", 2, **options)
    fails = {"body": "from mt_cli.machine.launcher import launched_group\nwith launched_group():\n    raise ValueError"}
    for restarts in range(3):
        statuses, _, _ = forked(
            command("again", "--fresh", **options), 2, restarts=restarts, **({} if restarts else fails)
        )
        assert statuses == ([0, 0] if restarts else [1, 1])
        moved = [path.name for path in (tmp_path / "runs").iterdir() if path.name.startswith("again.old")]
        assert len(moved) == (restarts > 0)


def test_a_file_translated_by_two_processes_is_that_of_one(trained, corpus, forked, tmp_path):
    def arguments(name):
        outputs = ["--output", f"{name}.xx", "--alignment", f"{name}.align"]
        return ["translate", "--run", trained, "--precision", "fp32", "--input", "in.en", *outputs]

    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    (tmp_path / "in.en").write_text("\n".join(["", *lines, "unseen words here", "", *lines * 20]) + "\n")
    for name, number in (("one", None), ("two", 2)):
        statuses, out, err = forked(arguments(name), number)
        assert (set(statuses), out) == ({0}, ""), err
    for suffix in ("xx", "align"):
        assert (tmp_path / f"two.{suffix}").read_bytes() == (tmp_path / f"one.{suffix}").read_bytes() != b""
