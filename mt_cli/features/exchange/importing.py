"""`mt import`: a run directory with a model of another program."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field

from mt_cli.checkpoint.state import Ancestor
from mt_cli.checkpoint.trained import TrainedRun, write_run
from mt_cli.config.directions import Tagging, targets_of
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.corpus.languages import is_common, is_known, primary, writes_spaces
from mt_cli.corpus.rows import Languages
from mt_cli.errors import InputError
from mt_cli.features.exchange.bundle import read_bundle, unknown_corpus
from mt_cli.features.exchange.marian import (
    ARCHITECTURES,
    PICKLE_ADVICE,
    PICKLED_WEIGHTS,
    WEIGHTS,
    Imported,
    read_marian,
)
from mt_cli.machine.hub import Repository, download, find_repository
from mt_cli.machine.storage import read_model
from mt_cli.translation.exported import DESCRIPTION, Description

_MAX_TOKENS, _LONGEST = 512, 2**14
"""`corpus.max_tokens` if a model does not say how long its sources were, or says more than the second number."""
T = TypeVar("T", bound=BaseModel)
_OTHER_ARCHITECTURES = {
    "m2m_100": "M2M100 or NLLB",
    "nllb-moe": "NLLB",
    "mbart": "mBART",
    "t5": "T5, as MADLAD",
    "mt5": "mT5",
    "fsmt": "FSMT",
}
"""Well-known translation models, by `model_type`."""
_FILES = (
    *(DESCRIPTION, "config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "target_vocab.json"),
    *("source.spm", "target.spm", "tokenizer.json", "tokenizer.source.json", "tokenizer.target.json"),
)
"""What a repository may have beside its weights, and is needed."""


def import_model(
    name: str,
    output: Path,
    languages: Sequence[str | None],
    allow_pickle: bool = False,
    revision: str | None = None,
) -> TrainedRun:
    """Write the Marian model in a folder or on the hub, or an export of ours, as a run into the new folder `output`.

    Raises InputError if it cannot be read, its languages are not known, or `output` exists, and MtError if the hub
    cannot be reached.
    """
    repository = _repository(name, revision)
    folder = Path(name) if repository is None else _downloaded(repository, allow_pickle)
    if (folder / "config.yaml").exists():
        raise InputError(f"{folder}: is a run already; use it with --run")
    if not any((folder / each).exists() for each in (DESCRIPTION, "config.json", "decoder.yml")):
        raise InputError(f"{folder}: has no model: no config.json, decoder.yml or {DESCRIPTION}")
    if (folder / DESCRIPTION).exists():
        config, tokenizers, model = read_bundle(folder, output.name, languages)
        longest = read_model(folder / DESCRIPTION, Description).max_tokens
    else:
        _check_architecture(str(folder), folder)
        described = _read_optional(folder / "tokenizer_config.json", _TokenizerConfig)
        both = _languages(name, described, languages)
        imported = read_marian(folder, allow_pickle)
        generation = _read_optional(folder / "generation_config.json", _GenerationConfig)
        config = _config_of(imported, described.model_max_length, generation, output.name, both)
        tokenizers, model, longest = imported.tokenizers, imported.model, config.corpus.max_tokens
    parents = [] if repository is None else [_ancestor(repository, config.corpus.languages)]
    return write_run(output, config, tokenizers, model, longest, parents)


def _repository(name: str, revision: str | None) -> Repository | None:
    """The model of the hub with that id; None if there is a folder of that name."""
    if os.path.isdir(name):  # `Path.is_dir` raises errors for some names.
        if revision is not None:
            raise InputError(f"--revision {revision}: {name} is a folder; only models of the hub have revisions")
        return None
    note = "; there is no such folder either; for a dataset, use mt init --dataset"
    return find_repository("model", name, revision, note)


def _ancestor(repository: Repository, languages: Languages) -> Ancestor:
    """What a run that was imported says about its origin."""
    weights = next(repository.files[name].checksum for name in (WEIGHTS, PICKLED_WEIGHTS) if name in repository.files)
    return Ancestor(f"{repository.id} (commit {repository.commit})", languages, 0, weights)


def _downloaded(repository: Repository, allow_pickle: bool) -> Path:
    """The folder with the files that are needed of a model of the hub."""
    if "config.json" in repository.files and DESCRIPTION not in repository.files:
        _check_architecture(str(repository), download(repository, ["config.json"]))
    files = [file for file in _FILES if file in repository.files]
    weights = next((file for file in (WEIGHTS, PICKLED_WEIGHTS) if file in repository.files), None)
    if weights is None or not {DESCRIPTION, "config.json"} & set(files):
        there = ", ".join(sorted(repository.files)[:10])
        raise InputError(
            f"{repository}: has no Marian model and no bundle of mt (config.json, {WEIGHTS}); it has {there}"
        )
    if weights == PICKLED_WEIGHTS and not allow_pickle:
        raise InputError(f"{repository}: {PICKLE_ADVICE}")
    if "source.spm" in files and "tokenizer.json" in files:
        files.remove("tokenizer.json")
    return download(repository, [*files, weights])


class _Architecture(BaseModel):
    """The key of `config.json` that names the architecture."""

    model_type: str | None = None


def _check_architecture(name: str, folder: Path) -> None:
    """Raise InputError, with what can be done instead, if a folder has a model of an architecture that is not read."""
    kind = _read_optional(folder / "config.json", _Architecture).model_type
    if kind is None or kind in ARCHITECTURES:
        return
    title = f" ({_OTHER_ARCHITECTURES[kind]})" if kind in _OTHER_ARCHITECTURES else ""
    raise InputError(
        f"{name}: has the architecture {kind!r:.80}{title}, which mt import does not read; it reads MarianMT, such as "
        "Helsinki-NLP/opus-mt-en-it, and what mt export writes (docs/model_formats.md). Begin with such a model "
        "(init.run), or translate text with this one in its own program and train on the pairs"
    )


class _TokenizerConfig(BaseModel):
    """The keys of `tokenizer_config.json` that are needed; without a limit, the length is an enormous number."""

    source_lang: str | None = None
    target_lang: str | None = None
    model_max_length: float | None = None


class _GenerationConfig(BaseModel):
    """The keys of `generation_config.json` that are options of `decoding`, too."""

    num_beams: int | None = Field(default=None, ge=1, le=1000)
    length_penalty: float | None = Field(default=None, ge=0, le=10)
    no_repeat_ngram_size: int | None = Field(default=None, ge=0, lt=2**31)
    suppress_tokens: tuple[int, ...] | None = None
    forced_bos_token_id: None = None
    """No option of `decoding` has this."""


def _read_optional(path: Path, kind: type[T]) -> T:
    """The content of a JSON file, or the defaults if there is none; raises InputError if it is damaged."""
    return read_model(path, kind) if path.exists() else kind()


def _languages(name: str, config: _TokenizerConfig, given: Sequence[str | None]) -> tuple[str, str]:
    """The languages: those given, those of the tokenizers, or those at the end of the name, as in `opus-mt-en-it`."""
    found = [config.source_lang, config.target_lang]
    parts = re.split(r"[-_]", Path(name).name)[-2:]
    if None in found and len(parts) == 2 and all(map(is_known, parts)) and any(map(is_common, parts)):
        found = list(parts)
    both = [own or each for own, each in zip(given, found, strict=True)]
    for side, language in zip(("source", "target"), both, strict=True):
        if language is None:
            raise InputError(f"{name}: its {side} language is not known; give --{side}-language CODE")
    source, target = (_without_region(str(each)) for each in both)
    return source, target


def _without_region(language: str) -> str:
    """The code of a language alone, unless a script in it decides whether there are spaces between words."""
    code = primary(language)
    return code if writes_spaces(code) == writes_spaces(language) else language


def _tagging(tags: tuple[str, ...], target: str) -> Tagging:
    """Tags of an imported model. If all of them name a target language, a sentence needs one."""
    own = [tag for tag in tags if primary(target) in map(primary, targets_of([tag]))]
    is_required = bool(tags) and len(targets_of(tags)) == len(tags)
    return Tagging(tags, own[0] if len(own) == 1 else None, is_required)


def _config_of(
    imported: Imported,
    longest: float | None,
    generation: _GenerationConfig,
    name: str,
    languages: tuple[str, str],
) -> Config:
    source, target = languages
    max_tokens = int(longest) if longest is not None and 1 <= longest <= _LONGEST else _MAX_TOKENS
    decoding = {
        "beam_size": generation.num_beams or imported.num_beams,
        "length_penalty": generation.length_penalty,
        "no_repeat_ngram": generation.no_repeat_ngram_size or None,
        "unk": "avoid" if imported.unk in (generation.suppress_tokens or ()) else None,
    }
    tree = {
        "name": name,
        "corpus": {
            **{"source": source, "target": target, "max_tokens": max_tokens},
            **unknown_corpus(_tagging(imported.tags, target)),
        },
        "tokenizer": dict(imported.options),
        "model": imported.model.config.model_dump(mode="json"),
        "decoding": {key: value for key, value in decoding.items() if value is not None},
    }
    return parse_config(tree, "mt import")
