"""What signals do to a training: they ask for a stop or a save, and nothing that they interrupt fails."""

import io
import signal
import sys

import pytest

from mt_cli.runtime.console import say
from mt_cli.runtime.signals import STOPS, Signals, interrupt_training


@pytest.fixture(autouse=True)
def hangups_are_not_ignored():
    """Under `nohup`, SIGHUP is ignored, and stays so in a training."""
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, previous)


class SignalledRaw(io.RawIOBase):
    """A stream during whose first write a signal arrives."""

    def __init__(self, number):
        self.number, self.content = number, b""

    def writable(self):
        return True

    def write(self, data):
        if not self.content:
            self.content = b" "
            signal.raise_signal(self.number)
        self.content += bytes(data)
        return len(data)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_during_a_notice_is_only_a_request(monkeypatch, name):
    number = getattr(signal, name)
    raw = SignalledRaw(number)
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", line_buffering=True))
    with Signals().recorded() as signals:
        say("a notice")
        assert b"a notice" in raw.content
        assert signals.is_stop_requested == (name != "SIGUSR1")
        signals.synchronize(0.0)
        assert signals.take_save_request() == (name == "SIGUSR1") and not signals.take_save_request()
        assert (b"Saving" if name == "SIGUSR1" else b"Stopping") in raw.content


def test_only_ctrl_c_stops_at_once_after_another_signal():
    with Signals().recorded() as signals:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGHUP):
            signal.raise_signal(number)
        assert signals.is_stop_requested
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_signals_that_were_ignored_stay_ignored():
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals().recorded() as signals:
            signal.raise_signal(signal.SIGHUP)
            assert not signals.is_stop_requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_a_training_is_interrupted_alike_before_and_after_its_steps():
    names = (*STOPS, "SIGUSR1")
    previous = {name: signal.getsignal(getattr(signal, name)) for name in names}
    try:
        interrupt_training()
        signal.raise_signal(signal.SIGUSR1)
        for name in STOPS:
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(getattr(signal, name))
    finally:
        for name, handler in previous.items():
            signal.signal(getattr(signal, name), handler)
