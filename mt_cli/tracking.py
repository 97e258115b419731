"""Where the numbers of a run go: `metrics.jsonl`, TensorBoard and `samples.txt`.

The tags are explained in `docs/runs.md`; a row of `metrics.jsonl` holds what TensorBoard shows for the
same step.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt_cli.console import say
from mt_cli.sentences import units
from mt_cli.storage import read_regular, writing

_MAX_FILE_BYTES = 2**30
_TOO_LARGE = 1e100


class Tracker:
    """Writes the metrics and samples of a run into its directory, from the step at which it is opened.

    Args:
        directory: of the run.
        step: up to which there is something already.
        sizes: of the files that `flush` gave when the state of this step was saved; what came later is cut off.
    """

    def __init__(self, directory: Path, step: int, sizes: Mapping[str, int]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._paths = [directory / name for name in ("metrics.jsonl", "samples.txt")]
        with writing(directory):
            for path in self._paths:
                _cut(path, sizes.get(path.name, 0))
            # A validation at this very step may have come after the saving: TensorBoard forgets the whole step.
            rows = [row for row in read_rows(self._paths[0]) if row["step"] == step]
            is_validated = any("valid/loss" in row for row in rows)
            self._samples = {sample[:2]: sample[2] for sample in read_samples(self._paths[1])}
            _make_way_for_events(directory)
            self._board = SummaryWriter(str(directory), purge_step=step + is_validated)
            for row in [] if is_validated else rows:
                self._add_points(row)

    def __enter__(self) -> Tracker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with suppress(OSError) if error else nullcontext():  # What went wrong first is what is told.
            self._board.close()

    def write_metrics(self, step: int, elapsed_seconds: float, metrics: Mapping[str, float]) -> None:
        """Add one row, and one point to each of its curves; values that are not finite are left out.

        Raises:
            MtError: if it cannot be written.
        """
        finite = {tag: value for tag, value in metrics.items() if math.isfinite(value)}
        row = {"step": step, "elapsed_seconds": round(elapsed_seconds, 3), **finite}
        path = self._paths[0]
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        with writing(path.parent):
            self._add_points(row)

    def _add_points(self, row: Mapping[str, Any]) -> None:
        for tag, value in row.items():
            if "/" in tag:
                self._board.add_scalar(tag, value, row["step"])

    def write_samples(self, step: int, samples: Sequence[tuple[str, str, str]]) -> None:
        """Add (source, reference, hypothesis) of the same sentences as they are translated now.

        TensorBoard shows, in bold, which words are new since the last time.

        Raises:
            MtError: if they cannot be written.
        """
        if not samples:
            return
        path = self._paths[1]
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(f"# step {step}\n")
            for source, reference, hypothesis in samples:
                file.write(f"source     {source}\nreference  {reference}\nhypothesis {hypothesis}\n\n")
        rows = []
        for source, reference, hypothesis in samples:
            before = self._samples.get((source, reference))
            shown = _plain(hypothesis) if before is None else _marked(hypothesis, before)
            same = "the same" if before == hypothesis else _plain(before or "")
            rows.append(f"| {_plain(source)} | {_plain(reference)} | {shown} | {same} |\n")
            self._samples[source, reference] = hypothesis
        table = "| source | reference | hypothesis, **new words** | last time |\n|---|---|---|---|\n" + "".join(rows)
        with writing(path.parent):
            self._board.add_text("samples", table, step)

    def write_pictures(self, step: int, pictures: Mapping[str, NDArray[np.uint8]]) -> None:
        """Add pictures, height x width x 3, under their tags.

        Raises:
            MtError: if they cannot be written.
        """
        with writing(self._paths[0].parent):
            for tag, pixels in pictures.items():
                self._board.add_image(tag, pixels, step, dataformats="HWC")

    def flush(self) -> dict[str, int]:
        """Have all of it on the disk; return the sizes of the files by name.

        Raises:
            MtError: if that cannot be.
        """
        sizes = {}
        with writing(self._paths[0].parent):
            self._board.flush()
            for path in self._paths:
                with path.open("ab") as file:
                    os.fsync(file.fileno())
                    sizes[path.name] = file.tell()
        return sizes


def write_hparams(directory: Path, step: int, options: Mapping[str, Any], scores: Mapping[str, float]) -> None:
    """Give TensorBoard's table of runs the options of this one, and what they led to, as of a step.

    Raises:
        MtError: if they cannot be written.
    """
    from torch.utils.tensorboard.summary import hparams, scalar
    from torch.utils.tensorboard.writer import FileWriter

    kinds = (bool, int, float, str)
    plain = {name: value if isinstance(value, kinds) else str(value) for name, value in options.items()}
    with writing(directory):
        _make_way_for_events(directory)
        writer = FileWriter(str(directory))
        for summary in hparams(plain, dict(scores)):
            writer.add_summary(summary, step)
        for tag, value in scores.items():
            writer.add_summary(scalar(tag, value), step)
        writer.close()


def _plain(text: str) -> str:
    """Text as a cell of a Markdown table that shows it as it is."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text)


