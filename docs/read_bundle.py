"""Translate with the bundle in the folder `bundle`, without `mt`.

    python read_bundle.py "The old doctor sleeps."

It is for models with rotary positions and `norm_order: pre` (`preset: tiny` and `small`). The search is greedy.

- Norms are layer norms with an epsilon of 1e-5. `gelu` is the exact one, with the error function.
- `rotary` turns the adjacent elements 2i and 2i + 1 of queries and keys, in self-attention alone. (Many programs pair i
  with i + d_head / 2.)
- Other positions count from 0 at the first token or tag of the source and at `[SOS]` of the target, and are added to
  the embeddings. `sinusoidal`: dimension 2i is sin(p / 10000^(2i / d_model)), and dimension 2i + 1 the cosine of the
  same angle. `fairseq`: dimension i is sin((p + 2) * f^i), and dimension i + d_model / 2 its cosine, with
  f = 10000^(-1 / (d_model / 2 - 1)).
- With `positions: fairseq`, `[SOS]` has the embedding of `[EOS]`. With a tag such as `<en>it>` that is no entry, the
  source begins with the entry `<en>` and the target with `<it>`, both after U+E000.
- A translation has at most 10 + `max_length_ratio` times the tokens of the source, rounded down, without `[EOS]`, which
  is then forced.
- The source has at most `most_tokens` tokens, without tag and `[EOS]`. `mt translate` splits longer lines, copies lines
  without letters, puts one space between words, and replaces `[UNK]`.
"""

import json
import math
import sys

import tokenizers
import torch
from safetensors.torch import load_file
from torch.nn import functional

with open("bundle/model.json", encoding="utf-8") as file:
    about = json.load(file)
model, decoding, special = about["model"], about["decoding"], about["special_tokens"]
assert model["positions"] == "rotary" and model["norm_order"] == "pre"
w = load_file("bundle/model.safetensors")
source, target = (tokenizers.Tokenizer.from_file(f"bundle/tokenizer.{side}.json") for side in ("source", "target"))
source_table = w["source_embedding.table.weight"]
target_table = w.get("target_embedding.table.weight", source_table)  # A tied table is stored once.
projection = w.get("projection.weight", target_table)


def linear(x, name):
    return functional.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))


def norm(x, name):
    return functional.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


def rotated(x):  # heads x positions x d_head
    angles = torch.arange(x.shape[1])[:, None] / 10_000 ** (torch.arange(0, x.shape[2], 2) / x.shape[2])
    sin, cos, even, odd = angles.sin(), angles.cos(), x[..., ::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


def attention(x, others, name, is_self, is_causal=False):
    q, k, v = (
        linear(rows, f"{name}.{part}").unflatten(1, (model["num_heads"], -1)).transpose(0, 1)
        for rows, part in ((x, "query"), (others, "key"), (others, "value"))
    )
    q, k = (rotated(q), rotated(k)) if is_self else (q, k)
    mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)  # Divides scores by sqrt(d_head).
    return linear(mixed.transpose(0, 1).flatten(1), f"{name}.output")


def feed_forward(x, name):
    x = linear(x, f"{name}.inner")
    if model["activation"] == "swiglu":
        gate, value = x.chunk(2, dim=-1)
        return linear(functional.silu(gate) * value, f"{name}.outer")
    return linear(getattr(functional, model["activation"])(x), f"{name}.outer")


def stack(ids, table, side, memory=None):
    x = table[ids] * math.sqrt(model["d_model"])
    for layer in (f"{side}.{index}" for index in range(model[f"num_{side}_layers"])):
        normed = norm(x, f"{layer}.self_attention_residual.norm")
        x = x + attention(normed, normed, f"{layer}.self_attention", True, is_causal=memory is not None)
        if memory is not None:
            normed = norm(x, f"{layer}.cross_attention_residual.norm")
            x = x + attention(normed, memory, f"{layer}.cross_attention", False)
        x = x + feed_forward(norm(x, f"{layer}.feed_forward_residual.norm"), f"{layer}.feed_forward")
    return norm(x, f"{side}_norm")


def translate(sentence):
    source_ids, ids = source.encode(sentence).ids, [special["[SOS]"]]
    memory = stack([*source_ids, special["[EOS]"]], source_table, "encoder")
    longest = int(len(source_ids) * decoding["max_length_ratio"]) + 10
    while len(ids) <= longest:  # [SOS] does not count.
        hidden_state = stack(ids, target_table, "decoder", memory)[-1]
        logits = functional.linear(hidden_state, projection, w.get("projection.bias"))
        logits[[special["[PAD]"], special["[SOS]"]]] = -math.inf
        if (best := int(logits.argmax())) == special["[EOS]"]:
            break
        ids.append(best)
    return target.decode(ids[1:], skip_special_tokens=False)


if __name__ == "__main__":
    for sentence in sys.argv[1:]:
        print(translate(sentence))
