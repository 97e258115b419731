"""What the page shows: charts, samples, attention, differences. The markup is in `page.html` and `style.css`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any

from jinja2 import Environment, PackageLoader, Template

from mt_cli.config.loading import differences
from mt_cli.config.writing import on_one_line
from mt_cli.errors import MtError
from mt_cli.evaluation.texts import LOWER_IS_BETTER, METRICS
from mt_cli.features.inspection.figures import shown_token
from mt_cli.features.inspection.line_charts import Chart, Curve, short_number
from mt_cli.features.inspection.trace import trace_translation
from mt_cli.machine.console import clock
from mt_cli.reporting.report import RunSummary, notes_on_comparison
from mt_cli.translation.translator import Translator

_CHARTS = {
    "Loss (nats per target token): lower is better": ("train/loss", "valid/loss"),
    "BLEU on validation pairs, greedy search: higher is better": ("valid/bleu",),
    "chrF on validation pairs, greedy search: higher is better": ("valid/chrf",),
    "Token accuracy (share of correct tokens): higher is better": ("train/token_accuracy", "valid/token_accuracy"),
    "Learning rate": ("train/learning_rate",),
    "Norm of the gradient before clipping": ("train/grad_norm",),
    "Target tokens a second: higher is faster": ("train/tokens_per_second",),
}
_NUM_COLOURS = 6
_NUM_HEAT_MAPS = 2
_MAX_TOKENS = 40


def page_of(runs: Sequence[RunSummary], translator: Translator | None) -> str:
    """The page of the first run, compared with the others; its translator, if given, draws attention."""
    first, *others = runs
    page = _template().render(
        runs=runs,
        charts=list(_charts(runs)),
        samples=_samples(runs),
        heat_maps=islice(_heat_maps(first, translator), _NUM_HEAT_MAPS) if translator else (),
        notes=notes_on_comparison([run.report for run in runs]) if others else [],
        changed_options=[(other, _shown(differences(first.config, other.config))) for other in others],
        environments=_environments(runs),
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")  # Names need not be UTF-8.


def better_values(metric: str) -> str:
    """`higher` or `lower`: which scores of a metric are better."""
    return "lower" if metric in LOWER_IS_BETTER else "higher"


def _shown(differences: Mapping[str, tuple[Any, Any]]) -> dict[str, list[str]]:
    """The values as they stand in a config."""
    return {key: [on_one_line(value) for value in values] for key, values in differences.items()}


@cache
def _template() -> Template:
    loader = PackageLoader("mt_cli.features.inspection", "")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    names = {"labels": METRICS, "better": better_values, "clock": clock, "short": short_number}
    return environment.get_template("page.html", globals=names)


def _charts(runs: Sequence[RunSummary]) -> Iterator[Chart]:
    is_alone = len(runs) == 1
    for title, tags in _CHARTS.items():
        curves = []
        for number, run in enumerate(runs):
            for place, tag in enumerate(tags):
                label = " ".join([run.name] * (not is_alone) + [tag] * (len(tags) > 1 or is_alone))
                # A single run has a colour for each curve; of several runs, each has one colour.
                colour = (place if is_alone else number) % _NUM_COLOURS
                points = [(row["step"], row[tag]) for row in run.rows if tag in row]
                curves.append(Curve(label, points, colour, not is_alone and place == 0 and len(tags) > 1))
        if curves := [curve for curve in curves if curve.points]:
            yield Chart(title, curves)


def _samples(runs: Sequence[RunSummary]) -> Iterable[dict[str, str]]:
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        for source, reference, hypothesis in run.samples:
            sample = texts.setdefault((source, reference), {"source": source, "reference": reference})
            sample[run.name if len(runs) > 1 else "hypothesis"] = hypothesis
    return texts.values()


def _heat_maps(run: RunSummary, translator: Translator) -> Iterator[dict[str, Any]]:
    for source, _, _ in run.samples:
        try:
            trace = trace_translation(translator, source)
        except MtError:  # The sentence is too long for the model.
            continue
        sides = {"source_tokens": trace.source_tokens, "target_tokens": trace.output_tokens}
        if max(map(len, sides.values())) <= _MAX_TOKENS:
            tokens = {side: list(map(shown_token, some)) for side, some in sides.items()}
            yield {**tokens, "weights": trace.mean_cross_attention.tolist()}


def _environments(runs: Sequence[RunSummary]) -> dict[str, list[Any]]:
    columns = [{**run.report.hardware, **run.report.versions} if run.report else {} for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    return {key: ["" if (value := column.get(key)) is None else value for column in columns] for key in keys}
