"""Notes of `mt data check` on texts: spellings, scripts, words, languages, leaks, protected spans and terms."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import regex

from mt_cli.advice.marks import MIN_SENTENCES
from mt_cli.advice.recognition import other_language_of_texts
from mt_cli.advice.spellings import OtherLetter, examples_of, kept_apostrophes, mixed_spellings, other_letters
from mt_cli.config.sections import Config
from mt_cli.corpus.cleaning import STATUS_CODES
from mt_cli.corpus.glossary import Glossary, term_uses
from mt_cli.corpus.languages import code_with_script, primary, scripts_in, writes_spaces
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.rows import by_language, untagged
from mt_cli.corpus.source_rows import places_in
from mt_cli.corpus.text_hashes import pair_hashes, seed_of
from mt_cli.data.encode import SIDES
from mt_cli.data.prepare import Data, sample, training_pair_hashes
from mt_cli.runtime.console import listed, truncate

_PAIRS_EXAMINED = 200_000
_MANY_UNKNOWN = 0.1
_FEWEST_LEAKS, _MIN_LEAKED = 3, 0.01
_NUM_EXAMPLES, _NUM_MARKERS = 2, 5
_WORD = regex.compile(r"\w+")
_FACTOR, _MARGIN = 1.5, 0.02
"""New words that are noted: this many times the expected share, and this much above it. Later news of the same kind has
up to 1.6 to 2 times the new words of shuffled text; another domain has 2 to 20 times."""
_MIN_WORDS = 200
_LINES_RECOGNISED = 200
_SENTENCES_EXAMINED, _MIN_LETTERS = 2_000, 8
_MIXED_BY_NATURE = ("ja", "ko")
_SCRIPT_SHARE = 0.02
"""Share of the sentences in a second script from which on scripts are mixed."""
_NUM_NAMED = 5
_TERMS_NAMED, _PLACES_NAMED = 10, 3
Texts = Mapping[str, Mapping[str, Sequence[str]]]
"""Sentences by corpus and language."""


def notes_on_leaks(data: Data, config: Config) -> Iterator[str]:
    """Note leaks: pairs of evaluation sets that `train` keeps with other case, punctuation or form of letters.

    With `corpus.filters.overlap: false`, equal pairs count too.
    """
    trained = training_pair_hashes(data)
    if trained is None:
        return
    for name, corpus in data.corpora.items():
        if name == "train":
            continue
        pairs, tags = corpus.pairs, config.corpus.tags
        blocks = corpus.untagged_blocks()
        hashes = [pair_hashes(sources, targets, seed_of(languages)) for languages, sources, targets in blocks]
        rows = np.flatnonzero(np.isin(np.concatenate(hashes), trained))
        if len(rows) >= max(_FEWEST_LEAKS, _MIN_LEAKED * len(pairs)):
            examples = " · ".join(untagged(pairs[row][0], tags) for row in rows[:_NUM_EXAMPLES])
            yield (
                f"{len(rows):,} of the {len(pairs):,} pairs of {name} are kept in train, too, apart from case, "
                f"punctuation or the form of letters, so scores on {name} are too high; as in {examples}"
            )


def notes_on_markers(data: Data) -> Iterator[str]:
    """Note the texts that the filter of markers drops from train."""
    mask = data.statuses("train") == STATUS_CODES["markers"]
    pairs = [(source, target) for _, source, target in data.corpora["train"].rows(mask)] if mask.any() else []
    counts = Counter(min(pair, key=len) for pair in pairs)
    if counts:
        named = ", ".join(f"`{truncate(text, 40)}` in {number:,}" for text, number in counts.most_common(_NUM_MARKERS))
        yield (
            f"{len(pairs):,} pairs of train have a marker in place of a text, which stands for many different texts: "
            f"{named}; corpus.filters.markers drops them"
        )


def notes_on_unknown_tokens(data: Data, config: Config) -> Iterator[str]:
    """Note sides of evaluation sets with many unknown tokens."""
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
    """Note differences between corpora, from a sample of each."""
    texts = {}
    for name, corpus in data.corpora.items():
        once = corpus.of_parts(config.corpus.once(name))  # Of one direction if both have the same text.
        texts[name] = by_language(once.untagged_pairs(sample(once, _PAIRS_EXAMINED, config.training.seed)))
    languages = {name: of for name, of in texts.items() if name in config.corpus.groups}
    for side, text in data.monolingual.items():
        _, language = config.corpus.synthetic_directions[side]
        languages[f"monolingual.{side}"] = {language: text.sample(_LINES_RECOGNISED)}
    for name, of in languages.items():
        for language, lines in of.items():  # By `py3langid`, on which `mt train` does not depend.
            if detected := other_language_of_texts(_some(lines, _LINES_RECOGNISED), language):
                yield f"{name} in {language} looks like {detected}; check it"
    yield from notes_on_scripts(texts)
    compared = config.corpus.compared or "valid"
    others = kept_apostrophes([(lines, texts[compared].get(code, ())) for code, lines in texts["train"].items()])
    users = defaultdict[tuple[str, str], list[str]](list)
    for index, mark, is_compared in others:
        users[compared if is_compared else "train", mark].append([*texts["train"]][index])
    kept = " and ".join(f"{name} mostly has {mark} ({', '.join(codes)})" for (name, mark), codes in users.items())
    for language, lines in texts["train"].items():
        yield from _notes_on_spellings(language, lines, kept, config)
        yield from _notes_on_letters(language, lines, compared, texts[compared].get(language, ()), config)
    for name in (name for name in texts if name != "train"):
        yield from _notes_on_new_words(name, texts[name], texts["train"])


def notes_on_scripts(texts: Texts) -> Iterator[str]:
    """Note languages in several scripts, and evaluation sets in another script than `train`."""
    counts = {(name, code): _scripts_of(code, lines) for name, of in texts.items() for code, lines in of.items()}
    for (name, language), scripts in counts.items():
        least = max(MIN_SENTENCES, _SCRIPT_SHARE * scripts.total())
        frequent = [(script, number) for script, number in scripts.most_common() if number >= least]
        if len(frequent) > 1:
            shown = ", ".join(f"{number:,} in {script}" for script, number in frequent)
            yield (
                f"sentences of {name} in {language} are in several scripts ({shown} of {scripts.total():,}): a model "
                "of both writes either; to keep one, name it in the code of the language "
                f"({code_with_script(language, frequent[0][0])}), so that corpus.filters.wrong_language drops the "
                "others; or convert them"
            )
        in_train = counts.get(("train", language), Counter[str]())
        for script, _ in scripts.most_common(1):
            if in_train and in_train[script] < _SCRIPT_SHARE * in_train.total():
                (expected, _), *_ = in_train.most_common(1)
                yield (
                    f"{language} is in {script} in {name}, and in {expected} in train: no translation can be right; "
                    "convert one of them"
                )


def _scripts_of(language: str, texts: Sequence[str]) -> Counter[str]:
    """Number of sentences in each script, in a sample; sentences in several scripts and short ones do not count."""
    if primary(language) in _MIXED_BY_NATURE:
        return Counter()
    scripts = (scripts_in(text) for text in _some(texts) if sum(map(str.isalpha, text)) >= _MIN_LETTERS)
    return Counter(script for names in scripts if len(names) == 1 for script in names)


def _some(texts: Sequence[str], number: int = _SENTENCES_EXAMINED) -> Sequence[str]:
    return texts[:: -(-len(texts) // number) or 1]


def _notes_on_spellings(language: str, train: Sequence[str], kept: str, config: Config) -> Iterator[str]:
    """Note mixed spellings; `kept` says which languages mostly use another apostrophe than `'`."""
    for mixed in mixed_spellings(train):
        counts = ", ".join(f"{form} {count:,}" for form, count in mixed.counts.items())
        options = ", ".join([*config.tokenizer.normalize, mixed.option])
        advice = f"tokenizer.normalize: [{options}] would make them equal"
        if mixed.option in config.tokenizer.normalize:
            advice = f"tokenizer.normalize makes them equal ({mixed.option})"
        elif mixed.option == "apostrophes" and kept:
            advice = f"they stay, because tokenizer.normalize would write ' in all languages, but {kept}"
        yield f"train has several spellings in {language}: {counts}; as in {' · '.join(mixed.examples)}; {advice}"


def _notes_on_letters(
    language: str, train: Sequence[str], name: str, compared: Sequence[str], config: Config
) -> Iterator[str]:
    """Note letters that are mostly written otherwise, together if they differ in the same marks."""
    groups = defaultdict[tuple[str, ...], list[OtherLetter]](list)
    for letter in other_letters(train, compared):
        groups[letter.marks if any(letter.marks) else (letter.new,)].append(letter)
    for letters in groups.values():
        words = sorted({word for letter in letters for word in letter.words})
        changes = {letter.old: letter.new for letter in letters}
        old, new = map(_listed_letters, (list(changes), list(changes.values())), letters[0].marks)
        advice = f"tokenizer.letters: {json.dumps(changes, ensure_ascii=False)} would write"
        if changes.items() <= config.tokenizer.letters.items():
            advice = "tokenizer.letters writes"
        counted = f"{len(words):,} different words" if len(words) != 1 else "1 different word"
        yield (
            f"{counted} of train in {language} {'have' if len(words) != 1 else 'has'} {old}, mostly "
            f"{f'written {new}' if letters[0].new else f'left out in {name}'}; as in "
            f"{' · '.join(examples_of(words))}; {advice} them so, too"
        )


def _listed_letters(letters: Sequence[str], marks: str) -> str:
    """Letters and the names of their marks, because letters may look alike."""
    names = (f"U+{ord(mark):04X} {unicodedata.name(mark, '').removeprefix('COMBINING ').lower()}" for mark in marks)
    return listed(letters, _NUM_NAMED) + (f" ({', '.join(names)})" if marks else "")


def _notes_on_new_words(name: str, evaluated: dict[str, list[str]], train: dict[str, list[str]]) -> Iterator[str]:
    """Note languages in which an evaluation set has more new words than another sample of `train` would have.

    The expected share of new words is the share of the words that occur once in `train` (Good 1953).
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


