"""Models whose weights are in several files with an index, as `transformers` writes large models."""

import json
import shutil

import pytest
import torch
from m2m100_files import transformers, write_m2m100, write_nllb
from marian_files import write_marian
from safetensors.torch import load_file, save_file
from test_damaged_models import Command
from test_import_m2m100 import equal_weights

from mt_cli.checkpoint.trained import TrainedRun

WEIGHTS, PICKLE, INDEX = "model.safetensors", "pytorch_model.bin", ".index.json"
OPTIONS = {"marian": ("en", "de"), "m2m100": ("en", "de"), "nllb": ("eng_Latn", "ayr_Latn")}
WRITERS = {"marian": write_marian, "m2m100": write_m2m100, "nllb": write_nllb}


@pytest.fixture(scope="module")
def originals(one_thread, tmp_path_factory):
    """A model of each kind in one file, and in shards with the suffix -sharded."""
    folder = tmp_path_factory.mktemp("originals")
    for kind, write in WRITERS.items():
        (folder / kind).mkdir()
        write(folder / kind)
        sharded = shutil.copytree(folder / kind, folder / f"{kind}-sharded")
        (sharded / WEIGHTS).unlink()
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder / kind)
        model.save_pretrained(sharded, max_shard_size="40KB")
        assert (sharded / f"{WEIGHTS}{INDEX}").exists() and len([*sharded.glob("model-*-of-*.safetensors")]) > 2
    return folder


def command(folder, kind, name, *options):
    source, target = OPTIONS[kind]
    languages = ("--source-language", source, "--target-language", target)
    return "import", folder, "--output", f"runs/{name}", *languages, *options


def index_of(folder, name=WEIGHTS):
    return json.loads((folder / f"{name}{INDEX}").read_text(encoding="utf-8"))


def pickled(folder):
    """Replace the shards of a folder by pickles with an index, as older versions of `transformers` wrote them."""
    index = index_of(folder)
    for shard in {*index["weight_map"].values()}:
        torch.save(load_file(folder / shard), folder / pickle_of(shard))
        (folder / shard).unlink()
    (folder / f"{WEIGHTS}{INDEX}").unlink()
    index["weight_map"] = {name: pickle_of(shard) for name, shard in index["weight_map"].items()}
    (folder / f"{PICKLE}{INDEX}").write_text(json.dumps(index))


def pickle_of(shard):
    return shard.replace("model", "pytorch_model").replace(".safetensors", ".bin")


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_sharded_model_is_imported_as_the_whole_one(originals, mt, tmp_path, kind):
    status, _, err = mt(*command(originals / kind, kind, "whole"))
    assert status == 0, err
    whole = TrainedRun.load(tmp_path / "runs/whole").model
    status, _, err = mt(*command(originals / f"{kind}-sharded", kind, "sharded"))
    assert status == 0, err
    assert not equal_weights(TrainedRun.load(tmp_path / "runs/sharded").model, whole)
    folder = shutil.copytree(originals / f"{kind}-sharded", tmp_path / "pickled")
    pickled(folder)
    status, _, err = mt(*command(folder, kind, "pickled"))
    assert status == 2 and "--allow-pickle" in err and err.count("\n") == 1
    status, _, err = mt(*command(folder, kind, "pickled", "--allow-pickle"))
    assert status == 0, err
    assert not equal_weights(TrainedRun.load(tmp_path / "runs/pickled").model, whole)


def test_the_origin_of_a_run_depends_on_all_shards(originals, mt, tmp_path):
    digests = []
    for number in range(2):
        folder = shutil.copytree(originals / "nllb-sharded", tmp_path / f"nllb-{number}")
        path = max(folder.glob("model-*.safetensors"))
        if number:
            save_file({name: tensor + 1 for name, tensor in load_file(path).items()}, path)
        status, _, err = mt(*command(folder, "nllb", f"run-{number}"))
        assert status == 0, err
        (origin,) = TrainedRun.load(tmp_path / f"runs/run-{number}").state.parents
        digests.append(origin.weights)
    assert len({*digests}) == 2 and {*map(len, digests)} == {64}


def shard(folder, number=0):
    return sorted(folder.glob("*model-*-of-*"))[number]


