"""`mt import`: make a run directory from a model of another program."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field

from mt_cli.checkpoint.checkpoint import digest_of
from mt_cli.checkpoint.state import Ancestor
from mt_cli.checkpoint.trained import TrainedRun, write_run
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.config.tags import Tagging, targets_of
from mt_cli.corpus.hub import Repository, download, find_repository
from mt_cli.corpus.languages import is_common, is_known, primary, writes_spaces
from mt_cli.corpus.rows import Languages
from mt_cli.errors import InputError
from mt_cli.exchange.bundle import read_bundle, unknown_corpus
from mt_cli.exchange.card import licence_of
from mt_cli.exchange.m2m100 import ARCHITECTURE as M2M100
from mt_cli.exchange.m2m100 import Selection, read_m2m100
from mt_cli.exchange.marian import Imported, read_marian
from mt_cli.exchange.names import ARCHITECTURES, SETTINGS, TokenizerSettings, read_optional
from mt_cli.exchange.transformers_folder import PICKLE_ADVICE
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.console import say
from mt_cli.runtime.files import read_model
from mt_cli.translation.exported import DESCRIPTION, Description

_MAX_TOKENS, _LONGEST = 512, 2**14
"""`corpus.max_tokens` for a model that gives no maximum length, or a length above the second number."""
_FILES = re.compile(
    rf"{DESCRIPTION}|config\.json|generation_config\.json|tokenizer_config\.json|(target_)?vocab\.json|README\.md"
    r"|special_tokens_map\.json|added_tokens\.json|sentencepiece(\.bpe)?\.model|(source|target)\.spm"
    r"|tokenizer(\.source|\.target)?\.json|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?"
)
"""Files that are downloaded, if a repository has them."""
_PICKLES = re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin(\.index\.json)?")
"""Files that are downloaded if a repository has no `model.safetensors`."""


class _Architecture(BaseModel):
    model_type: str | None = None


class _GenerationConfig(BaseModel):
    """Keys of `generation_config.json` that are options of `decoding`, too."""

    num_beams: int | None = Field(default=None, ge=1, le=1000)
    length_penalty: float | None = Field(default=None, ge=0, le=10)
    no_repeat_ngram_size: int | None = Field(default=None, ge=0, lt=2**31)
    suppress_tokens: tuple[int, ...] | None = None
    forced_bos_token_id: int | None = None


def import_model(
    name: str,
    output: Path,
    languages: Sequence[str | None],
    allow_pickle: bool = False,
    revision: str | None = None,
    selection: Selection | None = None,
) -> TrainedRun:
    """Write a model from a folder or the hub, or one of our exports, as a run into the new folder `output`.

    The model is a Marian model, M2M100 or NLLB, of which a part may be selected. Raises InputError if the model cannot
    be read, its languages are not known, or `output` exists. Raises MtError if the hub cannot be reached.
    """
    repository = _repository(name, revision)
    folder = Path(name) if repository is None else _download(repository, allow_pickle)
    if (folder / "config.yaml").exists():
        raise InputError(f"{folder}: is a run already; use it with --run")
    if not any((folder / file).exists() for file in (DESCRIPTION, "config.json")):
        advice = ""
        if (folder / "decoder.yml").exists():
            advice = "; files of Marian itself must be converted first (docs/model_formats.md)"
        raise InputError(f"{folder}: has no model: neither config.json nor {DESCRIPTION}{advice}")
    architecture = "" if (folder / DESCRIPTION).exists() else _check_architecture(str(folder), folder)
    if selection is not None and architecture != M2M100:
        raise InputError(f"{name}: --languages, --vocabulary-from and --new-language are for M2M100 and NLLB alone")
    if (folder / DESCRIPTION).exists():
        config, tokenizers, model, description = read_bundle(folder, output.name, languages)
        longest, seen = description.max_tokens, description.sentences_seen
    else:
        settings = read_optional(folder / SETTINGS, TokenizerSettings)
        if architecture == M2M100:
            if not any(languages) and selection is None and settings.src_lang and settings.tgt_lang:
                languages = settings.src_lang.strip("_"), settings.tgt_lang.strip("_")
            imported = read_m2m100(folder, allow_pickle, selection or Selection(), languages)
        else:
            imported = read_marian(folder, allow_pickle, _languages(name, settings, languages))
        config = _config_of(folder, imported, settings.model_max_length, output.name)
        tokenizers, model, longest, seen = imported.tokenizers, imported.model, config.corpus.max_tokens, None
        for note in imported.notes:
            say(f"{name}: {note}")
    parents = _parents(folder, repository, config.corpus.languages, model)
    return write_run(output, config, tokenizers, model, longest, parents, seen)


def _repository(name: str, revision: str | None) -> Repository | None:
    """Model of the hub with that id; None if there is a folder of that name."""
    if os.path.isdir(name):  # `Path.is_dir` raises errors for some names.
        if revision is not None:
            raise InputError(f"--revision {revision}: {name} is a folder; only models of the hub have revisions")
        return None
    note = "; there is no such folder either; for a dataset, use mt init --dataset"
    return find_repository("model", name, revision, note)


def _parents(folder: Path, repository: Repository | None, languages: Languages, model: Transformer) -> list[Ancestor]:
    if (folder / DESCRIPTION).exists():
        licences = read_model(folder / DESCRIPTION, Description).licences
        return [Ancestor(origin, languages, 0, "", license=licence) for origin, licence in licences.items()]
    licence = licence_of(folder)
    if repository is None and licence is None:
        return []
    origin = folder.resolve().name if repository is None else f"{repository.id} (commit {repository.commit})"
    return [Ancestor(origin, languages, 0, digest_of(model.state_dict()), license=licence)]


def _download(repository: Repository, allow_pickle: bool) -> Path:
    if "config.json" in repository.files and DESCRIPTION not in repository.files:
        _check_architecture(str(repository), download(repository, ["config.json"]))
    files = [name for name in repository.files if _FILES.fullmatch(name)]
    pickles = [name for name in repository.files if _PICKLES.fullmatch(name)]
    has_weights = any(".safetensors" in name for name in files)
    if not {DESCRIPTION, "config.json"} & {*files} or not (has_weights or pickles):
        there = ", ".join(sorted(repository.files)[:10])
        raise InputError(
            f"{repository}: has no Marian model and no bundle of mt (config.json, model.safetensors); it has {there}"
        )
    if not has_weights and not allow_pickle:
        raise InputError(f"{repository}: {PICKLE_ADVICE}")
    return download(repository, files if has_weights else [*files, *pickles])


def _check_architecture(name: str, folder: Path) -> str | None:
    architecture = read_optional(folder / "config.json", _Architecture).model_type
    if architecture not in (None, M2M100, *ARCHITECTURES):
        raise InputError(
            f"{name}: has the architecture {architecture!r:.80}, which mt import does not read; it reads MarianMT, "
            "such as Helsinki-NLP/opus-mt-en-it, M2M100, NLLB-200, and what mt export writes (docs/model_formats.md). "
            "Begin with such a model (init.run), or translate text with this one in its own program and train on the "
            "pairs"
        )
    return architecture


def _languages(name: str, config: TokenizerSettings, chosen: Sequence[str | None]) -> tuple[str, str]:
    """Languages from the options, the tokenizer's config, or the end of the name, as in `opus-mt-en-it`."""
    source, target = config.source_lang, config.target_lang
    parts = re.split(r"[-_]", Path(name).name)[-2:]
    if None in (source, target) and len(parts) == 2 and all(map(is_known, parts)) and any(map(is_common, parts)):
        source, target = parts
    source, target = chosen[0] or source, chosen[1] or target
    if source is None or target is None:
        side = "source" if source is None else "target"
        raise InputError(f"{name}: its {side} language is not known; give --{side}-language CODE")
    return _without_region(source), _without_region(target)


