import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Sentence, TransformerEngine
from mt_cli.errors import InputError
from mt_cli.features.serving.errors import GivenUpError
from mt_cli.features.serving.scheduling import BatchedEngine, Scheduler, Ticket


class Recorder:
    """Computes twice each row; records the batches, and waits at a gate before each."""

    def __init__(self):
        self.batches, self.gate = [], threading.Event()

    def compute(self, rows):
        self.gate.wait()
        self.batches.append(list(rows))
        if "bad" in rows:
            raise InputError("bad")
        return [2 * row for row in rows]


@pytest.fixture
def scheduler():
    scheduler = Scheduler(max_wait_seconds=0.02)
    yield scheduler
    scheduler.give_up_all()
    scheduler.stop()


@pytest.fixture
def recorder():
    recorder = Recorder()
    yield recorder
    recorder.gate.set()


@pytest.fixture
def pool():
    with ThreadPoolExecutor(64) as pool:
        yield pool


class Memory:
    """Memory of a batch, which can be told to be free."""


def test_a_batch_that_failed_holds_no_memory_while_its_calls_are_computed_alone(pool, scheduler):
    gate, memories, alive = threading.Event(), [], []

    def compute(rows):
        gate.wait()
        alive.append([memory() is not None for memory in memories])
        memory = Memory()
        memories.append(weakref.ref(memory))
        if len(rows) > 1:
            raise RuntimeError("out of memory")
        return rows

    calls = [pool.submit(scheduler.call, Ticket(), "key", compute, [row], [1], 1000) for row in "abc"]
    wait_for(lambda: len(scheduler._calls) == 3)
    gate.set()
    assert [call.result() for call in calls] == [["a"], ["b"], ["c"]]
    assert len(alive) > 2 and not any(any(row) for row in alive)


def submit(pool, scheduler, recorder, rows, batch_tokens=1000, key="key", ticket=None, lengths=None):
    arguments = (ticket or Ticket(), key, recorder.compute, rows, lengths or [1] * len(rows), batch_tokens)
    return pool.submit(scheduler.call, *arguments)


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


def occupy(pool, scheduler, recorder):
    """A call that is being computed until the gate opens."""
    first = submit(pool, scheduler, recorder, ["first"])
    wait_for(lambda: scheduler._calls and not scheduler.num_waiting_tokens)
    return first


def test_rows_that_wait_together_are_one_batch_and_come_back_in_order(pool, scheduler, recorder):
    first = occupy(pool, scheduler, recorder)
    calls = [submit(pool, scheduler, recorder, [f"{number}a", f"{number}b"]) for number in range(20)]
    wait_for(lambda: scheduler.num_waiting_tokens == 40)
    recorder.gate.set()
    assert [call.result() for call in calls] == [[2 * f"{n}a", 2 * f"{n}b"] for n in range(20)]
    assert first.result() == ["firstfirst"] and len(recorder.batches) == 2


def test_no_batch_has_more_tokens_than_allowed_unless_one_row_has(pool, scheduler, recorder):
    first = occupy(pool, scheduler, recorder)
    calls = [
        submit(pool, scheduler, recorder, list("abcdefgh"), batch_tokens=10, lengths=[1, 2, 3, 4, 5, 6, 7, 30])
        for _ in range(5)
    ]
    wait_for(lambda: len(scheduler._calls) == 6)
    recorder.gate.set()
    assert [call.result() for call in [first, *calls]] == [["firstfirst"], *[[2 * row for row in "abcdefgh"]] * 5]
    sizes = dict(zip("abcdefgh", [1, 2, 3, 4, 5, 6, 7, 30], strict=True))
    for batch in recorder.batches[1:]:
        assert len(batch) == 1 or sum(map(sizes.get, batch)) <= 10


def test_a_short_call_does_not_wait_for_a_long_one(pool, scheduler, recorder):
    first = occupy(pool, scheduler, recorder)
    long = submit(pool, scheduler, recorder, [f"long{number}" for number in range(500)], batch_tokens=20)
    wait_for(lambda: scheduler.num_waiting_tokens == 500)
    short = [submit(pool, scheduler, recorder, [f"short{number}"], batch_tokens=20) for number in range(5)]
    wait_for(lambda: scheduler.num_waiting_tokens == 505)
    recorder.gate.set()
    for call in (first, long, *short):
        call.result()
    assert {row for row in recorder.batches[1] if row.startswith("short")} == {f"short{n}" for n in range(5)}


