"""The command line: parse, call, print. Results go to standard output, everything else to standard error.

Heavy imports stand inside the commands, so that `mt --help` answers at once.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from mt_cli.errors import InputError, MtError

if TYPE_CHECKING:
    from mt_cli.config.sections import Config
    from mt_cli.translator import Translation, Translator

RUNS = Path("runs")

app = typer.Typer(
    name="mt",
    help="Train machine translation models from parallel text, and translate with them.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

ConfigOption = Annotated[Path, typer.Option("--config", help="The YAML file of a run.", show_default=False)]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override one option of the config; may be repeated."),
]
RunOption = Annotated[
    Path | None, typer.Option("--run", help="A run directory; by default the newest below ./runs.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 or mps.")]
PrecisionOption = Annotated[
    str, typer.Option("--precision", help="fp32, bf16, or auto: bf16 where the hardware is fast at it.")
]


def main() -> NoReturn:
    """Run the command line, and turn what a user can mend into one message and an exit status."""
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
    except OSError as error:
        if error.errno not in _OUT_OF_ROOM:
            raise
        _drop_output()
        print(f"mt: {error.filename or 'output'}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        sys.exit(1)
    sys.exit(0)


def _handle_signals(termination: Any) -> None:
    """Have SIGTERM handled like this, and let SIGUSR1, which asks training to save, do no harm elsewhere."""
    with suppress(ValueError):  # Not the main thread: signals stay as they are.
        signal.signal(signal.SIGTERM, termination)
        if hasattr(signal, "SIGUSR1"):
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)


_OUT_OF_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EROFS, getattr(errno, "EDQUOT", errno.ENOSPC))


def _drop_output() -> None:
    """Let what is still to be written to standard output go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command()
def train(
    config: ConfigOption,
    overrides: SetOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Move an older run of this name aside; begin again.")] = False,
) -> None:
    """Train the run of a config into runs/NAME; the same command again goes on with an unfinished run."""
    loaded = _load_config(config, overrides)
    from mt_cli.experiment import run

    run.train(loaded, RUNS, fresh)


