"""Content of a report page: charts, samples, differences. The markup is in `page.html` and `style.css`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, Template

from mt_cli.config.loading import differences
from mt_cli.config.writing import on_one_line
from mt_cli.evaluation.evaluate import Baseline
from mt_cli.evaluation.results import Report, RunSummary, notes_on_comparison, notes_on_training
from mt_cli.evaluation.scores import LOWER_IS_BETTER, METRICS, Score
from mt_cli.inspection.figures import Curve, attention_chart, line_chart
from mt_cli.inspection.trace import Map
from mt_cli.runtime.console import clock

_CHARTS = {
    "Loss (nats per target token): lower is better": ("train/loss", "valid/loss"),
    "BLEU on validation pairs, greedy search: higher is better": ("valid/bleu",),
    "chrF on validation pairs, greedy search: higher is better": ("valid/chrf",),
    "Token accuracy (share of correct tokens): higher is better": ("train/token_accuracy", "valid/token_accuracy"),
    "Learning rate": ("train/learning_rate",),
    "Norm of the gradient before clipping": ("train/grad_norm",),
    "Target tokens a second: higher is faster": ("train/tokens_per_second",),
}
_MAIN_CHARTS = tuple(_CHARTS)[:3]
"""Charts that are not folded."""
_COLOURS = ("#3b82c4", "#d9622b", "#2f9e5b", "#8b6cf0", "#b08414", "#1596b0")


class _Chart(NamedTuple):
    title: str
    curves: list[Curve]
    picture: str


class _Row(NamedTuple):
    """Scores of all runs by one metric on one test set."""

    split: str
    metric: str
    scores: list[Score | None]
    changes: list[tuple[float | None, float | None]]
    """Difference of each run from the first one, and its p-value; None if unknown."""


def page_of(
    runs: Sequence[RunSummary],
    destinations: Sequence[str],
    baselines: Sequence[Baseline | None] = (),
    attention: Map | None = None,
) -> str:
    """HTML page of a run, or of several runs side by side, with differences from the first one.

    `destinations` says where each run can be exported to. `baselines` has the p-values for each run but the first;
    `attention` is a picture for the samples of a single run.
    """
    first, *others = runs
    changed_options = []
    for run in others:
        changes = differences(first.config, run.config).items()
        changed_options.append((run, {key: list(map(on_one_line, values)) for key, values in changes}))
    charts = list(_charts(runs))
    page = _template().render(
        runs=runs,
        scores=list(_score_rows(runs, baselines)),
        differences=[f"{run.name} minus {first.name}" for run in others],
        charts=charts,
        num_main_charts=sum(chart.title in _MAIN_CHARTS for chart in charts),
        samples=_samples(runs),
        attention=attention_chart(*attention) if attention else None,
        remarks=list(_remarks(runs)),
        changed_options=changed_options,
        destinations=list(zip(runs, destinations, strict=True)),
        facts=_facts(runs),
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")  # Names need not be UTF-8.


def _duration(seconds: float) -> str:
    return f"{clock(seconds)} {'h' if seconds >= 3600 else 'min'}"


def _size(number: int) -> str:
    tenths = number // 100_000  # Of any length: a float would overflow.
    return f"{tenths // 10:,}.{tenths % 10} million" if tenths > 0 else f"{number:,}"


def _better(metric: str) -> str:
    return "lower" if metric in LOWER_IS_BETTER else "higher"


@cache
def _template() -> Template:
    loader = PackageLoader("mt_cli.inspection", "")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    functions = {"better": _better, "duration": _duration, "size": _size}
    return environment.get_template("page.html", globals={"labels": METRICS, **functions})


def _score_rows(runs: Sequence[RunSummary], baselines: Sequence[Baseline | None]) -> Iterator[_Row]:
    tests = [{test.split: test for test in run.report.tests} if run.report else {} for run in runs]
    places = dict.fromkeys((split, metric) for run in tests for split, test in run.items() for metric in test.scores)
    for split, metric in places:
        scores = [run[split].scores.get(metric) if split in run else None for run in tests]
        changes: list[tuple[float | None, float | None]] = []
        for score, baseline in zip_longest(scores[1:], baselines):
            change = score.score - scores[0].score if score and scores[0] else None
            compared = baseline.scores.get(metric) if baseline and split == next(iter(tests[0]), None) else None
            changes.append((change, compared.p_value if compared else None))
        yield _Row(split, metric, scores, changes)


def _remarks(runs: Sequence[RunSummary]) -> Iterator[tuple[str, str]]:
    """Notes on runs and their scores, each after the name of its run, or an empty text for all runs."""
    for run in runs:
        if (report := run.report) is None:
            continue
        if run.rows and run.rows[-1]["step"] > report.num_steps:
            yield run.name, f"The scores are of step {report.num_steps:,}; the training went on, and has not ended yet."
        yield from ((run.name, note) for note in notes_on_training(report))
        yield from ((run.name, f"{test.split}: {note}.") for test in report.tests for note in test.notes)
    notes = notes_on_comparison([run.report for run in runs]) if len(runs) > 1 else []
    yield from (("", f"{note[0].upper()}{note[1:]}.") for note in notes)


def _charts(runs: Sequence[RunSummary]) -> Iterator[_Chart]:
    """Charts of the metrics of the runs. With one run, each metric has a colour; with several, each run has one."""
    is_alone = len(runs) == 1
    for title, tags in _CHARTS.items():
        curves = []
        for number, run in enumerate(runs):
            for place, tag in enumerate(tags):
                name = tag if is_alone else f"{run.name} {tag}" if len(tags) > 1 else run.name
                colour = _COLOURS[(place if is_alone else number) % len(_COLOURS)]
                if points := [(row["step"], row[tag]) for row in run.rows if tag in row]:
                    curves.append(Curve(name, points, colour, not is_alone and place == 0 and len(tags) > 1))
        if curves:
            yield _Chart(title, curves, line_chart(curves))


def _samples(runs: Sequence[RunSummary]) -> list[dict[str, str]]:
    names = ["hypothesis"] if len(runs) == 1 else [f"{number}. {run.name}" for number, run in enumerate(runs, start=1)]
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for number, run in enumerate(runs):
        for source, reference, hypothesis in run.samples:
            sample = texts.setdefault((source, reference), {"source": source, "reference": reference})
            sample[names[number]] = hypothesis
    return [sample for sample in texts.values() if len(sample) == len(runs) + 2]


def _facts(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    """Length of the training, machine and versions: a value for each run, by key."""
    columns = [_facts_of(run.report) if run.report else {} for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    return {key: ["" if (value := column.get(key)) is None else value for column in columns] for key in keys}


def _facts_of(report: Report) -> dict[str, Any]:
    return {
        "stopped because of": report.stopped_because,
        "best step": f"{report.best_step:,}",
        "steps": f"{report.num_steps:,}",
        "target tokens": f"{report.num_target_tokens:,}",
        "training time": _duration(report.elapsed_seconds),
        "parameters": f"{report.num_parameters:,}",
        "equal to their reference": f"{report.exact_match:.1f} %",
        **report.hardware,
        **report.versions,
    }
