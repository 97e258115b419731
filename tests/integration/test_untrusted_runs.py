"""Untrusted run directories: no file outside them is written, no command hangs, and every failure has a message."""

import base64
import itertools
import json
import os
import pickle
import re
import shutil
import signal

import pytest
from safetensors import safe_open

from mt_cli.checkpoint import files
from mt_cli.checkpoint.directory import RunDirectory, newest_run

KINDS = ("link to a file", "link to a folder", "dangling link", "link to a device", "pipe", "folder")
VALUES = [
    *(None, True, -1, 10**400, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "<u>"),
    *([], {}, [[]], [None], {"a": 1}, {"": {}}, {"score": "x"}, json.loads("[" * 90 + "]" * 90)),
]


class Planted:
    """Unpickled, it writes a file outside of the run directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def crossed(names, kinds=KINDS):
    """Parameters for each name with each kind; each of both occurs by default, and the other combinations are slow."""
    number = max(len(names), len(kinds))
    default = {(names[each % len(names)], kinds[each % len(kinds)]) for each in range(number)}
    cases = itertools.product(names, kinds)
    return [pytest.param(*case, marks=() if case in default else pytest.mark.slow) for case in cases]


def plant(path, kind, outside):
    """Replace a file by something else."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    targets = {"link to a file": outside / "file", "link to a folder": outside / "folder"}
    targets |= {"dangling link": outside / "nothing", "link to a device": "/dev/zero"}
    if kind in targets:
        path.symlink_to(targets[kind])
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(Planted(str(outside / "executed"))))
    else:
        path.mkdir()


def content_of(folder):
    return {path.relative_to(folder): path.is_dir() or path.read_bytes() for path in folder.rglob("*")}


@pytest.fixture
def outside(tmp_path):
    """A folder that must not change."""
    folder = tmp_path / "outside"
    (folder / "folder").mkdir(parents=True)
    (folder / "file").write_bytes(b"kept\n" * 3)
    (folder / "folder" / "test.txt").write_bytes(b"kept too\n")
    before = content_of(folder)
    yield folder
    assert content_of(folder) == before


@pytest.fixture
def run(trained, tmp_path):
    """A run that a test may break."""
    return shutil.copytree(trained, tmp_path / "runs" / "tiny")


@pytest.fixture
def attempt(mt, tmp_path):
    """Runs a command, which must end in time and with a message if it fails: (exit status, standard error)."""

    def hang(number, frame):
        raise AssertionError("it waits")

    former = signal.signal(signal.SIGALRM, hang)

    def end(*arguments):
        signal.alarm(300)
        try:
            status, out, err = mt(*arguments)
        finally:
            signal.alarm(0)
        assert status in (0, 1, 2) and "Traceback" not in err and (out + err or not status)
        return status, err

    yield end
    signal.signal(signal.SIGALRM, former)


@pytest.fixture
def commands(run, corpus, tmp_path):
    """Command lines for a run."""
    for side in ("en", "xx"):
        lines = (corpus / f"test.{side}").read_text(encoding="utf-8").splitlines()[:2]
        (tmp_path / f"two.{side}").write_text("".join(f"{line}\n" for line in lines))
    return {
        "translate": ("translate", "one.", "--run", run),
        "tokenize": ("tokenize", "one.", "--run", run),
        "evaluate": ("evaluate", "--run", run, "--source", "two.en", "--reference", "two.xx"),
        "inspect": ("inspect", "--run", run),
        "report": ("report", "--run", run),
        "compare": ("report", "--run", run, "--compare", run),
        "export": ("export", "--run", run, "--format", "bundle", "--output", "bundle"),
        "train": ("train", "--config", run / "config.yaml", "--set", "training.max_epochs=31"),
        "doctor": ("doctor",),
    }


WRITTEN = {
    **dict.fromkeys(("report.html", "report.html.tmp"), "report"),
    **dict.fromkeys(("hypotheses/files.txt", "hypotheses/files.txt.tmp", "hypotheses"), "evaluate"),
    **dict.fromkeys(("pictures/positions.png", "pictures/positions.png.tmp", "pictures"), "inspect"),
}


@pytest.mark.parametrize(("name", "kind"), crossed([*WRITTEN]))
def test_what_a_command_writes_stays_in_the_run_directory(attempt, run, outside, commands, name, kind):
    path = run / name
    plant(path, kind, outside)
    status, err = attempt(*commands[WRITTEN[name]])
    if path.suffix and kind != "folder":
        assert status == 0 and path.name.endswith(".tmp") != path.is_file() and not path.is_symlink()
    elif not path.suffix and "link" in kind:
        assert f"{path}: is a link; nothing is written through a link in a run directory" in err


