"""Notes of `mt data check` on texts: spellings, words and entries, languages, leaks, and what filters would drop."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np

from mt_cli.batching.encoded import SIDES
from mt_cli.config.sections import Config
from mt_cli.corpus.cleaning import KEPT, STATUS_NAMES, clean
from mt_cli.corpus.languages import writes_spaces
from mt_cli.corpus.mixed_orthography import find_stretches
from mt_cli.corpus.rows import Languages, Pair, by_language, untagged
from mt_cli.corpus.text_hashes import pair_hashes
from mt_cli.data.prepare import Data, sample, training_pair_hashes
from mt_cli.features.data_check.findings import Finding
from mt_cli.features.orthography.recognition import other_language_of_texts
from mt_cli.features.orthography.spellings import mixed_spellings, other_letters

_PAIRS_EXAMINED = 200_000
_MANY_UNKNOWN = 0.1
_FEWEST_LEAKS, _MIN_LEAKED = 3, 0.01
_NUM_EXAMPLES = 2
_ROWS_EXAMINED = 200
_WORD = re.compile(r"\w+")
_FACTOR, _MARGIN = 1.5, 0.02
"""Later news of the same kind has up to 1.6 to 2 times the new words of shuffled text, another domain 2 to 20 times."""
_MIN_WORDS = 200
_WORDS_OF_ENTRY = 2
"""Largest number of words on both sides of an entry of a dictionary or glossary."""
_MANY_ENTRIES, _FEW_ENTRIES = 0.05, 0.25
"""Share of entries in `train` that is noted if an evaluation set has less than a quarter of it."""


def notes_on_leaks(data: Data, config: Config) -> Iterator[str]:
    """Note evaluation sets of which `train` keeps pairs that differ in case, punctuation or form of letters.

    With `corpus.filters.overlap: false`, equal pairs count, too.
    """
    trained = training_pair_hashes(data, config)
    if trained is None:
        return
    for name, corpus in data.corpora.items():
        if name == "train":
            continue
        pairs, tags = corpus.pairs, config.corpus.tags
        rows = np.flatnonzero(np.isin(pair_hashes(pairs, tags), trained))
        if len(rows) >= max(_FEWEST_LEAKS, _MIN_LEAKED * len(pairs)):
            examples = " · ".join(untagged(pairs[row][0], tags) for row in rows[:_NUM_EXAMPLES])
            yield (
                f"{len(rows):,} of the {len(pairs):,} pairs of {name} are kept in train, too, apart from case, "
                f"punctuation or the form of letters, so scores on {name} are too high; as in {examples}"
            )


def notes_on_languages(data: Data, config: Config, problems: Sequence[Finding]) -> Iterator[str]:
    """Note each side of a source that looks like another language, unless a stretch of it is a problem already.

    Stretches are in languages with known common words, and `mt train` reports them too. These notes depend on
    `py3langid`, which `mt train` does not.
    """
    with_problems = {(problem.corpus, problem.part) for problem in problems if problem.kind == "stretch"}
    for name, corpus in data.corpora.items():
        if name not in config.corpus.groups:  # Held out of `train`.
            continue
        for part, languages in zip(corpus.parts, config.corpus.languages_of(name), strict=False):
            if (name, part.name) in with_problems:
                continue
            places = np.linspace(0, part.num_rows - 1, min(part.num_rows, _ROWS_EXAMINED)).astype(np.int64)
            mask = np.zeros(len(corpus.statuses), dtype=bool)
            mask[part.first_row + places] = True
            rows = list(corpus.rows(mask))
            texts = [untagged(row[1], config.corpus.tags) for row in rows], [row[2] for row in rows]
            for side, lines, language in zip(SIDES, texts, languages, strict=True):
                if detected := other_language_of_texts(lines, language):
                    yield f"the {side} of {name}, {part.name}, looks like {detected}, not {language}; check it"


def notes_on_evaluation_sets(data: Data, config: Config) -> Iterator[str]:
    """Note pairs of evaluation sets that the filters would drop, and sources that two sets share."""
    evaluated = {name: corpus for name, corpus in data.corpora.items() if name != "train"}
    for name, corpus in evaluated.items():
        rows = [(number, untagged(source, config.corpus.tags), target) for number, source, target in corpus.rows()]
        statuses = clean(rows, config.corpus.filters, config.corpus.languages).statuses
        if counts := Counter(STATUS_NAMES[code] for code in statuses.tolist() if code != KEPT):
            dropped = ", ".join(f"{count:,} {status}" for status, count in counts.items())
            yield f"{name} has pairs that the filters would drop from train: {dropped}; they are scored nevertheless"
    for name, second in combinations(evaluated, 2):
        sources = {source for source, _ in evaluated[second].pairs}
        if shared := sum(source in sources for source, _ in evaluated[name].pairs):
            yield f"{shared:,} sources of {name} are in {second} too"


def notes_on_unknown_tokens(data: Data, config: Config) -> Iterator[str]:
    """Note sides of evaluation sets with many unknown tokens."""
    if config.tokenizer.algorithm in ("bpe", "unigram"):
        advice = "set tokenizer.byte_fallback to true"
    else:
        units = "words" if config.tokenizer.algorithm == "word_level" else "characters"
        advice = (
            f"train has these {units} too rarely or never; train on text of the same kind, or use tokenizer.algorithm "
            "bpe or unigram, which have no unknown tokens"
        )
    for name, statistics in data.statistics.items():
        for side in SIDES:
            share = getattr(statistics, side).unknown_share
            if name != "train" and share > _MANY_UNKNOWN:
                yield f"{100 * share:.0f} % of the {side} tokens of {name} are unknown: {advice}"


def notes_on_texts(data: Data, config: Config) -> Iterator[str]:
    """Note differences between corpora, from a sample of each; differences of orthography, from all pairs."""
    examined = {name: _examined(data, name, config) for name in data.corpora}
    yield from _notes_on_entries(examined)
    texts = {name: by_language(pairs) for name, pairs in examined.items()}
    compared = config.corpus.compared or "valid"
    for language, lines in texts["train"].items():
        yield from _notes_on_spellings(language, lines, config)
    for language, lines in texts["train"].items():
        yield from _notes_on_letters(language, lines, compared, texts[compared].get(language, ()), config)
    for name in (name for name in texts if name != "train"):
        yield from _notes_on_new_words(name, texts[name], texts["train"])
    yield from _notes_on_orthography(data, config)


def _examined(data: Data, name: str, config: Config) -> list[tuple[Languages, Pair]]:
    """Pairs of a corpus or a sample of them, without tags, of one direction if both have the same text."""
    corpus = data.corpora[name].of_parts(config.corpus.once(name))
    mask = sample(corpus, _PAIRS_EXAMINED, config.training.seed)
    return corpus.untagged_pairs(config.corpus.languages_of(name), config.corpus.tags, mask)


def _notes_on_entries(examined: Mapping[str, Sequence[tuple[Languages, Pair]]]) -> Iterator[str]:
    """Note entries of a dictionary in `train`, which `valid` has not; languages without spaces do not count."""
    shares = []
    for name in ("train", "valid"):
        pairs = [pair for languages, pair in examined[name] if all(map(writes_spaces, languages))]
        num_short = sum(all(len(_words(side)) <= _WORDS_OF_ENTRY for side in pair) for pair in pairs)
        shares.append(num_short / max(1, len(pairs)))
    train, valid = shares
    if train >= _MANY_ENTRIES and valid < _FEW_ENTRIES * train:
        yield (
            f"{train:.0%} of the pairs of train have at most two words a side, as short phrases or entries of a "
            f"dictionary, and {valid:.1%} of valid; in a file of their own they would be a source with a weight "
            "(docs/data.md)"
        )


def _notes_on_spellings(language: str, train: Sequence[str], config: Config) -> Iterator[str]:
    for mixed in mixed_spellings(train):
        counts = ", ".join(f"{form} {count:,}" for form, count in mixed.counts.items())
        options = ", ".join([*config.tokenizer.normalize, mixed.option])
        advice = f"tokenizer.normalize: [{options}] would make them equal"
        if mixed.option in config.tokenizer.normalize:
            advice = f"tokenizer.normalize makes them equal ({mixed.option})"
        yield f"train has several spellings in {language}: {counts}; as in {' · '.join(mixed.examples)}; {advice}"


def _notes_on_letters(
    language: str, train: Sequence[str], name: str, compared: Sequence[str], config: Config
) -> Iterator[str]:
    """Note letters of `train` that the text that it is compared with writes otherwise."""
    for letter in other_letters(train, compared):
        is_replaced = config.tokenizer.letters.get(letter.old) == letter.new
        option = json.dumps({letter.old: letter.new}, ensure_ascii=False)
        yield (
            f"{letter.num_words:,} different words of train in {language} have {letter.old}, which {name} "
            f"{f'writes {letter.new}' if letter.new else 'leaves out'}; as in {' · '.join(letter.examples)}; "
            f"tokenizer.letters: {option} {'writes' if is_replaced else 'would write'} them so, too"
        )


def _notes_on_new_words(name: str, evaluated: dict[str, list[str]], train: dict[str, list[str]]) -> Iterator[str]:
    """Note languages in which an evaluation set has more new words than another sample of `train` would have.

    Text of the same kind has as large a share of them as the words that occur once in `train` (Good 1953).
    """
    for language, texts in evaluated.items():
        if not writes_spaces(language):
            continue
        counts = Counter(word for text in train.get(language, ()) for word in _words(text))
        words = [word for text in texts for word in _words(text)]
        if min(counts.total(), len(words)) < _MIN_WORDS:
            continue
        share = sum(word not in counts for word in words) / len(words)
        expected = sum(count == 1 for count in counts.values()) / counts.total()
        if share > _FACTOR * expected + _MARGIN:
            yield (
                f"{name} looks unlike train in {language}: {share:.0%} of its words do not occur in train; in "
                f"text of the same kind it would be {expected:.0%}, and translations would be better"
            )


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _notes_on_orthography(data: Data, config: Config) -> Iterator[str]:
    """Note stretches of `train` in another orthography than `valid` or `test`, left out or not."""
    corpus, compared = config.corpus, data.corpora.get(config.corpus.compared or "")
    for number in corpus.once("train"):
        is_left_out = corpus.filters_of(corpus.train[number]).other_orthography
        advice = "left out by corpus.filters.other_orthography"
        if not is_left_out:
            advice = "another orthography or language? corpus.filters.other_orthography would leave them out"
        for stretch in find_stretches(data.corpora["train"], compared, corpus, [number]):
            yield (
                f"{stretch}, have letters in {stretch.language} that are unlike those of {corpus.compared} "
                f"({stretch.difference}): {advice} (docs/languages.md)"
            )
