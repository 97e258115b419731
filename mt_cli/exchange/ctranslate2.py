"""Export to CTranslate2, with a check that both engines give the same translations about the same probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.decoding.ctranslate2 import CTranslate2Engine, import_ctranslate2
from mt_cli.errors import InputError
from mt_cli.exchange.bundle import describe
from mt_cli.exchange.comparison import Agreement, check_export
from mt_cli.exchange.destinations import obstacles
from mt_cli.exchange.names import LAYER
from mt_cli.exchange.sentencepiece import model_file
from mt_cli.model.positions import fairseq_sinusoids, sinusoids
from mt_cli.runtime.files import new_folder, write_text, writing
from mt_cli.tokenizer.special_tokens import EOS, SOS, UNK
from mt_cli.translation.quality import QUALITY, read_quality

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH", "swiglu": "SWISH"}
_MIN_POSITIONS, _MAX_POSITIONS = 1024, 2**16


def export_ctranslate2(run: TrainedRun, output: Path, quantization: str, sentences: Sequence[str]) -> Agreement:
    """Write a CTranslate2 model into the new folder `output` and compare it with the run on the sentences.

    Raises InputError if ctranslate2 is not installed, or the folder exists or cannot be made. Raises MtError if the
    engines disagree or the folder cannot be written; nothing is left in it then.
    """
    with new_folder(output) as folder, writing(output):
        agreement = write_model(run, folder, quantization, sentences, output)
        describe(run, folder)
        if quality := read_quality(run.checkpoint.path.parent.parent):
            write_text(folder / QUALITY, quality.model_dump_json())
        if run.config.tokenizer.spacing == "sentencepiece" and not obstacles(run.config, "argos"):
            for side, tokenizer in zip(("source", "target"), run.tokenizers, strict=True):
                (folder / f"{side}.model").write_bytes(model_file(tokenizer))
        return agreement


def write_model(run: TrainedRun, folder: Path, quantization: str, sentences: Sequence[str], output: Path) -> Agreement:
    """Write a CTranslate2 model into a folder and compare it with the run; `output` is its name in messages.

    Raises errors as `export_ctranslate2` does.
    """
    ctranslate2 = import_ctranslate2()
    if quantization not in QUANTIZATIONS:
        raise InputError(f"--quantization {quantization}: use one of {', '.join(QUANTIZATIONS)}")
    spec = _specification(ctranslate2.specs, run)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))
    engine = CTranslate2Engine(folder, run.tokenizers, "cpu", torch.get_num_threads(), is_strict=True)
    return check_export(run, engine, sentences, output, quantization)


def _specification(specs: Any, run: TrainedRun) -> Any:
    config, model = run.config.model, run.model
    options = {
        "num_heads": config.num_heads,
        "pre_norm": config.norm_order == "pre",
        "activation": getattr(specs.Activation, _ACTIVATIONS[config.activation]),
        "ffn_glu": config.activation == "swiglu",
        **({"rotary_dim": config.d_head, "rotary_interleave": True} if config.positions == "rotary" else {}),
    }
    encoder = specs.TransformerEncoderSpec(config.num_encoder_layers, **options)
    # Words are aligned by the mean of the heads of the penultimate layer: see Garg et al. 2019, "Jointly Learning to
    # Align and Translate with Transformer Models", section 3.
    aligned = {"alignment_layer": max(0, config.num_decoder_layers - 2), "alignment_heads": 0}
    decoder = specs.TransformerDecoderSpec(config.num_decoder_layers, **options, **aligned)
    spec = specs.TransformerSpec(encoder, decoder)
    longest = run.config.corpus.max_tokens * max(1.0, run.config.decoding.max_length_ratio)
    num_positions = max(_MIN_POSITIONS, int(min(longest, _MAX_POSITIONS)) + 12)
    encodings = fairseq_sinusoids if config.positions == "fairseq" else sinusoids
    positions = encodings(num_positions, config.d_model)
    for stack, table, embedding, layers, norm in (
        (encoder, encoder.embeddings[0], model.source_embedding, model.encoder, model.encoder_norm),
        (decoder, decoder.embeddings, model.target_embedding, model.decoder, model.decoder_norm),
    ):
        table.weight, stack.scale_embeddings = _array(embedding.table.weight), True
        if embedding.positions is not None:
            stack.position_encodings.encodings = _array(positions)
        for layer_spec, layer in zip(stack.layer, layers, strict=True):
            _fill_layer(layer_spec, layer)
        if config.norm_order == "pre":
            _fill(stack.layer_norm, norm)
    _fill(decoder.projection, model.projection)
    source, target = run.tokenizers
    spec.register_source_vocabulary(source.tokens(range(source.vocab_size)))
    spec.register_target_vocabulary(target.tokens(range(target.vocab_size)))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, SOS, EOS
    spec.config.decoder_start_token = EOS if config.positions == "fairseq" else SOS
    spec.config.add_source_eos = True
    return spec


def _fill_layer(spec: Any, layer: nn.Module) -> None:
    """Copy the weights of a layer into its specification; linear maps that the library fuses are concatenated."""
    modules = dict(layer.named_modules())
    fused: dict[str, list[Any]] = {}
    for names in LAYER:
        if names.ours in modules:
            fused.setdefault(names.ctranslate2, []).append(modules[names.ours])
    for path, members in fused.items():
        target = spec
        for part in path.split("."):
            target = target[int(part)] if part.isdigit() else getattr(target, part)
        _fill(target, *members)
    if hasattr(spec.ffn, "linear_0_noact"):  # Ours has the gate and the value in one map.
        for kind in ("weight", "bias"):
            gate, value = np.split(getattr(spec.ffn.linear_0, kind), 2)
            setattr(spec.ffn.linear_0, kind, gate.copy())
            setattr(spec.ffn.linear_0_noact, kind, value.copy())


def _fill(spec: Any, *modules: Any) -> None:
    weight, bias = ("gamma", "beta") if isinstance(modules[0], nn.LayerNorm) else ("weight", "bias")
    setattr(spec, weight, _array(torch.cat([module.weight for module in modules])))
    if modules[0].bias is not None:
        setattr(spec, bias, _array(torch.cat([module.bias for module in modules])))


def _array(weight: Any) -> Any:
    """A copy in fp32, because quantisation works in place."""
    return weight.detach().float().cpu().contiguous().clone().numpy()
