"""Datasets and models of the hub: `mt` with the unmodified clients against a hub on loopback."""

import json
import os
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


def config_of(tmp_path, **source):
    """The path of a config of a dataset."""
    corpus = {"source": "en", "target": "de", "train": source, "valid": {"fraction": 0.2}}
    path = tmp_path / "books.yaml"
    path.write_text(yaml.safe_dump({"name": "books", "corpus": corpus}), encoding="utf-8")
    return path


def report_of(tmp_path, name):
    return json.loads((tmp_path / "runs" / name / "report.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name",
    ["opus_books_en_it", *(pytest.param(each, marks=pytest.mark.slow) for each in ("multi30k_en_de", "vaswani_base"))],
)
def test_a_shipped_config_trains_from_the_hub_and_again_without_it(hub, mt_from_hub, root, tmp_path, name):
    add_datasets(hub)
    commits = {repository.branches["main"] for repository in hub.datasets.values()}
    command = ("train", "--config", root / "configs" / f"{name}.yaml", *SMALL)
    status, _, err = mt_from_hub(*command)
    assert status == 0, err
    rows = report_of(tmp_path, name)["corpora"]
    assert {row["commit"] for row in rows} <= commits and len(rows) >= 2
    asked = [(request.method, request.path) for request in hub.requests]
    assert len(set(asked)) == len(asked), "a request was made twice"
    hub.requests.clear()
    hub.stop()
    status, _, err = mt_from_hub(*command, "--fresh")
    assert status == 0, err
    assert report_of(tmp_path, name)["corpora"] == rows
    hub.start()
    assert not hub.requests


def test_a_revision_is_a_branch_a_tag_or_a_commit_and_stays_what_it_was(hub, mt_from_hub, tmp_path):
    first = hub.dataset("org/books", opus_books({"en-de": PAIRS[:30]}))
    hub.datasets["org/books"].tags["v1"] = first
    data_of = {}

    def read(revision):
        source = {"dataset": "org/books", "subset": "en-de"} | ({"revision": revision} if revision else {})
        status, out, err = mt_from_hub("data", "check", "--config", config_of(tmp_path, **source), "--json")
        assert status in (0, 2) and out, err
        data_of[revision] = next(row for row in json.loads(out)["corpora"] if row["corpus"] == "train")
        return data_of[revision]["num_read"], data_of[revision]["commit"]

    assert read(None) == (30, first)
    second = hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert read(None) == (30, first)
    assert read("v1") == (30, first)
    assert read(second) == (40, second)
    hub.stop()
    assert read(second) == (40, second)
    assert read(None) == (30, first)


def test_a_run_keeps_its_commit_and_its_config_repeats_it_elsewhere(hub, mt_from_hub, tmp_path):
    first = hub.dataset("org/books", opus_books({"en-de": PAIRS[:30]}))
    command = ("train", "--config", config_of(tmp_path, dataset="org/books", subset="en-de"), *SMALL)
    assert mt_from_hub(*command)[0] == 0
    rows = report_of(tmp_path, "books")["corpora"]
    assert {row["commit"] for row in rows} == {first}
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    elsewhere = {"HF_HOME": str(tmp_path / "elsewhere")}
    status, _, err = mt_from_hub(*command, "--set", "training.max_steps=3", **elsewhere)
    assert status == 0 and "revision" not in err, err
    assert report_of(tmp_path, "books")["corpora"][0]["commit"] == first
    saved = tmp_path / "runs/books/config.yaml"
    status, _, err = mt_from_hub("train", "--config", saved, "--set", "name=again", **elsewhere)
    assert status == 0, err
    assert [row["num_read"] for row in report_of(tmp_path, "again")["corpora"]] == [row["num_read"] for row in rows]


def test_chosen_files_and_streams(hub, mt_from_hub, tmp_path):
    files = {"a/one.jsonl": json_lines(PAIRS[:10], ["en", "de"]), "a/two.jsonl": json_lines(PAIRS[10:30], ["en", "de"])}
    hub.dataset("org/lines", {"README.md": card(language=["en"]), **files, "other.csv": b"a,b\n1,2\n"})
    for pattern, number in (("a/*.jsonl", 30), (["a/two.jsonl"], 20)):
        path = config_of(tmp_path, dataset="org/lines", data_files=pattern)
        status, out, err = mt_from_hub("data", "check", "--config", path, "--json")
        assert status in (0, 2) and out, err
        assert next(row for row in json.loads(out)["corpora"] if row["corpus"] == "train")["num_read"] == number
    tree = yaml.safe_load(config_of(tmp_path, dataset="org/lines", data_files="a/*.jsonl", streaming=True).read_text())
    tree["corpus"]["valid"] = {"dataset": "org/lines", "data_files": "a/one.jsonl"}
    (tmp_path / "books.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    status, _, err = mt_from_hub(
        "train", "--config", tmp_path / "books.yaml", *SMALL, "--set", "training.validate_every_steps=2"
    )
    assert status == 0, err
    assert {row["commit"] for row in report_of(tmp_path, "books")["corpora"]} == {
        hub.datasets["org/lines"].branches["main"]
    }


def test_quotes_in_tsv_files_are_characters(hub, cases):
    lines = ["en\tde", 'a "b\tx', "c\ty", 'd" e\tz']
    hub.dataset("org/table", {"train.tsv": "\n".join(lines).encode() + b"\n"})
    assert cases({"table": {}})["table"][:2] == [0, "3"]


def test_a_damaged_file_of_the_cache_is_downloaded_again(hub, cases, tmp_path):
    hub.dataset("org/books", opus_books({"en-de": PAIRS, "en-it": PAIRS}))
    wanted, home = {"books": {"subset": "en-de"}}, tmp_path / "home"
    assert cases(wanted)["books"][:2] == [0, "40"]
    (blob,) = home.glob("hub/*/blobs/" + "?" * 64)
    content = blob.read_bytes()
    (link,) = home.glob("hub/*/snapshots/*/en-de/*.parquet")
    partial = home / "hub/datasets--org--books/mt/partial" / blob.name
    of_same_size = content[:300] + bytes([content[300] ^ 1]) + content[301:]
    for damage in (
        lambda: os.truncate(blob, 50),
        lambda: blob.write_bytes(of_same_size),
        lambda: (blob.unlink(), partial.write_bytes(content + b"more")),
        lambda: (blob.unlink(), partial.write_bytes(of_same_size[:-9])),
        lambda: (link.unlink(), link.write_bytes(of_same_size)),
    ):
        damage()
        found = cases(wanted)["books"]
        if "its checksum differs" in found[1]:  # What was downloaded in part was damaged.
            found = cases(wanted)["books"]
        assert found[:2] == [0, "40"]
        assert link.read_bytes() == content


def test_a_wrong_description_is_asked_for_again(hub, cases, tmp_path):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert cases({"books": {}})["books"][:2] == [0, "40"]
    record = tmp_path / "home/hub/datasets--org--books/mt/main.json"
    truth = json.loads(record.read_text(encoding="utf-8"))
    name = next(name for name in truth["files"] if name.endswith(".parquet"))
    (blob,) = (tmp_path / "home/hub/datasets--org--books/blobs").glob(truth["files"][name]["checksum"])
    for wrong in ({"size": blob.stat().st_size + 5}, {"checksum": "0" * 64}):
        blob.unlink()
        lie = truth | {"files": truth["files"] | {name: truth["files"][name] | wrong}}
        record.write_text(json.dumps(lie), encoding="utf-8")
        assert cases({"books": {}})["books"][0] == 1
        assert cases({"books": {}})["books"][:2] == [0, "40"]


def test_what_data_check_downloaded_trains_without_a_network(hub, mt_from_hub, tmp_path):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    path = config_of(tmp_path, dataset="org/books", subset="en-de")
    assert mt_from_hub("data", "check", "--config", path)[0] in (0, 2)
    hub.stop()
    hub.requests.clear()
    status, _, err = mt_from_hub("train", "--config", path, *SMALL, HF_HUB_OFFLINE="1")
    assert status == 0, err
    assert err.count("dataset org/books at commit") == 1


def test_a_dataset_is_read_where_nothing_can_be_written(hub, cases, tmp_path):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert cases({"books": {}})["books"][:2] == [0, "40"]
    before = sorted(path for path in (tmp_path / "home").rglob("*"))
    assert not (tmp_path / "home/datasets").exists()
    hub.stop()
    assert cases({"books": {}})["books"][:2] == [0, "40"]
    assert sorted(path for path in (tmp_path / "home").rglob("*")) == before


def test_any_name_of_a_file_an_empty_file_and_no_hub_at_all(hub, cases):
    rows = json_lines(PAIRS[:3], ["en", "de"])
    hub.dataset("org/names", {"a b/t #1?.jsonl": rows, "ü/ñ %41.jsonl": rows, "empty.jsonl": b""})
    hub.dataset("org/portal", opus_books({"en-de": PAIRS}))
    hub.faults.status("/api/datasets/org/portal*", 200, Content_Type="text/html")
    hub.dataset("org/gone", opus_books({"en-de": PAIRS}))
    hub.faults.status("*org/gone*.parquet", 404, X_Error_Code="EntryNotFound")
    found = cases({"names": {"data_files": "**/*.jsonl"}, "portal": {}, "gone": {}})
    assert found["names"][:2] == [0, "6"]
    assert found["portal"][0] == 1 and "the answer is not that of a hub" in found["portal"][1]
    assert found["gone"][0] == 1 and "one of its files is not there" in found["gone"][1]


def test_what_is_downloaded_needs_no_connection_even_for_a_wrong_slice(hub, cases):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert cases({"books": {}})["books"][:2] == [0, "40"]
    hub.stop()
    assert cases({"books": {}}, http_proxy="http://me:secret#x@127.0.0.1:9")["books"][:2] == [0, "40"]
    status, message, _ = cases({"books": {"split": "train[:abc]"}})["books"]
    assert status == 2 and "no connection" not in message


def test_a_token_is_sent_to_the_hub_alone(hub, cases, tmp_path):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert cases({"books": {}}, HF_TOKEN="hf_reader")["books"][:2] == [0, "40"]
    assert any(request.has_token for request in hub.requests)
    assert not any(request.has_token for request in hub.requests if request.from_cdn)
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert files and not any(b"hf_reader" in path.read_bytes() for path in files)


def test_a_file_outside_the_cache_is_never_removed(hub, cases, tmp_path):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert cases({"books": {}})["books"][:2] == [0, "40"]
    own = tmp_path / "own.txt"
    own.write_text("mine", encoding="utf-8")
    (link,) = (tmp_path / "home").glob("hub/*/snapshots/*/en-de/*.parquet")
    link.unlink()
    link.symlink_to(own)
    assert cases({"books": {}})["books"][:2] == [0, "40"]
    assert own.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("target", ["own.txt", "none.txt"])
def test_a_partial_download_that_is_a_link_is_not_followed(hub, cases, tmp_path, target):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert cases({"books": {}})["books"][:2] == [0, "40"]
    own, (blob,) = tmp_path / "own.txt", (tmp_path / "home").glob("hub/*/blobs/" + "?" * 64)
    beginning = blob.read_bytes()[:9]  # The rest would be appended to it.
    own.write_bytes(beginning)
    blob.unlink()
    partial = tmp_path / "home/hub/datasets--org--books/mt/partial" / blob.name
    partial.symlink_to(tmp_path / target)
    assert cases({"books": {}})["books"][:2] == [0, "40"]
    assert own.read_bytes() == beginning and not (tmp_path / "none.txt").exists()
    assert blob.is_file() and not blob.is_symlink() and not partial.is_symlink()


def test_a_folder_is_read_instead_of_the_dataset_of_the_hub_with_its_name(hub, cases, tmp_path):
    commit = hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    assert cases({"books": {}})["books"][:2] == [0, "40"]
    assert "not from the hub" not in (tmp_path / "stream.2").read_text(encoding="utf-8")
    (tmp_path / "org/books").mkdir(parents=True)
    (tmp_path / "org/books/train.jsonl").write_bytes(json_lines(PAIRS[:3], ["en", "de"]))
    hub.requests.clear()
    assert cases({"books": {}})["books"][:2] == [0, "3"]
    notice = "dataset org/books: read from the folder of this name, not from the hub"
    assert notice in (tmp_path / "stream.2").read_text(encoding="utf-8").splitlines()
    (status, message, _) = cases({"books": {"revision": commit}})["books"]
    assert status == 2 and "is a folder here" in message and "rename the folder" in message
    assert not hub.requests


def test_no_message_has_a_token_or_a_password(hub, cases):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    secret = "SECRETx"
    settings = [{"HF_TOKEN": f"hf_{secret}ü"}, {"http_proxy": f"http://me:{secret}#x@127.0.0.1:9"}]
    settings += [{"HF_ENDPOINT": f"http://me:{secret}@127.0.0.1:9"}, {"http_proxy": f"http://me:{secret}@127.0.0.1:9"}]
    for each in settings:
        status, message, _ = cases({"books": {}}, **each)["books"]
        assert status in (1, 2) and secret not in message, message


def test_a_pattern_without_files_and_a_slice_of_a_stream_are_refused(hub, cases):
    hub.dataset("org/books", opus_books({"en-de": PAIRS, "en-it": PAIRS}))
    assert cases({"books": {"subset": "en-de"}})["books"][0] == 0
    (found,) = cases({"books": {"data_files": "de/*.parquet"}}).values()
    assert found[0] == 2 and "de/*.parquet" in found[1]
    (found,) = cases({"books": {"subset": "en-de", "streaming": True, "split": "train[:3]"}}).values()
    assert found[0] == 2 and "a stream has no slices such as train[:3]" in found[1]


CASES = """
import json, time
from mt_cli.corpus import hub
from mt_cli.config.sources import DatasetSource
from mt_cli.errors import MtError

waits, found = [], {}
time.sleep = waits.append
for name, options in json.load(open("cases.json")).items():
    waits.clear()
    try:
        rows = len(list(hub.read_dataset(DatasetSource(dataset=f"org/{name}", **options), ("en", "de"))))
        found[name] = [0, str(rows), sum(waits)]
    except MtError as error:
        found[name] = [error.exit_code, str(error), sum(waits)]
print(json.dumps(found))
"""


@pytest.fixture
def cases(hub, fork_server, tmp_path):
    """Reads datasets by name and options; for each, the exit status, the message or the number of rows, the wait."""

    def run(options, **environment):
        (tmp_path / "cases.json").write_text(json.dumps(options), encoding="utf-8")
        (tmp_path / "cases.py").write_text(CASES, encoding="utf-8")
        settings = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DOWNLOAD_TIMEOUT": "1"}
        settings |= {"NO_PROXY": "", "no_proxy": ""} | environment
        fork_server.start(tmp_path, program=str(tmp_path / "cases.py"), environment=settings)
        assert fork_server.wait() == [0], (tmp_path / "stream.2").read_text(encoding="utf-8")
        return json.loads((tmp_path / "stream.1").read_text(encoding="utf-8"))

    return run


def test_each_failure_of_the_hub_is_one_message_that_says_what_to_do(hub, cases):
    names = ["gated", "private", "limited", "for_hours", "busy", "down", "cut", "always_cut", "stalled", "damaged"]
    for name in [*names, "old", "books"]:
        hub.dataset(f"org/{name}", opus_books({"en-de": PAIRS, "en-it": PAIRS}))
    hub.dataset("org/script", with_script("script"))
    hub.dataset("org/empty", {"README.md": card(language=["en"])})
    hub.datasets["org/gated"].gated = hub.datasets["org/private"].private = True
    hub.rename("org/old", "org/new")
    faults = hub.faults
    faults.status("*org/limited*", 429, times=2, Retry_After=3)
    faults.status("*org/for_hours*", 429, Retry_After=7200)
    faults.status("*org/busy*", 500, times=2)
    faults.status("*org/down*", 503)
    faults.truncate("*org/cut*.parquet", after=500, times=2)
    faults.truncate("*org/always_cut*.parquet", after=0)
    faults.stall("*org/stalled*.parquet", after=300, times=1)
    faults.corrupt("*org/damaged*.parquet", times=1)
    options = {name: {"subset": "en-de"} for name in [*names, "old"]}
    options |= {"script": {}, "empty": {}, "nothing": {}, "books": {"subset": "de-en"}}
    found = cases(options, HF_TOKEN="")
    for name, (status, message, wait) in {
        "gated": (2, "its owner gives access on request, at http", 0),
        "private": (2, "not found on the hub; check the name", 0),
        "nothing": (2, "set HF_TOKEN to a token of your account", 0),
        "limited": (0, "40", 6),
        "for_hours": (1, "allows no more requests for 7200 s; with a token (HF_TOKEN) it allows more", 0),
        "busy": (0, "40", 3),
        "down": (1, "answered with status 503; run the command again", 7),
        "cut": (0, "40", 2),
        "always_cut": (1, "run the command again", 7),
        "stalled": (0, "40", 1),
        "damaged": (1, "arrived damaged (its checksum differs); run the command again", 0),
        "old": (0, "40", 0),
        "script": (2, "is read by a Python program of its own", 0),
        "empty": (2, "has no files that `datasets` can read", 0),
        "books": (2, "has no configuration 'de-en'; set `subset` to one of en-de, en-it", 0),
    }.items():
        assert found[name][0] == status and message in found[name][1], (name, found[name])
        assert found[name][2] == wait, (name, found[name])
    faults.clear()
    again = cases({"damaged": {"subset": "en-de"}, "always_cut": {"subset": "en-de"}})
    assert [row[:2] for row in again.values()] == [[0, "40"]] * 2
    hub.datasets["org/gated"].readers = hub.datasets["org/private"].readers = {"hf_reader"}
    gated = {name: {"subset": "en-de"} for name in ("gated", "private")}
    refused = cases(gated, HF_TOKEN="hf_stranger")
    assert all("the account of your token has no access" in row[1] for row in refused.values()), refused
    assert [row[:2] for row in cases(gated, HF_TOKEN="hf_reader").values()] == [[0, "40"]] * 2


def test_a_stream_is_asked_for_again_and_ends_with_the_same_messages(hub, cases):
    names = ["limited", "for_hours", "busy", "down", "cut", "stalled", "silent"]
    for name in names:
        hub.dataset(f"org/{name}", opus_books({"en-de": PAIRS}))
    faults = hub.faults
    faults.status("*org/limited*.parquet", 429, times=2, Retry_After=3)
    faults.status("*org/for_hours*.parquet", 429, Retry_After=7200)
    faults.status("*org/busy*.parquet", 500, times=2)
    faults.status("*org/down*.parquet", 503)
    faults.truncate("*org/cut*.parquet", after=500, times=2)
    faults.stall("*org/stalled*.parquet", after=300, times=1)
    faults.stall("*org/silent*.parquet", after=0)
    found = cases({name: {"streaming": True} for name in names})
    for name, status, message, wait in (
        ("limited", 0, "40", 6),
        ("for_hours", 1, "allows no more requests for 7200 s", 0),
        ("busy", 0, "40", 3),
        ("down", 1, "answered with status 503; run the command again", 7),
        ("cut", 0, "40", 3),
        ("stalled", 0, "40", 1),
        ("silent", 1, "check the network, and run the command again", 7),
    ):
        assert found[name][0] == status and message in found[name][1], (name, found[name])
        assert found[name][2] == wait, (name, found[name])


def test_another_file_is_never_taken_for_the_one_that_was_asked_for(hub, cases, tmp_path):
    lines = "en\tde\n" + "".join(f"{a}\t{b}\n" for a, b in PAIRS)
    page, size = b"<html>log in\tnow<br>\n" * 100, len(lines.encode())
    wrong = {
        "page": {"status": 200, "body": page, "Content_Type": "text/html"},
        "page_without_length": {"status": 200, "body": page, "Content_Type": "text/html", "Content_Length": ""},
        "other_place": {"status": 206, "body": page[:100], "Content_Range": f"bytes 5-104/{size}"},
        "other_size": {"status": 206, "body": page[:100], "Content_Range": f"bytes 0-99/{size + 1}"},
        "endless": {"status": 200, "body": page * 100, "Content_Length": ""},
    }
    for name, options in wrong.items():
        hub.dataset(f"org/{name}", {"train.tsv": lines.encode(), "README.md": card(language=["en"])})
        hub.faults.status(f"*org/{name}*train.tsv", **options)
    streams = cases({name: {"streaming": True} for name in wrong})
    files = cases({name: {} for name in wrong})
    for name in wrong:
        for found in (files[name], streams[name]):
            assert found[0] == 1, (name, found)
            assert "is another file" in found[1] or "and the answer more" in found[1], (name, found)
    partial = list((tmp_path / "home").glob("hub/datasets--org--page/mt/partial/*"))
    assert not any(path.stat().st_size for path in partial), "a page is not kept"
    hub.faults.clear()
    assert [row[:2] for row in cases({name: {} for name in wrong}).values()] == [[0, "40"]] * len(wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"HF_ENDPOINT": "junk"}, "HF_ENDPOINT: 'junk' is not an address"),
        ({"HF_ENDPOINT": "http://127.0.0.1:many"}, "HF_ENDPOINT: 'http://127.0.0.1:many' is not an address"),
        ({"HF_HUB_DOWNLOAD_TIMEOUT": "abc"}, "HF_HUB_DOWNLOAD_TIMEOUT: not a number"),
        ({"SSL_CERT_FILE": "/nope"}, "SSL_CERT_FILE or SSL_CERT_DIR: cannot be read"),
        ({"http_proxy": "http://127.0.0.1:many"}, "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: no address of a usable proxy"),
    ],
)
def test_a_wrong_setting_of_the_network_is_named(hub, cases, settings, message):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    status, found, wait = cases({"books": {}}, **settings)["books"]
    assert (status, wait) == (2, 0) and message in found