@pytest.mark.parametrize(("name", "kind"), crossed(["metrics.jsonl", "samples.txt", "report.json"]))
def test_a_page_leaves_out_what_cannot_be_read(attempt, run, outside, commands, name, kind):
    plant(run / name, kind, outside)
    status, err = attempt(*commands["compare"])
    assert status == 0 and (run / "report.html").is_file()
    assert (f"{name}: " in err) == (kind != "dangling link" and (name == "report.json" or kind != "link to a file"))
    assert attempt(*commands["export"])[0] == 0


@pytest.mark.parametrize("change", [{"parents": 5}, {"best_step": "x"}, {"fingerprints": None}], ids=str)
def test_a_state_of_wrong_types_is_one_message_of_every_command(attempt, run, commands, change):
    for path in (run / "checkpoints").glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata()
        metadata |= {"state": json.dumps(json.loads(metadata["state"]) | change), "sha256": "0" * 64}
        files.save_file(tensors, path, metadata)
        files._write_checksum(str(path))
    commands |= {"score": ("score", "one.", "ONE.", "--run", run), "tune": ("tune-decoding", "--run", run)}
    (key,) = change
    for name in ("translate", "score", "evaluate", "inspect", "export", "tune", "train"):
        status, err = attempt(*commands[name])
        assert status == 2 and f"damaged checkpoint: {key}: input should be a valid" in err, name
    assert attempt(*commands["doctor"])[0] == 1
    assert attempt(*commands["report"])[0] == 0, "it reads no checkpoint"


READ = ["config.yaml", "tokenizer.source.json", "tokenizer.x.json", "checkpoints/best.safetensors", "checkpoints", "."]
READ += ["report.json"]


@pytest.mark.parametrize(("name", "kind"), crossed(READ, (*KINDS, "pickle")))
def test_no_command_hangs_or_runs_a_program_whatever_replaces_a_file(attempt, run, outside, commands, name, kind):
    plant(run / name, kind, outside)
    for command in ("translate", "tokenize", "export", "report", "doctor"):
        attempt(*commands[command])


TRAINED = [
    *(".lock", "metrics.jsonl", "samples.txt", "report.json", "config.yaml.tmp", "bad_batch.jsonl", "hypotheses"),
    *("events.out.tfevents.1.x", "checkpoints", "checkpoints/last.safetensors", "checkpoints/step-5.safetensors"),
    *("checkpoints/former_best.safetensors", "checkpoints/last.safetensors.tmp", "hypotheses/test.txt.tmp"),
]


@pytest.mark.parametrize(("name", "kind"), crossed(TRAINED))
def test_training_writes_into_plain_run_directories_only(attempt, run, outside, commands, name, kind):
    plant(run / name, kind, outside)
    status, err = attempt(*commands["train"])
    if kind != "folder":
        assert status == 2 and f"{name}: a link, a pipe or a device" in err


def test_a_run_directory_may_itself_be_reached_through_a_link(mt, run, tmp_path):
    (tmp_path / "link").symlink_to(run)
    assert mt("report", "--run", "link")[0] == 0 and (run / "report.html").is_file()
    run.rename(tmp_path / "elsewhere")
    run.symlink_to(tmp_path / "elsewhere")
    assert mt("train", "--config", run / "config.yaml", "--set", "training.max_epochs=30")[0] == 0


def test_a_run_whose_files_are_links_is_read(mt, run, tmp_path):
    (tmp_path / "blobs").mkdir()
    for number, path in enumerate(sorted(path for path in run.rglob("*") if path.is_file())):
        path.rename(tmp_path / "blobs" / str(number))
        path.symlink_to(tmp_path / "blobs" / str(number))
    before = content_of(tmp_path / "blobs")
    assert mt("translate", "one two.", "--run", run)[:2] == (0, "ONE TWO.\n")
    assert mt("report", "--run", run)[2] == "" and content_of(tmp_path / "blobs") == before


@pytest.mark.parametrize("kind", ["dangling link", "folder"])
def test_a_run_without_a_checkpoint_file_is_not_the_newest_run(run, outside, tmp_path, kind):
    (tmp_path / "runs" / "broken" / "checkpoints").mkdir(parents=True)
    plant(tmp_path / "runs" / "broken" / "checkpoints" / "best.safetensors", kind, outside)
    assert newest_run(tmp_path / "runs") == run


def nodes_of(tree, path=()):
    for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield (*path, key)
        yield from nodes_of(child, (*path, key))


NO_JSON = [b"", b"\xff", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b"\0" * 9]


