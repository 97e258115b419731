"""The command line: parse, call, print. Results go to standard output, everything else to standard error.

Commands import heavy modules inside their functions, so that `mt --help` is fast.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer import Argument, Option

from mt_cli.cli import beginning, looking, options, translation
from mt_cli.cli.options import (
    RUNS,
    check_arguments,
    check_choice,
    check_new_run,
    check_no_files,
    load_config,
    refuse_launcher,
    run_path,
    run_paths,
    together,
    utf8,
)
from mt_cli.cli.streams import check_output, open_standard_streams, show
from mt_cli.console import say, show_progress
from mt_cli.cpus import spin_less_if_busy
from mt_cli.errors import InputError, MtError, reason
from mt_cli.storage import is_out_of_room, is_wrong_path

if TYPE_CHECKING:
    from mt_cli.config.sections import Config

_UsageError: Any = typer.BadParameter.__base__
"""What Typer raises for all wrong command lines, which it has under no name of its own."""

_is_interrupted = False

app = typer.Typer(
    name="mt",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},
)
data_app = typer.Typer(help="Check and show the corpora of a config.", no_args_is_help=True)


def main() -> NoReturn:
    """Run the command line; an error that users can fix becomes one message and an exit status."""
    open_standard_streams()
    _handle_signals(_interrupt)
    try:
        check_arguments(sys.argv[1:])
        status = app(prog_name="mt", standalone_mode=False) or 0
    except MtError as error:
        _handle_signals(signal.SIG_IGN)  # A second signal would only change the exit status.
        _end(str(error), error.exit_code)
    except _UsageError as error:
        _show_usage(error)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        _end("interrupted", 130)
    except MemoryError:
        _end("out of memory", 1)
    except UnicodeEncodeError as error:  # A file name; all other texts have been checked.
        name = str(error.object)[:200]
        _end(f"{name}: cannot be written in {error.encoding}; use UTF-8 (PYTHONUTF8=1) for names", 2)
    except OSError as error:
        if not is_out_of_room(error) and not (is_wrong_path(error) and error.filename):
            raise
        _end(f"{os.fsdecode(error.filename or 'output')}: {reason(error)}", 1 if is_out_of_room(error) else 2)
    except Exception:
        if not _is_interrupted:  # A library may hide the KeyboardInterrupt, above all while modules are imported.
            raise
        _end("interrupted", 130)
    if status == 130:  # Typer turns a KeyboardInterrupt into this status.
        _end("interrupted", 130)
    sys.exit(status)


def _show_usage(error: Any) -> None:
    """Print what is wrong with a command line, and how it is used, as Typer does, but with our name."""
    text = io.StringIO()
    error.show(text)
    print(re.sub(r"^Error: ", "mt: ", text.getvalue(), flags=re.MULTILINE), end="", file=sys.stderr)


def _end(message: str, status: int) -> NoReturn:
    print(f"mt: {message}", file=sys.stderr)
    sys.exit(status)


def _interrupt(number: int, frame: object) -> NoReturn:
    global _is_interrupted
    _is_interrupted = True
    raise KeyboardInterrupt


def _handle_signals(termination: Any) -> None:
    """Set the handler of SIGTERM, restore those of SIGINT and SIGHUP, and ignore SIGUSR1, which makes training save.

    SIGHUP stays ignored where it was, as under `nohup`.
    """
    with suppress(ValueError):  # Only the main thread can set handlers.
        for number in (signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)):
            if signal.getsignal(number) == signal.SIG_DFL:  # As `mt_cli.__main__` leaves it.
                signal.signal(number, _interrupt)
        signal.signal(signal.SIGTERM, termination)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata

        show(f"mt {metadata.version('mt-cli')}")
        raise typer.Exit


@app.callback()
def _main(
    context: typer.Context,
    version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train machine translation models from parallel text, and translate with them."""
    command = context.invoked_subcommand
    if command and command not in ("train", "translate"):
        refuse_launcher(command)


@app.command()
def train(
    config: options.ConfigOption,
    overrides: options.SetOption = None,
    fresh: Annotated[bool, Option("--fresh", help="Move an existing run of this name aside and start again.")] = False,
    devices: options.DevicesOption = 1,
    progress: options.ProgressOption = "auto",
) -> None:
    """Train the model of a config in runs/NAME, or resume it.

    NAME is `name` in the config. If that run exists and is not finished, it is resumed.
    """
    if_lost = "what was saved last is kept, the same command resumes there"
    with together(devices, if_lost, check=lambda: load_config(config, overrides)):
        loaded = load_config(config, overrides)
        show_progress(progress)
        spin_less_if_busy()
        from mt_cli.experiment import run

        run.train(loaded, RUNS, fresh)


