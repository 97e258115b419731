"""The command line: parse, call, print. Results go to standard output, everything else to standard error.

Heavy imports stand inside the commands, so that `mt --help` answers at once.
"""

from __future__ import annotations

import errno
import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mt_cli.cli import looking, translation
from mt_cli.cli.options import (
    RUNS,
    ConfigOption,
    JsonOption,
    ProgressOption,
    RunOption,
    SetOption,
    check_no_files,
    load_config,
    run_path,
    set_progress,
    utf8,
)
from mt_cli.cli.streams import open_standard_streams, show
from mt_cli.cpus import spin_less_if_busy
from mt_cli.errors import InputError, MtError, reason

if TYPE_CHECKING:
    from mt_cli.config.sections import Config

app = typer.Typer(
    name="mt",
    help="Train machine translation models from parallel text, and translate with them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},
)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib import metadata

        show(f"mt {metadata.version('mt-cli')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train machine translation models from parallel text, and translate with them."""


def main() -> NoReturn:
    """Run the command line, and turn what a user can mend into one message and an exit status."""
    open_standard_streams()
    _handle_signals(signal.default_int_handler)
    try:
        app()
    except MtError as error:
        _handle_signals(signal.SIG_IGN)  # A second one would only change the exit status.
        print(f"mt: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("mt: interrupted", file=sys.stderr)
        sys.exit(130)
    except MemoryError:
        print("mt: out of memory", file=sys.stderr)
        sys.exit(1)
    except UnicodeEncodeError as error:  # All texts have been checked; what is left are names of files.
        name = str(error.object)[:200]
        print(f"mt: {name}: cannot be written in {error.encoding}; use UTF-8 (PYTHONUTF8=1) for names", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        if error.errno not in _OUT_OF_ROOM:
            raise
        print(f"mt: {error.filename or 'output'}: {reason(error)}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _handle_signals(termination: Any) -> None:
    """Have SIGTERM handled like this, SIGINT as ever, and SIGUSR1, which asks training to save, do nothing."""
    with suppress(ValueError):  # Not the main thread: signals stay as they are.
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:  # As `mt_cli.__main__` leaves it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, termination)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)


_OUT_OF_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EROFS, getattr(errno, "EDQUOT", errno.ENOSPC))


@app.command()
def train(
    config: ConfigOption,
    overrides: SetOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Move an older run of this name aside; begin again.")] = False,
    progress: ProgressOption = "auto",
) -> None:
    """Train the run of a config into runs/NAME; the same command again goes on with an unfinished run."""
    loaded = load_config(config, overrides)
    set_progress(progress)
    spin_less_if_busy()
    from mt_cli.experiment import run

    run.train(loaded, RUNS, fresh)


for command in (translation.translate, translation.score, translation.evaluate, looking.inspect, looking.report):
    app.command()(command)


@app.command()
def tokenize(
    sentences: Annotated[
        list[str] | None, typer.Argument(help="Sentences to cut.", show_default=False, callback=utf8)
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Train and report on this config's tokenizers.")
    ] = None,
    overrides: SetOption = None,
    run: RunOption = None,
    side: Annotated[str, typer.Option("--side", help="source or target.")] = "source",
    ids: Annotated[bool, typer.Option("--ids", help="Print ids instead of tokens.")] = False,
    progress: ProgressOption = "auto",
) -> None:
    """Show the tokens a trained run cuts sentences into, or report on the tokenizers of a config."""
    set_progress(progress)
    if side not in ("source", "target"):
        raise InputError(f"--side {side}: use source or target")
    if config is not None:
        if sentences or run:
            raise InputError("--config reports on a config's tokenizers; it goes without sentences and --run")
        return _report_on_tokenizers(load_config(config, overrides))
    if not sentences:
        raise InputError("give sentences to cut, or --config FILE to train tokenizers and report on them")
    check_no_files(sentences, "give the sentences themselves")
    from mt_cli.checkpoint.directory import RunDirectory

    directory = RunDirectory(run_path(run))
    tokenizer = directory.tokenizers(directory.config())[0 if side == "source" else 1]
    show(*(" ".join(map(str, tokenizer.encode([each])[0]) if ids else tokenizer.pieces(each)) for each in sentences))
    return None


@app.command()
def export(
    output: Annotated[Path, typer.Option("--output", help="A new folder, or an empty one.", show_default=False)],
    run: RunOption = None,
    kind: Annotated[str, typer.Option("--format", help="ctranslate2 or bundle.")] = "ctranslate2",
    quantization: Annotated[
        str | None, typer.Option("--quantization", help="Number format of the weights: float32, int8, bfloat16, ...")
    ] = None,
) -> None:
    """Write a model that another engine serves, and check it against our own output."""
    if kind not in ("ctranslate2", "bundle"):
        raise InputError(f"--format {kind}: use ctranslate2 or bundle")
    if kind == "bundle" and quantization:
        raise InputError("--quantization is for --format ctranslate2; a bundle holds fp32 weights")
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.export import models

    path = run_path(run)
    loaded = TrainedRun.load(path)
    if kind == "bundle":
        models.export_bundle(loaded, output)
        print(f"{output}: weights, tokenizers and a description of the model", file=sys.stderr)
        return
    agreement = models.export_ctranslate2(loaded, output, quantization or "float32", models.sample_sentences(path))
    print(
        f"{output}: {agreement.num_equal} of {agreement.num_sentences} sentences are translated as by mt (greedy); "
        f"log-probabilities differ by {agreement.difference:.1e} nats a token\n"
        f'Use it:  mt translate --engine ctranslate2 --run {output} "..."',
        file=sys.stderr,
    )


data_app = typer.Typer(help="Look at a config's corpora before training on them.", no_args_is_help=True)
app.add_typer(data_app, name="data")


@data_app.command("check")
def data_check(
    config: ConfigOption,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    clean: Annotated[
        Path | None, typer.Option("--write-clean", help="Write the pairs that are trained on to a new TSV file.")
    ] = None,
    progress: ProgressOption = "auto",
) -> None:
    """Report what is kept and dropped and why, tokens, lengths, coverage, and the most suspicious pairs."""
    set_progress(progress)
    loaded = load_config(config, overrides)
    if clean is not None and clean.exists():
        raise InputError(f"{clean}: is there already; give the clean pairs a new name")
    from mt_cli.experiment.data import prepare
    from mt_cli.experiment.examination import examine, format_examination, write_clean

    data = prepare(loaded, RUNS / ".cache", stream_rows=loaded.corpus.shuffle_buffer)
    report = examine(data, loaded)
    show(*([json.dumps(report, ensure_ascii=False)] if as_json else format_examination(report)))
    if clean is not None:
        print(f"{write_clean(data, loaded, clean):,} pairs written to {clean}", file=sys.stderr)
    if data.problems:
        raise InputError("the corpora have problems, see above; look at these lines before training on them")


@data_app.command("show")
def data_show(
    config: ConfigOption,
    overrides: SetOption = None,
    number: Annotated[int, typer.Option("-n", "--number", min=1, help="How many pairs.")] = 5,
    dropped: Annotated[
        str | None, typer.Option("--dropped", metavar="REASON", help="Pairs that were dropped; `any` for all reasons.")
    ] = None,
    split: Annotated[str, typer.Option("--split", help="train, valid, test, or one of extra_tests.")] = "train",
) -> None:
    """Show pairs as the model will see them, or pairs that were dropped."""
    loaded = load_config(config, overrides)
    from mt_cli.experiment.data import prepare
    from mt_cli.experiment.examination import shown_pairs

    data = prepare(loaded, RUNS / ".cache", stream_rows=loaded.corpus.shuffle_buffer)
    show(*shown_pairs(data, split, number, dropped))


@app.command()
def doctor() -> None:
    """Show versions, devices, precision support and disk space, and what is wrong with them."""
    from mt_cli import doctor as examination

    findings = examination.examine(Path.cwd())
    show(*(f"{'ok  ' if each.is_good else 'BAD '} {each.subject:<12} {each.text}" for each in findings))
    if not all(finding.is_good for finding in findings):
        raise typer.Exit(1)


def _report_on_tokenizers(config: Config) -> None:
    from mt_cli.experiment.data import prepare

    data = prepare(config, RUNS / ".cache")
    shared = ", one for both languages" if config.tokenizer.shared else ""
    trained_on = f"{len(data.corpora['train']):,} pairs" if "train" in data.corpora else "the beginning of the stream"
    lines = [
        f"{config.name}: {config.tokenizer.algorithm}{shared}, trained on {trained_on}",
        f"{'side':<8}{'entries':>10}{'corpus':>20}{'unknown':>10}{'tokens a sentence':>20}",
    ]
    for side, tokenizer in zip(("source", "target"), data.tokenizers, strict=True):
        for name, statistics in data.statistics.items():
            counts = statistics.source if side == "source" else statistics.target
            unknown = counts.num_unknown / max(1, counts.num_tokens)
            per_sentence = counts.num_tokens / sum(counts.length_counts)
            lines.append(f"{side:<8}{tokenizer.vocab_size:>10,}{name:>20}{unknown:>10.2%}{per_sentence:>20.1f}")
    show(*lines)


if __name__ == "__main__":
    main()
