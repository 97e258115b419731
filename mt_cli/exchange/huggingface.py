"""A trained run as a folder that Hugging Face `transformers` loads: MarianMT (post-norm) or Pegasus (pre-norm)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.exchange import names
from mt_cli.exchange.comparison import Agreement
from mt_cli.exchange.m2m100_export import DirectedEngine, m2m100_parts, write_m2m100_tokenizer
from mt_cli.exchange.sentencepiece import entry_names, model_file
from mt_cli.exchange.transformers_folder import (
    Layout,
    Parts,
    TransformersEngine,
    check_folder,
    import_transformers,
)
from mt_cli.model.positions import sinusoids
from mt_cli.runtime.files import json_text, new_folder, write_text, writing
from mt_cli.tokenizer.special_tokens import EOS, EOS_ID, PAD, PAD_ID, SOS, SOS_ID, UNK, UNK_ID

_MARIAN_ROWS = (EOS_ID, UNK_ID, SOS_ID)
"""Our ids of Marian's first entries: </s>, <unk> and <pad>, with which its translations begin."""


def _layout_of(run: TrainedRun) -> Layout:
    """Layout of Marian for an imported SentencePiece model, our layout for all others."""
    source, target = (tokenizer.vocab_size for tokenizer in run.tokenizers)
    if run.config.tokenizer.algorithm == "sentencepiece":
        rows = [*_MARIAN_ROWS, *range(4, source)], [*_MARIAN_ROWS, *range(4, target)]
        return Layout(rows, pad=2, eos=0, start=2)
    return Layout((list(range(source)), list(range(target))), pad=PAD_ID, eos=EOS_ID, start=SOS_ID)


def export_huggingface(run: TrainedRun, output: Path, sentences: Sequence[str], card: str) -> Agreement:
    """Write a folder for `AutoModelForSeq2SeqLM` and `AutoTokenizer`, and compare it with the run on the sentences.

    `card` is the text of README.md. Raises InputError if `transformers` is not installed, or the folder exists or
    cannot be made. Raises MtError if the exported model disagrees or the folder cannot be written; nothing is left in
    it then.
    """
    transformers, is_m2m100 = import_transformers(), bool(run.tokenizers[0].languages)
    layout, config, generation, weights = (m2m100_parts if is_m2m100 else _parts)(transformers, run)
    with new_folder(output) as folder, writing(output):
        config.to_json_file(folder / "config.json", use_diff=False)
        transformers.GenerationConfig(**generation).save_pretrained(folder)
        copies = {name: weight.contiguous().clone() for name, weight in weights.items()}
        save_file(copies, folder / "model.safetensors", {"format": "pt"})
        if is_m2m100:
            settings = write_m2m100_tokenizer(run, folder)
        else:
            is_marian = run.config.tokenizer.algorithm == "sentencepiece"
            settings = _write_sentencepiece(run, folder) if is_marian else _write_fast_tokenizer(run, folder)
            settings |= {"source_lang": run.config.corpus.source, "target_lang": run.config.corpus.target}
        write_text(folder / "tokenizer_config.json", json_text(settings | {"model_max_length": run.max_tokens}))
        (folder / "README.md").write_text(card, encoding="utf-8")
        engine = DirectedEngine if is_m2m100 else TransformersEngine
        return check_folder(run, engine(transformers, folder, layout), sentences, output)


