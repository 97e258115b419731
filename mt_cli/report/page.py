"""The content of the page: summary, scores, curves, samples, attention, data, config, environment.

The markup is in `page.html` and `style.css`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from mt_cli.config.loading import differences
from mt_cli.console import clock
from mt_cli.errors import MtError
from mt_cli.experiment.scoring import LABELS
from mt_cli.figures import shown_token
from mt_cli.inspection import trace_translation
from mt_cli.report.charts import Chart, Curve, short_number
from mt_cli.report.reading import RunFiles
from mt_cli.translator import Translator

_CHARTS = {
    "Loss (nats per target token)": ("train/loss", "valid/loss"),
    "BLEU on validation pairs, greedy": ("valid/bleu",),
    "chrF on validation pairs, greedy": ("valid/chrf",),
    "Token accuracy (share of correct tokens)": ("train/token_accuracy", "valid/token_accuracy"),
    "Learning rate": ("train/learning_rate",),
    "Norm of the gradient before clipping": ("train/grad_norm",),
    "Norm of an update, relative to that of the weights": ("optimizer/update_to_weight",),
    "Target tokens a second": ("train/tokens_per_second",),
}
_NUM_COLOURS = 6
_NUM_PICTURES = 2
_LONGEST_PICTURE = 40


class Table(NamedTuple):
    """A table whose columns have a title and a CSS class."""

    columns: Sequence[tuple[str, str]]
    rows: list[list[str]]


def page_of(runs: Sequence[RunFiles], translator: Translator | None) -> str:
    """The page of the first run, compared with the others; its translator, if given, draws attention."""
    first, *others = runs
    sections: dict[str, Iterable[Any]] = {
        "Scores": [_scores(runs)],
        "Curves": _charts(runs),
        "Samples": _samples(runs),
        "Attention": islice(_heat_maps(first, translator), _NUM_PICTURES) if translator else (),
        "Data": [_data(first)],
        "Config": [_changed_options(first, other) for other in others],
        "Environment": [_environment(runs)],
    }
    filled = {
        title: contents
        for title, some in sections.items()
        if (contents := [each for each in some if not isinstance(each, Table) or each.rows]) or title == "Config"
    }
    environment = Environment(
        loader=PackageLoader("mt_cli.report", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    template = environment.get_template("page.html", globals={"short": short_number})
    page = template.render(run=first, others=others, tiles=_tiles(first), sections=filled)
    return page.encode("utf-8", "backslashreplace").decode("utf-8")  # Names need not be UTF-8.


def _tiles(run: RunFiles) -> dict[str, str]:
    report = run.report
    if report is None:
        last = run.rows[-1] if run.rows else {}
        seconds = last.get("elapsed_seconds", 0.0)
        return {"not finished: last step": f"{last.get('step', 0):,}", "trained for": clock(seconds)}
    shown = [name for name in ("bleu", "chrf") if name in report.scores]
    return {f"{LABELS[name]} on {report.split}": f"{report.scores[name].score:.2f}" for name in shown} | {
        "equal to their reference": f"{report.exact_match:.1f} %",
        "best step": f"{report.best_step:,}",
        "steps": f"{report.num_steps:,}",
        "trained for": clock(report.elapsed_seconds),
        "target tokens": f"{report.num_target_tokens:,}",
        "parameters": f"{report.num_parameters:,}",
        "stopped because of": report.stopped_because,
    }


def _scores(runs: Sequence[RunFiles]) -> Table:
    rows = []
    for run in runs:
        for test in [run.report, *run.report.extra_tests.values()] if run.report else []:
            for name, found in test.scores.items():
                interval = f" ± {found.confidence_95:.2f}" if found.confidence_95 is not None else ""
                rows.append([run.name, test.split, LABELS[name], f"{found.score:.2f}{interval}", found.signature])
    columns = [("run", ""), ("test set", ""), ("metric", ""), ("score", "number"), ("signature", "signature")]
    return Table(columns, rows)


def _charts(runs: Sequence[RunFiles]) -> Iterator[Chart]:
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


def _samples(runs: Sequence[RunFiles]) -> Iterable[dict[str, str]]:
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        for source, reference, hypothesis in run.samples:
            sample = texts.setdefault((source, reference), {"source": source, "reference": reference})
            sample[run.name if len(runs) > 1 else "hypothesis"] = hypothesis
    return texts.values()


def _heat_maps(run: RunFiles, translator: Translator) -> Iterator[dict[str, Any]]:
    for source, _, _ in run.samples:
        try:
            trace = trace_translation(translator, source)
        except MtError:  # The sentence is too long for the model.
            continue
        sides = {"source_tokens": trace.source_tokens, "target_tokens": trace.output_tokens}
        if max(map(len, sides.values())) <= _LONGEST_PICTURE:
            tokens = {side: list(map(shown_token, some)) for side, some in sides.items()}
            yield {**tokens, "weights": trace.mean_cross_attention.tolist()}


def _data(run: RunFiles) -> Table:
    rows = []
    for part in run.report.corpora if run.report else []:
        counts = part.dropped | ({"held out for valid": part.num_held_out} if part.num_held_out else {})
        left_out = ", ".join(f"{reason} {number:,}" for reason, number in counts.items()) or "none"
        numbers = ["" if number is None else f"{number:,}" for number in (part.num_read, part.num_kept)]
        rows.append([part.corpus, part.name, *numbers, left_out])
    columns = [("corpus", ""), ("source", ""), ("pairs read", "number"), ("kept", "number"), ("left out", "")]
    return Table(columns, rows)


def _changed_options(first: RunFiles, other: RunFiles) -> Table:
    changed = differences(first.config, other.config)
    rows = [[key, *map(str, values)] for key, values in changed.items()]
    return Table([("option", "code"), (first.name, ""), (other.name, "")], rows)


def _environment(runs: Sequence[RunFiles]) -> Table:
    columns = [{**run.report.hardware, **run.report.versions} if run.report else {} for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = [[key, *(str(column.get(key, "")) for column in columns)] for key in keys]
    return Table([("", ""), *((run.name, "") for run in runs)], rows)
