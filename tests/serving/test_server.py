"""Answers of the server: texts, details, files, languages and descriptions, by the interfaces that it has."""

import html
import io
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from serving_server import file_form, form, running

from mt_cli.config.tags import Tagging
from mt_cli.corpus.protected_text import UNPROTECTED
from mt_cli.serving.errors import RequestError
from mt_cli.serving.files import FileStore, written
from mt_cli.serving.models import Direction, Models, ServedModel, tag_of_direction
from mt_cli.serving.openapi import ANSWERS
from mt_cli.serving.service import Limits, Service
from mt_cli.translation.texts import SplitText

BLANKS = ["\t\t", "\u2028", "\v", "\u00a0", "\u3000", "\r\n\n\t", "  "]
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def test_sentences_are_translated_alone_and_blanks_stay(server):
    text = " " + "".join(f"One two.{blank}" for blank in BLANKS) + "Two.\n"
    answer = server.json("/v1/translate", {"text": text})
    (translation,) = answer["translations"]
    one, two = server.service.models.models[0].translator.translate(["One two.", "Two."])
    two = two if any(map(str.isalnum, two)) else "Two."  # A text stays if its translation has no words.
    assert translation["text"] == " " + "".join(one + blank for blank in BLANKS) + two + "\n"
    assert (answer["source"], answer["target"], answer["detected"]) == ("en", "xx", None)
    for side, whole in (("source", text), ("target", translation["text"])):
        parts = [sentence[side] for sentence in translation["sentences"]]
        assert "".join(part["before"] + part["text"] for part in parts) + parts[-1]["after"] == whole


@pytest.mark.parametrize("language", ["de", "ja"])
def test_sentences_and_the_blanks_between_them_are_the_text(language):
    text = " One two. Three?\r\n\tFour!  \n\nFive.   Six "
    split = SplitText.of(text, Direction("en", language), UNPROTECTED)
    assert "".join(row.before + row.text for row in split.sentences) + split.after == text
    assert [row.text for row in split.sentences] == ["One two.", "Three?", "Four!", "Five.", "Six"]
    assert [row.target_before for row in split.sentences][0:3:2] == [" ", "\r\n\t"]


def test_details_describe_the_words_of_each_alternative(server):
    body = {"text": "one  two three.", "details": True, "alternatives": 2}
    (sentence,) = server.json("/v1/translate", body)["translations"][0]["sentences"]
    source, target = sentence["source"]["text"], sentence["target"]["text"]
    assert [source[start:end] for start, end in sentence["source_words"]] == ["one", "two", "three."]
    assert [target[start:end] for start, end in sentence["target_words"]] == target.split()
    assert len(sentence["confidence"]) == len(target.split()) and all(0 <= p <= 1 for p in sentence["confidence"])
    assert [0, 0] in sentence["alignment"] and sentence["tokens"][-1] == "[EOS]"
    scores = [alternative["score"] for alternative in sentence["alternatives"]]
    assert len(scores) == 2 and sentence["score"] >= scores[0] >= scores[1]
    translator = server.service.models.models[0].translator
    for alternative in sentence["alternatives"]:
        (expected,) = translator.score([source], [alternative["text"]])
        assert alternative["tokens"] == expected.tokens
        assert alternative["token_scores"] == pytest.approx(expected.token_scores, abs=1e-3)
        assert len(alternative["target_words"]) == len(alternative["confidence"])
        assert max(target for _, target in alternative["alignment"]) < len(alternative["target_words"])


def test_a_sentence_tells_what_the_model_cannot_read_well(server):
    answer = server.json("/v1/translate", {"text": ["one two three " * 40, "one 漢."]})
    (first,), (second,) = (translation["sentences"] for translation in answer["translations"])
    assert (first["is_too_long"], second["is_too_long"]) == (True, False)
    assert (first["unknown_words"], second["unknown_words"]) == ([], ["漢"])


