"""A trained run as a folder that Hugging Face `transformers` loads: MarianMT (post-norm) or Pegasus (pre-norm)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import ForcedDecoding, Ids
from mt_cli.decoding.next_tokens import max_length
from mt_cli.decoding.search import Hypothesis
from mt_cli.errors import InputError, MtError, one_line
from mt_cli.features.exchange import names
from mt_cli.features.exchange.comparison import Agreement, check_export
from mt_cli.features.exchange.destinations import check_destination
from mt_cli.features.exchange.m2m100_export import export_m2m100
from mt_cli.features.exchange.sentencepiece import entry_names, model_file
from mt_cli.machine.storage import new_folder
from mt_cli.model.positions import sinusoids
from mt_cli.tokenizer.special_tokens import EOS, EOS_ID, PAD, PAD_ID, SOS, SOS_ID, UNK, UNK_ID

MAX_LENGTH = 512
"""Default maximum length for `generate`, including the token that a translation begins with."""
_MARIAN_ROWS = (EOS_ID, UNK_ID, SOS_ID)
"""Our ids of Marian's first entries: </s>, <unk> and <pad>, with which its translations begin."""


@dataclass(frozen=True)
class _Layout:
    """Numbers of the entries in the exported folder."""

    rows: tuple[list[int], list[int]]
    """Our id for each exported id, for the source and for the target."""
    pad: int
    eos: int
    start: int

    @classmethod
    def of(cls, run: TrainedRun) -> _Layout:
        """Layout of Marian for an imported SentencePiece model, our layout for all others."""
        source, target = (tokenizer.vocab_size for tokenizer in run.tokenizers)
        if run.config.tokenizer.algorithm == "sentencepiece":
            rows = [*_MARIAN_ROWS, *range(4, source)], [*_MARIAN_ROWS, *range(4, target)]
            return cls(rows, pad=2, eos=0, start=2)
        return cls((list(range(source)), list(range(target))), pad=PAD_ID, eos=EOS_ID, start=SOS_ID)

    def special_ids(self) -> dict[str, int]:
        """Options of `transformers` for special tokens."""
        return {"pad_token_id": self.pad, "eos_token_id": self.eos, "decoder_start_token_id": self.start}


def export_huggingface(run: TrainedRun, output: Path, sentences: Sequence[str], card: str) -> Agreement:
    """Write a folder for `AutoModelForSeq2SeqLM` and `AutoTokenizer`, and compare it with the run on the sentences.

    `card` is the text of README.md. Raises InputError if `transformers` is not installed, no class of it can hold the
    model or the tokenizers, or the folder exists or cannot be made. Raises MtError if the exported model disagrees or
    the folder cannot be written; nothing is left in it then.
    """
    check_destination(run.config, "huggingface")
    transformers, layout = _import_transformers(), _Layout.of(run)
    if run.tokenizers[0].languages:
        return export_m2m100(transformers, run, output, sentences, card)
    with new_folder(output) as folder:
        _write_config(transformers, run, layout, folder)
        transformers.GenerationConfig(**_generation(run.config.decoding, layout)).save_pretrained(folder)
        save_file(_weights(run, layout), folder / "model.safetensors", {"format": "pt"})
        is_marian = run.config.tokenizer.algorithm == "sentencepiece"
        settings = _write_sentencepiece(run, folder) if is_marian else _write_fast_tokenizer(run, folder)
        settings |= {"source_lang": run.config.corpus.source, "target_lang": run.config.corpus.target}
        _write_json(folder / "tokenizer_config.json", settings | {"model_max_length": run.max_tokens})
        (folder / "README.md").write_text(card, encoding="utf-8")
        try:
            engine = _Engine(transformers, folder, layout)
        except Exception as error:  # The library fails in many ways.
            raise MtError(f"{output}: transformers cannot load the export: {one_line(error)}") from error
        for sentence, ids in zip(sentences, run.tokenizers[0].encode(sentences), strict=True):
            if engine.source_ids(sentence) != list(ids):
                problem = f"the exported tokenizer splits {sentence[:60]!r} differently"
                raise MtError(f"{output}: {problem}; nothing was exported")
        return check_export(run, engine, sentences, output)


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise InputError("transformers is not installed; pip install 'transformers>=5'") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _write_config(transformers: Any, run: TrainedRun, layout: _Layout, folder: Path) -> None:
    """Write all keys of `config.json`, so that it does not depend on the defaults of a version."""
    config, is_pre = run.config.model, run.config.model.norm_order == "pre"
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
    description.to_json_file(folder / "config.json", use_diff=False)


