"""The commands that score: `evaluate` translations of a run, and `score` given ones."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from mt_cli.cli import options
from mt_cli.cli.help import add_command
from mt_cli.cli.options import RUNS, File, check_no_files, load_translator, run_paths, search_options, utf8
from mt_cli.cli.streams import Output, check_lines, input_lines, show
from mt_cli.errors import InputError
from mt_cli.machine.console import say
from mt_cli.machine.storage import real_path

if TYPE_CHECKING:
    from mt_cli.config.sections import Config
    from mt_cli.corpus.rows import BlankRow, Languages, Pair
    from mt_cli.evaluation.texts import Scorer
    from mt_cli.translation.lines import Translation
    from mt_cli.translation.translator import Translator

    Writers = Mapping[Output, Callable[[Translation], str]]

_PAIRS_SCORED_AT_ONCE = 512
_TEST_SET, _SCORES, _PAIRS = "Test set", "Scores", "Pairs"


def add(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    add_command(
        app,
        evaluate,
        "Use",
        "mt evaluate --run runs/quickstart",
        "mt evaluate --source test.en --reference test.it",
        "mt evaluate --run runs/new --against runs/old --json",
        page="docs/translating.md",
    )
    add_command(
        app,
        score,
        "Use",
        'mt score "The house is red." "La casa è rossa."',
        "mt score --source test.en --target test.it --json",
    )


def score(
    texts: Annotated[
        list[str] | None, Argument(metavar="[SOURCE TARGET]", help="A sentence and its translation.", callback=utf8)
    ] = None,
    run: options.RunsOption = None,
    checkpoint: options.CheckpointOption = None,
    engine: options.EngineOption = "mt",
    to: options.ToOption = None,
    tag: options.TagOption = None,
    source: Annotated[File, Option(metavar="FILE", help="Sentences, one per line.", rich_help_panel=_PAIRS)] = None,
    target: Annotated[
        File, Option(metavar="FILE", help="Their translations, one per line.", rich_help_panel=_PAIRS)
    ] = None,
    as_lines: options.AsLinesOption = False,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "auto",
    threads: options.ThreadsOption = None,
) -> None:
    """Print how likely given translations are.

    Give a sentence and its translation, or two files. Prints the natural logarithm of the probability of each pair, and
    with --json also that of every token.
    """
    if (source is None) != (target is None) or bool(texts) == (source is not None):
        raise InputError("give a sentence and its translation, or two files with --source and --target")
    if texts and len(texts) != 2:
        raise InputError(
            f"give a sentence and its translation, in quotation marks; number of arguments found: {len(texts)}"
        )
    if texts:
        check_no_files(texts, f"score its lines with --source {texts[0]} --target {texts[1]}")
    files = [path for path in (source, target) if path]
    sides = [[text] for text in texts] if texts else [list(input_lines(path, as_lines)) for path in files]
    if len(sides[0]) != len(sides[1]):
        raise InputError(f"{source} has {len(sides[0]):,} lines and {target} {len(sides[1]):,}; give a target for each")
    translator = load_translator(run_paths(run), device, precision, engine, checkpoint, threads)
    tag = options.target_tag(translator, to, tag)
    with Output(None) as output:
        for row in _scored_rows(translator, sides, tag):
            output.write(json.dumps(row, ensure_ascii=False) if as_json else f"{row['log_prob']:.4f}")


def _scored_rows(translator: Translator, sides: list[list[str]], tag: str | None) -> Iterator[dict[str, Any]]:
    for start in range(0, len(sides[0]), _PAIRS_SCORED_AT_ONCE):
        sources, targets = (side[start : start + _PAIRS_SCORED_AT_ONCE] for side in sides)
        for source, target, found in zip(sources, targets, translator.score(sources, targets, tag), strict=True):
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
    checkpoint: options.CheckpointOption = None,
    engine: options.EngineOption = "mt",
    split: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="valid, test, or one of extra_tests.",
            show_default="test if it exists",
            rich_help_panel=_TEST_SET,
        ),
    ] = None,
    source: Annotated[
        File, Option(metavar="FILE", help="Sentences to translate, one per line.", rich_help_panel=_TEST_SET)
    ] = None,
    reference: Annotated[
        File, Option(metavar="FILE", help="Their correct translations, one per line.", rich_help_panel=_TEST_SET)
    ] = None,
    as_lines: options.AsLinesOption = False,
    to: options.ToOption = None,
    tag: options.TagOption = None,
    against: Annotated[
        File,
        Option(
            callback=utf8,
            metavar="PATH",
            help="Run, or file of translations, to compare with.",
            rich_help_panel=_SCORES,
        ),
    ] = None,
    comet: Annotated[
        str | None,
        Option(metavar="MODEL", help="COMET model, a name or a file (extra: comet).", rich_help_panel=_SCORES),
    ] = None,
    bleu_tokenizer: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Tokenizer of sacreBLEU.",
            show_default="by the language",
            rich_help_panel=_SCORES,
        ),
    ] = None,
    num_resamples: Annotated[
        int | None,
        Option(
            min=1,
            max=100_000,
            metavar="N",
            help="Random samples for confidence intervals.",
            show_default="that of the run",
            rich_help_panel=_SCORES,
        ),
    ] = None,
    beam_size: options.BeamSizeOption = None,
    length_penalty: options.LengthPenaltyOption = None,
    overrides: options.SetDecodingOption = None,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "auto",
    threads: options.ThreadsOption = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Translate a test set and compute BLEU, chrF, TER, CER, WER."""
    _check_test_set(split, source, reference, engine)
    search = search_options(overrides, beam_size=beam_size, length_penalty=length_penalty)
    _check_files(source, reference, against, as_lines)
    path, *_ = paths = run_paths(run)
    load = partial(load_translator, device=device, precision=precision, num_threads=threads)
    translator = load(paths, engine=engine, checkpoint=checkpoint)
    search["tag"] = options.target_tag(translator, to, tag) if to or tag or source else None
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.corpus.rows import untagged
    from mt_cli.evaluation import evaluate as scoring
    from mt_cli.evaluation.seen import notes_on_seen_pairs
    from mt_cli.features.comet import comet_score, load_comet
    from mt_cli.reporting.report import notes_on_comparison, read_report

    config = RunDirectory(path).config() if engine == "mt" else None
    name, pairs, languages, left_out = _of_target(to, *_pairs_of(config, split, source, reference, as_lines))
    rival = against if against and against.is_dir() else None
    if source is not None:  # Raises if the model needs a tag and none is decided.
        pairs = [(translator.tagging.tagged(text, search["tag"]), target) for text, target in pairs]
    plain = [(untagged(text, translator.tags), target) for text, target in pairs]
    for each in [*notes_on_seen_pairs(paths, rival, plain), *_notes_on_changed_text(config, path, split)]:
        say(f"note: {each}")
    scorer = _scorer_for(config, name, to or translator.languages[1], bool(to), bleu_tokenizer)
    scorer = replace(scorer, num_resamples=num_resamples or scorer.num_resamples)
    if config is not None and (note := scoring.note_on_spelling(config.tokenizer, [target for _, target in pairs])):
        say(f"note: {note}")
    model = load_comet(comet) if comet else None
    found, hypotheses = scoring.evaluate(translator, pairs, name, scorer, languages, left_out, **search)
    found.run = " + ".join(real_path(each).name for each in paths)
    if checkpoint:
        found.checkpoint = checkpoint
    if model is not None:
        found.comet = comet_score(model, pairs, hypotheses)
    if against is not None:
        sources, references = map(list, zip(*pairs, strict=True))
        both = languages or [(translator.languages[0], to or translator.languages[1])] * len(pairs)
        rivals = _rival(against, load, sources, both, translator.tags, search, left_out)
        reports = [read_report(RunDirectory(each)) for each in (*paths, against)] if against.is_dir() else []
        found.against = scoring.compare(str(against), scorer, hypotheses, rivals, references, languages)
        found.against.notes += notes_on_comparison(reports)
    if engine == "mt" and len(paths) == 1:  # After reading `against`, which may be the same file.
        scoring.write_hypotheses(path, f"{name}.{checkpoint}" if checkpoint else name, hypotheses)
    system = f"{found.run}, checkpoint {checkpoint}" if checkpoint else found.run
    tree = found.model_dump(exclude_unset=True)
    show(json.dumps(tree, ensure_ascii=False) if as_json else f"{system}: {scoring.format_scores(found)}")


