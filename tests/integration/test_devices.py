"""Several processes train and translate as one does, and end with one message."""

import os
from copy import deepcopy

import pytest
import yaml
from run_content import checkpoint_content, metrics_of, report_of

OPTIONS = {
    "precision": "fp32",
    "learning_rate": 0.1,
    "ema_decay": 0.9,
    "max_epochs": 1,
    "batch_tokens": 75,
    "validate_every_steps": 3,
    "num_threads": 1,
}
"""An epoch has 29 micro-batches of this size."""
LARGE_EPSILON = "import mt_cli.training.optimizer\nmt_cli.training.optimizer._ADAM_EPSILON = 1.0\n"
"""Begins the processes of each training.

The runs that are compared add up the same gradients in another order. With the usual epsilon, AdamW divides a gradient
by its own size, so a weight whose gradient is only rounding moves by the learning rate, in a direction that depends on
the order and on the CPU. With an epsilon of 1, it moves by less than the learning rate times its gradient.
"""
TOLERANCE = 1e-5
"""Of a weight. A gradient has a norm of at most 1 (`max_grad_norm`), and the sums of fp32 that it consists of have a
relative error of about 1e-6. So a step of rate 0.1 adds about 1e-7, and the steps of an epoch add less than 1e-6 if
they let it grow no more than tenfold."""


@pytest.fixture
def config(tmp_path, tiny_tree):
    """Writes the config of all runs of a test, which train a model with dropout."""

    def write(model=None, **corpus):
        tiny_tree["training"] |= OPTIONS
        tiny_tree["model"] |= model or {}
        tiny_tree["corpus"] |= corpus
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")

    write()
    return write


def command(name, *arguments, **options):
    changes = {"name": name, **{f"training.{key}": value for key, value in options.items()}}
    settings = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    return ["train", "--config", "tiny.yaml", *settings, *arguments]


PROGRAM = """
import sys
{body}
from mt_cli.cli.main import main
sys.argv = ["mt", *{arguments}]
main()
"""


@pytest.fixture
def forked(tmp_path, config, fork_server):
    """Runs `mt`, in several processes if their number is given; returns exit statuses, and all that is printed.

    `body` is run before, by the processes that `--devices` starts if `is_launched`.
    """

    def run(arguments, number=None, body="", is_launched=False, **options):
        body = LARGE_EPSILON + body
        if is_launched:
            (tmp_path / "sitecustomize.py").write_text(body, encoding="utf-8")
            paths = filter(None, (str(tmp_path), os.environ.get("PYTHONPATH")))
            options["environment"] = {"PYTHONPATH": os.pathsep.join(paths)}
        else:
            (tmp_path / "program.py").write_text(
                PROGRAM.format(body=body, arguments=[*map(str, arguments)]), encoding="utf-8"
            )
            options["program"] = str(tmp_path / "program.py")
        fork_server.start(tmp_path, arguments, number=number, **options)
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

    def run(name, number=None, body="", **options):
        statuses, _, err = forked(command(name, **options), number, body)
        assert not any(statuses), err
        return err

    return run


ACT = """
import os, signal, time
from mt_cli.training.gradients import GradientAccumulator

def accumulate_and_act(self, *batches):
    calls.append(1)
    if len(calls) == 5 and os.environ["RANK"] == "{rank}":
        {act}
    return accumulate(self, *batches)

accumulate, GradientAccumulator.accumulate, calls = GradientAccumulator.accumulate, accumulate_and_act, []
"""
"""Lets a process act in step 5. Validated every 3 steps, a run has saved step 3 then."""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
STOP = """os.kill(os.getppid(), signal.SIGTERM)
        while not signal.getsignal(signal.SIGTERM).__self__._is_stop_received:
            time.sleep(0.01)
"""


def assert_equal_runs(run, reference):
    (weights, state), (reference_weights, reference_state) = (
        checkpoint_content(folder / "checkpoints/last.safetensors") for folder in (run, reference)
    )
    for position in (state["position"], reference_state["position"]):
        del position["num_processes"]  # Number at the start of the run.
    assert state["position"] == reference_state["position"] and state["best_step"] == reference_state["best_step"]
    assert weights.keys() == reference_weights.keys()
    for name, weight in weights.items():
        difference = (weight.double() - reference_weights[name].double()).abs().max()
        assert difference <= TOLERANCE, (name, difference)
    for row, reference_row in zip(metrics_of(run), metrics_of(reference), strict=True):
        for key in row:
            assert row[key] == pytest.approx(reference_row[key], abs=tolerance_of(key), rel=1e-5), key
    reports = [report_of(folder) for folder in (run, reference)]
    assert reports[0]["bleu"]["score"] == pytest.approx(reports[1]["bleu"]["score"], abs=tolerance_of("bleu"))


def tolerance_of(tag):
    """Rounding may choose between two hypotheses that are equally probable: one sentence of forty."""
    is_of_hypotheses = tag.endswith(("bleu", "chrf", "cer", "wer"))
    return 100 / 40 if is_of_hypotheses else TOLERANCE


