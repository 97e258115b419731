"""Lines that are prepared and joined in processes."""

from functools import partial

import pytest

from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.decoding.engine import Hypothesis
from mt_cli.errors import DivergenceError, InputError
from mt_cli.tokenizer.vocabulary_training import train_tokenizer
from mt_cli.translation.stream import TextWork, format_texts
from mt_cli.translation.text_processes import TextProcesses
from mt_cli.translation.translator import Translator

LINES = [f"one two {number}" for number in range(600)] + [""]


class Engine:
    """Repeats sources; cannot be sent to another process."""

    def __init__(self, error=None):
        self._error, self.send = error, lambda: None

    def search(self, sentences, decoding, num_best=1):
        if self._error:
            raise self._error
        return [[Hypothesis(list(sentence.ids), -1.0)] for sentence in sentences]


@pytest.fixture(scope="module")
def work():
    tokenizer = train_tokenizer(["one two"] * 9, TokenizerConfig(algorithm="word_level"))

    def work_of(engine, **search):
        translator = Translator(engine, (tokenizer, tokenizer), DecodingConfig(), 99)
        return TextWork(translator, {"unk": "keep", **search}, [partial(format_texts, 1)])

    return work_of


def test_processes_write_what_one_process_writes(work):
    alone = work(Engine())
    with_processes = TextProcesses(alone, 2)
    assert [with_processes(LINES) for _ in range(3)] == [alone(LINES)] * 3
    assert with_processes(LINES[:5]) == alone(LINES[:5])


@pytest.mark.parametrize(
    ("engine", "search", "error"),
    [(Engine(DivergenceError("not a number")), {}, DivergenceError), (Engine(), {"beam_size": -1}, InputError)],
)
def test_errors_of_engine_and_text_are_raised_by_the_caller(engine, search, error, work):
    with pytest.raises(error):
        TextProcesses(work(engine, **search), 1)(LINES)
