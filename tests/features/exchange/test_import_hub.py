"""`mt import` of models on the hub: the unmodified client against a hub on loopback."""

import pytest
from marian_files import write_marian

from mt_cli.checkpoint.trained import TrainedRun

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")


@pytest.fixture
def files(tmp_path):
    """The files of a MarianMT model."""
    folder = tmp_path / "marian"
    folder.mkdir()
    write_marian(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_model_is_imported_with_the_files_that_it_needs(hub, mt_from_hub, files, tmp_path):
    card = b"---\nlicense: cc-by-4.0\n---\n"
    first = hub.model(
        "org/opus-mt-en-de", files | {"tf_model.h5": b"\0" * 1000, "README.md": card, ".gitattributes": b"#"}
    )
    hub.models["org/opus-mt-en-de"].tags["v1"] = first
    hub.model("org/opus-mt-en-de", {"config.json": b"{}"})
    command = ("import", "org/opus-mt-en-de", "--revision", "v1", "--output")
    status, _, err = mt_from_hub(*command, tmp_path / "one")
    assert status == 0, err
    fetched = {request.path.rpartition("/")[2] for request in hub.requests if "resolve" in request.path}
    assert {"model.safetensors", "README.md"} <= fetched and not {"tf_model.h5", ".gitattributes"} & fetched
    (origin,) = TrainedRun.load(tmp_path / "one").state.parents
    assert origin.run == f"org/opus-mt-en-de (commit {first})" and len(origin.weights) == 64
    assert origin.license == "cc-by-4.0"
    hub.stop()
    status, _, err = mt_from_hub(*command, tmp_path / "two")
    assert status == 0, err
    assert (tmp_path / "one/model.json").exists() == (tmp_path / "two/model.json").exists()
    status, _, err = mt_from_hub("import", "org/opus-mt-en-de", "--output", tmp_path / "three")
    assert status == 1 and "check the network" in err


def test_pickled_weights_are_refused_before_they_are_downloaded(hub, mt_from_hub, files, tmp_path):
    safe = {name: content for name, content in files.items() if name != "model.safetensors"}
    hub.model("org/opus-mt-en-de", safe | {"pytorch_model.bin": b"\0" * 1000})
    status, _, err = mt_from_hub("import", "org/opus-mt-en-de", "--output", tmp_path / "one")
    assert status == 2 and "--allow-pickle" in err
    assert not any("pytorch_model.bin" in request.path for request in hub.requests)
    hub.model("org/other", {"config.json": b"{}", "pytorch_model-1.bin": b"\0"})
    status, _, err = mt_from_hub("import", "org/other", "--output", tmp_path / "one")
    assert status == 2 and "has no Marian model" in err


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin", "model-00001-of-00002.safetensors"])
def test_other_architectures_are_refused_before_their_weights_are_downloaded(hub, mt_from_hub, tmp_path, weights):
    hub.model("org/mbart", {"config.json": b'{"model_type": "mbart"}', weights: b"\0" * 1000})
    status, _, err = mt_from_hub("import", "org/mbart", "--output", tmp_path / "one")
    assert status == 2 and "org/mbart" in err and "'mbart'" in err
    assert not any(weights in request.path for request in hub.requests)
