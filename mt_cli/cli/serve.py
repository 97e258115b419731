"""The command `serve`."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path
from typing import Annotated

from mt_cli.cli import options
from mt_cli.cli.options import File, file_option, flag, option
from mt_cli.cli.streams import check_output
from mt_cli.errors import InputError
from mt_cli.runtime.console import say, show_progress

_network, _limits = partial(option, "Network"), partial(option, "Limits")


def serve(
    run: Annotated[
        list[Path] | None,
        option(options.MODEL, "DIR", "Run directory; can be repeated.", options.NEWEST_RUN, "--run", callback=None),
    ] = None,
    engine: options.EngineOption = "mt",
    checkpoint: options.CheckpointOption = None,
    host: Annotated[str, _network("ADDRESS", "Address to listen at; 0.0.0.0 serves other machines.")] = "127.0.0.1",
    port: Annotated[int, _network("N", "Port; 0 chooses a free one.", min=0, max=65535)] = 5000,
    keys: Annotated[File, file_option("Network", "Keys that clients need, one on each line.", "no key needed")] = None,
    cors: Annotated[
        list[str] | None, _network("ORIGIN", "Site whose pages may use the server; can be repeated.", "none", "--cors")
    ] = None,
    allow_host: Annotated[
        list[str] | None, _network("NAME", "Name of the server that requests may use; can be repeated.", False)
    ] = None,
    max_requests: Annotated[int, _limits("N", "Requests that are worked on or wait.", min=1, max=2000)] = 128,
    max_characters: Annotated[int, _limits("N", "Characters of a request.", min=1, max=1_000_000)] = 20_000,
    max_file_mb: Annotated[int, _limits("N", "Size of a file, in MiB.", min=1, max=32)] = 32,
    timeout: Annotated[
        float, _limits("SECONDS", "Time for a request; files have 15 times as much.", min=1.0, max=86_400.0)
    ] = 60.0,
    requests_per_minute: Annotated[int | None, _limits("N", "Of one key or address.", "no limit", min=1)] = None,
    corrections: Annotated[
        File,
        file_option(options.OUTPUT, "File for corrections of translations, which people can then save.", False),
    ] = None,
    terms: options.TermsOption = None,
    beam_size: options.BeamSizeOption = None,
    length_penalty: options.LengthPenaltyOption = None,
    overrides: options.SetDecodingOption = None,
    log_requests: Annotated[
        bool, flag(options.OUTPUT, "--log-requests", "Print a line for each, without text.")
    ] = False,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "auto",
    threads: options.ThreadsOption = None,
) -> None:
    """Serve runs to browsers and to programs for LibreTranslate.

    Several runs are served at once, chosen by language.

    Examples:
        mt serve
        mt serve --run runs/en_de --run runs/de_en --host 0.0.0.0 --keys keys.txt
        mt serve --run served --engine ctranslate2 --port 8080

    More: docs/serving.md
    """
    try:
        from mt_cli.serving.server import serve as serve_models
    except ImportError as error:
        packages = ("prometheus_client", "python_multipart", "starlette", "uvicorn")
        if (error.name or "").partition(".")[0] not in packages:
            raise
        raise InputError(f"{error.name} is not installed; pip install 'mt-cli[serve]'") from None
    from mt_cli.config.loading import changed_section
    from mt_cli.corpus.corrections import check_corrections_file
    from mt_cli.serving.access import Keys, Rates, allowed_hosts, check_origins
    from mt_cli.serving.models import Models
    from mt_cli.serving.service import Limits, Service

    names, origins, known_keys = allowed_hosts(host, allow_host or ()), check_origins(cors or ()), Keys.read(keys)
    search = options.search_options(overrides, beam_size=beam_size, length_penalty=length_penalty)
    paths, hardware = options.run_paths(run), {"device": device, "precision": precision, "num_threads": threads}
    limits = Limits(
        max_characters=max_characters,
        max_file_bytes=max_file_mb * 2**20,
        max_requests=max_requests,
        text_seconds=timeout,
        file_seconds=15 * timeout,
    )
    show_progress("none")
    if corrections is not None:
        check_output(corrections)
        check_corrections_file(corrections)

    def load() -> Service:
        rates, models = Rates(requests_per_minute), Models.load(paths, engine, checkpoint, **hardware)
        options.note_little_learned(paths, engine)
        gc.freeze()  # See `load_translator`; the request that is answered then would wait.
        for model in models.models:
            changed_section(model.translator.decoding, search)  # Unknown options are refused before requests come.
        glossaries = models.read_glossaries(terms or ())
        for note in (note for glossary in glossaries.values() for note in glossary.notes):
            say(f"note: {note}")
        access = known_keys, rates, names, origins
        return Service(models, limits, *access, search, glossaries, corrections, log_requests)

    serve_models(load, host, port)
