import logging
import pickle
import re
import signal
from datetime import timedelta

import pytest
import torch
from torch.distributed.elastic.multiprocessing.api import SignalException

from mt_cli import processes
from mt_cli.hardware import pick_device, seed_device


def test_alone_every_function_is_neutral():
    with processes.joined():
        assert (processes.rank(), processes.local_rank(), processes.num_processes()) == (0, 0, 1)
        assert processes.is_main() and processes.num_restarts() == 0
        tensor = torch.arange(3.0)
        processes.add_up([tensor])
        assert tensor.tolist() == [0, 1, 2]
        value = object()
        assert processes.of_main(lambda: value) is processes.once_per_machine(lambda: value) is value
        assert processes.gathered(value) == [value]
        assert processes.spread(lambda items: [item * 2 for item in items], [1, 2, 3]) == [2, 4, 6]
        assert processes.agreed(2.5, True, False) == (2.5, [True, False])


@pytest.mark.parametrize("number", [2, 3])
def test_sums_values_and_shares_are_the_same_in_all_processes(run_together, number):
    body = """
processes._BUCKET_BYTES = 40
with joined():
    tensors = [torch.full((size,), float(rank() + 1)) for size in (3, 20, 1, 4)] + [torch.tensor(rank())]
    add_up(tensors)
    total = sum(range(1, num_processes() + 1))
    assert all(tensor.eq(total).all() for tensor in tensors[:-1]) and tensors[-1] == total - num_processes()
    assert gathered(rank()) == list(range(num_processes()))
    assert of_main(lambda: (rank(), num_processes(), os.environ["RANK"])) == (0, 1, "0")  # It works alone.
    for size in (0, 1, 2, 7):
        done = []
        assert spread(lambda items: done.extend(items) or [-item for item in items], range(size)) == [
            -item for item in range(size)
        ]
        assert done == list(range(size))[rank() :: num_processes()]
    assert agreed(1.5 + rank(), rank() == num_processes() - 1, False) == (1.5, [True, False])
    assert agreed(1.5 + rank(), False) == (1.5, [False])
assert num_processes() == 1
"""
    assert [(status, err) for status, _, err in run_together(body, number)] == [(0, "")] * number


def test_the_first_process_of_a_machine_works_before_the_others(run_together):
    body = """
path = "made"
def work():
    if os.path.exists(path):
        return "found"
    import time; time.sleep(0.5)
    open(path, "w").close()
    return "made"
with joined():
    assert once_per_machine(work) == ("made" if rank() == 0 else "found")
"""
    assert [(status, err) for status, _, err in run_together(body, 3)] == [(0, "")] * 3


def test_a_process_that_failed_ends_before_python_is_finalized(run_together):
    """Otherwise a thread of gloo that wants to report a lost connection then may abort it."""
    body = """
import atexit
atexit.register(print, "finalized")  # The handlers registered last run first.
with joined():
    atexit.register(print, "released")
    raise InputError("wrong data")
"""
    found = run_together(body)
    assert [output for _, output, _ in found] == ["released\n"] * 2
    assert sorted(status for status, _, _ in found) == [2, 2], found


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_of_one_process_ends_all_with_its_message_alone(run_together, failing):
    body = f"""
with joined():
    gathered(0)
    if rank() == {failing}:
        raise InputError("wrong data")
    for _ in range(1000):
        add_up([torch.ones(10)])
"""
    found = run_together(body, 3)
    assert [status for status, _, _ in found] == [2, 2, 2]
    assert "wrong data" in found[failing][2]
    assert [err for number, (_, _, err) in enumerate(found) if number != failing] == ["", ""]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_process_that_is_killed_ends_the_others_with_one_message(run_together, lost):
    body = f"""
import signal
with joined(if_lost="start again"):
    gathered(0)
    if rank() == {lost}:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(1000):
        add_up([torch.ones(10)])
"""
    found = run_together(body, 3)
    messages = [err for _, _, err in found if err]
    assert len(messages) == 1 and "another process has ended" in messages[0]
    assert messages[0].splitlines()[-1].endswith("; start again")
    assert all(status not in (0, None) for status, _, _ in found)


def test_a_reader_that_left_is_no_failure_of_the_others(run_together):
    body = """
import typer
with joined():
    if rank() == 0:
        raise typer.Exit(0)  # As for `mt translate ... | head -n 1`.
    for _ in range(1000):
        add_up([torch.ones(10)])
"""
    found = run_together(body)
    assert [status for status, _, _ in found] == [0, 0], found
    assert found[1][2] == ""


def test_processes_that_are_started_again_find_each_other_and_know_what_was_noted(run_together):
    """The store of the launcher still has the addresses of the processes before them."""
    body = """
import time
time.sleep(1.0 * (int(os.environ["RANK"]) == 0))
with joined():
    assert gathered(rank()) == [0, 1] and num_restarts() == {restarts}
    assert [was_noted(event) for event in ("first", "second")] == [{restarts} > 0, {restarts} > 1]
    if rank() == 0:
        note(["first", "second", "third"][{restarts}])
    gathered(None)
    os._exit(0)  # Leaves its addresses in the store.
"""
    for restarts in range(3):
        found = run_together(body.format(restarts=restarts), restarts=restarts)
        assert [(status, err) for status, _, err in found] == [(0, ""), (0, "")]


