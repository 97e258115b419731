import os
import re
import shutil
import signal
import sys
import time

import pytest
import torch
from run_content import report_of, rows_of
from safetensors import safe_open

from mt_cli.config.loading import load_config
from mt_cli.machine.signals import Signals
from mt_cli.training.objective import Objective
from mt_cli.translation.translator import Translator


def weights_of(path):
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys() if name.startswith("model.")}  # noqa: SIM118


def test_training_leaves_a_complete_run_directory_whose_metrics_tensorboard_shows(mt, tiny_config, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    full = ("--set", "training.num_pictures=2", "--set", "evaluation.num_resamples=1000")
    status, out, err = mt("train", "--config", tiny_config, *full)
    assert (status, out) == (0, "")
    for words in ("pairs", "entries", "parameters", "an epoch", "cpu, ", "Stopped by max_epochs 2", "mt translate"):
        assert words in err
    run = tmp_path / "runs/tiny"
    names = {path.name for path in run.iterdir() if not path.name.startswith("events.out.tfevents.")}
    assert {"config.yaml", "tokenizer.source.json", "tokenizer.target.json", "metrics.jsonl", "samples.txt"} <= names
    assert {path.stem for path in (run / "checkpoints").iterdir()} == {"best", "last", "step-11"}
    report = report_of(run)
    assert report["stopped_because"] == "max_epochs 2" and report["bleu"]["signature"].startswith("nrefs:1|")
    assert {"best_step", "elapsed_seconds", "num_target_tokens", "versions", "hardware", "chrf", "ter"} <= set(report)
    rows = rows_of(run)
    tags = {tag for row in rows for tag in row} - {"step", "elapsed_seconds"}
    train = {"train/loss", "train/token_accuracy", "train/learning_rate", "train/tokens_per_second", "train/grad_norm"}
    train |= {"optimizer/weight_norm", "speed/steps_per_second", "speed/padding_share", "speed/memory_mb"}
    scores = ("loss", "perplexity", "token_accuracy", "bleu", "chrf", "cer", "wer")
    assert tags == train | {f"valid/{score}" for score in scores}
    board = EventAccumulator(str(run)).Reload()
    final = {"final/test_bleu", "final/test_chrf", "final/parameters"}
    assert set(board.Tags()["scalars"]) == tags | final
    for tag in tags:
        ours = [(row["step"], pytest.approx(row[tag], rel=1e-5)) for row in rows if tag in row]
        assert [(point.step, point.value) for point in board.Scalars(tag)] == ours
    assert board.Tags()["tensors"] == ["samples/text_summary"]
    assert board.Tags()["images"] == ["attention/1", "attention/2"]
    assert min(board.Images("attention/1")[0].width, board.Images("attention/1")[0].height) > 100
    assert "_hparams_/experiment" in board.summary_metadata


def test_another_model_in_the_same_directory_is_refused_and_fresh_moves_the_old_one_aside(mt, trained, tmp_path):
    config = shutil.copytree(trained, tmp_path / "runs/tiny") / "config.yaml"
    shutil.copy(config, tmp_path / "config.yaml")
    (tmp_path / "runs/tiny.old-1").symlink_to("nowhere")  # A dangling link has the name.
    command = ("train", "--config", "config.yaml", "--set", "model.d_model=8")
    status, _, err = mt(*command)
    assert status == 2 and "model.d_model: was 32, now 8" in err and "--fresh" in err
    assert mt(*command, "--set", "training.max_steps=1", "--fresh")[0] == 0
    assert load_config(tmp_path / "runs/tiny.old-2/config.yaml").model.d_model == 32
    assert load_config(config).model.d_model == 8


def test_the_saved_config_repeats_the_run(mt, tiny_config, tmp_path):
    assert mt("train", "--config", tiny_config, "--set", "training.max_steps=5")[0] == 0
    assert mt("train", "--config", "runs/tiny/config.yaml", "--set", "name=again")[0] == 0
    ours, theirs = (weights_of(tmp_path / f"runs/{name}/checkpoints/last.safetensors") for name in ("tiny", "again"))
    assert ours and all(ours[name].equal(theirs[name]) for name in ours)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_final_scores_are_made_in_the_precision_of_training_which_the_report_names(
    mt, tiny_config, tmp_path, monkeypatch, precision
):
    load, used = Translator.load, []

    def noted(*arguments, **options):
        translator = load(*arguments, **options)
        used.append(next(translator.model.parameters()).dtype)
        return translator

    monkeypatch.setattr(Translator, "load", noted)
    changes = ("--set", f"training.precision={precision}", "--set", "training.max_steps=1")
    assert mt("train", "--config", tiny_config, *changes)[0] == 0
    assert used == [{"fp32": torch.float32, "bf16": torch.bfloat16}[precision]]
    report = report_of(tmp_path / "runs/tiny")
    assert report["precision"] == precision


def test_a_folder_laid_out_like_the_hub_trains_by_changing_one_line(mt, root, tmp_path, corpus):
    import pyarrow
    from pyarrow import parquet

    english, other = ((corpus / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "xx"))
    rows = [
        {"id": str(n), "translation": {"en": a, "it": b}} for n, (a, b) in enumerate(zip(english, other, strict=True))
    ]
    folder = tmp_path / "opus_books" / "en-it"
    folder.mkdir(parents=True)
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "train-00000-of-00001.parquet")
    text = (root / "configs/opus_books_en_it.yaml").read_text(encoding="utf-8")
    changed = text.replace("dataset: Helsinki-NLP/opus_books", f"dataset: {tmp_path / 'opus_books'}")
    assert changed != text
    (tmp_path / "books.yaml").write_text(changed, encoding="utf-8")
    smaller = ["model.d_model=16", "model.num_encoder_layers=1", "model.num_decoder_layers=1", "training.max_epochs=1"]
    status, _, err = mt("train", "--config", "books.yaml", *(part for s in smaller for part in ("--set", s)))
    assert status == 0, err
    assert int(re.search(r"train +(\d+) pairs", err)[1]) in range(340, 380)


