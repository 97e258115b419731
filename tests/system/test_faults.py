"""A run that is killed or interrupted at any moment ends as if nothing had happened."""

import json
import os
import random
import signal
import time

import pytest
import yaml

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tiny_tree, tmp_path):
    """A run of 300 steps that saves at about every fifth; writing a checkpoint takes long enough to be interrupted."""
    tiny_tree["model"] |= {"d_model": 64, "d_ff": 512, "num_encoder_layers": 2, "num_decoder_layers": 2}
    tiny_tree["training"] |= {"micro_batches_per_step": 2, "validate_every_steps": 25, "max_epochs": None}
    tiny_tree["training"] |= {"max_steps": 300, "save_every_minutes": 0.0001, "log_every_steps": 3, "keep_last": 2}
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_tree), encoding="utf-8")
    return path


def step_of(run):
    """The last step in the metrics that are already written."""
    lines = (run / "metrics.jsonl").read_bytes().splitlines() if (run / "metrics.jsonl").exists() else []
    for line in reversed(lines):
        try:
            return json.loads(line)["step"]
        except ValueError:
            continue
    return 0


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGTERM, 130)])
def test_a_run_stopped_at_random_moments_equals_another(
    fork_server, forked, config, assert_same_run, tmp_path, number, status
):
    command = ("train", "--config", config)
    assert forked(*command, "--set", "name=whole")[0] == 0
    run = tmp_path / "runs" / "tiny"
    chance = random.Random(int(number))
    stops, writes_hit = 0, 0
    for index, target in enumerate(sorted(chance.randrange(300) for _ in range(40))):
        [child] = fork_server.start(tmp_path, command)
        unfinished = run / "checkpoints" / "last.safetensors.tmp"
        unfinished.unlink(missing_ok=True)
        deadline = time.monotonic() + 120
        while step_of(run) < target and is_running(child) and time.monotonic() < deadline:
            time.sleep(0.001)
        if index % 3:
            time.sleep(chance.random() * 0.1)
        else:
            while not unfinished.exists() and is_running(child) and time.monotonic() < deadline:
                pass
        if is_running(child):
            os.kill(child, number)
        [found], err = fork_server.wait(), (tmp_path / "stream.2").read_text(encoding="utf-8")
        if found == 0:  # It finished before the signal.
            break
        if found == -number and not err:
            continue  # It had not started yet.
        assert found == status, err
        assert "Traceback" not in err
        stops += 1
        writes_hit += unfinished.exists()
    assert stops >= 30
    assert number != signal.SIGKILL or writes_hit >= 5
    status, _, err = forked(*command)
    assert status == 0, err
    assert_same_run(run, tmp_path / "runs" / "whole")