def _without_region(language: str) -> str:
    """Code of a language alone, unless a script in it decides whether there are spaces between words."""
    code = primary(language)
    return code if writes_spaces(code) == writes_spaces(language) else language


def _tagging(tags: tuple[str, ...], target: str) -> Tagging:
    """Tags of an imported model. A sentence needs a tag if all tags name a target language."""
    of_target = [tag for tag in tags if primary(target) in map(primary, targets_of([tag]))]
    is_required = bool(tags) and len(targets_of(tags)) == len(tags)
    return Tagging(tags, of_target[0] if len(of_target) == 1 else None, is_required)


def _config_of(folder: Path, imported: Imported, longest: float | None, name: str) -> Config:
    source, target = imported.languages
    max_tokens = int(longest) if longest is not None and 1 <= longest <= _LONGEST else _MAX_TOKENS
    is_directed = imported.default_tag is not None
    generation = read_optional(folder / "generation_config.json", _GenerationConfig)
    if generation.forced_bos_token_id is not None and not is_directed:  # No option of `decoding` does this.
        raise InputError(f"{folder / 'generation_config.json'}: not supported: forced_bos_token_id")
    tagging = Tagging(imported.tags, imported.default_tag, True) if is_directed else _tagging(imported.tags, target)
    decoding = {
        "beam_size": generation.num_beams or imported.num_beams,
        "length_penalty": generation.length_penalty,
        "no_repeat_ngram": generation.no_repeat_ngram_size or None,
        "unk": "avoid" if imported.unk in (generation.suppress_tokens or ()) else None,
    }
    corpus = {"source": source, "target": target, "max_tokens": max_tokens}
    tree = {
        "name": name,
        "corpus": corpus | unknown_corpus(tagging, source),
        "tokenizer": dict(imported.options),
        "model": imported.model.config.model_dump(mode="json"),
        "decoding": {key: value for key, value in decoding.items() if value is not None},
    }
    return parse_config(tree, "mt import")
