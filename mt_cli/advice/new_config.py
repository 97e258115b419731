"""`mt init`: a commented config for some parallel text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from mt_cli.advice.choices import expectation
from mt_cli.advice.decisions import Decision, begun_with, decide
from mt_cli.advice.init import Request
from mt_cli.advice.notes import contents_of_spans
from mt_cli.advice.problems import find_problems, refuse_processed
from mt_cli.advice.sides import NAME_COLUMNS, Given, Sides, Tree, resolve_sides, title_of
from mt_cli.config.loading import parse_config
from mt_cli.config.sources import DatasetSource, FileSource, FilesSource, FolderSource, Source
from mt_cli.config.writing import on_one_line
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.dataset import splits_of
from mt_cli.corpus.languages import language_in, primary
from mt_cli.corpus.lines import suffix_inside
from mt_cli.corpus.protected_text import PATTERNS, Protection
from mt_cli.corpus.rows import Languages, Pair
from mt_cli.corpus.source_rows import read_rows
from mt_cli.data.encode import SIDES
from mt_cli.data.prepare import read, sample
from mt_cli.data.statistics import notes_on_dropped, notes_on_reading
from mt_cli.errors import ColumnError, CorpusError, InputError
from mt_cli.exchange.destinations import describe_destinations, note_on_protection, protects_spans
from mt_cli.training.plan import FIRST_ROUND, SHARE_OF_ROUNDS

_LAST_TRAIN = re.compile(r"^(.*)(?<![^\W\d_])train(?![^\W\d_])")
_WORDS_OF_ROLES = {"valid": ("valid", "validation", "val", "dev"), "test": ("test", "devtest")}
"""Words for validation and test in names of files and splits."""
_ROWS_EXAMINED = 1_000
_MIN_PAIRS = 10
_PAIRS_FOR_KINDS, _LEAST_PAIRS, _LEAST_SHARE, _LEAST_MATCHED = 5_000, 10, 0.002, 0.8
_NEVER_PROPOSED = "numbers"
"""Numbers are often written in words, or otherwise, in the other language."""
_LARGEST_SHARE, _PAIRS_HELD_OUT = 0.1, 1_000


def new_config(
    source: Source,
    languages: Given,
    cache: Cache,
    evaluation: Mapping[str, Source],
    runs: Path,
    request: Request,
) -> tuple[str, str, Sequence[str]]:
    """Name and text of a config that trains on a source, and lines about it for people.

    `evaluation` has the sources of `valid` and `test`; these, `languages` and all of `request` are optional. Raises
    CorpusError if a source cannot be read, InputError if its languages cannot be found, and the errors of `begun_with`.
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
    problems = find_problems(read(decision.config, cache), decision.config, cache)
    refuse_processed(problems, "add --accept-processed")
    counts = corpora["train"].counts()
    dropped = notes_on_dropped(sum(counts.values()), counts)
    notes = [*sides.notes, *notes_on_reading(corpora), *dropped, *([kinds] if kinds else [])]
    (first, second), origins = sides.languages, sides.origins
    lines = [f"languages: {first} to {second} ({first} {origins[0]}, {second} {origins[1]})"]
    lines += [f"note: {note}" for note in notes] + [problem.with_repair for problem in problems]
    roles = [role for role in ("train", "valid", "test") if role in corpus]
    lines += [f"{role}: {on_one_line(corpus[role])}{_origin(role, corpus[role], evaluation)}" for role in roles]
    lines += _describe_texts(texts, sides.languages) if texts else []
    lines.append(f"options for {decision.facts}")
    if parent is None:
        lines.append(f"  expect     {expectation(decision.facts)}")
    lines.append(f"can be exported to: {describe_destinations(decision.config)}")
    if not destination:
        lines.append(
            "  choose before training: --for argos (Argos Translate, LibreTranslate) or --for huggingface "
            "(transformers, and tools for browsers and phones that read its models)"
        )
    if destination and (note := note_on_protection(decision.config, destination)):
        lines.append(f"note: {note}")
    return decision.config.name, _as_yaml(tree, decision, sides.languages, parent), lines


def _origin(role: str, tree: Any, given: Mapping[str, Source]) -> str:
    if role == "train":
        return ""
    if "fraction" in tree:
        share = f"{100 * tree['fraction']:.2g} %"
        return f"  # {share} of train, because no text for validation was found; --valid gives one"
    return f"  # from --{role}" if role in given else "  # found by its name"


def _protect(corpus: dict[str, Any], train: Corpus, tree: Mapping[str, Any], destination: str | None) -> str:
    """Set `protect` to the kinds of span that pairs have on both sides; return a note on them, or an empty text.

    Nothing is set if the program `destination` does not protect spans: its model has to copy them.
    """
    seed = parse_config(tree, "mt init").training.seed
    pairs = [pair for _, pair in train.untagged_pairs(sample(train, _PAIRS_FOR_KINDS, seed))]
    kinds = kinds_in(pairs)
    shown = (f"{kind.name} in {kind.num_pairs:,} ({kind.matched:.0%} on both sides)" for kind in kinds)
    if not kinds:
        return ""
    counts = f"of {len(pairs):,} pairs: {', '.join(shown)}"
    if destination and not protects_spans(destination):
        corpus["protect"] = []
        return f"corpus.protect is empty, because {destination} does not keep spans as they are; {counts}"
    corpus["protect"] = [kind.name for kind in kinds]
    return f"corpus.protect keeps spans as they are; {counts}"


