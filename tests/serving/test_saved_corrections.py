"""Corrections that clients send to a server."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from fake_model import known_models, obeying_models
from full_disk import room_for
from serving_server import form, running

from mt_cli.corpus.corrections import Correction, append_corrections, current_corrections, read_corrections
from mt_cli.serving.access import Keys, Rates
from mt_cli.serving.service import Limits, Service

BODY = {"source": "A dog runs.", "target": "Ein Hund rennt.", "draft": "Ein Hund läuft."}
BODY |= {"source_language": "en", "target_language": "de"}
SUGGESTION = {"q": "A dog runs.", "s": "Ein Hund läuft überall.", "source": "en", "target": "de"}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "corrections.jsonl"
    path.touch()
    return path


@pytest.fixture
def server(path):
    with running(Service(known_models(), Limits(max_characters=100), corrections=path)) as server:
        yield server


def test_a_correction_is_saved_and_taken_back(server, path):
    assert server.json("/v1/corrections", BODY | {"model": "subtitles"}) == {"success": True}
    line = json.loads(path.read_text(encoding="utf-8"))
    assert line.items() >= BODY.items() and line["model"] == "subtitles" and line["time"].endswith("Z")
    server.json("/v1/corrections", BODY | {"source_language": None, "target_language": "de-DE"})
    assert [(row.model, row.languages) for row in read_corrections(path)][1] == ("captions", ("en", "de"))
    assert [row.target for row in current_corrections([path])] == ["Ein Hund rennt."]
    server.json("/v1/corrections", BODY | {"target": BODY["draft"]})
    assert current_corrections([path]) == []


def test_suggestions_are_saved_without_a_draft(server, path):
    body = "q=A+dog+runs.&s=Ein%20Hund+läuft+%C3%BCberall.&source=auto&target=de&api_key=".encode()
    kinds = {"Content-Type": "application/x-www-form-urlencoded"}
    for request in ((SUGGESTION,), (body, kinds), form(**SUGGESTION)):
        assert server.json("/suggest", *request) == {"success": True}
    rows = {(*row.pair, row.draft, *row.languages, row.model) for row in read_corrections(path)}
    assert rows == {("A dog runs.", "Ein Hund läuft überall.", "", "en", "de", "captions")}
    assert len(current_corrections([path])) == 1


def test_corrections_have_the_codes_of_their_runs(path):
    models = obeying_models(("fra_Latn", "eng_Latn"), ("eng_Latn", "deu_Latn"))
    with running(Service(models, corrections=path)) as server:
        server.json("/v1/corrections", BODY)
        server.json("/v1/corrections", BODY | {"source_language": "fr"})
    languages = [(row.languages, row.model) for row in read_corrections(path)]
    assert languages == [(("eng_Latn", "deu_Latn"), "m"), (("fra_Latn", "deu_Latn"), "m + m")]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"source": " \n"}, 400),
        ({"target": ""}, 400),
        ({"target": "a" * 101}, 413),
        ({"draft": "a" * 101}, 413),
        ({"target_language": "ja"}, 400),
        ({"source_language": "auto", "source": "Ein Hund läuft über die Straße."}, 400),
        ({"model": "other"}, 400),
        ({"time": "yesterday"}, 400),
    ],
)
def test_wrong_corrections_are_refused_and_not_written(server, path, change, status):
    received, _, answer = server.ask("/v1/corrections", BODY | change)
    assert received == status and set(answer) == {"error"} and path.read_bytes() == b""


def test_a_server_without_a_file_takes_no_corrections():
    with running(Service(known_models())) as server:
        assert server.ask("/v1/corrections", BODY)[0] == server.ask("/suggest", SUGGESTION)[0] == 403
        assert not server.json("/v1/models")["corrections"] and not server.json("/frontend/settings")["suggestions"]


def test_corrections_need_the_key_and_count_for_the_rate(path):
    key = "a-key-of-people-1234"
    (path.parent / "keys.txt").write_text(key, encoding="utf-8")
    service = Service(known_models(), keys=Keys.read(path.parent / "keys.txt"), rates=Rates(2), corrections=path)
    with running(service) as server:
        assert server.json("/v1/models")["corrections"] and server.json("/frontend/settings")["suggestions"]
        assert server.ask("/v1/corrections", BODY)[0] == server.ask("/suggest", SUGGESTION)[0] == 403
        assert server.ask("/v1/corrections", BODY | {"api_key": key})[0] == 200
        assert server.ask("/suggest", SUGGESTION | {"api_key": key})[0] == 200
        assert server.ask("/suggest", SUGGESTION | {"api_key": key})[0] == 429
    assert len([*read_corrections(path)]) == 2


def test_many_people_at_once_write_whole_lines(server, path):
    texts = [f"{number} {'ä' * 60}" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        answers = [*pool.map(lambda text: server.ask("/v1/corrections", BODY | {"target": text})[0], texts)]
    assert answers == [200] * 200
    assert sorted(row.target for row in read_corrections(path)) == sorted(texts)


def test_a_full_disk_is_reported_and_leaves_whole_lines(server, path):
    append_corrections(path, [Correction.of("long " * 2_000, "lang", "", ("en", "de"), "")])  # More than the log has.
    before = path.read_bytes()
    with room_for(path, 20):
        status, _, answer = server.ask("/v1/corrections", BODY)
    assert status == 507 and str(path.parent) not in answer["error"] and path.read_bytes() == before
    server.json("/v1/corrections", BODY)
    assert len([*read_corrections(path)]) == 2


@pytest.mark.parametrize("name", ["keys.txt", ".", "none/corrections.jsonl", "/dev/null", "corrections.jsonl.gz"])
def test_a_file_that_cannot_take_corrections_is_refused_at_the_start(mt, trained, tmp_path, name):
    (tmp_path / "keys.txt").write_text("a-key-of-people-1234", encoding="utf-8")
    status, out, err = mt("serve", "--run", trained, "--port", "0", "--keys", "keys.txt", "--corrections", name)
    assert (status, out) == (2, "") and name in err and "Serving" not in err
