"""Blocks of text in a pipeline: their order, what overlaps, and how it ends."""

import threading
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from itertools import count, islice

import pytest

from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.decoding.engine import Hypothesis
from mt_cli.tokenizer.vocabulary_training import train_tokenizer
from mt_cli.translation.pipeline import MOST_BLOCKS, Pipeline
from mt_cli.translation.translator import Translator

SECONDS = 60.0


@dataclass
class Engine:
    """Repeats sources; calls `on_search` with the number of the search first."""

    on_search: object = lambda number: None
    threads: set = field(default_factory=set)
    num_searches: int = 0
    sentences: tuple = ()
    """Of the last search."""

    def search(self, sentences, decoding, num_best=1):
        self.threads.add(threading.current_thread())
        self.num_searches += 1
        self.sentences = sentences
        self.on_search(self.num_searches)
        return [[Hypothesis(list(sentence.ids), -1.0)] for sentence in sentences]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["one two"] * 9, TokenizerConfig(algorithm="word_level"))


@pytest.fixture
def run(tokenizer):
    """A function that translates blocks in a pipeline and returns the blocks that were written, also after an error."""

    def run_blocks(engine, blocks, on_work=lambda block: None, on_write=lambda texts: None):
        written = []
        pipeline = Pipeline()
        translator = Translator(pipeline.queued(engine), (tokenizer, tokenizer), DecodingConfig(), 99)

        def work(block):
            on_work(block)
            return translator.translate(block)

        def write(texts):
            on_write(texts)
            written.append(texts)

        try:
            pipeline.run(blocks, work, write)
        except BaseException as error:
            return written, error
        return written, None

    return run_blocks


def test_blocks_are_written_in_order_and_searched_in_the_calling_thread(run):
    blocks = [[f"one {'two ' * number}".strip()] for number in range(20)]
    engine = Engine()
    assert run(engine, blocks) == (blocks, None)
    assert engine.threads == {threading.current_thread()}
    assert run(Engine(), []) == ([], None)


def test_text_is_encoded_and_written_while_the_engine_searches(run, tokenizer):
    """The search of the second block ends only when the first block is written and the third one encoded."""
    is_searched, is_begun, is_written = (threading.Event() for _ in range(3))
    first, second = ([*ids] for ids in tokenizer.encode(["one", "two"]))

    def on_search(number):
        ids = [*engine.sentences[0].ids]
        if ids == first:
            is_searched.set()
        assert ids != second or (is_written.wait(SECONDS) and is_begun.wait(SECONDS))

    def on_work(block):
        """Threads may ask for their searches in any order: the second block asks after the first one."""
        assert block != blocks[1] or is_searched.wait(SECONDS)
        if block == blocks[2]:
            is_begun.set()

    blocks, engine = [["one"], ["two"], ["one two"]], Engine(on_search)
    written, error = run(engine, blocks, on_work=on_work, on_write=lambda texts: is_written.set())
    assert (written, error) == (blocks, None)


def test_few_blocks_are_in_memory(run):
    """Of a source without end."""
    numbers, num_written, most = count(), 0, 0

    def blocks():
        nonlocal most
        for number in islice(numbers, 200):
            most = max(most, number - num_written)
            yield ["one"]

    def on_write(texts):
        nonlocal num_written
        num_written += 1

    written, error = run(Engine(), blocks(), on_write=on_write)
    assert (len(written), error) == (200, None) and most <= MOST_BLOCKS + 1


def fail(error, is_now=True):
    if is_now:
        raise error


@pytest.mark.parametrize("place", ["blocks", "work", "write", "engine", "interruption"])
def test_an_error_ends_all_threads_after_earlier_blocks_are_written(run, place):
    error = KeyboardInterrupt() if place == "interruption" else ValueError(place)
    is_written = threading.Event()

    def blocks():
        yield ["one"]
        yield ["two"]
        if place == "blocks":
            raise error
        yield from [["one two"]] * 100

    def on_work(block):
        assert block == ["one"] or is_written.wait(SECONDS)
        fail(error, place == "work" and block == ["one two"])

    def on_write(texts):
        is_written.set()
        fail(error, place == "write" and texts == ["one two"])

    def on_search(number):
        fail(error, len(engine.sentences[0].ids) == 2 and place in ("engine", "interruption"))

    engine = Engine(on_search)
    before = set(threading.enumerate())
    written, raised = run(engine, blocks(), on_work, on_write)
    assert raised is error
    assert written[:2] == [["one"], ["two"]][: len(written)] and len(written) >= (1 if place == "interruption" else 2)
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("text")]


def test_a_silent_source_keeps_no_thread_of_text(run):
    """Ctrl-C while the reader waits for more."""
    waits = threading.Event()

    def blocks():
        yield ["one"]
        waits.wait(SECONDS)

    def on_write(texts):
        raise KeyboardInterrupt

    written, raised = run(Engine(), blocks(), on_write=on_write)
    waits.set()
    assert written == [] and isinstance(raised, KeyboardInterrupt)


def test_calls_after_the_end_are_cancelled():
    pipeline = Pipeline()
    pipeline.run([], str, str)
    with pytest.raises(CancelledError):
        pipeline.call(str)
