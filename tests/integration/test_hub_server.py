"""The hub of the tests speaks to the unmodified clients as the hub of Hugging Face does."""

import json
import os
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from hub_content import add_datasets, with_script
from hub_faults import dead_proxy, slow_proxy

_LOAD = """
import datasets, json
rows = {"load": {}, "stream": {}}
for name, subset in [("Helsinki-NLP/opus_books", "en-it"), ("bentrevett/multi30k", None), ("wmt/wmt14", "de-en")]:
    for how in rows:
        splits = datasets.load_dataset(name, subset, streaming=how == "stream")
        rows[how][name] = {split: list(each) for split, each in splits.items()}
errors = []
for name, subset in [("old/scripted", None), ("Helsinki-NLP/opus_books", "en-fr"), ("no/such", None)]:
    try:
        datasets.load_dataset(name, subset)
    except Exception as error:
        errors.append(str(error))
print(json.dumps([rows, errors]))
"""
_WEIGHTS = bytes(range(256)) * 40


@pytest.fixture
def client(hub, tmp_path, monkeypatch):
    """The client, asked in this process; what it would wait for is in the list `waits`, and takes no time."""
    import huggingface_hub

    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy", "HF_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 1)
    client = Client(hub, tmp_path / "cache", huggingface_hub)
    monkeypatch.setattr(time, "sleep", client.waits.append)
    huggingface_hub.close_session()
    yield client
    huggingface_hub.close_session()


class Client:
    def __init__(self, hub, cache, library):
        self.waits = []
        self.api = library.HfApi(hub.endpoint, token=False)
        self._options = {"endpoint": hub.endpoint, "cache_dir": cache}
        self._library = library

    def read(self, file, **options):
        """The content of a file of the model."""
        options = {"token": False, **self._options, **options}
        return Path(self._library.hf_hub_download("org/model", file, **options)).read_bytes()

    def error(self, function, *arguments, **options):
        """The name of the error that a call raises, and the status of the reply."""
        with pytest.raises(Exception) as caught:
            function(*arguments, **options)
        response = getattr(caught.value, "response", None)
        return caught.type.__name__, response and response.status_code

    def snapshot(self, **options):
        return Path(self._library.snapshot_download("org/model", token=False, **self._options, **options))


@pytest.fixture
def model(hub):
    """A model with two commits, their names."""
    first = hub.model("org/model", {"config.json": b"{}", "model.safetensors": _WEIGHTS, "a/b/c.txt": b"c"})
    hub.models["org/model"].tags["v1"] = first
    return first, hub.model("org/model", {"config.json": b'{"d_model": 8}', "a/b/c.txt": None})


def test_datasets_loads_every_layout_and_refuses_scripts(hub, run, tmp_path):
    add_datasets(hub, 60)
    hub.dataset("old/scripted", with_script("scripted"))
    own = {
        "HF_ENDPOINT": hub.endpoint,
        "HF_HOME": str(tmp_path),
        "HF_TOKEN": "",
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "*",
    }
    options = {"env": {**os.environ, **own}, "capture_output": True, "encoding": "utf-8"}
    answer = run([sys.executable, "-c", _LOAD], **options)
    assert answer.returncode == 0, answer.stderr
    rows, errors = json.loads(answer.stdout)
    assert rows["load"] == rows["stream"]
    numbers = {name: {split: len(each) for split, each in splits.items()} for name, splits in rows["load"].items()}
    assert numbers["Helsinki-NLP/opus_books"] == {"train": 60}
    assert numbers["bentrevett/multi30k"] == numbers["wmt/wmt14"] == {"train": 60, "validation": 20, "test": 20}
    assert rows["load"]["wmt/wmt14"]["train"][5]["translation"] == rows["load"]["bentrevett/multi30k"]["train"][5]
    assert "scripts are no longer supported" in errors[0]
    assert "Available: ['en-it', 'de-en']" in errors[1]
    assert "doesn't exist on the Hub" in errors[2]


