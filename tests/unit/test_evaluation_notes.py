import random
import unicodedata

import pytest
from texts import TEXTS

from mt_cli.evaluation.evaluate import SplitScores, compare, format_scores
from mt_cli.evaluation.notes import notes_on_texts
from mt_cli.evaluation.scores import Scorer

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
    assert "100.0" in first


def test_clean_text_has_no_note_on_its_spelling():
    """Neither if the translations are perfect, nor if they are other sentences."""
    for language, text in TEXTS.items():
        references = text.split("\n") * 20
        hypotheses = random.Random(1).sample(references, len(references))
        assert notes(references, references, language) == notes(hypotheses, references, language) == [], language


def test_the_output_says_which_system_is_better():
    worse = [text.replace("porta", "casa").replace("pane", "pesce") for text in ITALIAN]
    for texts, baseline, word in ((ITALIAN, worse, "(better)"), (worse, ITALIAN, "(worse)"), (worse, worse, "1.000")):
        scores = SplitScores(split="test", num_sentences=100, **SCORER.score(texts, ITALIAN))
        scores.against = compare("other", SCORER, texts, baseline, ITALIAN)
        against = format_scores(scores).partition("against other")[2]
        lines = [line for line in against.split("\n") if "difference" in line]
        assert len(lines) == len(SCORER.names) and all(word in line for line in lines)


def test_of_several_directions_each_has_notes_of_its_own():
    """A text that is clean as a whole: one direction of three is tokenised, and has few sentences."""
    languages = [("en", "it")] * 200 + [("it", "de")] * 200 + [("de", "it")] * 100
    references = [*ITALIAN * 4, *map(tokenised, ITALIAN)]
    (note,) = notes_on_texts(Scorer.of("it"), ITALIAN * 5, references, languages)
    assert note.startswith("de-it: 100 of 100 references are tokenised") and "100.0" in note
    few = notes_on_texts(Scorer.of("it"), ITALIAN * 5, ITALIAN * 5, [("en", "it")] * 401 + [("de", "it")] * 99)
    assert len(few) == 1 and "99 sentences" in few[0]


def test_references_that_are_too_short_for_bleu_are_noted():
    labels = [f"apri {word}" for word in ("porta", "finestra", "scatola", "lettera")] * 40
    (note,) = notes(labels, labels)
    assert "BLEU" in note
    assert Scorer.of("it").score(labels, labels, ["bleu"])["bleu"].score == 0, "of perfect translations"
    assert not any("BLEU" in each for each in notes(["今夜"], ["今夜"], "ja"))
