"""Translate with JoeyNMT and the weights of an `mt` model. `decode_speed.py` runs this in an environment with JoeyNMT.

    JOEY_PYTHON tests/benchmarks/joeynmt_decode.py BUNDLE FILE BEAM THREADS

BUNDLE is the output of `mt export --format bundle` for a model with one vocabulary and sinusoidal positions. FILE has
one sentence per line, with tokens separated by spaces. Prints JSON: the seconds for all sentences, the seconds for each
of the first sixty alone, and the tokens of each translation.
"""

import json
import logging
import re
import sys
import tempfile
import time
from pathlib import Path

import torch
import yaml
from joeynmt.config import load_config, parse_global_args
from joeynmt.prediction import predict, prepare
from safetensors.torch import load_file

NAMES = {
    r"source_embedding\.table": "src_embed.lut",
    r"target_embedding\.table": "trg_embed.lut",
    r"projection": "decoder.output_layer",
    r"(encoder|decoder)_norm": r"\1.layer_norm",
    r"(encoder|decoder)\.(\d+)\.": r"\1.layers.\2.",
    r"(encoder\S+)\.self_attention_residual\.norm": r"\1.layer_norm",
    r"(decoder\S+)\.self_attention_residual\.norm": r"\1.x_layer_norm",
    r"cross_attention_residual\.norm": "dec_layer_norm",
    r"feed_forward_residual\.norm": "feed_forward.layer_norm",
    r"(encoder\S+)\.self_attention\.": r"\1.src_src_att.",
    r"(decoder\S+)\.self_attention\.": r"\1.trg_trg_att.",
    r"cross_attention\.": "src_trg_att.",
    r"_att\.(k|v|q)[a-z]+\.": r"_att.\1_layer.",
    r"_att\.output\.": "_att.output_layer.",
    r"feed_forward\.inner": "feed_forward.pwff_layer.0",
    r"feed_forward\.outer": "feed_forward.pwff_layer.3",
}
SPECIAL = {"unk": "[UNK]", "pad": "[PAD]", "bos": "[SOS]", "eos": "[EOS]"}
"""Special tokens in the order of JoeyNMT's ids; `mt` has [PAD] before [UNK]."""


def name_in_joeynmt(name):
    for pattern, replacement in NAMES.items():
        name = re.sub(pattern, replacement, name)
    return name


def config(bundle, folder, beam_size):
    described = json.loads((bundle / "model.json").read_text(encoding="utf-8"))
    sizes = described["model"]
    side = {"level": "word", "voc_file": str(folder / "vocab.txt"), "max_length": -1, "lowercase": False}
    stack = {
        "type": "transformer",
        "num_heads": sizes["num_heads"],
        "embeddings": {"embedding_dim": sizes["d_model"], "scale": True, "dropout": 0.0},
        "hidden_size": sizes["d_model"],
        "ff_size": sizes["d_ff"],
        "layer_norm": sizes["norm_order"],
        "activation": sizes["activation"],
    }
    stacks = {name: stack | {"num_layers": sizes[f"num_{name}_layers"]} for name in ("encoder", "decoder")}
    symbols = {f"{key}_token": token for key, token in SPECIAL.items()}
    symbols |= {f"{key}_id": number for number, key in enumerate(SPECIAL)}
    sides = {key: {"lang": key, **side} for key in ("src", "trg")}
    limits = {"batch_size": 1024, "batch_type": "token", "max_output_length": 100, "generate_unk": False}
    search = {"beam_size": beam_size, "beam_alpha": described["decoding"]["length_penalty"]}
    return {
        "name": "bundle",
        "joeynmt_version": "2.3.0",
        "model_dir": str(folder),
        "use_cuda": False,
        "data": {"dataset_type": "stream", "test": "unused", **sides, "special_symbols": symbols},
        "testing": {"load_model": str(folder / "model.ckpt"), **search, **limits},
        "training": {"batch_size": 1, "epochs": 1},
        "model": {"tied_embeddings": True, "tied_softmax": True, **stacks},
    }


def write_model(bundle, folder, beam_size):
    """Write a model directory of JoeyNMT with the bundle's weights."""
    ids = json.loads((bundle / "tokenizer.source.json").read_text(encoding="utf-8"))["model"]["vocab"]
    tokens = sorted(ids, key=ids.get)
    (folder / "vocab.txt").write_text("\n".join(["[UNK]", "[PAD]", *tokens[2:]]) + "\n", encoding="utf-8")
    weights = load_file(bundle / "model.safetensors")
    table = weights.pop("source_embedding.table.weight")
    table = torch.cat([table[[1, 0]], table[2:]])
    state = {name_in_joeynmt(name): weight for name, weight in weights.items()}
    state |= {f"{name}.weight": table for name in ("src_embed.lut", "trg_embed.lut", "decoder.output_layer")}
    size = table.shape[1]
    frequencies = torch.exp(torch.arange(0, size, 2) * (-torch.log(torch.tensor(10_000.0)) / size))
    angles = torch.arange(5000)[:, None] * frequencies
    positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(start_dim=1)[None]
    state |= {f"{side}.pe.pe": positions for side in ("encoder", "decoder")}
    torch.save({"model_state": state}, folder / "model.ckpt")
    (folder / "config.yaml").write_text(yaml.safe_dump(config(bundle, folder, beam_size)), encoding="utf-8")


def main():
    bundle, file, beam_size, threads = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    logging.disable(logging.INFO)
    lines = file.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(bundle, folder, beam_size)
        arguments = parse_global_args(load_config(str(folder / "config.yaml")), rank=0, mode="translate")
        model, _, _, data = prepare(arguments, rank=0, mode="translate")

        def translate(sentences):
            data.reset_cache()
            for sentence in sentences:
                data.set_item(sentence)
            started_at = time.perf_counter()
            tokens = predict(model, data, arguments.device, 0, args=arguments.test, autocast=arguments.autocast)[3]
            return time.perf_counter() - started_at, tokens

        translate(lines[:64])
        elapsed, translations = translate(lines)
        singles = [translate([line])[0] for line in lines[:60]]
    texts = [[token for token in tokens if token not in ("[SOS]", "[EOS]", "[PAD]")] for tokens in translations]
    print(json.dumps({"seconds": elapsed, "singles": singles, "tokens": texts}))


if __name__ == "__main__":
    main()