for command in (
    beginning.init,
    translation.translate,
    translation.score,
    translation.evaluate,
    translation.tune_decoding,
    looking.inspect,
    looking.report,
):
    app.command()(command)
app.command("import")(beginning.import_model)


@app.command()
def tokenize(
    sentences: Annotated[list[str] | None, Argument(help="Sentences to tokenize.", callback=utf8)] = None,
    config: Annotated[Path | None, Option(help="Print sizes and unknown tokens of its tokenizers.")] = None,
    overrides: options.SetOption = None,
    run: options.RunOption = None,
    side: Annotated[str, Option(help="source or target.")] = "source",
    ids: Annotated[bool, Option("--ids", help="Print ids instead of tokens.")] = False,
    progress: options.ProgressOption = "auto",
) -> None:
    """Show tokens of sentences, or statistics of tokenizers."""
    show_progress(progress)
    check_choice("--side", side, "source", "target")
    if config is not None:
        if sentences or run:
            raise InputError("--config reports on a config's tokenizers; use it without sentences and without --run")
        return show(*_tokenizer_report(load_config(config, overrides)))
    if not sentences:
        raise InputError("give sentences to tokenize, or --config FILE to train tokenizers and report on them")
    check_no_files(sentences, "give the sentences themselves")
    from mt_cli.checkpoint.directory import RunDirectory

    directory = RunDirectory(run_path(run))
    tokenizer = directory.tokenizers(directory.config())[0 if side == "source" else 1]
    show(*(" ".join(map(str, tokenizer.encode([each])[0]) if ids else tokenizer.pieces(each)) for each in sentences))
    return None


def _tokenizer_report(config: Config) -> Iterator[str]:
    from mt_cli.experiment.parent import prepare_new

    config, data, _ = prepare_new(config, RUNS / ".cache")
    shared = ", one for both languages" if config.tokenizer.shared else ""
    trained_on = f"{len(data.corpora['train']):,} pairs" if "train" in data.corpora else "the beginning of the stream"
    yield f"{config.name}: {config.tokenizer.algorithm}{shared}, trained on {trained_on}"
    yield f"{'side':<8}{'entries':>10}{'corpus':>20}{'unknown':>10}{'tokens a sentence':>20}"
    for side, tokenizer in zip(("source", "target"), data.tokenizers, strict=True):
        for name, statistics in data.statistics.items():
            counts = getattr(statistics, side)
            shares = f"{counts.unknown_share:>10.2%}{counts.tokens_per_sentence:>20.1f}"
            yield f"{side:<8}{tokenizer.vocab_size:>10,}{name:>20}{shares}"


@app.command()
def export(
    output: Annotated[Path, Option(help="New or empty folder.")],
    run: options.RunOption = None,
    kind: Annotated[str, Option("--format", help="ctranslate2, huggingface or bundle.")] = "ctranslate2",
    quantization: Annotated[str | None, Option(help="float32, int8, bfloat16, ... for ctranslate2.")] = None,
    license_name: Annotated[
        str | None, Option("--license", metavar="ID", help="Licence in the model card of huggingface: cc-by-4.0, ...")
    ] = None,
) -> None:
    """Export a model to CTranslate2, transformers or a bundle."""
    check_choice("--format", kind, "ctranslate2", "huggingface", "bundle")
    if kind != "ctranslate2" and quantization:
        raise InputError("--quantization is for --format ctranslate2; other formats hold fp32 weights")
    if kind != "huggingface" and license_name:
        raise InputError("--license is for --format huggingface")
    spin_less_if_busy()
    from mt_cli.checkpoint.trained import TrainedRun
    from mt_cli.export import models

    path = run_path(run)
    loaded = TrainedRun.load(path)
    if kind == "bundle":
        models.export_bundle(loaded, output)
        return say(f"{output}: weights, tokenizers and a description of the model")
    sentences = models.sample_sentences(path)
    if kind == "huggingface":
        from mt_cli.export.huggingface import export_huggingface
        from mt_cli.report.card import model_card
        from mt_cli.report.reading import RunFiles

        agreement = export_huggingface(loaded, output, sentences, model_card(RunFiles.read(path), license_name))
        usage = f"Use it with transformers; {output}/README.md says how"
    else:
        agreement = models.export_ctranslate2(loaded, output, quantization or "float32", sentences)
        usage = f'Use it:  mt translate --engine ctranslate2 --run {output} "..."'
    return say(
        f"{output}: {agreement.num_equal} of {agreement.num_sentences} sentences are translated as by mt (greedy); "
        f"log-probabilities differ by {agreement.difference:.1e} nats per token\n{usage}"
    )