def test_alone_nothing_is_noted():
    processes.note("event")
    assert not processes.was_noted("event")


def test_processes_that_cannot_join_are_an_error(monkeypatch):
    for name, value in {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "a",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "_JOIN_TIMEOUT", timedelta(seconds=1))
    with pytest.raises(processes.InputError, match="cannot join"), processes.joined():
        pass


def test_random_numbers_depend_on_all_numbers_of_the_seed():
    def drawn(*numbers):
        seed_device(torch.device("cpu"), *numbers)
        return torch.rand(3).tolist()

    assert drawn(1, 2, 3) == drawn(1, 2, 3)
    assert len({tuple(drawn(*numbers)) for numbers in [(1, 2, 3), (1, 2, 4), (1, 3, 3), (2, 2, 3)]}) == 4


def test_several_processes_of_a_machine_have_a_device_each(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert pick_device("auto") == torch.device("cuda")
    for number in (0, 1, 2):
        monkeypatch.setattr(processes, "_member", processes._Membership(number + 4, 8, number, None))
        assert pick_device("cpu") == torch.device("cpu")
        if number < 2:
            assert pick_device("auto") == pick_device("cuda") == torch.device("cuda", number)
        with pytest.raises(processes.InputError, match="one device each"):
            pick_device("cuda:1")
    with pytest.raises(processes.InputError, match="there are 2 CUDA devices"):
        pick_device("cuda")


def test_what_processes_send_each_other_can_be_pickled():
    from mt_cli.config.sections import TokenizerConfig
    from mt_cli.experiment.state import RunState
    from mt_cli.tokenizer import Tokenizer

    tokenizer = Tokenizer.train(["a b c"], TokenizerConfig())
    first, second = pickle.loads(pickle.dumps((tokenizer, tokenizer)))
    assert first is second and first.encode(["a b"]) == tokenizer.encode(["a b"])
    assert pickle.loads(pickle.dumps(RunState())) == RunState()


LAUNCHED = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({}, "RANK, LOCAL_RANK, MASTER_PORT, MASTER_ADDR is not set"),
        (LAUNCHED | {"LOCAL_RANK": None}, "LOCAL_RANK is not set"),
        (LAUNCHED | {"WORLD_SIZE": "two"}, "WORLD_SIZE='two' cannot be"),
        (LAUNCHED | {"LOCAL_RANK": "y"}, "LOCAL_RANK='y' cannot be"),
        (LAUNCHED | {"WORLD_SIZE": ""}, "WORLD_SIZE='' cannot be"),
        (LAUNCHED | {"RANK": "2"}, "RANK=2, WORLD_SIZE=2 cannot be"),
    ],
)
def test_a_process_with_half_of_a_launcher_is_refused(monkeypatch, variables, words):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name, value in variables.items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    with pytest.raises(processes.InputError, match=re.escape(words)), processes.joined():
        pass


def test_without_the_variable_of_launchers_a_process_is_alone(monkeypatch):
    assert processes.launched_processes() is None
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    assert processes.launched_processes() == 2


@pytest.fixture
def ended_by_a_signal(monkeypatch):
    """Runs `launch` with an engine that a signal ends after the processes have done some work."""

    def run(work):
        def elastic_launch(config, entrypoint):
            def start(*arguments):
                work()
                raise SignalException("SIGTERM", signal.SIGTERM)

            return start

        monkeypatch.setattr("torch.distributed.launcher.api.elastic_launch", elastic_launch)
        return processes.launch(2, ["train"])

    for name in ("OMP_NUM_THREADS", "TORCH_CPP_LOG_LEVEL", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "MT_STATUS_FILE"):
        monkeypatch.setenv(name, "1")  # `launch` changes the environment, whose old values return after the test.
    previous, level = signal.getsignal(signal.SIGUSR1), logging.root.manager.disable
    yield run
    signal.signal(signal.SIGUSR1, previous)
    logging.disable(level)


@pytest.mark.parametrize(("left", "status"), [(None, 130), (0, 0), (2, 2)])
def test_after_a_signal_the_status_is_the_one_that_the_processes_left(ended_by_a_signal, left, status):
    """A run may have been done when the signal arrived."""

    def work():
        if left is not None:
            processes._leave_status(left)

    assert ended_by_a_signal(work) == status


def test_processes_leave_the_status_of_the_first_failure_or_of_success(run_together, tmp_path):
    for body, status in (("gathered(0)", 0), ("raise InputError('wrong')", 2)):
        program = f"os.environ['MT_STATUS_FILE'] = 'status'\nwith joined():\n    {body}"
        assert [status for status, _, _ in run_together(program)] == [status] * 2
        assert (tmp_path / "status").read_text() == str(status)


NAMELESS = """
import socket
from mt_cli import processes

def unknown(host, *rest, **options):
    if host == "nameless.invalid":
        raise socket.gaierror(-2, "Name or service not known")
    return getaddrinfo(host, *rest, **options)

getaddrinfo, socket.getaddrinfo = socket.getaddrinfo, unknown
socket.gethostname = socket.getfqdn = lambda *name: "nameless.invalid"
raise SystemExit(processes.launch(2, ["--version"]))
"""


def test_a_machine_whose_name_has_no_address_can_launch(fork_server, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(NAMELESS)
    fork_server.start(tmp_path, program=str(program))
    assert fork_server.wait() == [0], (tmp_path / "stream.2").read_text()
