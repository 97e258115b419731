"""Notes beside scores: problems of the scored texts that the scores do not show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from unicodedata import normalize

from mt_cli.corpus.languages import writes_spaces
from mt_cli.corpus.rows import BlankRow, Languages
from mt_cli.evaluation.scores import METRICS, Scorer, by_direction, rows_by_direction
from mt_cli.translation.stream import listed_lines

FEWEST_SENTENCES = 100
"""Number of sentences below which the intervals and p-values of the bootstrap are too small."""
_FEWEST_LINES = 3
_COMMON, _RARE = 0.5, 0.1
"""Smallest share of lines for a common habit, and largest share for a rare one."""
_LEAST_GAIN = 1.0
"""Smallest gain of a score, 0-100, by which a difference of spelling is worth a note."""

_TOKEN = re.compile(r"\w+|[^\w\s]")
_LONGEST_NGRAM = 4
_MISSING = {"blank_source": "no source", "blank_target": "no reference", "blank_pair": "neither side"}
_PUNCTUATION = re.compile(r"\w ?[.,?!]+(?=\s|$)")
_TOKENISED = re.compile(r"\w [.,](?=\s|$)|&(?:apos|quot|amp);|@-@")
_AROUND_PUNCTUATION = re.compile(r"\s*([^\w\s])\s*")
_CURLY = dict.fromkeys(map(ord, "’‘ʼ`´"), "'") | dict.fromkeys(map(ord, "“”„«»‹›″"), '"')
_QUOTES = re.compile("['\"" + "".join(map(chr, _CURLY)) + "]")


def notes_on_texts(
    scorer: Scorer,
    hypotheses: Sequence[str],
    references: Sequence[str],
    languages: Sequence[Languages] = (),
    skipped: Sequence[BlankRow] = (),
) -> list[str]:
    """All notes on the scores of one system; `languages` has the direction of each pair, if there are several."""
    fewest = min(map(len, rows_by_direction(languages).values()), default=len(references))
    number = (
        f"{fewest} sentence{'s' * (fewest != 1)}: intervals and p-values mean little below {FEWEST_SENTENCES} "
        "sentences, where single ones decide"
    )
    notes = (
        note_on_skipped_rows(skipped, len(references)),
        number if fewest < FEWEST_SENTENCES else None,
        note_on_short_references(scorer, references),
        note_on_empty_translations(hypotheses, references),
    )
    return [*filter(None, notes), *notes_on_style(scorer, hypotheses, references, languages)]


def note_on_short_references(scorer: Scorer, references: Sequence[str]) -> str | None:
    """Note that most references are too short for BLEU, which counts sequences of up to four tokens; None if not.

    For such text, BLEU is 0 for perfect translations, and rises for poor translations that repeat themselves.
    """
    if scorer.bleu_tokenizer != "13a" or not is_short(references):
        return None
    return (
        "most references have fewer than four words, and BLEU counts sequences of four, so it says nothing here; look "
        "at chrF, and let it choose the checkpoint (training.best_metric: chrf)"
    )


def note_on_empty_translations(hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    """Note that translations are empty where the reference is not; None if there is none."""
    number = sum(not text.strip() and bool(other.strip()) for text, other in zip(hypotheses, references, strict=True))
    return f"{number:,} of {len(hypotheses):,} translations are empty" if number else None


def is_short(texts: Sequence[str]) -> bool:
    """Whether most texts have fewer than four words and punctuation marks."""
    return 2 * sum(len(_TOKEN.findall(text)) < _LONGEST_NGRAM for text in texts) > len(texts)


def note_on_skipped_rows(skipped: Sequence[BlankRow], num_pairs: int) -> str | None:
    """Note on rows that are not scored because a side is blank: number and places; None if there are none."""
    if not skipped:
        return None
    parts = []
    for status, missing in _MISSING.items():
        rows = [row for row in skipped if row.status == status]
        if lines := [f"{row.number:,}" + (f" of {row.origin}" if row.origin else "") for row in rows]:
            parts.append(f"{listed_lines(lines)} {'has' if len(lines) == 1 else 'have'} {missing}")
    are = "is" if len(skipped) == 1 else "are"
    return f"{len(skipped):,} of {num_pairs + len(skipped):,} pairs {are} left out: {'; '.join(parts)}"


@dataclass(frozen=True)
class _Habit:
    """Habit of writing, such as lower case only, that one text may have and another may lack."""

    description: str
    can_show: Callable[[str], bool]
    """Whether a line can show the habit or its absence."""
    shows: Callable[[str], bool]
    remove: Callable[[str], str]
    """Function that rewrites a line so that it is the same with and without the habit."""
    spelling: str = ""
    """Name of the same change in `Scorer.spelling`; another note covers it."""

    def count(self, texts: Sequence[str]) -> tuple[int, int]:
        """Number of lines with the habit, and number of lines that can show it."""
        able = [text for text in texts if self.can_show(text)]
        return sum(map(self.shows, able)), len(able)


def _has_case(text: str) -> bool:
    return text.lower() != text.upper()


def _straight(text: str) -> str:
    return text.translate(_CURLY)


_nfc, _nfkc = partial(normalize, "NFC"), partial(normalize, "NFKC")
_TOKENISATION = _Habit(
    "are tokenised (a space before full stops and commas, or escapes such as &apos;)",
    lambda text: _PUNCTUATION.search(text) is not None or _TOKENISED.search(text) is not None,
    lambda text: _TOKENISED.search(text) is not None,
    lambda text: _AROUND_PUNCTUATION.sub(r"\1", text),
)
_HABITS = (
    _Habit("are all in lower case", _has_case, lambda text: text == text.lower(), str.lower),
    _Habit("are all in capitals", _has_case, lambda text: text == text.upper(), str.lower),
    _Habit(
        "have typographic apostrophes or quotation marks",
        lambda text: _QUOTES.search(text) is not None,
        lambda text: text != _straight(text),
        _straight,
        "apostrophes",
    ),
    _Habit(
        "have decomposed letters (not NFC)",
        lambda text: _nfc(text) != normalize("NFD", text),
        lambda text: text != _nfc(text),
        _nfc,
        "nfc",
    ),
    _Habit(
        "have compatibility characters such as full-width letters (not NFKC)",
        bool,
        lambda text: _nfkc(text) != _nfc(text),
        _nfkc,
    ),
)


def notes_on_style(
    scorer: Scorer,
    hypotheses: Sequence[str],
    references: Sequence[str],
    languages: Sequence[Languages] = (),
    name: str = "translations",
) -> list[str]:
    """Notes on habits in which translations and references differ, and that lower the scores.

    Each note gives the score without the difference. `name` is a name for the translations. Several directions get
    separate notes.
    """

    def notes(scorer: Scorer, hypotheses: Sequence[str], references: Sequence[str]) -> list[str]:
        return list(_notes_on_style(scorer, hypotheses, references, name))

    directions = by_direction(scorer, languages, (hypotheses, references), notes)
    if not directions:
        return notes(scorer, hypotheses, references)
    return [f"{direction}: {note}" for direction, own_notes in directions.items() for note in own_notes]


def _notes_on_style(scorer: Scorer, hypotheses: Sequence[str], references: Sequence[str], name: str) -> Iterator[str]:
    habits = [habit for habit in _HABITS if habit.spelling not in scorer.spelling]
    for habit in [*([_TOKENISATION] if writes_spaces(scorer.language) else []), *habits]:
        sides = [(name, *habit.count(hypotheses)), ("references", *habit.count(references))]
        if habit is _TOKENISATION and all(_is_common(*count) for _, *count in sides):
            shares = " and ".join(f"{num_shown:,} of {num_able:,} {side}" for side, num_shown, num_able in sides)
            yield f"{shares} {habit.description}: scores are not comparable to those of detokenised text"
        for (side, num_shown, num_able), (other_side, *other_count) in (sides, sides[::-1]):
            is_different = _is_common(num_shown, num_able) and _is_rare(*other_count)
            if is_different and (gain := _gain(habit, scorer, hypotheses, references)):
                yield (
                    f"{num_shown:,} of {num_able:,} {side} {habit.description}, unlike the {other_side}: without this "
                    f"difference {gain}; write both in the same way"
                )


def _gain(habit: _Habit, scorer: Scorer, hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    """The score with and without a habit, as text; None if they hardly differ."""
    metric = scorer.default_metric
    plain_hypotheses, plain_references = ([*map(habit.remove, texts)] for texts in (hypotheses, references))
    score = scorer.score(hypotheses, references, [metric])[metric].score
    without = scorer.score(plain_hypotheses, plain_references, [metric])[metric].score
    if without - score < _LEAST_GAIN:
        return None
    return f"{METRICS[metric]} would be about {without:.1f} instead of {score:.1f}"


def _is_common(num_shown: int, num_able: int) -> bool:
    return num_shown >= max(_FEWEST_LINES, _COMMON * num_able)


def _is_rare(num_shown: int, num_able: int) -> bool:
    return num_able >= _FEWEST_LINES and num_shown <= _RARE * num_able
