"""Text for validation and test beside the training text: files with names like its own, and splits of its dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mt_cli.config.sources import DatasetSource, FileSource, FilesSource, Source
from mt_cli.corpus.hub import splits_of
from mt_cli.errors import CorpusError
from mt_cli.features.recipes.given import TRAIN

Tree = dict[str, Any]
_WORDS = {"valid": ("valid", "validation", "val", "dev"), "test": ("test",)}
"""Words for validation and test in names of files and splits."""


def text_for_evaluation(source: Source) -> dict[str, Tree]:
    """Sources of `valid`, `test` and further test sets beside a source; raises CorpusError for an unknown split."""
    if isinstance(source, DatasetSource):
        return _other_splits(source)
    if isinstance(source, FilesSource):
        return neighbours(source.files)
    return neighbours([source.file]) if isinstance(source, FileSource) else {}


def _other_splits(source: DatasetSource) -> dict[str, Tree]:
    splits = splits_of(source)
    if source.split not in splits and not re.search(r"[\[+]", source.split):
        raise CorpusError(
            f"dataset {source.dataset}: no split {source.split!r} among {', '.join(splits)}; choose one of them "
            "(--split, --valid, --test)"
        )
    tree = source.model_dump(mode="json", exclude_unset=True)
    roles = _WORDS | {"test": ("test", "devtest")}
    named = {
        role: [word for word in words if word in splits and word not in source.split] for role, words in roles.items()
    }
    return {role: {**tree, "split": words[0]} for role, words in named.items() if words}


def neighbours(paths: Sequence[str]) -> dict[str, Tree]:
    """Sources of files for validation and test beside training files, one file for each of them.

    A name belongs to a training file if it has a word such as `test` in place of `train`, or beside the stem: `test.en`
    beside `train.en`, `news.test.en` or `test-news.en` beside `news.en`. A file called `test` alone may have any
    content.
    """
    trees: dict[str, Tree] = {}
    for frames in zip(*map(_frames_of, map(Path, paths)), strict=False):
        for role in _WORDS:
            if role not in trees:
                trees |= _neighbours_in(frames, role, paths)
    return trees


def _frames_of(path: Path) -> Iterator[tuple[str, str]]:
    """Texts before and after the word in the names of files that belong to a training file."""
    if words := list(TRAIN.finditer(path.name)):
        yield path.name[: words[-1].start()], path.name[words[-1].end() :]
    elif not path.name.startswith(".") and ".po" not in path.suffixes:
        # A catalogue has the name of what it translates: `asyncio-dev.po` is a page of its own.
        stem, dot, suffixes = path.name.partition(".")
        yield from ((f"{stem}{mark}", dot + suffixes) for mark in ".-_")
        yield from (("", f"{mark}{stem}{dot}{suffixes}") for mark in "-_")


def _neighbours_in(frames: Sequence[tuple[str, str]], role: str, paths: Sequence[str]) -> dict[str, Tree]:
    """Sources for a role whose names have these frames; there may be several test sets."""
    (before, after), folder = frames[0], Path(paths[0]).parent
    word = rf"((?:{'|'.join(_WORDS[role])})(?![a-z])[\w.-]*)"
    matches = (re.fullmatch(re.escape(before) + word + re.escape(after), path.name) for path in folder.glob("*"))
    trees: dict[str, Tree] = {}
    for middle in sorted((match[1] for match in matches if match), key=lambda text: (len(text), text)):
        files = [str(Path(path).with_name(f"{b}{middle}{a}")) for path, (b, a) in zip(paths, frames, strict=True)]
        is_new = len({*files, *map(str, map(Path, paths))}) == 2 * len(paths)
        label = role if role not in trees else middle
        if is_new and all(Path(file).is_file() for file in files) and (label == role or role == "test"):
            trees[label] = {"files": files} if len(files) == 2 else {"file": files[0]}
    return trees
