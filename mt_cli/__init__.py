"""`mt`: train machine translation models from parallel text, and translate with them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mt_cli.corpus.glossary import Glossary as Glossary
    from mt_cli.translation.translator import Translator as Translator

__all__ = ["Glossary", "Translator"]
_MODULES = {"Glossary": "mt_cli.corpus.glossary", "Translator": "mt_cli.translation.translator"}


def __getattr__(name: str) -> Any:
    """Import a class, and PyTorch with the translator, when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
