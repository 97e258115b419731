"""Scripts and capital letters of each language in each corpus, and where they are mixed or differ between corpora.

A sentence is in the script of most of its letters: names and terms in another script are no sentences in it. Japanese
and Korean mix scripts by nature. Chinese is simplified or traditional by characters that only one of the two has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.languages import CHINESE, COMMON_WORDS, code_with_script, primary, scripts_in
from mt_cli.features.data_check.findings import MIN_SENTENCES, Finding, Tally
from mt_cli.features.data_check.marks import matches

_SAMPLE = 300
_SCRIPT_SHARE = 0.02
"""Share of the sentences in a second script from which on scripts are mixed."""
_FEW_CAPITALS, _MANY_CAPITALS = 0.02, 0.5
"""Shares of the sentences with a capital letter of a text without and with capitals."""
_MANY_SENTENCES = 100
"""Number of sentences of a known language from which on it should have capital letters."""
_MIN_LETTERS = 8
_MIXED_BY_NATURE = ("ja", "ko")
_HAN = {
    "simplified Han": "们这来时说对会国过还进东车马门问间见长书学习写读语话认识让爱听应该实现发电视关开网络钱买卖",
    "traditional Han": "們這來時說對會國過還進東車馬門問間見長書學習寫讀語話認識讓愛聽應該實現發電視關開網絡錢買賣",
}
"""Characters of one of the two standards; the other one and Japanese write most of them otherwise."""
_RE2_SCRIPTS = (
    "Arabic Armenian Bengali Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana "
    "Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Oriya Sinhala Tamil Telugu Thaana Thai Tibetan "
    "Tifinagh"
)
"""Scripts that RE2 has by the names of `scripts_in`."""


@dataclass
class Usage:
    """Sentences of a language in a corpus by script, and those with capital letters."""

    scripts: dict[str, Tally] = field(default_factory=dict)
    num_cased: int = 0
    """Number of sentences in a script that has capital letters."""
    num_capitalized: int = 0

    @property
    def main_script(self) -> str | None:
        """Script of most sentences."""
        return max(self.scripts, key=lambda name: self.scripts[name].num, default=None)

    def least(self) -> float:
        """Number of sentences in a second script from which on scripts are mixed."""
        return _SCRIPT_SHARE * sum(tally.num for tally in self.scripts.values())

    @property
    def has_capitals(self) -> bool | None:
        """Whether sentences have capital letters; None if it is unclear."""
        if self.num_cased < MIN_SENTENCES:
            return None
        share = self.num_capitalized / self.num_cased
        return True if share >= _MANY_CAPITALS else False if share <= _FEW_CAPITALS else None


def count_usage(usage: Usage, language: str, part: str, numbers: Sequence[int], texts: pa.StringArray) -> None:
    """Add the sentences of a block of a source, with the numbers of their lines."""
    sample = np.linspace(0, len(texts) - 1, min(len(texts), _SAMPLE)).astype(int)
    scripts = _candidates(texts.take(pa.array(sample)).to_pylist(), language)
    codes = _scripts_of(texts, scripts)
    for code, script in enumerate(scripts):
        usage.scripts.setdefault(script, Tally()).add(part, numbers, texts, codes == code)
    is_capitalized = matches(texts, r"\p{Lu}")
    usage.num_capitalized += int(is_capitalized.sum())
    usage.num_cased += int((is_capitalized | matches(texts, r"\p{Ll}")).sum())


def notes_on_usage(usages: Mapping[tuple[str, str], Usage], config: CorpusConfig) -> Iterator[Finding]:
    """Note languages in several scripts, and evaluation sets in another script or case than `train`."""
    for (name, language), usage in usages.items():
        texts = [*_notes_on_scripts(name, language, usage, usages.get(("train", language)), config)]
        texts += _notes_on_capitals(name, language, usage, usages.get(("train", language)))
        yield from (Finding(name, "", 0, 0, text, "scripts", is_note=True) for text in texts)


def _notes_on_scripts(
    name: str, language: str, usage: Usage, train: Usage | None, config: CorpusConfig
) -> Iterator[str]:
    least = max(MIN_SENTENCES, usage.least())
    tallies = {script: tally for script, tally in usage.scripts.items() if tally.num >= least}
    if len(tallies) >= 2:
        scripts = sorted(tallies, key=lambda script: -tallies[script].num)
        counts = "; ".join(f"{tallies[code].num:,} in {code}, {tallies[code].shown(name, config)}" for code in scripts)
        yield (
            f"sentences in {language} are in {len(scripts)} scripts: {counts}; a model of both writes either: to keep "
            f"one, name it in the code of the language ({code_with_script(language, scripts[0])}), so that "
            "corpus.filters.min_script_share drops the others; or convert them"
        )
    if (main := usage.main_script) is None:
        return
    if (standard := _expected_standard(language)) and main != standard:
        yield f"{language} is in {main}, {usage.scripts[main].shown(name, config)}, and not in {standard}"
    if train and train.main_script and train.scripts.get(main, Tally()).num < train.least():
        yield (
            f"{language} is in {main}, {usage.scripts[main].shown(name, config)}, and in {train.main_script} in train: "
            "no translation can be right; convert one of them"
        )


def _notes_on_capitals(name: str, language: str, usage: Usage, train: Usage | None) -> Iterator[str]:
    is_large = primary(language) in COMMON_WORDS and usage.num_cased >= _MANY_SENTENCES
    if name == "train" and is_large and usage.has_capitals is False:
        yield (
            f"{usage.num_capitalized:,} of {usage.num_cased:,} sentences in {language} have capital letters: the model "
            "will not know words with capitals; give the cased text, or lower-case what you translate"
        )
    if train and {usage.has_capitals, train.has_capitals} == {True, False}:
        sets = (("train", train), (name, usage))
        (without, rare), (having, frequent) = sets if usage.has_capitals else sets[::-1]
        yield (
            f"sentences in {language} have capital letters in {having} ({frequent.num_capitalized:,} of "
            f"{frequent.num_cased:,}) and hardly any in {without} ({rare.num_capitalized:,} of {rare.num_cased:,}): "
            "give the cased text, or lower-case both"
        )


def _scripts_of(texts: pa.StringArray, names: Sequence[str]) -> NDArray[np.int8]:
    """Index in `names` of the script of more than half of the letters of each sentence; -1 if too short or in none.

    A single name is the script of all.
    """
    if len(names) == 1:
        return np.zeros(len(texts), np.int8)
    codes = np.full(len(texts), -1, np.int8)
    num_letters = _num_characters(texts, r"\pL")
    is_long = num_letters >= _MIN_LETTERS
    if list(names) == list(_HAN):
        simplified, traditional = (_num_characters(texts, f"[{characters}]") for characters in _HAN.values())
        codes[is_long & (simplified > traditional)] = 0
        codes[is_long & (traditional > simplified)] = 1
        return codes
    for index, name in enumerate(names):
        codes[is_long & (2 * _num_characters(texts, rf"\p{{{name}}}") > num_letters)] = index
    return codes


def _candidates(texts: Sequence[str], language: str) -> list[str]:
    """Scripts that some sentences are in; for Chinese, the two standards. Empty if the language mixes scripts."""
    if primary(language) in _MIXED_BY_NATURE:
        return []
    scripts = {*_RE2_SCRIPTS.split()}
    # Sorted, because the order of a set changes from process to process.
    counts = Counter(name for text in texts for name in sorted(scripts_in(text) & scripts))
    names = [name for name, _ in counts.most_common()]
    return [*_HAN] if primary(language) in CHINESE and names[:1] == ["Han"] else names


def _expected_standard(language: str) -> str | None:
    """Standard of Chinese characters that the script or region of a code names, as in `zh_Hant` or `zh-TW`."""
    subtags = {*language.replace("_", "-").lower().split("-")[1:]} if primary(language) in CHINESE else set()
    for name, codes in zip(_HAN, ({"hans", "cn", "sg"}, {"hant", "tw", "hk", "mo"}), strict=True):
        if subtags & codes:
            return name
    return None


def _num_characters(texts: pa.StringArray, kind: str) -> NDArray[np.int64]:
    """Number of characters of a kind, an RE2 class, in each text."""
    rest = f"[^{kind.removeprefix('[').removesuffix(']')}]+"
    kept = pc.replace_substring_regex(texts, rest, "")
    counts: NDArray[np.int64] = pc.utf8_length(kept).to_numpy(zero_copy_only=False)
    return counts
