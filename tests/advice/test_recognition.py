from mt_cli.advice import recognition
from mt_cli.advice.recognition import are_near, other_language_of_texts
from mt_cli.corpus.languages import primary


def test_text_in_its_own_or_an_unknown_language_passes(texts):
    for code, lines in texts.items():
        for language in (code, "aym", "xqz"):
            assert other_language_of_texts(lines, language) is None, code


def test_text_in_another_language_is_noticed(texts):
    by_language = {primary(code): lines for code, lines in texts.items()}
    for named, real in (("de", "en"), ("en", "it"), ("hau", "en"), ("amh", "fr"), ("fr", "de"), ("he", "ar")):
        assert other_language_of_texts(by_language[real], named) == real


def test_a_language_is_believed_if_most_lines_are_sure(monkeypatch):
    class Identifier:
        labels = ("sw", "rw", "en")

        num_sure = 100

        def classify(self, line):
            return ("sw" if int(line.split()[1]) < self.num_sure else "und"), 0.9

    monkeypatch.setattr(recognition, "_identifier", Identifier)
    lines = [f"zyx {number}" for number in range(100)]
    for number, expected in ((79, None), (80, "sw")):
        Identifier.num_sure = number
        assert other_language_of_texts(lines, "rw") == expected
    assert other_language_of_texts(lines[:4], "rw") is None, "too few lines"


def test_languages_of_one_group_are_not_told_apart():
    for one, other in (("no", "da"), ("ar", "arz"), ("id", "ms")):
        assert are_near(one, other) and are_near(other, one), (one, other)
    for one, other in (("es", "pt"), ("br", "fr"), ("ay", "qu")):
        assert not are_near(one, other), (one, other)