class Kind(NamedTuple):
    """A kind of span in a sample of pairs."""

    name: str
    num_pairs: int
    """Number of pairs whose source has such spans."""
    matched: float
    """Share of the spans of sources that the targets have, 0 to 1."""


def kinds_in(pairs: Sequence[Pair]) -> list[Kind]:
    """Kinds of span that pairs have on both sides: in enough pairs, and mostly with the same text."""
    kinds = []
    for name in (name for name in PATTERNS if name != _NEVER_PROPOSED):
        protection, num_pairs, num_spans, num_matched = Protection((name,)), 0, 0, 0
        for source, target in pairs:
            if spans := contents_of_spans(protection, source):
                num_pairs += 1
                num_spans += spans.total()
                num_matched += (spans & contents_of_spans(protection, target)).total()
        if num_pairs >= max(_LEAST_PAIRS, _LEAST_SHARE * len(pairs)) and num_matched >= _LEAST_MATCHED * num_spans:
            kinds.append(Kind(name, num_pairs, num_matched / num_spans))
    return kinds


def texts_by_side(files: Sequence[str], languages: Languages) -> dict[str, Any]:
    """Value of `corpus.monolingual` for files whose suffixes are languages; raises InputError for another suffix."""
    by_side: dict[str, list[str]] = {}
    for file in files:
        by_side.setdefault(_side_of(file, languages), []).append(file)
    return {side: {"file": paths[0] if len(paths) == 1 else paths} for side, paths in sorted(by_side.items())[::-1]}


def _side_of(file: str, languages: Languages) -> str:
    path = Path(file)
    suffix = suffix_inside(path)[1:]
    code = language_in(suffix) if suffix else None
    for side, language in zip(SIDES, languages, strict=True):
        if suffix == language or (code and primary(code) == primary(language)):
            return side
    first, second = languages
    raise InputError(f"--mono {file}: is it {first} or {second}? End its name in .{first} or .{second}")


def _describe_texts(texts: Mapping[str, Any], languages: Languages) -> Iterator[str]:
    """Lines for people about the use of texts in training."""
    by_side = dict(zip(SIDES, languages, strict=True))
    for side, text in texts.items():
        paths = text["file"] if isinstance(text["file"], list) else [text["file"]]
        yield f"monolingual: {', '.join(paths)} in {by_side[side]}"
    yield (
        f"  the model also learns {languages[1]} to {languages[0]}; after {FIRST_ROUND:.0%} of the updates, when it "
        f"can, it translates lines and learns from the pairs, too: about 1.5 times as many updates, and up to "
        f"{SHARE_OF_ROUNDS:.0%} more time"
    )
    yield (
        "note: this makes a short run worse, because fewer updates are left for each direction; use it where all "
        "updates can be made, and compare (docs/few_pairs.md, step 5)"
    )


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
    return corpus | {"valid": {"fraction": share}} | trees, sides


def text_for_evaluation(source: Source) -> dict[str, Tree]:
    """Sources of `valid` and `test` by the names of files or splits; raises CorpusError for an unknown split."""
    if isinstance(source, FilesSource | FileSource):
        key, paths = ("files", source.files) if isinstance(source, FilesSource) else ("file", (source.file,))
        files = {role: _files_beside(paths, words) for role, words in _WORDS_OF_ROLES.items()}
        return {role: {key: names if len(names) == 2 else names[0]} for role, names in files.items() if names}
    if not isinstance(source, DatasetSource):
        return {}
    splits = splits_of(source)
    if source.split not in splits and not re.search(r"[\[+]", source.split):
        raise CorpusError(
            f"dataset {source.dataset}: no split {source.split!r} among {', '.join(splits)}; choose one of them "
            "(--split, --valid, --test)"
        )
    tree = source.model_dump(mode="json", exclude_unset=True)
    free = [split for split in splits if split not in source.split]
    named = {role: next((word for word in words if word in free), None) for role, words in _WORDS_OF_ROLES.items()}
    return {role: {**tree, "split": split} for role, split in named.items() if split}


def _files_beside(paths: Sequence[str], words: Sequence[str]) -> list[str]:
    """Files with one of the words in place of the last `train` of each name; empty if they do not exist."""
    for word in words:
        files = [str(Path(path).with_name(_LAST_TRAIN.sub(rf"\g<1>{word}", Path(path).name))) for path in paths]
        if not set(files) & {str(Path(path)) for path in paths} and all(map(os.path.isfile, files)):
            return files
    return []


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
        stem = source.root.absolute().name
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
