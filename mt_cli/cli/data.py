"""The commands under `data`: `check`, `show`, `corrections` and `pick`."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from mt_cli.cli import options
from mt_cli.cli.options import CONFIG, OUTPUT, RUNS, file_option, load_config, option, read_terms, run_path
from mt_cli.cli.streams import check_distinct, check_output, show
from mt_cli.corpus.plain_text import check_plain_text
from mt_cli.errors import InputError
from mt_cli.runtime.console import say, say_next
from mt_cli.runtime.files import write_output

if TYPE_CHECKING:
    from mt_cli.config.sections import Config
    from mt_cli.corpus.cache import Cache
    from mt_cli.data.prepare import Data

_pairs = partial(option, "Pairs")


def _prepared(loaded: Config) -> tuple[Config, Data, Cache]:
    """Complete config, its data and the cache; of a stream, as many rows as its buffer has."""
    from mt_cli.corpus.cache import Cache
    from mt_cli.data.streams import SHUFFLE_BUFFER
    from mt_cli.run.config import prepare_new

    cache = Cache(RUNS / ".cache")
    return *prepare_new(loaded, cache, stream_rows=SHUFFLE_BUFFER)[:2], cache


def data_check(
    config: options.ConfigOption,
    overrides: options.SetCorpusOption = None,
    terms: options.TermsOption = None,
    as_json: options.JsonOption = False,
    clean: Annotated[
        Path | None,
        option(OUTPUT, "FOLDER", "New folder for the text without bad lines.", names="--write-clean", callback=None),
    ] = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Report kept and dropped pairs, and problems of their text.

    The exit status is 2 if lines have slipped, sides are swapped, a language is wrong or text is processed already.
    With --write-clean, slipped lines are repaired. With --terms, notes name pairs that contradict a glossary.

    Examples:
        mt data check --config my.yaml
        mt data check --config my.yaml --write-clean clean

    More: docs/data.md
    """
    given = load_config(config, overrides)
    if clean is not None and os.path.lexists(clean):
        raise InputError(f"{clean}: exists already; give the clean text a new folder")
    glossary = read_terms(terms, given.corpus.languages)
    from mt_cli.advice.data_check import examine, format_examination
    from mt_cli.advice.problems import Finding, find_problems, refuse_processed

    def check(config: Config) -> tuple[Data, Sequence[Finding]]:
        config, data, cache = _prepared(config)
        return data, find_problems(data.corpora, config, cache)

    loaded, data, cache = _prepared(given)
    problems: Sequence[Finding] = find_problems(data.corpora, loaded, cache)
    report = examine(data, loaded, problems, glossary)
    show(*([json.dumps(report, ensure_ascii=False)] if as_json else format_examination(report)))
    way_out = "check these lines before training on them"
    if clean is None:
        words = ["mt", "data", "check", "--config", str(config), *(f"--set={change}" for change in overrides or ())]
        way_out += f", or write the text without them:\n  {shlex.join(words)} --write-clean clean"
    else:
        from mt_cli.advice.clean_copy import write_clean

        copies, path, problems = write_clean(given, data, problems, check, clean)
        for copy in copies:
            say("\n".join(copy.describe()))
        for problem in problems:
            say(str(problem))
        say_next(path)
    if any(problem.kind == "stretch" for problem in problems):
        raise InputError(f"the corpora have problems, see above; {way_out}")
    refuse_processed(problems)


def data_show(
    config: options.ConfigOption,
    overrides: options.SetCorpusOption = None,
    number: Annotated[int, _pairs("N", "Number of pairs.", names="-n --number", min=1)] = 5,
    dropped: Annotated[
        str | None, _pairs("FILTER", "Dropped pairs: a filter, such as duplicates, or any.", callback=None)
    ] = None,
    worst: Annotated[
        int | None,
        _pairs("N", "The least likely pairs, by filters.keep_likely of the run.", False, "--least-likely", min=1),
    ] = None,
    split: Annotated[str, _pairs("NAME", "train, valid, test, or one of extra_tests.", callback=None)] = "train",
) -> None:
    """Show pairs as the model reads them.

    With --dropped, shows pairs that are dropped, and why. With --least-likely, shows the pairs that the run of the
    config finds least likely, with their scores.

    Examples:
        mt data show --config my.yaml -n 20
        mt data show --config my.yaml --dropped duplicates

    More: docs/data.md
    """
    loaded = load_config(config, overrides)
    from mt_cli.advice.data_check import shown_pairs

    loaded, data, _ = _prepared(loaded)
    if worst is not None:
        return show(*_least_likely(loaded, data, worst))
    lines = shown_pairs(data, loaded, split, number, dropped)
    if lines:
        return show(*lines)
    return say(f"no pairs of {split} were dropped{'' if dropped == 'any' else f' by {dropped}'}")