def test_a_refused_token_and_a_revision_that_is_none_are_named(hub, cases):
    hub.dataset("org/books", opus_books({"en-de": PAIRS}))
    hub.faults.status("*", 401, X_Error_Message="Invalid credentials in Authorization header")
    assert "the hub refuses the token" in cases({"books": {}}, HF_TOKEN="hf_old")["books"][1]
    hub.faults.clear()
    for revision in ("..", "a/../b", "main\n", "/main"):
        status, message, _ = cases({"books": {"revision": revision}})["books"]
        assert status == 2 and "is not the name of a branch, a tag or a commit" in message


def test_without_a_network_each_message_comes_at_once(hub, cases):
    hub.dataset("org/books", opus_books({"en-de": PAIRS, "en-it": PAIRS}))
    wanted = {"books": {"subset": "en-de"}}
    with dead_proxy() as proxy:
        (dead,) = cases(wanted, http_proxy=proxy, HTTP_PROXY=proxy).values()
    assert dead[0] == 1 and "through the proxy" in dead[1]
    (offline,) = cases(wanted, HF_HUB_OFFLINE="1").values()
    assert offline[::2] == [2, 0] and "is not downloaded, and HF_HUB_OFFLINE is set" in offline[1]
    hub.stop()
    (absent,) = cases(wanted).values()
    assert absent[0] == 1 and "check the network" in absent[1] and absent[2] == 0
    hub.start()
    assert cases(wanted)["books"][0] == 0
    hub.stop()
    assert cases(wanted)["books"][:2] == [0, "40"]
    (other,) = cases({"books": {"subset": "en-it"}}).values()
    assert other[0] == 1 and "check the network" in other[1] and other[2] == 0


