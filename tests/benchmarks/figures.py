"""The figures that pages share, in `docs/figures.json`: whether the pages show them, and how benchmarks write them.

    python tests/benchmarks/figures.py
    python tests/benchmarks/figures.py --report runs/reverse/report.json reverse_exact=exact_match

The first form lists all figures, with the pages that show them, and ends with exit status 1 if a page shows another
number. The second writes values of a run's report into the file. Benchmarks with `--record` call `record`.

On a page, a comment after a number names its figure: `16 times<!-- figure: decode_vs_joeynmt_bf16 -->`. The number may
have fewer decimals than that in the file; between it and the comment there is nothing but the unit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEYS = ("value", "unit", "what", "machine", "date", "command")
_MARK = re.compile(r"(?<![\d.,])(\d[\d,]*(?:\.\d+)?)\*{0,2}((?:\s[^\s<|\d]+){0,3})<!-- figure: (\w+) -->")

Figures = dict[str, dict[str, Any]]
"""By name: a number, its unit, description, and where, when and how it was measured."""


def load(root: Path = ROOT) -> Figures:
    """Read the figures of the file."""
    return json.loads((root / "docs" / "figures.json").read_text(encoding="utf-8"))


def pages(root: Path = ROOT) -> list[Path]:
    """Pages that may show figures."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def marks(text: str) -> Iterator[tuple[str, str, str]]:
    """Number, words between it and its comment, and name of each marked figure of a page."""
    for match in _MARK.finditer(text):
        yield match[1], " ".join(match[2].split()), match[3]


def problems(text: str, figures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Marked figures of a page that the file does not have, or has with another number or unit."""
    result = []
    marked = list(marks(text))
    for number, words, name in marked:
        figure = figures.get(name)
        if figure is None:
            result.append(f"{name}: no such figure")
            continue
        if not is_shown(number, figure["value"]):
            result.append(f"{name}: the page has {number}, the file {figure['value']}")
        if words not in ("", figure["unit"]):
            result.append(f"{name}: the page has the unit {words}, the file {figure['unit']}")
    num_comments = text.count("<!-- figure:")
    if num_comments != len(marked):
        result.append(f"{num_comments - len(marked)} comments do not follow a number and its unit")
    return result


def is_shown(number: str, value: float) -> bool:
    """Whether a number of a page is a value, rounded to the decimals that the page shows."""
    shown = Decimal(number.replace(",", ""))
    return Decimal(str(value)).quantize(shown, ROUND_HALF_UP) == shown


def record(
    name: str, value: float, unit: str = "", what: str = "", command: str = "", root: Path = ROOT, **source: str
) -> None:
    """Write a figure that this command measured on this machine; a new one needs a unit and a description.

    `source` is the `machine` and `date` of a measurement that was made elsewhere.
    """
    figures = load(root)
    before = figures.get(name, {})
    rounded = round(float(value), 2)
    figure = {
        "value": int(rounded) if rounded.is_integer() else rounded,
        "unit": unit or before["unit"],
        "what": what or before["what"],
        "machine": this_machine(),
        "date": date.today().isoformat(),
        "command": command or this_command(),
    } | source
    text = json.dumps(dict(sorted((figures | {name: figure}).items())), indent=2, ensure_ascii=False) + "\n"
    path = root / "docs" / "figures.json"
    path.with_suffix(".new").write_text(text, encoding="utf-8")
    path.with_suffix(".new").replace(path)
    print(f"{name}: {before.get('value')} -> {figure['value']} {figure['unit']}", file=sys.stderr)


def this_machine() -> str:
    """CPUs, memory and versions."""
    cpus = Path("/proc/cpuinfo")
    text = cpus.read_text(encoding="utf-8") if cpus.exists() else ""
    models = re.findall(r"^model name\s*: (.*)$", text, flags=re.MULTILINE) or [platform.processor()]
    kinds = (("avx512_bf16", " with AVX512-BF16"), ("avx512f", " with AVX512 without bf16"), ("", " without AVX512"))
    kind = next(words for flag, words in kinds if flag in text) if text else ""
    versions = f"Python {platform.python_version()}, torch {metadata.version('torch')}"
    return f"{os.cpu_count()} CPUs of {models[0]}{kind}, {platform.system()}, {versions}"


def this_command() -> str:
    """Command of this process, without `--record`."""
    path = Path(sys.argv[0])
    name = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path.name
    return shlex.join(["python", str(name), *(word for word in sys.argv[1:] if word != "--record")])


def main() -> None:
    """List and check the figures, or write those of a report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, metavar="FILE", help="report.json of a run")
    parser.add_argument("values", nargs="*", metavar="NAME=KEY", help="figures and their dotted keys in the report")
    options = parser.parse_args()
    if options.values and not options.report:
        parser.error("NAME=KEY needs --report")
    for name, _, key in (text.partition("=") for text in options.values):
        report = value = json.loads(options.report.read_text(encoding="utf-8"))
        for part in key.split("."):
            value = value[part]
        record(name, value, command=f"mt train, {key} in report.json of the run {report['run']}")
    figures = load()
    texts = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in pages()}
    for name, figure in sorted(figures.items()):
        shown_on = [page for page, text in texts.items() if name in (shown for *_, shown in marks(text))]
        print(f"{name}: {figure['value']} {figure['unit']} ({figure['date']}; {', '.join(shown_on) or 'on no page'})")
    wrong = [f"{page}: {problem}" for page, text in texts.items() for problem in problems(text, figures)]
    sys.exit("\n".join(wrong) or 0)


if __name__ == "__main__":
    main()