def _marked(text: str, before: str) -> str:
    """The same, words that were not in `before` in bold."""
    words, former = ([(each[start:end], start, end) for start, end in units(each)] for each in (text, before))
    matcher = difflib.SequenceMatcher(a=[word for word, *_ in former], b=[word for word, *_ in words], autojunk=False)
    marked, done = "", 0
    for kind, _, _, first, last in matcher.get_opcodes():
        if first < last:
            start, end = words[first][1], words[last - 1][2]
            stretch = _plain(text[start:end])
            marked += text[done:start] + (stretch if kind == "equal" else f"**{stretch}**")
            done = end
    return marked


def _make_way_for_events(directory: Path) -> None:
    """Have a new event file sort after all others, whose names begin with seconds: TensorBoard reads them in order.

    That may take until the next second. If the clock has gone backwards, the others are renamed.
    """
    if list(directory.glob(f"events.out.tfevents.{int(time.time())}.*")):
        time.sleep(1 - time.time() % 1)
    names = (re.fullmatch(r"(events\.out\.tfevents\.)(\d{1,15})(\..*)", path.name) for path in directory.iterdir())
    matches = sorted(filter(None, names), key=lambda match: int(match[2]))
    for latest, match in enumerate(matches, start=int(time.time()) - len(matches)):
        if int(match[2]) > latest:
            (directory / match[0]).rename(directory / f"{match[1]}{latest}{match[3]}")


def _cut(path: Path, size: int) -> None:
    """Shorten a file of lines to a size, or to less where a line would be cut in two."""
    content = path.read_bytes()[:size] if path.is_file() else b""
    if len(content) < size:
        say(f"{path}: shorter than it was when the run was saved; what is missing is lost")
    if path.is_file():
        os.truncate(path, content.rfind(b"\n") + 1)


def read_samples(path: Path) -> list[tuple[str, str, str]]:
    """Source, reference and hypothesis of the sentences in the last part of a samples file; none if there is none.

    Raises:
        OSError: if it cannot be read, is no regular file, or too large.
    """
    text = _content(path).decode("utf-8", errors="replace")
    values = [line.partition(" ")[2].strip() for line in text.rpartition("# step ")[2].split("\n")[1:] if line]
    return list(zip(values[::3], values[1::3], values[2::3], strict=False))


def read_rows(path: Path) -> list[dict[str, float]]:
    """The rows of a metrics file; damaged lines and values that are no numbers, or too large for a curve, are left out.

    Raises:
        OSError: as `read_samples`.
    """
    rows = []
    for line in _content(path).splitlines():
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                numbers = {tag: value for tag, value in row.items() if _is_drawable(value)}
                if "step" in numbers:
                    rows.append(numbers)
    return rows


def _is_drawable(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _TOO_LARGE


def _content(path: Path) -> bytes:
    """What is in a file of the run; nothing if there is none."""
    try:
        return read_regular(path, _MAX_FILE_BYTES)
    except FileNotFoundError:
        return b""
