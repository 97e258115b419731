"""Batches of the scheduler: what is computed together, in which order, and what a failure or an end leaves."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from serving_server import wait_for

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Sentence
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.errors import InputError
from mt_cli.serving import scheduling
from mt_cli.serving.errors import RequestCancelled
from mt_cli.serving.scheduling import Scheduler, Ticket, batched_engine


class Work:
    """Calls of a scheduler that compute twice each row; records the batches, and holds them until the gate opens."""

    def __init__(self, pool):
        self.scheduler, self.batches, self.gate = Scheduler(), [], threading.Event()
        self._pool = pool

    def compute(self, rows):
        self.gate.wait()
        self.batches.append(list(rows))
        if "bad" in rows:
            raise InputError("bad")
        return [2 * row for row in rows]

    def submit(self, rows, batch_tokens=1000, key="key", ticket=None, lengths=None):
        arguments = (ticket or Ticket(), key, self.compute, rows, lengths or [1] * len(rows), batch_tokens)
        num_calls = len(self.scheduler._calls)
        call = self._pool.submit(self.scheduler.call, *arguments)
        wait_for(lambda: len(self.scheduler._calls) > num_calls)
        return call


@pytest.fixture
def pool():
    with ThreadPoolExecutor(64) as pool:
        yield pool


@pytest.fixture
def work(pool):
    """Work whose scheduler computes a first call until the gate opens, so that the next calls wait."""
    work = Work(pool)
    work.first = work.submit(["first"])
    wait_for(lambda: not any(call.pending for call in work.scheduler._calls))
    yield work
    work.gate.set()
    work.scheduler.stop()


def test_waiting_rows_are_one_batch_and_come_back_in_order(work):
    calls = [work.submit([f"{number}a", f"{number}b"]) for number in range(20)]
    work.gate.set()
    assert [call.result() for call in calls] == [[2 * f"{n}a", 2 * f"{n}b"] for n in range(20)]
    assert work.first.result() == ["firstfirst"] and len(work.batches) == 2


def test_clients_that_ask_again_meet_in_one_batch(monkeypatch, work, pool):
    """Those of the first batch come back one after the other, and the next batch waits for the last of them."""
    monkeypatch.setattr(scheduling, "_WAITING_SHARE", 1e6)
    monkeypatch.setattr(scheduling, "_WAITING_SECONDS", 1.0)
    arguments = ("key", work.compute)

    def ask_twice(number):
        work.scheduler.call(Ticket(), *arguments, [f"{number}a"], [1], 1000)
        wait_for(lambda: len(work.scheduler._calls) == number)
        threading.Event().wait(0.02)
        work.scheduler.call(Ticket(), *arguments, [f"{number}b"], [1], 1000)

    calls = [pool.submit(ask_twice, number) for number in range(4)]
    wait_for(lambda: len(work.scheduler._calls) == 5)
    work.gate.set()
    for call in calls:
        call.result()
    assert [sorted(batch) for batch in work.batches[1:]] == [["0a", "1a", "2a", "3a"], ["0b", "1b", "2b", "3b"]]


def test_a_batch_has_more_tokens_than_allowed_only_alone(work):
    sizes = dict(zip("abcdefgh", [1, 2, 3, 4, 5, 6, 7, 30], strict=True))
    calls = [work.submit(list(sizes), batch_tokens=10, lengths=[*sizes.values()]) for _ in range(5)]
    work.gate.set()
    assert [call.result() for call in calls] == [[2 * row for row in sizes]] * 5
    for batch in work.batches[1:]:
        assert len(batch) == 1 or sum(map(sizes.get, batch)) <= 10


@pytest.mark.parametrize("key", ["key", "other"])
def test_short_calls_never_wait_for_a_long_one(work, key):
    long = work.submit([f"long{number}" for number in range(300)], batch_tokens=20)
    short = [work.submit([f"short{number}"], batch_tokens=20, key=key) for number in range(5)]
    work.gate.set()
    for call in (long, *short):
        call.result()
    assert {f"short{n}" for n in range(5)} <= {row for batch in work.batches[1:3] for row in batch}
    assert all(len({row.startswith("short") for row in batch}) == 1 or key == "key" for batch in work.batches)


def test_an_error_fails_its_call_alone(work):
    calls = [work.submit([row]) for row in ("good", "bad", "fine")]
    work.gate.set()
    assert calls[0].result() == ["goodgood"] and calls[2].result() == ["finefine"]
    with pytest.raises(InputError, match="bad"):
        calls[1].result()


def test_a_cancelled_request_is_not_computed(work):
    ticket = Ticket()
    cancelled, wanted = work.submit(["unwanted"], ticket=ticket), work.submit(["wanted"])
    work.scheduler.cancel(ticket)
    with pytest.raises(RequestCancelled):
        cancelled.result()
    work.gate.set()
    assert wanted.result() == ["wantedwanted"] and work.batches == [["first"], ["wanted"]]
    with pytest.raises(RequestCancelled):
        work.scheduler.call(ticket, "key", work.compute, ["later"], [1], 10)


def test_a_stop_drops_what_waits_and_takes_no_more(work, pool):
    second, stopping = work.submit(["second"]), pool.submit(work.scheduler.stop)
    with pytest.raises(RequestCancelled):
        second.result()
    work.gate.set()
    stopping.result()
    assert work.first.exception() is not None
    with pytest.raises(RequestCancelled):
        work.scheduler.call(Ticket(), "key", work.compute, ["third"], [1], 10)


def test_calls_together_give_the_results_of_the_engine_alone(trained, work, pool):
    work.gate.set()
    run = TrainedRun.load(trained)
    engine = TransformerEngine(run.model.eval())
    sources = run.tokenizers[0].encode(["one two.", "three.", "four five six seven.", ""])
    decoding = DecodingConfig(beam_size=3)
    alone = [engine.search([Sentence(source)], decoding, 2)[0] for source in sources]
    batched = batched_engine(engine, work.scheduler, Ticket())
    calls = [pool.submit(batched.search, [Sentence(source)], decoding, 2) for source in sources]
    for call, expected in zip(calls, alone, strict=True):
        [hypotheses] = call.result()
        assert [best.ids for best in hypotheses] == [best.ids for best in expected]
        assert [best.score for best in hypotheses] == pytest.approx([best.score for best in expected], abs=1e-4)
    pairs = [(source, best[0].ids) for source, best in zip(sources, alone, strict=True)]
    for one, other in zip(batched.force_decode(pairs), engine.force_decode(pairs), strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
    for one, other in zip(batched.attend(pairs), engine.attend(pairs), strict=True):
        assert one.flatten().tolist() == pytest.approx(other.flatten().tolist(), abs=1e-4)
