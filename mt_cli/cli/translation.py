"""The commands that use a trained run: translate, score, evaluate."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from mt_cli.cli import options
from mt_cli.cli.options import (
    RUNS,
    check_model,
    check_no_files,
    load_translator,
    run_path,
    run_paths,
    search_options,
    together,
    utf8,
)
from mt_cli.cli.streams import Output, blocks, check_outputs, check_shared, input_lines, prompted_lines, show
from mt_cli.console import Progress, say, show_progress
from mt_cli.errors import InputError
from mt_cli.storage import real_path

if TYPE_CHECKING:
    from mt_cli.config.sections import Config
    from mt_cli.corpus.reading import Pair
    from mt_cli.translation.lines import Translation
    from mt_cli.translator import Translator

    Writers = Mapping[Output, Callable[[Translation], str]]

File = Path | None
_LINES_WITH_UNKNOWN_WORDS = 5
_PAIRS_SCORED_AT_ONCE = 512


def translate(
    sentences: Annotated[list[str] | None, Argument(help="Sentences, each in quotation marks.", callback=utf8)] = None,
    run: options.RunsOption = None,
    input_file: Annotated[
        File, Option("--input", help="File with one sentence per line; default: standard input.")
    ] = None,
    output_file: Annotated[File, Option("--output", help="File for translations; default: standard output.")] = None,
    beam_size: options.BeamSizeOption = None,
    length_penalty: Annotated[float | None, Option(min=0.0, help="Larger values give longer translations.")] = None,
    n_best: Annotated[int, Option(min=1, max=1000, help="Output lines per sentence: its best translations.")] = 1,
    sample: Annotated[bool, Option("--sample", help="Choose tokens at random; see decoding.top_k, top_p.")] = False,
    seed: Annotated[int | None, Option(min=0, help="Seed for --sample.")] = None,
    prefix: Annotated[str, Option(help="Beginning of every translation.", show_default=False, callback=utf8)] = "",
    unk: Annotated[str | None, Option(help="Unknown words: copy the source word, keep [UNK], or avoid.")] = None,
    overrides: options.SetDecodingOption = None,
    tag: Annotated[str | None, Option(help="Tag put before every sentence, such as <2it>.", callback=utf8)] = None,
    split_sentences: Annotated[bool, Option("--split-sentences", help="Split lines into sentences first.")] = False,
    interactive: Annotated[bool, Option("--interactive", help="Prompt for sentences, one at a time.")] = False,
    as_json: options.JsonOption = False,
    alignment: Annotated[File, Option(help="File for word alignments (0-0 1-2), one line per sentence.")] = None,
    attention: Annotated[File, Option(help="Picture (PNG, SVG) of the attention of one sentence.")] = None,
    checkpoint: options.CheckpointOption = None,
    engine: options.EngineOption = "mt",
    device: options.DeviceOption = "auto",
    threads: options.ThreadsOption = None,
    devices: options.DevicesOption = 1,
    precision: options.PrecisionOption = "auto",
    progress: options.ProgressOption = "auto",
) -> None:
    """Translate sentences: one line in, one line out.

    Reads standard input if no sentence and no file is given. The output has the order of the input.
    """
    given = {"beam_size": beam_size, "length_penalty": length_penalty, "unk": unk, "seed": seed}
    given |= {"sample": sample or None}

    def check_before_launch() -> None:
        _check_sources(sentences, input_file, interactive)
        check_shared(sentences, input_file)
        check_outputs(None if sentences else input_file or 0, output_file, alignment, attention)
        check_model(run, engine, checkpoint, device, precision, search_options(overrides, **given))

    with together(devices, if_lost="the output is not complete, start again", check=check_before_launch):
        _check_sources(sentences, input_file, interactive)
        check_outputs(None if sentences else input_file or 0, output_file, alignment, attention)
        if attention and len(sentences or ()) != 1:
            raise InputError("--attention draws one sentence; give exactly one as an argument")
        if alignment and engine != "mt":
            raise InputError(f"--alignment: --engine {engine} does not report attention; use --engine mt")
        show_progress(progress)
        search = search_options(overrides, **given)
        search |= {"tag": tag, "prefix": prefix, "split_sentences": split_sentences, "num_best": n_best}
        search["with_details"] = as_json or alignment is not None
        writers: dict[Output, Callable[[Translation], str]] = {
            Output(output_file): _format_json if as_json else partial(_format_texts, n_best)
        }
        if alignment:
            writers[Output(alignment)] = _format_alignment
        from mt_cli.processes import is_main, num_processes

        if num_processes() > 1:
            check_shared(sentences, input_file)
        translator = load_translator(run_paths(run), device, precision, engine, checkpoint, threads)
        lines = _blocks(sentences, input_file, interactive, bool(output_file) or not sys.stdout.isatty())
        items = (item for block in lines for item in _translated(translator, block, search))
        _write_translations(translator, items, writers if is_main() else {}, attention)


def _check_sources(sentences: list[str] | None, path: Path | None, interactive: bool) -> None:
    """Raise InputError unless there is one source of lines at most."""
    if sum(map(bool, (sentences, path, interactive))) > 1:
        raise InputError("give only one of sentences, --input and --interactive")
    if sentences:
        check_no_files(sentences, f"translate its lines with --input {sentences[0]}")


def _translated(translator: Translator, lines: list[str], search: dict[str, Any]) -> Iterator[Translation]:
    """The translations of lines, shared out by several processes; the first one alone gets them."""
    from mt_cli.processes import is_main, spread

    found = spread(lambda share: translator.translate_fully(share, **search), lines)
    yield from found if is_main() else ()


def _blocks(sentences: list[str] | None, path: Path | None, interactive: bool, progress: bool) -> Iterator[list[str]]:
    """The lines to translate, in blocks; single lines where a user waits for each."""
    if sentences or interactive:
        yield from ([line] for line in sentences or prompted_lines())
    elif path is None and sys.stdin.isatty():
        say("One sentence per line; Ctrl-D ends.")
        yield from ([line] for line in input_lines(None))
    elif not progress:
        yield from blocks(input_lines(path))
    else:
        with Progress("translate", None, "line", is_quiet=True) as bar:
            for block in blocks(input_lines(path)):
                yield block
                bar.advance(len(block))


def _write_translations(
    translator: Translator, items: Iterable[Translation], writers: Writers, attention: Path | None
) -> None:
    """Write to each output what its function returns for each translation."""
    with ExitStack() as stack:
        note_unknown_words = stack.enter_context(_unknown_word_notices())
        for output in writers:
            stack.enter_context(output)
        for item in items:
            for output, formatted in writers.items():
                output.write(formatted(item))
            if item.is_too_long:
                length = f"a line of {len(item.source):,} characters is longer than this model was trained for"
                say(f"mt: {length}; translated in {len(item.segments)} segments")
            note_unknown_words(item.unknown_words)
            if attention:
                from mt_cli.figures import save_attention

                source_tokens, target_tokens, weights = translator.attention(item.source, item.text)
                save_attention(weights, source_tokens, target_tokens, attention)
                say(f"wrote {attention}")


@contextmanager
def _unknown_word_notices() -> Iterator[Callable[[Sequence[str]], None]]:
    """Context manager that gives a function to name unknown words of a line; after some lines, only their number."""
    num_lines = 0

    def note(words: Sequence[str]) -> None:
        nonlocal num_lines
        num_lines += bool(words)
        if words and num_lines <= _LINES_WITH_UNKNOWN_WORDS:
            say(f"mt: not in the vocabulary: {', '.join(dict.fromkeys(words))}")

    try:
        yield note
    finally:
        if num_lines > _LINES_WITH_UNKNOWN_WORDS:
            say(f"mt: {num_lines:,} lines had words that are not in the vocabulary")


def _format_texts(num_best: int, item: Translation) -> str:
    """One line per hypothesis; missing hypotheses are empty lines, so that output lines match input lines."""
    texts = [text for text, _ in item.hypotheses[:num_best]]
    return "\n".join(texts + [""] * (num_best - len(texts)))


def _format_json(item: Translation) -> str:
    assert item.details is not None
    row = {
        "source": item.source,
        "translation": item.text,
        "score": round(item.score, 4),
        "hypotheses": [{"text": text, "score": round(score, 4)} for text, score in item.hypotheses],
        "source_tokens": item.details.source_tokens,
        "tokens": item.details.tokens,
        "token_scores": [round(score, 4) for score in item.details.token_scores],
        "alignment": item.details.alignment,
        "word_alignment": item.details.word_alignment,
    }
    return json.dumps(row, ensure_ascii=False)


def _format_alignment(item: Translation) -> str:
    assert item.details is not None
    return " ".join(f"{source}-{target}" for source, target in item.details.word_alignment)


def score(
    texts: Annotated[
        list[str] | None, Argument(metavar="[SOURCE TARGET]", help="A sentence and its translation.", callback=utf8)
    ] = None,
    run: options.RunsOption = None,
    source: Annotated[File, Option(help="File of sentences, with --target.")] = None,
    target: Annotated[File, Option(help="File of their translations, one per line.")] = None,
    as_json: options.JsonOption = False,
    checkpoint: options.CheckpointOption = None,
    engine: options.EngineOption = "mt",
    device: options.DeviceOption = "auto",
    threads: options.ThreadsOption = None,
    precision: options.PrecisionOption = "auto",
) -> None:
    """Print how likely given translations are.

    Prints a log-probability (natural logarithm, at most 0) per pair; with --json also that of every token.
    """
    if (source is None) != (target is None) or bool(texts) == (source is not None):
        raise InputError("give a sentence and its translation, or two files with --source and --target")
    if texts and len(texts) != 2:
        raise InputError(
            f"give a sentence and its translation, in quotation marks; number of arguments found: {len(texts)}"
        )
    if texts:
        check_no_files(texts, f"score its lines with --source {texts[0]} --target {texts[1]}")
    sides = [[text] for text in texts] if texts else [list(input_lines(path)) for path in (source, target) if path]
    if len(sides[0]) != len(sides[1]):
        raise InputError(f"{source} has {len(sides[0]):,} lines and {target} {len(sides[1]):,}; give a target for each")
    translator = load_translator(run_paths(run), device, precision, engine, checkpoint, threads)
    with Output(None) as output:
        for row in _scored_rows(translator, *sides):
            output.write(json.dumps(row, ensure_ascii=False) if as_json else f"{row['log_prob']:.4f}")


def _scored_rows(translator: Translator, sources: list[str], targets: list[str]) -> Iterator[dict[str, Any]]:
    for start in range(0, len(sources), _PAIRS_SCORED_AT_ONCE):
        some = [side[start : start + _PAIRS_SCORED_AT_ONCE] for side in (sources, targets)]
        for source, target, found in zip(*some, translator.score(*some), strict=True):
            yield {
                "source": source,
                "target": target,
                "log_prob": round(found.log_prob, 4),
                "log_prob_per_token": round(found.log_prob / len(found.tokens), 4),
                "tokens": found.tokens,
                "token_scores": [round(value, 4) for value in found.token_scores],
            }


def evaluate(
    run: options.RunsOption = None,
    split: Annotated[str | None, Option(help="valid, test, or one of extra_tests; default: test if it exists.")] = None,
    source: Annotated[File, Option(help="File to translate, with --reference.")] = None,
    reference: Annotated[File, Option(help="File of correct translations, one per line.")] = None,
    against: Annotated[File, Option(callback=utf8, help="Run or file of translations to compare with.")] = None,
    comet: Annotated[str | None, Option(metavar="MODEL", help="COMET model, a name or a file (extra: comet).")] = None,
    bleu_tokenizer: Annotated[str | None, Option(help="Tokenizer of sacreBLEU; default: by the language.")] = None,
    num_resamples: Annotated[
        int | None,
        Option(min=1, max=100_000, help="Random samples for confidence intervals; default: of the run, 1000."),
    ] = None,
    beam_size: options.BeamSizeOption = None,
    overrides: options.SetDecodingOption = None,
    as_json: options.JsonOption = False,
    checkpoint: options.CheckpointOption = None,
    engine: options.EngineOption = "mt",
    device: options.DeviceOption = "auto",
    threads: options.ThreadsOption = None,
    precision: options.PrecisionOption = "auto",
    progress: options.ProgressOption = "auto",
) -> None:
    """Translate a test set and compute BLEU, chrF, TER, CER, WER."""
    if (source is None) != (reference is None):
        raise InputError("--source and --reference go together")
    if source is not None and split is not None:
        raise InputError("give --split, or --source and --reference, not both")
    if engine != "mt" and source is None:
        raise InputError(f"--engine {engine}: an exported model has no corpora; give --source and --reference")
    show_progress(progress)
    search = search_options(overrides, beam_size=beam_size)
    if against is not None and not against.exists():
        raise InputError(f"--against {against}: no such run directory or file")
    path, *_ = paths = run_paths(run)
    load = partial(load_translator, device=device, precision=precision, num_threads=threads)
    translator = load(paths, engine=engine, checkpoint=checkpoint)
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.evaluation.texts import Scorer
    from mt_cli.experiment import scoring
    from mt_cli.experiment.data import scorer_of

    config = RunDirectory(path).config() if engine == "mt" else None
    name, pairs = _pairs_of(config, split, source, reference)
    if config is None:
        scorer = Scorer.of(translator.languages[1], "auto" if bleu_tokenizer is None else bleu_tokenizer)
    else:
        scorer = scorer_of(config, name, bleu_tokenizer)
    if num_resamples is not None:
        scorer = replace(scorer, num_resamples=num_resamples)
    model = scoring.load_comet(comet) if comet else None
    scores, hypotheses = scoring.evaluate(translator, pairs, name, scorer, **search)
    title = {"run": " + ".join(real_path(each).name for each in paths)} | (
        {"checkpoint": checkpoint} if checkpoint else {}
    )
    scores = title | scores
    if model is not None:
        scores["comet"] = scoring.comet_score(model, pairs, hypotheses)
    if against is not None:
        sources, references = map(list, zip(*pairs, strict=True))
        rivals = _rival(against, load, sources, translator.languages, search)
        compared = scorer.compare(hypotheses, rivals, references)
        notes = scoring.notes_on_runs([*paths, against]) if against.is_dir() else []
        scores["against"] = {"system": str(against), "num_resamples": scorer.num_resamples, **compared, "notes": notes}
    if engine == "mt" and len(paths) == 1:  # After reading `against`, which may be the same file.
        scoring.write_hypotheses(path, f"{name}.{checkpoint}" if checkpoint else name, hypotheses)
    system = f"{scores['run']}, checkpoint {checkpoint}" if checkpoint else scores["run"]
    show(json.dumps(scores, ensure_ascii=False) if as_json else f"{system}: {scoring.format_scores(scores)}")


def tune_decoding(
    run: options.RunOption = None,
    split: Annotated[str, Option(help="valid; test sets are refused.")] = "valid",
    beam_sizes: Annotated[str, Option(help="Beam sizes to try.")] = "1,2,4,5,8",
    length_penalties: Annotated[str, Option(help="Length penalties to try.")] = "0,0.5,1,1.5,2",
    margin: Annotated[float, Option(help="Loss of score that a smaller beam is worth.")] = 0.1,
    max_sentences: Annotated[int, Option(min=1, help="Translate a random sample of a larger validation set.")] = 2000,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the choice only.")] = False,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = "auto",
    threads: options.ThreadsOption = None,
    precision: options.PrecisionOption = "auto",
    progress: options.ProgressOption = "auto",
) -> None:
    """Choose beam size and length penalty on the validation set.

    Writes them into config.yaml of the run, from which mt translate takes its defaults.
    """
    if split != "valid":
        raise InputError(f"--split {split}: use valid; options chosen on a test set would make its scores too good")
    if not 0 <= margin <= 100:
        raise InputError(f"--margin {margin:g}: use 0 to 100")
    grid = _numbers("--beam-sizes", beam_sizes, int), _numbers("--length-penalties", length_penalties, float)
    show_progress(progress)
    path = run_path(run)
    translator = load_translator(path, device, precision, num_threads=threads)
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.experiment import tuning
    from mt_cli.experiment.data import scorer_of

    directory = RunDirectory(path)
    with nullcontext() if dry_run else directory.locked():
        config = directory.config()
        settings = tuning.search_grid(config.decoding, *grid)
        pairs = tuning.sampled_pairs(_pairs_of(config, split, None, None)[1], max_sentences, config.training.seed)
        scorer = scorer_of(config, split)
        metric = tuning.metric_of(config, scorer)
        result = tuning.tune(translator, pairs, scorer, metric, settings, margin)
        result = {"run": real_path(path).name, "split": split, **result, "is_written": not dry_run}
        changes = tuning.write_choice(directory, config, result["chosen"]) if not dry_run else []
    show(json.dumps(result) if as_json else f"{result['run']}: {tuning.format_tuning(result)}")
    advice = "To keep them when `mt train` goes on with this run, put them into its config too."
    for line in [*changes, advice] if not dry_run else ["Nothing was written (--dry-run)."]:
        say(line)


def _numbers(option: str, text: str, kind: Callable[[str], Any]) -> list[Any]:
    """The numbers in a text such as `1,2,4`; raises InputError for any other text."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        example = "1,2,4" if kind is int else "0,0.5,1"
        raise InputError(f"{option} {text!r}: write numbers with commas between them, such as {example}") from None


