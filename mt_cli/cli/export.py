"""The command `export`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from mt_cli.cli import options
from mt_cli.cli.options import OUTPUT, check_choice, option, run_path
from mt_cli.errors import InputError
from mt_cli.runtime.console import say

_output = partial(option, OUTPUT, callback=None)


def export(
    output: Annotated[Path, _output("PATH", "New or empty folder; for argos, a new file FILE.argosmodel.")],
    kind: Annotated[
        str, _output("NAME", "ctranslate2, argos, huggingface or bundle.", names="--format")
    ] = "ctranslate2",
    quantization: Annotated[
        str | None, _output("NAME", "Of ctranslate2 and argos: float32, int8, bfloat16, ...", "float32")
    ] = None,
    license_name: Annotated[
        str | None, _output("ID", "Of huggingface and argos: licence in the card, such as mit.", names="--license")
    ] = None,
    package_version: Annotated[str | None, _output("VERSION", "Of argos: version of the package.", "1.0")] = None,
    source: Annotated[
        str | None, _output("CODE", "Of argos: source language, of a model for several directions.", names="--from")
    ] = None,
    to: Annotated[
        str | None,
        _output("CODE", "Of argos: target language or tag, of a model for several directions.", names="--to"),
    ] = None,
    run: options.RunOption = None,
) -> None:
    """Export a model for other programs.

    CTranslate2 and transformers run the model; Argos Translate and LibreTranslate install it as a package; a bundle is
    a description that mt import reads.

    Examples:
        mt export --run runs/my_run --output served --quantization int8
        mt export --format argos --output en_it.argosmodel --license cc-by-4.0
        mt export --format huggingface --output hub --license cc-by-4.0

    More: docs/export.md
    """
    check_choice("--format", kind, "ctranslate2", "argos", "huggingface", "bundle")
    of_argos = {"--package-version": package_version, "--from": source, "--to": to}
    for formats, values in {
        ("ctranslate2", "argos"): {"--quantization": quantization},
        ("huggingface", "argos"): {"--license": license_name},
        ("argos",): of_argos,
    }.items():
        if kind not in formats and (given := [name for name, value in values.items() if value is not None]):
            raise InputError(f"{given[0]} is for --format {' and '.join(formats)}")
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.checkpoint.state import licences_of
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.exchange.bundle import export_bundle
    from mt_cli.exchange.comparison import sample_sentences
    from mt_cli.exchange.ctranslate2 import export_ctranslate2
    from mt_cli.exchange.destinations import check_destination, note_on_protection

    path = run_path(run)
    config = RunDirectory(path).config()
    check_destination(config, kind)
    if note := note_on_protection(config, kind):
        say(f"note: {note}")
    loaded = TrainedRun.load(path)
    licences = licences_of(loaded.state.parents)
    for origin, licence in licences.items():
        say(f"note: training began with {origin}, whose licence ({licence}) applies to the export, too")
    if kind == "bundle":
        export_bundle(loaded, output)
        return say(f"{output}: weights, tokenizers and a description of the model")
    sentences, number_format = sample_sentences(path), quantization or "float32"
    if kind == "huggingface":
        from mt_cli.evaluation.results import RunSummary
        from mt_cli.exchange.card import model_card
        from mt_cli.exchange.huggingface import export_huggingface

        agreement = export_huggingface(
            loaded, output, sentences, model_card(RunSummary.read(path), license_name, licences)
        )
        usage = f"Use it with transformers; {output}/README.md says how"
    elif kind == "argos":
        from mt_cli.evaluation.results import RunSummary
        from mt_cli.exchange.argos import INSTALL, Package, choose_direction, export_argos

        direction = choose_direction(loaded.config.corpus, source, to)
        of_parents = ", ".join(dict.fromkeys(licences.values())) or None
        package = Package(direction, package_version or "1.0", license_name or of_parents)
        agreement = export_argos(loaded, RunSummary.read(path), output, package, number_format, sentences)
        usage = "Install it:  " + INSTALL.format(path=output)
    else:
        agreement = export_ctranslate2(loaded, output, number_format, sentences)
        usage = f'Use it:  mt translate --engine ctranslate2 --run {output} "..."'
    return say(f"{output}: {agreement.describe(number_format)}\n{usage}")
