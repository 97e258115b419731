"""The command `translate`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mt_cli.cli import options
from mt_cli.cli.options import File, argument, file_option, flag, option
from mt_cli.cli.review import Review, other_language, with_quality
from mt_cli.cli.streams import Output, check_distinct, check_output
from mt_cli.corpus.lines import count_lines
from mt_cli.corpus.plain_text import check_plain_text, input_lines
from mt_cli.corpus.rows import Languages
from mt_cli.errors import InputError
from mt_cli.runtime.console import say
from mt_cli.runtime.group import ALONE, Group

if TYPE_CHECKING:
    from mt_cli.cli.translated_lines import Outputs
    from mt_cli.translation.translator import Translator

_TEXT, _EXTRA = "Input and output", "Extra results"
_search = partial(option, options.SEARCH)


def translate(
    sentences: Annotated[list[str] | None, argument("SENTENCE", "Sentences, each in quotation marks.")] = None,
    run: options.RunsOption = None,
    checkpoint: options.CheckpointOption = None,
    engine: options.EngineOption = "mt",
    input_file: Annotated[
        File, file_option(_TEXT, "File with one sentence per line.", "standard input", "--input")
    ] = None,
    output_file: Annotated[File, file_option(_TEXT, "File for translations.", "standard output", "--output")] = None,
    split_sentences: options.SplitSentencesOption = None,
    terms: options.TermsOption = None,
    strict: Annotated[
        bool, flag(_TEXT, "--strict", "Exit status 1 if protected spans are lost or swapped, or terms are missing.")
    ] = False,
    as_lines: options.AsLinesOption = False,
    translate_all: Annotated[
        bool, flag(_TEXT, "--all", "Of a document, translate texts that have a translation, too.")
    ] = False,
    column: Annotated[str | None, option(_TEXT, "NAME", "Column of a table to translate.", False)] = None,
    keys: Annotated[
        str | None,
        option(_TEXT, "NAME,...", "Keys of a .json file whose values are translated, as title or menu.*.", False),
    ] = None,
    to: options.ToOption = None,
    interactive: Annotated[bool, flag(_TEXT, "--interactive", "Answer each line before the next one.")] = False,
    beam_size: options.BeamSizeOption = None,
    length_penalty: options.LengthPenaltyOption = None,
    prefix: Annotated[str, _search("TEXT", "Beginning of every translation.", False)] = "",
    unk: Annotated[
        str | None, _search("NAME", "Unknown words: copy the source word, keep [UNK], or avoid.", options.OF_RUN)
    ] = None,
    sample: Annotated[bool, flag(options.SEARCH, "--sample", "Choose tokens at random; see decoding.top_p.")] = False,
    seed: Annotated[int | None, _search("N", "Seed for --sample.", options.OF_RUN, min=0)] = None,
    overrides: options.SetDecodingOption = None,
    n_best: Annotated[int, option(_EXTRA, "N", "Lines per sentence: its best translations.", min=1, max=1000)] = 1,
    as_json: Annotated[bool, flag(_EXTRA, "--json", "Print JSON: tokens, scores and alignments, too.")] = False,
    alignment: Annotated[File, file_option(_EXTRA, "File for word alignments: a line such as 0-0 1-2.")] = None,
    review: Annotated[
        str | None, option(_EXTRA, "N%", "Share of the translations to mark that most need reading, as 20%.", False)
    ] = None,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "auto",
    threads: options.ThreadsOption = None,
    devices: options.DevicesOption = 1,
    progress: options.ProgressOption = "auto",
) -> None:
    """Translate sentences, one line each, or documents.

    Reads standard input if no sentence and no file is given. Of a document such as .po, or of a folder of documents,
    only the text is translated, and everything else stays.

    Examples:
        mt translate "The old doctor does not see the red house."
        mt translate --run runs/my_run --input po/app.po --output draft/app.po --terms words.csv
        mt translate "The red house." --n-best 5

    More: docs/translating.md
    """
    choices = {"beam_size": beam_size, "length_penalty": length_penalty, "unk": unk, "seed": seed}
    search = options.search_options(overrides, **choices, sample=sample or None) | {"split_sentences": split_sentences}
    to_read = None if review is None else Review.of(review, output_file, interactive)

    def load(group: Group = ALONE, texts: Iterable[str] = ()) -> tuple[Translator, dict[str, Any], Languages]:
        """Translator, and its options for the direction; see `_direction`."""
        paths = group.from_main(lambda: options.run_paths(run))
        translator = options.load_translator(paths, device, precision, engine, checkpoint, threads, group)
        direction, languages = _direction(translator, to, terms)
        options.note_little_learned(paths, engine)
        if review is not None or as_json:
            needed, is_sampled = review is not None, search.get("sample", False)
            translator = with_quality(translator, paths, engine, checkpoint, needed, is_sampled, texts, languages[0])
        return translator, direction, languages

    if input_file is not None and not as_lines and _is_of_documents(input_file):
        if sentences or interactive or n_best > 1 or as_json or alignment or prefix or devices > 1:
            raise InputError(
                f"{input_file}: a document is translated alone, without these options; --as-lines reads lines"
            )
        output = _output_of_documents(input_file, output_file)
        _check_terms(terms, output)
        share = to_read and to_read.share
        return _translate_documents(load, search, (input_file, output), (column, keys), translate_all, share, strict)

    _check_sources(sentences, input_file, interactive, as_lines)
    table = to_read and to_read.table
    _check_outputs(None if sentences else input_file or 0, output_file, alignment, table)
    _check_terms(terms, output_file, alignment)
    check = partial(_check_shared, sentences, input_file)
    with options.together(devices, check) as group:
        if group.size > 1:
            check()
        from mt_cli.cli.translated_lines import LineJob, can_resume

        outputs = _outputs(output_file, alignment, table, num_best=None if as_json else n_best)
        lines = input_lines(input_file, as_lines) if input_file is not None and input_file.is_file() else ()
        translator, direction, _ = load(group, lines)
        search |= {"prefix": prefix, "num_best": n_best, "with_details": as_json or len(outputs) > 1} | direction
        has_bar = bool(output_file) or not sys.stdout.isatty()
        is_typed = input_file is None and not sentences and sys.stdin.isatty()
        if is_typed:
            say("One sentence per line; Ctrl-D ends.")
        is_waited_for = bool(sentences or interactive or is_typed)
        job = LineJob(translator, search, outputs, group, strict, is_waited_for, has_bar and not is_waited_for)
        if input_file is not None and can_resume(input_file, outputs):
            key = repr((translator.digest, search, translator.decoding, as_json, translator.quality))
            job.resume(lambda: input_lines(input_file, as_lines), key, count_lines(input_file))
        job.run(sentences or input_lines(input_file, as_lines))
        if to_read is not None and group.rank == 0:
            to_read.finish()


def _direction(translator: Translator, to: str | None, terms: list[Path] | None) -> tuple[dict[str, Any], Languages]:
    """Options of `translate_fully` for a target language and its glossaries, and the languages of both sides."""
    tag = translator.target_tag(to)
    direction = translator.tagging.direction(tag, translator.languages)
    glossary = options.read_terms(terms, direction, translator)
    return {"tag": tag} | ({"terms": glossary} if glossary else {}), direction


def _is_of_documents(path: Path) -> bool:
    """True if a path is a folder, or a document whose format is read."""
    from mt_cli.documents.formats import is_document

    return path.is_dir() or (path.is_file() and is_document(path))


def _output_of_documents(path: Path, output: Path | None) -> Path:
    """Output for a document or a folder of documents; raises InputError unless it is given and can be one."""
    if output is None:
        raise InputError(
            f"{path}: a document; give a file for its translation (--output FILE), or read lines (--as-lines)"
        )
    if not path.is_dir():
        from mt_cli.documents.formats import is_of_other_format

        if is_of_other_format(output, path):
            raise InputError(
                f"--output {output}: {path} is written as {path.suffix} again; end the name so, and convert the file"
            )
        check_output(output)
    check_distinct({"--input": path, "--output": output})
    return output


def _translate_documents(
    load: Callable[[], tuple[Translator, dict[str, Any], Languages]],
    search: dict[str, Any],
    paths: tuple[Path, Path],
    columns: tuple[str | None, str | None],
    translates_all: bool,
    share: float | None,
    is_strict: bool,
) -> None:
    """Translate a document or a folder; `share` is the fraction of its texts to mark for a review, if any."""
    from mt_cli.documents.document import Options
    from mt_cli.documents.translate import Job, translate_documents

    (translator, direction, languages), (column, keys) = load(), columns
    search = search | direction | {"with_details": share is not None}
    options = Options(languages, column, tuple(keys.split(",")) if keys else ())
    settings = options, translates_all, translator.decoding, share, translator.quality
    key = repr((translator.digest, sorted(search.items(), key=str), *settings))
    job = Job(translator, search, options, translates_all, key)
    if share is not None:
        job = replace(job, review=share, doubt_of=partial(other_language, languages[0]))
    translate_documents(*paths, job, is_strict)


def _check_sources(sentences: list[str] | None, path: Path | None, interactive: bool, as_lines: bool) -> None:
    """Raise InputError unless there is one source of lines at most, and it is not a document."""
    if sum(map(bool, (sentences, path, interactive))) > 1:
        raise InputError("give only one of sentences, --input and --interactive")
    if sentences:
        options.check_no_files(sentences, f"translate its lines with --input {sentences[0]}")
    elif path is not None:
        check_plain_text(path, as_lines=as_lines)


def _outputs(output: Path | None, alignment: Path | None, table: Path | None, num_best: int | None) -> Outputs:
    """Outputs with their formats; the translations are JSON if `num_best` is None."""
    from mt_cli.translation.quality import format_review
    from mt_cli.translation.stream import format_alignment, format_json, format_texts

    outputs: Outputs = {Output(output): format_json if num_best is None else partial(format_texts, num_best)}
    others = {alignment: format_alignment, table: format_review}
    return outputs | {Output(path): format_of for path, format_of in others.items() if path is not None}


def _check_outputs(source: Path | int | None, output: Path | None, alignment: Path | None, table: Path | None) -> None:
    """Raise InputError if an output cannot be a file, or is the file of another option or the source of the lines."""
    for path in (output, alignment, table):
        check_output(path)
    read = {"standard input" if source == 0 else "--input": source}
    written = {"--output": output} if output else {"standard output": 1}
    check_distinct({**read, **written, "--alignment": alignment, "the table of --review": table})


def _check_terms(terms: list[Path] | None, *outputs: Path | None) -> None:
    """Raise InputError if an output is a glossary."""
    for glossary, output in product(terms or (), outputs):
        check_distinct({"--terms": glossary, "an output": output})


def _check_shared(sentences: list[str] | None, path: Path | None) -> None:
    """Raise InputError unless several processes can read the same lines."""
    if not sentences and (path is None or not path.is_file()):
        raise InputError("several processes cannot share a stream; give a file with --input")
