"""`mt import`: a run directory with a model of another program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field
from torch import Tensor

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.checkpoint.weights import check_finite, check_names, check_outline, read_safetensors
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.corpus.languages import is_known, primary, writes_spaces
from mt_cli.errors import InputError, one_line, reason
from mt_cli.experiment.lineage import UNKNOWN_CORPUS, write_run
from mt_cli.export.served import DESCRIPTION
from mt_cli.importing.marian import Imported, read_marian
from mt_cli.model.transformer import Transformer, outline
from mt_cli.storage import read_regular, reading
from mt_cli.tokenizer import Tokenizer, TokenizerPair

_MAX_TOKENS, _LONGEST = 512, 2**14
"""`corpus.max_tokens` if a model does not say how long its sources were, or says more than the second number."""
_MAX_JSON_BYTES = 2**24
T = TypeVar("T", bound=BaseModel)
_FILES = ("*.json", "*.spm", "model.safetensors", "pytorch_model.bin")


def import_model(name: str, output: Path, languages: Sequence[str | None], allow_pickle: bool = False) -> TrainedRun:
    """Write the Marian model in a folder or on the hub, or an export of ours, as a run into the new folder `output`.

    Raises InputError if it cannot be read, its languages are not known, or `output` exists.
    """
    folder = _folder_of(name)
    if (folder / "config.yaml").exists():
        raise InputError(f"{folder}: is a run already; use it with --run")
    if not any((folder / each).exists() for each in (DESCRIPTION, "config.json", "decoder.yml")):
        raise InputError(f"{folder}: has no model: no config.json, decoder.yml or {DESCRIPTION}")
    if (folder / DESCRIPTION).exists():
        config, tokenizers, model = _read_bundle(folder, output.name, languages)
    else:
        described = _read_optional(folder / "tokenizer_config.json", _TokenizerConfig)
        both = _languages(name, described, languages)
        imported = read_marian(folder, allow_pickle)
        generation = _read_optional(folder / "generation_config.json", _GenerationConfig)
        config = _config_of(imported, described.model_max_length, generation, output.name, both)
        tokenizers, model = imported.tokenizers, imported.model
    return write_run(output, config, tokenizers, model, config.corpus.max_tokens)


class _Bundle(BaseModel):
    """The keys of `model.json`."""

    model: dict[str, Any]
    tokenizer: dict[str, Any]
    decoding: dict[str, Any]
    source_language: str
    target_language: str
    tags: tuple[str, ...]
    max_tokens: int


def _read_bundle(folder: Path, name: str, languages: Sequence[str | None]) -> tuple[Config, TokenizerPair, Transformer]:
    path, weights_path = folder / DESCRIPTION, folder / "model.safetensors"
    with reading(path):
        content = read_regular(path, _MAX_JSON_BYTES)
    try:
        found = _Bundle.model_validate_json(content)
    except ValueError as error:
        raise InputError(f"{path}: not the description of a bundle: {reason(error)}") from None
    if not weights_path.exists():
        raise InputError(
            f"{folder}: has no weights; a CTranslate2 model cannot be imported, "
            "export the run as a bundle or for huggingface"
        )
    both = languages[0] or found.source_language, languages[1] or found.target_language
    corpus = {"source": both[0], "target": both[1], "max_tokens": found.max_tokens}
    tree = {"name": name, "corpus": corpus | _unknown_corpus(found.tags), "tokenizer": found.tokenizer}
    config = parse_config(tree | {"model": found.model, "decoding": found.decoding}, str(path))
    source = Tokenizer.load(folder / "tokenizer.source.json", found.tags)
    target = Tokenizer.load(folder / "tokenizer.target.json")
    if config.tokenizer.is_single:
        if target.to_json() != source.to_json():
            raise InputError(f"{folder}: tokenizer.shared is true, and its two tokenizers differ")
        target = source
    weights = read_safetensors(weights_path)
    try:
        planned = outline(config.model, source.vocab_size, target.vocab_size)
        check_outline(planned, weights)
        check_finite(weights)
        weights |= _tied(weights, planned)
        check_names(planned, weights)
        model = Transformer(config.model, source.vocab_size, target.vocab_size)
        model.load_state_dict(weights)
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{folder}: cannot be imported: {reason(error)}") from None
    return config, (source, target), model


def _tied(weights: Mapping[str, Tensor], model: Transformer) -> dict[str, Tensor]:
    """The weights that have several names, by the names that a bundle leaves out."""
    known = {id(weight): name for name, weight in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: weights[known[id(weight)]] for name, weight in every if known[id(weight)] in weights}


def _unknown_corpus(tags: Sequence[str]) -> dict[str, Any]:
    """A corpus section in place of the one that the model was trained on."""
    train: list[dict[str, Any]] = [{"file": UNKNOWN_CORPUS, "tag": tag, "name": tag} for tag in tags]
    return {"train": train or {"file": UNKNOWN_CORPUS}, "valid": {"fraction": 0.1}}


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
    try:
        return kind.model_validate_json(read_regular(path, _MAX_JSON_BYTES))
    except FileNotFoundError:
        return kind()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}") from None


def _languages(name: str, config: _TokenizerConfig, given: Sequence[str | None]) -> tuple[str, str]:
    """The languages: those given, those of the tokenizers, or those at the end of the name, as in `opus-mt-en-it`."""
    found = [config.source_lang, config.target_lang]
    parts = re.split(r"[-_]", Path(name).name)[-2:]
    if None in found and len(parts) == 2 and all(map(is_known, parts)):
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
            **_unknown_corpus(imported.tags),
        },
        "tokenizer": dict(imported.options),
        "model": imported.model.config.model_dump(mode="json"),
        "decoding": {key: value for key, value in decoding.items() if value is not None},
    }
    return parse_config(tree, "mt import")
