import json
import os
import random
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
import typer
import yaml
from safetensors import safe_open
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mt_cli.cli import main as cli

torch.set_num_threads(1)  # With tensors this small, more threads only wait for each other.

signal.signal(signal.SIGINT, signal.default_int_handler)  # Background jobs inherit SIG_IGN from the shell.

ROOT = Path(__file__).parent.parent

command_of = cache(typer.main.get_command)  # Typer builds the commands anew in each call.


def pytest_addoption(parser):
    group = parser.getgroup("fuzzer", "the fuzzer, tests/system/test_hostile_input.py")
    group.addoption("--fuzz-seed", type=int, default=0, help="the first seed of each family")
    group.addoption("--fuzz-cases", type=int, help="how many seeds of each family")
    group.addoption("--fuzz-minutes", type=float, help="run each family for this long instead")


@pytest.fixture(autouse=True)
def one_seed():
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def one_thread():
    """The number of threads of above again, which a test before, or CTranslate2 in it, may have changed."""
    torch.set_num_threads(1)


@pytest.fixture
def root():
    return ROOT


@pytest.fixture(scope="session")
def real_text():
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs real text in ../shared/data")
    return folder


@pytest.fixture
def multi30k(real_text):
    return real_text / "multi30k"


@pytest.fixture(scope="session")
def flores(real_text):
    """The same sentences in 19 languages, by language code."""
    paths = sorted((real_text / "flores200").glob("*.devtest"))
    return {path.stem: path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths}


def checkpoint_content(path):
    """Tensors and state of a checkpoint, without values that depend on the clock."""
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state = json.loads(file.metadata()["state"])
    state["unlogged"] = [[*row[:2], *row[3:]] for row in state["unlogged"]]
    for key in ("elapsed_seconds", "tracked_bytes"):
        del state[key]
    return tensors, state


def _varies(tag):
    return "second" in tag or "memory" in tag


def metrics_of(run):
    """The rows of `metrics.jsonl`, without values that depend on the clock or on free memory."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{key: value for key, value in row.items() if not _varies(key)} for row in rows]


def points_of(run):
    """All points that TensorBoard shows for a run."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    board = EventAccumulator(str(run), size_guidance={"tensors": 0}).Reload()
    tags = [tag for tag in board.Tags()["tensors"] if not _varies(tag)]
    points = {tag: [(each.step, each.tensor_proto.SerializeToString()) for each in board.Tensors(tag)] for tag in tags}
    return {tag: found for tag, found in points.items() if found}  # All points of a tag may have been purged.


@pytest.fixture(scope="session")
def assert_same_run():
    """A function that compares two finished runs bit by bit."""

    def compare(ours, theirs):
        for name in ("last", "best"):
            (tensors, state), (other_tensors, other_state) = (
                checkpoint_content(run / "checkpoints" / f"{name}.safetensors") for run in (ours, theirs)
            )
            assert state == other_state, name
            assert tensors.keys() == other_tensors.keys()
            assert all(torch.equal(tensors[key], other_tensors[key]) for key in tensors), name
        assert metrics_of(ours) == metrics_of(theirs)
        assert (ours / "samples.txt").read_bytes() == (theirs / "samples.txt").read_bytes()
        assert points_of(ours) == points_of(theirs)
        reports = [json.loads((run / "report.json").read_text(encoding="utf-8")) for run in (ours, theirs)]
        for key in ("bleu", "chrf", "ter", "best_step", "num_steps", "num_epochs", "num_target_tokens"):
            assert reports[0][key] == reports[1][key]

    return compare


WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def write_lines(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Four hundred training pairs and forty test pairs: words, and the same words in capitals."""
    folder = tmp_path_factory.mktemp("corpus")
    generator = random.Random(1)
    sentences: dict[str, None] = {}
    while len(sentences) < 440:
        sentences[" ".join(generator.choices(WORDS, k=generator.randrange(1, 6))) + "."] = None
    for name, some in (("train", list(sentences)[:400]), ("test", list(sentences)[400:])):
        write_lines(folder / f"{name}.en", some)
        write_lines(folder / f"{name}.xx", [sentence.upper() for sentence in some])
    return folder


@pytest.fixture
def tiny_tree(corpus):
    return {
        "name": "tiny",
        "corpus": {
            "source": "en",
            "target": "xx",
            "train": {"files": [str(corpus / "train.en"), str(corpus / "train.xx")]},
            "valid": {"fraction": 0.1},
            "test": {"files": [str(corpus / "test.en"), str(corpus / "test.xx")]},
        },
        "model": {"d_model": 16, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 1},
        "training": {
            "max_epochs": 2,
            "batch_tokens": 200,
            "warmup_steps": 2,
            "log_every_steps": 1,
            "num_pictures": 0,
            "device": "cpu",
        },
        "decoding": {"beam_size": 2},
        "evaluation": {"num_resamples": 10},
    }


@pytest.fixture
def tiny_config(tiny_tree, tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    return path


@pytest.fixture
def mt(tmp_path, monkeypatch, capsys):
    """Runs the command line in an empty folder: (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mt_cli.console._mode", "auto")  # `--progress` sets it for one command only.
    monkeypatch.setattr("typer.main.get_command", command_of)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["mt", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


class OnMeta(TorchDispatchMode):
    """Context manager in which every operation has all its tensors on `meta`, but for asynchronous copies to it.

    Unlike a GPU, `meta` takes tensors without dimension of a CPU, and tensors made of Python's values.
    """

    def __init__(self):
        super().__init__()
        self.num_copies = 0
        self._functions = _NoValuesOfPython()

    def __enter__(self):
        self._functions.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self._functions.__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        is_copy = function.overloadpacket in (torch.ops.aten._to_copy, torch.ops.aten.to)
        if is_copy and args[0].device.type == "cpu":
            assert kwargs["non_blocking"] and result.is_meta
            self.num_copies += 1
        else:
            tensors = [each for each in tree_leaves((args, kwargs, result)) if isinstance(each, torch.Tensor)]
            assert all(each.is_meta for each in tensors), function
        return result


class _NoValuesOfPython(TorchFunctionMode):
    """Tensors of Python's values are made on the CPU and copied, for which a GPU is waited for."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        assert function not in (torch.tensor, torch.as_tensor, torch.from_numpy, torch.Tensor.new_tensor), function
        return function(*args, **(kwargs or {}))


class ForkServer:
    """Client of `tests/fork_server.py`, which starts `mt` and programs in new processes without delay."""

    def __init__(self):
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, str(ROOT / "tests" / "fork_server.py")]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, folder, arguments=(), number=None, restarts=0, **options):
        """Start a command, or several processes of it as a launcher would; return their process ids.

        `restarts` counts the earlier starts by the same launcher.
        """
        request = {"folder": str(folder), "name": "stream", "arguments": list(map(str, arguments)), "program": None}
        request |= {"environment": {}, "streams": ("there",) * 3, "encoding": "utf-8", "crash_point": None} | options
        requests = [request] if number is None else list(self._launched(request, number, restarts))
        self._process.stdin.write(json.dumps(requests) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def _launched(self, request, number, restarts):
        from torch.distributed import TCPStore

        if not restarts:
            self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # As a launcher has one.
        common = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._store.port)}
        common |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(restarts)}
        for rank in range(number):
            environment = common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            yield request | {"name": f"stream.{rank}", "environment": environment}

    def wait(self):
        """Wait until all processes that were started have ended; return their exit statuses."""
        return json.loads(self._process.stdout.readline())

    def stop(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def fork_server():
    server = ForkServer()
    yield server
    server.stop()


@pytest.fixture
def forked(fork_server, tmp_path, monkeypatch):
    """Runs the command line in a process of its own, in an empty folder: (exit status, standard output and error).

    `streams` gives the state of standard input, output and error: "there", "closed", "full", or "left" by its reader.
    `encoding` is the encoding that Python assumes for them.
    """
    monkeypatch.chdir(tmp_path)

    def run(*arguments, **options):
        fork_server.start(tmp_path, arguments, **options)
        [status] = fork_server.wait()
        return status, *((tmp_path / f"stream.{number}").read_bytes().decode("utf-8") for number in (1, 2))

    return run


PROGRAM = """
import os, torch
from mt_cli import processes
from mt_cli.errors import InputError
from mt_cli.processes import *

{body}
"""


@pytest.fixture
def run_together(fork_server, tmp_path):
    """Runs a program in several processes as a launcher would; returns the status, output and errors of each."""

    def run(body, number=2, restarts=0):
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.format(body=body), encoding="utf-8")
        fork_server.start(tmp_path, number=number, restarts=restarts, program=str(program))
        outputs = [[tmp_path / f"stream.{rank}.{stream}" for stream in (1, 2)] for rank in range(number)]
        statuses = fork_server.wait()
        return [(status, *map(Path.read_text, files)) for status, files in zip(statuses, outputs, strict=True)]

    return run


@pytest.fixture(scope="session")
def trained(corpus, tmp_path_factory):
    """A finished tiny run."""
    from mt_cli.config.loading import parse_config
    from mt_cli.experiment.run import train

    files = {"files": [str(corpus / "train.en"), str(corpus / "train.xx")]}
    tree = {
        "name": "tiny",
        "corpus": {
            "source": "en",
            "target": "xx",
            "train": files,
            "valid": {"fraction": 0.1},
            "test": {"files": [str(corpus / "test.en"), str(corpus / "test.xx")]},
            "max_tokens": 6,
        },
        "model": {
            "d_model": 32,
            "d_ff": 64,
            "num_heads": 2,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "dropout": 0.0,
        },
        "training": {
            "max_epochs": 30,
            "batch_tokens": 200,
            "warmup_steps": 20,
            "learning_rate": 0.01,
            "device": "cpu",
            "schedule": "linear",
            "validate_every_steps": 100,
            "num_pictures": 0,
        },
        "evaluation": {"num_resamples": 10},
    }
    runs = Path(tmp_path_factory.mktemp("runs"))
    train(parse_config(tree, "fixture"), runs)
    return runs / "tiny"


class Commands:
    """Runs `mt` commands, each in a new process that may be killed."""

    def __init__(self, server, folder):
        self._server, self._folder = server, folder

    def start(self, *arguments, crash_point=None):
        """Start a command and return its process id; it ends itself at a crash point."""
        [child] = self._server.start(self._folder, arguments, crash_point=crash_point)
        return child

    def wait(self):
        """Wait for the command; return its exit status (negative for a signal) and standard error."""
        [status] = self._server.wait()
        return status, (self._folder / "stream.2").read_text(encoding="utf-8")

    def run(self, *arguments, crash_point=None):
        self.start(*arguments, crash_point=crash_point)
        return self.wait()


@pytest.fixture
def commands(fork_server, tmp_path):
    return Commands(fork_server, tmp_path)
