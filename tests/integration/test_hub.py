"""Datasets of the hub: `mt` with the unmodified clients against a hub on loopback."""

import json
import shutil

import pytest
import yaml
from hub_content import add_datasets, json_lines, opus_books
from hub_server import Fault

SMALL = (
    *("--set", "model.d_model=16", "--set", "model.d_ff=16", "--set", "model.num_heads=2"),
    *("--set", "model.num_encoder_layers=1", "--set", "model.num_decoder_layers=1", "--set", "training.max_steps=2"),
    *("--set", "training.device=cpu"),
)
PAIRS = [(f"the house number {index} is red", f"das Haus Nummer {index} ist rot") for index in range(40)]
ALL_ROWS = [0, "40"]


@pytest.fixture
def config(tmp_path):
    """Writes a config of a dataset; returns its path."""

    def write(**source):
        corpus = {"source": "en", "target": "de", "train": source, "valid": {"fraction": 0.2}}
        (tmp_path / "books.yaml").write_text(yaml.safe_dump({"name": "books", "corpus": corpus}), encoding="utf-8")
        return tmp_path / "books.yaml"

    return write


def corpora_of(tmp_path, name):
    return json.loads((tmp_path / "runs" / name / "report.json").read_text(encoding="utf-8"))["corpora"]


READ = """
import json, time
from mt_cli.corpus.dataset import read_dataset
from mt_cli.corpus.rows import ReadReport
from mt_cli.config.sources import DatasetSource
from mt_cli.errors import MtError

results, waits = {}, []
time.sleep = waits.append
for name, options in json.load(open("sources.json")).items():
    try:
        dataset = DatasetSource(dataset=f"org/{name}", **options)
        rows = len(list(read_dataset(dataset, ("en", "de"), ReadReport())))
        results[name] = [0, str(rows)]
    except MtError as error:
        results[name] = [error.exit_code, str(error)]
print(json.dumps(results))
"""


@pytest.fixture
def read(hub, fork_server, tmp_path):
    """Reads datasets, by name and options; for each, the status, and the number of rows or the message."""

    def run(sources, **environment):
        (tmp_path / "sources.json").write_text(json.dumps(sources), encoding="utf-8")
        (tmp_path / "read.py").write_text(READ, encoding="utf-8")
        settings = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
        settings |= {"NO_PROXY": "", "no_proxy": ""} | environment
        fork_server.start(tmp_path, program=str(tmp_path / "read.py"), environment=settings)
        assert fork_server.wait() == [0], (tmp_path / "stream.2").read_text(encoding="utf-8")
        return json.loads((tmp_path / "stream.1").read_text(encoding="utf-8").splitlines()[-1])

    return run


@pytest.fixture
def books(hub):
    """Commit of the dataset `org/books`."""
    return hub.dataset("org/books", opus_books({"en-de": PAIRS, "en-it": PAIRS}))


BOOKS = {"books": {"subset": "en-de"}}


@pytest.mark.parametrize("name", ["opus_books_en_it", pytest.param("multi30k_en_de", marks=pytest.mark.slow)])
def test_a_shipped_config_trains_from_the_hub_and_again_without(hub, mt_from_hub, root, tmp_path, name):
    add_datasets(hub)
    commits = {repository.branches["main"] for repository in hub.datasets.values()}
    command = ("train", "--config", root / "configs" / f"{name}.yaml", *SMALL)
    status, _, err = mt_from_hub(*command)
    assert status == 0, err
    rows, cache = corpora_of(tmp_path, name), sorted((tmp_path / "home").rglob("*"))
    assert {row["commit"] for row in rows} <= commits and len(rows) >= 2
    requests = [(request.method, request.path) for request in hub.requests]
    assert len(set(requests)) == len(requests), "a request was made twice"
    hub.stop()
    shutil.rmtree(tmp_path / "runs")
    status, _, err = mt_from_hub(*command, HF_HUB_OFFLINE="1")
    assert status == 0, err
    assert corpora_of(tmp_path, name) == rows
    assert sorted((tmp_path / "home").rglob("*")) == cache


FAILURES = {
    "gated": (2, "access"),
    "nothing": (2, "Repository Not Found"),
    "no_revision": (2, "Revision"),
    "script": (2, "script"),
    "subset": (2, "en-it"),
    "down": (1, "503"),
    "limited": (1, "429"),
    "cut": ALL_ROWS,
}
"""Status, and what the message names; or the number of rows where the failure passes."""
OPTIONS = {"no_revision": {"revision": "no"}, "subset": {"subset": "de-en"}, "script": {}}


def test_each_failure_of_the_hub_passes_or_is_one_message(hub, read):
    for name in FAILURES:
        hub.dataset(f"org/{name}", opus_books({"en-de": PAIRS, "en-it": PAIRS}))
    hub.datasets.pop("org/nothing")
    hub.datasets.pop("org/script")
    hub.dataset("org/script", {"script.py": b"import datasets\n"})
    hub.datasets["org/gated"].gated = True
    hub.faults += [
        Fault("*org/limited*", times=1, status=429),
        Fault("*org/down*", status=503),
        Fault("*org/cut*.parquet", times=1, after=500),
    ]
    results = read({name: {"subset": "en-de"} for name in FAILURES} | OPTIONS, HF_TOKEN="")
    for name, (status, words) in FAILURES.items():
        assert results[name][0] == status and words in results[name][1], (name, results[name])
        assert "\n" not in results[name][1], name


