"""The page: summary, scores, curves, samples, attention, data, config, environment. Reads run directories only."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from html import escape
from importlib import resources

import torch

from mt_cli.config.loading import differences
from mt_cli.errors import MtError
from mt_cli.experiment.scoring import LABELS
from mt_cli.figures import shown_token
from mt_cli.inspection import KINDS, look_into
from mt_cli.report.charts import Curve, line_chart
from mt_cli.report.reading import Part, RunFiles
from mt_cli.translator.translator import Translator

_CHARTS = {
    "Loss (nats per target token)": ("train/loss", "valid/loss"),
    "BLEU on validation pairs, greedy": ("valid/bleu",),
    "chrF on validation pairs, greedy": ("valid/chrf",),
    "Token accuracy (share of right tokens)": ("train/token_accuracy", "valid/token_accuracy"),
    "Learning rate": ("train/learning_rate",),
    "Length of the gradient before clipping": ("train/grad_norm",),
    "Length of an update, against that of the weights": ("optimizer/update_to_weight",),
    "Target tokens a second": ("train/tokens_per_second",),
}
_NUM_PICTURES = 2
_LONGEST_PICTURE = 40


def page_of(runs: Sequence[RunFiles], translator: Translator | None) -> str:
    """The page of the first run, with the others beside it.

    Attention is drawn with the first run's translator, if there is one.
    """
    first, *others = runs
    sections = {
        "Scores": _scores(runs),
        "Curves": _curves(runs),
        "Samples": _samples(runs),
        "Attention": _attention(first, translator),
        "Data": _data(first.report.corpora if first.report else []),
        "Config": _config(first, others),
        "Environment": _environment(runs),
    }
    sections = {title: body for title, body in sections.items() if body}
    links = "".join(f'<a href="#{title.lower()}">{title}</a>' for title in sections)
    beside = f", beside {escape(', '.join(run.name for run in others))}" if others else ""
    corpus = first.config.corpus
    style = resources.files("mt_cli.report").joinpath("style.css").read_text(encoding="utf-8")
    body = "".join(f'<h2 id="{title.lower()}">{title}</h2>{section}' for title, section in sections.items())
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(first.name)} - mt</title><style>{style}</style></head><body>"
        f'<h1>{escape(first.name)}</h1><p class="lead">{escape(corpus.source)} to {escape(corpus.target)}{beside}</p>'
        f"<nav>{links}</nav>{_tiles(first)}{body}</body></html>"
    )
    return page.encode("utf-8", "backslashreplace").decode("utf-8")  # Names need not be UTF-8.


def _tiles(run: RunFiles) -> str:
    report = run.report
    last = run.rows[-1] if run.rows else {}
    if report is None:
        seconds = last.get("elapsed_seconds", 0.0)
        tiles = {"not finished: last step": f"{last.get('step', 0):,}", "trained for": _clock(seconds)}
    else:
        shown = [name for name in ("bleu", "chrf") if name in report.scores]
        tiles = {
            **{f"{LABELS[name]} on {report.split}": f"{report.scores[name].score:.2f}" for name in shown},
            "equal to their reference": f"{report.exact_match:.1f} %",
            "best step": f"{report.best_step:,}",
            "steps": f"{report.num_steps:,}",
            "trained for": _clock(report.elapsed_seconds),
            "target tokens": f"{report.num_target_tokens:,}",
            "parameters": f"{report.num_parameters:,}",
            "stopped because of": report.stopped_because,
        }
    items = (
        f'<div class="tile"><b{" class=long" * (len(value) > 10)}>{escape(value)}</b><span>{escape(name)}</span></div>'
        for name, value in tiles.items()
    )
    return f'<p></p><div class="tiles">{"".join(items)}</div>'


def _scores(runs: Sequence[RunFiles]) -> str:
    rows = []
    for run in runs:
        for scored in [run.report, *run.report.extra_tests.values()] if run.report else []:
            for name, found in scored.scores.items():
                width = found.confidence_95
                score = f"{found.score:.2f}" + (f" ± {width:.2f}" if width is not None else "")
                signature = f'<span class="signature">{escape(found.signature)}</span>'
                rows.append([escape(run.name), escape(scored.split), LABELS[name], score, signature])
    return _table(["run", "test set", "metric", "score", "signature"], rows, numbers={3})


def _curves(runs: Sequence[RunFiles]) -> str:
    charts = []
    for title, tags in _CHARTS.items():
        curves = []
        for number, run in enumerate(runs):
            for place, tag in enumerate(tags):
                points = [(row["step"], row[tag]) for row in run.rows if tag in row]
                name = run.name if len(runs) > 1 else ""
                label = " ".join(filter(None, [name, tag if len(tags) > 1 or not name else ""]))
                # Alone, a run has its own colour for each curve; beside others, each run has one colour.
                colour = number if len(runs) > 1 else place
                curves.append(Curve(label, points, colour, is_dashed=len(runs) > 1 and place == 0 and len(tags) > 1))
        charts.append(line_chart(title, curves))
    return f'<div class="charts">{"".join(charts)}</div>' if any(charts) else ""


def _samples(runs: Sequence[RunFiles]) -> str:
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for run in runs:
        for source, reference, hypothesis in run.samples:
            texts.setdefault((source, reference), {})[run.name if len(runs) > 1 else "hypothesis"] = hypothesis
    items = []
    for (source, reference), hypotheses in texts.items():
        lines = {"source": source, "reference": reference, **hypotheses}
        rows = (
            f'<div><span class="name">{escape(name)}</span><span dir="auto">{escape(text)}</span></div>'
            for name, text in lines.items()
        )
        items.append(f'<div class="sample">{"".join(rows)}</div>')
    return "".join(items)


def _attention(run: RunFiles, translator: Translator | None) -> str:
    if translator is None:
        return ""
    pictures = []
    for source, _, _ in run.samples:
        try:
            insight = look_into(translator, source)
        except MtError:  # Too long to be drawn.
            continue
        if max(len(insight.source_tokens), len(insight.output_tokens)) > _LONGEST_PICTURE:
            continue
        layers = insight.attention[KINDS[2]]
        weights = torch.stack(layers).mean(dim=(0, 1))
        pictures.append(_heat_map(weights.tolist(), insight.source_tokens, insight.output_tokens))
        if len(pictures) == _NUM_PICTURES:
            break
    note = "<p>Which source tokens each token attends to: the mean over layers and heads of the cross-attention.</p>"
    return note + "".join(f'<div class="wide">{picture}</div>' for picture in pictures) if pictures else ""


def _heat_map(weights: list[list[float]], source_tokens: Sequence[str], target_tokens: Sequence[str]) -> str:
    source_tokens, target_tokens = ([shown_token(token) for token in side] for side in (source_tokens, target_tokens))
    head = "".join(f'<th><span dir="auto">{escape(token)}</span></th>' for token in source_tokens)
    rows = []
    for token, row in zip(target_tokens, weights, strict=True):
        cells = (
            f'<td style="background: rgba(var(--heat), {weight:.2f})" '
            f'title="{escape(token)} - {escape(other)}: {weight:.2f}"></td>'
            for weight, other in zip(row, source_tokens, strict=True)
        )
        rows.append(f'<tr><th dir="auto">{escape(token)}</th>{"".join(cells)}</tr>')
    return f'<table class="attention"><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _data(corpora: Sequence[Part]) -> str:
    rows = []
    for part in corpora:
        counts = part.dropped | ({"held out for valid": part.num_held_out} if part.num_held_out else {})
        left_out = ", ".join(f"{reason} {number:,}" for reason, number in counts.items()) or "none"
        numbers = ["" if number is None else f"{number:,}" for number in (part.num_read, part.num_kept)]
        rows.append([escape(part.corpus), escape(part.name), *numbers, escape(left_out)])
    return _table(["corpus", "source", "pairs read", "kept", "left out"], rows, numbers={2, 3})


def _config(first: RunFiles, others: Sequence[RunFiles]) -> str:
    parts = []
    for other in others:
        changed = differences(first.config, other.config)
        rows = [
            [f"<code>{escape(key)}</code>", *(escape(str(value)) for value in pair)] for key, pair in changed.items()
        ]
        parts.append(_table(["option", escape(first.name), escape(other.name)], rows))
    text = escape(first.config.to_yaml())
    return (
        "".join(parts) + f"<details><summary>all options of {escape(first.name)}</summary><pre>{text}</pre></details>"
    )


def _environment(runs: Sequence[RunFiles]) -> str:
    columns = [{**run.report.hardware, **run.report.versions} if run.report else {} for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    rows = [[escape(key), *(escape(str(column.get(key, ""))) for column in columns)] for key in keys]
    return _table(["", *(escape(run.name) for run in runs)], rows)


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: Container[int] = ()) -> str:
    """A table of cells that are HTML already; nothing if there are no rows."""

    def cells(values: Sequence[str], tag: str) -> str:
        kinds = (' class="number"' if place in numbers else "" for place in range(len(values)))
        return "".join(f"<{tag}{kind}>{value}</{tag}>" for kind, value in zip(kinds, values, strict=True))

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    if not body:
        return ""
    return f'<div class="wide"><table><thead><tr>{cells(titles, "th")}</tr></thead><tbody>{body}</tbody></table></div>'


def _clock(elapsed_seconds: float) -> str:
    minutes, seconds = divmod(round(elapsed_seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
