"""Exported models: `model.json`, the tokenizers beside it, and how CTranslate2 loads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from mt_cli.config.sections import DecodingConfig, TokenizerConfig
from mt_cli.config.tags import Tagging
from mt_cli.corpus.cache import digest_of_file, fingerprint
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.decoding.ctranslate2 import CTranslate2Engine
from mt_cli.errors import InputError, reason
from mt_cli.runtime.cpus import limit_threads
from mt_cli.runtime.files import read_model
from mt_cli.tokenizer.special_tokens import SPECIAL_TOKENS
from mt_cli.tokenizer.tokenizer import load_pair
from mt_cli.translation.translator import Translator

DESCRIPTION = "model.json"


class Description(BaseModel):
    """Content of `model.json`, with its keys in this order, without paths or names of corpora."""

    architecture: str = "encoder-decoder Transformer; names of weights as in mt_cli/model/transformer.py"
    model: dict[str, Any]
    tokenizer: TokenizerConfig
    decoding: DecodingConfig
    source_language: str
    target_language: str
    tags: tuple[str, ...]
    default_tag: str | None
    is_tag_required: bool = False
    languages_of_tags: dict[str, str] = {}
    is_one_way: bool = False
    """These values and `tags` are those of `Tagging`; the next three, of `Translator`."""
    max_tokens: int = Field(ge=1, le=2**31)
    most_tokens: int = Field(ge=1, le=2**31)
    sentences_seen: SentencesSeen | None = None
    protect: tuple[str, ...] = ()
    """`corpus.protect`, the spans that become reserved entries."""
    source_vocab_size: int = 0
    target_vocab_size: int = 0
    licences: dict[str, str] = {}
    """Licences of imported models that training began with, by their names; for the user of the export to observe."""
    special_tokens: dict[str, int] = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    source: str = "tokens followed by [EOS]"
    target: str = "[SOS] followed by tokens; a translation ends with [EOS]"

    @property
    def tagging(self) -> Tagging:
        return Tagging(self.tags, self.default_tag, self.is_tag_required, self.languages_of_tags, self.is_one_way)

    @property
    def protection(self) -> Protection:
        return Protection.of(self.protect)

    @property
    def languages(self) -> tuple[str, str]:
        return self.source_language, self.target_language


def load_exported(
    paths: Sequence[str | Path], device: str, precision: str, checkpoint: str | None, num_threads: int | None
) -> Translator:
    """Load a model that `mt export --format ctranslate2` wrote; `paths` has only its folder.

    Raises InputError if ctranslate2 is not installed, the folder has no such model, or a precision or checkpoint is
    given.
    """
    if precision != "auto" or checkpoint is not None or len(paths) > 1:
        raise InputError("precision, checkpoint and ensemble are for the engine mt; an exported model has one of each")
    folder = Path(paths[0])
    try:
        description = read_model(folder / DESCRIPTION, Description)
        tokenizers = load_pair(folder, description.tokenizer, description.tags)
    except InputError as error:
        raise _refusal(folder, error) from None
    try:
        engine = CTranslate2Engine(folder, tokenizers, device, limit_threads(num_threads))
    except (ValueError, RuntimeError) as error:  # Of the library, which reads the model.
        raise _refusal(folder, error) from None
    return Translator(
        engine,
        tokenizers,
        description.decoding,
        description.max_tokens,
        description.tagging,
        description.languages,
        description.most_tokens,
        description.protection,
        partial(digest_of_export, folder),
        description.sentences_seen,
        engine.is_on_gpu,
    )


def _refusal(folder: Path, error: Exception) -> InputError:
    return InputError(
        f"{folder}: no model for --engine ctranslate2 ({reason(error)}); write one with "
        "`mt export --format ctranslate2 --output FOLDER` and use it with --run FOLDER"
    )


def digest_of_export(folder: Path) -> str:
    """Digest of the files in the folder of an exported model."""
    files = sorted(path for path in folder.iterdir() if not path.is_dir())  # A download may have added a folder.
    return fingerprint([*map(digest_of_file, files)])
