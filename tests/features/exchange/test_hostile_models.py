"""Hostile, damaged and unsupported published models: one message names the file, and nothing is written."""

import json
import shutil

import pytest

LANGUAGES = {
    **{"marian": ("en", "de"), "bundle": ("en", "xx"), "m2m100": ("en", "de"), "sharded": ("en", "de")},
    "nllb": ("eng_Latn", "ayr_Latn"),
}
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SPM, FAST, SETTINGS = "sentencepiece.bpe.model", "tokenizer.json", "tokenizer_config.json"
TABLE, LAYER_NORM = "model.shared.weight", "model.encoder.layernorm_embedding.weight"
DEEP = "[" * 3000


@pytest.fixture(scope="session")
def sharded_folder(m2m100_folder, once):
    """Folder of the model of `m2m100_folder` with its weights in three files."""

    def make(folder):
        from safetensors.torch import load_file, save_file

        shutil.copytree(m2m100_folder, folder / "model")
        tensors = load_file(folder / "model" / WEIGHTS)
        (folder / "model" / WEIGHTS).unlink()
        shards = {name: f"model-0000{1 + place % 3}-of-00003.safetensors" for place, name in enumerate(tensors)}
        for shard in {*shards.values()}:
            content = {name: tensor for name, tensor in tensors.items() if shards[name] == shard}
            save_file(content, folder / "model" / shard)
        (folder / "model" / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": shards}))

    return once("sharded", make) / "model"


@pytest.fixture
def copy_of(request, tmp_path, capsys):
    """A function that copies a model of a kind, for a test that changes it."""

    def copy(kind):
        folder = request.getfixturevalue(kind if kind == "bundle" else f"{kind}_folder")
        capsys.readouterr()  # Forgets the progress bars of `transformers`, which wrote the model.
        return shutil.copytree(folder, tmp_path / f"{kind}-en-de")

    return copy


@pytest.fixture
def import_run(mt, tmp_path):
    """A function that imports a folder; if it fails, one message must say why, and nothing may be left."""

    def run(folder, kind, *options):
        source, target = LANGUAGES[kind]
        options = options or ("--source-language", source, "--target-language", target)
        status, _, err = mt("import", folder, "--output", f"runs/{kind}", *options)
        if status:
            assert status == 2 and err.count("\n") == 1 == err.count("mt: "), err
            assert not (tmp_path / "runs" / kind).exists()
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
        from safetensors.torch import load_file, save_file

        tensors = new(load_file(folder / WEIGHTS))
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / WEIGHTS)

    return damage


def copied(name, factor=1):
    """A damage: another weight that is a multiple of the shared table."""
    return weights(lambda tensors: tensors | {name: factor * tensors[TABLE]})


def pieces(edit):
    """A damage of the SentencePiece model of the source."""

    def damage(folder):
        from sentencepiece.sentencepiece_model_pb2 import ModelProto

        proto = ModelProto()
        proto.ParseFromString((folder / "source.spm").read_bytes())
        edit(proto)
        (folder / "source.spm").write_bytes(proto.SerializeToString())

    return damage


def cut_charsmap(proto):
    proto.normalizer_spec.precompiled_charsmap = proto.normalizer_spec.precompiled_charsmap[:900]


def fast(change):
    """A damage of `tokenizer.json`, in a folder without a SentencePiece model."""
    return lambda folder: (text(SPM, None)(folder), edited(FAST, change)(folder))


def few_entries(folder):
    """Give a model many embeddings of one number, and leave its few entries."""
    keys(CONFIG, vocab_size=100_000)(folder)
    weights(lambda tensors: tensors | {TABLE: tensors[TABLE][:1].expand(100_000, -1)})(folder)


def index(change):
    """A damage of the shards in an index by weight."""
    return edited(INDEX, lambda tree: change(tree["weight_map"]))


SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
DAMAGES = {  # By the kind of a model: the damage, and what the message names.
    "marian": [
        (keys(CONFIG, d_model=65536), "marian-en-de"),
        (keys(CONFIG, scale_embedding=False), "scale_embedding"),
        (keys(CONFIG, eos_token_id=1), "eos_token_id"),
        (pieces(lambda proto: proto.pieces.add(piece="x" * 10**6, type=1)), "1,000,000"),
        (pieces(cut_charsmap), "normalisation"),
        (weights(lambda tensors: tensors | {TABLE: tensors[TABLE] * float("nan")}), TABLE),
        (copied(LAYER_NORM), LAYER_NORM),
        (copied("lm_head.weight", 2), "lm_head.weight"),
    ],
    "bundle": [
        (keys("model.json", model={"d_model": 65536, "d_ff": 2**20}), "bundle-en-de"),
        (text("tokenizer.source.json", DEEP), "tokenizer.source.json"),
        (text(WEIGHTS, None), "bundle-en-de"),
    ],
    "m2m100": [
        (text("vocab.json", json.dumps(SPECIAL | {"a": 10**9})), "vocab.json"),
        (few_entries, "100,000"),
        (copied("lm_head.weight", 2), "lm_head.weight"),
    ],
    "nllb": [
        (keys(SETTINGS, tokenizer_class="SMALL100Tokenizer"), "SMALL100Tokenizer"),
        (text("added_tokens.json", '{"eng_Latn": 5}'), "eng_Latn"),
        (text(FAST, DEEP), FAST),
        (edited(FAST, lambda tree: tree["model"].update(dropout=0.1)), "dropout"),
        (fast(lambda tree: tree.update(normalizer={"type": "Lowercase"})), FAST),
        (fast(lambda tree: tree["model"]["vocab"].update({"x" * 10**6: 5})), FAST),
        (fast(lambda tree: tree["model"]["merges"].append(["q", "▁"])), "'q'"),
    ],
    "sharded": [
        (text("model-00002-of-00003.safetensors", None), "model-00002-of"),
        (index(lambda shards: shards.update(x="../outside.safetensors")), "'../outside"),
        (index(lambda shards: shards.update(x="model-00001-of-00003.safetensors")), "'x'"),
        (text(INDEX, DEEP), INDEX),
    ],
}


