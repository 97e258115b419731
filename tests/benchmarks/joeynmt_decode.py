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

NAMES = [
    (r"source_embedding\.table", "src_embed.lut"),
    (r"target_embedding\.table", "trg_embed.lut"),
    (r"projection", "decoder.output_layer"),
    (r"(encoder|decoder)_norm", r"\1.layer_norm"),
    (r"(encoder|decoder)\.(\d+)\.", r"\1.layers.\2."),
    (r"(encoder\S+)\.self_attention_residual\.norm", r"\1.layer_norm"),
    (r"(decoder\S+)\.self_attention_residual\.norm", r"\1.x_layer_norm"),
    (r"cross_attention_residual\.norm", "dec_layer_norm"),
    (r"feed_forward_residual\.norm", "feed_forward.layer_norm"),
    (r"(encoder\S+)\.self_attention\.", r"\1.src_src_att."),
    (r"(decoder\S+)\.self_attention\.", r"\1.trg_trg_att."),
    (r"cross_attention\.", "src_trg_att."),
    (r"_att\.(key|value|query)\.", lambda match: f"_att.{match[1][0]}_layer."),
    (r"_att\.output\.", "_att.output_layer."),
    (r"feed_forward\.inner", "feed_forward.pwff_layer.0"),
    (r"feed_forward\.outer", "feed_forward.pwff_layer.3"),
]


def name_there(name):
    """JoeyNMT's name of a weight."""
    for pattern, replacement in NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def vocabulary(bundle):
    """Tokens in the order of their ids."""
    ids = json.loads((bundle / "tokenizer.source.json").read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(ids, key=ids.get)


def config(bundle, folder, beam_size):
    """JoeyNMT's config of the bundle's model. Its [UNK] comes before its [PAD]."""
    ours = json.loads((bundle / "model.json").read_text(encoding="utf-8"))
    sizes = ours["model"]
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
    symbols = {"unk_token": "[UNK]", "pad_token": "[PAD]", "bos_token": "[SOS]", "eos_token": "[EOS]"}
    return {
        "name": "bundle",
        "joeynmt_version": "2.3.0",
        "model_dir": str(folder),
        "use_cuda": False,
        "data": {
            "dataset_type": "stream",
            "test": "unused",
            "src": {"lang": "src", **side},
            "trg": {"lang": "trg", **side},
            "special_symbols": {**symbols, "unk_id": 0, "pad_id": 1, "bos_id": 2, "eos_id": 3},
        },
        "testing": {
            "load_model": str(folder / "model.ckpt"),
            "beam_size": beam_size,
            "beam_alpha": ours["decoding"]["length_penalty"],
            "batch_size": 1024,
            "batch_type": "token",
            "max_output_length": 100,
            "generate_unk": False,
        },
        "training": {"batch_size": 1, "epochs": 1},
        "model": {
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": {**stack, "num_layers": sizes["num_encoder_layers"]},
            "decoder": {**stack, "num_layers": sizes["num_decoder_layers"]},
        },
    }


def write_model(bundle, folder, beam_size):
    """Write a model directory of JoeyNMT with the bundle's weights."""
    tokens = vocabulary(bundle)
    (folder / "vocab.txt").write_text("\n".join(["[UNK]", "[PAD]", *tokens[2:]]) + "\n", encoding="utf-8")
    weights = load_file(bundle / "model.safetensors")
    table = weights.pop("source_embedding.table.weight")
    table = torch.cat([table[[1, 0]], table[2:]])
    state = {name_there(name): weight for name, weight in weights.items()}
    state |= {f"{name}.weight": table for name in ("src_embed.lut", "trg_embed.lut", "decoder.output_layer")}
    size = table.shape[1]
    frequencies = torch.exp(torch.arange(0, size, 2) * (-torch.log(torch.tensor(10_000.0)) / size))
    angles = torch.arange(5000)[:, None] * frequencies
    positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(start_dim=1)[None]
    state |= {f"{side}.pe.pe": positions for side in ("encoder", "decoder")}
    torch.save({"model_state": state}, folder / "model.ckpt")
    (folder / "config.yaml").write_text(yaml.safe_dump(config(bundle, folder, beam_size)), encoding="utf-8")


def main():
    """Translate all sentences, and then some one by one."""
    bundle, file, beam_size, threads = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    logging.disable(logging.INFO)
    lines = file.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(bundle, folder, beam_size)
        arguments = parse_global_args(load_config(str(folder / "config.yaml")), rank=0, mode="translate")
        model, _, _, data = prepare(arguments, rank=0, mode="translate")

        def translate(some):
            data.reset_cache()
            for line in some:
                data.set_item(line)
            started_at = time.perf_counter()
            tokens = predict(model, data, arguments.device, 0, args=arguments.test, autocast=arguments.autocast)[3]
            return time.perf_counter() - started_at, tokens

        translate(lines[:64])
        elapsed, tokens = translate(lines)
        singles = [translate([line])[0] for line in lines[:60]]
    texts = [[token for token in each if token not in ("[SOS]", "[EOS]", "[PAD]")] for each in tokens]
    print(json.dumps({"seconds": elapsed, "singles": singles, "tokens": texts}))


if __name__ == "__main__":
    main()