DOWNLOAD = """
from huggingface_hub import snapshot_download
snapshot_download("org/books", repo_type="dataset")
"""


@pytest.mark.parametrize("has_list", [True, False])
def test_a_read_only_cache_of_another_client_trains_offline(
    hub, books, fork_server, mt_from_hub, config, tmp_path, has_list
):
    (tmp_path / "download.py").write_text(DOWNLOAD, encoding="utf-8")
    settings = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "", "no_proxy": ""}
    fork_server.start(tmp_path, program=str(tmp_path / "download.py"), environment=settings)
    assert fork_server.wait() == [0], (tmp_path / "stream.2").read_text(encoding="utf-8")
    hub.stop()
    home = tmp_path / "home"
    if not has_list:  # Clients before 2.0 write none.
        for path in home.rglob("trees"):
            shutil.rmtree(path)
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(home.rglob("*"))
    path = config(dataset="org/books", subset="en-de")
    status, _, err = mt_from_hub("train", "--config", path, *SMALL, HF_HUB_OFFLINE="1")
    assert status == 0, err
    assert corpora_of(tmp_path, "books")[0]["commit"] == books and sorted(home.rglob("*")) == before
    path = config(dataset="org/books", subset="en-de", revision="v9")
    assert mt_from_hub("data", "check", "--config", path, HF_HUB_OFFLINE="1")[0] == 2


@pytest.mark.slow
def test_a_revision_and_a_run_keep_their_commit(hub, mt_from_hub, config, tmp_path):
    first = hub.dataset("org/books", opus_books({"en-de": PAIRS[:30]}))
    hub.datasets["org/books"].tags["v1"] = first
    source = {"dataset": "org/books", "subset": "en-de"}

    def check(**revision):
        path = config(**source, **revision)
        _, out, err = mt_from_hub("data", "check", "--config", path, "--json")
        assert out, err
        row = json.loads(out)["corpora"][0]
        return row["num_read"], row["commit"]

    assert check() == (30, first)
    assert mt_from_hub("train", "--config", config(**source), *SMALL)[0] == 0
    second = hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert check(revision="v1") == (30, first)
    assert check() == check(revision=second) == (40, second)
    saved = tmp_path / "runs/books/config.yaml"
    elsewhere = {"HF_HOME": str(tmp_path / "elsewhere")}
    status, _, err = mt_from_hub("train", "--config", saved, "--set", "name=again", **elsewhere)
    assert status == 0, err
    numbers = [[row["num_read"] for row in corpora_of(tmp_path, name)] for name in ("again", "books")]
    assert numbers[0] == numbers[1]


@pytest.mark.slow
def test_a_token_gives_access_and_is_shown_nowhere(hub, books, read, tmp_path):
    secret = "SECRETx"
    for proxy in (f"http://me:{secret}#x@127.0.0.1:9", f"http://me:{secret}@127.0.0.1:9"):
        status, message = read(BOOKS, http_proxy=proxy)["books"]
        assert status in (1, 2) and secret not in message, message
    hub.datasets["org/books"].gated, hub.datasets["org/books"].readers = True, {"hf_reader"}
    for token, status, words in (("hf_stranger", 2, "access"), ("", 2, "access"), ("hf_reader", 0, "40")):
        result = read(BOOKS, HF_TOKEN=token)["books"]
        assert result[0] == status and words in result[1], (token, result)
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert files and not any(b"hf_reader" in path.read_bytes() for path in files)


@pytest.mark.slow
def test_a_folder_replaces_the_dataset_with_its_name(hub, books, read, tmp_path):
    assert read(BOOKS)["books"] == ALL_ROWS
    hub.requests.clear()
    (tmp_path / "org/books").mkdir(parents=True)
    (tmp_path / "org/books/train.jsonl").write_bytes(json_lines(PAIRS[:3], ["en", "de"]))
    assert read({"books": {}})["books"] == [0, "3"]
    assert "not from the hub" in (tmp_path / "stream.2").read_text(encoding="utf-8")
    assert read({"books": {"revision": books}})["books"][0] == 2
    assert not hub.requests


@pytest.mark.slow
def test_without_a_network_only_what_is_missing_is_an_error(hub, books, read):
    assert read(BOOKS, HF_HUB_OFFLINE="1")["books"][0] == 2
    hub.stop()
    status, message = read(BOOKS)["books"]
    assert status == 1 and "network" in message
    hub.start()
    assert read(BOOKS)["books"] == ALL_ROWS
    hub.stop()
    for environment, expected in (({}, 1), ({"HF_HUB_OFFLINE": "1"}, 2)):
        assert read(BOOKS, **environment)["books"] == ALL_ROWS
        assert read({"books": {"subset": "en-it"}}, **environment)["books"][0] == expected
