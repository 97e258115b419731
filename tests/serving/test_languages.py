"""Languages of a request: detected among all, served directly or by way of another one, or refused by name."""

import io
import zipfile

import pytest
from fake_model import KnownSentences
from serving_server import archive_of, file_form, form, running

from mt_cli.config.tags import Tagging
from mt_cli.serving.models import Direction, Models, ServedModel
from mt_cli.serving.service import Service

ENGLISH = "The children sleep in the old house, and the dog runs through the garden."
GERMAN = "Das Wetter ist heute schön und ich möchte an den Strand gehen."
ITALIAN = "Il tempo è bello oggi e voglio andare al mare."
FRENCH = "Les enfants dorment dans la vieille maison et le chien court dans le jardin."


class Marked(KnownSentences):
    """Writes its direction before each sentence."""

    def _translation(self, text, direction, num_best, with_details):
        return super()._translation(f"{'-'.join(self.languages)} {text}", direction, num_best, with_details)


def models_of(*pairs):
    rows = [(pair, Marked(Tagging(()), pair)) for pair in pairs]
    return Models(tuple(ServedModel("-".join(p), "mt", model, (Direction(*p),), (), None) for p, model in rows))


@pytest.fixture(scope="module")
def server():
    with running(Service(models_of(("en", "it"), ("fr", "en")))) as server:
        yield server


def docx(text):
    return archive_of(f'<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>')


@pytest.mark.parametrize("text", [GERMAN, f"<p title='{GERMAN}'>{GERMAN}</p>"])
def test_a_language_that_nobody_serves_is_an_error_that_names_it(server, text):
    form = "html" if "<" in text else "text"
    status, _, answer = server.ask("/translate", {"q": [text], "source": "auto", "target": "it", "format": form})
    assert status == 400 and answer.keys() == {"error"} and "de" in answer["error"] and "German" in answer["error"]
    assert server.ask("/v1/translate", {"text": text, "target": "it", "source": "auto", "format": form})[0] == 400
    assert server.json("/detect", {"q": GERMAN})[0]["language"] == "de"


def test_text_in_the_target_language_comes_back_as_it_is(server):
    answer = server.json("/translate", {"q": [ITALIAN, ENGLISH], "source": "auto", "target": "it"})
    assert answer["translatedText"] == [ITALIAN, f"EN-IT {ENGLISH.upper()}"]
    assert [row["language"] for row in answer["detectedLanguage"]] == ["it", "en"]
    assert min(row["confidence"] for row in answer["detectedLanguage"]) > 50
    answer = server.json("/v1/translate", {"text": ITALIAN, "source": "auto", "target": "it", "details": True})
    assert (answer["source"], answer["target"], answer["translations"][0]["text"]) == ("it", "it", ITALIAN)
    assert answer["translations"][0]["sentences"][0]["target"]["text"] == ITALIAN


def test_two_models_translate_by_way_of_a_third_language(server):
    expected = f"EN-IT FR-EN {FRENCH.upper()}"
    for source in ("fr", "auto"):
        answer = server.json("/translate", {"q": FRENCH, "source": source, "target": "it"})
        assert (answer["translatedText"], answer["pivot"]) == (expected, "en")
        answer = server.json("/v1/translate", {"text": FRENCH, "source": source, "target": "it", "details": True})
        assert (answer["translations"][0]["text"], answer["pivot"]) == (expected, "en")
    page = server.json("/translate", {"q": f"<p>{FRENCH}</p>", "source": "fr", "target": "it", "format": "html"})
    assert page == {"translatedText": f"<p>{expected}</p>", "pivot": "en"}
    texts = {"q": [FRENCH, ENGLISH], "source": "auto", "target": "it"}
    assert server.json("/translate", texts)["pivot"] == ["en", None]
    assert {row["code"]: row["targets"] for row in server.json("/languages")}["fr"] == ["en", "it"]
    assert "pivot" not in server.json("/translate", {"q": FRENCH, "source": "fr", "target": "en"})


@pytest.mark.parametrize("suffix", ["docx", "txt", "po", "html"])
def test_the_text_of_a_file_is_detected(server, suffix):
    for text, route in {ENGLISH: "EN-IT", FRENCH: "EN-IT FR-EN", ITALIAN: "", GERMAN: None}.items():
        contents = {"docx": docx(text), "po": f'msgid "{text}"\nmsgstr ""\n'.encode()}
        contents |= {"txt": text.encode(), "html": f"<p class='{'x' * 10_000}'>{text}</p>".encode()}
        body, headers = form(file=(f"a.{suffix}", contents[suffix]), source="auto", target="it")
        status, _, answer = server.ask("/translate_file", body, headers)
        if route is None:
            assert status == 400 and "German" in answer["error"]
            continue
        assert answer["detectedLanguage"]["language"] == {ENGLISH: "en", FRENCH: "fr", ITALIAN: "it"}[text]
        assert answer.get("pivot") == ("en" if text == FRENCH else None)
        content = server.ask(answer["translatedFileUrl"].removeprefix(server.url))[2]
        if suffix == "docx":
            content = zipfile.ZipFile(io.BytesIO(content)).read("word/document.xml")
        shown = f"{route} {text.upper()}" if route else text
        assert shown in content.decode().replace('"\n"', "")


@pytest.mark.parametrize("text", ["OK", "Save", "test", "Cancel", "Settings", "[X7X]", "..."])
def test_words_of_no_clear_language_are_translated(server, text):
    body = {"source": "auto", "target": "it"}
    detected = server.json("/translate", {"q": text} | body)["detectedLanguage"]
    assert detected["language"] in ("en", "fr")
    assert server.json("/v1/translate", {"text": text} | body)["detected"] == detected


@pytest.mark.parametrize("text", ["Ua hele au i ke kula i nehinei me koʻu makuahine.", "12345", "kjshdf", "OK"])
def test_a_language_that_is_not_recognised_is_not_reliable(server, text):
    """Hawaiian is not known to the detector."""
    assert not server.json("/detect", {"q": text})[0]["is_reliable"]
    body = {"source": "auto", "target": "it"}
    assert not server.json("/translate", {"q": text} | body)["detectedLanguage"]["is_reliable"]
    assert server.json("/translate", {"q": ENGLISH} | body)["detectedLanguage"]["is_reliable"]


def test_a_language_that_cannot_be_recognised_is_never_refused():
    with running(Service(models_of(("xx", "it")))) as server:
        assert server.json("/translate", {"q": GERMAN, "source": "auto", "target": "it"})["translatedText"]


def test_near_languages_are_taken_for_the_served_one():
    text = "Jeg liker norsk mat veldig godt, og jeg spiser det hver dag."
    with running(Service(models_of(("da", "en")))) as server:
        detected = server.json("/translate", {"q": text, "source": "auto", "target": "en"})["detectedLanguage"]
    assert detected["language"] == "da" and detected["confidence"] > 50


def test_a_table_keeps_its_columns_when_its_language_is_detected(server):
    body, headers = file_form("a.csv", f"id,text\n1,{ENGLISH.replace(',', '')}\n".encode(), source="auto", target="it")
    assert server.ask("/translate_file", body, headers)[2]["columns"] == ["id", "text"]