@pytest.mark.parametrize("number", range(len(VALUES)))
def test_any_report_gives_a_page(attempt, monkeypatch, run, number):
    """Each part of `report.json` in turn is missing or has another value, or all of it is no JSON."""
    config = RunDirectory(run).config()
    monkeypatch.setattr(RunDirectory, "config", lambda directory: config)  # It takes most of the time.
    monkeypatch.setattr("mt_cli.config.sections.Config.to_yaml", lambda config: "")
    (run / "metrics.jsonl").unlink()
    path = run / "report.json"
    good = json.loads(path.read_text(encoding="utf-8"))
    trees = [VALUES[number]]
    for place in [*nodes_of(good)][number % 5 :: 5]:
        for is_removed in (False, True) if number < 5 else (False,):
            parent = tree = json.loads(json.dumps(good))
            for key in place[:-1]:
                parent = parent[key]
            if is_removed:
                del parent[place[-1]]
            else:
                parent[place[-1]] = VALUES[number]
            trees.append(tree)
    for content in [*(json.dumps(tree).encode() for tree in trees), *NO_JSON[number : number + 1]]:
        path.write_bytes(content)
        (run / "report.html").unlink(missing_ok=True)
        status, err = attempt("report", "--run", run)
        page = (run / "report.html").read_text(encoding="utf-8")
        assert status == 0 and page.endswith("</html>\n") and "<u>" not in page
        assert ("not finished" in page) == ("report.json: " in err)


@pytest.mark.parametrize("value", [*VALUES, 5e-324, 1.0, 10**99, -(10**99)], ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("tag", ["step", "train/loss", "elapsed_seconds"])
def test_the_points_of_a_curve_are_numbers(attempt, run, tag, value):
    rows = [{"step": 1, "train/loss": 2.0}, {"step": 2, "train/loss": 3.0, tag: value}, {"step": 3, "train/loss": 3.0}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (run / "report.json").unlink()
    assert attempt("report", "--run", run)[0] == 0
    page = (run / "report.html").read_text(encoding="utf-8")
    pictures = [base64.b64decode(text).decode("utf-8") for text in re.findall(r"svg\+xml;base64,([\w+/=]+)", page)]
    paths = [path for picture in pictures for path in re.findall(r' d="([^"]*)"', picture)]
    assert paths and not any("nan" in text or "inf" in text for text in (*paths, page.partition("svg+xml")[0]))


def test_a_file_that_is_too_large_is_not_read(attempt, run, commands):
    for name in ("metrics.jsonl", "samples.txt", "report.json", "tokenizer.source.json", "config.yaml"):
        with (run / name).open("r+b") as file:
            file.truncate(2**31)
        status, err = attempt(*commands["tokenize" if name.startswith("tokenizer") else "report"])
        assert "larger than" in err and name in err
        assert status == (2 if name in ("config.yaml", "tokenizer.source.json") else 0)


def test_every_command_refuses_an_untrusted_tokenizer(attempt, run, commands):
    """`tests/unit/test_tokenizer_untrusted_files.py` has more of them."""
    pattern = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    path = run / "tokenizer.source.json"
    tree = json.loads(path.read_text(encoding="utf-8")) | {"pre_tokenizer": pattern}
    path.write_text(json.dumps(tree), encoding="utf-8")
    for name in ("translate", "tokenize", "evaluate", "inspect", "export", "train"):
        status, err = attempt(*commands[name])
        assert status == 2 and "tokenizer.source.json: " in err, name
    assert attempt(*commands["doctor"])[0] == 1


def test_names_that_are_not_utf8_are_printed_with_escapes_or_refused(run, fork_server, tmp_path):
    name = os.fsdecode(b"caf\xe9")
    folder = tmp_path / "runs" / name
    shutil.move(run, folder)
    for place, arguments, status, words in (
        (tmp_path, ("report", "--run", f"runs/{name}"), 2, "--run: 'runs/caf\\udce9' is not UTF-8"),
        (tmp_path, ("doctor",), 1, "caf\\udce9/checkpoints/best.safetensors: the path is not UTF-8"),
        (folder, ("evaluate", "--run", ".", "--json"), 0, '{"run": "caf\\udce9"'),
        (folder, ("report", "--run", "."), 0, "report.html"),
    ):
        fork_server.start(place, arguments)
        [found] = fork_server.wait()
        text = "".join((place / f"stream.{number}").read_bytes().decode("utf-8") for number in (1, 2))
        assert found == status and "Traceback" not in text and words in text
    assert "<title>caf\\udce9 - mt</title>" in (folder / "report.html").read_text(encoding="utf-8")
