import itertools
from contextlib import closing

import pytest

from mt_cli.evaluation.results import read_rows
from mt_cli.run.log import Records


@pytest.fixture(autouse=True)
def seconds(monkeypatch):
    """Each start has a second of its own, as TensorBoard's files are ordered by it."""
    clock = itertools.count(1e9)
    monkeypatch.setattr("time.time", lambda: next(clock))


def board_of(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"tensors": 0}).Reload()


def points(folder, tag):
    return [(point.step, point.value) for point in board_of(folder).Scalars(tag)]


def test_records_forget_what_came_after_the_saved_sizes(tmp_path):
    records = Records(tmp_path, 0, {})
    for step in (1, 2, 3):
        records.write_metrics(step, step * 1.5, {"train/loss": 0.5**step, "train/x": float("nan")})
        records.write_samples(step, [("a|b", "c", f"d{step}")])
        if step == 2:
            records.write_metrics(2, 3.0, {"valid/chrf": 7.0})
            sizes = records.flush()
    records.write_metrics(2, 4.0, {"valid/loss": 7.0})
    records.close()
    with closing(Records(tmp_path, 2, sizes)) as records:
        records.write_metrics(3, 9.0, {"train/loss": 0.25})
    losses = [(1, 0.5), (2, 0.25), (3, 0.25)]
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [(row["step"], row["train/loss"]) for row in rows if "train/loss" in row] == losses
    assert points(tmp_path, "train/loss") == losses and points(tmp_path, "valid/chrf") == [(2, 7.0)]
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()
    board = board_of(tmp_path)
    assert "valid/loss" not in board.Tags()["scalars"] or not board.Scalars("valid/loss")
    samples = (tmp_path / "samples.txt").read_text()
    assert "# step 2\nsource     a|b\nreference  c\nhypothesis d2\n" in samples and "d3" not in samples


def test_a_row_that_a_crash_cut_off_is_forgotten(tmp_path):
    content = b'{"step": 1}\n{"step": 2}\n'
    (tmp_path / "metrics.jsonl").write_bytes(content + b'{"ste')
    Records(tmp_path, 5, {"metrics.jsonl": 1000})
    assert (tmp_path / "metrics.jsonl").read_bytes() == content


def test_each_point_is_shown_once_after_any_number_of_starts(tmp_path):
    """The file that a crash cut off in the middle of an event is one of them."""
    sizes = {}
    for start in range(4):
        records = Records(tmp_path, start, sizes)
        for step in (start + 1, start + 2, start + 3):  # The last two are lost.
            records.write_metrics(step, 1.0, {"train/loss": float(start), "valid/loss": 1.0})
            sizes = records.flush() if step == start + 1 else sizes
        records.close()
        if start % 2:
            (*_, path) = sorted(tmp_path.glob("events.*"))
            path.write_bytes(path.read_bytes()[:-5])
    assert points(tmp_path, "train/loss") == [(1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0), (5, 3.0), (6, 3.0)]