def _notes_on_changed_text(config: Config | None, path: Path, split: str | None) -> Iterator[str]:
    """A note if pairs that are held out from `train` are scored, and its text is not that of the training any more."""
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.corpus.cache import Cache
    from mt_cli.data.prepare import fingerprints_of, read

    is_default = config is not None and split is None and config.corpus.test is None
    if config is None or not (split == "valid" or is_default) or not config.corpus.held_out(config.training.seed):
        return
    state = RunDirectory(path).best_state()
    now = fingerprints_of(read(config, Cache(RUNS / ".cache")), config)
    before = {key: value for key, value in (state.fingerprints if state else {}).items() if key.startswith("corpus.")}
    if before and before != now:
        yield (
            "corpus.train has changed since this run was trained, so other pairs may be held out for valid; for scores "
            "that can be compared, name a test set with --source and --reference"
        )


def _scorer_for(config: Config | None, name: str, language: str, is_chosen: bool, bleu_tokenizer: str | None) -> Scorer:
    """The scorer of a corpus of a config, or of a target language that `is_chosen` or has no config."""
    from mt_cli.evaluation.texts import Scorer, scorer_of

    if config is None:
        return Scorer.of(language, bleu_tokenizer or "auto")
    scorer = scorer_of(config, name, bleu_tokenizer)
    return scorer.for_language(language) if is_chosen else scorer