def test_libretranslate_takes_texts_lists_forms_and_html(server):
    languages = {"source": "en", "target": "xx"}
    assert server.json("/translate", {"q": "one two.", **languages}) == {"translatedText": "ONE TWO."}
    blank = ["", " ", "\n\n", "...", "😀", "\u0000"]
    assert server.json("/translate", {"q": blank, **languages})["translatedText"] == blank
    for path, key in (("/translate", "q"), ("/v1/translate", "text")):
        assert [] in server.json(path, {key: [], **languages}).values()
    many = {"q": ["one two.", "", "ten."], "source": "auto", "target": "xx", "alternatives": 2}
    answer = server.json("/translate", many)
    assert answer["translatedText"] == ["ONE TWO.", "", "TEN."]
    assert [len(rows) for rows in answer["alternatives"]] == [2, 0, 2]
    assert [row["language"] for row in answer["detectedLanguage"]] == ["en"] * 3
    answer = server.json("/translate", b"q=one+two.&source=en&target=xx&alternatives=1", headers=FORM)
    assert answer["translatedText"] == "ONE TWO." and len(answer["alternatives"]) == 1
    page = {"q": "<p class=x>one two.</p><p>ten.</p>", "format": "html", **languages}
    assert server.json("/translate", page)["translatedText"] == "<p class=x>ONE TWO.</p><p>TEN.</p>"
    with_mark = b"\xef\xbb\xbf" + json.dumps({"q": "one two.", **languages}).encode()
    headers = {"Content-Type": "application/json"}
    assert server.json("/translate", with_mark, headers=headers)["translatedText"] == "ONE TWO."
    assert server.json("/v1/translate", {"text": "one two.", "source": "", "target": ""})["target"] == "xx"


def test_libretranslatepy_works_unchanged(server):
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(f"{server.url}/")
    assert [(row["code"], row["targets"]) for row in client.languages()] == [("en", ["xx"]), ("xx", [])]
    assert client.translate("one two.", "en", "xx") == "ONE TWO."
    assert client.detect("This is one of the sentences.")[0]["language"] == "en"


def translated(server, name, content, **fields):
    """The answer on a file, and the status, headers and content of its translation."""
    answer = server.json("/translate_file", *file_form(name, content, **fields))
    return answer, *server.ask(answer["translatedFileUrl"].removeprefix(server.url))


def test_a_file_comes_back_under_a_name_nobody_can_guess(server):
    answer, status, headers, content = translated(server, "a b.txt", b"one two.\r\n\r\nten.")
    address = answer["translatedFileUrl"]
    assert address.startswith(f"{server.url}/download_file/") and len(address.rpartition("/")[2]) > 30
    assert (status, content) == (200, b"ONE TWO.\r\n\r\nTEN.") and "notes" not in answer
    assert headers["Content-Disposition"] == "attachment; filename*=UTF-8''a%20b.xx.txt"


def test_texts_of_a_file_that_need_review_are_named(server):
    content = b'msgid "one two."\nmsgstr ""\n\nmsgid "one %s two."\nmsgstr ""\n'
    answer, _, _, content = translated(server, "a.po", content)
    assert ["line 4" in note for note in answer["notes"]] == [True]
    assert content.count(b"%s") == 2 and b"#, fuzzy" in content


def test_a_table_is_translated_in_the_chosen_column(server):
    table = b"id,text\none,one two.\n2,ten.\n"
    for fields in ({}, {"column": "txt"}):
        status, _, answer = server.ask("/translate_file", *file_form("a.csv", table, **fields))
        assert (status, answer["columns"]) == (400, ["id", "text"]) and "a.csv" in answer["error"]
    for column, content in {"text": b"id,text\none,ONE TWO.\n2,TEN.\n", "1": b"one two."}.items():
        assert content in translated(server, "a.csv", table, column=column)[3]


