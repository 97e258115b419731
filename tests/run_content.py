"""Files of tests: what a run has left, without values that depend on the clock, and lines of text."""

import json
import random
import tempfile
from pathlib import Path

_WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def write_lines(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def checkpoint_content(path):
    """Tensors and state of a checkpoint, without values that depend on the clock."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        state = json.loads(file.metadata()["state"])
    state["unlogged"] = [[*row[:2], *row[3:]] for row in state["unlogged"]]
    for key in ("elapsed_seconds", "tracked_bytes"):
        del state[key]
    return tensors, state


def tensors_of(run, name, kind="model"):
    """Tensors of a checkpoint of a run, which are of a kind such as `model` or `average`, by their names in it."""
    from safetensors.torch import load_file

    tensors = load_file(run / f"checkpoints/{name}.safetensors")
    return {key.removeprefix(f"{kind}."): tensor for key, tensor in tensors.items() if key.startswith(f"{kind}.")}


def assert_equal_tensors(ours, theirs):
    assert ours and ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)


def _varies(tag):
    return "second" in tag or "memory" in tag


def rows_of(run):
    """The rows of `metrics.jsonl`."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def metrics_of(run):
    """The rows of `metrics.jsonl`, without values that depend on the clock or on free memory."""
    return [{key: value for key, value in row.items() if not _varies(key)} for row in rows_of(run)]


def report_of(run):
    """The content of `report.json`."""
    return json.loads((run / "report.json").read_text(encoding="utf-8"))


def _begun_at(path):
    """Time of the first event; names have whole seconds, in which several processes may begin."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return next((event.wall_time for event in EventFileLoader(str(path)).Load()), 0.0)


def points_of(run):
    """All points that TensorBoard shows for a run, whose files are read as they were begun."""
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

    with tempfile.TemporaryDirectory() as folder:
        for place, path in enumerate(sorted(run.glob("events.*"), key=_begun_at)):
            (Path(folder) / f"events.out.tfevents.{place:04}").symlink_to(path.absolute())
        board = EventAccumulator(folder, size_guidance={"tensors": 0}).Reload()
    tags = [tag for tag in board.Tags()["tensors"] if not _varies(tag)]
    points = {tag: [(each.step, each.tensor_proto.SerializeToString()) for each in board.Tensors(tag)] for tag in tags}
    return {tag: found for tag, found in points.items() if found}  # All points of a tag may have been purged.


def assert_same_run(ours, theirs):
    """Compare two finished runs bit by bit."""
    for name in ("last", "best"):
        (tensors, state), (other_tensors, other_state) = (
            checkpoint_content(run / "checkpoints" / f"{name}.safetensors") for run in (ours, theirs)
        )
        assert state == other_state, name
        assert_equal_tensors(tensors, other_tensors)
    assert metrics_of(ours) == metrics_of(theirs)
    assert (ours / "samples.txt").read_bytes() == (theirs / "samples.txt").read_bytes()
    assert points_of(ours) == points_of(theirs)
    reports = [report_of(run) for run in (ours, theirs)]
    for key in ("bleu", "chrf", "ter", "best_step", "num_steps", "num_epochs", "num_target_tokens"):
        assert reports[0][key] == reports[1][key]


def some_known_lines(number, seed):
    """Lines of which every third one has a word that the model does not know."""
    choose = random.Random(seed)
    for index in range(number):
        words = choose.choices(_WORDS, k=choose.randrange(2, 6))
        yield " ".join([*words, "zebra"] if index % 3 == 0 else words) + "."
