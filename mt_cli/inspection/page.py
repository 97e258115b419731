"""Content of a report page: charts, samples, differences. The markup is in `page.html` and `style.css`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, Template

from mt_cli.config.loading import differences
from mt_cli.config.writing import on_one_line
from mt_cli.evaluation.results import RunSummary, notes_on_comparison, notes_on_training
from mt_cli.evaluation.scores import LOWER_IS_BETTER, METRICS
from mt_cli.inspection.figures import Curve, line_chart
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
_COLOURS = ("#3b82c4", "#d9622b", "#2f9e5b", "#8b6cf0", "#b08414", "#1596b0")


class _Chart(NamedTuple):
    title: str
    curves: list[Curve]
    picture: str


def page_of(runs: Sequence[RunSummary], destinations: Sequence[str]) -> str:
    """HTML page of the first run, compared with the others; `destinations` says where each run can be exported to."""
    first, *others = runs
    changed_options = []
    for run in others:
        changes = differences(first.config, run.config).items()
        changed_options.append((run, {key: list(map(on_one_line, values)) for key, values in changes}))
    page = _template().render(
        runs=runs,
        charts=list(_charts(runs)),
        samples=_samples(runs),
        notes=notes_on_comparison([run.report for run in runs]) if others else [],
        changed_options=changed_options,
        destinations=list(zip(runs, destinations, strict=True)),
        environments=_environments(runs),
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")  # Names need not be UTF-8.


def better_values(metric: str) -> str:
    """`higher` or `lower`: which scores of a metric are better."""
    return "lower" if metric in LOWER_IS_BETTER else "higher"


@cache
def _template() -> Template:
    loader = PackageLoader("mt_cli.inspection", "")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    functions = {"better": better_values, "clock": clock, "notes_on_training": notes_on_training}
    return environment.get_template("page.html", globals={"labels": METRICS, **functions})


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


def _samples(runs: Sequence[RunSummary]) -> Iterable[dict[str, str]]:
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        for source, reference, hypothesis in run.samples:
            sample = texts.setdefault((source, reference), {"source": source, "reference": reference})
            sample[run.name if len(runs) > 1 else "hypothesis"] = hypothesis
    return texts.values()


def _environments(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    columns = [{**run.report.hardware, **run.report.versions} if run.report else {} for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    return {key: ["" if (value := column.get(key)) is None else value for column in columns] for key in keys}
