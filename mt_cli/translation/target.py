"""The target language of a translation, which a tag before the sentence tells a model for several languages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mt_cli.corpus.languages import primary
from mt_cli.errors import InputError
from mt_cli.machine.console import say

if TYPE_CHECKING:
    from mt_cli.translation.translator import Translator


def target_tag(translator: Translator, to: str | None, tag: str | None = None) -> str | None:
    """Tag for a target language; without a language, `tag` or the default of the model.

    A note says so if the model has several target languages and none is chosen. Raises InputError if the model does
    not translate into the language, or does not know the tag.
    """
    tagging = translator.tagging
    targets, (source, target) = tagging.targets, translator.languages
    if to is None:
        if tag is None and len(targets) > 1:
            default = f"this is {tagging.target_of(tagging.default)}, and " if tagging.default else ""
            say(f"note: no target language is chosen; {default}--to chooses one of {', '.join(targets)}")
        return tagging.chosen(tag)
    if tag is not None:
        raise InputError("give --to or --tag, not both")
    if target_tag := tagging.into(to):
        return target_tag
    if primary(to) == primary(target) and not (targets and tagging.is_required):
        return tagging.default
    languages = f"into {', '.join(targets)}" if targets else f"from {source} to {target} only"
    raise InputError(f"--to {to}: this model translates {languages}")
