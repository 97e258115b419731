import random
import unicodedata

import pytest
from texts import TEXTS

from mt_cli.corpus.rows import BlankRow
from mt_cli.evaluation.evaluate import SplitScores, compare, format_scores
from mt_cli.evaluation.notes import note_on_skipped_rows, notes_on_texts
from mt_cli.evaluation.scores import LOWER_IS_BETTER, METRICS, Scorer

ITALIAN = [
    f"{who} {what}, {when}."
    for who in ("L'insegnante", "Il dottore", "L'amica", "La sorella", "Lo zio")
    for what in ("apre l'ultima porta", "compra del pane", "vede la città", "cerca un libro", "trova l'acqua")
    for when in ("ogni giorno", "dopo la scuola", "vicino al fiume", "di sera")
]
SCORER = Scorer.of("it", num_resamples=20)


def notes(hypotheses, references, language="it", skipped=()):
    return notes_on_texts(Scorer.of(language), hypotheses, references, (), skipped)


def tokenised(text):
    return text.replace(",", " ,").replace(".", " .").replace("'", " ' ")


SPELLINGS = {
    "tokenised": tokenised,
    "in lower case": str.lower,
    "decomposed letters": lambda text: unicodedata.normalize("NFD", text),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("has_changed", ["references", "translations"])
def test_another_spelling_on_one_side_is_noted(spelling, has_changed):
    """With the score that it hides."""
    changed = [SPELLINGS[spelling](text) for text in ITALIAN]
    first, *others = notes(ITALIAN, changed) if has_changed == "references" else notes(changed, ITALIAN)
    assert any(spelling in note and f" {has_changed} " in note for note in (first, *others))
    assert "about 100.0 instead of " in first


@pytest.mark.parametrize("language", TEXTS)
def test_clean_text_has_no_note_on_its_spelling(language):
    """Neither if the translations are perfect, nor if they are other sentences."""
    references = TEXTS[language].split("\n") * 20
    hypotheses = random.Random(1).sample(references, len(references))
    assert notes(references, references, language) == notes(hypotheses, references, language) == []


@pytest.mark.parametrize(("number", "is_noted"), [(99, True), (100, False)])
def test_few_sentences_are_noted_beside_their_p_values(number, is_noted):
    texts, baseline = ITALIAN[:number], ["un altro libro."] * number
    found = notes(texts, texts)
    assert any("mean little below 100 sentences" in note for note in found) == is_noted
    scores = SplitScores(split="test", num_sentences=number, notes=found, **SCORER.score(texts, texts))
    scores.against = compare("other", SCORER, texts, baseline, texts)
    assert ("which are few" in format_scores(scores)) == is_noted


def test_rows_that_are_left_out_are_counted_and_named():
    rows = [BlankRow(0, 1, "blank_target"), BlankRow(3, 5, "blank_source"), BlankRow(3, 6, "blank_target", "b.tsv")]
    assert note_on_skipped_rows([], 9) is None
    note = note_on_skipped_rows(rows, 9)
    assert note.startswith("3 of 12 pairs") and "line 5 has no source" in note and "lines 1, 6 of b.tsv" in note
    many = [BlankRow(0, number, "blank_pair") for number in range(1, 9)]
    assert "lines 1, 2, 3, 4, 5 and 3 more " in note_on_skipped_rows(many, 1)


def test_the_output_says_which_system_is_better():
    worse = [text.replace("porta", "casa").replace("pane", "pesce") for text in ITALIAN]
    for texts, baseline, word in ((ITALIAN, worse, "better"), (worse, ITALIAN, "worse")):
        scores = SplitScores(split="test", num_sentences=100, **SCORER.score(texts, ITALIAN))
        scores.against = compare("other", SCORER, texts, baseline, ITALIAN)
        ours, against = (part.split("\n") for part in format_scores(scores).split("against other"))
        for name, label in METRICS.items():
            (line,) = [line for line in ours if line.startswith(f"  {label} ")]
            assert ("lower is better" in line) == (name in LOWER_IS_BETTER)
            (line,) = [line for line in against if line.startswith(f"  {label} ")]
            sign = "-" if (word == "better") == (name in LOWER_IS_BETTER) else "+"
            assert f"difference {sign}" in line and f"({word})" in line
    equal = SplitScores(split="test", num_sentences=100, **SCORER.score(worse, ITALIAN))
    equal.against = compare("other", SCORER, worse, worse, ITALIAN)
    assert "difference +0.00, p = 1.000: not significant" in format_scores(equal)


def test_of_several_directions_each_has_notes_of_its_own():
    """A text that is clean as a whole: one direction of three is tokenised, and has few sentences."""
    languages = [("en", "it")] * 200 + [("it", "de")] * 200 + [("de", "it")] * 100
    references = [*ITALIAN * 4, *map(tokenised, ITALIAN)]
    (note,) = notes_on_texts(Scorer.of("it"), ITALIAN * 5, references, languages)
    assert note.startswith("de-it: 100 of 100 references are tokenised") and "BLEU would be about 100.0" in note
    few = notes_on_texts(Scorer.of("it"), ITALIAN * 5, ITALIAN * 5, [("en", "it")] * 401 + [("de", "it")] * 99)
    assert len(few) == 1 and "99 sentences: intervals" in few[0]


def test_references_that_are_too_short_for_bleu_are_noted():
    labels = [f"apri {word}" for word in ("porta", "finestra", "scatola", "lettera")] * 40
    (note,) = notes(labels, labels)
    assert "BLEU counts sequences of four" in note
    assert Scorer.of("it").score(labels, labels, ["bleu"])["bleu"].score == 0, "of perfect translations"
    assert not notes(ITALIAN, ITALIAN) and not any("BLEU counts" in each for each in notes(["今夜"], ["今夜"], "ja"))


def test_empty_translations_are_counted():
    references = [*ITALIAN * 5, ""]
    assert not any("empty" in note for note in notes_on_texts(Scorer.of("it"), references, references))
    hypotheses = ["", " ", *references[2:]]
    (note,) = [note for note in notes_on_texts(Scorer.of("it"), hypotheses, references) if "empty" in note]
    assert note == f"2 of {len(references):,} translations are empty"
