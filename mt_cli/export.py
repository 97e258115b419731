"""A trained run for other engines: as a model that CTranslate2 serves, and as a plain bundle.

An export is called good only after both engines have given the same sentences the same translations and probabilities.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from mt_cli.config.sections import ModelConfig
from mt_cli.errors import InputError, MtError
from mt_cli.model.transformer import Embedding, FeedForward, MultiHeadAttention, SinusoidalPositions, sinusoids
from mt_cli.tokenizer import EOS, SOS, SPECIAL_TOKENS, UNK
from mt_cli.translator import Translator

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swiglu": "SWISH"}
_TOLERANCES = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
_TOLERANCE_OF_INTEGERS = 0.25
_MIN_POSITIONS = 1024


@dataclass(frozen=True)
class Agreement:
    """What comparing the two engines showed."""

    num_sentences: int
    num_equal: int
    """Greedy translations that are the same."""
    difference: float
    """Mean absolute difference of the log-probabilities of tokens, in nats."""


def export_ctranslate2(translator: Translator, output: Path, quantization: str, sentences: Sequence[str]) -> Agreement:
    """Write a CTranslate2 model into the new folder `output`, and translate some sentences with it and with ours.

    Raises:
        InputError: if ctranslate2 is not installed, or the folder is there already.
        MtError: if the engines disagree; the folder is removed.
    """
    specs = _import_ctranslate2().specs
    if quantization not in QUANTIZATIONS:
        raise InputError(f"--quantization {quantization}: use one of {', '.join(QUANTIZATIONS)}")
    if output.exists():
        raise InputError(f"{output}: is there already; give the exported model a new folder")
    spec = _spec_of(specs, translator)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    try:
        output.mkdir(parents=True)
        spec.save(str(output))
        _write_tokenizers(translator, output)
        agreement = compare(translator, output, sentences)
        tolerance = _TOLERANCES.get(quantization, _TOLERANCE_OF_INTEGERS)
        if not agreement.difference <= tolerance:
            raise MtError(
                f"{output}: the exported model disagrees with ours: log-probabilities differ by "
                f"{agreement.difference:.4f} nats a token, more than {tolerance}; nothing was exported"
            )
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
    return agreement


def export_bundle(translator: Translator, output: Path) -> None:
    """Write weights (safetensors), tokenizers (of the `tokenizers` library) and `model.json` into a new folder.

    Raises:
        InputError: if the folder is there already.
    """
    if output.exists():
        raise InputError(f"{output}: is there already; give the exported model a new folder")
    output.mkdir(parents=True)
    weights = {name: weight.detach().float().contiguous() for name, weight in translator.model.named_parameters()}
    save_file(weights, output / "model.safetensors", {"format": "pt"})
    _write_tokenizers(translator, output)
    config = translator.config
    description = {
        "architecture": "encoder-decoder Transformer; names of weights as in mt_cli/model/transformer.py",
        "model": config.model.model_dump(mode="json"),
        "decoding": config.decoding.model_dump(mode="json"),
        "source_language": config.corpus.source,
        "target_language": config.corpus.target,
        "max_tokens": config.corpus.max_tokens,
        "source_vocab_size": translator.source_tokenizer.vocab_size,
        "target_vocab_size": translator.target_tokenizer.vocab_size,
        "special_tokens": {token: index for index, token in enumerate(SPECIAL_TOKENS)},
        "source": "tokens followed by [EOS]",
        "target": "[SOS] followed by tokens; a translation ends with [EOS]",
    }
    (output / "model.json").write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_tokenizers(translator: Translator, output: Path) -> None:
    for name, tokenizer in (("source", translator.source_tokenizer), ("target", translator.target_tokenizer)):
        (output / f"tokenizer.{name}.json").write_text(tokenizer.to_json(), encoding="utf-8")


def sentences_of(run: Path, number: int = 20) -> list[str]:
    """Some sentences that a run was watched with, for comparing engines."""
    try:
        lines = (run / "samples.txt").read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        lines = []
    sources = [line.removeprefix("source").strip() for line in lines if line.startswith("source ")]
    return list(dict.fromkeys(sources))[:number] or ["a b c", "1 2 3"]


def _import_ctranslate2() -> Any:
    try:
        import ctranslate2.specs
    except ImportError:
        raise InputError("ctranslate2 is not installed; pip install 'mt-cli[ctranslate2]'") from None
    return ctranslate2


def compare(translator: Translator, folder: Path, sentences: Sequence[str]) -> Agreement:
    """Translate and score some sentences with an exported model and with ours."""
    engine = _import_ctranslate2().Translator(str(folder), device="cpu")
    ids = [each for each in translator.source_tokenizer.encode(sentences) if each]
    sources = [translator.source_tokenizer.tokens(each) for each in ids]
    ours = [translator.target_tokenizer.encode([text])[0] for text in translator.translate(sentences, beam_size=1)]
    targets = [translator.target_tokenizer.tokens(each) for each in ours]
    limits = {"beam_size": 1, "disable_unk": True, "max_decoding_length": max(map(len, targets), default=0) + 1}
    theirs = [result.hypotheses[0] for result in engine.translate_batch(sources, **limits)]
    scored = engine.score_batch(sources, targets)
    differences = [
        abs(log_prob - expected)
        for result, source, target in zip(scored, ids, ours, strict=True)
        for log_prob, expected in zip(result.log_probs, translator.log_probs(source, target), strict=True)
    ]
    num_equal = sum(one == other for one, other in zip(theirs, targets, strict=True))
    return Agreement(len(sources), num_equal, sum(differences) / max(1, len(differences)))


def _spec_of(specs: Any, translator: Translator) -> Any:
    """The specification of a model, filled with its weights."""
    config, model = translator.config.model, translator.model
    spec = specs.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm_order == "pre",
        activation=getattr(specs.Activation, _ACTIVATIONS[config.activation]),
        ffn_glu=config.activation == "swiglu",
    )
    decoding, max_tokens = translator.config.decoding, translator.config.corpus.max_tokens
    num_positions = max(_MIN_POSITIONS, int(max_tokens * max(1.0, decoding.max_length_ratio)) + 12)
    _fill_embedding(spec.encoder.embeddings[0], spec.encoder, model.source_embedding, config, num_positions)
    _fill_embedding(spec.decoder.embeddings, spec.decoder, model.target_embedding, config, num_positions)
    encoder_layers: Any = model.encoder
    decoder_layers: Any = model.decoder
    for theirs, layer in zip(spec.encoder.layer, encoder_layers, strict=True):
        _fill_attention(theirs.self_attention, layer.self_attention, layer.self_attention_residual.norm, fused=3)
        _fill_feed_forward(theirs.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    for theirs, layer in zip(spec.decoder.layer, decoder_layers, strict=True):
        _fill_attention(theirs.self_attention, layer.self_attention, layer.self_attention_residual.norm, fused=3)
        _fill_attention(theirs.attention, layer.cross_attention, layer.cross_attention_residual.norm, fused=2)
        _fill_feed_forward(theirs.ffn, layer.feed_forward, layer.feed_forward_residual.norm)
    if config.norm_order == "pre":
        _fill_norm(spec.encoder.layer_norm, model.encoder_norm)
        _fill_norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.decoder.projection.weight = _array(model.projection.weight)
    for tokenizer, register in (
        (translator.source_tokenizer, spec.register_source_vocabulary),
        (translator.target_tokenizer, spec.register_target_vocabulary),
    ):
        register(tokenizer.tokens(range(tokenizer.vocab_size)))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = UNK, SOS, EOS
    spec.config.decoder_start_token, spec.config.add_source_eos = SOS, True
    return spec


def _fill_embedding(theirs: Any, stack: Any, ours: Embedding, config: ModelConfig, num_positions: int) -> None:
    theirs.weight = _array(ours.table.weight)
    stack.scale_embeddings = True
    is_sinusoidal = isinstance(ours.positions, SinusoidalPositions)
    table = sinusoids(num_positions, config.d_model) if is_sinusoidal else ours.positions.weight
    stack.position_encodings.encodings = _array(table)  # type: ignore[arg-type]


def _fill_attention(theirs: Any, ours: MultiHeadAttention, norm: nn.Module, fused: int) -> None:
    """Queries, keys and values are one matrix there, or queries are one and keys and values another."""
    maps = [ours.query, ours.key, ours.value]
    groups = [maps] if fused == 3 else [maps[:1], maps[1:]]
    for linear, group in zip(theirs.linear, [*groups, [ours.output]], strict=True):
        linear.weight = _array(torch.cat([each.weight for each in group]))
        if group[0].bias is not None:
            linear.bias = _array(torch.cat([each.bias for each in group]))
    _fill_norm(theirs.layer_norm, norm)


def _fill_feed_forward(theirs: Any, ours: FeedForward, norm: nn.Module) -> None:
    gated = [theirs.linear_0, theirs.linear_0_noact] if ours.activation == "swiglu" else [theirs.linear_0]
    halves = zip(ours.inner.weight.chunk(len(gated)), ours.inner.bias.chunk(len(gated)), strict=True)
    for linear, (weight, bias) in zip(gated, halves, strict=True):
        linear.weight, linear.bias = _array(weight), _array(bias)
    theirs.linear_1.weight, theirs.linear_1.bias = _array(ours.outer.weight), _array(ours.outer.bias)
    _fill_norm(theirs.layer_norm, norm)


def _fill_norm(theirs: Any, ours: nn.Module) -> None:
    theirs.gamma, theirs.beta = _array(ours.weight), _array(ours.bias)  # type: ignore[arg-type]


def _array(weight: Tensor) -> Any:
    """A copy: quantisation works in place."""
    return weight.detach().float().cpu().contiguous().clone().numpy()