@pytest.mark.parametrize(
    ("name", "content", "status"),
    [("a.pdf", b"", 415), ("a", b"", 415), ("../../a.po", b'msgid "a\n', 400), ("a.txt", b"\xff\xfe\x00", 400)],
)
def test_damaged_files_are_refused_under_their_own_names(server, name, content, status):
    body, headers = file_form(name, content)
    received, _, answer = server.ask("/translate_file", body, headers)
    assert received == status and (Path(name).name if status == 400 else Path(name).suffix) in answer["error"]
    assert "/" not in answer["error"].replace(", ", "") and "document." not in answer["error"]


def test_damaged_forms_are_refused(server):
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    field = b"--x\r\nContent-Disposition: form-data; name=file\r\n\r\nq\r\n--x--\r\n"
    requests = [("/translate_file", body, headers) for body in (b"", b"--x\r\n", field, b"\xff" * 100)]
    requests += [("/translate_file", field, {"Content-Type": "multipart/form-data"})]
    requests += [("/translate", *form(q=("two.txt", b"one."), source="en", target="xx"))]
    for path, fields in (("/translate", {"q": "\\ud800"}), ("/translate_file", {"file": ("\\ud800.txt", b"one.")})):
        body, headers = form(source="en", target="xx", **fields)
        requests.append((path, body, {"Content-Type": f"{headers['Content-Type']}; charset=unicode_escape"}))
    for request in requests:
        assert server.ask(*request)[0] == 400, request


def test_files_make_room_vanish_and_end_with_the_store(monkeypatch):
    monkeypatch.setattr("mt_cli.serving.files._MOST_BYTES", 12)
    store = FileStore()

    def add(content):
        written(path := store.path(".txt"), io.BytesIO(content))
        return store.add(path, "a.txt")

    tokens = [add(b"text") for _ in range(5)]
    paths = [store.get(token)[0] for token in tokens[2:]]
    assert sorted(paths[0].parent.iterdir()) == sorted(paths)
    shutil.rmtree(paths[0].parent)  # As systems do with temporary folders that nobody uses.
    assert store.get(add(b"more"))[0].read_bytes() == b"more"
    for token in tokens:
        with pytest.raises(RequestError, match="no such file"):
            store.get(token)
    store.close()
    assert not paths[0].parent.exists()


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/translate", b'{"q": "\\ud800", "target": "xx"}', 400, "JSON"),
        ("/translate", b'{"q": ' + b"[" * 50_000, 400, "JSON"),
        ("/translate", b'{"q": ["one", null], "target": "xx"}', 400, "q"),
        ("/translate", b'{"q": "one"}', 400, "target"),
        ("/translate", json.dumps({"q": "a" * 20_001, "target": "xx"}).encode(), 413, "20,001"),
        ("/translate", json.dumps({"q": ["a"] * 1_001, "target": "xx"}).encode(), 413, "1,001"),
        ("/v1/translate", b'{"text": "one", "txt": "two"}', 400, "txt"),
        ("/v1/translate", b'{"text": "one", "alternatives": 11}', 400, "11"),
    ],
)
def test_wrong_bodies_get_one_message_in_json(server, path, body, status, message):
    received, headers, content = server.ask(path, body, {"Content-Type": "application/json"})
    assert received == status and set(content) == {"error"} and message in content["error"]
    assert "Traceback" not in content["error"] and "/mt_cli" not in content["error"]
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_paths_that_are_not_served_are_refused(server):
    traversals = ("/page/../app.py", "/page/%2e%2e/app.py", "/download_file/..%2f..%2fetc%2fpasswd")
    for path in (*traversals, "/download_file/none.txt", "/nothing", f"/page/{'a' * 5_000}.js"):
        assert server.ask(path)[0] == 404, path
    assert server.ask("/languages", b"{}")[0] == 405 and server.ask("/suggest", b"{}")[0] == 403


