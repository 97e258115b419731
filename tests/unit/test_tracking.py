import json

from mt_cli.tracking import Tracker


def test_a_tracker_opened_at_a_step_forgets_what_came_later(tmp_path):
    with Tracker(tmp_path, 0) as tracker:
        for step in (1, 2, 3):
            tracker.write_metrics(step, step * 1.5, {"train/loss": 1 / step})
            tracker.write_samples(step, [("a|b", "c", f"d{step}")])
    with Tracker(tmp_path, 2) as tracker:
        tracker.write_metrics(3, 9.0, {"train/loss": 0.25})
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["train/loss"]) for row in rows] == [(1, 1.0), (2, 0.5), (3, 0.25)]
    samples = (tmp_path / "samples.txt").read_text()
    assert "# step 2\nsource     a|b\nreference  c\nhypothesis d2\n" in samples
    assert "d3" not in samples


def test_a_row_that_a_crash_cut_off_is_forgotten(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"ste', encoding="utf-8")
    with Tracker(tmp_path, 5):
        pass
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n'
