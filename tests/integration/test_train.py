"""A training from its command to its run directory."""

import os
import signal
import sys
import time

import pytest
from run_content import assert_equal_tensors, report_of, rows_of, tensors_of


def test_metrics_of_a_complete_run_are_shown_by_tensorboard(mt, tiny_config, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert mt("train", "--config", tiny_config)[:2] == (0, "")
    run = tmp_path / "runs/tiny"
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "tokenizer.source.json", "tokenizer.target.json", "metrics.jsonl", "samples.txt"} <= names
    assert {path.stem for path in (run / "checkpoints").iterdir()} == {"best", "last", "step-11"}
    report = report_of(run)
    assert report["stopped_because"] == "max_epochs 2" and report["bleu"]["signature"].startswith("nrefs:1|")
    assert {"best_step", "elapsed_seconds", "num_target_tokens", "versions", "hardware", "chrf", "ter"} <= set(report)
    rows = rows_of(run)
    tags = {tag for row in rows for tag in row} - {"step", "elapsed_seconds"}
    train = {"train/loss", "train/token_accuracy", "train/learning_rate", "train/tokens_per_second", "train/grad_norm"}
    train |= {"train/steps_per_second", "train/memory_mb"}
    scores = ("loss", "perplexity", "token_accuracy", "bleu", "chrf", "cer", "wer")
    assert tags == train | {f"valid/{score}" for score in scores}
    board = EventAccumulator(str(run)).Reload()
    assert set(board.Tags()["scalars"]) == tags
    for tag in tags:
        ours = [(row["step"], pytest.approx(row[tag], rel=1e-5)) for row in rows if tag in row]
        assert [(point.step, point.value) for point in board.Scalars(tag)] == ours
    assert board.Tags()["tensors"] == ["samples/text_summary"]


def test_the_saved_config_repeats_the_run(mt, quick_tree, tiny_config, tmp_path):
    assert mt("train", "--config", tiny_config, "--set", "training.max_steps=2")[0] == 0
    assert mt("train", "--config", "runs/tiny/config.yaml", "--set", "name=again")[0] == 0
    assert_equal_tensors(*(tensors_of(tmp_path / "runs" / name, "last") for name in ("tiny", "again")))


ENDLESS = ["--set", "training.max_epochs=100000", "--set", "training.validate_every_steps=1000000"]


@pytest.mark.slow
def test_a_lost_connection_saves_and_the_same_command_resumes(mt, start, tiny_config, tmp_path):
    command, run = ["train", "--config", tiny_config, *ENDLESS], tmp_path / "runs/tiny"
    terminal, side_of_the_program = os.openpty()
    launched = [sys.executable, "-m", "mt_cli", *command, "--progress", "none"]
    process = start(launched, cwd=tmp_path, stderr=side_of_the_program)
    os.close(side_of_the_program)
    end = time.monotonic() + 300
    while not ((run / "metrics.jsonl").exists() and rows_of(run)):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    os.close(terminal)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=300) == 130
    step = rows_of(run)[-1]["step"]
    status, _, err = mt(*command, "--set", f"training.max_steps={step + 2}")
    assert status == 0 and f"Resuming from step {step}." in err


def test_a_second_ctrl_c_stops_at_once(mt, tiny_config, monkeypatch):
    from mt_cli.runtime.signals import Signals

    def train(*arguments):
        with Signals().recorded():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("mt_cli.run.train.train", train)
    status, _, err = mt("train", "--config", tiny_config)
    assert status == 130 and err.endswith("mt: interrupted\n")


def test_an_automatic_batch_size_is_saved_in_the_config(mt, quick_tree, tiny_config, tmp_path):
    command = ("train", "--config", tiny_config, "--set", "training.batch_tokens=auto", "--set")
    assert mt(*command, "training.max_steps=1")[0] == 0
    assert "batch_tokens: 4096" in (tmp_path / "runs" / "tiny" / "config.yaml").read_text()
    status, _, err = mt(*command, "training.max_steps=2")
    assert status == 0 and "max_steps: was 1, now 2" in err and "batch_tokens" not in err
