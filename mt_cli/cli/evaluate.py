"""The command `evaluate`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from mt_cli.cli import options
from mt_cli.cli.options import RUNS, File, file_option, option
from mt_cli.cli.streams import show
from mt_cli.corpus.plain_text import check_plain_text
from mt_cli.errors import InputError

_test_set, _scores = (partial(option, panel) for panel in ("Test set", "Scores"))
_file = partial(file_option, "Test set")


def evaluate(
    run: options.RunsOption = None,
    checkpoint: options.CheckpointOption = None,
    engine: options.EngineOption = "mt",
    split: Annotated[str | None, _test_set("NAME", "valid, test, or one of extra_tests.", "test if it exists")] = None,
    source: Annotated[File, _file("Sentences to translate, one per line.")] = None,
    reference: Annotated[File, _file("Their correct translations, one per line.")] = None,
    as_lines: options.AsLinesOption = False,
    terms: options.TermsOption = None,
    to: options.ToOption = None,
    against: Annotated[File, _scores("PATH", "Run, or file of translations, to compare with.")] = None,
    comet: Annotated[str | None, _scores("MODEL", "COMET model, a name or a file (extra: comet).")] = None,
    bleu_tokenizer: Annotated[str | None, _scores("NAME", "Tokenizer of sacreBLEU.", "by the language")] = None,
    split_sentences: options.SplitSentencesOption = None,
    beam_size: options.BeamSizeOption = None,
    length_penalty: options.LengthPenaltyOption = None,
    overrides: options.SetDecodingOption = None,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "auto",
    threads: options.ThreadsOption = None,
    progress: options.ProgressOption = "auto",
) -> None:
    """Score translations of a test set.

    Prints BLEU, chrF, TER, CER and WER, each with its signature.

    Examples:
        mt evaluate --run runs/quickstart
        mt evaluate --source test.en --reference test.it
        mt evaluate --run runs/new --against runs/old --json

    More: docs/translating.md
    """
    _check_test_set(split, source, reference, engine)
    search = options.search_options(overrides, beam_size=beam_size, length_penalty=length_penalty)
    search |= {} if split_sentences is None else {"split_sentences": split_sentences}
    if against is not None and not against.exists():
        raise InputError(f"--against {against}: no such run directory or file")
    check_plain_text(source, reference, None if against and against.is_dir() else against, as_lines=as_lines)
    paths = options.run_paths(run)
    load: Any = partial(options.load_translator, device=device, precision=precision, num_threads=threads)
    translator = load(paths, engine=engine, checkpoint=checkpoint)
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.corpus.cache import Cache
    from mt_cli.evaluation import compare
    from mt_cli.evaluation.evaluate import format_scores
    from mt_cli.evaluation.results import notes_on_comparison, read_report
    from mt_cli.runtime.files import read_model
    from mt_cli.translation.exported import DESCRIPTION, Description

    search["tag"] = translator.target_tag(to) if to or source else None
    languages = translator.tagging.direction(search["tag"], translator.languages)
    if glossary := options.read_terms(terms, languages, translator):
        search["terms"] = glossary
    to = None if to in translator.tagging.tags else to
    config = RunDirectory(paths[0]).config() if engine == "mt" else None
    if source is not None and reference is not None:
        test_set = compare.read_files(source, reference, as_lines).tagged(translator.tagging, search["tag"])
    else:
        assert config is not None  # `_check_test_set` refuses other engines.
        test_set = compare.read_split(RunDirectory(paths[0]), config, split, Cache(RUNS / ".cache"))
    test_set = test_set.into(to) if to else test_set
    direction = languages if to else translator.languages
    scored_with = config or read_model(paths[0] / DESCRIPTION, Description).tokenizer
    scorer = compare.scorer_for(scored_with, test_set.name, direction[1], bool(to), bleu_tokenizer)
    system = compare.System(paths, translator, config, checkpoint, search, direction)
    comet_scorer = compare.load_comet(comet) if comet else None
    scores = compare.evaluate_system(system, test_set, scorer, against, load, comet_scorer)
    if scores.against and against and against.is_dir():
        scores.against.notes = notes_on_comparison([read_report(RunDirectory(path)) for path in (*paths, against)])
    tree = scores.model_dump(exclude_unset=True)
    name = f"{scores.run}, checkpoint {checkpoint}" if checkpoint else scores.run
    show(json.dumps(tree, ensure_ascii=False) if as_json else f"{name}: {format_scores(scores)}")


def _check_test_set(split: str | None, source: Path | None, reference: Path | None, engine: str) -> None:
    if (source is None) != (reference is None) or (source is not None and split is not None):
        raise InputError("give both --source and --reference, or --split")
    if engine != "mt" and source is None:
        raise InputError(f"--engine {engine}: an exported model has no corpora; give --source and --reference")
