"""Notes on the texts of a config: mixed spellings, other words than in `train`, entries, and other orthographies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from mt_cli.config.sections import Config
from mt_cli.corpus.languages import writes_spaces
from mt_cli.corpus.letters import other_letters
from mt_cli.corpus.orthography import find_stretches
from mt_cli.corpus.rows import Languages, Pair, by_language
from mt_cli.corpus.spelling import mixed_spellings
from mt_cli.data.prepare import Data, sample
from mt_cli.features.data_check.likeness import has_many_entries, new_words, share_of_entries

_PAIRS_EXAMINED = 200_000

Examined = Sequence[tuple[Languages, Pair]]
"""Pairs without tags, each with its languages."""
Texts = Mapping[str, Sequence[str]]
"""Texts by language."""


def notes_on_texts(data: Data, config: Config) -> Iterator[str]:
    """The notes on all corpora, made from a sample of each; on orthographies, from all pairs."""
    examined = {name: _examined(data, name, config) for name in data.corpora}
    yield from _notes_on_entries(examined)
    texts = {name: by_language(pairs) for name, pairs in examined.items()}
    yield from _notes_on_spellings(texts["train"], config)
    compared = config.corpus.compared or "valid"
    yield from _notes_on_letters(texts["train"], compared, texts[compared], config)
    for name in (name for name in texts if name != "train"):
        yield from _notes_on_new_words(name, texts[name], texts["train"])
    yield from _notes_on_orthography(data, config)


def _examined(data: Data, name: str, config: Config) -> Examined:
    """The pairs of a corpus or a sample of them, of one direction if both have the same text."""
    corpus = data.corpora[name].of_parts(config.corpus.once(name))
    mask = sample(corpus, _PAIRS_EXAMINED, config.training.seed)
    return corpus.untagged_pairs(config.corpus.languages_of(name), config.corpus.tags, mask)


def _notes_on_entries(examined: Mapping[str, Examined]) -> Iterator[str]:
    """Notes on entries of a dictionary in `train`, which `valid` has not; languages without spaces do not count."""
    train, valid = (
        share_of_entries([pair for languages, pair in examined[name] if all(map(writes_spaces, languages))])
        for name in ("train", "valid")
    )
    if has_many_entries(train, valid):
        yield (
            f"{train:.0%} of the pairs of train have at most two words a side, as short phrases or entries of a "
            f"dictionary, and {valid:.1%} of valid; in a file of their own they would be a source with a weight "
            "(docs/data.md)"
        )


def _notes_on_spellings(train: Texts, config: Config) -> Iterator[str]:
    """Notes on what `train` has in several spellings."""
    for language, texts in train.items():
        for found in mixed_spellings(texts):
            counts = ", ".join(f"{form} {count:,}" for form, count in found.counts.items())
            options = ", ".join([*config.tokenizer.normalize, found.option])
            advice = f"tokenizer.normalize: [{options}] would make them equal"
            if found.option in config.tokenizer.normalize:
                advice = f"tokenizer.normalize makes them equal ({found.option})"
            yield f"train has several spellings in {language}: {counts}; as in {' · '.join(found.examples)}; {advice}"


def _notes_on_letters(train: Texts, name: str, compared: Texts, config: Config) -> Iterator[str]:
    """Notes on letters of `train` that the text that it is compared with writes otherwise."""
    for language, texts in train.items():
        for found in other_letters(texts, compared.get(language, ())):
            option = json.dumps({found.old: found.new}, ensure_ascii=False)
            advice = f"tokenizer.letters: {option} would write them so, too"
            if config.tokenizer.letters.get(found.old) == found.new:
                advice = f"tokenizer.letters: {option} writes them so, too"
            yield (
                f"{found.num_words:,} different words of train in {language} have {found.old}, which {name} "
                f"{f'writes {found.new}' if found.new else 'leaves out'}; as in {' · '.join(found.examples)}; {advice}"
            )


def _notes_on_new_words(name: str, evaluated: Texts, train: Texts) -> Iterator[str]:
    """Notes on the languages in which an evaluation set is unlike `train`."""
    for language, texts in evaluated.items():
        words = new_words(train.get(language, ()), texts) if writes_spaces(language) else None
        if words and words.is_unlike:
            yield (
                f"{name} looks unlike train in {language}: {words.found:.0%} of its words do not occur in train; in "
                f"text of the same kind it would be {words.expected:.0%}, and translations would be better"
            )


def _notes_on_orthography(data: Data, config: Config) -> Iterator[str]:
    """Notes on stretches of `train` in another orthography than `valid` or `test`, left out or not."""
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
