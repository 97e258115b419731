"""`mt init`: options of the command to a file with a config. Imports pydantic only when they are used."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mt_cli
from mt_cli.errors import InputError
from mt_cli.runtime.console import say, say_next
from mt_cli.runtime.files import write_text

_WAYS = (
    "give a FOLDER, or one of --files SOURCE TARGET, --file FILE, --dataset ID and --example NAME; for a second file "
    "of --valid, --test or --mono, repeat the option"
)
_KINDS = ("files", "file", "dataset", "example")
Tree = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Request:
    """Options for a new config besides the text, all optional."""

    name: str | None = None
    """Name of the run; None: the stem of the output file or, without one, by the data."""
    parent: Path | None = None
    """Run whose weights training begins with."""
    accept_processed: bool = False
    mono: tuple[str, ...] = ()
    """Files of text in one language."""
    destination: str | None = None
    """Program of `DESTINATIONS` that must be able to hold the model."""


def write_config(
    source: Mapping[str, Any],
    languages: tuple[str | None, str | None],
    evaluation: Mapping[str, list[str]],
    runs: Path,
    request: Request,
    output: Path | None = None,
) -> Path:
    """Write the config for some text, or an example, into a new file, and return the file.

    `source` has the options of the command on the text to train on, by the keys of a config, and `paths`: a folder, a
    file with both sides, or two files. `evaluation` has the names that `--valid` and `--test` give. `runs` is the
    folder of the runs and of the cache. The choices are printed. Raises InputError for options that do not fit
    together or files that exist already, and the errors of `new_config`.
    """
    train = _training_text(source)
    if "example" in train:
        if len(train) > 1 or evaluation or any(languages) or request != Request():
            raise InputError("--example: an example is a whole config; give --output alone beside it")
        return _write(output or Path(f"{train['example']}.yaml"), _example(train["example"]))
    if output is not None or request.name is not None:
        _check_new(output or Path(f"{request.name}.yaml"))
    from mt_cli.advice.new_config import new_config
    from mt_cli.config.loading import parse_config
    from mt_cli.config.sections import RUN_NAME
    from mt_cli.corpus.cache import Cache

    if request.name is None and output is not None and RUN_NAME.fullmatch(output.stem):
        request = replace(request, name=output.stem)

    trees = {
        role: _evaluation_text(f"--{role}", names, train, bool(source.get("skip_damaged")))
        for role, names in evaluation.items()
    }
    # Checks the options by the rules for configs.
    corpus: Tree = {"source": languages[0] or "source", "target": languages[1] or "target", "train": train}
    corpus |= {"valid": {"fraction": 0.1}} | trees
    sources = parse_config({"name": request.name or "new", "corpus": corpus}, "options").corpus.groups
    given = {role: sources[role][0] for role in trees}
    name, text, lines = new_config(sources["train"][0], languages, Cache(runs / ".cache"), given, runs, request)
    for line in lines:
        say(line)
    return _write(output or Path(f"{name}.yaml"), text)


def _training_text(source: Mapping[str, Any]) -> Tree:
    """Source as in a config, or `example`; raises InputError unless the options name one."""
    given = {kind: source[kind] for kind in _KINDS if kind in source}
    paths = source.get("paths", ())
    if len(given) + bool(paths) != 1 or len(paths) > 2:
        raise InputError("".join(f"{path}: " for path in paths[-1:]) + _WAYS)
    if len(paths) == 2:
        given = {"files": tuple(paths)}
    elif paths:
        given = {"folder" if _is_folder(paths[0]) else "file": paths[0]}
    _check_sides("mt init", given.get("files", ()))
    return given | {key: value for key, value in source.items() if key not in (*_KINDS, "paths")}


def _check_sides(option: str, files: Sequence[str]) -> None:
    from mt_cli.corpus.formats.table import format_of, suffix_of

    for file in files:
        if file.endswith(".zip"):
            format_of(Path(file))  # Refuses archives, with the names in them.
        if (suffix := suffix_of(Path(file))) is not None:
            raise InputError(f"{file}: a {suffix} file holds both languages; give it alone ({option} {file!r})")


def _is_folder(path: str) -> bool:
    """True for a folder, and for a pattern of files."""
    return os.path.isdir(path) or (not os.path.exists(path) and "*" in path)


def _evaluation_text(option: str, names: list[str], train: Mapping[str, Any], skip_damaged: bool) -> Tree:
    """One file with both sides, a folder, a split of the dataset that is trained on, or two files.

    With `skip_damaged`, folders are read without their damaged files.
    """
    from mt_cli.corpus.formats.table import suffix_of

    if len(names) > 2:
        raise InputError(f"{option} {names[2]}: give one file with both sides, or two files, the source and the target")
    if len(names) == 2:
        _check_sides(option, names)
        return {"files": tuple(names)}
    suffix = suffix_of(Path(names[0])) or ""
    if _is_folder(names[0]):
        return {"folder": names[0]} | ({"skip_damaged": True} if skip_damaged else {})
    if "dataset" in train and not suffix:
        return {**train, "split": names[0]}
    file_format = {"format": train["format"]} if "format" in train and not suffix else {}
    return {"file": names[0]} | file_format


def _example(name: str) -> str:
    """Text of a config that is part of the package, without the line for editors that names a schema beside it."""
    package = Path(mt_cli.__file__).parent
    folder = package / "configs"
    if not folder.is_dir():
        folder = package.parent / "configs"  # In a checkout.
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in names:
        raise InputError(f"--example {name}: unknown; there are {', '.join(names)}")
    lines = (folder / f"{name}.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# yaml-language-server"))


def _check_new(path: Path) -> None:
    if os.path.lexists(path):
        raise InputError(f"{path}: exists already and is not overwritten; give another --name, or a file with --output")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder")


def _write(path: Path, text: str) -> Path:
    """Write a new file, or none if an error occurs, and say what to do next."""
    _check_new(path)
    write_text(path, text)
    say_next(path)
    return path
