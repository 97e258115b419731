"""Tables of docs/benchmarks.md and docs/scaling.md from the rows that gpu_speed.py measured. Measures nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import figures

MT, PLAIN, COMPILED, LIMIT = "mt", "plain loop", "compiled loop", "limit"
_CORPORA = (
    ("4.5 M pairs", "base, 100,000 updates", "base", 100_000 * 25_000),
    ("40 M pairs", "big, 300,000 updates", "big", 300_000 * 25_000),
    ("1 G pairs", "big, one epoch", "big", 29 * 10**9),
)
"""Corpus, training, model, and number of target tokens: 25,000 an update, 29 a pair."""
_EFFICIENCY, _DOLLARS_PER_HOUR = 0.9, 3

Row = Mapping[str, Any]


def read_rows(paths: Iterable[str | Path]) -> list[Row]:
    """Rows of files with one JSON object a line, all of one device; later rows replace those of the same measurement.

    Skipped measurements are left out.
    """
    keys = ("kind", "size", "batch_tokens", "system", "settings", "beam")
    all_rows = [json.loads(line) for path in paths for line in Path(path).read_text(encoding="utf-8").splitlines()]
    devices = {row["device"] for row in all_rows if row["kind"] == "machine"}
    if len(devices) != 1:
        sys.exit(f"the rows are of {len(devices)} devices: {', '.join(sorted(devices))}")
    return list({tuple(map(row.get, keys)): row for row in all_rows if "skipped" not in row}.values())


def machine_row(rows: Sequence[Row]) -> Row:
    """Row with the device, versions, date and speed of large products."""
    return next(row for row in rows if row["kind"] == "machine")


def fastest(rows: Iterable[Row], **values: object) -> Row | None:
    """Fastest row with these values."""
    matching = [row for row in rows if "speed" in row and all(row.get(key) == values[key] for key in values)]
    return max(matching, key=lambda row: row["speed"], default=None)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table in Markdown, without columns that were not measured."""
    columns = [(title, *cells) for title, *cells in zip(titles, *rows, strict=True) if any(cells)]
    body = [f"| {' | '.join(cells)} |" for cells in zip(*columns, strict=True)]
    return "\n".join([body[0], "|---" * len(columns) + "|", *body[1:]])


def training_table(rows: Sequence[Row], is_marked: bool = False) -> str:
    """Target tokens per second of training, with the share of the speed of large products; a row for each batch."""
    peak = machine_row(rows)["flops"]

    def cell(row: Row | None) -> str:
        if row is None:
            return ""
        best = fastest(rows, kind="train", size=row["size"], system=MT)
        mark = f"<!-- figure: gpu_train_{row['size']} -->" if is_marked and row is best else ""
        return f"{rounded(row['speed']):,}{mark} ({100 * row['speed'] * row['flop_per_token'] / peak:.0f} %)"

    trained = [row for row in rows if row["kind"] == "train"]
    cases = dict.fromkeys((row["size"], row["batch_tokens"]) for row in trained)
    body = []
    for size, batch_tokens in cases:
        measured = [
            fastest(trained, size=size, batch_tokens=batch_tokens, system=name) for name in (MT, PLAIN, COMPILED)
        ]
        is_last = batch_tokens == max(batch for name, batch in cases if name == size)
        limit = fastest(rows, kind="limit", size=size) if is_last else None
        memory = f"{measured[0]['memory'] / 2**30:.1f} GiB" if measured[0] and measured[0].get("memory") else ""
        cells = [cell(row) for row in (*measured, limit)]
        body.append([f"`{size}`, {batch_tokens:,}", cells[0], memory, *cells[1:]])
    titles = ["model, batch", MT, "its memory", "plain loop of `transformers`", "compiled", "the limit"]
    return table(titles, body)


def translating_table(rows: Sequence[Row]) -> str:
    """Target tokens per second of translating, with a row for each engine and batch; empty if it was not measured."""
    translated = [row for row in rows if row["kind"] == "translate" and "speed" in row]
    if not translated:
        return ""
    beams = sorted({row["beam"] for row in translated})
    cases = dict.fromkeys((row["system"], row["batch_tokens"]) for row in translated)
    body = []
    for system, batch_tokens in cases:
        cells = []
        for beam in beams:
            row = fastest(translated, system=system, batch_tokens=batch_tokens, beam=beam)
            text = f"{rounded(row['speed']):,}" if row else ""
            cells.append(f"**{text}**" if row and row is fastest(translated, system=system, beam=beam) else text)
        is_default = system.startswith(f"{MT} ")
        body.append([system, f"{batch_tokens:,}{' (default)' if is_default else ''}", *cells])
    return table(["engine", "`batch_tokens`", *("greedy" if beam == 1 else f"beam {beam}" for beam in beams)], body)


