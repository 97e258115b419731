"""Which codes of languages are the same language, or a variety of another one. Knows codes; knows no text."""

from __future__ import annotations

import re
from functools import lru_cache

from mt_cli.corpus.languages import primary


@lru_cache(maxsize=1_000)
def canonical(code: str) -> str:
    """One spelling for all codes of a language variety: `en` for `eng`, `EN` and `eng_Latn`, `pt-BR` for `por_br`.

    A code that is not in the registry of BCP 47 is only changed to lower case.
    """
    import langcodes  # Takes a while.

    language, *subtags = re.split("[-_]", code)
    tag = "-".join([primary(language), *subtags])
    return langcodes.standardize_tag(tag) if langcodes.tag_is_valid(tag) else code.lower().replace("_", "-")


@lru_cache(maxsize=10_000)
def is_variety_of(name: str, language: str) -> bool:
    """Whether text called `name` is in a language: `en-US` is in `en` but not in `en-GB`, `zh-TW` not in `zh_Hans`."""
    first, second = canonical(name), canonical(language)
    if primary(name) != primary(language) or first == second:
        return primary(name) == primary(language)
    import langcodes

    if not (langcodes.tag_is_valid(first) and langcodes.tag_is_valid(second)):
        return False
    varieties = [langcodes.Language.get(tag) for tag in (first, second)]
    regions = {variety.territory for variety in varieties if variety.territory}
    return len({variety.maximize().script for variety in varieties}) == 1 and len(regions) < 2
