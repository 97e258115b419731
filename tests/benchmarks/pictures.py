"""Draw the pictures of README.md and docs/recipes.md.

    python tests/benchmarks/pictures.py --terminal docs/training.svg [--log FILE] [--save-log FILE]
    python tests/benchmarks/pictures.py --curves docs/learning_curve.svg --runs "mt=runs/multi30k_en_de" \
        --points "JoeyNMT=15:9.9,30:15.4,60:22.0"

`--terminal` is a terminal in which `mt train` learns: it trains `configs/quickstart.yaml` in a temporary folder, which
takes some minutes, and translates a sentence. `--save-log` keeps what was printed; `--log` draws it again. Every line
of the picture is one of these, whole or shortened by `...`.

`--curves` are cased BLEU (13a) of greedy translations at each validation of runs, against minutes since the first
update, validations included. Points are minutes and BLEU of other systems, as `peer_quality.py` prints them.
"""

import io
import json
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

import common
from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.theme import Theme

COMMANDS = (
    "mt train --config configs/quickstart.yaml",
    'mt translate "The old doctor does not see the red house."',
)
CUT = "..."
PLAN = re.compile(r"  (train|vocabulary|model) ")
STEP = re.compile(r"(step +[\d,]+) .* (valid loss [\d.]+) .* (BLEU +[\d.]+) ")
SCORE = re.compile(r"  BLEU +[\d.]+ ± [\d.]+")
SAMPLE_END = 7  # Two samples of three lines follow the scores of a validation; the picture has the second.


class Lines(RegexHighlighter):
    """Colours of the parts of a line."""

    highlights = [  # noqa: RUF012
        r"^(?P<prompt>\$)(?P<command> .*)",
        r"BLEU +(?P<score>[\d.]+)",
        r"^(?P<faint>(source|reference|hypothesis) +)",
        r"^hypothesis +(?P<hypothesis>.*)",
        r"^ *(?P<faint>\.\.\.)$",
    ]


COLOURS = Theme(
    {"prompt": "#56d364", "command": "#ffffff", "score": "#e3b341", "faint": "#8b949e", "hypothesis": "#79c0ff"}
)


def transcript(folder: Path) -> str:
    """The commands, each with its output, run in a folder."""
    (folder / "configs").symlink_to(common.ROOT / "configs")
    text = ""
    for command in COMMANDS:
        words = [*common.MT, *shlex.split(command)[1:]]
        ran = subprocess.run(
            words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", check=True
        )
        text += f"$ {command}\n{ran.stdout}"
    return text


def shorten(text: str) -> list[str]:
    """Lines of the picture: plan, first, second and last validation with a sample, BLEU, and the translation."""
    lines = [line for line in text.splitlines() if not line.startswith("train: ")]
    validations = {number: match for number, line in enumerate(lines) if (match := STEP.match(line))}
    numbers = list(validations)
    if len(numbers) < 3:
        raise SystemExit("the log has fewer than three validations")
    kept = {number: line for number, line in enumerate(lines[: numbers[0]]) if number < 2 or PLAN.match(line)}
    for number, num_sample_lines in ((numbers[0], 3), (numbers[1], 1), (numbers[-1], 1)):
        kept[number] = f"  {CUT}  ".join((*validations[number].groups(), "")).rstrip()
        end = number + SAMPLE_END
        kept |= {place: lines[place] for place in range(end - num_sample_lines, end)}
    place, score = next((number, match) for number, line in enumerate(lines) if (match := SCORE.match(line)))
    kept |= {place - 1: lines[place - 1], place: f"{score[0]}  {CUT}"}
    kept |= dict(list(enumerate(lines))[lines.index(f"$ {COMMANDS[1]}") :])
    result: list[str] = []
    for number in sorted(kept):
        # Samples follow a shortened line without a mark.
        if number and number - 1 not in kept and not result[-1].endswith(CUT):
            result.append(f"  {CUT}")
        result.append(kept[number])
    return result


def draw_terminal(lines: list[str], path: Path) -> None:
    """Draw lines in a terminal as SVG, without fonts from other sites."""
    console = Console(
        record=True, width=max(map(len, lines)), file=io.StringIO(), highlighter=Lines(), theme=COLOURS, markup=False
    )
    for line in lines:
        console.print(line, no_wrap=True)
    svg = console.export_svg(title="mt train", unique_id="terminal")
    path.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")


def curve_of_run(run: Path) -> list[tuple[float, float]]:
    """Minutes and BLEU of the validations in `metrics.jsonl`."""
    rows = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [(row["elapsed_seconds"] / 60, row["valid/bleu"]) for row in rows if "valid/bleu" in row]


def main() -> None:
    """Draw the terminal or the curves."""
    options = common.read_options(__doc__, terminal=None, log=None, save_log=None, curves=None, runs=[], points=[])
    if options.terminal:
        if options.log:
            text = Path(options.log).read_text(encoding="utf-8")
        else:
            with tempfile.TemporaryDirectory() as folder:
                text = transcript(Path(folder))
        if options.save_log:
            Path(options.save_log).write_text(text, encoding="utf-8")
        draw_terminal(shorten(text), Path(options.terminal))
    if options.curves:
        points = {label: curve_of_run(Path(run)) for label, _, run in (text.partition("=") for text in options.runs)}
        for label, _, text in (text.partition("=") for text in options.points):
            points[label] = [tuple(map(float, point.split(":"))) for point in text.split(",")]
        curves = {label: tuple(zip(*curve, strict=True)) for label, curve in points.items()}
        common.draw_curves(options.curves, "BLEU on val, cased", {"minutes of training": curves})


if __name__ == "__main__":
    main()
