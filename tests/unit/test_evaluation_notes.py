import random

from texts import TEXTS

from mt_cli.evaluation.evaluate import SplitScores, compare, format_scores, notes_on_texts
from mt_cli.evaluation.scores import Scorer

ITALIAN = [
    f"{who} {what}, {when}."
    for who in ("L'insegnante", "Il dottore", "L'amica", "La sorella", "Lo zio")
    for what in ("apre l'ultima porta", "compra del pane", "vede la città", "cerca un libro", "trova l'acqua")
    for when in ("ogni giorno", "dopo la scuola", "vicino al fiume", "di sera")
]
SCORER = Scorer.of("it")


def test_usual_text_has_no_note():
    """Neither if the translations are perfect, nor if they are other sentences."""
    for language, text in TEXTS.items():
        references = text.split("\n") * 20
        hypotheses = random.Random(1).sample(references, len(references))
        assert notes_on_texts(references, references) == notes_on_texts(hypotheses, references) == [], language


def test_the_output_says_which_system_is_better():
    worse = [text.replace("porta", "casa").replace("pane", "pesce") for text in ITALIAN]
    for texts, baseline, word in ((ITALIAN, worse, "(better)"), (worse, ITALIAN, "(worse)"), (worse, worse, "1.000")):
        scores = SplitScores(split="test", num_sentences=100, **SCORER.score(texts, ITALIAN))
        scores.against = compare("other", SCORER, texts, baseline, ITALIAN)
        against = format_scores(scores).partition("against other")[2]
        lines = [line for line in against.split("\n") if "difference" in line]
        assert len(lines) == len(SCORER.names) and all(word in line for line in lines)


def test_the_direction_with_the_fewest_sentences_is_noted():
    languages = [("en", "it")] * 401 + [("de", "it")] * 99
    (note,) = notes_on_texts(ITALIAN * 5, ITALIAN * 5, languages)
    assert "99 sentences" in note
