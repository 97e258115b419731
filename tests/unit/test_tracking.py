import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mt_cli.errors import MtError
from mt_cli.tracking import Tracker


def points(folder, tag):
    return [(point.step, point.value) for point in EventAccumulator(str(folder)).Reload().Scalars(tag)]


def test_a_tracker_opened_with_saved_sizes_forgets_what_came_later(tmp_path):
    with Tracker(tmp_path, 0, {}) as tracker:
        for step in (1, 2, 3):
            tracker.write_metrics(step, step * 1.5, {"train/loss": 0.5**step})
            tracker.write_samples(step, [("a|b", "c", f"d{step}")])
            if step == 2:
                sizes = tracker.flush()
        tracker.write_metrics(2, 4.0, {"valid/loss": 7.0})
    with Tracker(tmp_path, 2, sizes) as tracker:
        tracker.write_metrics(3, 9.0, {"train/loss": 0.25})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["train/loss"]) for row in rows] == [(1, 0.5), (2, 0.25), (3, 0.25)]
    assert points(tmp_path, "train/loss") == [(1, 0.5), (2, 0.25), (3, 0.25)]
    assert "valid/loss" not in EventAccumulator(str(tmp_path)).Reload().Tags()["scalars"] or not points(
        tmp_path, "valid/loss"
    )
    samples = (tmp_path / "samples.txt").read_text()
    assert "# step 2\nsource     a|b\nreference  c\nhypothesis d2\n" in samples
    assert "d3" not in samples


def test_a_validation_that_was_saved_is_kept(tmp_path):
    with Tracker(tmp_path, 0, {}) as tracker:
        tracker.write_metrics(1, 1.0, {"train/loss": 0.5})
        tracker.write_metrics(1, 1.0, {"valid/loss": 7.0})
        tracker.write_samples(1, [("a", "b", "c")])
        sizes = tracker.flush()
    with Tracker(tmp_path, 1, sizes):
        pass
    assert points(tmp_path, "train/loss") == [(1, 0.5)]
    assert points(tmp_path, "valid/loss") == [(1, 7.0)]
    assert len(EventAccumulator(str(tmp_path)).Reload().Tensors("samples/text_summary")) == 1


def test_a_row_that_a_crash_cut_off_is_forgotten(tmp_path):
    content = b'{"step": 1}\n{"step": 2}\n'
    (tmp_path / "metrics.jsonl").write_bytes(content + b'{"ste')
    with Tracker(tmp_path, 5, {"metrics.jsonl": 1000}):
        pass
    assert (tmp_path / "metrics.jsonl").read_bytes() == content


def test_numbers_that_json_does_not_know_are_left_out(tmp_path):
    with Tracker(tmp_path, 0, {}) as tracker:
        tracker.write_metrics(1, 1.0, {"train/loss": float("nan"), "train/grad_norm": float("inf"), "train/x": 1.0})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "elapsed_seconds": 1.0, "train/x": 1.0}


def test_what_cannot_be_written_is_named(tmp_path):
    with Tracker(tmp_path, 0, {}) as tracker:
        (tmp_path / "metrics.jsonl").mkdir()
        with pytest.raises(MtError, match=r"metrics.jsonl: cannot be written: is a directory"):
            tracker.write_metrics(1, 1.0, {"train/loss": 1.0})
