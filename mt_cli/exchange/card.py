"""The model card of a trained run: README.md of a folder for the Hugging Face hub, written and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from jinja2 import Environment, PackageLoader, StrictUndefined

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.tags import direction_of
from mt_cli.corpus.languages import LANGUAGE_CODE, parsed
from mt_cli.decoding.engine import TOKENS_BESIDE_RATIO
from mt_cli.evaluation.evaluate import SplitScores
from mt_cli.evaluation.results import Report, RunSummary
from mt_cli.evaluation.scores import LOWER_IS_BETTER, METRICS
from mt_cli.exchange.destinations import describe_destinations
from mt_cli.exchange.m2m100_export import transformers_code
from mt_cli.exchange.transformers_folder import MAX_LENGTH
from mt_cli.runtime.files import read_regular, reading

_MAX_CARD_BYTES, _MAX_LICENCE = 2**22, 60


def model_card(run: RunSummary, license_name: str | None, licences: Mapping[str, str] | None = None) -> str:
    """Markdown with the metadata that the hub reads, scores included, and without paths of this machine.

    `license_name` is an identifier of the hub, such as `cc-by-4.0`; without one, it is the licence of the imported
    models that training began with, if `licences` has exactly one, and otherwise the card says that it is to be chosen.
    """
    licences = licences or {}
    inherited = {*licences.values()}
    license_name = license_name or (inherited.pop() if len(inherited) == 1 else None)
    corpus, report = run.config.corpus, run.report
    tests = [report, *report.extra_tests.values()] if report else []
    metadata = ModelCardData(
        language=_languages(corpus),
        license=license_name or "unknown",
        library_name="transformers",
        pipeline_tag="translation",
        model_name=run.name,
        eval_results=(report and list(_results(report, tests))) or None,
    )
    return render(
        "card.md",
        run=run,
        metadata=metadata.to_yaml(),
        corpus=corpus,
        decoding=run.config.decoding,
        report=report,
        tests=tests,
        metrics=METRICS,
        lower_is_better=LOWER_IS_BETTER,
        tokens_beside_ratio=TOKENS_BESIDE_RATIO,
        max_length=MAX_LENGTH,
        license_name=license_name,
        destinations=describe_destinations(run.config),
        licences=licences,
        direction=run.config.corpus.tagging.default and direction_of(run.config.corpus.tagging.default),
        transformers_code=transformers_code,
    )


def licence_of(folder: Path) -> str | None:
    """Licence in the metadata of README.md, such as `cc-by-nc-4.0`; None if the folder has no such file or key.

    Raises InputError if the file cannot be read.
    """
    path = folder / "README.md"
    if not path.exists():
        return None
    with reading(path):
        text = read_regular(path, _MAX_CARD_BYTES).decode("utf-8-sig", "replace").replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return None
    try:
        data = vars(ModelCard(text, ignore_metadata_errors=True).data)
    except (yaml.YAMLError, ValueError, RecursionError):  # Damaged metadata.
        return None
    licence = data.get("license")
    licence = data.get("license_name", licence) if licence == "other" else licence
    names = licence if isinstance(licence, list) else [licence]
    return ", ".join(name[:_MAX_LICENCE] for name in names if isinstance(name, str) and name) or None


def render(template: str, **values: object) -> str:
    loader = PackageLoader("mt_cli.exchange", "")
    environment = Environment(loader=loader, trim_blocks=True, undefined=StrictUndefined, keep_trailing_newline=True)
    return environment.get_template(template).render(values)


def _languages(corpus: CorpusConfig) -> list[str]:
    """Codes of all languages without script and region, because the hub takes no capitals there."""
    codes = {*corpus.languages, *corpus.tagging.targets}
    codes.update(*(part.languages or () for part in corpus.train))
    codes.update(*(direction_of(tag) or () for tag in corpus.tags))
    # Names in other tags, such as `<2formal>`, are no codes.
    return sorted({str(tag.language) for code in codes if LANGUAGE_CODE.fullmatch(code) and (tag := parsed(code))})


def _results(report: Report, tests: list[SplitScores]) -> Iterator[EvalResult]:
    for test in tests:
        corpus = ", ".join(part.name for part in report.corpora if part.corpus == test.split) or test.split
        for key, score in test.scores.items():
            yield EvalResult(
                task_type="translation",
                dataset_type=corpus,
                dataset_name=corpus,
                dataset_split=test.split,
                metric_type=key.rstrip("+"),  # The hub calls chrF++ `chrf`, too.
                metric_name=METRICS[key],
                metric_value=round(score.score, 2),
                metric_args={"signature": score.signature},
            )
