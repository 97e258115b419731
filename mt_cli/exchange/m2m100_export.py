"""A run whose vocabulary has languages as a folder of `M2M100ForConditionalGeneration`: the inverse of `m2m100.py`.

With bpe the tokenizer is NllbTokenizer, which puts `src_lang` before a text. No class of `transformers` does that with
any languages for unigram; there the text begins with the language.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import tokenizers
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import decoders, normalizers, pre_tokenizers

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.tags import direction_of
from mt_cli.exchange import names
from mt_cli.exchange.m2m100_vocabulary import BOS, EOS, MASK, PAD, SPM, UNK
from mt_cli.exchange.sentencepiece import Pieces, model_file
from mt_cli.exchange.transformers_folder import Layout, Parts, TransformersEngine
from mt_cli.tokenizer.sentencepiece import all_merges
from mt_cli.tokenizer.special_tokens import ABSENT, BYTES, EOS_ID, LANGUAGE_ENTRY, PAD_ID, SOS_ID, SPACE, UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer

_FIRST = (SOS_ID, PAD_ID, EOS_ID, UNK_ID)
"""Our ids of the first entries of M2M100: <s>, <pad>, </s>, <unk>. All other entries have our ids."""
_EOS = 2
_LOWEST_SCORE = -1e6
"""Score of entries of a unigram model that are no pieces."""
_IN_TEXT_SAFE = re.compile(r"[a-z]{2,3}_[A-Z][a-z]{3}")


def transformers_code(language: str) -> str:
    """Name of the token of a language: `eng_Latn`, or `__en__`, because a token may not be a part of a word."""
    return language if _IN_TEXT_SAFE.fullmatch(language) else f"__{language}__"


def m2m100_parts(transformers: Any, run: TrainedRun) -> Parts:
    """Description and weights of the run as `M2M100ForConditionalGeneration`."""
    rows = [*_FIRST, *range(len(_FIRST), run.tokenizers[0].vocab_size)]
    layout, default, config = Layout((rows, rows), 1, _EOS, _EOS), run.config.corpus.tagging.default, run.config.model
    special = layout.special_ids() | {"bos_token_id": 0}
    options = {key: getattr(config, ours) for ours, keys in names.OPTIONS.items() for key in keys}
    description = transformers.M2M100Config(
        architectures=["M2M100ForConditionalGeneration"],
        vocab_size=len(rows),
        activation_function=names.ACTIVATIONS[config.activation],
        **{"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "dtype": "float32"},
        **special,
        **options,
    )
    generation = special | layout.generation(run.config.decoding)
    if default is not None and (first := run.tokenizers[0].first_target_ids([default])[0]):
        generation["forced_bos_token_id"] = first[0]  # The target language of the default tag.
    table = run.model.source_embedding.table.weight.detach().float()[rows]
    return layout, description, generation, names.their_layers(run.model) | {names.SHARED_TABLE: table}


def _names(tokenizer: Tokenizer) -> list[str]:
    entries = tokenizer.tokens(range(len(_FIRST), tokenizer.vocab_size))
    renamed = [
        transformers_code(match[1]) if (match := LANGUAGE_ENTRY.fullmatch(entry)) else entry.removeprefix(ABSENT)
        for entry in entries
    ]
    return [BOS, PAD, EOS, UNK, *(MASK if name == "[mask]" else name for name in renamed)]


def write_m2m100_tokenizer(run: TrainedRun, folder: Path) -> dict[str, Any]:
    """Write the tokenizer of both sides, which adds the end; return its settings."""
    source, languages = run.tokenizers[0], [transformers_code(language) for language in run.tokenizers[0].languages]
    content = model_file(source)
    (folder / SPM[1]).write_bytes(content)
    entries, pieces = _names(source), Pieces(ModelProto.FromString(content))
    is_bpe, scores, has_bytes = pieces.is_bpe, pieces.scores, bool({*BYTES} & {*pieces.names})
    model: Any
    if is_bpe:
        ids = {name: index for index, name in enumerate(entries)}
        ranks = {piece: rank for rank, piece in enumerate(sorted(scores, key=lambda piece: -scores[piece]))}
        options = {"unk_token": UNK, "fuse_unk": True, "byte_fallback": has_bytes}
        model = tokenizers.models.BPE(ids, all_merges(ranks), **options)
    else:
        scored = [(name, scores.get(name, _LOWEST_SCORE)) for name in entries]
        model = tokenizers.models.Unigram(scored, unk_id=3, byte_fallback=has_bytes)
    tokenizer = tokenizers.Tokenizer(model)
    _set_steps(tokenizer, pieces.proto.normalizer_spec)
    special = [name for name in (BOS, PAD, EOS, UNK, MASK) if name in entries]
    tokenizer.add_special_tokens([*special, *(tokenizers.AddedToken(name, rstrip=True) for name in languages)])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A $B {EOS}", special_tokens=[(EOS, _EOS)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    corpus = run.config.corpus
    settings: dict[str, Any] = {"bos_token": BOS, "pad_token": PAD, "eos_token": EOS, "unk_token": UNK}
    settings |= {"clean_up_tokenization_spaces": False, "tokenizer_class": "PreTrainedTokenizerFast"}
    if is_bpe:
        settings |= {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": False, "sep_token": EOS, "cls_token": BOS}
        settings |= {"mask_token": MASK if MASK in entries else None, "extra_special_tokens": languages}
        settings |= {"src_lang": transformers_code(corpus.source), "tgt_lang": transformers_code(corpus.target)}
    return settings


def _set_steps(tokenizer: tokenizers.Tokenizer, spec: Any) -> None:
    """Set the steps of NLLB's own `tokenizer.json`, with the options of the SentencePiece model of our tokenizer.

    The file of that model has a name that `transformers` does not read: version 4 would take other ids from it.
    """
    charsmap, strips = spec.precompiled_charsmap, spec.remove_extra_whitespaces
    steps: list[Any] = [normalizers.Precompiled(charsmap)] if charsmap else []
    steps += [normalizers.Strip()] * strips + [normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    scheme: Any = "always" if spec.add_dummy_prefix else "never"
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme)
    tokenizer.decoder = decoders.Metaspace(SPACE, scheme)


class DirectedEngine(TransformersEngine):
    """A folder whose sources begin with their language."""

    def source_ids(self, text: str) -> list[int]:
        tag, _, rest = text.partition(" ")
        direction = direction_of(tag)
        if direction is None:
            return super().source_ids(text)
        name = transformers_code(direction[0])
        if hasattr(self._tokenizer, "src_lang"):
            self._tokenizer.src_lang = name
        else:
            rest = f"{name} {rest}"
        return super().source_ids(rest)