def test_an_interrupted_download_is_continued_by_the_same_command(hub, commands, mt_from_hub, tmp_path):
    content = opus_books({"en-de": [(f"{source} {hash(source)}", target) for source, target in PAIRS * 50]})
    hub.dataset("org/books", content)
    size = len(content["en-de/train-00000-of-00001.parquet"])
    hub.faults.stall("*.parquet", after=size // 2)
    path = config_of(tmp_path, dataset="org/books", subset="en-de")
    os_environment = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}
    pid = commands.start("data", "check", "--config", path, environment=os_environment)
    partial = tmp_path / "home/hub/datasets--org--books/mt/partial"
    deadline = time.monotonic() + 60
    while not (sum(file.stat().st_size for file in partial.glob("*")) if partial.exists() else 0):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(pid, signal.SIGINT)
    status, err = commands.wait()
    assert status == 130, err
    assert "Traceback" not in err
    hub.faults.clear()
    hub.requests.clear()
    status, _, err = mt_from_hub("data", "check", "--config", path)
    assert status in (0, 2), err
    (sent,) = (request for request in hub.requests if request.from_cdn)
    assert 0 < sent.num_sent < size


def test_two_commands_at_once_download_a_file_once(hub, fork_server, tmp_path):
    content = opus_books({"en-de": PAIRS * 20})
    hub.dataset("org/books", content)
    hub.faults.slow("*.parquet", bytes_per_second=len(content["en-de/train-00000-of-00001.parquet"]) * 2)
    path = config_of(tmp_path, dataset="org/books", subset="en-de")
    environment = {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}
    fork_server.start(tmp_path, ["data", "check", "--config", path], names=("one", "two"), environment=environment)
    assert set(fork_server.wait()) <= {0, 2}
    assert sum(request.from_cdn for request in hub.requests) == 1


def test_a_config_is_written_for_a_dataset_of_the_hub(hub, mt_from_hub, tmp_path):
    add_datasets(hub)
    status, _, err = mt_from_hub("init", "--dataset", "bentrevett/multi30k", "--output", "new.yaml")
    assert status == 0, err
    corpus = yaml.safe_load((tmp_path / "new.yaml").read_text(encoding="utf-8"))["corpus"]
    assert corpus["train"]["dataset"] == "bentrevett/multi30k"
    assert {corpus["source"], corpus["target"]} == {"en", "de"}
    assert corpus["valid"]["split"] == "validation" and corpus["test"]["split"] == "test"
    status, _, err = mt_from_hub("init", "--dataset", "Helsinki-NLP/opus_books", "--output", "two.yaml")
    assert status == 2 and "`--subset`" in err.replace("set `subset`", "`--subset`")