@pytest.mark.parametrize(("kind", "damage", "name"), [(kind, *row) for kind, rows in DAMAGES.items() for row in rows])
def test_a_damaged_model_is_refused_by_name_and_leaves_nothing(copy_of, import_run, kind, damage, name):
    folder = copy_of(kind)
    damage(folder)
    status, err = import_run(folder, kind)
    assert status == 2 and name in err


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
def test_languages_that_a_model_cannot_have_are_refused(nllb_folder, mt, tmp_path, options, name):
    status, _, err = mt("import", nllb_folder, "--output", "runs/parent", *options)
    assert status == 2 and name in err and err.count("\n") == 1 and not (tmp_path / "runs").exists()


def test_a_folder_without_a_model_is_refused(mt, tmp_path, marian_folder):
    (tmp_path / "marian").mkdir()
    (tmp_path / "marian/decoder.yml").write_text("models: [model.npz]")
    status, _, err = mt("import", "marian", "--output", "runs/opus")
    assert status == 2 and "docs/model_formats.md" in err
    status, _, err = mt("import", marian_folder, "--output", "runs/opus", "--languages", "en,de")
    assert status == 2 and "--languages" in err


def weights_of(run):
    from mt_cli.checkpoint.trained import TrainedRun

    return TrainedRun.load(run).model.state_dict()


def test_a_sharded_model_is_imported_as_the_whole_one(copy_of, import_run, m2m100_folder, tmp_path):
    import torch
    from safetensors.torch import load_file

    sharded, allowed = copy_of("sharded"), ("--source-language", "en", "--target-language", "de", "--allow-pickle")
    assert import_run(m2m100_folder, "m2m100")[0] == import_run(sharded, "sharded")[0] == 0
    shards = json.loads((sharded / INDEX).read_text())["weight_map"]
    (sharded / INDEX).unlink()  # From here on, as older versions of `transformers` wrote them.
    for shard in {*shards.values()}:
        torch.save(load_file(sharded / shard), sharded / shard.replace("safetensors", "bin"))
    names = {name: shard.replace("safetensors", "bin") for name, shard in shards.items()}
    (sharded / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
    status, err = import_run(sharded, "nllb", *allowed[:4])
    assert status == 2 and "--allow-pickle" in err
    assert import_run(sharded, "nllb", *allowed)[0] == 0
    whole, *others = (weights_of(tmp_path / "runs" / name) for name in ("m2m100", "sharded", "nllb"))
    assert all(torch.equal(other[name], weight) for name, weight in whole.items() for other in others)


def test_the_digest_of_weights_depends_on_all_shards(copy_of):
    from safetensors.torch import save_file

    from mt_cli.features.exchange.weights import digest_of_weights

    folder = copy_of("sharded")
    before = digest_of_weights(folder)
    save_file({}, max(folder.glob("model-*.safetensors")))
    assert digest_of_weights(folder) != before


def test_separate_tables_of_one_vocabulary_stay_separate(copy_of, import_run, tmp_path):
    import torch

    folder, sides = copy_of("marian"), {"encoder": 1, "decoder": 2}
    keys(CONFIG, share_encoder_decoder_embeddings=False)(folder)
    for side, factor in sides.items():
        copied(f"model.{side}.embed_tokens.weight", factor)(folder)
    weights(lambda tensors: {name: tensor for name, tensor in tensors.items() if name != TABLE})(folder)
    assert import_run(folder, "marian")[0] == 0
    model = weights_of(tmp_path / "runs/marian")
    source, target = (model[f"{side}_embedding.table.weight"] for side in ("source", "target"))
    assert torch.equal(2 * source, target) and torch.equal(model["projection.weight"], target)


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ('---\nlicense: "mit"\r\n---\r\n', "mit"),
        ("---\nlanguage: en\nlicense: other\nlicense_name: seamless\n---\n", "seamless"),
        ("---\nlanguage: en\n---\nlicense: mit\n", None),
        ("---\nlicense: [" + "[" * 100_000 + "\n---\n", None),
    ],
)
def test_the_licence_is_the_one_in_the_metadata_of_the_card(tmp_path, card, licence):
    from mt_cli.features.exchange.licences import licence_of

    (tmp_path / "README.md").write_bytes(card.encode() + b"\xff")
    assert licence_of(tmp_path) == licence


@pytest.mark.slow
def test_all_shards_of_a_model_of_the_hub_are_downloaded(sharded_folder, hub, mt_from_hub):
    files = {path.name: path.read_bytes() for path in sharded_folder.iterdir()}
    options = ("--source-language", "en", "--target-language", "de")
    hub.model("org/model", files)
    assert mt_from_hub("import", "org/model", "--output", "runs/one", *options)[0] == 0
    hub.model("org/part", {name: content for name, content in files.items() if "00002-of" not in name})
    status, _, err = mt_from_hub("import", "org/part", "--output", "runs/two", *options)
    assert status == 2 and "model-00002-of" in err and err.count("mt: ") == 1
    assert not any("00001-of" in request.path and "part" in request.path for request in hub.requests)