@app.command()
def translate(
    sentences: Annotated[list[str] | None, typer.Argument(help="Sentences to translate.", show_default=False)] = None,
    run: RunOption = None,
    input_file: Annotated[
        Path | None, typer.Option("--input", help="A file with one sentence a line; default: standard input.")
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", help="Where the translations go; default: standard output.")
    ] = None,
    beam_size: Annotated[
        int | None, typer.Option("--beam-size", min=1, help="Hypotheses kept per sentence; 1 is greedy search.")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option("--length-penalty", min=0.0, help="0 prefers short translations, more longer ones.")
    ] = None,
    n_best: Annotated[int, typer.Option("--n-best", min=1, help="Translations per sentence, one a line.")] = 1,
    tag: Annotated[
        str | None, typer.Option("--tag", help="A tag of the config, put before every sentence, such as <2it>.")
    ] = None,
    as_json: JsonOption = False,
    attention: Annotated[
        Path | None, typer.Option("--attention", help="Draw the attention of one sentence as a picture (PNG, SVG).")
    ] = None,
    unk: Annotated[
        str | None,
        typer.Option(
            "--unk", help="Unknown words: copy the source word, keep [UNK], or avoid them.", show_default=False
        ),
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    """Translate sentences: one line in, one line out, in input order."""
    if sentences and input_file:
        raise InputError("give sentences or --input, not both")
    if attention and (not sentences or len(sentences) != 1):
        raise InputError("--attention draws one sentence; give exactly one as an argument")
    lines: Iterable[str] = sentences or _input_lines(input_file)
    translator = _load_translator(run, device, precision)
    decoding = {"beam_size": beam_size, "length_penalty": length_penalty, "unk": unk}
    blocks = _blocks(lines, size=1 if input_file is None and not sentences and sys.stdin.isatty() else 256)
    results = (item for block in blocks for item in translator.translate_fully(block, n_best, tag, **decoding))
    with _output(output_file) as write:
        for item in results:
            write(_format_translation(item, n_best, as_json))
            if item.num_parts > 1:
                print(
                    f"mt: a line of {len(item.source):,} characters is longer than this model was trained for; "
                    f"translated in {item.num_parts} parts",
                    file=sys.stderr,
                )
            if attention:
                _draw_attention(translator, item, attention)


@app.command()
def tokenize(
    sentences: Annotated[list[str] | None, typer.Argument(help="Sentences to cut.", show_default=False)] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Train and report on this config's tokenizers.")
    ] = None,
    overrides: SetOption = None,
    run: RunOption = None,
    side: Annotated[str, typer.Option("--side", help="source or target.")] = "source",
    ids: Annotated[bool, typer.Option("--ids", help="Print ids instead of tokens.")] = False,
) -> None:
    """Show the tokens a trained run cuts sentences into, or report on the tokenizers of a config."""
    if side not in ("source", "target"):
        raise InputError(f"--side {side}: use source or target")
    if config is not None:
        if sentences or run:
            raise InputError("--config reports on a config's tokenizers; it goes without sentences and --run")
        return _report_on_tokenizers(_load_config(config, overrides))
    if not sentences:
        raise InputError("give sentences to cut, or --config FILE to train tokenizers and report on them")
    from mt_cli.checkpoint.directory import RunDirectory

    directory = RunDirectory(_run_path(run))
    tokenizer = directory.tokenizers(directory.config())[0 if side == "source" else 1]
    for sentence in sentences:
        encoded = tokenizer.encode([sentence])[0]
        print(" ".join(map(str, encoded) if ids else tokenizer.pieces(sentence)))
    return None


@app.command()
def evaluate(
    run: RunOption = None,
    split: Annotated[str, typer.Option("--split", help="valid, test, or one of the config's extra_tests.")] = "test",
    source: Annotated[Path | None, typer.Option("--source", help="A file to translate, with --reference.")] = None,
    reference: Annotated[Path | None, typer.Option("--reference", help="Its translation, line by line.")] = None,
    beam_size: Annotated[int | None, typer.Option("--beam-size", min=1, help="Default: as the config says.")] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    """Score a run with BLEU, chrF and TER on detokenised text, each with its sacreBLEU signature."""
    if (source is None) != (reference is None):
        raise InputError("--source and --reference go together")
    translator = _load_translator(run, device, precision)
    from mt_cli.config.corpora import FilesSource, HeldOut
    from mt_cli.corpus.reading import corpora_of, key_of, read_corpora, read_pairs
    from mt_cli.experiment import scoring

    config = translator.config
    languages = (config.corpus.source, config.corpus.target)
    if source is not None and reference is not None:
        split = "files"
        files = FilesSource(files=(str(source), str(reference)))
        pairs = read_pairs([files], languages, "--source and --reference")
    else:
        sets = {"valid": config.corpus.valid, "test": config.corpus.test, **config.corpus.extra_tests}
        if sets.get(split) is None:
            there = ", ".join(name for name, value in sets.items() if value is not None)
            raise InputError(f"--split {split}: this run's config has no such corpus, only {there}")
        if split == "valid" and isinstance(config.corpus.valid[0], HeldOut):
            pairs = read_corpora(config.corpus, config.training.seed, RUNS / ".cache")["valid"].pairs
        else:
            pairs = read_pairs(corpora_of(config.corpus)[split], languages, key_of(split))
    scores = {"run": config.name, **scoring.evaluate(translator, pairs, split, beam_size)}
    if as_json:
        print(json.dumps(scores, ensure_ascii=False))
        return
    print(f"{config.name}: {scoring.format_scores(scores)}")


@app.command()
def export(
    output: Annotated[Path, typer.Option("--output", help="A new folder.", show_default=False)],
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
    from mt_cli import export as formats
    from mt_cli.translator import Translator

    directory = _run_path(run)
    translator = Translator.load(directory, "cpu", "fp32")
    if kind == "bundle":
        formats.export_bundle(translator, output)
        print(f"{output}: weights, tokenizers and a description of the model", file=sys.stderr)
        return
    sentences = formats.sentences_of(directory)
    agreement = formats.export_ctranslate2(translator, output, quantization or "float32", sentences)
    print(
        f"{output}: {agreement.num_equal} of {agreement.num_sentences} sentences are translated as by mt (greedy); "
        f"log-probabilities differ by {agreement.difference:.1e} nats a token",
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
) -> None:
    """Report what is kept and dropped and why, tokens, lengths, coverage, and the most suspicious pairs."""
    loaded = _load_config(config, overrides)
    if clean is not None and clean.exists():
        raise InputError(f"{clean}: is there already; give the clean pairs a new name")
    from mt_cli.experiment.data import prepare
    from mt_cli.experiment.examination import examine, format_examination, write_clean

    data = prepare(loaded, RUNS / ".cache", stream_rows=loaded.corpus.shuffle_buffer)
    report = examine(data, loaded)
    print(json.dumps(report, ensure_ascii=False) if as_json else "\n".join(format_examination(report)))
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
    loaded = _load_config(config, overrides)
    from mt_cli.experiment.data import prepare
    from mt_cli.experiment.examination import shown_pairs

    data = prepare(loaded, RUNS / ".cache", stream_rows=loaded.corpus.shuffle_buffer)
    for line in shown_pairs(data, split, number, dropped):
        print(line)


@app.command()
def doctor() -> None:
    """Show versions, devices, precision support and disk space, and what is wrong with them."""
    from mt_cli import doctor as examination

    findings = examination.examine(Path.cwd())
    for finding in findings:
        print(f"{'ok  ' if finding.is_good else 'BAD '} {finding.subject:<12} {finding.text}")
    if not all(finding.is_good for finding in findings):
        raise typer.Exit(1)


def _load_config(path: Path, overrides: list[str] | None) -> Config:
    from mt_cli.config.loading import load_config

    return load_config(path, overrides or ())


def _run_path(run: Path | None) -> Path:
    if run is not None:
        return run
    from mt_cli.checkpoint.directory import newest_run

    newest = newest_run()
    print(f"Using {newest}", file=sys.stderr)
    return newest


def _load_translator(run: Path | None, device: str, precision: str) -> Translator:
    from mt_cli.hardware import keep_memory
    from mt_cli.translator import Translator

    translator = Translator.load(_run_path(run), device, precision)
    keep_memory()
    return translator


def _input_lines(path: Path | None) -> Iterator[str]:
    """Lines without their ends, as they come; lines end at a line feed only, and are UTF-8."""
    name = "standard input" if path is None else str(path)
    try:
        with sys.stdin.buffer if path is None else path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                try:
                    yield text.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError as error:
                    where = f"{name}, line {number:,}, byte {error.start + 1}"
                    raise InputError(f"{where}: not UTF-8 (0x{text[error.start]:02X})") from None
    except OSError as error:
        raise InputError(f"{name}: {(error.strerror or str(error)).lower()}") from None


def _blocks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    iterator = iter(lines)
    while block := list(islice(iterator, size)):
        yield block


class _output:  # noqa: N801  (used like a function)
    """A context that gives a function which writes lines, to a file or to standard output."""

    def __init__(self, path: Path | None) -> None:
        try:
            self._file = sys.stdout if path is None else path.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None

    def __enter__(self) -> Callable[[str], None]:
        return self._write

    def _write(self, text: str) -> None:
        try:
            print(text, file=self._file, flush=True)
        except BrokenPipeError:  # The reader has gone, as `head` does; nothing is wrong.
            _drop_output()
            raise typer.Exit(0) from None

    def __exit__(self, *error: object) -> None:
        if self._file is not sys.stdout:
            self._file.close()


def _format_translation(item: Translation, n_best: int, as_json: bool) -> str:
    if not as_json:
        # With fewer hypotheses than asked for, empty lines keep the output in step with the input.
        texts = [text for text, _ in item.hypotheses[:n_best]]
        return "\n".join(texts + [""] * (n_best - len(texts)))
    hypotheses = [{"text": text, "score": round(score, 4)} for text, score in item.hypotheses]
    return json.dumps(
        {"source": item.source, "translation": item.text, "score": round(item.score, 4), "hypotheses": hypotheses},
        ensure_ascii=False,
    )


def _draw_attention(translator: Translator, item: Translation, path: Path) -> None:
    from mt_cli.figures import save_attention

    source_tokens, target_tokens, weights = translator.attention(item.source, item.text)
    save_attention(weights, source_tokens, target_tokens, path)
    print(f"attention drawn in {path}", file=sys.stderr)


def _report_on_tokenizers(config: Config) -> None:
    from mt_cli.experiment.data import prepare

    data = prepare(config, RUNS / ".cache")
    shared = ", one for both languages" if config.tokenizer.shared else ""
    trained_on = f"{len(data.corpora['train']):,} pairs" if "train" in data.corpora else "the beginning of the stream"
    print(f"{config.name}: {config.tokenizer.algorithm}{shared}, trained on {trained_on}")
    print(f"{'side':<8}{'entries':>10}{'corpus':>20}{'unknown':>10}{'tokens a sentence':>20}")
    for side, tokenizer in zip(("source", "target"), data.tokenizers, strict=True):
        for name, statistics in data.statistics.items():
            counts = statistics.source if side == "source" else statistics.target
            unknown = counts.num_unknown / max(1, counts.num_tokens)
            per_sentence = counts.num_tokens / sum(counts.length_counts)
            print(f"{side:<8}{tokenizer.vocab_size:>10,}{name:>20}{unknown:>10.2%}{per_sentence:>20.1f}")


if __name__ == "__main__":
    main()
