"""`mt init`: a commented config for some parallel text. What can be seen in names and texts is not asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from mt_cli import hooks
from mt_cli.config.corpora import DatasetSource, FileSource, FilesSource, FolderSource, HeldOut, Source
from mt_cli.config.loading import config_of_text, parse_config
from mt_cli.config.sections import Config
from mt_cli.config.writing import on_one_line
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.languages import LANGUAGE_CODE, code_of, is_known, language_of_texts, primary
from mt_cli.corpus.rows import Columns, Languages, Row
from mt_cli.corpus.sources import read_rows
from mt_cli.errors import ColumnError, CorpusError, InputError
from mt_cli.extras.recipes.auto import Decision, decide, describe, expectation
from mt_cli.extras.recipes.naming import (
    NO_CODES,
    Found,
    Tree,
    is_unknown_code,
    look,
    source_of_folder,
    title_of,
    unknown_codes_in,
)

_ROWS_EXAMINED = 1_000
_MIN_PAIRS = 10
_LARGEST_SHARE, _PAIRS_HELD_OUT = 0.1, 1_000
_MAX_NAME_BYTES = 200
_SIDES = ("source", "target")
_HEADINGS = (_SIDES, ("src", "tgt"), ("src", "trg"))
_OWN_COLUMNS = "name the two columns with --columns SOURCE TARGET"


@dataclass(frozen=True)
class NewConfig:
    """A config with comments, and what was chosen."""

    config: Config
    text: str
    lines: Sequence[str]
    """What was chosen and why, for people."""


def new_config(source: Source, languages: tuple[str | None, str | None], name: str | None, cache: Cache) -> NewConfig:
    """A config that trains on a source; `languages` and `name` are used where they are given.

    Raises CorpusError if the source cannot be read, and InputError if its languages cannot be found.
    """
    corpus, origins = _corpus_of(source, languages)
    both = corpus["source"], corpus["target"]
    tree = {"name": name or _name_of(source, both), "corpus": corpus, "preset": "auto"}
    config = parse_config(tree, "mt init")
    found = decide(config, cache)
    heading = f"{both[0]} to {both[1]}, written by `mt init` from {found.facts}. Expect {expectation(found.facts)}"
    text = _as_yaml(tree, found, heading)
    if config_of_text(text, "mt init") != found.config:
        raise InputError(f"{title_of(source)}: its names cannot be written in a config; rename them, or use other ones")
    lines = [f"languages: {both[0]} to {both[1]} ({both[0]} {origins[0]}, {both[1]} {origins[1]})"]
    lines += [f"{role}: {text}" for role, text in _described(found.config)]
    return NewConfig(found.config, text, [*lines, *describe(found.facts, found.choices, config, found.config)])


def config_of_folder(folder: str, cache: Cache) -> Config:
    """The config that `mt init FOLDER` writes; raises the errors of `new_config`."""
    return new_config(source_of_folder(folder), (None, None), None, cache).config


def _described(config: Config) -> Iterator[tuple[str, str]]:
    """What is trained and evaluated on, for people."""
    corpus = config.corpus
    groups = {"train": corpus.train, "valid": corpus.valid, "test": corpus.test or (), **corpus.extra_tests}
    for role, sources in groups.items():
        for source in sources:
            if isinstance(source, HeldOut):
                yield (
                    role,
                    f"{source.fraction:g} of train, held out: no name says that a file or split is for validation",
                )
            elif isinstance(source, DatasetSource):
                yield role, f"split {source.split} of {title_of(source)}"
            else:
                columns = zip(corpus.languages, getattr(source, "columns", None) or (), strict=False)
                named = "".join(f", {language} from `{column}`" for language, column in columns if language != column)
                yield role, title_of(source) + named + (", found by its name" if role != "train" else "")


def _corpus_of(source: Source, given: tuple[str | None, str | None]) -> tuple[Tree, list[str]]:
    """The section `corpus` for a source, and where each of its languages is from, for people."""
    found = look(source)
    columns, named = _columns_and_languages(source, found, given)
    _refuse_unknown_codes(source, found, columns, named)
    extra = {"columns": list(columns)} if columns else {}
    train = source.model_dump(mode="json", exclude_unset=True) | extra
    beginning, num_rows = _beginning(type(source).model_validate(train), named, found)
    if not num_rows:
        raise CorpusError(f"{title_of(source)}: the corpus is empty")
    if beginning and all(one == other for _, one, other in beginning):
        raise CorpusError(f"{title_of(source)}: both sides are the same text")
    if not beginning:
        listed = f"; it has {', '.join(found.names)}" if any(found.names) else ""
        raise CorpusError(f"{title_of(source)}: no pair has text on both sides{listed}")
    if num_rows < _MIN_PAIRS and "valid" not in found.evaluation:
        raise CorpusError(
            f"{title_of(source)}: {num_rows} pairs are too few to hold some of them out for validation; add pairs, or "
            "a file for validation beside it"
        )
    both = _detected(named, beginning, source)
    evaluation = {role: {**each, **extra} for role, each in found.evaluation.items()}
    share = float(f"{min(_LARGEST_SHARE, _PAIRS_HELD_OUT / num_rows):.1g}")
    corpus = {"source": both[0], "target": both[1], "train": train}
    corpus["valid"] = evaluation.pop("valid", {"fraction": share, "seed": 1})
    corpus |= {"test": evaluation.pop("test")} if "test" in evaluation else {}
    origins = [
        f"from --{side}-language" if option else "from a name" if name else "recognised by its words"
        for side, option, name in zip(_SIDES, given, named, strict=True)
    ]
    return corpus | ({"extra_tests": evaluation} if evaluation else {}), origins


def _beginning(source: Source, named: tuple[str | None, str | None], found: Found) -> tuple[list[Row], int]:
    """The first rows with text on both sides, and the number of all rows."""
    num_rows, beginning = 0, list[Row]()
    try:
        for row in read_rows(source, (named[0] or "source", named[1] or "target")):
            num_rows += 1
            if len(beginning) < _ROWS_EXAMINED and row[1].strip() and row[2].strip():
                beginning.append(row)
    except ColumnError as error:
        names = ", ".join(found.names)
        raise CorpusError(f"{error.problem}; there are the columns {names}; {_OWN_COLUMNS}") from None
    return beginning, num_rows


def _refuse_unknown_codes(
    source: Source, found: Found, columns: Columns, languages: tuple[str | None, str | None]
) -> None:
    """Raise InputError for names that may be codes that are not known: words would find another language."""
    if isinstance(source, FilesSource):
        names = unknown_codes_in(source.files)
    else:
        names = [name if is_unknown_code(name) else "" for name in columns or ()]
    for side, language, name in zip(_SIDES, languages, names, strict=False):
        if language is None and name:
            raise InputError(
                f"{title_of(source)}: the language of the {side} is not known: {name} is no code that mt knows; if it "
                f"is one, give --{side}-language {name}, otherwise the code of the language"
            )


def _columns_and_languages(
    source: Source, found: Found, given: tuple[str | None, str | None]
) -> tuple[Columns, tuple[str | None, str | None]]:
    """Columns, None for the default ones, and the languages as far as they are given or in names."""
    if isinstance(source, FilesSource):
        own = found.names if found.names[0] != found.names[1] else ("", "")
        return None, (given[0] or own[0] or None, given[1] or own[1] or None)
    if isinstance(source, FileSource | FolderSource | DatasetSource) and (columns := source.columns) is not None:
        if missing := [name for name in columns if name not in found.names]:
            raise InputError(f"{title_of(source)}: no column {missing[0]!r} among {', '.join(found.names)}")
        # `sentence_eng_Latn` has a code behind a word.
        own_codes = [_code_of(name, found) or code_of(name.partition("_")[2]) for name in columns]
        return columns, (given[0] or own_codes[0], given[1] or own_codes[1])
    column_of = {code: name for name in reversed(found.names) if (code := _code_of(name, found))}
    codes = list(reversed(column_of))
    if len(found.names) > 2 and "id" in codes and not found.are_languages:
        codes.remove("id")  # Numbers, rather than Indonesian.
    rest = [code for code in codes if primary(code) not in {primary(each) for each in given if each}]
    num_missing = given.count(None)
    if num_missing and len(rest) > num_missing:
        raise InputError(
            f"{title_of(source)}: there are the languages {', '.join(codes)}; choose with --source-language and "
            "--target-language"
        )
    is_named = len(rest) == num_missing
    source_language, target_language = (each or (rest.pop(0) if is_named else None) for each in given)
    languages = source_language, target_language
    if found.are_languages and _has_default_columns(source):
        return None, languages  # A translation memory has no columns.
    has_heading = found.are_languages or not _has_default_columns(source) or _are_codes(found.names)
    columns = _columns_named(languages, column_of, found.names, has_heading)
    columns = columns or _columns_by_heading(source, found.names, has_heading)
    if columns:  # Perhaps only one of them is named like a language.
        languages = languages[0] or _code_of(columns[0], found), languages[1] or _code_of(columns[1], found)
    return (None if columns == languages else columns), languages


def _code_of(name: str, found: Found) -> str | None:
    """The language that a name stands for, as a code or by its English name; None if it stands for none."""
    is_code = found.are_languages and LANGUAGE_CODE.fullmatch(name) and name not in NO_CODES
    return name if is_code else code_of(name)


def _columns_named(
    languages: tuple[str | None, str | None], column_of: Mapping[str, str], names: Sequence[str], has_heading: bool
) -> Columns:
    """The columns whose names are, or stand for, the two languages; None if there is not one for each."""
    by_language = {primary(code): name for code, name in column_of.items()} | {name: name for name in names}
    named = [by_language.get(each, by_language.get(primary(each))) if each else None for each in languages]
    if has_heading and len(names) == 2 and named.count(None) == 1:
        # The other name is that of the other language, perhaps as a code that is not known.
        named[named.index(None)] = next(name for name in names if name not in named)
    source, target = named
    return None if source is None or target is None else (source, target)


def _columns_by_heading(source: Source, names: Sequence[str], has_heading: bool) -> Columns:
    """The columns `source` and `target`, or the only two; None for the default ones.

    Raises InputError if there are others.
    """
    headings = next((pair for pair in _HEADINGS if set(pair) <= set(names)), None)
    if headings or not has_heading or not names:
        return headings
    if len(names) != 2:
        found = ", ".join(names)
        problem = f"which of its columns {found} are source and target is not clear"
        raise InputError(f"{title_of(source)}: {problem}; {_OWN_COLUMNS}")
    return names[0], names[1]


def _are_codes(names: Sequence[str]) -> bool:
    """Whether the first cells of a table are codes, at least one of them known, rather than text."""
    return all(map(LANGUAGE_CODE.fullmatch, names)) and any(map(is_known, names))


def _has_default_columns(source: Source) -> bool:
    """Whether a file without headings has columns: a table of text, or a format without columns."""
    name = getattr(source, "file", getattr(source, "pattern", None))
    return name is not None and not re.search(r"\.(jsonl(\.\w+)?|parquet)$", name)


def _detected(languages: tuple[str | None, str | None], rows: Sequence[Row], origin: Source) -> Languages:
    """The languages, those that are None by the texts.

    Raises InputError if they are not recognised, a side has no letters, or each side is in the language of the other.
    """
    title = title_of(origin)
    sides = dict(zip(_SIDES, ([row[1] for row in rows], [row[2] for row in rows]), strict=True))
    by_words = [language_of_texts(side) for side in sides.values()]
    found = []
    for (side, texts), given, recognised in zip(sides.items(), languages, by_words, strict=True):
        if not any(map(str.isalpha, "".join(texts))):
            raise InputError(
                f"{title}: the {side} has no letters in the first {len(rows):,} pairs; if the file has other columns, "
                "call two of them source and target, or like the languages, or write a config with `columns` "
                "(docs/data.md)"
            )
        if given is None and recognised is None:
            raise InputError(
                f"{title}: the language of the {side} is neither in names nor recognised by its words; give its code "
                f"with --{side}-language"
            )
        found.append(str(given or recognised))
    source, target = found
    if source == target:
        raise InputError(f"{title}: both sides seem to be {source}; give --source-language and --target-language")
    if by_words == [primary(target), primary(source)]:
        raise InputError(f"{title}: the source seems to be {target} and the target {source}; exchange them")
    return source, target


def _name_of(source: Source, languages: Languages) -> str:
    """A name for the run: that of the file, dataset or folder, and the languages."""
    if isinstance(source, DatasetSource):
        stem = Path(source.dataset).name
    elif isinstance(source, FolderSource):
        stem = Path(source.folder).absolute().name
    else:
        path = Path(source.files[0] if isinstance(source, FilesSource) else str(getattr(source, "file", "")))
        words = [word for word in re.split(r"[._-]", path.name.split(".")[0]) if word and not is_known(word)]
        stem = "_".join(words) if words and words != ["train"] else path.absolute().parent.name
    text = re.sub(r"[^\w-]+", "_", f"{stem}_{languages[0]}_{languages[1]}").lstrip("_-")[:100]
    return text.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")  # Names of files have a limit in bytes.


def _as_yaml(tree: Tree, found: Decision, heading: str) -> str:
    """The text of a config: a comment for each value that was chosen."""
    return "\n".join([*(f"# {line}" for line in wrap(heading, 110)), *_lines(tree, found)]) + "\n"


def _lines(tree: Tree, found: Decision) -> Iterator[str]:
    yield f"name: {on_one_line(tree['name'])}  # the directory below runs"
    yield "corpus:"
    held_out = "fraction" in tree["corpus"]["valid"]
    why = {"valid": "held out from train" if held_out else "selects the best checkpoint", "test": "scored at the end"}
    for key, value in tree["corpus"].items():
        yield f"  {key}: {on_one_line(value)}" + (f"  # {why[key]}" if key in why else "")
    problems = hooks.unsupported(found.config) if hooks.has("unsupported") else []
    exportable = {problem.key: problem.instead for problem in problems}
    for section, chosen in found.choices.items():
        yield f"{section}:"
        for key, choice in chosen.items():
            if (section, key) != ("training", "max_steps") or choice.value is not None:
                instead = exportable.get(f"{section}.{key}")
                note = f"; mt export --format huggingface needs {instead}" if instead else ""
                yield f"  {key}: {on_one_line(choice.value)}  # {choice.why}{note}"
