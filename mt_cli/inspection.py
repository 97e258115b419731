"""A model looked at from inside: its parameters, what its heads attend to, and how it chooses word after word."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mt_cli.batching.batches import pad
from mt_cli.errors import InputError
from mt_cli.figures import missing_characters, save_attention, save_attention_grid, save_norms, save_positions
from mt_cli.model.transformer import LearnedPositions, Transformer, recorded_attention, sinusoids
from mt_cli.tokenizer import EOS, EOS_ID, SOS, SOS_ID, Tokenizer
from mt_cli.translator.translator import Translator

KINDS = ("encoder self-attention", "decoder self-attention", "cross-attention")
_POSITIONS_SHOWN = 100


def parameter_table(model: Transformer) -> list[str]:
    """A line for each parameter, layers of one shape together, with its shape, number and share; then sums of parts."""
    total = sum(weight.numel() for weight in model.parameters())
    groups: dict[str, list[tuple[str, Tensor]]] = {}
    for name, weight in model.named_parameters():
        groups.setdefault(re.sub(r"^(encoder|decoder)\.\d+\.", r"\1.N.", name), []).append((name, weight))
    lines = [f"{'parameter':<52}{'shape':>14}{'layers':>8}{'number':>14}{'share':>8}"]
    for name, members in groups.items():
        shape = " x ".join(map(str, members[0][1].shape))
        number = sum(weight.numel() for _, weight in members)
        layers = str(len(members)) if ".N." in name else ""
        lines.append(f"{name:<52}{shape:>14}{layers:>8}{number:>14,}{number / total:>8.1%}")
    lines.append("")
    for part, module in model.named_children():
        own = {id(weight): weight.numel() for weight in module.parameters()}
        if own:
            number = sum(own.values())
            lines.append(f"{part:<74}{number:>14,}{number / total:>8.1%}")
    lines.append(f"{'all, tied tables counted once':<74}{total:>14,}{1:>8.1%}")
    return lines


def draw_model(translator: Translator, folder: Path, ending: str, num_positions: int | None = None) -> list[Path]:
    """Pictures of the positional encoding and of the embeddings' lengths.

    Without `num_positions`, 100 are drawn, or all there are if fewer have been learned.

    Raises:
        InputError: if fewer positions than `num_positions` have been learned.
    """
    model = translator.model
    embedding = model.source_embedding
    if isinstance(embedding.positions, LearnedPositions):
        table = embedding.positions.weight.detach()[: num_positions or _POSITIONS_SHOWN]
        if num_positions is not None and len(table) < num_positions:
            raise InputError(f"{num_positions} positions: this model has learned {len(table)}, and there are no others")
    else:
        table = sinusoids(num_positions or _POSITIONS_SHOWN, model.config.d_model)
    tables = {"source": embedding.table.weight, "target": model.target_embedding.table.weight}
    if tables["source"] is tables["target"]:
        tables = {"source and target": tables["source"]}
    paths = [folder / f"positions.{ending}", folder / f"embeddings.{ending}"]
    save_positions(table, paths[0])
    save_norms({name: weight.detach().float().norm(dim=1) for name, weight in tables.items()}, paths[1])
    return paths


@dataclass(frozen=True)
class Choice:
    """One step of greedy search."""

    token: str
    probability: float
    others: list[tuple[str, float]]
    """What else was likely, and how likely, likeliest first."""


@dataclass(frozen=True)
class Insight:
    """A sentence, how it was translated greedily, and what was attended to meanwhile."""

    source_tokens: list[str]
    """With [EOS]."""
    target_tokens: list[str]
    """What the decoder read: [SOS] and the translation."""
    output_tokens: list[str]
    """What it said: the translation and [EOS]."""
    text: str
    choices: list[Choice]
    attention: dict[str, list[Tensor]]
    """For each of `KINDS`, weights HxTxS of each layer."""


@torch.inference_mode()
def look_into(translator: Translator, sentence: str, num_others: int = 3) -> Insight:
    """Translate a sentence greedily, and note all on the way.

    Raises:
        InputError: if it is empty, or longer than the model was trained for.
    """
    model = translator.model
    source, target = translator.source_tokenizer, translator.target_tokenizer
    (ids,) = source.encode([" ".join(sentence.split())])
    if not ids:
        raise InputError("the sentence is empty")
    if len(ids) > translator.max_tokens:
        raise InputError(f"found {len(ids)} tokens; give a sentence of up to {translator.max_tokens}")
    greedy = translator.decoding.greedy
    ((best,),) = translator.engine.search([ids], greedy)
    device = next(model.parameters()).device
    src_ids, tgt_ids = pad([ids], end=EOS_ID).to(device), pad([best.ids], start=SOS_ID).to(device)
    with recorded_attention(model) as record:
        logits_TV = model(src_ids, tgt_ids)[0]
    probabilities_TV = logits_TV.float().softmax(dim=-1)
    choices = [
        _choice(target, probabilities_V, chosen, num_others)
        for probabilities_V, chosen in zip(probabilities_TV, [*best.ids, EOS_ID], strict=True)
    ]
    attention: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
    for name, (weights_BHTS,) in record.items():  # Such as `decoder.0.cross_attention`.
        kind = KINDS[0] if name.startswith("encoder") else KINDS[2] if "cross" in name else KINDS[1]
        attention[kind].append(weights_BHTS[0].float().cpu())
    tokens = target.tokens(best.ids)
    (text,) = target.decode([best.ids])
    return Insight([*source.tokens(ids), EOS], [SOS, *tokens], [*tokens, EOS], text, choices, attention)


def _choice(tokenizer: Tokenizer, probabilities_V: Tensor, chosen: int, num_others: int) -> Choice:
    values, indices = probabilities_V.topk(min(num_others + 1, len(probabilities_V)))
    likely = zip(tokenizer.tokens(indices.tolist()), values.tolist(), indices.tolist(), strict=True)
    others = [(token, value) for token, value, index in likely if index != chosen][:num_others]
    return Choice(tokenizer.tokens([chosen])[0], float(probabilities_V[chosen]), others)


def draw_attention(insight: Insight, folder: Path, ending: str) -> list[Path]:
    """For each kind of attention a grid of heat maps, layers downwards, heads to the right, their mean at the end."""
    source, target, output = insight.source_tokens, insight.target_tokens, insight.output_tokens
    sides = {KINDS[0]: (source, source), KINDS[1]: (target, target), KINDS[2]: (source, output)}
    paths = []
    for kind, (columns, rows) in sides.items():
        maps = [[*weights_HTS, weights_HTS.mean(dim=0)] for weights_HTS in insight.attention[kind]]
        titles = [
            [*(f"layer {layer}, head {head}" for head in range(1, len(row))), f"layer {layer}, mean"]
            for layer, row in enumerate(maps, start=1)
        ]
        paths.append(folder / f"{kind.replace(' ', '_').replace('-', '_')}.{ending}")
        save_attention_grid(maps, titles, columns, rows, paths[-1])
    mean = torch.stack(insight.attention[KINDS[2]]).mean(dim=(0, 1))
    paths.append(folder / f"cross_attention_mean.{ending}")
    save_attention(mean, source, output, paths[-1])
    return paths


def choice_table(insight: Insight) -> Iterator[str]:
    """A line for each step: the token, its probability, and the runners-up with theirs."""
    width = max(len(choice.token) for choice in insight.choices) + 2
    yield f"{'step':>4}  {'token':<{width}}{'probability':>11}   runners-up"
    for step, choice in enumerate(insight.choices, start=1):
        others = "   ".join(f"{token} {probability:.3f}" for token, probability in choice.others)
        yield f"{step:>4}  {choice.token:<{width}}{choice.probability:>11.3f}   {others}"


def note_on_fonts(texts: Sequence[str]) -> str | None:
    """What to do about characters that no installed font has; None if there are none."""
    missing = missing_characters(texts)
    if not missing:
        return None
    shown = " ".join(missing[:10]) + (" ..." if len(missing) > 10 else "")
    return (
        f"no installed font has {shown}; such characters are drawn as boxes. Install one, such as the package "
        "fonts-noto-cjk or fonts-noto-core of Debian, or draw SVG and look at it where there is one"
    )
