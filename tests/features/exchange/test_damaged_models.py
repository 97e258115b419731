"""Damaged and unsupported models are refused in one line, and nothing is written."""

import contextlib
import hashlib
import json
import os
import shutil

import pytest
import torch
from marian_files import entries_of, write_entries, write_marian
from safetensors.torch import load_file, save_file

from mt_cli.checkpoint.trained import TrainedRun

sentencepiece_model_pb2 = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")

TABLE, SOURCE_TABLE, BIAS = "model.shared.weight", "model.encoder.embed_tokens.weight", "final_logits_bias"


@pytest.fixture(scope="module")
def originals(one_thread, trained, tmp_path_factory):
    """A model in each format that is read."""
    from mt_cli.features.exchange.bundle import export_bundle

    folder = tmp_path_factory.mktemp("originals")
    (folder / "marian").mkdir()
    write_marian(folder / "marian")
    export_bundle(TrainedRun.load(trained), folder / "bundle")
    return folder


def text(name, content):
    """A change of the content of a file."""

    def change(folder):
        content_bytes = content if isinstance(content, bytes) else content.encode("utf-8")
        (folder / name).write_bytes(content_bytes)

    return change


def keys(name, section=None, **options):
    """A change of keys of a JSON file, or of a section of it."""

    def change(folder):
        tree = json.loads((folder / name).read_text(encoding="utf-8"))
        (tree if section is None else tree[section]).update(options)
        (folder / name).write_text(json.dumps(tree))

    return change


def weights(new):
    """A change of the weights by name."""

    def change(folder):
        tensors = new(load_file(folder / "model.safetensors"))
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / "model.safetensors")

    return change


def all_weights(change):
    return weights(lambda tensors: {name: change(tensor) for name, tensor in tensors.items()})


def copied(name):
    """A change that adds zeros with the shape of the shared table under a name."""
    return weights(lambda tensors: tensors | {name: torch.zeros_like(tensors[TABLE])})


def pieces(edit):
    """A change of the SentencePiece model of the source."""

    def change(folder):
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString((folder / "source.spm").read_bytes())
        edit(proto)
        (folder / "source.spm").write_bytes(proto.SerializeToString())

    return change


def charsmap(old, new):
    """A change of the normalisation of the source."""

    def edit(proto):
        before = proto.normalizer_spec.precompiled_charsmap
        proto.normalizer_spec.precompiled_charsmap = before.replace(old, new, 1) if old else new

    return pieces(edit)


def remove(name):
    return lambda folder: (folder / name).unlink()


def shorten_vocabulary(folder):
    vocabulary = entries_of(folder)
    write_entries(folder / "vocab.json", sorted(vocabulary, key=vocabulary.__getitem__)[:60])


def entries(**fields):
    """A change that adds an entry to the SentencePiece model of the source."""
    return pieces(lambda proto: proto.pieces.add(**fields))


MARIAN_OPTIONS = {  # What a refusal names, and the options of `config.json` that it refuses.
    "belongs to no layer": {"encoder_layers": 1},
    "fit its config": {"d_model": 65536},
    "vocab_size is 50": {"vocab_size": 50},
    "decoder_vocab_size is 50": {"decoder_vocab_size": 50},
    f"there is no {SOURCE_TABLE}": {"share_encoder_decoder_embeddings": False},
    "there is no lm_head.weight": {"tie_word_embeddings": False},
    "eos_token_id is 1": {"eos_token_id": 1},
    "eos_token_id is 99,999": {"eos_token_id": 99_999},
    "pad_token_id is 7": {"pad_token_id": 7, "decoder_start_token_id": 7},
    "padding": {"decoder_start_token_id": 7},
    "'a\\nb'": {"model_type": "a\nb"},
    "'mbart'": {"model_type": "mbart"},
    "d_model": {"d_model": 33},
    "dropout": {"dropout": 5.0},
    "scale_embedding": {"scale_embedding": False},
    "normalize_before": {"normalize_before": True},
    "activation_function": {"activation_function": "tanh"},
    "decoder_ffn_dim": {"encoder_ffn_dim": 32},
    "encoder_ffn_dim": {"encoder_ffn_dim": 2**21, "decoder_ffn_dim": 2**21},
    "encoder_attention_heads": {"encoder_attention_heads": 5, "decoder_attention_heads": 5},
}
DEEP, CONFIG = "[" * 3000, "config.json"
DAMAGES = {
    "marian": [
        (shorten_vocabulary, "pad_token_id"),
        (charsmap(b"\0a\0", b"\0" + b"a" * 100_000 + b"\0"), "normalisation"),
        (entries(piece="x" * 10**6, type=1), "1,000,000"),
        (entries(piece="[EOS]", type=1), "[EOS]"),
        (entries(piece="<0x00>", type=6), "source.spm"),
        (entries(piece="x▁y", type=4), "source.spm"),
        (entries(piece="▁", type=4), "source.spm"),
        (weights(lambda tensors: tensors | {TABLE: tensors[TABLE][:, :-1]}), f"{TABLE} is ["),
        (weights(lambda tensors: tensors | {BIAS: tensors[BIAS][:, :-1]}), BIAS),
        (copied(SOURCE_TABLE), f"{SOURCE_TABLE} differs from {TABLE}"),
        (copied("lm_head.weight"), "lm_head.weight differs"),
        (copied("model.encoder.embed_positions.weight"), "embed_positions.weight has other values"),
        (copied("model.encoder.layernorm_embedding.weight"), "belongs to no layer"),
        (all_weights(lambda tensor: tensor * float("nan")), "not finite numbers"),
        (text("generation_config.json", '{"forced_bos_token_id": 7}'), "forced_bos_token_id"),
        *((text(name, DEEP), name) for name in ("model.safetensors", "generation_config.json", "source.spm", CONFIG)),
        *((text("vocab.json", content), "vocab.json") for content in ("[]", '{"a": ' + "9" * 5000 + "}")),
        (remove(CONFIG), CONFIG),
        *((keys(CONFIG, **options), name) for name, options in MARIAN_OPTIONS.items()),
    ],
    "bundle": [
        (keys("model.json", "model", d_model=65536, d_ff=2**20), "bundle"),
        (keys("model.json", "model", **{"a\nb": 1}), "model.'a\\nb'"),
        (keys("model.json", "model", num_encoder_layers=2), "bundle"),
        *(
            (keys("model.json", "tokenizer", algorithm=name), "tokenizer.source.json")
            for name in ("sentencepiece", "bpe")
        ),
        (all_weights(lambda tensor: tensor.to(torch.int32)), "int32"),
        *((text(name, DEEP), name) for name in ("tokenizer.source.json", "model.json")),
        (remove("model.safetensors"), "has no weights"),
    ],
}