def _check_test_set(split: str | None, source: File, reference: File, engine: str) -> None:
    """Raise InputError unless a test set is named in one way."""
    if (source is None) != (reference is None):
        raise InputError("--source and --reference go together")
    if source is not None and split is not None:
        raise InputError("give --split, or --source and --reference, not both")
    if engine != "mt" and source is None:
        raise InputError(f"--engine {engine}: an exported model has no corpora; give --source and --reference")


def _check_files(source: File, reference: File, against: Path | None, as_lines: bool) -> None:
    """Raise InputError unless these files can be read as lines."""
    if against is not None and not against.exists():
        raise InputError(f"--against {against}: no such run directory or file")
    check_lines(source, reference, None if against and against.is_dir() else against, as_lines=as_lines)


def _of_target(
    to: str | None, name: str, pairs: list[Pair], languages: list[Languages], left_out: list[BlankRow]
) -> tuple[str, list[Pair], list[Languages], list[BlankRow]]:
    """The pairs of a corpus into one target language, if one is given; the corpus is then named after it, too."""
    if to is None or not languages:
        return name, pairs, languages, left_out
    rows = [row for row, (_, target) in enumerate(languages) if target == to]
    if not rows:
        known = ", ".join(dict.fromkeys(target for _, target in languages))
        raise InputError(f"--to {to}: {name} has no pairs into this language, only into {known}")
    blank = [
        replace(row, num_before=bisect_left(rows, row.num_before))
        for row in left_out
        if row.languages is None or row.languages[1] == to
    ]
    return f"{name}.{to}", [pairs[row] for row in rows], [languages[row] for row in rows], blank


