"""Time that grows with the input."""

from time import process_time


def assert_linear(work, make, size: int = 400) -> None:
    """Check that work on eight times the input takes about eight times as long; 64 times would be quadratic."""

    def seconds(number):
        made = make(number)
        started_at = process_time()
        work(made)
        return process_time() - started_at

    def is_linear():
        return seconds(8 * size) < 25 * max(seconds(size), 0.001)

    assert any(is_linear() for _ in range(5))
