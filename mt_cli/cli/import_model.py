"""The command `import`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from mt_cli.cli.options import MODEL, OUTPUT, argument, check_languages, check_new_run, flag, option
from mt_cli.cli.streams import show
from mt_cli.errors import InputError
from mt_cli.runtime.console import say

_model = partial(option, MODEL)


def import_model(
    model: Annotated[str, argument("MODEL", "Folder of a Marian, M2M100 or NLLB model or a bundle, or a hub id.")],
    output: Annotated[Path, option(OUTPUT, "DIR", "New run directory, such as runs/opus-en-it.")],
    source_language: Annotated[str | None, _model("CODE", "Source language.", "by the model")] = None,
    target_language: Annotated[str | None, _model("CODE", "Target language.", "by the model")] = None,
    revision: Annotated[str | None, _model("NAME", "Branch, tag or commit of a hub id.", "main")] = None,
    languages: Annotated[
        str | None, _model("CODES", "Of M2M100 and NLLB: languages to keep, such as eng_Latn,fao_Latn.", "all")
    ] = None,
    vocabulary_from: Annotated[
        list[Path] | None,
        _model("FILE", "Of M2M100 and NLLB: text whose pieces are kept; can be repeated.", "all pieces", callback=None),
    ] = None,
    new_language: Annotated[
        list[str] | None,
        _model("NEW=NEAR", "Of M2M100 and NLLB: add a language that begins as a near one; can be repeated.", "none"),
    ] = None,
    allow_pickle: Annotated[bool, flag(MODEL, "--allow-pickle", "Read weights from pytorch_model.bin.")] = False,
) -> None:
    """Make a run of a published model.

    Reads folders of Hugging Face transformers (MarianMT, such as OPUS-MT; M2M100 and NLLB), and exports of mt.

    Examples:
        mt import Helsinki-NLP/opus-mt-en-it --output runs/opus-en-it
        mt import nllb --languages spa_Latn,ayr_Latn --output runs/nllb
        mt import exported/ --output runs/again

    More: docs/fine_tuning.md
    """
    check_languages(source_language, target_language)
    check_new_run(output)
    from mt_cli.checkpoint.state import licences_of
    from mt_cli.exchange import importing
    from mt_cli.exchange.m2m100 import Selection

    selection = None
    if languages is not None or vocabulary_from or new_language:
        codes = [code for part in (languages or "").split(",") if (code := part.strip())]
        added = [option.partition("=") for option in new_language or ()]
        for new, sign, near in added:
            if not (new and near):
                raise InputError(f"--new-language {new}{sign}{near}: write NEW=NEAR, such as quy_Latn=ayr_Latn")
        selection = Selection(codes, vocabulary_from or (), {new: near for new, _, near in added})
    pair = source_language, target_language
    run = importing.import_model(model, output, pair, allow_pickle, revision, selection)
    source, target = run.config.corpus.languages
    num_parameters = sum(weight.numel() for weight in run.model.parameters())
    say(f"{model}: {source} to {target}, {num_parameters:,} parameters, {run.tokenizers[1].vocab_size:,} entries")
    if (tagging := run.config.corpus.tagging).tags:
        default = f"; {tagging.default} is put before a sentence without one" if tagging.default else ""
        say(f"Sentences begin with one of {len(tagging.tags)} tags, such as {tagging.tags[0]} (--to){default}")
    for origin, licence in licences_of(run.state.parents).items():
        say(f"Licence of {origin}: {licence}; it stands in the run and in its exports")
    say(f'Translate with it:  mt translate --run {output} "..."')
    say(f"Fine-tune it:       mt train --config FILE --set init.run={output}")
    show(str(output))