ENDLESS = ["--set", "training.max_epochs=100000", "--set", "training.validate_every_steps=1000000"]


def wait_for_metrics(run, is_running):
    end = time.monotonic() + 300
    while not ((run / "metrics.jsonl").exists() and rows_of(run)):
        assert time.monotonic() < end and is_running()
        time.sleep(0.02)


def test_a_lost_connection_saves_and_the_same_command_resumes(mt, start, tiny_config, tmp_path):
    command = ["train", "--config", tiny_config, *ENDLESS]
    terminal, side_of_the_program = os.openpty()
    launched = [sys.executable, "-m", "mt_cli", *command, "--progress", "none"]
    process = start(launched, cwd=tmp_path, stderr=side_of_the_program)
    os.close(side_of_the_program)
    wait_for_metrics(tmp_path / "runs/tiny", lambda: process.poll() is None)
    os.close(terminal)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=300) == 130
    step = rows_of(tmp_path / "runs/tiny")[-1]["step"]
    status, _, err = mt(*command, "--set", f"training.max_steps={step + 2}")
    assert status == 0, err
    assert f"Resuming from step {step}." in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_stops_at_once_with_one_line(mt, tiny_config, monkeypatch, number):
    def train(*arguments):
        with Signals().recorded():
            signal.raise_signal(number)
            signal.raise_signal(number)

    monkeypatch.setattr("mt_cli.run.train.train", train)
    status, _, err = mt("train", "--config", tiny_config)
    assert status == 130 and err.endswith("a second signal stops at once)\nmt: interrupted\n")


def test_an_automatic_batch_size_is_saved_in_the_config_of_the_run(mt, tiny_config, tmp_path):
    command = ("train", "--config", tiny_config, "--set", "training.batch_tokens=auto", "--set")
    status, _, err = mt(*command, "training.max_steps=2")
    assert status == 0 and "auto is 4,096 here" in err
    assert "batch_tokens: 4096" in (tmp_path / "runs" / "tiny" / "config.yaml").read_text()
    status, _, err = mt(*command, "training.max_steps=3")
    assert status == 0 and "max_steps: was 2, now 3" in err and "batch_tokens" not in err


def test_a_lack_of_memory_is_reported_once(mt, tiny_config, monkeypatch):
    forward = Objective.forward

    def scarce(self, batch):
        if batch.num_sentences > 4 and torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(self, batch)

    monkeypatch.setattr(Objective, "forward", scarce)
    status, _, err = mt("train", "--config", tiny_config, "--set", "training.max_steps=5")
    assert status == 0
    assert err.count("did not fit in memory and was split") == 1


@pytest.mark.parametrize("num_samples", [0, 5])
def test_a_validation_prints_some_of_its_samples_below_its_scores(mt, tiny_config, tmp_path, monkeypatch, num_samples):
    monkeypatch.setenv("COLUMNS", "20")
    command = ("train", "--config", tiny_config, "--progress", "none", "--set", f"training.num_samples={num_samples}")
    lines = mt(*command)[2].splitlines()
    assert not any("%|" in line for line in lines)
    places = [place for place, line in enumerate(lines) if line.startswith("step ")]
    assert len(places) == 2
    sample = ["  source      ", "  reference   ", "  hypothesis  "] * min(num_samples, 2)
    for place in places:
        shown = lines[place + 1 : place + 1 + len(sample)]
        assert [line[:14] for line in shown] == sample and all(len(line) <= 80 for line in shown)
        assert not lines[place + 1 + len(sample)].startswith("  ")
    if sample:
        samples = (tmp_path / "runs/tiny/samples.txt").read_text(encoding="utf-8")
        assert f"source     {lines[places[0] + 1][14:]}\n" in samples


def test_a_bar_of_progress_is_shown_if_requested(mt, tiny_config):
    command = ("train", "--config", tiny_config, "--set", "training.max_steps=2", "--progress", "bar")
    assert "train: 100%" in mt(*command)[2]


@pytest.mark.parametrize(("num_threads", "share"), [(2, 0.6), (1, 0.6)])
def test_training_reports_once_that_other_programs_use_its_cpus(mt, tiny_config, monkeypatch, num_threads, share):
    monkeypatch.setattr("mt_cli.machine.cpus.CpuContention.waiting_share", lambda self: share)
    monkeypatch.setattr("torch.get_num_threads", lambda: num_threads)
    status, _, err = mt("train", "--config", tiny_config, "--set", "training.max_epochs=1")
    assert status == 0, err
    said = "The 2 threads of this run spend 60% of their time waiting for a CPU"
    assert err.count(said) == (num_threads == 2 and share == 0.6)
    assert err.count("--set training.num_threads=1") == err.count(said)
