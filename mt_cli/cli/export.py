"""The commands that exchange models with other programs: `import` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from mt_cli.cli import options
from mt_cli.cli.help import add_command
from mt_cli.cli.options import check_choice, check_languages, check_new_run, run_path, utf8
from mt_cli.cli.streams import show
from mt_cli.errors import InputError
from mt_cli.machine.console import say
from mt_cli.machine.cpus import spin_less_if_busy


def add(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    add_command(
        app,
        import_model,
        "Exchange",
        "mt import Helsinki-NLP/opus-mt-en-it --output runs/opus-en-it",
        "mt import exported/ --output runs/again",
        name="import",
        page="docs/fine_tuning.md",
    )
    add_command(
        app,
        export,
        "Exchange",
        "mt export --run runs/my_run --output served --quantization int8",
        "mt export --format huggingface --output hub --license cc-by-4.0",
        page="docs/fine_tuning.md",
    )


def import_model(
    model: Annotated[
        str,
        Argument(metavar="MODEL", help="Folder of a Marian model or a bundle, or a hub id.", callback=utf8),
    ],
    output: Annotated[
        Path,
        Option(
            metavar="DIR",
            callback=utf8,
            help="New run directory, such as runs/opus-en-it.",
            rich_help_panel=options.OUTPUT,
        ),
    ],
    source_language: Annotated[
        str | None,
        Option(
            metavar="CODE",
            callback=utf8,
            help="Source language.",
            show_default="by the model",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    target_language: Annotated[
        str | None,
        Option(
            metavar="CODE",
            callback=utf8,
            help="Target language.",
            show_default="by the model",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    revision: Annotated[
        str | None,
        Option(
            metavar="NAME",
            callback=utf8,
            help="Branch, tag or commit of a hub id.",
            show_default="main",
            rich_help_panel=options.MODEL,
        ),
    ] = None,
    allow_pickle: Annotated[
        bool,
        Option("--allow-pickle", help="Read weights from pytorch_model.bin.", rich_help_panel=options.MODEL),
    ] = False,
) -> None:
    """Make a run of a published Marian model or of a bundle.

    It reads folders of Hugging Face transformers (MarianMT), such as those of OPUS-MT, Marian's own files (decoder.yml)
    and bundles of mt export.
    """
    check_languages(source_language, target_language)
    check_new_run(output)
    from mt_cli.features.exchange import importing

    run = importing.import_model(model, output, (source_language, target_language), allow_pickle, revision)
    source, target = run.config.corpus.languages
    num_parameters = sum(weight.numel() for weight in run.model.parameters())
    say(f"{model}: {source} to {target}, {num_parameters:,} parameters, {run.tokenizers[1].vocab_size:,} entries")
    if (tagging := run.config.corpus.tagging).tags:
        default = f"; {tagging.default} is put before a sentence without one" if tagging.default else ""
        say(f"Sentences begin with one of {len(tagging.tags)} tags, such as {tagging.tags[0]} (--to, --tag){default}")
    say(f'Translate with it:  mt translate --run {output} "..."')
    say(f"Fine-tune it:       mt train --config FILE --set init.run={output}")
    show(str(output))


def export(
    output: Annotated[Path, Option(metavar="DIR", help="New or empty folder.", rich_help_panel=options.OUTPUT)],
    kind: Annotated[
        str,
        Option("--format", metavar="NAME", help="ctranslate2, huggingface or bundle.", rich_help_panel=options.OUTPUT),
    ] = "ctranslate2",
    quantization: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Of ctranslate2: float32, int8, bfloat16, ...",
            show_default="float32",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    license_name: Annotated[
        str | None,
        Option(
            "--license",
            metavar="ID",
            help="Of huggingface: licence in the card, such as mit.",
            rich_help_panel=options.OUTPUT,
        ),
    ] = None,
    run: options.RunOption = None,
) -> None:
    """Export a model to CTranslate2, transformers or a bundle."""
    check_choice("--format", kind, "ctranslate2", "huggingface", "bundle")
    if kind != "ctranslate2" and quantization:
        raise InputError("--quantization is for --format ctranslate2; other formats hold fp32 weights")
    if kind != "huggingface" and license_name:
        raise InputError("--license is for --format huggingface")
    spin_less_if_busy()
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.features.exchange.agreement import sample_sentences
    from mt_cli.features.exchange.bundle import export_bundle
    from mt_cli.features.exchange.ctranslate2 import export_ctranslate2

    path = run_path(run)
    loaded = TrainedRun.load(path)
    if kind == "bundle":
        export_bundle(loaded, output)
        return say(f"{output}: weights, tokenizers and a description of the model")
    sentences = sample_sentences(path)
    if kind == "huggingface":
        from mt_cli.features.exchange.card import model_card
        from mt_cli.features.exchange.huggingface import export_huggingface
        from mt_cli.reporting.report import RunSummary

        agreement = export_huggingface(loaded, output, sentences, model_card(RunSummary.read(path), license_name))
        usage = f"Use it with transformers; {output}/README.md says how"
    else:
        agreement = export_ctranslate2(loaded, output, quantization or "float32", sentences)
        usage = f'Use it:  mt translate --engine ctranslate2 --run {output} "..."'
    return say(f"{output}: {agreement.describe(quantization or 'float32')}\n{usage}")