def notes_on_spans(data: Data, config: Config) -> Iterator[str]:
    """Note pairs of each corpus whose protected spans are not the same on both sides, with places."""
    protection = Protection.of(config.corpus.protect)
    for name, corpus in data.corpora.items() if protection else ():
        mask = sample(corpus, _PAIRS_EXAMINED, config.training.seed)
        num_pairs, places = 0, list[tuple[str, int]]()
        for part, (number, source, target) in corpus.rows_of_parts(mask):
            spans = [contents_of_spans(protection, text) for text in (untagged(source, config.corpus.tags), target)]
            num_pairs += any(spans)
            if spans[0] != spans[1]:
                places.append((part.name, number))
        if places:
            named = places_in(config.corpus, name, places[:_NUM_NAMED])
            shown = [named.get(place, "") for place in places]  # Only the first ones are named.
            yield (
                f"{name}: {len(places):,} of {num_pairs:,} pairs with protected spans have other spans on the target "
                f"side, which are trained on as text: {listed(shown, _NUM_NAMED)}"
            )


def contents_of_spans(protection: Protection, text: str) -> Counter[str]:
    return Counter(text[start:end] for start, end in protection.spans(text))


def notes_on_terms(data: Data, config: Config, glossary: Glossary) -> Iterator[str]:
    """Note how often sources of a sample of `train` have a term and targets another translation, with places.

    Only pairs in the main direction are examined.
    """
    corpus = data.corpora["train"]
    mask = sample(corpus, _PAIRS_EXAMINED, config.training.seed)
    for part in corpus.parts:
        mask[part.span] &= part.languages == config.corpus.languages
    protection = Protection.of(config.corpus.protect)
    counts, places = Counter[tuple[str, str]](), defaultdict[tuple[str, str], list[tuple[str, int]]](list)
    for part, (number, source, target) in corpus.rows_of_parts(mask):
        terms = glossary.find(protection.protect(untagged(source, config.corpus.tags)).text)
        for (_, _, term), use in zip(terms, term_uses(terms, target), strict=True):
            key = term.source, term.targets[0]
            counts[key] += 1
            if use.status == "missing":
                places[key].append((part.name, number))
    missing = sum(map(len, places.values()))
    yield (
        f"terms of the glossary are {counts.total():,} times in {int(mask.sum()):,} pairs of train; {missing:,} times, "
        "the target has another translation"
    )
    worst = sorted(places, key=lambda key: -len(places[key]))[:_TERMS_NAMED]
    named = places_in(config.corpus, "train", [row for key in worst for row in places[key][:_PLACES_NAMED]])
    for key in worst:
        shown = [f"{origin} {named[origin, number]}" for origin, number in places[key][:_PLACES_NAMED]]
        yield (
            f"`{key[0]}` is not `{key[1]}` in {len(places[key]):,} of {counts[key]:,} places: "
            f"{listed(shown, _PLACES_NAMED, len(places[key]))}"
        )
    if len(places) > len(worst):
        yield f"so are {len(places) - len(worst):,} more terms"
