"""`mt init`: a commented config for some parallel text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from mt_cli.advice.decisions import Decision, begun_with, decide, describe, notes_on_parents
from mt_cli.advice.evaluation_text import evaluation_files_beside, text_for_evaluation
from mt_cli.advice.forecast import expectation
from mt_cli.advice.init import Request
from mt_cli.advice.notes import proposed_kinds
from mt_cli.advice.one_language import describe_texts, texts_by_side
from mt_cli.advice.problems import find_problems, refuse_processed
from mt_cli.advice.sides import NAME_COLUMNS, Given, Sides, Tree, resolve_sides, title_of
from mt_cli.checkpoint.parent import inherited
from mt_cli.config.loading import config_of_text, parse_config
from mt_cli.config.sections import Config
from mt_cli.config.sources import DatasetSource, FilesSource, FolderSource, HeldOut, Source
from mt_cli.config.writing import on_one_line
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.rows import Languages
from mt_cli.corpus.source_rows import read_rows
from mt_cli.data.encode import SIDES
from mt_cli.data.prepare import read
from mt_cli.data.statistics import notes_on_reading
from mt_cli.errors import ColumnError, CorpusError, InputError
from mt_cli.exchange.destinations import CHOOSE_FIRST, describe_destinations, note_on_protection, protects_spans

_ROWS_EXAMINED = 1_000
_MIN_PAIRS = 10
_LARGEST_SHARE, _PAIRS_HELD_OUT = 0.1, 1_000
_FEW_WORDS = 300_000
"""Number of target words up to which a note names another run to begin with."""


class NewConfig(NamedTuple):
    """Config with comments, and a description of the choices."""

    name: str
    text: str
    lines: Sequence[str]
    """Choices and their reasons, for people."""


def new_config(
    source: Source,
    languages: Given,
    cache: Cache,
    evaluation: Mapping[str, Source],
    runs: Path,
    request: Request,
) -> NewConfig:
    """Make a config that trains on a source; `languages`, `evaluation` and all of `request` are optional.

    `evaluation` has the sources of `valid` and `test`. Without a parent, for few pairs, a note names a run below `runs`
    to begin with. Raises CorpusError if a source cannot be read, InputError if its languages cannot be found, and the
    errors of `begun_with`.
    """
    parent, destination = request.parent, request.destination
    corpus, sides = _corpus_of(source, languages, evaluation)
    corpus |= {"accept_processed": True} if request.accept_processed else {}
    texts = texts_by_side(request.mono, sides.languages) if request.mono else {}
    corpus |= {"monolingual": texts} if texts else {}
    tree = {"name": request.name or _name_of(source, sides.languages), "corpus": corpus}
    corpora = read(parse_config(tree, "mt init"), cache)
    kinds = _protect(corpus, corpora["train"], tree, destination) if parent is None else ""
    if parent is None:
        decision = decide(parse_config(tree, "mt init"), cache, destination=destination)
    else:
        tree, decision = begun_with(parent, tree, cache, runs, destination)
    text = _as_yaml(tree, decision, sides.languages, parent)
    written = config_of_text(text, "mt init")
    if (inherited(written, decision.config, "mt init") if parent else written) != decision.config:
        raise InputError(f"{title_of(source)}: its names cannot be written in a config; rename them, or use other ones")
    problems = find_problems(read(decision.config, cache), decision.config, cache)
    refuse_processed(problems, "add --accept-processed")
    notes = [*sides.notes, *notes_on_reading(corpora), *([kinds] if kinds else [])]
    (first, second), origins = sides.languages, sides.origins
    lines = [f"languages: {first} to {second} ({first} {origins[0]}, {second} {origins[1]})"]
    lines += [f"note: {note}" for note in notes] + [str(problem) for problem in problems]
    lines += _corpora_described(decision.config, evaluation)
    lines += describe_texts(texts, sides.languages) if texts else []
    lines += describe(decision)
    lines.append(f"can be exported to: {describe_destinations(decision.config)}")
    if not destination:
        lines.append(f"  {CHOOSE_FIRST}")
    if destination and (note := note_on_protection(decision.config, destination)):
        lines.append(f"note: {note}")
    if parent is None and decision.facts.num_target_words <= _FEW_WORDS:
        lines += [f"note: {note}" for note in islice(notes_on_parents(runs, sides.languages), 1)]
    return NewConfig(decision.config.name, text, lines)


def _protect(corpus: dict[str, Any], train: Corpus, tree: Mapping[str, Any], destination: str | None) -> str:
    """Set `protect` to the kinds of span that pairs have on both sides; return a note on them, or an empty text.

    Nothing is set if the program `destination` does not protect spans: its model has to copy them.
    """
    kinds, number = proposed_kinds(train, parse_config(tree, "mt init"))
    shown = (f"{kind.name} in {kind.num_pairs:,} ({kind.matched:.0%} on both sides)" for kind in kinds)
    if not kinds:
        return ""
    pairs = f"of {number:,} pairs: {', '.join(shown)}"
    if destination and not protects_spans(destination):
        corpus["protect"] = []
        return f"corpus.protect is empty, because {destination} does not keep spans as they are; {pairs}"
    corpus["protect"] = [kind.name for kind in kinds]
    return f"corpus.protect keeps spans as they are; {pairs}"


def _corpora_described(config: Config, given: Mapping[str, Source]) -> Iterator[str]:
    corpus = config.corpus
    for role, sources in {"train": corpus.train, "valid": corpus.valid, "test": corpus.test or ()}.items():
        origin = f", from --{role}" if role in given else ", found by its name" if role != "train" else ""
        for source in [sources[number] for number in corpus.once(role)] if role == "train" else sources:
            if isinstance(source, HeldOut):
                beside = evaluation_files_beside(corpus.train[0])
                reason = f"{', '.join(beside)}: not used" if beside else "no name says that a file or split is for it"
                yield f"{role}: {source.fraction:g} of train, held out ({reason}; --{role} names text for validation)"
                continue
            part = f"split {source.split} of " if isinstance(source, DatasetSource) else ""
            columns = " and ".join(getattr(source, "columns", None) or ())
            yield f"{role}: {part}{title_of(source)}{columns and f', columns {columns}'}{origin}"


def _corpus_of(source: Source, given: Given, evaluation: Mapping[str, Source]) -> tuple[Tree, Sides]:
    title, sides, by_name = title_of(source), resolve_sides(source, given), text_for_evaluation(source)
    train, num_rows = _examined(source, sides)
    if num_rows < _MIN_PAIRS and "valid" not in {*by_name, *evaluation}:
        raise CorpusError(
            f"{title}: {num_rows} pairs are too few to hold some of them out for validation; add pairs, or a file for "
            "validation beside it"
        )
    options = {key: train[key] for key in ("columns", "format", "skip_damaged") if key in train}
    trees = {role: tree | options for role, tree in by_name.items()}
    for role, other in evaluation.items():
        trees[role], _ = _examined(other, resolve_sides(other, sides.languages, train.get("columns")))
    if train in trees.values():
        raise InputError(f"{title}: is the text to train on; give other text for evaluation")
    if trees.get("valid") == trees.get("test"):  # One is from an option, the other by its name.
        trees = {role: tree for role, tree in trees.items() if role in evaluation}
    share = float(f"{min(_LARGEST_SHARE, _PAIRS_HELD_OUT / num_rows):.1g}")
    corpus: Tree = {"source": sides.languages[0], "target": sides.languages[1], "train": train}
    return corpus | {"valid": {"fraction": share, "seed": 1}} | trees, sides


def _examined(source: Source, sides: Sides) -> tuple[Tree, int]:
    """Source as in a config, and its number of rows.

    Raises CorpusError if it is empty, or the first rows have no letters on a side or one text on both.
    """
    title, tree = title_of(source), source.model_dump(mode="json", exclude_unset=True) | sides.options
    rows = read_rows(type(source).model_validate(tree), sides.languages)
    try:
        beginning = list(islice(rows, _ROWS_EXAMINED))
        num_rows = len(beginning) + sum(1 for _ in rows)
    except ColumnError as error:
        raise CorpusError(f"{error.problem}; {NAME_COLUMNS}") from None
    if not num_rows:
        raise CorpusError(f"{title}: the corpus is empty")
    if all(source == target for _, source, target in beginning):
        raise CorpusError(f"{title}: both sides are the same text")
    for side, lines in zip(SIDES, list(zip(*beginning, strict=True))[1:], strict=True):
        if not any(map(str.isalpha, "".join(lines))):
            raise CorpusError(f"{title}: the {side} has no letters in the first {len(lines):,} pairs; {NAME_COLUMNS}")
    return tree, num_rows


def _name_of(source: Source, languages: Languages) -> str:
    if isinstance(source, DatasetSource):
        stem = Path(source.dataset).name
    elif isinstance(source, FolderSource):
        stem = Path(source.folder).absolute().name
    else:
        path = Path(source.files[0] if isinstance(source, FilesSource) else str(getattr(source, "file", "")))
        stem = path.name.split(".")[0]
        stem = path.absolute().parent.name if stem == "train" else stem
    # Names of directories have a limit in bytes.
    return re.sub(r"[^\w-]+", "_", f"{stem[:40]}_{languages[0]}_{languages[1]}").lstrip("_-")[:60]


def _as_yaml(tree: Tree, decision: Decision, languages: Languages, parent: Path | None) -> str:
    end = f"; begins with {parent}." if parent else f". Expect {expectation(decision.facts)}"
    destination = decision.facts.destination
    command = f"mt init --for {destination}" if destination else "mt init"
    heading = f"{languages[0]} to {languages[1]}, written by `{command}` from {decision.facts}{end}"
    exports = f"Can be exported to: {describe_destinations(decision.config)}."
    lines = [f"# {line}" for text in (heading, exports) for line in wrap(text, 110)]
    lines.append(f"name: {on_one_line(tree['name'])}  # the directory below runs")
    if "init" in tree:
        lines.append(f"init: {on_one_line(tree['init'])}  # its weights, tokenizer and model")
    comments = {
        "valid": "held out from train" if "fraction" in tree["corpus"]["valid"] else "selects the best checkpoint",
        "test": "scored at the end",
        "monolingual": "text of one language, which the model translates while it learns",
        "protect": "spans that translations keep as they are"
        if tree["corpus"].get("protect")
        else f"{destination} does not keep spans as they are, so the model learns to copy them",
        "accept_processed": "the model needs and gives text in this form",
    }
    lines.append("corpus:")
    for key, value in tree["corpus"].items():
        lines.append(f"  {key}: {on_one_line(value)}" + (f"  # {comments[key]}" if key in comments else ""))
    for section, chosen in decision.choices.items():
        lines.append(f"{section}:")
        for key, choice in chosen.items():
            if (section, key) != ("training", "max_steps") or choice.value is not None:
                lines.append(f"  {key}: {on_one_line(choice.value)}  # {choice.why}")
    return "\n".join(lines) + "\n"