def test_files_are_those_of_their_revision_and_are_asked_for_once(hub, client, model):
    first, second = model
    hub.model("org/model", {"config.json": b"[]"}, revision="next")
    for revision, content in (("v1", b"{}"), (first, b"{}"), ("main", b'{"d_model": 8}'), ("next", b"[]")):
        assert client.read("config.json", revision=revision) == content
    assert client.read("model.safetensors") == _WEIGHTS
    folder = client.snapshot(allow_patterns=["*.json"])
    assert folder.name == second and [path.name for path in folder.iterdir()].count("config.json") == 1
    contents = [request.path for request in hub.requests if request.method == "GET" and request.num_sent]
    assert len([path for path in contents if path.endswith("/config.json")]) == 3  # Two revisions are one commit.
    num_requests = len(hub.requests)
    assert client.read("config.json", revision=second) == b'{"d_model": 8}' and len(hub.requests) == num_requests


def test_listings_agree_with_the_files(hub, client, model):
    first, second = model
    hub.page_size = 2
    entries = list(client.api.list_repo_tree("org/model", recursive=True, revision="v1"))
    assert [entry.path for entry in entries] == ["a", "a/b", "a/b/c.txt", "config.json", "model.safetensors"]
    assert entries[-1].lfs.size == entries[-1].size == len(_WEIGHTS) and entries[-2].lfs is None
    assert [entry.path for entry in client.api.list_repo_tree("org/model", "a/b", revision=first)] == ["a/b/c.txt"]
    [folder, file] = client.api.get_paths_info("org/model", ["a", "no", "config.json"], revision="v1", expand=True)
    assert (folder.path, file.path, file.last_commit.oid) == ("a", "config.json", first)
    assert [ref.target_commit for ref in client.api.list_repo_refs("org/model").tags] == [first]
    info = client.api.model_info("org/model", files_metadata=True)
    assert (info.sha, info.gated, [file.size for file in info.siblings]) == (second, False, [14, len(_WEIGHTS)])
    assert client.api.model_info("org/model", revision=first, expand=["sha"]).siblings is None
    add_datasets(hub, 6)
    card = client.api.dataset_info("wmt/wmt14").card_data
    assert card.configs[0]["config_name"] == "de-en"
    assert client.error(client.api.list_repo_tree("org/model", "no").__next__) == ("RemoteEntryNotFoundError", 404)


def test_errors_are_those_that_the_client_knows(hub, client, model):
    hub.model("org/gated", {"config.json": b"{}"})
    hub.models["org/gated"].gated = True
    hub.model("org/private", {"config.json": b"{}"})
    hub.models["org/private"].private = True
    hub.models["org/gated"].readers = hub.models["org/private"].readers = {"hf_reader"}
    found = {}
    for name in ("no", "gated", "private", "model"):
        for token in (False, "hf_stranger", "hf_reader", "hf_wrong"):
            try:
                client.api.hf_hub_download(f"org/{name}", "config.json", token=token, dry_run=True)
            except Exception as error:
                found[name, token] = type(error).__name__, error.response.status_code
    missing, gated, wrong = "RepositoryNotFoundError", "GatedRepoError", ("HfHubHTTPError", 401)
    assert found == {
        ("no", False): (missing, 401),
        ("no", "hf_stranger"): (missing, 404),
        ("no", "hf_reader"): (missing, 404),
        ("gated", False): (gated, 401),
        ("gated", "hf_stranger"): (gated, 403),
        ("private", False): (missing, 401),
        ("private", "hf_stranger"): (missing, 404),
        **{(name, "hf_wrong"): wrong for name in ("no", "gated", "private", "model")},
    }
    assert client.api.model_info("org/gated").gated  # Public, as the list of its files is.
    assert client.error(client.read, "no.txt") == ("RemoteEntryNotFoundError", 404)
    assert client.error(client.read, "config.json", revision="no") == ("RevisionNotFoundError", 404)
    assert client.api.whoami(token="hf_reader")["name"] == "hf_reader"


def test_tokens_are_sent_to_the_hub_and_not_to_its_cdn(hub, client, model):
    client.read("model.safetensors", token="hf_reader")
    [request] = [request for request in hub.requests if request.from_cdn]
    assert request.num_sent == len(_WEIGHTS) and not request.has_token
    assert all(request.has_token for request in hub.requests if "/resolve/" in request.path)


def test_a_renamed_repository_is_found_under_its_old_name(hub, client, model):
    hub.rename("org/model", "new/name")
    assert client.read("config.json") == b'{"d_model": 8}'
    assert client.read("model.safetensors") == _WEIGHTS
    assert client.api.model_info("org/model").id == "new/name"
    assert len(client.api.get_paths_info("org/model", ["config.json"])) == 1


