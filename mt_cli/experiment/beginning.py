"""`mt init`: a commented config for some parallel text. What can be seen in names and texts is not asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

from mt_cli.config.corpora import DatasetSource, FileSource, FilesSource, Source
from mt_cli.config.loading import parse_config, with_values
from mt_cli.config.sections import Config
from mt_cli.corpus.formats import Columns, Languages, Row, names_in
from mt_cli.corpus.hub import load_splits
from mt_cli.corpus.languages import code_of, is_known, language_of_texts, primary
from mt_cli.corpus.lines import COMPRESSIONS
from mt_cli.corpus.sources import read_rows
from mt_cli.errors import CorpusError, InputError
from mt_cli.experiment.presets import Choices, choose, describe, expectation, find_facts, values_of

Tree = dict[str, Any]

_ROWS_EXAMINED = 1_000
_MIN_PAIRS = 10
_LARGEST_SHARE, _PAIRS_HELD_OUT = 0.1, 1_000
_VALID, _TEST = ("valid", "validation", "val", "dev"), ("test",)
_HEADINGS = (("source", "target"), ("src", "tgt"), ("src", "trg"))


@dataclass(frozen=True)
class NewConfig:
    """A config with comments, and what was chosen."""

    config: Config
    text: str
    lines: Sequence[str]
    """What was chosen and why, for people."""


@dataclass(frozen=True)
class Found:
    """What the names of files, columns and splits say."""

    names: Sequence[str]
    """Languages or columns."""
    evaluation: Mapping[str, Tree]
    """Sources of `valid`, `test` and further test sets by name."""


def new_config(
    source: Source, languages: tuple[str | None, str | None], name: str | None, cache_path: Path
) -> NewConfig:
    """A config that trains on a source; `languages` and `name` are used where they are given.

    Raises CorpusError if the source cannot be read, and InputError if its languages cannot be found.
    """
    corpus = _corpus_of(source, languages)
    both = corpus["source"], corpus["target"]
    tree = {"name": name or _name_of(source, both), "corpus": corpus, "preset": "auto"}
    config = parse_config(tree, "mt init")
    facts = find_facts(config, cache_path)
    choices = choose(facts)
    resolved = with_values(config, values_of(choices))
    heading = f"{both[0]} to {both[1]}, written by `mt init` from {facts}. Expect {expectation(facts)}"
    return NewConfig(resolved, _as_yaml(tree, choices, heading), list(describe(facts, choices, resolved)))


def _corpus_of(source: Source, languages: tuple[str | None, str | None]) -> Tree:
    """The section `corpus` for a source."""
    found = _look(source)
    columns, named = _columns_and_languages(source, found.names, languages)
    extra = {"columns": list(columns)} if columns else {}
    train = source.model_dump(mode="json", exclude_unset=True) | extra
    num_rows, beginning = 0, list[Row]()
    for row in read_rows(type(source).model_validate(train), (named[0] or "source", named[1] or "target")):
        num_rows += 1
        if len(beginning) < _ROWS_EXAMINED and row[1].strip() and row[2].strip():
            beginning.append(row)
    if not num_rows:
        raise CorpusError(f"{_title(source)}: the corpus is empty")
    if beginning and all(one == other for _, one, other in beginning):
        raise CorpusError(f"{_title(source)}: both sides are the same text")
    if not beginning:
        listed = f"; it has {', '.join(found.names)}" if any(found.names) else ""
        raise CorpusError(f"{_title(source)}: no pair has text on both sides{listed}")
    if num_rows < _MIN_PAIRS and "valid" not in found.evaluation:
        raise CorpusError(
            f"{_title(source)}: {num_rows} pairs are too few to hold some of them out for validation; add pairs, or a "
            "file for validation beside it"
        )
    both = _detected(named, beginning, _title(source))
    evaluation = {role: {**each, **extra} for role, each in found.evaluation.items()}
    share = float(f"{min(_LARGEST_SHARE, _PAIRS_HELD_OUT / num_rows):.1g}")
    corpus = {"source": both[0], "target": both[1], "train": train}
    corpus["valid"] = evaluation.pop("valid", {"fraction": share})
    corpus |= {"test": evaluation.pop("test")} if "test" in evaluation else {}
    return corpus | ({"extra_tests": evaluation} if evaluation else {})


def _look(source: Source) -> Found:
    """What can be seen without reading the whole text."""
    if isinstance(source, DatasetSource):
        splits = load_splits(source)
        if source.split not in splits:
            raise CorpusError(f"{_title(source)}: no split {source.split!r} among {', '.join(splits)}")
        tree = source.model_dump(mode="json", exclude_unset=True)
        roles = {"valid": next((each for each in _VALID if each in splits), None)}
        roles["test"] = "test" if "test" in splits else None
        return Found(
            _columns_of(splits[source.split]), {role: {**tree, "split": each} for role, each in roles.items() if each}
        )
    if isinstance(source, FilesSource):
        return Found([_language_in_name(path) for path in source.files], _neighbours(source.files))
    assert isinstance(source, FileSource)
    return Found(names_in(Path(source.file)), _neighbours([source.file]))


def _columns_of(dataset: Any) -> list[str]:
    """The languages of the column `translation`, or the columns."""
    translation = dataset.features.get("translation")
    return list(getattr(translation, "languages", None) or translation or dataset.column_names)


def _language_in_name(path: str) -> str:
    """The last part of a file name that is the code of a language, or an empty string."""
    parts = re.split(r"[._-]", Path(path).name)
    return next((part for part in reversed(parts) if is_known(part)), "")


def _neighbours(paths: Sequence[str]) -> dict[str, Tree]:
    """Sources of validation and test files beside training files, with names like theirs, one for each of them."""
    found: dict[str, Tree] = {}
    splits = [_name_around_train(Path(path)) for path in paths]
    for role, words in (("valid", _VALID), ("test", _TEST)):
        (before, after), folder = splits[0], Path(paths[0]).parent
        pattern = re.compile(rf"{re.escape(before)}((?:{'|'.join(words)})(?![a-z])[\w.-]*){re.escape(after)}")
        matches = (pattern.fullmatch(path.name) for path in folder.glob("*") if path.is_file())
        for middle in sorted((match[1] for match in matches if match), key=lambda text: (len(text), text)):
            own = [Path(path).with_name(f"{b}{middle}{a}") for path, (b, a) in zip(paths, splits, strict=True)]
            label = role if role not in found else middle
            is_new = len({*own, *map(Path, paths)}) == 2 * len(paths)
            if is_new and all(path.is_file() for path in own) and (label == role or role == "test"):
                files = [str(path) for path in own]
                found[label] = {"files": files} if len(files) == 2 else {"file": files[0]}
    return found


def _name_around_train(path: Path) -> tuple[str, str]:
    """What stands before and after `train` in a file name; without it, nothing and the suffixes."""
    before, word, after = path.name.rpartition("train")
    return (
        (before, after) if word else ("", "".join(path.suffixes[-2:] if path.suffix in COMPRESSIONS else [path.suffix]))
    )


def _columns_and_languages(
    source: Source, names: Sequence[str], given: tuple[str | None, str | None]
) -> tuple[Columns, tuple[str | None, str | None]]:
    """Columns, None for the default ones, and the languages as far as they are given or in names."""
    column_of = {code: name for name in reversed(names) if (code := code_of(name))}
    codes = list(reversed(column_of))
    if len(codes) > 2 and "id" in codes:
        codes.remove("id")  # Numbers, rather than Indonesian.
    rest = [code for code in codes if primary(code) not in {primary(each) for each in given if each}]
    num_missing = given.count(None)
    if num_missing and len(rest) > num_missing:
        raise InputError(
            f"{_title(source)}: there are the languages {', '.join(codes)}; choose with --source-language and "
            "--target-language"
        )
    is_named = len(rest) == num_missing and isinstance(source, FilesSource | FileSource | DatasetSource)
    named = tuple(each or (rest.pop(0) if is_named else None) for each in given)
    source_language, target_language = named
    if isinstance(source, FilesSource) or set(named) <= set(names):
        return None, (source_language, target_language)
    if source_language in column_of and target_language in column_of:
        return (column_of[source_language], column_of[target_language]), (source_language, target_language)
    headings = next((pair for pair in _HEADINGS if set(pair) <= set(names)), None)
    if headings is None and not _has_default_columns(source) and names:
        if len(names) != 2:
            raise InputError(
                f"{_title(source)}: which of its columns {', '.join(names)} are source and target? Rename two "
                "of them source and target, or like the languages; or write a config with `columns` (docs/data.md)"
            )
        headings = (names[0], names[1])
    return headings, (source_language, target_language)


def _has_default_columns(source: Source) -> bool:
    """Whether a file without headings has columns: a table of text, or a format without columns."""
    return isinstance(source, FileSource) and not re.search(r"\.(jsonl(\.\w+)?|parquet)$", source.file)


def _detected(languages: tuple[str | None, str | None], rows: Sequence[Row], title: str) -> Languages:
    """The languages, those that are None by the texts.

    Raises InputError if they are not recognised, a side has no letters, or each side is in the language of the other.
    """
    sides = {"source": [source for _, source, _ in rows], "target": [target for _, _, target in rows]}
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
                f"{title}: the language of the {side} is neither in names nor recognised by its words; give "
                f"--{side}-language CODE, such as --{side}-language it"
            )
        found.append(str(given or recognised))
    source, target = found
    if source == target:
        raise InputError(f"{title}: both sides seem to be {source}; give --source-language and --target-language")
    if by_words == [primary(target), primary(source)]:
        raise InputError(f"{title}: the source seems to be {target} and the target {source}; exchange them")
    return source, target


def _title(source: Source) -> str:
    if isinstance(source, DatasetSource):
        return f"dataset {source.dataset}"
    return " and ".join(source.files) if isinstance(source, FilesSource) else str(getattr(source, "file", ""))


def _name_of(source: Source, languages: Languages) -> str:
    """A name for the run: that of the file, dataset or folder, and the languages."""
    if isinstance(source, DatasetSource):
        stem = Path(source.dataset).name
    else:
        path = Path(source.files[0] if isinstance(source, FilesSource) else str(getattr(source, "file", "")))
        words = [word for word in re.split(r"[._-]", path.name.split(".")[0]) if word and not is_known(word)]
        stem = "_".join(words) if words and words != ["train"] else path.absolute().parent.name
    text = re.sub(r"[^\w-]+", "_", f"{stem}_{languages[0]}_{languages[1]}").lstrip("_-")
    return text[:100]


def _as_yaml(tree: Tree, choices: Choices, heading: str) -> str:
    """The text of a config: a comment for each value that was chosen."""
    return "\n".join([*(f"# {line}" for line in wrap(heading, 110)), *_lines(tree, choices)]) + "\n"


def _lines(tree: Tree, choices: Choices) -> Iterator[str]:
    yield f"name: {_flow(tree['name'])}  # the directory below runs"
    yield "corpus:"
    held_out = "fraction" in tree["corpus"]["valid"]
    why = {"valid": "held out from train" if held_out else "selects the best checkpoint", "test": "scored at the end"}
    for key, value in tree["corpus"].items():
        yield f"  {key}: {_flow(value)}" + (f"  # {why[key]}" if key in why else "")
    for section, chosen in choices.items():
        yield f"{section}:"
        for key, choice in chosen.items():
            if (section, key) != ("training", "max_steps") or choice.value is not None:
                yield f"  {key}: {_flow(choice.value)}  # {choice.why}"


def _flow(value: Any) -> str:
    """A value as YAML on one line."""
    return yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=10**9).strip()[1:-1]
