"""Every command of the README and of the pages of `docs`, run as a reader would, with sample files and few steps.

A block in a page is run unless the line before it is a comment `<!-- not run: REASON -->`. The blocks of a page are run
in order, in one folder. `mt train` takes three steps. The lines below a command come out, except for numbers and what
stands for `...`; `test_learning.py` checks what only a trained model says.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from corpora import practice_pairs

import mt_cli

pytestmark = pytest.mark.slow(minutes=6)

PACKAGE = Path(mt_cli.__file__).parent
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((PACKAGE.parent / "docs").glob("*.md")))]
SHORT = "--set training.max_steps=3"
SHORT += " --set decoding.max_length_ratio=0.1"  # Untrained models do not end their sentences.
SMALL = "--set model.d_model=16 --set model.d_ff=16 --set model.num_heads=2"
MT = f"""#!/bin/sh
exec {sys.executable} -m mt_cli "$@"
"""
_BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(root, page):
    """The blocks of commands and of Python of a page: (kind, text, why it is not run)."""
    text = (root / page).read_text(encoding="utf-8")
    return [(match["kind"], match["text"], match["reason"]) for match in _BLOCK.finditer(text)]


def commands_in(text):
    """The commands of a block, lines after `$ ` with the lines that a backslash adds, each with the output below it."""
    parts = ("\n" + text.replace("\\\n", " ")).split("\n$ ")[1:]
    return [(command, output.splitlines()) for command, _, output in (part.partition("\n") for part in parts)]


_OF_TRAINED_MODELS = re.compile(r"mt (translate|inspect|score|tune-decoding) |mt translate$|--ids|mt tokenize")
_NUMBER = re.compile(r"[-+]?\d+(?:[,.]\d+)*(?:e-?\d+)?%?")


def form_of(line):
    """A line without its numbers, spaces between columns, and what depends on the validation."""
    words = _NUMBER.sub("#", line).removesuffix("  best").replace(" (worse)", "").replace(" (better)", "")
    return re.sub(r": (not )?significant$", ": significance", " ".join(words.split()))


def missing_lines(expected, text):
    """Lines of a page whose form is not in an output."""
    forms = [form_of(line) for line in text.splitlines()]
    parts = {line: [part.strip() for part in form_of(line).split("...")] for line in expected if line.strip(". ")}
    return [line for line in parts if not any(all(part in form for part in parts[line]) for form in forms)]


@pytest.fixture(scope="module")
def samples(root, tmp_path_factory):
    """A folder with the files that the pages name, and a trained run."""
    folder = tmp_path_factory.mktemp("samples")
    practice = {split: practice_pairs(split) for split in ("train", "valid", "test")}
    for split, number in (("train", 400), ("valid", 30), ("test", 30)):
        for side, language in enumerate(("en", "it")):
            lines = "".join(f"{row[side]}\n" for row in practice[split][:number])
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    rows = practice["train"][400:1200]
    for name, of_file in (("pairs", rows), ("test", practice["test"][:30])):
        (folder / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in of_file), encoding="utf-8")
    for side, language in enumerate(("en", "it")):
        (folder / f"mono.{language}").write_text("".join(f"{row[side]}\n" for row in rows), encoding="utf-8")
    (folder / "letters.en").write_text("".join(f"{row[0]}\n" for row in practice["test"][:5]), encoding="utf-8")
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{escape(a)}</seg></tuv><tuv xml:lang="it"><seg>{escape(b)}</seg></tuv></tu>\n'
        for a, b in rows
    )
    memory = f'<?xml version="1.0" encoding="utf-8"?>\n<tmx version="1.4"><header/><body>\n{units}</body></tmx>\n'
    (folder / "memory.tmx").write_text(memory, encoding="utf-8")
    for name, part in (("po/program.po", rows[:600]), ("po/manual/first.po", rows[600:])):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        messages = (f'msgid "{a}"\nmsgstr "{b}"\n' for a, b in [("", "Language: it\\n"), *part])
        path.write_text("\n".join(messages), encoding="utf-8")
    write_published(folder, practice)
    shutil.copytree(root / "configs", folder / "configs")
    (folder / "bin").mkdir()
    program = folder / "bin/mt"
    program.write_text(MT, encoding="utf-8")
    program.chmod(0o755)
    shell(f"mt train --config configs/quickstart.yaml {SHORT} {SMALL}", folder, root)
    for seed in (1, 2):  # Those that the page on comparing trains.
        shutil.copytree(folder / "runs/quickstart", folder / f"runs/quickstart-{seed}")
    return folder


def write_published(folder, practice):
    """Write a small random NLLB model, and pairs that stand for Spanish and Aymara."""
    if find_spec("transformers") is None or find_spec("sentencepiece") is None:
        return  # The commands that need them say so.
    from m2m100_files import write_nllb

    for split, number in (("train", 400), ("valid", 30)):
        for side, language in enumerate(("es", "aym")):
            lines = "".join(f"{row[side]}\n" for row in practice[split][:number])
            (folder / f"{split}.{language}").write_text(lines, encoding="utf-8")
    (folder / "nllb").mkdir()
    write_nllb(folder / "nllb", lines=[text for row in practice["train"][:2000] for text in row])


def shell(command, folder, root):
    """Run a command line in a folder; returns the finished process."""
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(root),
        "HF_HUB_OFFLINE": "1",
        "COLUMNS": "100",
    }
    options = {"cwd": folder, "env": environment, "capture_output": True, "encoding": "utf-8", "timeout": 300}
    return subprocess.run(["bash", "-c", command], **options)


def shortened(command):
    """The command, with few steps if it trains; the quickstart begins again, because that of the samples is smaller."""
    fresh = " --fresh" if "configs/quickstart.yaml" in command else ""
    return re.sub(r"\bmt train\b(?! --help)", f"mt train {SHORT}{fresh}", command)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_runs(samples, root, tmp_path, page):
    folder = tmp_path / "work"
    shutil.copytree(samples, folder)
    if page == "docs/tutorial.md":  # Its reader has no files for validation.
        for path in [*folder.glob("valid.*"), *folder.glob("test.*")]:
            path.unlink()
    for kind, text, reason in blocks(root, page):
        if reason is not None:
            continue
        if kind == "console":
            for command, expected in commands_in(text):
                if "[OPTIONS]" in command:  # Usage, not a command.
                    continue
                result = shell(shortened(command), folder, root)
                output = f"{page}: $ {command}\n{result.stdout}{result.stderr}"
                assert result.returncode == 0, output
                if not _OF_TRAINED_MODELS.search(command) and page != "docs/commands.md":
                    assert not missing_lines(expected, output), output
        if kind == "yaml" and (name := re.match(r"# (\w+\.yaml)", text)):
            (folder / name[1]).write_text(text, encoding="utf-8")
        if kind == "python":
            (folder / "snippet.py").write_text(text, encoding="utf-8")
            result = shell(f"{sys.executable} snippet.py", folder, root)
            assert result.returncode == 0, f"{page}: {text}\n{result.stdout}{result.stderr}"