def _rival(
    against: Path,
    load: Callable[[Path], Translator],
    sources: list[str],
    languages: list[Languages],
    tags: Sequence[str],
    search: dict[str, Any],
    left_out: Sequence[BlankRow] = (),
) -> list[str]:
    """The translations of another run, or those in a file; `languages` has the direction of each source.

    A source keeps one of the `tags` if the other run knows it, too.
    """
    if not against.is_dir():
        lines = _without(left_out, list(input_lines(against, as_lines=True)), len(sources))  # Checked before.
        if len(lines) != len(sources):
            raise InputError(f"{against}: has {len(lines):,} lines for {len(sources):,} sentences")
        return lines
    from mt_cli.corpus.rows import untagged

    rival = load(against)
    has_tags, own_tags = bool(rival.tagging.targets), [tag for tag in tags if tag not in rival.tags]
    found = [""] * len(sources)
    for both in dict.fromkeys(languages):
        if not has_tags and both != rival.languages:
            theirs, ours = (" to ".join(each) for each in (rival.languages, both))
            raise InputError(f"--against {against}: translates {theirs}, and this run {ours}; the languages must agree")
        rows = [row for row, each in enumerate(languages) if each == both]
        texts = [untagged(sources[row], own_tags) for row in rows]
        try:
            tag = options.target_tag(rival, both[1]) if has_tags else None
            translated = rival.translate(texts, **search | {"tag": tag})
        except InputError as error:
            raise InputError(f"--against {against}: {error}; --to compares one direction of this run") from None
        for row, text in zip(rows, translated, strict=True):
            found[row] = text
    return found


def _without(left_out: Sequence[BlankRow], lines: list[str], num_pairs: int) -> list[str]:
    """The lines without those of rows that are left out, if the file has a line for each of these, too."""
    if len(lines) != num_pairs + len(left_out):
        return lines
    blank = {row.num_before + place for place, row in enumerate(left_out)}
    return [line for place, line in enumerate(lines) if place not in blank]


def _pairs_of(
    config: Config | None, split: str | None, source: File, reference: File, as_lines: bool = False
) -> tuple[str, list[Pair], list[Languages], list[BlankRow]]:
    """The name of the set, the pairs to score, their languages as far as they are known, and rows with a blank side."""
    from mt_cli.checkpoint.directory import is_imported
    from mt_cli.corpus.agreement import key_of
    from mt_cli.corpus.cache import Cache
    from mt_cli.corpus.reading import read_evaluation_pairs
    from mt_cli.data.prepare import read

    if source is not None and reference is not None:
        pairs, left_out = _pairs_in_files(source, reference, as_lines)
        return "files", pairs, [], left_out
    assert config is not None
    if is_imported(config):
        raise InputError(f"{config.name} was imported, so its corpora are not known; mt evaluate --source --reference")
    sets = {"valid": config.corpus.valid, "test": config.corpus.test, **config.corpus.extra_tests}
    if split is None:
        split = "valid" if config.corpus.test is None else "test"
    if sets.get(split) is None:
        names = ", ".join(name for name, value in sets.items() if value is not None)
        raise InputError(f"--split {split}: this run's config has no such corpus, only {names}")
    if split == "valid" and config.corpus.held_out(config.training.seed):
        corpus = read(config, Cache(RUNS / ".cache"))["valid"]
        return split, corpus.pairs, corpus.languages(config.corpus.languages_of(split)), corpus.blank_rows()
    both, sources = config.corpus.languages_of(split), config.corpus.groups[split]
    return split, *read_evaluation_pairs(sources, config.corpus.languages, both, key_of(split))


def _pairs_in_files(source: Path, reference: Path, as_lines: bool) -> tuple[list[Pair], list[BlankRow]]:
    from mt_cli.config.sources import FilesSource
    from mt_cli.corpus.reading import clean_rows, pairs_of, read_evaluation_pairs

    files, key = FilesSource(files=(str(source), str(reference))), "--source and --reference"
    if all(path.is_file() or not path.exists() for path in (source, reference)):
        pairs, _, left_out = read_evaluation_pairs([files], ("", ""), [("", "")], key)
        return pairs, left_out
    sides = [list(input_lines(path, as_lines)) for path in (source, reference)]  # A pipe can be read only once.
    if len(sides[0]) != len(sides[1]):
        raise InputError(
            f"{key}: {len(sides[0]):,} lines and {len(sides[1]):,}; line N of one translates line N of the other"
        )
    rows = zip(range(1, len(sides[0]) + 1), *sides, strict=True)
    return pairs_of(clean_rows(rows, files, ("", ""), None), key)
