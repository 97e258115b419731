"""The model card of a trained run: README.md of a folder for the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator

from huggingface_hub import EvalResult, ModelCardData

from mt_cli.config.directions import Tagging
from mt_cli.config.sections import Config
from mt_cli.decoding.next_tokens import TOKENS_BESIDE_RATIO
from mt_cli.evaluation.texts import LOWER_IS_BETTER, METRICS
from mt_cli.features.exchange.huggingface import MAX_LENGTH
from mt_cli.reporting.report import Report, RunSummary


def model_card(run: RunSummary, license_name: str | None) -> str:
    """Markdown with the metadata that the hub reads, scores included; it has no paths of this machine.

    `license_name` is an identifier of the hub, such as `cc-by-4.0`; without one, the card says that it is to be chosen.
    """
    corpus = run.config.corpus
    metadata = ModelCardData(
        language=sorted({corpus.source, corpus.target}),
        license=license_name or "unknown",
        library_name="transformers",
        pipeline_tag="translation",
        model_name=run.name,
        eval_results=(run.report and list(_results(run.report))) or None,
    )
    return f"---\n{metadata.to_yaml()}\n---\n\n" + "\n".join(_lines(run, license_name)) + "\n"


def _results(report: Report) -> Iterator[EvalResult]:
    """The scores as the hub shows them beside a model."""
    for split in (report, *report.extra_tests.values()):
        corpus = ", ".join(part.name for part in report.corpora if part.corpus == split.split) or split.split
        for key, score in split.scores.items():
            yield EvalResult(
                task_type="translation",
                dataset_type=corpus,
                dataset_name=corpus,
                dataset_split=split.split,
                metric_type=key.rstrip("+"),  # The hub's name of chrF++, too, is `chrf`.
                metric_name=METRICS[key],
                metric_value=round(score.score, 2),
                metric_args={"signature": score.signature},
            )


def _lines(run: RunSummary, license_name: str | None) -> Iterator[str]:
    corpus, report = run.config.corpus, run.report
    yield f"# {run.name}"
    yield ""
    yield f"Translates from `{corpus.source}` to `{corpus.target}`. Trained with `mt` and converted by `mt export`."
    yield ""
    yield "## Use"
    yield ""
    yield "```python"
    yield "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer"
    yield ""
    yield 'folder = "."  # or the id on the hub'
    yield "tokenizer = AutoTokenizer.from_pretrained(folder)"
    yield "model = AutoModelForSeq2SeqLM.from_pretrained(folder)"
    yield 'batch = tokenizer(["..."], return_tensors="pt", padding=True)'
    yield 'output = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])'
    yield "print(tokenizer.batch_decode(output, skip_special_tokens=True))"
    yield "```"
    if corpus.tags:
        yield ""
        yield _tags(corpus.tagging)
    yield from _search(run.config)
    yield ""
    yield "## Training"
    yield ""
    if report is None:
        yield "There is no report of its training."
    else:
        tokens = f"{report.num_target_tokens:,} target tokens"
        yield f"{report.num_parameters:,} parameters, {report.num_steps:,} updates, {tokens}."
        for parent in report.parents:
            source, target = parent.languages
            yield f"Training began with the weights of {parent.run} (`{source}` to `{target}`)."
        yield ""
        yield "| corpus | part | pairs |"
        yield "|---|---|---|"
        for part in report.corpora:
            yield f"| {part.corpus} | {part.name} | {part.num_kept or 0:,} |"
        yield from _scores(report)
    yield ""
    yield "## Licence"
    yield ""
    yield license_name or "Not chosen yet: it depends on the corpora and on the model that training began with."


def _tags(tagging: Tagging) -> str:
    listed = ", ".join(f"`{tag}`" for tag in tagging.tags)
    text = f"A source {'begins' if tagging.is_required else 'may begin'} with a tag: {listed}."
    if tagging.default:
        text += f" `mt translate` puts `{tagging.default}` before one that has none; other programs do not."
    return text


def _search(config: Config) -> Iterator[str]:
    """How the search of `generate` differs from that of `mt`, which made the translations that the scores are of."""
    decoding = config.decoding
    longest = f"{decoding.max_length_ratio:g} times the tokens of the source plus {TOKENS_BESIDE_RATIO}"
    if decoding.max_length is not None:
        longest += f", and at most {decoding.max_length:,}"
    yield ""
    yield "## Search"
    yield ""
    yield (
        "The scores below are those of translations by `mt`. `generate` searches in a similar way: with as many beams, "
        f"{decoding.beam_size}, and to the same end (`early_stopping=False`). It differs in these points:"
    )
    yield ""
    yield (
        f"- Length penalty, {decoding.length_penalty:g} for both. A hypothesis of n tokens, its end counted, has its "
        "log-probability divided by ((5 + n) / 6)^penalty in `mt` (Wu et al. 2016, equation 14), and by n^penalty in "
        "`generate` (`length_penalty`), which favours long translations more. Without a penalty (0), or with one beam, "
        "there is no difference."
    )
    if decoding.length_penalties:
        listed = ", ".join(f"{penalty:g} with `{tag}`" for tag, penalty in decoding.length_penalties.items())
        yield f"- Length penalties by tag. `mt` has {listed}; `generate` has one for all."
    yield (
        f"- Maximum length. `mt` stops at {longest}; `generate` at {MAX_LENGTH} tokens for any source, the first one "
        "counted (`max_length`)."
    )
    yield (
        "- Long sources. `mt` splits lines that are longer than any training sentence into segments; `generate` "
        "translates any source as a whole."
    )
    for name in ("min_length", "no_repeat_ngram", "sample"):
        if value := getattr(decoding, name):
            yield f"- Only `mt` has `{name}: {value}` here."


def _scores(report: Report) -> Iterator[str]:
    yield ""
    yield "## Scores"
    yield ""
    yield "| test set | metric | score | signature |"
    yield "|---|---|---|---|"
    for split in (report, *report.extra_tests.values()):
        title = "valid (no test set: it also chose the checkpoint)" if split.split == "valid" else split.split
        for key, score in split.scores.items():
            metric = f"{METRICS[key]} (lower is better)" if key in LOWER_IS_BETTER else METRICS[key]
            yield f"| {title} | {metric} | {score.score:.2f} | `{score.signature}` |"
