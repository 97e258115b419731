"""What can go wrong in a way that a user can mend.

    MtError                      exit status 1: the work failed
    ├── InputError               exit status 2: what was given is wrong
    │   ├── ConfigError          the YAML file or a `--set`
    │   ├── CorpusError          parallel text that cannot be read or used
    │   └── RunError             a run directory that is missing, incomplete or another run's
    │       └── DamagedFileError a file in it that is not as it was written
    ├── DeviceMemoryError        a device has too little memory
    ├── DivergenceError          training runs away from every solution
    └── RunInterruptedError      exit status 130: stopped by a signal, state saved

The command line prints the message of an `MtError` on one line and no traceback. Every other exception is a
bug of ours and keeps its traceback.
"""


class MtError(Exception):
    """A failure that the message explains: what was found, where, and what to do."""

    exit_code = 1


class InputError(MtError):
    """The command line, the config or the data is wrong."""

    exit_code = 2


class ConfigError(InputError):
    """A config, or a value given by `--set`, is wrong; all its problems are in the message."""


class CorpusError(InputError):
    """Parallel text is missing, unreadable, misaligned or empty."""


class RunError(InputError):
    """A run directory is missing, incomplete, or belongs to another config."""


class DamagedFileError(RunError):
    """A file of a run directory is not as it was written."""


class DeviceMemoryError(MtError):
    """The memory of a device does not suffice, whatever the size of batches."""


class DivergenceError(MtError):
    """Too many steps in a row had a loss or gradient that was not finite, or the scores of a model are not numbers."""


class RunInterruptedError(MtError):
    """A signal stopped the work after its state was saved."""

    exit_code = 130


def reason(error: Exception) -> str:
    """Why something could not be read or written, as the end of a message."""
    from pydantic import ValidationError  # Not at start-up: the command line imports this module for its help.

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.removeprefix(_SAVING_FAILED).lower()


_SAVING_FAILED = "Error while serializing: I/O error: "
"""How safetensors begins an error of the disk."""
