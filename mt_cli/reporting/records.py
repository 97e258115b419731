"""Records of a run (`metrics.jsonl`, TensorBoard events, `samples.txt`): writing, truncation on resuming, reading.

The tags are explained in `docs/runs.md`. A row of `metrics.jsonl` holds what TensorBoard shows for its step.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import summary

from mt_cli.machine.console import say
from mt_cli.machine.storage import read_regular, writing

Sample = tuple[str, str, str]
"""Source, reference and hypothesis."""
_MAX_FILE_BYTES = 2**30
_TOO_LARGE = 1e100


class EventFile:
    """New file of events for TensorBoard. A method writes its event before it returns; it may raise OSError.

    TensorBoard forgets the events of earlier files from the step `forget_from` on. It reads files in the order of their
    names, so the name of this file sorts last, whatever the clock shows.
    """

    def __init__(self, directory: Path, forget_from: int | None = None) -> None:
        matches = [re.match(r"events\.out\.tfevents\.(\d{10})\.", path.name) for path in directory.iterdir()]
        number = max([int(time.time()), *(int(match[1]) + 1 for match in matches if match)])
        self._events = directory / f"events.out.tfevents.{number:010}.mt"
        self._write(file_version="brain.Event:2")
        if forget_from is not None:
            self._write(step=forget_from, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, summaries: Iterable[Any]) -> None:
        """Add the values of a step."""
        self._write(step=step, summary=Summary(value=[value for part in summaries for value in part.value]))

    def _write(self, **fields: Any) -> None:
        with self._events.open("ab") as file:
            RecordWriter(file).write(Event(wall_time=time.time(), **fields).SerializeToString())


class Records(EventFile):
    """Writer of the metrics and samples of a run. Methods raise MtError if they cannot write.

    Training starts from `step`. Files are truncated to `sizes`, which `flush` returned when the state of this step was
    saved.
    """

    def __init__(self, directory: Path, step: int, sizes: Mapping[str, int]) -> None:
        self._directory, self._metrics, self._texts = directory, directory / "metrics.jsonl", directory / "samples.txt"
        with writing(directory):
            for path in (self._metrics, self._texts):
                _truncate(path, sizes.get(path.name, 0))
            # TensorBoard can only forget whole steps, and must forget a validation of this step that was not saved.
            rows = [row for row in read_rows(self._metrics) if row["step"] == step]
            is_validated = any("valid/loss" in row for row in rows)
            self._samples = {sample[:2]: sample[2] for sample in read_samples(self._texts)}
            super().__init__(directory, forget_from=step + is_validated)
            for row in [] if is_validated else rows:
                self._add_points(row)

    def write_metrics(self, step: int, elapsed_seconds: float, metrics: Mapping[str, float]) -> None:
        """Add a row to `metrics.jsonl` and a point to each curve; values that are not finite are omitted."""
        finite = {tag: value for tag, value in metrics.items() if math.isfinite(value)}
        row = {"step": step, "elapsed_seconds": round(elapsed_seconds, 3), **finite}
        with writing(self._metrics), self._metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        with writing(self._directory):
            self._add_points(row)

    def _add_points(self, row: Mapping[str, Any]) -> None:
        self.add(row["step"], [summary.scalar(tag, value) for tag, value in row.items() if "/" in tag])

    def write_samples(self, step: int, samples: Sequence[Sample]) -> None:
        """Add the sample sentences; TensorBoard shows them beside the last hypotheses."""
        if not samples:
            return
        with writing(self._texts), self._texts.open("a", encoding="utf-8") as file:
            file.write(f"# step {step}\n")
            for source, reference, hypothesis in samples:
                file.write(f"source     {source}\nreference  {reference}\nhypothesis {hypothesis}\n\n")
        table = "| source | reference | hypothesis | last time |\n|---|---|---|---|\n"
        for source, reference, hypothesis in samples:
            before = self._samples.get((source, reference))
            last = "the same" if before == hypothesis else _plain(before or "")
            table += f"| {_plain(source)} | {_plain(reference)} | {_plain(hypothesis)} | {last} |\n"
            self._samples[source, reference] = hypothesis
        with writing(self._directory):
            self.add(step, [summary.text("samples", table)])

    def write_pictures(self, step: int, pictures: Mapping[str, NDArray[np.uint8]]) -> None:
        """Add pictures, height x width x 3, under their tags."""
        with writing(self._directory):
            self.add(step, [summary.image(tag, pixels, dataformats="HWC") for tag, pixels in pictures.items()])

    def flush(self) -> dict[str, int]:
        """Write all buffers to disk; return the sizes of the files by name."""
        sizes = {}
        for path in (self._metrics, self._texts):
            with writing(path), path.open("ab") as file:
                os.fsync(file.fileno())
                sizes[path.name] = file.tell()
        return sizes


def write_hparams(directory: Path, step: int, options: Mapping[str, Any], scores: Mapping[str, float]) -> None:
    """Add options and the final scores of a step to TensorBoard's table of runs; raises MtError if it cannot."""
    kinds = (bool, int, float, str)
    plain = {name: value if isinstance(value, kinds) else str(value) for name, value in options.items()}
    curves = [summary.scalar(tag, value) for tag, value in scores.items()]
    with writing(directory):
        EventFile(directory).add(step, [*summary.hparams(plain, dict(scores)), *curves])


def _plain(text: str) -> str:
    """Text escaped for a cell of a Markdown table."""
    return re.sub(r"([\\`*_\[\]<>|~#])", r"\\\1", text)


def _truncate(path: Path, size: int) -> None:
    """Truncate a text file to a size and to the end of its last whole line."""
    content = path.read_bytes()[:size] if path.is_file() else b""
    if len(content) < size:
        say(f"{path}: shorter than when the state was saved; the missing lines are lost")
    if path.is_file():
        os.truncate(path, content.rfind(b"\n") + 1)


def read_samples(path: Path) -> list[Sample]:
    """Last samples in a file; empty if the file is missing.

    Raises OSError if it cannot be read, is not a regular file, or is too large.
    """
    text = _content(path).decode("utf-8", errors="replace")
    values = [line.partition(" ")[2].strip() for line in text.rpartition("# step ")[2].split("\n")[1:] if line]
    return list(zip(values[::3], values[1::3], values[2::3], strict=False))


def read_rows(path: Path) -> list[dict[str, float]]:
    """Rows of a metrics file, without damaged lines and values that cannot be drawn; raises as `read_samples`."""
    rows = []
    for line in _content(path).splitlines():
        with suppress(ValueError, RecursionError):
            row = json.loads(line)
            items = row.items() if isinstance(row, dict) else ()
            points = {tag: value for tag, value in items if _is_point(tag, value)}
            if isinstance(points.get("step"), int):
                rows.append(points)
    return rows


def _is_point(tag: str, value: object) -> bool:
    """Whether TensorBoard can draw a value and store its tag: JSON allows tags with lone surrogates."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _TOO_LARGE
    return is_number and not any("\ud800" <= character <= "\udfff" for character in tag)


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, _MAX_FILE_BYTES)
    except FileNotFoundError:
        return b""
