"""A disk that becomes full while a line is written."""

import resource
from contextlib import contextmanager


@contextmanager
def room_for(path, num_bytes):
    """Context manager in which this process writes no file beyond the size of `path` and this number of bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
