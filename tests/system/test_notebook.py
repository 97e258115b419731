"""`docs/first_language.ipynb`, executed: on files in a folder, again after its session was lost in training."""

import json
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import nbformat
import pytest
from corpora import practice_pairs
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

pytestmark = [pytest.mark.slow(minutes=2), pytest.mark.filterwarnings("default")]

STEPS = 60
OPTIONS = (
    f"--set training.max_steps={STEPS} --set training.validate_every_steps=10 --set model.d_model=16 "
    "--set model.d_ff=16 --set decoding.max_length_ratio=0.1"
)


@pytest.fixture
def notebook(root):
    return nbformat.read(root / "docs/first_language.ipynb", as_version=4)


@pytest.fixture
def folder(root, tmp_path):
    for side, language in enumerate(("en", "it")):
        text = "".join(f"{row[side]}\n" for row in practice_pairs("train")[:600])
        (tmp_path / f"train.{language}").write_text(text, encoding="utf-8")
    return tmp_path


def execute(notebook, root, folder, monkeypatch, during=None):
    """Execute the notebook with settings for the folder; the client that did."""
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("IPYTHONDIR", str(folder / ".ipython"))
    place = next(place for place, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", []))
    settings = f"FOLDER, SOURCE, TARGET, OPTIONS = Path({str(folder)!r}), 'en', 'it', {OPTIONS!r}"
    notebook.cells.insert(place + 1, nbformat.v4.new_code_cell(settings))
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    if during is not None:
        threading.Thread(target=during, daemon=True).start()
    client.execute()
    return client


def lose_session_after_a_save(folder):
    """Kill the kernel, and the training that it began, when something has been saved."""
    while not list(folder.glob("runs/first/checkpoints/last*")):
        time.sleep(0.02)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").resolve() == folder.resolve():
                os.kill(int(process.name), signal.SIGKILL)


def test_after_a_lost_session_the_same_cells_finish_the_training(root, folder, notebook, monkeypatch):
    lost = notebook.copy()
    lost.cells = [cell.copy() for cell in notebook.cells]
    with pytest.raises(DeadKernelError):
        execute(lost, root, folder, monkeypatch, lambda: lose_session_after_a_save(folder))
    assert not (folder / "runs/first/report.json").exists()
    execute(notebook, root, folder, monkeypatch)
    steps = [json.loads(line)["step"] for line in (folder / "runs/first/metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps) and steps[-1] == STEPS
    report = json.loads((folder / "runs/first/report.json").read_text(encoding="utf-8"))
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    assert f"{report['chrf']['score']:6.2f}  {report['chrf']['signature']}" in text
    assert "Resuming from step" in text and "reference" in text and "Traceback" not in text
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    assert not any(output.output_type == "error" for output in outputs)