@app.command()
def average(
    runs: options.RunsOption = None,
    last: Annotated[int | None, Option(min=2, help="Average this number of the last validated checkpoints.")] = None,
    best: Annotated[int | None, Option(min=2, help="Average this number of the best validated checkpoints.")] = None,
    output: Annotated[
        Path | None, Option(metavar="DIR", callback=utf8, help="New run directory for the mean of several runs.")
    ] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Average checkpoints of a run, or several runs.

    The mean of checkpoints becomes the best one if it is better on the validation set. The one before it stays as
    --checkpoint before_average. The mean of runs, which must come from one parent, is a new run. So is a run with
    adapters alone, which are merged.
    """
    show_progress(progress)
    paths = run_paths(runs)
    if len(paths) == 1 and output is None:
        spin_less_if_busy()
        from mt_cli.experiment.averages import average_run

        return show(*average_run(paths[0], last, best))
    if output is None or last is not None or best is not None:
        raise InputError("for a mean of runs, give --output DIR, without --last and --best")
    check_new_run(output)
    from mt_cli.experiment.lineage import average_runs

    say("\n".join(average_runs(paths, output)))
    return show(str(output))


app.add_typer(data_app, name="data")


@data_app.command("check")
def data_check(
    config: options.ConfigOption,
    overrides: options.SetOption = None,
    as_json: options.JsonOption = False,
    clean: Annotated[Path | None, Option("--write-clean", help="New TSV file for the pairs that are kept.")] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Report kept and dropped pairs, tokens and suspicious pairs."""
    show_progress(progress)
    loaded = load_config(config, overrides)
    if clean is not None and os.path.lexists(clean):
        raise InputError(f"{clean}: exists already; give the clean pairs a new name")
    check_output(clean)
    from mt_cli.experiment.examination import examine, format_examination, write_clean
    from mt_cli.experiment.parent import prepare_new

    loaded, data, _ = prepare_new(loaded, RUNS / ".cache", stream_rows=loaded.corpus.shuffle_buffer)
    report = examine(data, loaded)
    show(*([json.dumps(report, ensure_ascii=False)] if as_json else format_examination(report)))
    if clean is not None:
        say(f"{write_clean(data, loaded, clean):,} pairs written to {clean}")
    if data.problems:
        raise InputError("the corpora have problems, see above; check these lines before training on them")


@data_app.command("show")
def data_show(
    config: options.ConfigOption,
    overrides: options.SetOption = None,
    number: Annotated[int, Option("-n", "--number", min=1, help="Number of pairs.")] = 5,
    dropped: Annotated[
        str | None, Option(metavar="FILTER", help="Show dropped pairs: a filter, such as duplicates, or any.")
    ] = None,
    split: Annotated[str, Option(help="Corpus: train, valid, test, or one of extra_tests.")] = "train",
) -> None:
    """Show pairs as the model reads them, or dropped pairs."""
    loaded = load_config(config, overrides)
    from mt_cli.experiment.examination import shown_pairs
    from mt_cli.experiment.parent import prepare_new

    loaded, data, _ = prepare_new(loaded, RUNS / ".cache", stream_rows=loaded.corpus.shuffle_buffer)
    lines = shown_pairs(data, split, number, dropped)
    show(*lines) if lines else say(f"no pairs of {split} were dropped{'' if dropped == 'any' else f' by {dropped}'}")


@app.command()
def doctor() -> None:
    """Check versions, devices, precision support and disk space."""
    from mt_cli import doctor as examination

    findings = examination.examine(Path.cwd())
    show(*(f"{each.kind:<4} {each.subject:<12} {each.text}" for each in findings))
    if any(finding.kind == "BAD" for finding in findings):
        raise typer.Exit(1)