def _parts(transformers: Any, run: TrainedRun) -> Parts:
    """Weights, and all keys of `config.json`, so that it does not depend on the defaults of a version."""
    config, is_pre, layout = run.config.model, run.config.model.norm_order == "pre", _layout_of(run)
    options: dict[str, Any] = {key: getattr(config, ours) for ours, keys in names.OPTIONS.items() for key in keys}
    if not is_pre:
        options["share_encoder_decoder_embeddings"] = config.tie_embeddings == "all"
        options["decoder_vocab_size"] = len(layout.rows[1])
    description = (transformers.PegasusConfig if is_pre else transformers.MarianConfig)(
        architectures=["PegasusForConditionalGeneration" if is_pre else "MarianMTModel"],
        vocab_size=len(layout.rows[0]),
        activation_function=names.ACTIVATIONS[config.activation],
        scale_embedding=True,
        static_position_embeddings=True,
        max_position_embeddings=_num_positions(run),
        tie_word_embeddings=config.tie_embeddings != "none",
        bos_token_id=None,
        forced_eos_token_id=None,
        dtype="float32",
        **layout.special_ids(),
        **options,
    )
    return layout, description, layout.generation(run.config.decoding), _weights(run, layout)


def _num_positions(run: TrainedRun) -> int:
    longest = run.config.corpus.max_tokens * max(1.0, run.config.decoding.max_length_ratio)
    return min(max(512, int(longest) + 12), 2**14)


def _weights(run: TrainedRun, layout: Layout) -> dict[str, Tensor]:
    """Our weights under the names of `transformers`, with sines in the first half of the dimensions."""
    ours = {name: weight.detach().float() for name, weight in run.model.state_dict().items()}
    config = run.config.model
    order = names.interleaved(config.d_model).argsort()
    weights = names.their_layers(run.model, order)
    if not config.qkv_bias:
        for name in [name for name in weights if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))]:
            weights[name.replace("weight", "bias")] = torch.zeros(config.d_model)
    source_rows, target_rows = layout.rows
    source_table = ours["source_embedding.table.weight"][source_rows][:, order]
    if config.tie_embeddings == "all":
        weights[names.SHARED_TABLE] = source_table
    else:
        weights[names.SOURCE_TABLE] = source_table
        weights[names.TARGET_TABLE] = ours["target_embedding.table.weight"][target_rows][:, order]
    if config.tie_embeddings == "none":
        weights[names.PROJECTION] = ours["projection.weight"][target_rows][:, order]
    bias = ours["projection.bias"][target_rows] if config.output_bias else torch.zeros(len(target_rows))
    weights[names.BIAS] = bias[None]
    if config.norm_order == "pre":
        positions = sinusoids(_num_positions(run), config.d_model)[:, order]
        weights |= dict.fromkeys(names.POSITIONS, positions)
    return weights


def _write_fast_tokenizer(run: TrainedRun, folder: Path) -> dict[str, Any]:
    """Write the tokenizer of both sides, which adds [EOS] and recognises tags anywhere; return its settings."""
    tokenizer = tokenizers.Tokenizer.from_str(run.tokenizers[0].to_json())
    special = {"pad_token": PAD, "unk_token": UNK, "bos_token": SOS, "eos_token": EOS}
    tokenizer.add_special_tokens(list(special.values()))
    tokenizer.add_tokens([tokenizers.AddedToken(tag, rstrip=True, normalized=False) for tag in run.config.corpus.tags])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A $B {EOS}", special_tokens=[(EOS, EOS_ID)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    # Versions 4 of transformers do not know the class that `save_pretrained` of versions 5 names.
    options = {"mt_tokenizer": run.config.tokenizer.model_dump(mode="json")}  # For `mt import`.
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **special, **options}


def _write_sentencepiece(run: TrainedRun, folder: Path) -> dict[str, Any]:
    vocabularies = []
    for side, tokenizer in zip(("source", "target"), run.tokenizers, strict=True):
        (folder / f"{side}.spm").write_bytes(model_file(tokenizer))
        entries = ["</s>", "<unk>", "<pad>", *entry_names(tokenizer)]
        vocabularies.append({name: index for index, name in enumerate(entries)})
    write_text(folder / "vocab.json", json_text(vocabularies[0]))
    is_shared = run.config.tokenizer.shared
    if not is_shared:
        write_text(folder / "target_vocab.json", json_text(vocabularies[1]))
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return {"tokenizer_class": "MarianTokenizer", "separate_vocabs": not is_shared, **special}
