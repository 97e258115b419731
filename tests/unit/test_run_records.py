import errno
from types import SimpleNamespace

import numpy as np
import pytest

from mt_cli.errors import InputError, MtError
from mt_cli.machine import console
from mt_cli.machine.console import Progress, show_progress
from mt_cli.reporting.records import Records, read_rows, read_samples, write_hparams

PICTURES = {"attention/1": np.zeros((4, 6, 3), dtype=np.uint8)}


def board_of(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0}).Reload()


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
    Records(tmp_path, 2, sizes).write_metrics(3, 9.0, {"train/loss": 0.25})
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


@pytest.mark.parametrize("value", ["true", "[1]", "NaN", "1" + "0" * 400])
def test_values_that_are_not_numbers_do_not_become_points(tmp_path, value):
    row = f'{{"step": 1, "train/a": {value}, "train/b": 2.0, "\\ud800/loss": 1.0}}\n{{"step": {value}}}\n'
    (tmp_path / "metrics.jsonl").write_text(row)
    Records(tmp_path, 1, {"metrics.jsonl": 9999}).flush()
    assert read_rows(tmp_path / "metrics.jsonl") == [{"step": 1, "train/b": 2.0}]
    assert points(tmp_path, "train/b") == [(1, 2.0)]


def test_a_file_or_disk_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    from tensorboard.summary.writer.record_writer import RecordWriter

    def write(self, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    records = Records(tmp_path, 0, {})
    with monkeypatch.context() as patch:
        patch.setattr(RecordWriter, "write", write)
        for call in (
            lambda: records.write_metrics(1, 1.0, {"train/loss": 1.0}),
            lambda: records.write_samples(1, [("a", "b", "c")]),
            lambda: records.write_pictures(1, PICTURES),
            lambda: write_hparams(tmp_path, 2, {}, {}),
        ):
            with pytest.raises(MtError, match=f"^{tmp_path}: .*no space left on device"):
                call()
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(MtError, match=r"metrics.jsonl: .*is a directory"):
        records.write_metrics(1, 1.0, {"train/loss": 1.0})


def test_each_point_is_shown_once_after_any_number_of_starts(tmp_path):
    """The file that a crash cut off in the middle of an event is one of them."""
    sizes = {}
    for start in range(4):
        records = Records(tmp_path, start, sizes)
        for step in (start + 1, start + 2, start + 3):  # The last two are lost.
            records.write_metrics(step, 1.0, {"train/loss": float(start), "valid/loss": 1.0})
            records.write_pictures(step, PICTURES)
            sizes = records.flush() if step == start + 1 else sizes
        if start % 2:
            (*_, path) = sorted(tmp_path.glob("events.*"))
            path.write_bytes(path.read_bytes()[:-5])
    assert points(tmp_path, "train/loss") == [(1, 0.0), (2, 1.0), (3, 2.0), (4, 3.0), (5, 3.0), (6, 3.0)]
    assert [picture.step for picture in board_of(tmp_path).Images("attention/1")] == [1, 2, 3, 4, 5]


def test_samples_are_shown_beside_the_last_ones(tmp_path):
    """After a restart, too."""
    sizes, pair = {}, ("a *b*", "r|f")
    for step, hypothesis in enumerate(("the cat sat", "the dog sat", "the dog sat"), 1):
        records = Records(tmp_path, step - 1, sizes)
        records.write_samples(step, [(*pair, hypothesis)])
        sizes = records.flush()
    texts = [point.tensor_proto.string_val[0].decode() for point in board_of(tmp_path).Tensors("samples/text_summary")]
    rows = [text.splitlines()[2] for text in texts]
    assert [[cell.strip() for cell in row.split("|")[-3:-1]] for row in rows] == [
        ["the cat sat", ""],
        ["the dog sat", "the cat sat"],
        ["the dog sat", "the same"],
    ]
    assert all("a \\*b\\*" in row and "r\\|f" in row for row in rows)
    assert read_samples(tmp_path / "samples.txt") == [(*pair, "the dog sat")]


def test_tensorboard_has_pictures_and_hparams(tmp_path):
    records = Records(tmp_path, 0, {})
    records.write_pictures(3, PICTURES)
    write_hparams(tmp_path, 8, {"model.d_model": 16, "training.patience": None}, {"final/test_bleu": 30.0})
    board = board_of(tmp_path)
    (picture,) = board.Images("attention/1")
    assert (picture.step, picture.width, picture.height) == (3, 6, 4)
    assert "_hparams_/session_start_info" in board.summary_metadata
    assert points(tmp_path, "final/test_bleu") == [(8, 30.0)]


@pytest.fixture
def clock(monkeypatch):
    """A function that moves the clock forward by some seconds."""
    now = [100.0]
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=lambda: now[0]))
    yield lambda seconds: now.__setitem__(0, now[0] + seconds)
    show_progress("auto")


def test_without_a_terminal_progress_is_a_line_now_and_then(clock, capsys):
    with Progress("train", 100, "step", max_seconds=100) as progress:
        progress.show(loss="2.5")
        for _ in range(70):
            clock(1)
            progress.advance()
    assert capsys.readouterr().err.splitlines() == [
        "train: 31 of 100 steps, 1.0 a second, 01:09 left  loss 2.5",
        "train: 62 of 100 steps, 1.0 a second, 00:38 left  loss 2.5",
    ]


def test_progress_can_be_silent_or_a_bar(clock, capsys):
    for mode, is_quiet, shown in (("none", False, ""), ("auto", True, ""), ("bar", False, "10/10")):
        show_progress(mode)
        with Progress("read", 10, "pair", is_quiet=is_quiet) as progress:
            clock(100)
            progress.advance(10)
        err = capsys.readouterr().err
        assert shown in err and bool(err) == bool(shown)
    with pytest.raises(InputError, match="use auto, bar, plain, none"):
        show_progress("loud")
