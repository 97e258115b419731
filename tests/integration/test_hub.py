"""Datasets and models of the hub: `mt` with the unmodified clients against a hub on loopback."""

import json
import os
import shutil
import signal
import time

import pytest
import yaml
from hub_content import add_datasets, card, json_lines, opus_books, with_script
from hub_faults import dead_proxy

SMALL = (
    *("--set", "model.d_model=16", "--set", "model.d_ff=16", "--set", "model.num_heads=2"),
    *("--set", "model.num_encoder_layers=1", "--set", "model.num_decoder_layers=1", "--set", "training.max_steps=2"),
    *("--set", "training.device=cpu", "--set", "evaluation.num_resamples=10", "--set", "training.num_pictures=0"),
)
PAIRS = [(f"the house number {index} is red", f"das Haus Nummer {index} ist rot") for index in range(40)]
ALL_ROWS = [0, "40"]


def write_config(tmp_path, **source):
    """Write a config of a dataset; return its path."""
    corpus = {"source": "en", "target": "de", "train": source, "valid": {"fraction": 0.2}}
    path = tmp_path / "books.yaml"
    path.write_text(yaml.safe_dump({"name": "books", "corpus": corpus}), encoding="utf-8")
    return path


def corpora_of(tmp_path, name):
    return json.loads((tmp_path / "runs" / name / "report.json").read_text(encoding="utf-8"))["corpora"]