def _rival(
    against: Path,
    load: Callable[[Path], Translator],
    sources: list[str],
    languages: tuple[str, str],
    search: dict[str, Any],
) -> list[str]:
    """The translations of another run, or those in a file."""
    if against.is_dir():
        rival = load(against)
        if rival.languages != languages:
            theirs, ours = (" to ".join(each) for each in (rival.languages, languages))
            raise InputError(f"--against {against}: translates {theirs}, and this run {ours}; the languages must agree")
        return rival.translate(sources, **search)
    lines = list(input_lines(against))
    if len(lines) != len(sources):
        raise InputError(f"{against}: has {len(lines):,} lines for {len(sources):,} sentences")
    return lines


def _pairs_of(config: Config | None, split: str | None, source: File, reference: File) -> tuple[str, list[Pair]]:
    """The pairs to score and the name of the set."""
    from mt_cli.config.corpora import HeldOut
    from mt_cli.corpus.cache import Cache
    from mt_cli.corpus.reading import key_of, read_corpora, read_pairs
    from mt_cli.experiment.lineage import is_imported

    if source is not None and reference is not None:
        return "files", _pairs_in_files(source, reference)
    assert config is not None
    if is_imported(config):
        raise InputError(f"{config.name} was imported, so its corpora are not known; mt evaluate --source --reference")
    sets = {"valid": config.corpus.valid, "test": config.corpus.test, **config.corpus.extra_tests}
    if split is None:
        split = "valid" if config.corpus.test is None else "test"
    if sets.get(split) is None:
        names = ", ".join(name for name, value in sets.items() if value is not None)
        raise InputError(f"--split {split}: this run's config has no such corpus, only {names}")
    if split == "valid" and isinstance(config.corpus.valid[0], HeldOut):
        return split, read_corpora(config.corpus, config.training.seed, Cache(RUNS / ".cache"))["valid"].pairs
    return split, read_pairs(config.corpus.groups[split], config.corpus.languages, key_of(split))


def _pairs_in_files(source: Path, reference: Path) -> list[Pair]:
    from mt_cli.config.corpora import FilesSource
    from mt_cli.corpus.reading import clean_rows, pairs_of, read_pairs

    files, key = FilesSource(files=(str(source), str(reference))), "--source and --reference"
    if all(path.is_file() or not path.exists() for path in (source, reference)):
        return read_pairs([files], ("", ""), key)
    sides = [list(input_lines(path)) for path in (source, reference)]  # A pipe can be read only once.
    if len(sides[0]) != len(sides[1]):
        raise InputError(
            f"{key}: {len(sides[0]):,} lines and {len(sides[1]):,}; line N of one translates line N of the other"
        )
    rows = zip(range(1, len(sides[0]) + 1), *sides, strict=True)
    return pairs_of(clean_rows(rows, files, ("", ""), None), key)
