"""`mt init`: a commented config for some parallel text. What can be seen in names and texts is not asked for."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from textwrap import wrap

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.loading import config_of_text, parse_config
from mt_cli.config.sections import Config
from mt_cli.config.sources import DatasetSource, FilesSource, FolderSource, HeldOut, Source
from mt_cli.config.writing import on_one_line
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.cleaning import KEPT
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.languages import is_common, primary
from mt_cli.corpus.orthography import Stretch, find_stretches
from mt_cli.corpus.rows import Languages, Row
from mt_cli.corpus.sources import read_rows
from mt_cli.data.describe import notes_on_reading
from mt_cli.data.prepare import read
from mt_cli.errors import ColumnError, CorpusError, InputError
from mt_cli.features.data_check.findings import Finding
from mt_cli.features.data_check.problems import find_problems
from mt_cli.features.exchange.huggingface import unsupported
from mt_cli.features.fine_tuning.parent import inherited
from mt_cli.features.recipes.auto import Choice, Decision, decide, describe
from mt_cli.features.recipes.child import begun_with, notes_on_parents
from mt_cli.features.recipes.direction import in_given_order
from mt_cli.features.recipes.levels import expectation, is_smaller, level_of, size_of
from mt_cli.features.recipes.naming import Found, Tree, is_gettext, look, source_of_folder, title_of
from mt_cli.features.recipes.sides import (
    OWN_COLUMNS,
    Detected,
    columns_and_languages,
    detected,
    has_columns,
    refuse_unknown_codes,
)

_ROWS_EXAMINED = 1_000
_MIN_PAIRS = 10
_LARGEST_SHARE, _PAIRS_HELD_OUT = 0.1, 1_000
_MAX_NAME_BYTES = 200
_FEW_WORDS = 300_000
"""Target words up to which another run to begin with is named."""


@dataclass(frozen=True)
class NewConfig:
    """A config with comments, and what was chosen."""

    config: Config
    text: str
    lines: Sequence[str]
    """What was chosen and why, for people."""
    problems: Sequence[Finding] = ()
    """What is wrong with the text, or worth a note."""


def new_config(
    source: Source,
    languages: tuple[str | None, str | None],
    name: str | None,
    cache: Cache,
    evaluation: Mapping[str, Source] | None = None,
    runs: Path | None = None,
    parent: Path | None = None,
    accept_processed: bool = False,
) -> NewConfig:
    """A config that trains on a source; `languages`, `name` and `evaluation` are used where they are given.

    `evaluation` has the sources of `valid` and `test`. Training begins with the run `parent`; without one, for few
    pairs, a note names a run below `runs` to begin with. `accept_processed` is written into the config. Raises
    CorpusError if a source cannot be read, InputError if its languages cannot be found, and the errors of `begun_with`.
    """
    corpus, sides = _corpus_of(source, languages, evaluation or {})
    corpus |= {"accept_processed": True} if accept_processed else {}
    both = sides.languages
    tree = {"name": name or _name_of(source, both, parent), "corpus": corpus, "preset": "auto"}
    config = parse_config(tree, "mt init")
    try:
        corpora = read(config, cache)
        stretches, is_left_out = _other_orthography(corpora, config.corpus)
        if is_left_out:
            corpus["filters"] = {"other_orthography": True}
            config = parse_config(tree, "mt init")
        if parent is None:
            found = _with_planned_device(decide(config, cache))
        else:
            tree, found = begun_with(parent, tree, cache, runs or Path("runs"))
    except CorpusError as error:  # Filters drop text in another language.
        raise CorpusError("; ".join([str(error), *sides.notes])) from None
    heading = _heading(both, found, parent)
    text = _as_yaml(tree, found, heading, ", ".join(" ".join(f"{each}".split()) for each in stretches))
    _check_written(text, found.config, parent is not None, title_of(source))
    problems = _problems(found.config, cache)
    lines = [f"languages: {both[0]} to {both[1]} ({both[0]} {sides.origins[0]}, {both[1]} {sides.origins[1]})"]
    notes = [*sides.notes, *notes_on_reading(corpora), *_notes_on(stretches, config.corpus, is_left_out)]
    lines += [f"note: {note}" for note in [*notes, *(each.message for each in problems if each.is_note)]]
    lines += [f"{role}: {text}" for role, text in _described(found.config, evaluation or {})]
    lines += describe(found.facts, found.choices, parse_config(tree, "mt init"), found.config)
    if runs is not None and parent is None and found.facts.num_target_words <= _FEW_WORDS:
        lines += [f"note: {note}" for note in islice(notes_on_parents(runs, both), 1)]
    return NewConfig(found.config, text, lines, problems)


def _heading(languages: Languages, found: Decision, parent: Path | None) -> str:
    """The first comment of a config."""
    end = f"; begins with {parent}." if parent else f". Expect {expectation(found.facts)}"
    return f"{languages[0]} to {languages[1]}, written by `mt init` from {found.facts}{end}"


def _with_planned_device(found: Decision) -> Decision:
    """The decision with `training.planned_for` in the config if the model is smaller because of the CPU."""
    level = level_of(found.facts)
    if found.facts.device != "cpu" or found.facts.max_minutes or not is_smaller(size_of(level, found.facts)[0], level):
        return found
    choice = Choice("cpu", "these pairs allow a larger model, on a GPU")
    training = found.config.training.model_copy(update={"planned_for": choice.value})
    return replace(
        found,
        choices={**found.choices, "training": {**found.choices["training"], "planned_for": choice}},
        config=found.config.model_copy(update={"training": training}),
    )


def config_of_folder(folder: str, cache: Cache) -> Config:
    """The config that `mt init FOLDER` writes; raises the errors of `new_config`."""
    return new_config(source_of_folder(folder), (None, None), None, cache).config


def _check_written(text: str, config: Config, has_parent: bool, title: str) -> None:
    """Raise InputError if the text of a config does not give the config."""
    written = config_of_text(text, "mt init")
    if (inherited(written, config, "mt init") if has_parent else written) != config:
        raise InputError(f"{title}: its names cannot be written in a config; rename them, or use other ones")


def _problems(config: Config, cache: Cache) -> list[Finding]:
    return find_problems(read(config, cache), config, cache)


def _other_orthography(corpora: Mapping[str, Corpus], config: CorpusConfig) -> tuple[list[Stretch], bool]:
    """What is spelled otherwise than `valid` or `test`, and whether to leave it out: if it is less than half."""
    train, compared = corpora["train"], corpora.get(config.compared or "")
    stretches = list(find_stretches(train, compared, config, range(len(train.parts))))
    num_pairs = len({row for each in stretches for row in each.rows[train.statuses[each.rows] == KEPT].tolist()})
    return stretches, 0 < num_pairs < len(train) / 2


def _notes_on(stretches: Sequence[Stretch], config: CorpusConfig, are_left_out: bool) -> Iterator[str]:
    end = "left out by corpus.filters.other_orthography" if are_left_out else "not left out, as it is most of train"
    for each in stretches:
        letters = f"letters in {each.language} unlike those of {config.compared} ({each.difference})"
        yield f"{each}: {letters}, as in another orthography; {end}"


def _described(config: Config, given: Collection[str]) -> Iterator[tuple[str, str]]:
    """What is trained and evaluated on, for people; sources for the roles `given` are from options."""
    corpus = config.corpus
    groups = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test or (), **corpus.extra_tests}
    for role, sources in groups.items():
        by = ", from --" + role if role in given else ", found by its name" if role != "train" else ""
        for source in sources:
            if isinstance(source, HeldOut):
                yield (
                    role,
                    f"{source.fraction:g} of train, held out: no name says that a file or split is for validation; "
                    "--valid gives one",
                )
            elif isinstance(source, DatasetSource):
                yield role, f"split {source.split} of {title_of(source)}" + (by if role in given else "")
            else:
                columns = zip(corpus.languages, getattr(source, "columns", None) or (), strict=False)
                named = "".join(f", {language} from `{column}`" for language, column in columns if language != column)
                yield role, title_of(source) + named + ", sides exchanged" * source.reverse + by


def _corpus_of(
    source: Source, given: tuple[str | None, str | None], evaluation: Mapping[str, Source]
) -> tuple[Tree, Detected]:
    """The section `corpus` for a source, and its languages."""
    found = look(source)
    train, named = _tree_of(source, found, given)
    beginning, num_rows = _beginning(type(source).model_validate(train), named, found)
    if beginning and all(one == other for _, one, other in beginning):
        raise CorpusError(f"{title_of(source)}: both sides are the same text")
    if num_rows < _MIN_PAIRS and "valid" not in {*found.evaluation, *evaluation}:
        raise CorpusError(
            f"{title_of(source)}: {num_rows} pairs are too few to hold some of them out for validation; add pairs, or "
            "a file for validation beside it"
        )
    oriented = in_given_order(type(source).model_validate(train), found, given, named, beginning)
    train = _with_reverse(train, oriented.source)
    sides = detected(given, oriented.named, oriented.rows, source)
    sides = replace(sides, notes=[*found.notes, *oriented.notes, *sides.notes, *_note_on_header(source, found, sides)])
    others = _evaluation(found, train, sides.languages, evaluation, title_of(source))
    share = float(f"{min(_LARGEST_SHARE, _PAIRS_HELD_OUT / num_rows):.1g}")
    corpus = {"source": sides.languages[0], "target": sides.languages[1], "train": train}
    corpus["valid"] = others.pop("valid", {"fraction": share, "seed": 1})
    corpus |= {"test": others.pop("test")} if "test" in others else {}
    return corpus | ({"extra_tests": others} if others else {}), sides


def _note_on_header(source: Source, found: Found, sides: Detected) -> Iterator[str]:
    """A note if the headers of catalogues name another language than both sides are said to be in."""
    headers, both = {primary(name) for name in found.names}, {primary(each) for each in sides.languages}
    if is_gettext(source) and headers and not headers & both:
        yield (
            f"{title_of(source)}: the headers say {', '.join(found.names)}, and neither {sides.languages[0]} nor "
            f"{sides.languages[1]}; check the language of the translations"
        )


def _evaluation(found: Found, train: Tree, languages: Languages, given: Mapping[str, Source], title: str) -> Tree:
    """The sources for validation and test: those given, and for other roles what is found by its name."""
    columns = {key: train[key] for key in ("columns", "format", "reverse", "skip_damaged") if key in train}
    own = {role: _evaluation_tree(each, languages, train.get("columns")) for role, each in given.items()}
    if train in own.values():
        raise InputError(f"{title}: is the text to train on; give other text for evaluation")
    by_name = {role: {**each, **columns} for role, each in found.evaluation.items()}
    # Further test sets are not wanted beside the one that is given.
    roles = [role for role in by_name if role == "valid" or "test" not in own]
    return {role: by_name[role] for role in roles if by_name[role] not in own.values()} | own


def _tree_of(
    source: Source, found: Found, given: tuple[str | None, str | None]
) -> tuple[Tree, tuple[str | None, str | None]]:
    """A source as in a config, with its columns, and its languages as far as they are given or in names."""
    columns, named = columns_and_languages(source, found, given)
    refuse_unknown_codes(source, found, columns, named)
    tree = source.model_dump(mode="json", exclude_unset=True) | ({"columns": list(columns)} if columns else {})
    options = {"skip_damaged", "inline_codes", "reverse"}
    return {key: tree[key] for key in sorted(tree, key=options.__contains__)}, named


def _evaluation_tree(source: Source, languages: Languages, columns: Sequence[str] | None) -> Tree:
    """A source for validation or test as in a config, with the `columns` of the training text if it has them.

    Raises InputError if it cannot be read in these languages.
    """
    found = look(source)
    if columns and found.varieties is None and has_columns(source, columns, found.names):
        source = source.model_copy(update={"columns": tuple(columns)})
    tree, named = _tree_of(source, found, languages)
    beginning, _ = _beginning(type(source).model_validate(tree), languages, found)
    oriented = in_given_order(type(source).model_validate(tree), found, languages, named, beginning)
    detected(languages, languages, oriented.rows, source)
    return _with_reverse(tree, oriented.source)


def _with_reverse(tree: Tree, source: Source) -> Tree:
    """A source as in a config, whose sides are exchanged if those of `source` are."""
    return {**tree, "reverse": True} if source.reverse else {key: tree[key] for key in tree if key != "reverse"}


def _beginning(source: Source, named: tuple[str | None, str | None], found: Found) -> tuple[list[Row], int]:
    """The first rows with text on both sides, and the number of all rows; raises CorpusError if there are none."""
    num_rows, beginning = 0, list[Row]()
    try:
        for row in read_rows(source, (named[0] or "source", named[1] or "target")):
            num_rows += 1
            if len(beginning) < _ROWS_EXAMINED and row[1].strip() and row[2].strip():
                beginning.append(row)
    except ColumnError as error:
        names = ", ".join(found.names)
        raise CorpusError(f"{error.problem}; there are the columns {names}; {OWN_COLUMNS}") from None
    if not num_rows:
        raise CorpusError(f"{title_of(source)}: the corpus is empty")
    if not beginning:
        listed = f"; it has {', '.join(found.names)}" if any(found.names) else ""
        raise CorpusError(f"{title_of(source)}: no pair has text on both sides{listed}")
    return beginning, num_rows


def _name_of(source: Source, languages: Languages, parent: Path | None) -> str:
    """A name for the run: that of the file, dataset or folder, and the languages; not that of its parent."""
    if isinstance(source, DatasetSource):
        stem = Path(source.dataset).name
    elif isinstance(source, FolderSource):
        stem = Path(source.folder).absolute().name
    else:
        path = Path(source.files[0] if isinstance(source, FilesSource) else str(getattr(source, "file", "")))
        parts = re.split(r"[._-]", path.name.split(".")[0])
        words = [word for word in parts if word and not is_common(word) and word not in languages]
        stem = "_".join(words) if words and words != ["train"] else path.absolute().parent.name
    text = re.sub(r"[^\w-]+", "_", f"{stem}_{languages[0]}_{languages[1]}").lstrip("_-")[:100]
    own = text.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")  # Names of files have a limit in bytes.
    return f"{own[:98]}_2" if parent is not None and parent.name == own else own


def _as_yaml(tree: Tree, found: Decision, heading: str, left_out: str) -> str:
    """The text of a config: a comment for each value that was chosen."""
    return "\n".join([*(f"# {line}" for line in wrap(heading, 110)), *_lines(tree, found, left_out)]) + "\n"


def _lines(tree: Tree, found: Decision, left_out: str) -> Iterator[str]:
    yield f"name: {on_one_line(tree['name'])}  # the directory below runs"
    if "init" in tree:
        yield f"init: {on_one_line(tree['init'])}  # its weights, tokenizer and model"
    yield "corpus:"
    held_out = "fraction" in tree["corpus"]["valid"]
    why = {"valid": "held out from train" if held_out else "selects the best checkpoint", "test": "scored at the end"}
    why["accept_processed"] = "the model needs and gives text in this form"
    why["filters"] = f"leaves out {left_out}: spelled otherwise than {found.config.corpus.compared}"
    for key, value in tree["corpus"].items():
        yield f"  {key}: {on_one_line(value)}" + (f"  # {why[key]}" if key in why else "")
    problems = unsupported(found.config)
    exportable = {problem.key: problem.instead for problem in problems}
    for section, chosen in found.choices.items():
        yield f"{section}:"
        for key, choice in chosen.items():
            if (section, key) != ("training", "max_steps") or choice.value is not None:
                instead = exportable.get(f"{section}.{key}")
                note = f"; mt export --format huggingface needs {instead}" if instead else ""
                yield f"  {key}: {on_one_line(choice.value)}  # {choice.why}{note}"