def test_a_long_call_is_served_while_short_ones_keep_coming(pool, scheduler, recorder, monkeypatch):
    monkeypatch.setattr("mt_cli.features.serving.scheduling._PATIENCE_SECONDS", 0.1)
    recorder.gate.set()
    is_done = threading.Event()

    def keep_asking():
        while not is_done.is_set():
            scheduler.call(Ticket(), "key", slow, ["short"] * 4, [1] * 4, 4)

    def slow(rows):
        time.sleep(0.005)
        return rows

    askers = [pool.submit(keep_asking) for _ in range(8)]
    try:
        assert len(scheduler.call(Ticket(), "key", slow, ["long"] * 12, [1] * 12, 4)) == 12
    finally:
        is_done.set()
    for asker in askers:
        asker.result()


def test_an_error_fails_its_call_alone(pool, scheduler, recorder):
    first = occupy(pool, scheduler, recorder)
    calls = [submit(pool, scheduler, recorder, [row]) for row in ("good", "bad", "fine")]
    wait_for(lambda: scheduler.num_waiting_tokens == 3)
    recorder.gate.set()
    assert first.result() and calls[0].result() == ["goodgood"] and calls[2].result() == ["finefine"]
    with pytest.raises(InputError, match="bad"):
        calls[1].result()


def test_calls_of_different_keys_are_never_in_one_batch(pool, scheduler, recorder):
    first = occupy(pool, scheduler, recorder)
    calls = [submit(pool, scheduler, recorder, [f"{key}{n}"], key=key) for n in range(4) for key in "xy"]
    wait_for(lambda: scheduler.num_waiting_tokens == 8)
    recorder.gate.set()
    assert all(call.result() for call in [first, *calls])
    assert all(len({row[0] for row in batch}) == 1 for batch in recorder.batches)


def test_a_request_that_is_given_up_is_not_computed(pool, scheduler, recorder):
    first, ticket = occupy(pool, scheduler, recorder), Ticket()
    given_up = submit(pool, scheduler, recorder, ["unwanted"], ticket=ticket)
    wanted = submit(pool, scheduler, recorder, ["wanted"])
    wait_for(lambda: scheduler.num_waiting_tokens == 2)
    scheduler.give_up(ticket)
    with pytest.raises(GivenUpError):
        given_up.result()
    recorder.gate.set()
    assert first.result() and wanted.result() == ["wantedwanted"]
    assert not any("unwanted" in batch for batch in recorder.batches)
    with pytest.raises(GivenUpError):
        scheduler.call(ticket, "key", recorder.compute, ["later"], [1], 10)


def test_stopping_finishes_what_waits_and_takes_no_more(pool, recorder):
    scheduler = Scheduler()
    first = occupy(pool, scheduler, recorder)
    second = submit(pool, scheduler, recorder, ["second"])
    wait_for(lambda: scheduler.num_waiting_tokens == 1)
    stopping = pool.submit(scheduler.stop)
    wait_for(lambda: scheduler._is_stopped)
    recorder.gate.set()
    stopping.result()
    assert first.result() == ["firstfirst"] and second.result() == ["secondsecond"]
    with pytest.raises(GivenUpError):
        scheduler.call(Ticket(), "key", recorder.compute, ["third"], [1], 10)


def test_calls_together_give_the_results_of_the_engine_alone(trained, pool, scheduler):
    run = TrainedRun.load(trained)
    engine = TransformerEngine(run.model.eval())
    sources = run.tokenizers[0].encode(["one two.", "three.", "four five six seven.", "eight nine ten one two.", ""])
    decoding = DecodingConfig(beam_size=3)
    alone = [engine.search([Sentence(source)], decoding, 2) for source in sources]
    batched = [BatchedEngine(engine, scheduler, Ticket()) for _ in sources]
    results = [
        pool.submit(own.search, [Sentence(source)], decoding, 2) for own, source in zip(batched, sources, strict=True)
    ]
    together = [result.result() for result in results]
    assert [[best.ids for best in found[0]] for found in together] == [[b.ids for b in found[0]] for found in alone]
    scores = [[best.score for best in found[0]] for found in together]
    assert scores == [pytest.approx([best.score for best in found[0]], abs=1e-4) for found in alone]
    pairs = [(source, found[0][0].ids) for source, found in zip(sources, alone, strict=True)]
    forced = BatchedEngine(engine, scheduler, Ticket()).force_decode(pairs)
    for one, other in zip(forced, engine.force_decode(pairs), strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
