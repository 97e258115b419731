"""Bundles, written and read: weights, tokenizers and `model.json`, in a layout of our own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mt_cli.checkpoint.directory import UNKNOWN_CORPUS
from mt_cli.checkpoint.state import licences_of
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.config.tags import Tagging
from mt_cli.errors import InputError, one_line
from mt_cli.exchange.transformers_folder import load_model
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.files import json_text, new_folder, read_model, writing
from mt_cli.tokenizer.tokenizer import TokenizerPair, load_pair
from mt_cli.translation.exported import DESCRIPTION, Description


def export_bundle(run: TrainedRun, output: Path) -> None:
    """Write weights (safetensors), tokenizers (of the `tokenizers` library) and `model.json` into a new folder.

    Raises InputError if the folder exists or cannot be made. Raises MtError if it cannot be written; nothing is left in
    it then.
    """
    weights = {name: weight.detach().float().contiguous() for name, weight in run.model.named_parameters()}
    with new_folder(output) as folder, writing(output):
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        describe(run, folder)


def describe(run: TrainedRun, folder: Path) -> None:
    """Write the tokenizers and the description of a run into a folder."""
    for name, tokenizer in zip(("source", "target"), run.tokenizers, strict=True):
        (folder / f"tokenizer.{name}.json").write_text(tokenizer.to_json(), encoding="utf-8")
    config, tagging = run.config, run.config.corpus.tagging
    description = Description.model_construct(  # The values of a run are checked already.
        model=config.model.model_dump(mode="json"),
        tokenizer=config.tokenizer,
        decoding=config.decoding,
        source_language=config.corpus.source,
        target_language=config.corpus.target,
        tags=tagging.tags,
        default_tag=tagging.default,
        is_tag_required=tagging.is_required,
        languages_of_tags=dict(tagging.languages),
        is_one_way=tagging.is_one_way,
        max_tokens=run.max_tokens,
        most_tokens=config.corpus.max_tokens,
        sentences_seen=run.state.sentences_seen,
        protect=config.corpus.protect,
        source_vocab_size=run.tokenizers[0].vocab_size,
        target_vocab_size=run.tokenizers[1].vocab_size,
        licences=licences_of(run.state.parents),
    )
    (folder / DESCRIPTION).write_text(json_text(description.model_dump(mode="json")), encoding="utf-8")


def read_bundle(
    folder: Path, name: str, languages: Sequence[str | None]
) -> tuple[Config, TokenizerPair, Transformer, Description]:
    """Config, tokenizers and model of a bundle, as a run of this name, and its description.

    `languages` replace those of the bundle where they are given. Raises InputError if the bundle cannot be read.
    """
    path, weights_path = folder / DESCRIPTION, folder / "model.safetensors"
    description = read_model(path, Description)
    if not weights_path.exists():
        raise InputError(
            f"{folder}: has no weights; a CTranslate2 model cannot be imported, "
            "export the run as a bundle or for huggingface"
        )
    corpus = {
        "source": languages[0] or description.source_language,
        "target": languages[1] or description.target_language,
        "max_tokens": description.most_tokens,
        "protect": list(description.protect),
        **unknown_corpus(description.tagging, languages[0] or description.source_language),
    }
    tokenizer = description.tokenizer.model_dump(mode="json")
    sections = {"corpus": corpus, "tokenizer": tokenizer, "model": description.model}
    decoding = description.decoding.model_dump(mode="json")
    config = parse_config({"name": name, **sections, "decoding": decoding}, str(path))
    source, target = load_pair(folder, config.tokenizer, description.tags)
    try:
        weights = load_file(weights_path)
    except SafetensorError as error:
        raise InputError(f"{weights_path}: damaged; get it again: {one_line(error)}") from None
    sizes = source.vocab_size, target.vocab_size
    model = load_model(folder, config.model, sizes, lambda planned: _with_tied(planned, weights))
    return config, (source, target), model, description


def _with_tied(planned: Transformer, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of a bundle, in which a tied weight is stored once, with a tied weight under all of its names."""
    first_names = {id(weight): name for name, weight in planned.named_parameters()}
    names = {name: first_names[id(weight)] for name, weight in planned.named_parameters(remove_duplicate=False)}
    return {**weights, **{name: weights[first] for name, first in names.items() if first in weights}}


def unknown_corpus(tagging: Tagging, source: str) -> dict[str, Any]:
    """Keys of a section `corpus` with the tags of a model whose training text is unknown."""
    languages = {tag: {"languages": [source, target]} for tag, target in tagging.languages.items()}
    train: list[dict[str, Any]] = [
        {"file": UNKNOWN_CORPUS, "tag": tag, "name": tag} | languages.get(tag, {}) for tag in tagging.tags
    ]
    untagged: dict[str, Any] = {"file": UNKNOWN_CORPUS}
    if not tagging.is_required:
        train.append(untagged)
    # The tag of `valid` is the default.
    has_default = not tagging.is_required or tagging.default is not None
    return {"train": train, "valid": untagged | {"tag": tagging.default} if has_default else {"fraction": 0.1}}
