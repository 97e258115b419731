"""Text for validation and test beside a training text: files and splits with such a name."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from mt_cli.advice.sides import Tree
from mt_cli.config.sources import DatasetSource, FileSource, FilesSource, Source
from mt_cli.corpus.dataset import splits_of
from mt_cli.errors import CorpusError

_LAST_TRAIN = re.compile(r"^(.*)(?<![^\W\d_])train(?![^\W\d_])")
_WORDS = {"valid": ("valid", "validation", "val", "dev"), "test": ("test", "devtest")}
"""Words for validation and test in names of files and splits."""


def text_for_evaluation(source: Source) -> dict[str, Tree]:
    """Sources of `valid` and `test` by the names of files or splits; raises CorpusError for an unknown split."""
    if isinstance(source, FilesSource | FileSource):
        key, paths = ("files", source.files) if isinstance(source, FilesSource) else ("file", (source.file,))
        files = {role: _files_beside(paths, words) for role, words in _WORDS.items()}
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
    named = {role: next((word for word in words if word in free), None) for role, words in _WORDS.items()}
    return {role: {**tree, "split": split} for role, split in named.items() if split}


def evaluation_files_beside(source: Source) -> list[str]:
    """Files in the folder of a training text whose names say that they are for validation or test."""
    paths = (
        source.files if isinstance(source, FilesSource) else (source.file,) if isinstance(source, FileSource) else ()
    )
    words = {word for group in _WORDS.values() for word in group}
    return [
        str(file)
        for path in map(Path, filter(None, paths))
        for file in sorted(path.parent.glob(f"*{path.suffix}"))
        if str(file) not in paths and words & set(re.split(r"[\W\d_]+", file.stem.lower()))
    ]


def _files_beside(paths: Sequence[str], words: Sequence[str]) -> list[str]:
    """Files with one of the words in place of the last `train` of each name; empty if they do not exist."""
    for word in words:
        files = [str(Path(path).with_name(_LAST_TRAIN.sub(rf"\g<1>{word}", Path(path).name))) for path in paths]
        if not set(files) & {str(Path(path)) for path in paths} and all(map(os.path.isfile, files)):
            return files
    return []
