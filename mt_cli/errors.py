"""Errors that users can fix: the command line prints their message. Others are bugs, with a traceback."""

import re


class MtError(Exception):
    """A failure whose message names the problem, its place, and what to do. The work failed."""

    exit_code = 1


class InputError(MtError):
    """The command line, the config or the data is wrong."""

    exit_code = 2


class ConfigError(InputError):
    """A config or a value of `--set` is wrong; the message has all problems."""


class CorpusError(InputError):
    """Parallel text is missing, unreadable, misaligned or empty."""


class ColumnError(CorpusError):
    """A column of a table is missing or holds no text; `problem` is the message without advice for configs."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; set `columns`")
        self.problem = problem


class RunError(InputError):
    """A run directory is missing, incomplete, or belongs to another config."""


class DamagedFileError(RunError):
    """A file of a run directory has changed since it was written."""


class DeviceMemoryError(MtError):
    """A device has too little memory for any batch size."""


class DivergenceError(MtError):
    """Too many steps in a row had a loss or gradient that is not finite, or the scores of a model are not finite."""


class LostProcessError(MtError):
    """Another process of the same command has ended or cannot be reached."""


class RunInterruptedError(MtError):
    """A signal stopped the work after its state was saved."""

    exit_code = 130


def reason(error: Exception) -> str:
    """Reason of a failure to read or write, as the end of a message."""
    if isinstance(error, MtError):
        return str(error)
    from pydantic import ValidationError  # Slow to import, and `mt --help` does not need it.

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place, message = ".".join(map(str, first["loc"])), first["msg"].lower()
        return f"{place}: {message}" if place else message
    text = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
    # Rust adds a prefix and a number.
    return re.sub(r"^Error while serializing: I/O error: | \(os error [0-9]+\)$", "", text).lower()


def one_line(error: object) -> str:
    """Message of any exception, or another text, on one line of limited length; the type if it is empty."""
    return " ".join(str(error).split())[:300] or type(error).__name__
