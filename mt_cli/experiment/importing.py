"""`mt import`: a run directory with a model of another program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.files import save_checkpoint
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.corpus.languages import is_known, primary
from mt_cli.errors import InputError, one_line
from mt_cli.experiment.state import RunState
from mt_cli.importing.marian import Imported, read_marian
from mt_cli.storage import new_folder, read_regular

_MAX_TOKENS = 512
_MAX_JSON_BYTES = 2**24
_UNKNOWN_CORPUS = "unknown.tsv"
"""Stands in the config for the corpus that the model was trained on."""
_FILES = ("*.json", "*.spm", "model.safetensors", "pytorch_model.bin")


def import_model(
    name: str, output: Path, languages: Sequence[str | None], allow_pickle: bool = False
) -> tuple[TrainedRun, Imported]:
    """Write the Marian model in a folder or on the hub as a run into the new folder `output`; load it.

    Raises InputError if it cannot be read, its languages are not known, or `output` exists.
    """
    folder = _folder_of(name)
    both = _languages(name, folder, languages)
    imported = read_marian(folder, allow_pickle)
    config = _config_of(imported, output.name, both)
    with new_folder(output) as folder:
        directory = RunDirectory(folder)
        directory.create(config, imported.tokenizers)
        state = RunState(fingerprints=directory.tokenizer_digests(), longest_source=_MAX_TOKENS)
        save_checkpoint(directory.best_path, imported.model, asdict(state))
    return TrainedRun.load(output), imported


def _folder_of(name: str) -> Path:
    """The folder of that name, or that of a model on the Hugging Face hub, which is downloaded."""
    if Path(name).is_dir():
        return Path(name)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise InputError(f"{name}: no such folder; give the folder of a model, or an id of the Hugging Face hub")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except Exception as error:  # Connections fail in many ways.
        raise InputError(f"{name}: no such folder, and not found on the hub: {one_line(error)}") from None


class _TokenizerConfig(BaseModel):
    source_lang: str | None = None
    target_lang: str | None = None


def _languages(name: str, folder: Path, given: Sequence[str | None]) -> tuple[str, str]:
    """The languages: those given, those of the tokenizers, or those at the end of the name, as in `opus-mt-en-it`."""
    found: list[str | None] = [None, None]
    with suppress(OSError, ValueError):
        config = _TokenizerConfig.model_validate_json(read_regular(folder / "tokenizer_config.json", _MAX_JSON_BYTES))
        found = [config.source_lang, config.target_lang]
    parts = re.split(r"[-_]", Path(name).name)[-2:]
    if None in found and len(parts) == 2 and all(map(is_known, parts)):
        found = list(parts)
    both = [own or each for own, each in zip(given, found, strict=True)]
    for side, language in zip(("source", "target"), both, strict=True):
        if language is None:
            raise InputError(f"{name}: its {side} language is not known; give --{side}-language CODE")
    source, target = (primary(str(each)) for each in both)
    return source, target


def _config_of(imported: Imported, name: str, languages: tuple[str, str]) -> Config:
    source, target = languages
    train: list[dict[str, Any]] = [{"file": _UNKNOWN_CORPUS, "tag": tag, "name": tag} for tag in imported.tags]
    tree = {
        "name": name,
        "corpus": {
            **{"source": source, "target": target, "max_tokens": _MAX_TOKENS},
            **{"train": train or {"file": _UNKNOWN_CORPUS}, "valid": {"fraction": 0.1}},
        },
        "tokenizer": {"algorithm": "sentencepiece", "shared": imported.is_shared},
        "model": imported.model.config.model_dump(mode="json"),
        "decoding": {"beam_size": imported.num_beams},
    }
    return parse_config(tree, "mt import")
