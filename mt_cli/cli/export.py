"""The command `export`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from mt_cli.cli import options
from mt_cli.cli.options import OUTPUT, check_choice, option, run_path
from mt_cli.errors import InputError
from mt_cli.machine.console import say
from mt_cli.machine.cpus import spin_less_if_busy

_output = partial(option, OUTPUT, callback=None)


def export(
    output: Annotated[Path, _output("DIR", "New or empty folder.")],
    kind: Annotated[str, _output("NAME", "ctranslate2, huggingface or bundle.", names="--format")] = "ctranslate2",
    quantization: Annotated[
        str | None, _output("NAME", "Of ctranslate2: float32, int8, bfloat16, ...", "float32")
    ] = None,
    license_name: Annotated[
        str | None, _output("ID", "Of huggingface: licence in the card, such as mit.", names="--license")
    ] = None,
    run: options.RunOption = None,
) -> None:
    """Export a model for other programs.

    CTranslate2 and transformers run the model; a bundle is a description that mt import reads.

    Examples:
        mt export --run runs/my_run --output served --quantization int8
        mt export --format huggingface --output hub --license cc-by-4.0

    More: docs/export.md
    """
    check_choice("--format", kind, "ctranslate2", "huggingface", "bundle")
    if kind != "ctranslate2" and quantization:
        raise InputError("--quantization is for --format ctranslate2; other formats hold fp32 weights")
    if kind != "huggingface" and license_name:
        raise InputError("--license is for --format huggingface")
    spin_less_if_busy()
    from mt_cli.checkpoint.state import licences_of
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.features.exchange.bundle import export_bundle
    from mt_cli.features.exchange.comparison import sample_sentences
    from mt_cli.features.exchange.ctranslate2 import export_ctranslate2

    path = run_path(run)
    loaded = TrainedRun.load(path)
    licences = licences_of(loaded.state.parents)
    for origin, licence in licences.items():
        say(f"note: training began with {origin}, whose licence ({licence}) applies to the export, too")
    if kind == "bundle":
        export_bundle(loaded, output)
        return say(f"{output}: weights, tokenizers and a description of the model")
    sentences = sample_sentences(path)
    if kind == "huggingface":
        from mt_cli.features.exchange.card import model_card
        from mt_cli.features.exchange.huggingface import export_huggingface
        from mt_cli.reporting.report import RunSummary

        agreement = export_huggingface(
            loaded, output, sentences, model_card(RunSummary.read(path), license_name, licences)
        )
        usage = f"Use it with transformers; {output}/README.md says how"
    else:
        agreement = export_ctranslate2(loaded, output, quantization or "float32", sentences)
        usage = f'Use it:  mt translate --engine ctranslate2 --run {output} "..."'
    return say(f"{output}: {agreement.describe(quantization or 'float32')}\n{usage}")
