"""A group of processes shares values and work, and fails as one."""

import pytest


def test_processes_share_sums_values_and_work(run_together):
    body = """
groups._BUCKET_BYTES = 40

def sums_are_the_same_in_all_processes():
    tensors = [torch.full((size,), float(group.rank + 1)) for size in (3, 20, 1, 4)] + [torch.tensor(group.rank)]
    group.all_reduce(tensors)
    total = sum(range(1, group.size + 1))
    assert all(tensor.eq(total).all() for tensor in tensors[:-1]) and tensors[-1] == total - group.size

def values_are_the_same_in_all_processes():
    assert group.all_gather(group.rank) == list(range(group.size))
    assert group.from_main(lambda: (group.rank, os.environ["RANK"])) == (0, "0")
    assert group.agree(1.5 + group.rank, group.rank == group.size - 1, False) == (1.5, [True, False])
    assert group.agree(1.5 + group.rank, False) == (1.5, [False])

def shares_are_apart_and_their_results_together():
    for size in (0, 1, 2, 7):
        done = []
        assert group.map_shares(lambda items: done.extend(items) or [-item for item in items], range(size)) == [
            -item for item in range(size)
        ]
        assert done == list(range(size))[group.rank :: group.size]

def the_first_process_of_a_machine_works_before_the_others():
    def work():
        if os.path.exists("made"):
            return "found"
        open("made", "w").close()
        return "made"
    assert group.once_per_machine(work) == ("made" if group.rank == 0 else "found")

with launched_group() as group:
    for law in (
        sums_are_the_same_in_all_processes, values_are_the_same_in_all_processes,
        shares_are_apart_and_their_results_together, the_first_process_of_a_machine_works_before_the_others,
    ):
        law()
"""
    assert [(status, err) for status, _, err in run_together(body, 3)] == [(0, "")] * 3


@pytest.mark.parametrize(
    ("act", "rank", "statuses"),
    [
        ('raise InputError("wrong data")', 1, [1, 2, 1]),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", 0, [-9, 1, 1], marks=pytest.mark.slow),
    ],
)
def test_the_others_say_that_a_process_has_ended(run_together, act, rank, statuses):
    body = f"""
import signal, sys
from mt_cli.cli import main as cli

def work(**options):
    with launched_group() as group:
        group.all_gather(0)
        if group.rank == {rank}:
            {act}
        for _ in range(1000):
            group.all_reduce([torch.ones(10)])

cli.command_line = lambda typed: work
cli.main()
"""
    results = run_together(body, 3)
    assert [status for status, *_ in results] == statuses, results
    for number, (_, _, err) in enumerate(results):
        assert ("another process has ended" in err) == (number != rank) and "Traceback" not in err, err
