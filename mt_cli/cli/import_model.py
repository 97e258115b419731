"""The command `import`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from mt_cli.cli.options import MODEL, OUTPUT, argument, check_languages, check_new_run, flag, option
from mt_cli.cli.streams import show
from mt_cli.machine.console import say

_model = partial(option, MODEL)


def import_model(
    model: Annotated[str, argument("MODEL", "Folder of a Marian model or a bundle, or a hub id.")],
    output: Annotated[Path, option(OUTPUT, "DIR", "New run directory, such as runs/opus-en-it.")],
    source_language: Annotated[str | None, _model("CODE", "Source language.", "by the model")] = None,
    target_language: Annotated[str | None, _model("CODE", "Target language.", "by the model")] = None,
    revision: Annotated[str | None, _model("NAME", "Branch, tag or commit of a hub id.", "main")] = None,
    allow_pickle: Annotated[bool, flag(MODEL, "--allow-pickle", "Read weights from pytorch_model.bin.")] = False,
) -> None:
    """Make a run of a published model.

    Reads folders of Hugging Face transformers (MarianMT), such as those of OPUS-MT, and exports of mt.

    Examples:
        mt import Helsinki-NLP/opus-mt-en-it --output runs/opus-en-it
        mt import exported/ --output runs/again

    More: docs/fine_tuning.md
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