def models_of(*pairs):
    """Models with names by their directions, such as `en-pt_BR`."""
    rows = [ServedModel("-".join(pair), "mt", None, (Direction(*pair),), (), None) for pair in pairs]
    return Models(tuple(rows))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("en", "pt-BR", ["en-pt_BR"]),
        ("en", "pt", ["en-pt_BR"]),
        ("de", "pt-BR", ["de-pt"]),
        (None, "pt", ["de-pt", "en-pt_BR"]),
        (None, "pt-BR", ["de-pt", "en-pt_BR"]),
        ("en", None, ["en-fr", "en-pt_BR"]),
        ("en-GB", "fr", ["en-fr"]),
    ],
)
def test_models_of_another_variety_take_no_answer_away(source, target, expected):
    models = models_of(("en", "pt_BR"), ("de", "pt"), ("en", "fr"))
    assert sorted(choice.model.name for choice in models.choose(source, target)) == expected


def test_a_refusal_names_the_missing_language_or_direction():
    models = models_of(("en", "pt_BR"), ("de", "pt"), ("en", "fr"))
    for asked, named in {("de", "fr"): "de to fr", ("ja", "fr"): "^ja ", ("en", "fr", "other"): "'other'"}.items():
        with pytest.raises(RequestError, match=named):
            models.choose(*asked)


def test_a_direction_has_the_tag_of_its_training():
    for tags, direction, tag in [
        ((), ("en", "de"), None),
        (("<2de>", "<2en>"), ("de", "en"), "<2en>"),
        (("<eng_Latn>fao_Latn>",), ("eng_Latn", "fao_Latn"), "<eng_Latn>fao_Latn>"),
    ]:
        assert tag_of_direction(Tagging(tags), Direction(*direction)) == tag


def test_the_description_has_the_paths_and_keys_of_answers(serve, tmp_path):
    with serve(corrections=tmp_path / "corrections.jsonl") as server:
        check_description(server)


def check_description(server):
    correction = {"source": "one.", "target": "ONE."}
    file, file_headers = file_form("a.txt", b"one.")
    requests = {path: (None, None) for path in ("/languages", "/health", "/v1/models")}
    requests |= {"/translate": ({"q": "one.", "source": "en", "target": "xx"}, None), "/detect": ({"q": "one."}, None)}
    requests |= {"/v1/translate": ({"text": "one."}, None), "/translate_file": (file, file_headers)}
    requests |= {"/suggest": ({"q": "one.", "s": "ONE.", "source": "en", "target": "xx"}, None)}
    requests |= {"/v1/corrections": (correction, None)}
    assert requests.keys() == ANSWERS.keys()
    page, paths = html.unescape(server.ask("/docs")[2].decode()), server.json("/openapi.json")["paths"]
    for path, (body, headers) in requests.items():
        answer, shown = server.ask(path, body, headers)[2], ANSWERS[path]
        for real, example in [*zip(answer, shown, strict=False)] if isinstance(shown, list) else [(answer, shown)]:
            assert real.keys() == example.keys()
        assert json.dumps(shown, ensure_ascii=False) in page
        assert path in paths and path in page
    keys = paths["/v1/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert keys["properties"].keys() >= {"text", "source", "target", "format", "alternatives", "details", "api_key"}


def test_many_clients_get_the_translations_of_one(serve):
    texts = [f"{first} {second}." for first in ("one", "two", "six") for second in ("five", "six", "ten", "two")]
    with serve() as server, ThreadPoolExecutor(12) as pool:
        together = list(pool.map(lambda text: server.json("/v1/translate", {"text": text}), texts))
        alone = server.service.models.models[0].translator.translate(texts)
        metrics = server.ask("/metrics")[2].decode()
    assert [answer["translations"][0]["text"] for answer in together] == alone
    assert 'mt_requests_total{path="/v1/translate",status="200"} 12.0' in metrics


def test_a_server_gives_the_estimate_of_each_sentence(run_with_quality):
    models = Models.load([run_with_quality], device="cpu", precision="fp32")
    body = {"text": "one two three.\nfour zebra.", "source": "en", "target": "xx", "details": True}
    with running(Service(models, Limits())) as server:
        sentences = server.json("/v1/translate", body)["translations"][0]["sentences"]
    assert len(sentences) == 2 and sentences[0]["expected_chrf"] > sentences[1]["expected_chrf"]
