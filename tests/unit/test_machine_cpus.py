import os
import sys
import time

import pytest

from mt_cli.machine import cpus
from mt_cli.machine.cpus import in_threads, spin_less_if_busy, threads_if_busy


def test_results_of_threads_come_in_the_order_of_items_with_few_items_taken_ahead():
    taken = []

    def items():
        for number in range(20):
            taken.append(number)
            yield number

    def work(number):
        time.sleep(0.002 * (number % 2 == 0))  # An even item ends after the next odd one.
        return number * 10

    for done, result in enumerate(in_threads(work, items())):
        assert result == done * 10 and len(taken) <= done + 4
    assert taken == list(range(20))


def test_an_error_in_a_thread_is_raised_where_its_result_would_come():
    results = in_threads(lambda number: 1 // number, [1, 1, 0, 1])
    assert [next(results), next(results)] == [1, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.fixture
def machine(monkeypatch):
    """Pretends that four CPUs have this many idle ones, and sets the variables of the environment."""

    def pretend(idle, variables):
        monkeypatch.setattr(cpus, "idle_cpus", lambda seconds: idle)
        monkeypatch.setattr(os, "cpu_count", lambda: 4)
        monkeypatch.setattr(os, "environ", dict(variables))
        monkeypatch.delitem(sys.modules, "torch", raising=False)

    return pretend


@pytest.mark.parametrize(
    ("idle", "variables", "spin_count", "num_threads"),
    [
        (4.0, {}, None, None),
        (3.4, {}, "1000", 3),
        (0.0, {}, "1000", 1),
        (None, {}, None, None),
        (0.0, {"GOMP_SPINCOUNT": "7"}, "7", None),
        (0.0, {"OMP_WAIT_POLICY": "ACTIVE"}, None, None),
        (0.0, {"OMP_NUM_THREADS": "4"}, "1000", None),
    ],
)
def test_threads_of_a_busy_machine_are_few_or_spin_less_unless_the_user_has_set_them(
    machine, idle, variables, spin_count, num_threads
):
    machine(idle, variables)
    assert threads_if_busy() == num_threads
    spin_less_if_busy()
    assert os.environ.get("GOMP_SPINCOUNT") == spin_count
