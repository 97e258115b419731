"""Glossaries of a server and of its requests."""

import json

import pytest
from fake_model import obeying_models
from serving_server import running

from mt_cli.errors import InputError
from mt_cli.serving.service import Service


def test_terms_of_a_request_go_before_those_of_the_server_and_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("drum;Trommel\nnut;Mutter\nxyz;fehlt\n", encoding="utf-8")
    models = obeying_models(("en", "de"))
    with running(Service(models, glossaries=models.read_glossaries([tmp_path / "a.csv"]))) as server:
        body = {"text": "drum nut xyz", "terms": {"drum": "Fass", "brake": ["Bremse", "Hemmung"]}}
        (sentence,) = server.json("/v1/translate", body)["translations"][0]["sentences"]
        assert sentence["target"]["text"] == "Fass Mutter"
        assert [(use["source"], use["status"]) for use in sentence["terms"]] == [
            ("drum", "used"),
            ("nut", "used"),
            ("xyz", "missing"),
        ]
        assert server.json("/translate", {"q": "drum", "source": "en", "target": "de"})["translatedText"] == "Trommel"
        assert server.json("/v1/models")["models"][0]["terms"] is True
        for terms in ({"a": 1}, ["a"], {"a": ""}, {"": "a"}, {str(number): "x" for number in range(1001)}):
            status, _, answer = server.ask("/v1/translate", *as_json(body | {"terms": terms}))
            assert status == 400 and "terms" in answer["error"]


def as_json(body):
    return json.dumps(body).encode(), {"Content-Type": "application/json"}


def test_a_server_uses_each_glossary_in_the_directions_of_its_languages(tmp_path):
    models = obeying_models(("en", "de"), ("de", "en"), ("en", "fr"))
    (tmp_path / "both.csv").write_text("English,German\ndrum,Trommel\n", encoding="utf-8")
    (tmp_path / "fr.po").write_text('msgid "drum"\nmsgstr "tambour"\n', encoding="utf-8")
    (tmp_path / "none.tsv").write_text("drum\tTrommel\n", encoding="utf-8")
    glossaries = models.read_glossaries([tmp_path / "both.csv", tmp_path / "fr.po"])
    assert {pair: glossary.terms[0][:2] for pair, glossary in glossaries.items()} == {
        ("en", "de"): ("drum", ("Trommel",)),
        ("de", "en"): ("Trommel", ("drum",)),
        ("en", "fr"): ("drum", ("tambour",)),
    }
    with pytest.raises(InputError, match=r"none\.tsv"):
        models.read_glossaries([tmp_path / "none.tsv"])
    with pytest.raises(InputError, match=r"corpus\.terms"):
        obeying_models(("en", "de"), takes_terms=False).read_glossaries([tmp_path / "both.csv"])


def test_terms_by_way_of_a_third_language_are_refused():
    with running(Service(obeying_models(("fr", "en"), ("en", "de")))) as server:
        body = {"text": "tambour", "source": "fr", "target": "de", "terms": {"tambour": "Trommel"}}
        status, _, answer = server.ask("/v1/translate", *as_json(body))
        assert status == 400 and "third language" in answer["error"]
