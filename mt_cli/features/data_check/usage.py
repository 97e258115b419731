"""Scripts and capital letters of each language in each corpus, and where they are mixed or differ between corpora."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.languages import COMMON_WORDS, code_with_script, primary
from mt_cli.features.data_check.marks import matches
from mt_cli.features.data_check.problems import Problem
from mt_cli.features.data_check.scripts import candidates, expected_standard, scripts_of_sentences
from mt_cli.features.data_check.sentences import MIN_SENTENCES, Tally

_SAMPLE = 300
_SCRIPT_SHARE = 0.02
"""Share of the sentences in a second script from which on scripts are mixed."""
_FEW_CAPITALS, _MANY_CAPITALS = 0.02, 0.5
"""Shares of the sentences with a capital letter of a text without and with capitals."""

_MANY_SENTENCES = 100
"""Sentences of a known language from which on it should have capital letters."""


@dataclass
class Usage:
    """Sentences of a language in a corpus by script, and those with capital letters."""

    scripts: defaultdict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    num_cased: int = 0
    """Sentences in a script that has capital letters."""
    num_capitalized: int = 0

    @property
    def num_sentences(self) -> int:
        """Sentences whose script is known."""
        return sum(tally.num for tally in self.scripts.values())

    @property
    def main_script(self) -> str | None:
        """The script of most sentences."""
        return max(self.scripts, key=lambda name: self.scripts[name].num, default=None)

    @property
    def has_capitals(self) -> bool | None:
        """Whether sentences have capital letters; None if it is unclear."""
        if self.num_cased < MIN_SENTENCES:
            return None
        share = self.num_capitalized / self.num_cased
        return True if share >= _MANY_CAPITALS else False if share <= _FEW_CAPITALS else None


Usages = dict[tuple[str, str], Usage]
"""By the name of a corpus and the code of a language."""


def count_usage(
    usages: Usages, name: str, language: str, part: str, blocks: Sequence[tuple[Sequence[int], pa.StringArray]]
) -> None:
    """Add the sentences of a side of a source, in blocks with the numbers of their lines."""
    usage = usages.setdefault((name, language), Usage())
    for numbers, texts in blocks:
        sample = np.linspace(0, len(texts) - 1, min(len(texts), _SAMPLE)).astype(int)
        scripts = candidates(texts.take(pa.array(sample)).to_pylist(), language)
        codes = scripts_of_sentences(texts, scripts)
        for code, script in enumerate(scripts):
            usage.scripts[script].add(part, numbers, texts, codes == code)
        is_capitalized = matches(texts, r"\p{Lu}")
        usage.num_capitalized += int(is_capitalized.sum())
        usage.num_cased += int((is_capitalized | matches(texts, r"\p{Ll}")).sum())


def notes_on_usage(usages: Usages, config: CorpusConfig) -> Iterator[Problem]:
    """Notes on languages in several scripts, and on evaluation sets in another script or case than `train`."""
    for (name, language), usage in usages.items():
        main, standard, train = usage.main_script, expected_standard(language), usages.get(("train", language))
        texts = [_mixed_scripts(name, language, usage, config), _without_capitals(name, language, usage)]
        if main and standard and main != standard:
            texts.append(f"{language} is in {main}, {usage.scripts[main].shown(name, config)}, and not in {standard}")
        if name != "train" and train is not None:
            texts += [_other_script(name, language, usage, train, config), _other_case(name, language, usage, train)]
        for text in filter(None, texts):
            yield Problem(name, "", 0, 0, text, "scripts", is_note=True)


def _mixed_scripts(name: str, language: str, usage: Usage, config: CorpusConfig) -> str | None:
    least = max(MIN_SENTENCES, _SCRIPT_SHARE * usage.num_sentences)
    tallies = {script: tally for script, tally in usage.scripts.items() if tally.num >= least}
    if len(tallies) < 2:
        return None
    scripts = sorted(tallies, key=lambda script: -tallies[script].num)
    counts = "; ".join(f"{tallies[each].num:,} in {each}, {tallies[each].shown(name, config)}" for each in scripts)
    code = code_with_script(language, scripts[0])
    return (
        f"sentences in {language} are in {len(scripts)} scripts: {counts}; a model of both writes either: to keep one, "
        f"name it in the code of the language ({code}), so that corpus.filters.min_script_share drops the others; or "
        "convert them"
    )


def _other_script(name: str, language: str, usage: Usage, train: Usage, config: CorpusConfig) -> str | None:
    main = usage.main_script
    if main is None or train.main_script is None or train.scripts[main].num >= _SCRIPT_SHARE * train.num_sentences:
        return None
    return (
        f"{language} is in {main}, {usage.scripts[main].shown(name, config)}, and in {train.main_script} in train: no "
        "translation can be right; convert one of them"
    )


def _without_capitals(name: str, language: str, usage: Usage) -> str | None:
    if name != "train" or primary(language) not in COMMON_WORDS or usage.num_cased < _MANY_SENTENCES:
        return None
    if usage.has_capitals is not False:
        return None
    return (
        f"{usage.num_capitalized:,} of {usage.num_cased:,} sentences in {language} have capital letters: the model "
        "will not know words with capitals; give the cased text, or lower-case what you translate"
    )


def _other_case(name: str, language: str, usage: Usage, train: Usage) -> str | None:
    if None in (usage.has_capitals, train.has_capitals) or usage.has_capitals == train.has_capitals:
        return None
    (without, rare), (having, frequent) = sorted(
        (("train", train), (name, usage)), key=lambda item: item[1].has_capitals is True
    )
    return (
        f"sentences in {language} have capital letters in {having} ({frequent.num_capitalized:,} of "
        f"{frequent.num_cased:,}) and hardly any in {without} ({rare.num_capitalized:,} of {rare.num_cased:,}): give "
        "the cased text, or lower-case both"
    )
