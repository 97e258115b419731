"""`mt`: train machine translation models from parallel text, and translate with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mt_cli.translation.translator import Translator as Translator

__all__ = ["Translator"]


def __getattr__(name: str) -> Any:
    """Import the translator, and PyTorch with it, when it is first used."""
    if name != "Translator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mt_cli.translation.translator import Translator

    return Translator
