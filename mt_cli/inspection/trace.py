"""Tables and pictures of a model: its parameters, the attention of its heads, and how it chooses tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mt_cli.corpus.rows import tagged_text
from mt_cli.data.batch import pad
from mt_cli.decoding.engine import Attention, Sentence
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.errors import InputError
from mt_cli.evaluation.results import Sample
from mt_cli.inspection.figures import Axis, save_attention, save_positions
from mt_cli.model.positions import sinusoids
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS, EOS_ID, SOS, SOS_ID
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.translation.segments import SegmentEngine
from mt_cli.translation.translator import Translator

KINDS = ("encoder self-attention", "decoder self-attention", "cross-attention")  # As in `AttentionMaps`.
_NUM_POSITIONS = 100
_NUM_RUNNERS_UP = 3
_MOST_LAYERS = 2
"""Most layers in one picture."""
_MAX_TOKENS_OF_SAMPLE = 60


class Map(NamedTuple):
    """Attention of one sentence."""

    weights: Attention
    """Means over layers and heads, T x S."""
    source: Axis
    target: Axis


@dataclass(frozen=True)
class Choice:
    """One step of greedy search."""

    token: str
    probability: float
    runners_up: list[tuple[str, float]]
    """The likeliest other tokens, with their probabilities, best first; likelier ones were excluded."""


@dataclass(frozen=True)
class Trace:
    """A sentence, its greedy translation, and the attention weights of every head."""

    source_tokens: list[str]
    """Source tokens with [EOS]."""
    target_tokens: list[str]
    """Input of the decoder: [SOS] and the translation."""
    output_tokens: list[str]
    """Output of the decoder: the translation and [EOS]."""
    text: str
    choices: list[Choice]
    attention: dict[str, Attention]
    """For each of `KINDS`, weights of layers x heads x T x S."""


@torch.inference_mode()
def trace_translation(translator: Translator, sentence: str, tag: str | None = None) -> Trace:
    """Translate a sentence greedily and record every choice and all attention; `tag` as in `Translator.translate`.

    Raises InputError if the sentence is empty, or longer than the model was trained for.
    """
    model = model_of(translator)
    source, target = translator.source_tokenizer, translator.target_tokenizer
    text = tagged_text(" ".join(sentence.split()), translator.tagging, tag)
    (ids,), first_ids = source.encode([text]), source.first_target_ids([text])
    if not ids:
        raise InputError("the sentence is empty")
    if len(ids) > translator.max_tokens:
        raise InputError(f"found {len(ids)} tokens; give a sentence of up to {translator.max_tokens}")
    ((best,),) = translator.engine.search([Sentence(ids, first_ids[0])], translator.decoding.greedy)
    device = next(model.parameters()).device
    src_ids, tgt_ids = pad([ids], end=EOS_ID).to(device), pad([best.ids], start=SOS_ID).to(device)
    logits_BTV, weights = model.read(src_ids, tgt_ids)
    probabilities_TV = logits_BTV[0].float().softmax(dim=-1)
    choices = [_choice(target, *step) for step in zip(probabilities_TV, [*best.ids, EOS_ID], strict=True)]
    attention = {
        kind: torch.stack([weights_BHTS[0] for weights_BHTS in layers]).float().cpu().numpy()
        for kind, layers in zip(KINDS, weights, strict=True)
    }
    tokens, (text,) = target.tokens(best.ids), target.decode([best.ids])
    return Trace([*source.tokens(ids), EOS], [SOS, *tokens], [*tokens, EOS], text, choices, attention)


def model_of(translator: Translator) -> Transformer:
    """Model of a single run."""
    engine = translator.engine
    assert isinstance(engine, TransformerEngine) and isinstance(engine.model, Transformer), "an ensemble or an export"
    return engine.model


def _choice(tokenizer: Tokenizer, probabilities_V: Tensor, chosen: int) -> Choice:
    values, indices = probabilities_V.topk(min(_NUM_RUNNERS_UP + 1, len(probabilities_V)))
    likeliest = zip(tokenizer.tokens(indices.tolist()), values.tolist(), indices.tolist(), strict=True)
    runners_up = [(token, probability) for token, probability, index in likeliest if index != chosen]
    return Choice(tokenizer.tokens([chosen])[0], float(probabilities_V[chosen]), runners_up[:_NUM_RUNNERS_UP])


def parameter_table(model: Transformer) -> list[str]:
    """Lines with shape, number and share of each parameter, layers of one shape together; then sums by module."""
    total = sum(weight.numel() for weight in model.parameters())
    groups: dict[str, list[Tensor]] = {}
    for name, weight in model.named_parameters():
        groups.setdefault(re.sub(r"^(encoder|decoder)\.\d+\.", r"\1.N.", name), []).append(weight)
    lines = [f"{'parameter':<52}{'shape':>14}{'layers':>8}{'number':>14}{'share':>8}"]
    for name, members in groups.items():
        shape = " x ".join(map(str, members[0].shape))
        number = sum(weight.numel() for weight in members)
        layers = len(members) if ".N." in name else ""
        lines.append(f"{name:<52}{shape:>14}{layers:>8}{number:>14,}{number / total:>8.1%}")
    lines.append("")
    for name, module in model.named_children():
        if number := sum(weight.numel() for weight in module.parameters()):
            lines.append(f"{name:<74}{number:>14,}{number / total:>8.1%}")
    return [*lines, f"{'all, tied tables counted once':<74}{total:>14,}{1:>8.1%}"]


def choice_table(trace: Trace) -> Iterator[str]:
    """A line for each step: the token and the runners-up, with their probabilities."""
    width = max(len(choice.token) for choice in trace.choices) + 2
    yield f"{'step':>4}  {'token':<{width}}{'probability':>11}   runners-up"
    for step, choice in enumerate(trace.choices, start=1):
        runners_up = "   ".join(
            f"{token} {probability:.3f}{' (excluded)' if probability > choice.probability else ''}"
            for token, probability in choice.runners_up
        )
        yield f"{step:>4}  {choice.token:<{width}}{choice.probability:>11.3f}   {runners_up}"


def draw_model(model: Transformer, folder: Path, suffix: str) -> list[Path]:
    """Draw the positional encodings that are added to embeddings; nothing if only attention knows positions."""
    if model.source_embedding.positions is None:
        return []
    path = folder / f"positions.{suffix}"
    save_positions(sinusoids(_NUM_POSITIONS, model.config.d_model).numpy(), path)
    return [path]


def draw_attention(trace: Trace, folder: Path, suffix: str) -> list[Path]:
    """Draw the heads of each kind of attention and their mean, a picture for up to two layers, or a picture a layer.

    Then draw the mean of the cross-attention over layers and heads.
    """
    source, target = Axis("source", trace.source_tokens), Axis("target", trace.target_tokens)
    output = Axis("target", trace.output_tokens)
    paths = []
    for (kind, weights_LHTS), axes in zip(
        trace.attention.items(), ((source, source), (target, target), (source, output)), strict=True
    ):
        layers = [_titled(number, heads) for number, heads in enumerate(weights_LHTS, start=1)]
        pictures = {"": layers}
        if len(layers) > _MOST_LAYERS:
            pictures = {f"_{number}": [layer] for number, layer in enumerate(layers, start=1)}
        for end, drawn in pictures.items():
            paths.append(folder / f"{kind.replace(' ', '_').replace('-', '_')}{end}.{suffix}")
            save_attention(drawn, *axes, paths[-1], f"{kind.capitalize()}: each row shows where a token looks")
    paths.append(folder / f"cross_attention_mean.{suffix}")
    save_attention([{"": trace.attention[KINDS[2]].mean(axis=(0, 1))}], source, output, paths[-1])
    return paths


def _titled(layer: int, weights_HTS: Attention) -> dict[str, Attention]:
    heads = {f"layer {layer}, head {head}": weights for head, weights in enumerate(weights_HTS, start=1)}
    return heads | {f"layer {layer}, mean": weights_HTS.mean(axis=0)}


def sample_attention(translator: Translator, samples: Sequence[Sample]) -> Map | None:
    """Cross-attention of the first sample that is short enough, for `attention_chart`; None if there is none."""
    texts = [tagged_text(source, translator.tagging) for source, _, _ in samples]
    sources = translator.source_tokenizer.encode(texts)
    targets = translator.target_tokenizer.encode([hypothesis for _, _, hypothesis in samples])
    pairs = [
        (text, source, target)
        for text, source, target in zip(texts, sources, targets, strict=True)
        if source and target and max(len(source), len(target)) <= _MAX_TOKENS_OF_SAMPLE
    ]
    if not pairs:
        return None
    _, source, target = pairs[0]
    engine = SegmentEngine(translator.engine, translator.tokenizers, translator.tags)
    (forced,) = engine.force_decode(pairs[:1], with_scores=False)
    assert forced.attention is not None
    source_axis = Axis("source", [*translator.source_tokenizer.tokens(source), EOS])
    target_axis = Axis("target", [*translator.target_tokenizer.tokens(target), EOS])
    return Map(forced.attention, source_axis, target_axis)
