"""Option `--review` of `mt translate`: the translations that most need reading."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mt_cli.errors import InputError
from mt_cli.runtime.console import say

if TYPE_CHECKING:
    from mt_cli.translation.translator import Translator

_LINES_SAMPLED = 1000


class Review(NamedTuple):
    """Fraction of the translations to read, 0 to 1, and the table that lists lines of text."""

    share: float
    table: Path

    @classmethod
    def of(cls, option: str, output: Path | None, is_interactive: bool) -> Review:
        """The option, such as `20%`; raises InputError if it is no share, or there is no file for translations."""
        percent = option.removesuffix("%").strip()
        if not (option.endswith("%") and percent.isdecimal() and 1 <= int(percent) <= 100):
            raise InputError(f"--review {option}: give the share of the translations to read, 1% to 100%")
        if output is None or is_interactive:
            raise InputError("--review: give a file for the translations, --output FILE; FILE.review.tsv lists lines")
        return cls(int(percent) / 100, Path(f"{output}.review.tsv"))

    def finish(self) -> None:
        """Keep the lines to read in the table, which has all lines."""
        from mt_cli.translation.quality import write_review

        say("{}: {:,} of {:,} translations to read".format(self.table, *write_review(self.table, self.share)))


def with_quality(
    translator: Translator,
    paths: list[Path],
    engine: str,
    checkpoint: str | None,
    is_needed: bool,
    is_sampled: bool,
    texts: Iterable[str] = (),
    language: str = "",
) -> Translator:
    """Translator with the estimate of quality of its run; raises InputError if it `is_needed` and there is none.

    The estimate does not hold if the first `texts` are not in `language`, nor for sampled translations, because it
    expects, for example, 28 of chrF 42.
    """
    from mt_cli.translation.quality import read_quality

    quality = read_quality(paths[0], engine, checkpoint) if len(paths) == 1 else None
    if quality is None and is_needed:
        how = f"first: mt tune-quality --run {paths[0]}"
        if len(paths) > 1 or engine != "mt" or checkpoint is not None:
            how = "it needs the best checkpoint of one run, or an export made after mt tune-quality"
        raise InputError(f"--review: no estimate of quality for these weights of {paths[0]}; {how}")
    translator = replace(translator, quality=quality)
    if is_sampled:
        return translator.with_doubt("its translations are sampled")
    lines = [*islice(texts, _LINES_SAMPLED)] if quality else []
    return translator.with_doubt(other_language(language, lines)) if lines else translator


def other_language(language: str, texts: Sequence[str]) -> str:
    """Reason why no estimate holds for texts that are clearly in another language; empty otherwise."""
    from mt_cli.advice.recognition import other_language_of_texts
    from mt_cli.corpus.languages import language_name

    other = other_language_of_texts(texts, language)
    return f"it looks like {language_name(other)}, not {language_name(language)}" if other else ""
