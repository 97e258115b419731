"""Hostile run directories: a message names the file, nothing outside changes, and no command hangs."""

import json
import os
import shutil
import signal
from itertools import cycle

import pytest
from hostile_files import content_of, make_outside, plant, rewrite_checkpoint


@pytest.fixture
def outside(tmp_path):
    """A folder that must not change."""
    folder = make_outside(tmp_path / "outside")
    before = content_of(folder)
    yield folder
    assert content_of(folder) == before and not (tmp_path / "was_run").exists()


@pytest.fixture
def run(trained, tmp_path):
    """A run that a test may break."""
    return shutil.copytree(trained, tmp_path / "runs" / "tiny")


@pytest.fixture
def attempt(mt, run, tmp_path):
    """Runs a command on the run, which must end in time, with a message if it fails: (exit status, standard error)."""
    for side, line in (("en", "one two.\n"), ("xx", "ONE TWO.\n")):
        (tmp_path / f"text.{side}").write_text(line)
    commands = {
        "translate": "translate one. --run runs/tiny",
        "evaluate": "evaluate --run runs/tiny --source text.en --reference text.xx --as-lines",
        "report": "report --run runs/tiny",
        "train": "train --config runs/tiny/config.yaml --set training.max_epochs=31",
        "doctor": "doctor",
    }

    def hang(number, frame):
        raise AssertionError("it waits")

    def end(name):
        signal.alarm(300)
        try:
            status, out, err = mt(*commands[name].split())
        finally:
            signal.alarm(0)
        assert status in (0, 1, 2) and "Traceback" not in err and (out + err or not status)
        return status, err

    former = signal.signal(signal.SIGALRM, hang)
    yield end
    signal.signal(signal.SIGALRM, former)


def checkpoints(change):
    """A damage of the tensors or the header of every checkpoint."""
    return lambda run: [rewrite_checkpoint(path, change) for path in (run / "checkpoints").glob("*.safetensors")]


def content(pattern, change):
    """A damage of the bytes of files."""
    return lambda run: [path.write_bytes(change(path.read_bytes())) for path in run.glob(pattern)]


def wrong_type(tensors, metadata):
    metadata["state"] = json.dumps(json.loads(metadata["state"]) | {"parents": 5})


WEIGHTS = "checkpoints/*.safetensors"
DAMAGES = {  # What the message names, and the damage.
    "a state of another type": ("checkpoints/", checkpoints(wrong_type)),
    "no weights": ("checkpoints/", checkpoints(lambda tensors, metadata: tensors.clear())),
    "a lost byte": ("checkpoints/", content(WEIGHTS, lambda data: data[:-1])),
    "a huge header": ("checkpoints/", content(WEIGHTS, lambda data: (2**40).to_bytes(8, "little") + data[8:])),
    "half of a tokenizer": ("tokenizer.source.json", content("tokenizer.source.json", lambda data: data[:500])),
    "a huge config": ("config.yaml", lambda run: os.truncate(run / "config.yaml", 2**31)),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_run_is_one_message_that_names_the_file(attempt, run, name):
    expected, damage = DAMAGES[name]
    damage(run)
    for command in ("translate", "train"):
        status, err = attempt(command)
        assert status == 2 and f"runs/tiny/{expected}" in err and err.count("mt: ") == 1, (command, err)
    attempt("doctor")


@pytest.mark.parametrize(
    ("name", "kind", "command", "expected"),
    [
        ("tokenizer.source.json", "link to a device", "translate", 2),
        ("checkpoints/best.safetensors", "pickle", "translate", 2),
        ("report.html", "link to a file", "report", 0),
    ],
)
def test_what_replaces_a_file_is_not_run_or_followed(attempt, run, outside, name, kind, command, expected):
    plant(run / name, kind, outside)
    status, err = attempt(command)
    assert status == expected and (f"runs/tiny/{name}" in err) == (name != "report.html"), err
    attempt("doctor")


def test_a_run_may_be_reached_through_links(mt, run, tmp_path):
    (tmp_path / "blobs").mkdir()
    for number, path in enumerate(sorted(path for path in run.rglob("*") if path.is_file())):
        path.rename(tmp_path / "blobs" / str(number))
        path.symlink_to(tmp_path / "blobs" / str(number))
    before = content_of(tmp_path / "blobs")
    (tmp_path / "link").symlink_to(run)
    assert mt("translate", "one two.", "--run", "link")[:2] == (0, "ONE TWO.\n")
    status, _, err = mt("report", "--run", "link")
    assert status == 0 and "mt: " not in err and content_of(tmp_path / "blobs") == before


VALUES = [True, -1, 10**400, float("nan"), "\ud800", "<u>", [[]], {"": {"score": "x"}}]


def test_any_report_gives_a_page(attempt, run):
    (run / "metrics.jsonl").unlink()
    path = run / "report.json"
    original = json.loads(path.read_text(encoding="utf-8"))
    contents = [b"\xff", b"[" * 100_000, *(json.dumps(value).encode() for value in VALUES)]
    contents += [json.dumps(original | {key: value}).encode() for key, value in zip(original, cycle(VALUES))]
    for content in contents:
        path.write_bytes(content)
        status, err = attempt("report")
        page = (run / "report.html").read_text(encoding="utf-8")
        assert status == 0 and page.endswith("</html>\n") and "<u>" not in page
        assert ("not finished" in page) == ("report.json: " in err)