def _num_positions(run: TrainedRun) -> int:
    longest = run.config.corpus.max_tokens * max(1.0, run.config.decoding.max_length_ratio)
    return min(max(512, int(longest) + 12), 2**14)


def _generation(decoding: DecodingConfig, layout: _Layout) -> dict[str, Any]:
    """Options of `generate`."""
    never = {PAD_ID, SOS_ID} | ({UNK_ID} if decoding.unk == "avoid" else set())
    return layout.special_ids() | {
        **{"num_beams": decoding.beam_size, "length_penalty": decoding.length_penalty, "max_length": MAX_LENGTH},
        "no_repeat_ngram_size": decoding.no_repeat_ngram or 0,
        "suppress_tokens": [index for index, ours in enumerate(layout.rows[1]) if ours in never],
    }


def _weights(run: TrainedRun, layout: _Layout) -> dict[str, Tensor]:
    """Our weights under the names of `transformers`, with sines in the first half of the dimensions."""
    ours = {name: weight.detach().float() for name, weight in run.model.state_dict().items()}
    config = run.config.model
    order = names.interleaved(config.d_model).argsort()
    weights = {
        names.transformers_name(name): names.reordered(weight, name, order)
        for name, weight in ours.items()
        if name.startswith(("encoder", "decoder"))
    }
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
    return {name: weight.contiguous().clone() for name, weight in weights.items()}


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
    return {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **special}


def _write_sentencepiece(run: TrainedRun, folder: Path) -> dict[str, Any]:
    """Write the files of MarianTokenizer; return its settings."""
    vocabularies = []
    for side, tokenizer in zip(("source", "target"), run.tokenizers, strict=True):
        (folder / f"{side}.spm").write_bytes(model_file(tokenizer))
        entries = ["</s>", "<unk>", "<pad>", *entry_names(tokenizer)]
        vocabularies.append({name: index for index, name in enumerate(entries)})
    _write_json(folder / "vocab.json", vocabularies[0])
    is_shared = run.config.tokenizer.shared
    if not is_shared:
        _write_json(folder / "target_vocab.json", vocabularies[1])
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    return {"tokenizer_class": "MarianTokenizer", "separate_vocabs": not is_shared, **special}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class _Engine:
    """The exported folder as `transformers` uses it; ids are ours."""

    def __init__(self, transformers: Any, folder: Path, layout: _Layout) -> None:
        self._layout = layout
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")  # Not used here.
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._exported_ids = [{ours: index for index, ours in enumerate(rows)} for rows in layout.rows]

    def source_ids(self, text: str) -> list[int]:
        """Our ids of a text by the exported tokenizer, without the end."""
        return [self._layout.rows[0][index] for index in self._tokenizer(text)["input_ids"][:-1]]

    @torch.inference_mode()
    def search(
        self,
        sources: Sequence[Ids],
        decoding: DecodingConfig,
        num_best: int = 1,
        prefixes: Sequence[Ids] = (),
        orders: Sequence[Ids] = (),
    ) -> list[list[Hypothesis]]:
        """Search greedily, without `no_repeat_ngram`, like the search that the result is compared with."""
        hypotheses = []
        options = {"suppress_tokens": _generation(decoding, self._layout)["suppress_tokens"], "no_repeat_ngram_size": 0}
        for source in sources:
            limits = {"max_length": None, "max_new_tokens": max_length(len(source), decoding)}
            (output,) = self._model.generate(self._source(source), num_beams=1, do_sample=False, **limits, **options)
            ids = [index for index in output[1:].tolist() if index not in (self._layout.eos, self._layout.pad)]
            hypotheses.append([Hypothesis([self._layout.rows[1][index] for index in ids], 0.0, None)])
        return hypotheses

    @torch.inference_mode()
    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        """See `Engine`; the readings have no attention."""
        readings = []
        for source, target in pairs:
            ids = [self._exported_ids[1][index] for index in target]
            decoder_ids = torch.tensor([[self._layout.start, *ids]])
            logits = self._model(input_ids=self._source(source), decoder_input_ids=decoder_ids).logits[0].float()
            log_probs = logits.log_softmax(dim=-1)[range(len(ids) + 1), [*ids, self._layout.eos]]
            readings.append(ForcedDecoding(log_probs.tolist(), None))
        return readings

    def _source(self, ids: Ids) -> Tensor:
        return torch.tensor([[*(self._exported_ids[0][index] for index in ids), self._layout.eos]])
