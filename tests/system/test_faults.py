"""A run that is killed, interrupted, damaged or out of disk space ends as if nothing had happened."""

import json
import os
import random
import shutil
import signal
import subprocess
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
def test_a_run_stopped_at_random_moments_ends_as_one_that_was_not(
    commands, config, assert_same_run, tmp_path, number, status
):
    command = ("train", "--config", config)
    assert commands.run(*command, "--set", "name=whole")[0] == 0
    run = tmp_path / "runs" / "tiny"
    chance = random.Random(int(number))
    stops, writes_hit = 0, 0
    for index, target in enumerate(sorted(chance.randrange(300) for _ in range(40))):
        child = commands.start(*command)
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
        found, err = commands.wait()
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
    status, err = commands.run(*command)
    assert status == 0, err
    assert_same_run(run, tmp_path / "runs" / "whole")
    print(f"\n{stops} stops by {number.name}, {writes_hit} of them while a checkpoint was written")


def test_a_damaged_checkpoint_is_refused_wherever_the_damage_is(commands, config, tmp_path):
    command = ("train", "--config", config, "--set", "training.validate_every_steps=6")
    command += ("--set", "training.save_every_minutes=null", "--set")
    assert commands.run(*command, "training.max_steps=12")[0] == 0
    shutil.copytree(tmp_path / "runs" / "tiny", tmp_path / "kept")
    content = (tmp_path / "kept" / "checkpoints" / "last.safetensors").read_bytes()
    chance = random.Random(3)
    header = 8 + int.from_bytes(content[:8], "little")
    places = [*range(9), *(chance.randrange(header) for _ in range(16))]
    places += [chance.randrange(header, len(content)) for _ in range(24)] + [len(content) - 1]
    damaged = [
        content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :] for place in places
    ]
    damaged += [content[:place] for place in places]
    assert len(places) == 50
    for bad in damaged:
        shutil.rmtree(tmp_path / "runs" / "tiny")
        shutil.copytree(tmp_path / "kept", tmp_path / "runs" / "tiny")
        (tmp_path / "runs" / "tiny" / "checkpoints" / "last.safetensors").write_bytes(bad)
        status, err = commands.run(*command, "training.max_steps=13")
        assert status == 0, err
        assert "last.safetensors: damaged checkpoint" in err
        assert "; skipped, step-" in err


def test_a_full_file_system_costs_nothing_but_the_save(commands, config, tmp_path):
    small = tmp_path / "runs"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        command = ("train", "--config", config, "--set", "training.keep_last=0", "--set")
        assert commands.run(*command, "training.max_steps=10")[0] == 0
        with (small / "ballast").open("wb") as ballast:
            free = shutil.disk_usage(small).free
            ballast.write(b"\0" * (free - 2**20))
        last = small / "tiny" / "checkpoints" / "last.safetensors"
        before = last.read_bytes()
        status, err = commands.run(*command, "training.max_steps=30")
        assert status == 1, err
        assert "cannot be written" in err and "Traceback" not in err
        assert last.read_bytes() == before
        (small / "ballast").unlink()
        status, err = commands.run(*command, "training.max_steps=30")
        assert status == 0, err
        assert "Resuming from step 10" in err
    finally:
        subprocess.run(["umount", str(small)], check=True)
