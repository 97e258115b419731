"""Exported models: `model.json`, the tokenizers beside it, and how CTranslate2 loads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import regex
from pydantic import BaseModel, Field

from mt_cli.checkpoint.lineage import licences_of
from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.directions import Tagging, tag_of
from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.corpus.cache import digest_of_file
from mt_cli.corpus.protected_text import Protection
from mt_cli.decoding.ctranslate2 import CTranslate2Engine, import_ctranslate2
from mt_cli.decoding.reserved_ids import ReservedIds
from mt_cli.errors import InputError, reason
from mt_cli.machine.storage import check_regular, json_text, read_model
from mt_cli.tokenizer.special_tokens import SPECIAL_TOKENS
from mt_cli.tokenizer.tokenizer import TokenizerPair, load_pair

DESCRIPTION = "model.json"
_SIGNED = ("model.safetensors", "model.bin", "config.json", "*vocabulary.*", "tokenizer.*.json")
"""Files whose digests are in a description."""


class Description(BaseModel):
    """Content of `model.json`, with its keys in this order, without paths or names of corpora."""

    architecture: str = "encoder-decoder Transformer; names of weights as in mt_cli/model/transformer.py"
    model: dict[str, Any]
    tokenizer: dict[str, Any]
    decoding: DecodingConfig
    source_language: str
    target_language: str
    tags: tuple[str, ...]
    default_tag: str | None = None
    """Tag of sentences without a tag."""
    is_tag_required: bool = False
    """Whether every training sentence had a tag."""
    max_tokens: int = Field(ge=1, le=2**31)
    """Number of tokens of the longest training source."""
    most_tokens: int | None = Field(default=None, ge=1, le=2**31)
    """`corpus.max_tokens`, the limit for a source; None, in exports of earlier versions, means `max_tokens`."""
    protect: tuple[str, ...] = ()
    protect_patterns: tuple[str, ...] = ()
    """`corpus.protect` and `corpus.protect_patterns`, the spans that become reserved entries."""
    source_vocab_size: int = 0
    target_vocab_size: int = 0
    sha256: dict[str, str] = {}
    """Digests of the files of weights and tokenizers; exports of earlier versions have none."""
    licences: dict[str, str] = {}
    """Licences of imported models that training began with, by their names; for the user of the export to observe."""
    special_tokens: dict[str, int] = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    source: str = "tokens followed by [EOS]"
    target: str = "[SOS] followed by tokens; a translation ends with [EOS]"

    @property
    def tagging(self) -> Tagging:
        """Tags and the default tag; in an older description, the tag of the target language is the default, if any."""
        by_target = tag_of(self.target_language)
        is_older = "default_tag" not in self.model_fields_set
        default = by_target if is_older and by_target in self.tags else self.default_tag
        return Tagging(self.tags, default, self.is_tag_required)

    @property
    def protection(self) -> Protection:
        """Spans that are protected."""
        return Protection(self.protect, self.protect_patterns)


def check_unchanged(folder: Path, description: Description) -> None:
    """Raise InputError if a file of weights or of a tokenizer has changed, come or gone since the export."""
    digests, is_complete = description.sha256, any(name.startswith("tokenizer.") for name in description.sha256)
    for pattern in _SIGNED:
        for path in filter(Path.is_file, folder.glob(pattern)):  # A pipe would block.
            if path.name in digests and digest_of_file(path) != digests[path.name]:
                raise InputError(f"{path}: has changed since it was exported; export the run again")
            if path.name not in digests and is_complete:
                raise InputError(f"{path}: is not a file of this export; remove it")
    if missing := [name for name in digests if not (folder / Path(name).name).is_file()]:
        raise InputError(f"{folder / Path(missing[0]).name}: is missing; export the run again")


def describe(run: TrainedRun, folder: Path) -> None:
    """Write the tokenizers and the description of a run into a folder."""
    config, (source, target) = run.config, run.tokenizers
    for name, tokenizer in (("source", source), ("target", target)):
        (folder / f"tokenizer.{name}.json").write_text(tokenizer.to_json(), encoding="utf-8")
    description = Description(
        model=config.model.model_dump(mode="json"),
        tokenizer=config.tokenizer.model_dump(mode="json"),
        decoding=config.decoding,
        source_language=config.corpus.source,
        target_language=config.corpus.target,
        tags=config.corpus.tags,
        default_tag=config.corpus.tagging.default,
        is_tag_required=config.corpus.tagging.is_required,
        max_tokens=run.max_tokens,
        most_tokens=config.corpus.max_tokens,
        protect=config.corpus.protect,
        protect_patterns=config.corpus.protect_patterns,
        source_vocab_size=source.vocab_size,
        target_vocab_size=target.vocab_size,
        licences=licences_of(run.state.parents),
        sha256={path.name: digest_of_file(path) for pattern in _SIGNED for path in sorted(folder.glob(pattern))},
    )
    (folder / DESCRIPTION).write_text(json_text(description.model_dump(mode="json")), encoding="utf-8")


def load_exported(
    paths: Sequence[str | Path], device: str, precision: str, checkpoint: str | None
) -> tuple[CTranslate2Engine, TokenizerPair, Description]:
    """Load a model that `mt export --format ctranslate2` wrote; `paths` has only its folder.

    Raises InputError if ctranslate2 is not installed, the folder has no such model, or a precision or checkpoint is
    given, because an exported model has only one precision and one checkpoint.
    """
    if precision != "auto":
        raise InputError("precision: an exported model has its own number format; see mt export --quantization")
    if checkpoint is not None:
        raise InputError("checkpoint: an exported model has one checkpoint only; use the engine mt")
    if len(paths) > 1:
        raise InputError("exported models cannot be an ensemble; use the engine mt, or one folder")
    ctranslate2, folder = import_ctranslate2(), Path(paths[0])
    try:
        for path in folder.iterdir():
            check_regular(path)  # CTranslate2 itself would block on a pipe.
        description = read_model(folder / DESCRIPTION, Description)
        check_unchanged(folder, description)
        tokenizers = load_pair(folder, TokenizerConfig.model_validate(description.tokenizer), description.tags)
        description.protection.spans(" ")  # Raises for a pattern that is none.
        engine = CTranslate2Engine(ctranslate2, folder, tokenizers, device, reserved=ReservedIds.of(tokenizers))
    except (OSError, ValueError, RuntimeError, InputError, regex.error) as error:  # And RecursionError.
        raise InputError(
            f"{folder}: no model for --engine ctranslate2 ({reason(error)}); write one with "
            "`mt export --format ctranslate2 --output FOLDER` and use it with --run FOLDER"
        ) from None
    return engine, tokenizers, description