def forge_digests(folder):
    """Make the digests of a bundle fit its weights and tokenizers, as someone who changes them on purpose would."""
    path, weights = folder / "model.json", folder / "model.safetensors"
    with contextlib.suppress(OSError, ValueError, RecursionError):
        description = json.loads(path.read_text(encoding="utf-8"))
        if "sha256" in description:
            description["sha256"] = {
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in (weights, *folder.glob("tokenizer.*.json"))
            }
            path.write_text(json.dumps(description), encoding="utf-8")


@pytest.mark.parametrize(("kind", "damage", "name"), [(k, *row) for k, rows in DAMAGES.items() for row in rows])
def test_a_damaged_model_is_refused_by_name_and_nothing_is_written(originals, mt, tmp_path, kind, damage, name):
    folder = shutil.copytree(originals / kind, tmp_path / f"{kind}-en-de")
    damage(folder)
    forge_digests(folder)
    status, out, err = mt("import", folder, "--output", "runs/opus")
    assert (status, out) == (2, "")
    assert name in err and err.count("\n") == 1 == err.count("mt: "), err
    assert not (tmp_path / "runs").exists()


def test_models_without_a_folder_or_languages_are_refused_by_name(originals, mt):
    assert "no such folder" in mt("import", "nowhere", "--output", "runs/opus")[2]
    assert "--source-language" in mt("import", originals / "marian", "--output", "runs/opus")[2]


def test_a_run_that_could_not_be_read_again_is_not_kept(originals, mt, monkeypatch, tmp_path):
    monkeypatch.setattr("mt_cli.config.loading.MAX_CONFIG_BYTES", 1000)
    status, out, err = mt("import", originals / "bundle", "--output", "runs/opus")
    assert (status, out) == (2, "") and "runs/opus/config.yaml" in err
    assert not (tmp_path / "runs").exists()


class Command:
    """A value that runs a command when it is unpickled."""

    def __reduce__(self):
        return os.system, ("touch was_run",)


@pytest.mark.parametrize("content", [None, Command(), [1, 2], {"epoch": 3, "model": {}}])
def test_a_pickle_is_read_only_if_that_is_allowed_and_it_holds_tensors(originals, mt, tmp_path, content):
    folder = shutil.copytree(originals / "marian", tmp_path / "marian-en-de")
    tensors = load_file(folder / "model.safetensors")
    torch.save(tensors if content is None else content, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    status, _, err = mt("import", folder, "--output", "runs/opus")
    assert status == 2 and "--allow-pickle" in err
    status, _, err = mt("import", folder, "--output", "runs/opus", "--allow-pickle")
    assert status == (0 if content is None else 2)
    assert content is None or ("pytorch_model.bin" in err and not (tmp_path / "runs/opus").exists())
    assert not (tmp_path / "was_run").exists()


def test_separate_tables_of_one_vocabulary_stay_separate(originals, mt, tmp_path):
    folder = shutil.copytree(originals / "marian", tmp_path / "opus-en-de")
    keys(CONFIG, share_encoder_decoder_embeddings=False)(folder)
    tables = {SOURCE_TABLE: 1, "model.decoder.embed_tokens.weight": 2}
    weights(lambda tensors: tensors | {name: factor * tensors[TABLE] for name, factor in tables.items()})(folder)
    weights(lambda tensors: {name: tensor for name, tensor in tensors.items() if name != TABLE})(folder)
    assert mt("import", folder, "--output", "runs/opus")[0] == 0
    model = TrainedRun.load(tmp_path / "runs/opus").model
    assert torch.equal(2 * model.source_embedding.table.weight, model.target_embedding.table.weight)
    assert torch.equal(model.projection.weight, model.target_embedding.table.weight)
    assert model.source_embedding.table.weight[4:].any()


def test_files_of_marian_itself_are_refused_with_the_page_that_names_a_converter(mt, tmp_path):
    (tmp_path / "opus-en-de").mkdir()
    (tmp_path / "opus-en-de/decoder.yml").write_text("models: [model.npz]")
    status, _, err = mt("import", "opus-en-de", "--output", "runs/opus")
    assert status == 2 and "converted first (docs/model_formats.md)" in err