def write_index(change):
    """A damage of the weights and their shards in the index."""

    def damage(folder):
        index = index_of(folder)
        index["weight_map"] = change(index["weight_map"])
        (folder / f"{WEIGHTS}{INDEX}").write_text(json.dumps(index))

    return damage


def renamed(name):
    """A damage that gives the first shard another name in the index."""
    return write_index(lambda shards: {weight: shards[weight].replace(min(shards.values()), name) for weight in shards})


def in_two_shards(folder):
    weights = load_file(shard(folder, 0))
    path = shard(folder, 1)
    save_file(load_file(path) | {min(weights): weights[min(weights)]}, path)


def outside(folder):
    shutil.move(shard(folder), folder.parent / "outside.safetensors")
    renamed("../outside.safetensors")(folder)


def shortened(folder):
    path = shard(folder)
    path.write_bytes(path.read_bytes()[:-1])


DAMAGES = {
    "missing": (lambda folder: shard(folder, 1).unlink(), "model-00002-of"),
    "cut off": (shortened, "model-00001-of"),
    "empty": (lambda folder: shard(folder).write_bytes(b""), "model-00001-of"),
    "a folder": (lambda folder: (shard(folder).unlink(), (folder / "model-00001-of-00002.safetensors").mkdir()), "-of"),
    "in two shards": (in_two_shards, "as an earlier shard has"),
    "outside": (outside, "'../outside.safetensors' is not the name of a file in its folder"),
    "elsewhere": (renamed("/etc/passwd"), "'/etc/passwd' is not the name"),
    "a pickle": (renamed("pytorch_model.bin"), "ends in .safetensors"),
    "no name": (renamed(""), "'' is not the name"),
    "a weight that no shard has": (
        write_index(lambda shards: {**shards, "model.x": min(shards.values())}),
        "names 'model.x'",
    ),
    "a weight in another shard": (
        write_index(lambda shards: {**shards, min(shards, key=shards.get): max(shards.values())}),
        "which does not have it",
    ),
    "no weights": (write_index(lambda shards: {}), "names no weights"),
    "a list": (write_index(lambda shards: [*shards]), f"{WEIGHTS}{INDEX}"),
    "not JSON": (lambda folder: (folder / f"{WEIGHTS}{INDEX}").write_text("[" * 3000), f"{WEIGHTS}{INDEX}"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_shards_and_indexes_are_refused_by_name(originals, mt, tmp_path, damage):
    folder = shutil.copytree(originals / "m2m100-sharded", tmp_path / "m2m100")
    change, expected = DAMAGES[damage]
    change(folder)
    status, out, err = mt(*command(folder, "m2m100", "run"))
    assert (status, out) == (2, ""), err
    assert expected in err and err.count("\n") == 1 == err.count("mt: "), err
    assert not (tmp_path / "runs").exists()


def test_a_shard_that_runs_code_is_refused(originals, mt, tmp_path):
    folder = shutil.copytree(originals / "nllb-sharded", tmp_path / "nllb")
    pickled(folder)
    torch.save({"a": Command()}, shard(folder))
    status, _, err = mt(*command(folder, "nllb", "run", "--allow-pickle"))
    assert status == 2 and "more than tensors" in err and err.count("\n") == 1, err
    assert not (tmp_path / "was_run").exists()


def test_a_sharded_model_of_the_hub_is_imported_with_all_shards(originals, hub, mt_from_hub, tmp_path):
    files = {path.name: path.read_bytes() for path in (originals / "nllb-sharded").iterdir()}
    hub.model("org/nllb", files)
    status, _, err = mt_from_hub(*command("org/nllb", "nllb", "run"))
    assert status == 0, err
    (origin,) = TrainedRun.load(tmp_path / "runs/run").state.parents
    assert origin.run.startswith("org/nllb (commit ") and len(origin.weights) == 64
    hub.model("org/part", {name: content for name, content in files.items() if "00002-of" not in name})
    status, _, err = mt_from_hub(*command("org/part", "nllb", "other"))
    assert status == 2 and "model-00002-of" in err and err.count("mt: ") == 1
    assert not any("00001-of" in request.path and "part" in request.path for request in hub.requests)
