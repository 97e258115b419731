"""Proofs that take minutes: `pytest -m slow`."""

import json
import re
import subprocess
import sys

import pytest

from mt_cli.translation.translator import Translator

_TRANSLATED = re.compile(r"^\$ mt translate ((?:--run \S+ )?(?:\"[^\"\n]+\" ?)+)\n((?:[^$`\n].*\n)+)", re.M)
"""A command of a page with sentences, and the translations below it."""

pytestmark = pytest.mark.slow(minutes=5)


def train(root, folder, *arguments):
    command = [sys.executable, "-m", "mt_cli", "train", *map(str, arguments)]
    subprocess.run(command, cwd=folder, check=True, timeout=1_800)
    (run,) = (folder / "runs").glob("[!.]*")
    return json.loads((run / "report.json").read_text(encoding="utf-8"))


def test_unseen_strings_are_reversed_exactly(root, tmp_path):
    report = train(root, tmp_path, "--config", root / "configs/reverse.yaml")
    assert report["exact_match"] >= 99


@pytest.mark.slow(minutes=20)
def test_captions_are_learned(root, tmp_path, real_text):
    corpus = {
        name: f"{{files: [{real_text}/multi30k/{file}.en, {real_text}/multi30k/{file}.de]}}"
        for name, file in (("train", "train"), ("valid", "val"), ("test", "test_2016_flickr"))
    }
    options = {f"corpus.{name}": source for name, source in corpus.items()}
    options |= {"training.max_minutes": "null", "training.max_steps": 2000}  # A sixth of the hour of the config.
    changes = [part for key, value in options.items() for part in ("--set", f"{key}={value}")]
    report = train(root, tmp_path, "--config", root / "configs/multi30k_en_de.yaml", *changes)
    assert report["bleu"]["score"] >= 32


def test_translations_in_the_pages_are_those_of_the_quickstart(root, tmp_path):
    train(root, tmp_path, "--config", root / "configs/quickstart.yaml")
    translator = Translator.load(tmp_path / "runs/quickstart", "cpu")
    shown = {}
    for page in [root / "README.md", *(root / "docs").glob("*.md")]:
        for options, lines in _TRANSLATED.findall(page.read_text(encoding="utf-8")):
            if "runs/" not in options or "runs/quickstart" in options:
                shown |= zip(re.findall('"([^"]+)"', options), lines.splitlines(), strict=True)
    assert len(shown) > 2 and dict(zip(shown, translator.translate([*shown]), strict=True)) == shown