READ = """
import json, time
from mt_cli.corpus.dataset import read_dataset
from mt_cli.config.sources import DatasetSource
from mt_cli.errors import MtError

results, waits = {}, []
time.sleep = waits.append
for name, options in json.load(open("sources.json")).items():
    waits.clear()
    try:
        rows = len(list(read_dataset(DatasetSource(dataset=f"org/{name}", **options), ("en", "de"))))
        results[name] = [0, str(rows)]
    except MtError as error:
        results[name] = [error.exit_code, str(error)]
    assert sum(waits) < 120, (name, waits)
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


@pytest.mark.parametrize(
    "name",
    ["opus_books_en_it", *(pytest.param(name, marks=pytest.mark.slow) for name in ("multi30k_en_de", "vaswani_base"))],
)
def test_a_shipped_config_trains_from_the_hub_and_again_without_it(hub, mt_from_hub, root, tmp_path, name):
    add_datasets(hub)
    commits = {repository.branches["main"] for repository in hub.datasets.values()}
    command = ("train", "--config", root / "configs" / f"{name}.yaml", *SMALL)
    status, _, err = mt_from_hub(*command)
    assert status == 0, err
    rows = corpora_of(tmp_path, name)
    assert {row["commit"] for row in rows} <= commits and len(rows) >= 2
    requests = [(request.method, request.path) for request in hub.requests]
    assert len(set(requests)) == len(requests), "a request was made twice"
    hub.requests.clear()
    hub.stop()
    status, _, err = mt_from_hub(*command, "--fresh")
    assert status == 0, err
    assert corpora_of(tmp_path, name) == rows
    hub.start()
    assert not hub.requests


def test_a_revision_is_a_branch_a_tag_or_a_commit_and_keeps_its_rows(hub, mt_from_hub, tmp_path):
    first = hub.dataset("org/books", opus_books({"en-de": PAIRS[:30]}))
    hub.datasets["org/books"].tags["v1"] = first

    def check(revision):
        source = {"dataset": "org/books", "subset": "en-de"} | ({"revision": revision} if revision else {})
        status, out, err = mt_from_hub("data", "check", "--config", write_config(tmp_path, **source), "--json")
        assert status in (0, 2) and out, err
        train = next(row for row in json.loads(out)["corpora"] if row["corpus"] == "train")
        return train["num_read"], train["commit"]

    assert check(None) == (30, first)
    second = hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert check(None) == check("v1") == (30, first)
    assert check(second) == (40, second)
    hub.stop()
    assert check(second) == (40, second)
    assert check(None) == (30, first)


def test_a_run_keeps_its_commit_and_its_config_repeats_it_elsewhere(hub, mt_from_hub, tmp_path):
    first = hub.dataset("org/books", opus_books({"en-de": PAIRS[:30]}))
    command = ("train", "--config", write_config(tmp_path, dataset="org/books", subset="en-de"), *SMALL)
    assert mt_from_hub(*command)[0] == 0
    rows = corpora_of(tmp_path, "books")
    assert {row["commit"] for row in rows} == {first}
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    elsewhere = {"HF_HOME": str(tmp_path / "elsewhere")}
    status, _, err = mt_from_hub(*command, "--set", "training.max_steps=3", **elsewhere)
    assert status == 0 and "revision" not in err, err
    assert corpora_of(tmp_path, "books")[0]["commit"] == first
    saved = tmp_path / "runs/books/config.yaml"
    status, _, err = mt_from_hub("train", "--config", saved, "--set", "name=again", **elsewhere)
    assert status == 0, err
    assert [row["num_read"] for row in corpora_of(tmp_path, "again")] == [row["num_read"] for row in rows]


def test_chosen_files_and_streams(hub, mt_from_hub, read, tmp_path):
    files = {"a/one.jsonl": json_lines(PAIRS[:10], ["en", "de"]), "a/two.jsonl": json_lines(PAIRS[10:30], ["en", "de"])}
    commit = hub.dataset("org/lines", {"README.md": card(language=["en"]), **files, "other.csv": b"a,b\n1,2\n"})
    assert read({"lines": {"data_files": "a/*.jsonl"}})["lines"] == [0, "30"]
    assert read({"lines": {"data_files": ["a/two.jsonl"]}})["lines"] == [0, "20"]
    assert read({"lines": {"data_files": "b/*.jsonl"}})["lines"][0] == 2
    path = write_config(tmp_path, dataset="org/lines", data_files="a/*.jsonl", streaming=True)
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    tree["corpus"]["valid"] = {"dataset": "org/lines", "data_files": "a/one.jsonl"}
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    status, _, err = mt_from_hub("train", "--config", path, *SMALL, "--set", "training.validate_every_steps=2")
    assert status == 0, err
    assert {row["commit"] for row in corpora_of(tmp_path, "books")} == {commit}


def test_quotes_in_tsv_files_are_characters_and_any_file_may_have_any_name(hub, read):
    lines = ["en\tde", 'a "b\tx', "c\ty", 'd" e\tz']
    hub.dataset("org/table", {"train.tsv": "\n".join(lines).encode() + b"\n"})
    rows = json_lines(PAIRS[:3], ["en", "de"])
    hub.dataset("org/names", {"a b/t #1?.jsonl": rows, "ü/ñ %41.jsonl": rows, "empty.jsonl": b""})
    assert read({"table": {}, "names": {"data_files": "**/*.jsonl"}}) == {"table": [0, "3"], "names": [0, "6"]}


def test_a_truncated_file_is_downloaded_again_and_a_damaged_one_is_named(hub, books, read, tmp_path):
    assert read(BOOKS)["books"] == ALL_ROWS
    (blob,) = (tmp_path / "home").glob("hub/*/blobs/" + "?" * 64)
    (link,) = (tmp_path / "home").glob("hub/*/snapshots/*/en-de/*.parquet")
    content = blob.read_bytes()
    os.truncate(blob, 50)
    assert read(BOOKS)["books"] == ALL_ROWS and link.read_bytes() == content
    blob.write_bytes(bytes(len(content)))
    status, message = read(BOOKS)["books"]
    assert status == 2 and str(blob.parent) in message
    shutil.rmtree(blob.parent)
    assert read(BOOKS)["books"] == ALL_ROWS and link.read_bytes() == content
    precious = tmp_path / "precious.txt"
    precious.write_text("mine", encoding="utf-8")
    link.unlink()
    link.symlink_to(precious)
    blob.unlink()
    assert read(BOOKS)["books"] == ALL_ROWS
    assert precious.read_text(encoding="utf-8") == "mine" and link.read_bytes() == content


def test_downloaded_data_trains_without_a_network_and_a_cache_that_changes(hub, books, mt_from_hub, tmp_path):
    path = write_config(tmp_path, dataset="org/books", subset="en-de")
    assert mt_from_hub("data", "check", "--config", path)[0] in (0, 2)
    cache = sorted((tmp_path / "home").rglob("*"))
    assert not (tmp_path / "home/datasets").exists()
    hub.stop()
    hub.requests.clear()
    status, _, err = mt_from_hub("train", "--config", path, *SMALL, HF_HUB_OFFLINE="1")
    assert status == 0, err
    assert err.count("dataset org/books at commit") == 1
    assert sorted((tmp_path / "home").rglob("*")) == cache


def test_no_message_and_no_file_has_a_token_or_a_password(hub, books, read, tmp_path):
    secret = "SECRETx"
    settings = [{"HF_TOKEN": f"hf_{secret}ü"}, {"http_proxy": f"http://me:{secret}#x@127.0.0.1:9"}]
    settings += [{"HF_ENDPOINT": f"http://me:{secret}@127.0.0.1:9"}, {"http_proxy": f"http://me:{secret}@127.0.0.1:9"}]
    for setting in settings:
        status, message = read(BOOKS, **setting)["books"]
        assert status in (1, 2) and secret not in message, message
    assert read(BOOKS, HF_TOKEN="hf_reader")["books"] == ALL_ROWS
    assert any(request.has_token for request in hub.requests)
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert files and not any(b"hf_reader" in path.read_bytes() for path in files)


def test_a_folder_is_read_instead_of_the_dataset_of_the_hub_with_its_name(hub, books, read, tmp_path):
    assert read(BOOKS)["books"] == ALL_ROWS
    assert "not from the hub" not in (tmp_path / "stream.2").read_text(encoding="utf-8")
    (tmp_path / "org/books").mkdir(parents=True)
    (tmp_path / "org/books/train.jsonl").write_bytes(json_lines(PAIRS[:3], ["en", "de"]))
    hub.requests.clear()
    assert read({"books": {}})["books"] == [0, "3"]
    assert "not from the hub" in (tmp_path / "stream.2").read_text(encoding="utf-8")
    assert read({"books": {"revision": books}})["books"][0] == 2
    assert not hub.requests


FAILURES = {
    "gated": (2, "access on request"),
    "private": (2, "HF_TOKEN"),
    "nothing": (2, "HF_TOKEN"),
    "no_revision": (2, "has no such revision"),
    "script": (2, "refs/convert/parquet"),
    "empty": (2, "has no files"),
    "subset": (2, "en-it"),
    "split": (2, "train"),
    "limited": ALL_ROWS,
    "for_hours": (1, "7200 s"),
    "busy": ALL_ROWS,
    "down": (1, "503"),
    "cut": ALL_ROWS,
    "always_cut": (1, "lost connection"),
    "stalled": ALL_ROWS,
    "silent": (1, "check the network"),
    "portal": (1, "log in"),
    "page": (1, "size"),
    "gone": (1, "is not there"),
    "renamed": ALL_ROWS,
    "stream_down": (1, "503"),
}
"""Status, and what the message names; or the number of rows where the failure passes."""
OPTIONS = {
    "no_revision": {"revision": "no"},
    "subset": {"subset": "de-en"},
    "split": {"subset": "en-de", "split": "valid"},
    "stream_down": {"subset": "en-de", "streaming": True},
    "script": {},
    "empty": {},
}


def add_failures(hub):
    """Give a hub a dataset for each failure; return how they are read."""
    for name in FAILURES:
        hub.dataset(f"org/{name}", opus_books({"en-de": PAIRS, "en-it": PAIRS}))
    hub.datasets.pop("org/nothing")
    hub.datasets.pop("org/script")
    hub.datasets.pop("org/empty")
    hub.dataset("org/script", with_script("script"))
    hub.dataset("org/empty", {"README.md": card(language=["en"])})
    hub.datasets["org/gated"].gated = hub.datasets["org/private"].private = True
    hub.rename("org/renamed", "org/new")
    faults, page = hub.faults, b"<html>log in</html>" * 20
    faults.status("*org/limited*", 429, times=1, Retry_After=3)
    faults.status("*org/*for_hours*.parquet", 429, Retry_After=7200)
    faults.status("*org/busy*", 500, times=1)
    faults.status("*org/down*", 503)
    faults.status("*org/stream_down*.parquet", 503)
    faults.truncate("*org/cut*.parquet", after=500, times=1)
    faults.truncate("*org/always_cut*.parquet", after=0)
    faults.stall("*org/*stalled*.parquet", after=300, times=1)
    faults.stall("*org/*silent*.parquet", after=0)
    faults.status("/api/datasets/org/portal*", 200, body=page, Content_Type="text/html")
    faults.status("*org/page*.parquet", 200, method="GET", body=page, Content_Type="text/html")
    faults.status("*org/gone*.parquet", 404, X_Error_Code="EntryNotFound")
    return {name: {"subset": "en-de"} for name in FAILURES} | OPTIONS


def test_each_failure_of_the_hub_is_one_message_that_says_what_to_do(hub, read):
    sources = add_failures(hub)
    results = read(sources, HF_TOKEN="")
    for name, (status, words) in FAILURES.items():
        assert results[name][0] == status and words in results[name][1], (name, results[name])
        assert "\n" not in results[name][1], name
    hub.faults.clear()
    again = {name: sources[name] for name in ("always_cut", "silent", "page", "portal", "gone")}
    assert list(read(again).values()) == [ALL_ROWS] * len(again)


def test_access_is_that_of_the_account_of_the_token(hub, read):
    sources = {name: {"subset": "en-de"} for name in ("gated", "private")}
    for name in sources:
        hub.dataset(f"org/{name}", opus_books({"en-de": PAIRS}))
        hub.datasets[f"org/{name}"].readers = {"hf_reader"}
    hub.datasets["org/gated"].gated = hub.datasets["org/private"].private = True
    for token, status, words in (("hf_stranger", 2, "your token"), ("hf_old", 2, "HF_TOKEN"), ("hf_reader", 0, "40")):
        for result in read(sources, HF_TOKEN=token).values():
            assert result[0] == status and words in result[1], (token, result)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"HF_ENDPOINT": "junk"}, "HF_ENDPOINT"),
        ({"HF_ENDPOINT": "http://127.0.0.1:many"}, "HF_ENDPOINT"),
        ({"HF_HUB_DOWNLOAD_TIMEOUT": "abc"}, "HF_"),
        ({"SSL_CERT_FILE": "/nope"}, "SSL_CERT_FILE"),
        ({"http_proxy": "http://127.0.0.1:many"}, "HTTP_PROXY"),
    ],
)
def test_a_wrong_setting_of_the_network_is_named(books, read, settings, words):
    status, message = read(BOOKS, **settings)["books"]
    assert status == 2 and words in message


def test_without_a_network_only_what_is_missing_is_an_error(hub, books, read):
    with dead_proxy() as proxy:
        status, message = read(BOOKS, http_proxy=proxy, HTTP_PROXY=proxy)["books"]
    assert status == 1 and "through a proxy" in message
    status, message = read(BOOKS, HF_HUB_OFFLINE="1")["books"]
    assert status == 2 and "HF_HUB_OFFLINE" in message
    hub.stop()
    status, message = read(BOOKS)["books"]
    assert status == 1 and "check the network" in message
    hub.start()
    assert read(BOOKS)["books"] == ALL_ROWS
    hub.stop()
    assert read(BOOKS)["books"] == ALL_ROWS
    for environment, expected in (({}, 1), ({"HF_HUB_OFFLINE": "1"}, 2)):
        assert read({"books": {"subset": "en-it"}}, **environment)["books"][0] == expected


def test_an_interrupted_download_ends_at_once_and_is_done_by_the_same_command(
    hub, books, commands, mt_from_hub, tmp_path
):
    hub.faults.stall("*.parquet", after=500)
    path = write_config(tmp_path, dataset="org/books", subset="en-de")
    settings = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DOWNLOAD_TIMEOUT": "1000"}
    pid = commands.start("data", "check", "--config", path, environment=settings)
    deadline = time.monotonic() + 60
    while not any(request.num_sent for request in hub.requests if request.path.endswith(".parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(pid, signal.SIGINT)
    status, err = commands.wait()
    assert status == 130 and "Traceback" not in err, err
    hub.faults.clear()
    status, _, err = mt_from_hub("data", "check", "--config", path)
    assert status in (0, 2), err


def test_two_commands_at_once_download_a_file_once(hub, fork_server, tmp_path):
    content = opus_books({"en-de": PAIRS * 20})
    hub.dataset("org/books", content)
    hub.faults.slow("*.parquet", bytes_per_second=len(content["en-de/train-00000-of-00001.parquet"]) * 2)
    path = write_config(tmp_path, dataset="org/books", subset="en-de")
    environment = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}
    fork_server.start(tmp_path, ["data", "check", "--config", path], names=("one", "two"), environment=environment)
    assert set(fork_server.wait()) <= {0, 2}
    downloads = [request for request in hub.requests if request.method == "GET" and request.path.endswith(".parquet")]
    assert len(downloads) == 1


def test_a_config_is_written_for_a_dataset_of_the_hub(hub, mt_from_hub, tmp_path):
    add_datasets(hub)
    status, _, err = mt_from_hub("init", "--dataset", "bentrevett/multi30k", "--output", "new.yaml")
    assert status == 0, err
    corpus = yaml.safe_load((tmp_path / "new.yaml").read_text(encoding="utf-8"))["corpus"]
    assert corpus["train"]["dataset"] == "bentrevett/multi30k"
    assert {corpus["source"], corpus["target"]} == {"en", "de"}
    assert corpus["valid"]["split"] == "validation" and corpus["test"]["split"] == "test"
    assert mt_from_hub("init", "--dataset", "Helsinki-NLP/opus_books", "--output", "two.yaml")[0] == 2
