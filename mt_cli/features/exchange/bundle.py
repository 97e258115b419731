"""Bundles: weights, tokenizers and `model.json`, without another program's layout; written and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from mt_cli.checkpoint.directory import UNKNOWN_CORPUS
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.checkpoint.untrusted_weights import check_finite, check_names, check_size, read_safetensors
from mt_cli.config.directions import Tagging
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.errors import InputError, reason
from mt_cli.machine.storage import new_folder, read_model
from mt_cli.model.transformer import Transformer, outline
from mt_cli.tokenizer.tokenizer import TokenizerPair, load_pair
from mt_cli.translation.exported import DESCRIPTION, Description, describe


def export_bundle(run: TrainedRun, output: Path) -> None:
    """Write weights (safetensors), tokenizers (of the `tokenizers` library) and `model.json` into a new folder.

    Raises InputError if the folder exists or cannot be made. Raises MtError if it cannot be written; nothing of it
    remains.
    """
    weights = {name: weight.detach().float().contiguous() for name, weight in run.model.named_parameters()}
    with new_folder(output) as folder:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        describe(run, folder)


def read_bundle(folder: Path, name: str, languages: Sequence[str | None]) -> tuple[Config, TokenizerPair, Transformer]:
    """Config, tokenizers and model of the bundle in a folder, as a run of this name; raises InputError."""
    path, weights_path = folder / DESCRIPTION, folder / "model.safetensors"
    found = read_model(path, Description)
    if not weights_path.exists():
        raise InputError(
            f"{folder}: has no weights; a CTranslate2 model cannot be imported, "
            "export the run as a bundle or for huggingface"
        )
    both = languages[0] or found.source_language, languages[1] or found.target_language
    corpus = {"source": both[0], "target": both[1], "max_tokens": found.most_tokens or found.max_tokens}
    tree = {"name": name, "corpus": corpus | unknown_corpus(found.tagging), "tokenizer": found.tokenizer}
    config = parse_config(tree | {"model": found.model, "decoding": found.decoding.model_dump(mode="json")}, str(path))
    source, target = load_pair(folder, config.tokenizer, found.tags)
    if config.tokenizer.is_single:
        if target.to_json() != source.to_json():
            raise InputError(f"{folder}: tokenizer.shared is true, and its two tokenizers differ")
        target = source
    weights = read_safetensors(weights_path)
    try:
        planned = outline(config.model, source.vocab_size, target.vocab_size)
        check_size(planned, weights)
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


def unknown_corpus(tagging: Tagging) -> dict[str, Any]:
    """Corpus section with the tags of a model, in place of the one that it was trained on."""
    train: list[dict[str, Any]] = [{"file": UNKNOWN_CORPUS, "tag": tag, "name": tag} for tag in tagging.tags]
    plain: dict[str, Any] = {"file": UNKNOWN_CORPUS}
    if not tagging.is_required:
        train.append(plain)
    # The tag of `valid` is the default.
    valid = {"fraction": 0.1} if tagging.is_required and tagging.default is None else plain | {"tag": tagging.default}
    return {"train": train, "valid": valid}