def data_corrections(
    drafts: Annotated[Path, Argument(metavar="DRAFTS", help="File that mt translate wrote.")],
    edited: Annotated[Path, Argument(metavar="EDITED", help="The same file after a person has edited it.")],
    output: Annotated[Path, file_option(OUTPUT, "File of corrections, to which they are added.", names="--output")],
    run: options.RunOption = None,
    to: options.ToOption = None,
) -> None:
    """Collect what a person has changed in a file of drafts.

    Compares two .po, XLIFF, TMX or table files. Each translation that differs is added as a JSON line, once. The run,
    which wrote the drafts, says the languages.

    Examples:
        mt data corrections draft.po edited.po --output corrections.jsonl

    More: docs/localisation.md
    """
    check_output(output)
    check_distinct({"DRAFTS": drafts, "EDITED": edited, "--output": output})
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.corpus.corrections import append_corrections, check_corrections_file, current_corrections
    from mt_cli.corpus.formats.table import names_in
    from mt_cli.corpus.languages import primary
    from mt_cli.documents.corrections import compare_with_drafts
    from mt_cli.runtime.files import real_path

    path = run_path(run)
    corpus = RunDirectory(path).config().corpus
    directions = [corpus.languages, *corpus.languages_of("train")]
    named = [primary(name) for name in names_in(edited).names]
    by_header = [pair for pair in directions if to is None and named == [primary(pair[1])]]  # Of a catalogue.
    languages = next((pair for pair in [*by_header, *directions] if to in (None, pair[1])), None)
    if languages is None:
        targets = ", ".join(dict.fromkeys(target for _, target in directions))
        raise InputError(f"--to {to}: this run translates into {targets}")
    corrections, counts = compare_with_drafts(edited, drafts, languages, real_path(path).name)
    check_corrections_file(output)
    newest = {item.source: item for item in corrections}.values()
    known = {(item.languages, item.pair) for item in current_corrections([output])}
    added = [item for item in newest if (item.languages, item.pair) not in known]
    append_corrections(output, added)
    counts["added before"] = len(newest) - len(added)
    others = "".join(f", {number:,} {status}" for status, number in counts.items() if number)
    say(f"{output}: {len(added):,} correction{'s' * (len(added) != 1)} added{others}")


def data_pick(
    path: Annotated[
        Path, file_option("Text", "Text in the source language, with a sentence per line.", names="--from")
    ],
    number: Annotated[int, option("Text", "N", "Number of sentences.", names="-n --number", min=1)] = 200,
    config: Annotated[
        Path | None, file_option(CONFIG, "Config with the corpus.", "that of the run", "--config")
    ] = None,
    run: options.RunOption = None,
    output: Annotated[Path | None, file_option(OUTPUT, "File for the sentences.", "standard output")] = None,
) -> None:
    """Pick sentences that are worth translating next by hand.

    They have words and phrases that are frequent in the text, but not in the corpus. The most useful one is first.

    Examples:
        mt data pick --from mono.txt -n 200 --run runs/my_run --output next.txt

    More: docs/few_pairs.md
    """
    check_plain_text(path)
    from mt_cli.advice.pick import pick_from
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.corpus.cache import Cache

    loaded = load_config(config, None) if config else RunDirectory(run_path(run)).config()
    lines, left_out = pick_from(path, loaded, Cache(RUNS / ".cache"), number)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
    say(f"sentences picked: {len(lines):,}; left out: {reasons or 'none'}")
    if output is None:
        return show(*lines)
    return write_output(output, "".join(f"{line}\n" for line in lines).encode())


def _least_likely(config: Config, data: Data, number: int) -> Iterator[str]:
    """Lines with the least likely pairs by the scores of a run; raises RunError if its corpora have changed."""
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.run.resume import check_data
    from mt_cli.run.selection import least_likely, read_scores

    directory = RunDirectory(RUNS / config.name)
    state = directory.newest_state()
    scores = read_scores(directory, state, len(data.encoded.get("train", ())))
    check_data(directory, data.fingerprints(config) | directory.tokenizer_digests(), state)
    return least_likely(scores, data, config, number)