def test_statuses_are_retried_as_the_hub_asks(hub, client, model):
    hub.faults.status("*/config.json", 429, times=1, method="HEAD", Retry_After=7)
    hub.faults.status("*/config.json", 503, times=1, method="HEAD")
    assert client.read("config.json") == b'{"d_model": 8}'
    hub.faults.status("*/model.safetensors", 429, times=1, method="GET", RateLimit='"resolvers";r=0;t=20')
    assert client.read("model.safetensors") == _WEIGHTS
    assert client.waits == [1, 21.0]  # The first HEAD is not retried: a cached file would do.
    hub.faults.status("*", 500)
    assert client.error(client.api.model_info, "org/model") == ("HfHubHTTPError", 500)


def test_a_download_that_ends_or_stalls_is_resumed_where_it_was(hub, client, model, monkeypatch):
    hub.faults.truncate("*.safetensors", after=1000, times=1)
    hub.faults.stall("*.safetensors", after=500, times=1)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100)  # Only complete chunks are kept.
    assert client.read("model.safetensors") == _WEIGHTS
    ranges = [(request.range, request.status, request.num_sent) for request in hub.requests if request.from_cdn]
    assert ranges[:2] == [(None, 200, 1000), ("bytes=1000-", 206, 500)]
    assert ranges[-1] == ("bytes=1500-", 206, len(_WEIGHTS) - 1500)


def test_wrong_bytes_of_the_right_length_are_not_noticed_by_a_download(hub, client, model):
    hub.faults.corrupt("*.safetensors")
    damaged = client.read("model.safetensors")
    assert len(damaged) == len(_WEIGHTS) and damaged != _WEIGHTS
    client.read("config.json")
    checked = client.api.verify_repo_checksums("org/model", cache_dir=client.snapshot().parents[2])
    assert [mismatch["path"] for mismatch in checked.mismatches] == ["model.safetensors"]


def test_a_slow_download_can_be_watched_and_is_ended_with_the_fault(hub, client, model):
    hub.faults.slow("*.safetensors", bytes_per_second=2_000)
    result = []
    thread = threading.Thread(target=lambda: result.append(client.read("model.safetensors")))
    thread.start()
    pause = threading.Event()
    while not any(request.from_cdn and request.num_sent for request in hub.requests):
        pause.wait(0.01)
    hub.faults.clear()
    thread.join()
    assert result == [_WEIGHTS]
    sent = [request.num_sent for request in hub.requests if request.from_cdn]
    assert sent[0] < len(_WEIGHTS) == sent[1]


def test_a_stopped_hub_refuses_connections_and_starts_on_its_port(hub, client, model):
    assert client.read("config.json") == b'{"d_model": 8}'
    hub.stop()
    assert client.read("config.json") == b'{"d_model": 8}'  # From the cache, without a word.
    assert client.error(client.read, "model.safetensors") == ("LocalEntryNotFoundError", None)
    hub.start()
    assert client.read("model.safetensors") == _WEIGHTS


def test_proxies_answer_late_or_never(hub, client, model, monkeypatch):
    with slow_proxy(0.01) as (address, addresses):
        monkeypatch.setenv("HTTP_PROXY", address)
        assert client.read("model.safetensors") == _WEIGHTS
        assert f"{hub.endpoint}/org/model/resolve/main/model.safetensors" in addresses
        assert len(addresses) == len(hub.requests)
    with dead_proxy() as address:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": address}))
        with pytest.raises(TimeoutError):
            opener.open(hub.endpoint, timeout=0.1)


def test_a_folder_is_served_by_hand(root, start, tmp_path):
    (tmp_path / "models" / "org" / "name" / "a").mkdir(parents=True)
    (tmp_path / "models" / "org" / "name" / "a" / "b.txt").write_text("c", encoding="utf-8")
    server = start([sys.executable, root / "tests" / "hub_server.py", tmp_path], stdout=-1, encoding="utf-8")
    lines = [server.stdout.readline() for _ in range(2)]
    endpoint = lines[1].strip().removeprefix("HF_ENDPOINT=")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{endpoint}/org/name/resolve/main/a/b.txt") as reply:
        assert reply.read() == b"c" and reply.headers["X-Repo-Commit"] == lines[0].split()[-1]