# Where bf16 is fast, Muon orthogonalises in bf16 whatever the precision of training, and rounding does not stay small.
EXACT_MUON = "from mt_cli.training import optimizer; optimizer.has_fast_bf16 = lambda device: False"


NO_TENSORS = """
import pickle, torch

def broadcast_object_list(values, *arguments, **options):
    assert b"torch._utils" not in pickle.dumps(values), "weights are sent"
    broadcast(values, *arguments, **options)

broadcast = torch.distributed.broadcast_object_list
torch.distributed.broadcast_object_list = broadcast_object_list
"""


def test_each_process_reads_the_weights_from_the_file(finished):
    """At the start, and when a run resumes: no weights are pickled and sent."""
    finished("run", number=2, body=NO_TENSORS, max_steps=2)
    assert "Resuming from step 2." in finished("run", number=2, body=NO_TENSORS, max_steps=3)


@pytest.mark.slow
def test_several_processes_stream_the_pairs_of_one(finished, config, tiny_tree, tmp_path):
    corpus = tiny_tree["corpus"]
    config(train=corpus["train"] | {"streaming": True}, valid=deepcopy(corpus["test"]))
    options = {"optimizer": "muon", "batch_tokens": 60, "max_epochs": "null", "max_steps": 5, "log_every_steps": 1}
    options["body"] = EXACT_MUON + "\nimport mt_cli.data.streams\nmt_cli.data.streams.SHUFFLE_BUFFER = 30\n"
    err = finished("several", 3, **options)
    assert err.count("Stopped by max_steps 5") == 1, "one process alone prints"
    finished("one", micro_batches_per_step=3, **options)
    assert_equal_runs(tmp_path / "runs/several", tmp_path / "runs/one")


@pytest.mark.parametrize(("rank", "is_launched"), [(1, False), pytest.param(0, True, marks=pytest.mark.slow)])
def test_a_killed_process_loses_nothing_that_was_saved(forked, finished, tmp_path, rank, is_launched):
    """The run of two processes equals a run of one with as many micro-batches a step."""
    options = {"micro_batches_per_step": 2, "log_every_steps": 1}
    launched = command("killed", *(("--devices", "2") if is_launched else ()), **options)
    body = ACT.format(rank=rank, act=KILL)
    statuses, _, err = forked(launched, None if is_launched else 2, body, is_launched)
    assert statuses == [1] if is_launched else all(statuses), err
    assert err.count("mt: ") == 1 and "has ended" in err and "same command" in err and "Traceback" not in err
    assert "Resuming from step 3" in finished("killed", 2, **options)
    finished("one", micro_batches_per_step=4, log_every_steps=1)
    assert_equal_runs(tmp_path / "runs/killed", tmp_path / "runs/one")


@pytest.mark.slow
def test_a_stopped_run_resumes_with_another_number_of_processes(forked, finished, tmp_path):
    options = {"micro_batches_per_step": 2, "log_every_steps": 1}
    launched = command("parts", "--devices", "2", **options)
    statuses, _, err = forked(launched, None, ACT.format(rank=0, act=STOP), is_launched=True)
    assert statuses == [130] and err.count("the same command resumes from there") == 1, err
    assert "Resuming from step" in finished("parts", **options)
    finished("one", micro_batches_per_step=4, log_every_steps=1)
    assert_equal_runs(tmp_path / "runs/parts", tmp_path / "runs/one")


def test_an_error_is_one_message_with_one_status(forked):
    wrong = command("wrong", "--devices", "2", "--set", "corpus.train.files=[missing.en, missing.it]")
    statuses, _, err = forked(wrong)
    assert statuses == [2] and err.startswith("mt: missing.en: ") and err.count("\n") == 1, err


@pytest.mark.slow
def test_a_launcher_may_start_its_processes_again(forked):
    body = "from mt_cli.runtime.launcher import launched_group\nwith launched_group():\n    raise ValueError"
    assert forked(command("again", max_steps=2), 2, body)[0] == [1, 1]
    statuses, _, err = forked(command("again", max_steps=2), 2, restarts=1)
    assert statuses == [0, 0], err


@pytest.mark.slow
def test_two_processes_translate_a_file_as_one_does(trained, corpus, forked, tmp_path):
    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    (tmp_path / "in.en").write_text("\n".join(["", *lines, "unseen words here", "", *lines * 20]) + "\n")
    for name, number in (("one", None), ("two", 2)):
        options = ["--precision", "fp32", "--output", f"{name}.xx", "--alignment", f"{name}.align"]
        statuses, out, err = forked(["translate", "--run", trained, "--input", "in.en", *options], number)
        assert (set(statuses), out) == ({0}, ""), err
    for suffix in ("xx", "align"):
        assert (tmp_path / f"two.{suffix}").read_bytes() == (tmp_path / f"one.{suffix}").read_bytes() != b""
