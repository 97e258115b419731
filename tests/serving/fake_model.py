"""Models that know a few sentences by heart; what they do not know keeps its words, in capitals."""

import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from mt_cli.config.tags import Tagging, direction_of
from mt_cli.corpus.protected_text import UNPROTECTED
from mt_cli.decoding.engine import Hypothesis
from mt_cli.evaluation.evaluate import SplitScores
from mt_cli.serving.models import Direction, Models, ServedModel
from mt_cli.translation.lines import Segment, TextHypothesis, Translation
from mt_cli.translation.sentences import units
from mt_cli.translation.token_details import Details

_UPDATED_AT = datetime(2026, 11, 27, 8, tzinfo=UTC)
DIRECTIONS = [("en", "de"), ("de", "en"), ("en", "ar"), ("ar", "en"), ("en", "he"), ("he", "en")]

KNOWN = {
    ("en", "de", "A dog runs."): ("Ein Hund läuft.", [0.93, 0.55, 0.31], ["Ein Hund rennt.", "Es läuft ein Hund."]),
    ("en", "de", "The children sleep."): ("Die Kinder schlafen.", [0.96, 0.9, 0.85], ["Die Kinder schliefen."]),
    ("de", "en", "Ein Hund läuft."): ("A dog runs.", [0.9, 0.9, 0.6], ["A dog is running."]),
    ("en", "ar", "A dog runs."): ("كلب يجري.", [0.8, 0.5], ["يركض كلب."]),
    ("en", "he", "A dog runs."): ("כלב רץ.", [0.8, 0.5], ["רץ כלב."]),
    ("ar", "en", "كلب يجري."): ("A dog runs.", [0.9, 0.8, 0.7], ["A dog is running."]),
    ("he", "en", "כלב רץ."): ("A dog runs.", [0.9, 0.8, 0.7], ["A dog is running."]),
}


class KnownTranslation(Translation):
    """A translation that always loses the span `{name}`, and has unknown words that begin with `zz`."""

    @property
    def lost_spans(self):
        return ("{name}",) if "{name}" in self.source else ()

    @property
    def unknown_words(self):
        return tuple(word for word in self.plain.split() if word.startswith("zz"))


@dataclass(frozen=True)
class KnownSentences:
    """Stands for a translator."""

    tagging: Tagging
    languages: tuple[str, str]
    engine: object = None
    takes_terms: bool = False
    protection: object = field(default=UNPROTECTED)

    def with_engine(self, engine):
        return replace(self, engine=engine)

    def translate_fully(
        self, sentences, num_best=1, tag=None, with_details=False, split_sentences=False, keeps_marks=True
    ):
        return [
            self._translation(sentence, direction_of(tag or "") or self.languages, num_best, with_details)
            for sentence in sentences
        ]

    def add_details(self, items):
        return [replace(item, details=self._details(item.source, item.text)) for item in items]

    def word_alignments(self, items):
        return [item.details.word_alignment for item in self.add_details(items)]

    def _details(self, text, best, confidence=None):
        pairs, counts = [], (len(units(text)), len(units(best)))
        if all(counts):
            pairs = [tuple(min(place, count - 1) for count in counts) for place in range(max(counts))]
        confidence = confidence or [(0.97, 0.82, 0.64, 0.91, 0.35)[start % 5] for start, _ in units(best)]
        return Details([text], [best], [-0.3], [(0, 0)], pairs, list(map(math.log, confidence)))

    def _translation(self, text, direction, num_best, with_details):
        best, confidence, others = KNOWN.get((*direction, text), (text.upper(), None, []))
        rows = enumerate([best, *others][:num_best])
        hypotheses = [TextHypothesis(other, Hypothesis([], -0.3 - rank / 10)) for rank, other in rows]
        segments = [Segment(text, [1], None, 0, "", hypotheses)]
        is_too_long = "very" in text
        details = self._details(text, best, confidence) if with_details else None
        return KnownTranslation(text, text, segments, is_too_long, text, details=details)


def known_models():
    """Two models; the second one has one direction."""
    scores = [("captions", DIRECTIONS, {"bleu": {"score": 39.2}, "chrf": {"score": 61.0}}, 1000)]
    scores += [("subtitles", DIRECTIONS[:1], {"bleu": {"score": 33.7}, "chrf": {"score": 57.4}}, 2500)]
    return Models(
        tuple(
            ServedModel(
                name,
                "mt",
                KnownSentences(Tagging(tuple(f"<{source}>{target}>" for source, target in directions)), directions[0]),
                tuple(Direction(*pair) for pair in directions),
                [SplitScores(split="test", num_sentences=count, **values)],
                _UPDATED_AT,
            )
            for name, directions, values, count in scores
        )
    )


class Obeying(KnownSentences):
    """Writes the translations of terms, except of those that begin with an `x`, and nothing else."""

    def translate_fully(self, sentences, num_best=1, terms=None, **search):
        items = []
        for text in sentences:
            found = terms.find(text) if terms else []
            written = " ".join(row.term.targets[0] for row in found if not row.term.source.startswith("x")) or text
            hypothesis = TextHypothesis(written, Hypothesis([], -1.0))
            items.append(
                Translation(text, text, [Segment(text, [1], None, 0, "", [hypothesis], terms=found)], False, text)
            )
        return items


def obeying_models(*directions, takes_terms=True):
    translator = Obeying(Tagging(()), directions[0], takes_terms=takes_terms)
    pairs = tuple(Direction(*pair) for pair in directions)
    return Models((ServedModel("m", "mt", translator, pairs, (), _UPDATED_AT),))
