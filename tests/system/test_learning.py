"""Proofs that take minutes: `pytest -m slow`."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def train(root, folder, *arguments):
    command = [sys.executable, "-m", "mt_cli", "train", *map(str, arguments)]
    subprocess.run(command, cwd=folder, check=True, timeout=1_800)
    (run,) = (folder / "runs").glob("[!.]*")
    return json.loads((run / "report.json").read_text(encoding="utf-8"))


def test_unseen_strings_are_reversed_exactly(root, tmp_path):
    report = train(root, tmp_path, "--config", root / "configs/reverse.yaml")
    assert report["exact_match"] >= 99


def test_captions_are_learned(root, tmp_path, real_text):
    corpus = {
        name: f"{{files: [{real_text}/multi30k/{file}.en, {real_text}/multi30k/{file}.de]}}"
        for name, file in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))
    }
    changes = [part for name, source in corpus.items() for part in ("--set", f"corpus.{name}={source}")]
    report = train(root, tmp_path, "--config", root / "configs/multi30k_en_de.yaml", *changes)
    assert report["bleu"]["score"] >= 32
