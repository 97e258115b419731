"""Draw a terminal in which `mt train` learns, from the lines that it printed.

    python tests/benchmarks/terminal_picture.py --output docs/training.svg [--log FILE] [--save-log FILE]

Without `--log` it trains `configs/quickstart.yaml` in a temporary folder, which takes some minutes, and translates a
sentence. `--save-log` keeps what was printed; `--log` draws it again. Every line of the picture is one of these,
whole or shortened by `...`.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
COMMANDS = (
    "mt train --config configs/quickstart.yaml",
    'mt translate "The old doctor does not see the red house."',
)
CUT = "..."
PLAN = re.compile(r"  (train|vocabulary|model) ")
STEP = re.compile(r"(step +[\d,]+) .* (valid loss [\d.]+) .* (BLEU +[\d.]+) ")
SCORE = re.compile(r"  BLEU +[\d.]+ ± [\d.]+")
SAMPLE_END = 7  # Two samples of three lines follow the scores of a validation; the picture has the second.

SIZE, ADVANCE, HEIGHT, MARGIN, BAR = 14, 8.4, 20, 16, 34
FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace"
COLOURS = {
    "background": "#161b22",
    "border": "#444c56",
    "text": "#c9d1d9",
    "faint": "#8b949e",
    "command": "#ffffff",
    "prompt": "#56d364",
    "score": "#e3b341",
    "hypothesis": "#79c0ff",
}


def transcript(folder: Path) -> str:
    """The commands, each with what it prints, run in a folder."""
    (folder / "configs").symlink_to(ROOT / "configs")
    text = ""
    for command in COMMANDS:
        words = [sys.executable, "-m", "mt_cli", *shlex.split(command)[1:]]
        ran = subprocess.run(
            words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", check=True
        )
        text += f"$ {command}\n{ran.stdout}"
    return text


def shortened(text: str) -> list[str]:
    """The lines of the picture: plan, first, second and last validation with a sample, BLEU, and the translation."""
    lines = [line for line in text.splitlines() if not line.startswith("train: ")]
    validations = [index for index, line in enumerate(lines) if STEP.match(line)]
    if len(validations) < 3:
        raise SystemExit("the log has fewer than three validations")
    kept = {index: line for index, line in enumerate(lines[: validations[0]]) if index < 2 or PLAN.match(line)}
    for index, fields in ((validations[0], 3), (validations[1], 1), (validations[-1], 1)):
        kept[index] = f"  {CUT}  ".join((*STEP.match(lines[index]).groups(), "")).rstrip()  # type: ignore[union-attr]
        end = index + SAMPLE_END
        kept |= {each: lines[each] for each in range(end - fields, end)}
    score = next(index for index, line in enumerate(lines) if SCORE.match(line))
    kept[score - 1], kept[score] = lines[score - 1], f"{SCORE.match(lines[score])[0]}  {CUT}"  # type: ignore[index]
    command = lines.index(f"$ {COMMANDS[1]}")
    return with_gaps(kept | {index: lines[index] for index in range(command, len(lines))})


def with_gaps(kept: dict[int, str]) -> list[str]:
    """Lines by their numbers, with one that says so where some are missing, but for samples of a shortened line."""
    result: list[str] = []
    for number in sorted(kept):
        if number and number - 1 not in kept and not result[-1].endswith(CUT):
            result.append(f"  {CUT}")
        result.append(kept[number])
    return result


def coloured(line: str) -> str:
    """A line as coloured text of SVG."""

    def span(text: str, colour: str) -> str:
        return f'<tspan fill="{COLOURS[colour]}">{escape(text)}</tspan>'

    if line.startswith("$ "):
        return span("$", "prompt") + span(line[1:], "command")
    if found := re.fullmatch(r"(.*BLEU +)([\d.]+)(.*)", line):
        return escape(found[1]) + span(found[2], "score") + escape(found[3])
    if found := re.fullmatch(r"((?:source|reference|hypothesis) +)(.*)", line):
        return span(found[1], "faint") + span(found[2], "hypothesis" if line.startswith("hyp") else "text")
    return span(line, "faint") if line == CUT else escape(line)


def drawn(lines: list[str]) -> str:
    """A terminal with these lines as SVG, each as wide as its number of characters says, in any font."""
    width = round(max(map(len, lines)) * ADVANCE + 2 * MARGIN)
    height = BAR + len(lines) * HEIGHT + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="{FONTS}" font-size="{SIZE}" fill="{COLOURS["text"]}">',
        "<title>A terminal in which mt train learns</title>",
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" fill="{COLOURS["background"]}" '
        f'stroke="{COLOURS["border"]}"/>',
        *(f'<circle cx="{MARGIN + 5 + 18 * n}" cy="18" r="5" fill="{COLOURS["border"]}"/>' for n in range(3)),
    ]
    for number, line in enumerate(lines):
        text = line.lstrip()
        x, y = MARGIN + (len(line) - len(text)) * ADVANCE, BAR + number * HEIGHT + SIZE
        length = f'textLength="{len(text) * ADVANCE:.1f}" lengthAdjust="spacingAndGlyphs"'
        parts.append(f'<text x="{x:.1f}" y="{y}" {length} xml:space="preserve">{coloured(text)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Train or read a log; draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--log", type=Path, help="draw these lines instead of training")
    parser.add_argument("--save-log", type=Path, help="keep the lines in this file")
    options = parser.parse_args()
    if options.log:
        text = options.log.read_text(encoding="utf-8")
    else:
        with tempfile.TemporaryDirectory() as folder:
            text = transcript(Path(folder))
    if options.save_log:
        options.save_log.write_text(text, encoding="utf-8")
    options.output.write_text(drawn(shortened(text)), encoding="utf-8")


if __name__ == "__main__":
    main()