def times_table(rows: Sequence[Row]) -> str:
    """Hours of training calculated from measured speeds, with one GPU and with eight at 90 % efficiency."""
    body = []
    for corpus, training, size, num_tokens in _CORPORA:
        row = fastest(rows, kind="train", size=size, system=MT)
        if row is not None:
            hours = num_tokens / row["speed"] / 3600
            eight = hours / (8 * _EFFICIENCY)
            cost = f"{_DOLLARS_PER_HOUR * hours:.0f} dollars"
            body.append([corpus, training, *(f"{value:.1f} hours" for value in (hours, eight)), cost])
    return table(["corpus", "model", "one GPU", "eight GPUs", "cost"], body)


def recorded_figures(rows: Sequence[Row]) -> dict[str, tuple[float, str, str]]:
    """Value, unit and description of each figure that pages share, by name."""
    result = {}
    for size in dict.fromkeys(row["size"] for row in rows if row["kind"] == "train"):
        row = fastest(rows, kind="train", size=size, system=MT)
        if row is not None:
            what = (
                f"Target tokens a second of training `preset: {size}` on one GPU, batches of {row['batch_tokens']:,}."
            )
            result[f"gpu_train_{size}"] = rounded(row["speed"]), "tokens/s", what
    ours, plain = (fastest(rows, kind="train", size="base", batch_tokens=25_000, system=name) for name in (MT, PLAIN))
    if ours and plain:
        what = "Speed of training `preset: base` on one GPU against MarianMTModel in a plain loop, batches of 25,000."
        result["gpu_train_vs_transformers"] = ours["speed"] / plain["speed"], "times", what
    for beam, name in ((1, "greedy"), (4, "beam4")):
        ours = fastest(rows, kind="translate", system="mt bf16", beam=beam)
        peer = fastest(rows, kind="translate", system="CTranslate2 float16", beam=beam)
        if ours and peer:
            what = (
                f"Speed of translating on one GPU with beam {beam} against CTranslate2 float16, each at its best batch."
            )
            result[f"gpu_translate_vs_ctranslate2_{name}"] = ours["speed"] / peer["speed"], "times", what
    return result


def comparison(rows: Sequence[Row], is_marked: bool) -> str:
    """Sentence for each comparison with a peer."""
    known = recorded_figures(rows)

    def ratio(name: str) -> str:
        return f"{known[name][0]:.2f} times" + (f"<!-- figure: {name} -->" if is_marked else "")

    sentences = []
    if (name := "gpu_train_vs_transformers") in known:
        sentences.append(f"`base` trains {ratio(name)} as fast as the plain loop with batches of 25,000 tokens.")
    greedy, beam = (f"gpu_translate_vs_ctranslate2_{search}" for search in ("greedy", "beam4"))
    if greedy in known and beam in known:
        words = f"{ratio(greedy)} as fast as CTranslate2 in float16 with greedy search and {ratio(beam)} with beam 4"
        sentences.append(f"Translating is {words}, each at its best batch.")
    return "\n".join(sentences)


def section(rows: Sequence[Row], is_marked: bool = False) -> str:
    """Text between the marks of docs/benchmarks.md."""
    machine = machine_row(rows)
    best = [fastest(rows, kind="train", size=size, system=MT) for size in {row.get("size") for row in rows}]
    settings = {row["settings"] for row in best if row and row["settings"]}
    changed = f" Figures of `mt` are the best of its variants: `{'`, `'.join(sorted(settings))}`." if settings else ""
    measured = (
        f"`{machine['command']}`, {machine['device']}, torch {machine['torch']}, {machine['date']}. Large products in "
        f"bf16 run at {machine['flops'] / 1e12:.0f} TFLOP/s; the share of that speed is in brackets.{changed}"
    )
    measured = fill(measured, 120, break_on_hyphens=False)
    parts = measured, training_table(rows, is_marked), translating_table(rows), comparison(rows, is_marked)
    return "\n\n".join(part for part in parts if part)


def write_figures(rows: Sequence[Row]) -> None:
    """Write the shared figures to docs/figures.json, with the machine and date of the measurement."""
    machine = machine_row(rows)
    source = {"machine": f"{machine['device']}, torch {machine['torch']}", "date": machine["date"]}
    for name, (value, unit, what) in recorded_figures(rows).items():
        figures.record(name, value, unit, what, machine["command"], **source)


def rounded(speed: float) -> int:
    """Speed with three significant digits."""
    digits = max(0, len(str(int(speed))) - 3)
    return int(round(speed, -digits))
