"""Placeholders and other marks that a model does not protect: each is in the translation, or named as lost."""

import re
from dataclasses import replace

import pytest
from fake_model import KnownSentences
from serving_server import file_form, running

from mt_cli.config.tags import Tagging
from mt_cli.serving.models import Direction, Models, ServedModel
from mt_cli.serving.service import Service

TEXTS = [
    "Delete [X7X] files from [X21X]?",
    "[X0X]",
    "Hello [X6X], you have [X25X]new[X31X] messages. Read them.",
    "Open %s and %(name)s now",
    "Dear {name}, see <b>your</b> files",
    "See https://example.org/a?b=c now",
    "{n, plural, one {One file. Two.} other {# files. More.}} are here",
    "${total} of {{ count }}",
]


class Losing(KnownSentences):
    """Writes "three" for each word with other characters than letters and punctuation."""

    def _translation(self, text, direction, num_best, with_details):
        plain = re.sub(r"\S*[^\w\s.,!?]\S*|\S*\d\S*", "three", text)
        return replace(super()._translation(plain.upper(), direction, num_best, with_details), plain=text)


@pytest.fixture(scope="module")
def server():
    model = ServedModel("x", "mt", Losing(Tagging(()), ("en", "de")), (Direction("en", "de"),), (), None)
    with running(Service(Models((model,)))) as server:
        yield server


def marks_of(text):
    return re.findall(
        r"\[X\d+X\]|%\(name\)s|%s|\{name\}|</?b>|https://\S+|\{n, .*\}\}|\$\{total\}|\{\{ count \}\}", text
    )


def test_each_mark_of_a_list_of_texts_is_in_its_translation(server):
    answer = server.json("/translate", {"q": TEXTS, "source": "en", "target": "de", "alternatives": 2})
    for text, translation in zip(TEXTS, answer["translatedText"], strict=True):
        assert sorted(marks_of(translation)) == sorted(marks_of(text)) != []
        assert "THREE" not in translation
    assert "lost_spans" not in answer
    for text, translation in zip(TEXTS, server.json("/v1/translate", {"text": TEXTS})["translations"], strict=True):
        assert sorted(marks_of(translation["text"])) == sorted(marks_of(text))


@pytest.mark.parametrize("kind", ["text", "html"])
def test_placeholders_side_by_side_stay_so(server, kind):
    body = {"q": "Use [X1X][X2X] of %d%% and {a} {b} now.", "source": "en", "target": "de", "format": kind}
    assert server.json("/translate", body)["translatedText"] == "USE [X1X][X2X] OF %d%% AND {a} {b} NOW."


def test_plain_text_html_and_files_have_the_same_placeholders(server):
    text = "Delete %s files from {name}."
    plain = server.json("/translate", {"q": text, "source": "en", "target": "de"})["translatedText"]
    html = server.json("/translate", {"q": text, "source": "en", "target": "de", "format": "html"})["translatedText"]
    assert plain == html == "DELETE %s FILES FROM {name}."
    for name, content in {"a.txt": text, "a.md": text, "a.html": text}.items():
        answer = server.json("/translate_file", *file_form(name, content.encode(), target="de"))
        assert server.ask(answer["translatedFileUrl"].removeprefix(server.url))[2].decode().strip() == plain


def test_words_are_aligned_beside_placeholders(server):
    body = {"text": "Delete %s old files.", "details": True}
    (sentence,) = server.json("/v1/translate", body)["translations"][0]["sentences"]
    source, target = sentence["source"]["text"], sentence["target"]["text"]
    assert [source[start:end] for start, end in sentence["source_words"]] == ["Delete", "old", "files."]
    assert [target[start:end] for start, end in sentence["target_words"]] == ["DELETE", "OLD", "FILES."]
    assert len(sentence["confidence"]) == 3 and sentence["lost_spans"] == []


def test_a_mark_that_cannot_be_placed_is_named(server, monkeypatch):
    monkeypatch.setattr("mt_cli.translation.drafts.TextWithoutTags.of", lambda source, pieces: None)
    for kind in ("text", "html"):
        body = {"q": ["Delete [X7X] files", "No."], "source": "en", "target": "de", "format": kind}
        assert server.json("/translate", body)["lost_spans"] == [["[X7X]"], []]
    (sentence,) = server.json("/v1/translate", {"text": "Delete [X7X] files"})["translations"][0]["sentences"]
    assert sentence["lost_spans"] == ["[X7X]"]
    answer = server.json("/translate_file", *file_form("a.txt", b"No.\nDelete [X7X] files\n", target="de"))
    assert len(answer["notes"]) == 1 and "line 2" in answer["notes"][0]


def test_a_placeholder_that_may_be_money_is_named_if_its_number_is_lost(server):
    for kind in ("text", "html"):
        body = {"q": ["Copy $1 files of %2", "No."], "source": "en", "target": "de", "format": kind}
        assert server.json("/translate", body)["lost_spans"] == [["$1", "%2"], []]
        answer = server.json("/v1/translate", {"text": "Copy $1 files", "format": kind})["translations"][0]
        assert answer.get("lost_spans") or answer["sentences"][0]["lost_spans"] == ["$1"]
    for name in ("a.txt", "a.md", "a.srt"):
        content = b"1\n00:00:01,000 --> 00:00:02,000\nCopy $1 files\n" if name == "a.srt" else b"Copy $1 files\n"
        assert len(server.json("/translate_file", *file_form(name, content, target="de"))["notes"]) == 1


def test_a_list_of_pages_is_one_search(server, monkeypatch):
    calls = []
    search = Losing.translate_fully
    monkeypatch.setattr(
        Losing, "translate_fully", lambda self, texts, **o: calls.append(texts) or search(self, texts, **o)
    )
    pages = [f"<p>The {word} file</p>" for word in ("one", "two", "old", "new")]
    answer = server.json("/translate", {"q": pages, "source": "en", "target": "de", "format": "html"})
    assert answer["translatedText"] == [f"<p>{page[3:-4].upper()}</p>" for page in pages]
    assert len([texts for texts in calls if texts]) == 1
