"""`mt import` of models on the hub: the unmodified client against a hub on loopback."""

import pytest

from mt_cli.checkpoint.trained import TrainedRun


@pytest.fixture
def files(published):
    """The files of a MarianMT model."""
    return {path.name: path.read_bytes() for path in published("marian").iterdir()}


def test_a_model_is_imported_with_the_files_that_it_needs(hub, mt_from_hub, files, tmp_path):
    others = {"tf_model.h5": b"\0" * 1000, "README.md": b"---\nlicense: cc-by-4.0\n---\n", ".gitattributes": b"#"}
    first = hub.model("org/opus-mt-en-de", files | others)
    hub.models["org/opus-mt-en-de"].tags["v1"] = first
    hub.model("org/opus-mt-en-de", {"config.json": b"{}"})
    status, _, err = mt_from_hub("import", "org/opus-mt-en-de", "--revision", "v1", "--output", tmp_path / "one")
    assert status == 0, err
    fetched = {request.path.rpartition("/")[2] for request in hub.requests if "resolve" in request.path}
    assert {"model.safetensors", "README.md"} <= fetched and not {"tf_model.h5", ".gitattributes"} & fetched
    (origin,) = TrainedRun.load(tmp_path / "one").state.parents
    assert origin.run == f"org/opus-mt-en-de (commit {first})" and len(origin.weights) == 64
    assert origin.license == "cc-by-4.0"


@pytest.mark.slow
def test_a_model_is_imported_again_without_a_network(hub, mt_from_hub, files, tmp_path):
    hub.model("org/opus-mt-en-de", files)
    assert mt_from_hub("import", "org/opus-mt-en-de", "--output", tmp_path / "one")[0] == 0
    hub.stop()
    status, _, err = mt_from_hub("import", "org/opus-mt-en-de", "--output", tmp_path / "two")
    assert status == 0, err


def test_an_unusable_model_is_refused_before_its_weights_arrive(hub, mt_from_hub, files, tmp_path):
    hub.model("org/opus-mt-en-de", {"config.json": files["config.json"], "pytorch_model.bin": b"\0" * 1000})
    status, _, err = mt_from_hub("import", "org/opus-mt-en-de", "--output", tmp_path / "one")
    assert status == 2 and "org/opus-mt-en-de" in err and "--allow-pickle" in err
    assert not any("pytorch_model" in request.path for request in hub.requests)
