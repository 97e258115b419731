"""Hostile, damaged and unsupported published models: one message names the file, and nothing is written."""

import json
import pickle
import shutil

import pytest
import torch
from hostile_files import Program
from safetensors.torch import load_file, save_file

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.exchange.card import licence_of

LANGUAGES = {"bundle": ("en", "xx"), "nllb": ("eng_Latn", "ayr_Latn")}
"""The others are English to German."""
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SPM, FAST, SETTINGS = "sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json"
TABLE, LAYER_NORM = "model.shared.weight", "model.encoder.layernorm_embedding.weight"
DEEP = "[" * 3000


@pytest.fixture
def copy_of(request, published, tmp_path, capsys):
    """A function that copies a model of a kind, for a test that changes it."""

    def copy(kind):
        folder = request.getfixturevalue(kind) if kind == "bundle" else published(kind)
        capsys.readouterr()  # Forgets the progress bars of `transformers`, which wrote the model.
        return shutil.copytree(folder, tmp_path / f"{kind}-en-de")

    return copy


@pytest.fixture
def import_run(mt, tmp_path):
    """A function that imports a folder; if it fails, one message must say why, and nothing may be left."""

    def run(folder, kind, *options, name="new"):
        source, target = LANGUAGES.get(kind, ("en", "de"))
        languages = ("--source-language", source, "--target-language", target)
        status, _, err = mt("import", folder, "--output", f"runs/{name}", *languages, *options)
        if status:
            assert status == 2 and err.count("\n") == 1 == err.count("mt: "), err
            assert not (tmp_path / "runs" / name).exists()
        return status, err

    return run


def text(name, content):
    """A damage: a file with this content; None removes it."""
    return lambda folder: (folder / name).unlink() if content is None else (folder / name).write_text(content)


def edited(name, change):
    """A damage of the content of a JSON file."""

    def damage(folder):
        tree = json.loads((folder / name).read_text(encoding="utf-8"))
        change(tree)
        (folder / name).write_text(json.dumps(tree))

    return damage


def keys(name, **values):
    return edited(name, lambda tree: tree.update(values))


def weights(new):
    """A damage of the weights by name."""

    def damage(folder):
        tensors = new(load_file(folder / WEIGHTS))
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / WEIGHTS)

    return damage


def copied(name, factor=1):
    """A damage: another weight that is a multiple of the shared table."""
    return weights(lambda tensors: tensors | {name: factor * tensors[TABLE]})


