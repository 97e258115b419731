"""Notes on scores: what the numbers do not say about the texts that they were computed on."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mt_cli.corpus.languages import writes_spaces
from mt_cli.corpus.rows import BlankRow, Languages
from mt_cli.evaluation.directions import rows_by_direction
from mt_cli.evaluation.texts import METRICS, Scorer

FEWEST_SENTENCES = 100
"""Below this number, intervals and p-values of the bootstrap are too small, and single sentences decide."""
_MOST_LISTED = 5
_FEWEST_LINES = 3
_COMMON, _RARE = 0.5, 0.1
"""Least share of the lines of a text that has a habit, and largest share of one that has not."""
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
    left_out: Sequence[BlankRow] = (),
) -> list[str]:
    """All notes on the scores of one system; `languages` has the direction of each pair, if there are several."""
    fewest = min(map(len, rows_by_direction(languages).values()), default=len(references))
    short = note_on_short_references(scorer, references)
    plain = [note_on_left_out(left_out, len(references)), note_on_number(fewest), short]
    return [note for note in plain if note] + notes_on_style(scorer, hypotheses, references, languages)


def note_on_short_references(scorer: Scorer, references: Sequence[str]) -> str | None:
    """A note if most references are too short for BLEU, whose longest sequences have four tokens.

    BLEU of such text is 0 for perfect translations, and rises if poor ones repeat themselves.
    """
    if scorer.bleu_tokenizer != "13a" or not is_short(references):
        return None
    return (
        "most references have fewer than four words, and BLEU counts sequences of four, so it says nothing here; look "
        "at chrF, and let it choose the checkpoint (training.best_metric: chrf)"
    )


def is_short(texts: Sequence[str]) -> bool:
    """Whether most texts have fewer than four words and punctuation marks."""
    return 2 * sum(len(_TOKEN.findall(text)) < _LONGEST_NGRAM for text in texts) > len(texts)


def note_on_left_out(left_out: Sequence[BlankRow], num_pairs: int) -> str | None:
    """The number of rows that are not scored because a side is blank, with their places; None if there are none."""
    if not left_out:
        return None
    listed = [_listed(status, list(rows)) for status, rows in groupby(_by_status(left_out), lambda row: row.status)]
    are = "is" if len(left_out) == 1 else "are"
    return f"{len(left_out):,} of {num_pairs + len(left_out):,} pairs {are} left out: {'; '.join(listed)}"


def _by_status(left_out: Sequence[BlankRow]) -> list[BlankRow]:
    return sorted(left_out, key=lambda row: list(_MISSING).index(row.status))


def _listed(status: str, rows: Sequence[BlankRow]) -> str:
    shown = [f"{row.number:,}" + (f" of {row.origin}" if row.origin else "") for row in rows[:_MOST_LISTED]]
    more = f" and {len(rows) - _MOST_LISTED:,} more" if len(rows) > _MOST_LISTED else ""
    lines, have = ("line", "has") if len(rows) == 1 else ("lines", "have")
    return f"{lines} {', '.join(shown)}{more} {have} {_MISSING[status]}"


def note_on_number(num_sentences: int) -> str | None:
    """A note if there are too few sentences for intervals and p-values."""
    if num_sentences >= FEWEST_SENTENCES:
        return None
    sentences = "1 sentence" if num_sentences == 1 else f"{num_sentences:,} sentences"
    return (
        f"{sentences}: intervals and p-values mean little below {FEWEST_SENTENCES} sentences, where single ones decide"
    )


@dataclass(frozen=True)
class _Habit:
    """A way of writing that one text may have and another not."""

    can_show: Callable[[str], bool]
    """Whether a line can show the habit or its absence."""
    shows: Callable[[str], bool]
    without: Callable[[str], str]
    """The line written in a way that is the same with and without the habit."""
    description: str
    advice: str
    spelling: str = ""
    """The name in `Scorer.spelling` with which the note on the spelling of a run covers this habit."""


_TOKENISATION = _Habit(
    lambda text: _PUNCTUATION.search(text) is not None or _TOKENISED.search(text) is not None,
    lambda text: _TOKENISED.search(text) is not None,
    lambda text: _AROUND_PUNCTUATION.sub(r"\1", text),
    "are tokenised (a space before full stops and commas, or escapes such as &apos;)",
    "detokenise",
)
_HABITS = (
    _Habit(
        lambda text: text.lower() != text.upper(),
        lambda text: text == text.lower(),
        str.lower,
        "are all in lower case",
        "restore the capitals of",
    ),
    _Habit(
        lambda text: text.lower() != text.upper(),
        lambda text: text == text.upper(),
        str.lower,
        "are all in capitals",
        "restore the lower case of",
    ),
    _Habit(
        lambda text: _QUOTES.search(text) is not None,
        lambda text: text != text.translate(_CURLY),
        lambda text: text.translate(_CURLY),
        "have typographic apostrophes or quotation marks",
        "write the same marks in",
        "apostrophes",
    ),
    _Habit(
        lambda text: unicodedata.normalize("NFC", text) != unicodedata.normalize("NFD", text),
        lambda text: text != unicodedata.normalize("NFC", text),
        lambda text: unicodedata.normalize("NFC", text),
        "have decomposed letters (not NFC)",
        "compose",
        "nfc",
    ),
    _Habit(
        bool,
        lambda text: unicodedata.normalize("NFKC", text) != unicodedata.normalize("NFC", text),
        lambda text: unicodedata.normalize("NFKC", text),
        "have compatibility characters such as full-width letters (not NFKC)",
        "normalise",
    ),
)


def notes_on_style(
    scorer: Scorer,
    hypotheses: Sequence[str],
    references: Sequence[str],
    languages: Sequence[Languages] = (),
    name: str = "translations",
) -> list[str]:
    """Notes on ways of writing that translations and references do not share, and that lower the scores.

    Each note has the score without the difference. `name` says whose translations they are. With several directions,
    each has notes of its own.
    """
    notes = []
    for direction, rows in rows_by_direction(languages).items():
        of_direction = scorer.for_language(languages[rows[0]][1])
        texts = [hypotheses[row] for row in rows], [references[row] for row in rows]
        notes += [f"{direction}: {note}" for note in _notes_on_style(of_direction, *texts, name)]
    return notes if rows_by_direction(languages) else [*_notes_on_style(scorer, hypotheses, references, name)]


def _notes_on_style(scorer: Scorer, hypotheses: Sequence[str], references: Sequence[str], name: str) -> Iterator[str]:
    tokenisation = [_TOKENISATION] if writes_spaces(scorer.language) else []
    for habit in [*tokenisation, *_HABITS]:
        if habit.spelling in scorer.spelling:
            continue
        theirs, ours = _count(habit, hypotheses), _count(habit, references)
        if habit is _TOKENISATION and _is_common(*theirs) and _is_common(*ours):
            yield (
                f"{theirs[0]:,} of {theirs[1]:,} {name} and {ours[0]:,} of {ours[1]:,} references with punctuation "
                f"{habit.description}: scores are not comparable to those of detokenised text"
            )
        for whose, others, (num_shown, num_able), without in (
            (name, "references", theirs, ours),
            ("references", name, ours, theirs),
        ):
            is_different = _is_common(num_shown, num_able) and _is_rare(*without)
            if is_different and (gain := _gain(habit, scorer, hypotheses, references)):
                yield (
                    f"{num_shown:,} of {num_able:,} {whose} {habit.description}, unlike the {others}: without this "
                    f"difference {gain}; {habit.advice} the {whose}"
                )


def _gain(habit: _Habit, scorer: Scorer, hypotheses: Sequence[str], references: Sequence[str]) -> str | None:
    """The score with and without a habit, for people; None if they hardly differ."""
    metric = scorer.default_metric
    score = scorer.score(hypotheses, references, [metric])[metric].score
    plain_hypotheses, plain_references = ([habit.without(text) for text in side] for side in (hypotheses, references))
    without = scorer.score(plain_hypotheses, plain_references, [metric])[metric].score
    if without - score < _LEAST_GAIN:
        return None
    return f"{METRICS[metric]} would be about {without:.1f} instead of {score:.1f}"


def _count(habit: _Habit, texts: Sequence[str]) -> tuple[int, int]:
    """The number of lines with a habit, and of lines that can show it."""
    able = [text for text in texts if habit.can_show(text)]
    return sum(map(habit.shows, able)), len(able)


def _is_common(num_shown: int, num_able: int) -> bool:
    return num_shown >= max(_FEWEST_LINES, _COMMON * num_able)


def _is_rare(num_shown: int, num_able: int) -> bool:
    return num_able >= _FEWEST_LINES and num_shown <= _RARE * num_able
