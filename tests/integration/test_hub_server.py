"""The hub of the tests speaks to the unmodified clients as the hub of Hugging Face does."""

import json
import os
import sys

import pytest
from hub_content import add_datasets

_LOAD = """
import datasets, json, sys
rows = {}
for name, subset in [("Helsinki-NLP/opus_books", "en-it"), ("bentrevett/multi30k", None), ("wmt/wmt14", "de-en")]:
    splits = datasets.load_dataset(name, subset, streaming="--stream" in sys.argv)
    rows[name] = {split: [len(list(rows)), next(iter(rows))] for split, rows in splits.items()}
print(json.dumps(rows))
"""


@pytest.fixture
def client(hub, run, tmp_path):
    """Runs a program with the hub's address and an empty cache, which is kept from one call to the next."""

    def call(program, *arguments, **environment):
        own = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "hub_home")}
        quiet = {"HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        command = [sys.executable, "-c", program, *arguments]
        options = {"env": {**os.environ, **own, **quiet, **environment}, "capture_output": True, "encoding": "utf-8"}
        return run(command, **options)

    return call


def test_datasets_loads_every_layout(hub, client):
    add_datasets(hub, 60)
    answers = [client(_LOAD, *arguments) for arguments in ([], ["--stream"])]
    assert [answer.returncode for answer in answers] == [0, 0], answers
    loaded, streamed = (json.loads(answer.stdout) for answer in answers)
    assert loaded == streamed
    numbers = {name: {split: number for split, (number, _) in splits.items()} for name, splits in loaded.items()}
    assert numbers["Helsinki-NLP/opus_books"] == {"train": 60}
    assert numbers["bentrevett/multi30k"] == numbers["wmt/wmt14"] == {"train": 60, "validation": 20, "test": 20}