def shard(folder):
    """Write the weights of a model in three files; returns the file of each."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    names = {name: f"model-0000{1 + place % 3}-of-00003.safetensors" for place, name in enumerate(tensors)}
    for shard in {*names.values()}:
        save_file({name: tensor for name, tensor in tensors.items() if names[name] == shard}, folder / shard)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return names


DAMAGES = {  # By the kind of a model: the damage, and what the message names.
    "marian": [
        (keys(CONFIG, scale_embedding=False), "scale_embedding"),
        (keys(CONFIG, eos_token_id=1), "eos_token_id"),
        (copied(LAYER_NORM), LAYER_NORM),
        (weights(lambda tensors: {name: tensors[name] for name in [*tensors][:-1]}), "do not fit"),
        (text(WEIGHTS, DEEP), "cannot read its weights"),
    ],
    "bundle": [
        (keys("model.json", model={"d_model": 65536, "d_ff": 2**20}), "bundle-en-de"),
        (text("tokenizer.source.json", DEEP), "tokenizer.source.json"),
    ],
    "m2m100": [
        (text("vocab.json", DEEP), "its tokenizer is damaged"),
        (lambda folder: (shard(folder), text("model-00002-of-00003.safetensors", None)(folder)), "cannot read"),
    ],
    "nllb": [
        (keys(SETTINGS, tokenizer_class="SMALL100Tokenizer"), "SMALL100Tokenizer"),
        (text(SPM, None), SPM),
        (text(FAST, DEEP), "its tokenizer is damaged"),
    ],
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_model_is_refused_by_name_and_leaves_nothing(copy_of, import_run, kind):
    for damage, name in DAMAGES[kind]:
        folder = copy_of(kind)
        damage(folder)
        status, err = import_run(folder, kind)
        assert status == 2 and name in err, name
        shutil.rmtree(folder)


def test_pickled_weights_run_no_code(copy_of, import_run, tmp_path):
    folder = copy_of("marian")
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Program()))
    assert "--allow-pickle" in import_run(folder, "marian")[1]
    assert import_run(folder, "marian", "--allow-pickle")[0] == 2
    assert not (tmp_path / "was_run").exists()


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ((), "--source-language"),
        (("--languages", "eng_Latn,fin_Latn"), "'fin_Latn'"),
        (("--source-language", "eng_Latn", "--target-language", "eng_Latn"), "eng_Latn"),
        (("--languages", "eng_Latn,ayr_Latn", "--new-language", "grn_Latn"), "NEW=NEAR"),
        (("--languages", "eng_Latn,ayr_Latn", "--new-language", "quy_Latn=ayr_Latn"), "quy_Latn"),
        (("--languages", "eng_Latn,ayr_Latn", "--new-language", "a>b=ayr_Latn"), "a>b"),
    ],
)
def test_languages_that_a_model_cannot_have_are_refused(published, mt, capsys, tmp_path, options, name):
    folder = published("nllb")
    capsys.readouterr()  # Forgets the progress bars of `transformers`, which wrote the model.
    status, _, err = mt("import", folder, "--output", "runs/parent", *options)
    assert status == 2 and name in err and err.count("\n") == 1 and not (tmp_path / "runs").exists()


def weights_of(path):
    return TrainedRun.load(path).model.state_dict()


def test_a_sharded_model_is_imported_as_the_whole_one(copy_of, import_run, tmp_path):
    folder = copy_of("m2m100")
    assert import_run(folder, "m2m100", name="whole")[0] == 0
    shards = shard(folder)
    assert import_run(folder, "m2m100", name="sharded")[0] == 0
    (folder / INDEX).unlink()  # From here on, as older versions of `transformers` wrote them.
    names = {name: f"pytorch_{file.replace('safetensors', 'bin')}" for name, file in shards.items()}
    for name, file in shards.items():
        torch.save(load_file(folder / file), folder / names[name])
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    status, err = import_run(folder, "m2m100", name="older")
    assert status == 2 and "--allow-pickle" in err
    assert import_run(folder, "m2m100", "--allow-pickle", name="older")[0] == 0
    whole, *others = (weights_of(tmp_path / "runs" / name) for name in ("whole", "sharded", "older"))
    assert all(torch.equal(other[name], weight) for name, weight in whole.items() for other in others)


def test_separate_tables_of_one_vocabulary_stay_separate(copy_of, import_run, tmp_path):
    folder, sides = copy_of("marian"), {"encoder": 1, "decoder": 2}
    keys(CONFIG, share_encoder_decoder_embeddings=False)(folder)
    for side, factor in sides.items():
        copied(f"model.{side}.embed_tokens.weight", factor)(folder)
    weights(lambda tensors: {name: tensor for name, tensor in tensors.items() if name != TABLE})(folder)
    assert import_run(folder, "marian")[0] == 0
    model = weights_of(tmp_path / "runs/new")
    source, target = (model[f"{side}_embedding.table.weight"] for side in ("source", "target"))
    assert torch.equal(2 * source, target) and torch.equal(model["projection.weight"], target)


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ('---\nlicense: "mit"\r\n---\r\n', "mit"),
        ("---\nlanguage: en\nlicense: other\nlicense_name: seamless\n---\n", "seamless"),
        ("---\nlicense:\n- cc-by-4.0\n---\n", "cc-by-4.0"),
        ("---\nlicense: [mit, cc0-1.0]\n---\n", "mit, cc0-1.0"),
        ("---\nlanguage: en\n---\nlicense: mit\n", None),
        ("---\nlicense: [" + "[" * 100_000 + "\n---\n", None),
    ],
)
def test_the_licence_is_that_of_the_metadata_of_a_card(tmp_path, card, licence):
    (tmp_path / "README.md").write_bytes(card.encode() + b"\xff")
    assert licence_of(tmp_path) == licence
