"""A trained run as a folder that Hugging Face `transformers` loads: MarianMT (post-norm) or Pegasus (pre-norm)."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
import torch
from safetensors.torch import save_file
from torch import Tensor

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import Config, DecodingConfig
from mt_cli.decoding.engine import ForcedDecoding, Ids, TransformerEngine
from mt_cli.decoding.next_tokens import max_length
from mt_cli.decoding.search import Hypothesis
from mt_cli.errors import InputError, MtError, one_line
from mt_cli.features.exchange.agreement import Agreement, compare
from mt_cli.features.exchange.marian_names import interleaved, reordered, their_name
from mt_cli.features.exchange.sentencepiece import entry_names, model_file
from mt_cli.machine.storage import new_folder
from mt_cli.model.positions import sinusoids
from mt_cli.tokenizer.special import EOS, EOS_ID, PAD, PAD_ID, SOS, SOS_ID, UNK, UNK_ID

MAX_LENGTH = 512
"""Most tokens that `generate` makes of any source by default, the one that a translation begins with counted."""
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish"}
_MARIAN_ROWS = (EOS_ID, UNK_ID, SOS_ID)
"""Our ids of Marian's first entries: </s>, <unk> and <pad>, with which its translations begin."""


@dataclass(frozen=True)
class _Layout:
    """How the ids of a run are numbered in the folder."""

    rows: tuple[list[int], list[int]]
    """For each of their ids, ours; of the source and of the target."""
    pad: int
    eos: int
    start: int


def export_huggingface(run: TrainedRun, output: Path, sentences: Sequence[str], card: str) -> Agreement:
    """Write a folder for `AutoModelForSeq2SeqLM` and `AutoTokenizer`, and compare it with the run on the sentences.

    `card` is the text of its README.md. Raises InputError if `transformers` is not installed, no class of it can hold
    the model or the tokenizers, or the folder exists or cannot be made. Raises MtError if both disagree or the folder
    cannot be written; nothing of it remains.
    """
    transformers = _import_transformers()
    _check_supported(run.config)
    is_marian = run.config.tokenizer.algorithm == "sentencepiece"
    sizes = [tokenizer.vocab_size for tokenizer in run.tokenizers]
    if is_marian:
        rows = [[*_MARIAN_ROWS, *range(4, size)] for size in sizes]
        layout = _Layout((rows[0], rows[1]), pad=2, eos=0, start=2)
    else:
        layout = _Layout((list(range(sizes[0])), list(range(sizes[1]))), pad=PAD_ID, eos=EOS_ID, start=SOS_ID)
    with new_folder(output) as folder:
        _write_config(transformers, run, layout, folder)
        transformers.GenerationConfig(**_generation(run.config.decoding, layout)).save_pretrained(folder)
        save_file(_weights(run, layout), folder / "model.safetensors", {"format": "pt"})
        write_tokenizers = _write_sentencepiece if is_marian else _write_fast_tokenizer
        write_tokenizers(run, folder)
        (folder / "README.md").write_text(card, encoding="utf-8")
        try:
            engine = _Engine(transformers, folder, layout)
        except Exception as error:  # The library fails in many ways.
            raise MtError(f"{output}: transformers cannot load the export: {one_line(error)}") from error
        sources = [ids[: run.max_tokens] for ids in run.tokenizers[0].encode(sentences) if ids]
        agreement = compare(TransformerEngine(run.model), engine, sources, run.config.decoding)
        _check_ids(run, engine, sentences, output)
        agreement.check(output)
    return agreement


def _import_transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise InputError("transformers is not installed; pip install 'transformers>=5'") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


class Unsupported(NamedTuple):
    """A value that no class of `transformers` can hold."""

    key: str
    """The option, by its dotted key."""
    found: str
    """The value, for people."""
    instead: str
    """An option and a value that can be exported."""


def unsupported(config: Config) -> list[Unsupported]:
    """Why a run of this config cannot be exported, or nothing; what to choose instead before it is trained."""
    model, tokenizer = config.model, config.tokenizer
    tied = "model.tie_embeddings: all"
    problems = (
        (
            model.activation not in _ACTIVATIONS,
            Unsupported("model.activation", f"model.activation: {model.activation}", "model.activation: relu"),
        ),
        (
            model.positions != "sinusoidal",
            Unsupported("model.positions", f"model.positions: {model.positions}", "model.positions: sinusoidal"),
        ),
        (
            model.norm_order == "post" and model.ends_in_norm,
            Unsupported("model.final_norm", "model.final_norm with norm_order: post", "model.final_norm: null"),
        ),
        (
            model.norm_order == "pre" and model.tie_embeddings != "all",
            Unsupported(
                "model.tie_embeddings", f"model.tie_embeddings: {model.tie_embeddings} with norm_order: pre", tied
            ),
        ),
        (
            tokenizer.algorithm != "sentencepiece" and not tokenizer.shared,
            Unsupported(
                "tokenizer.shared",
                "tokenizers of two vocabularies (tokenizer.shared: false)",
                "tokenizer.shared: true",
            ),
        ),
    )
    return [problem for is_problem, problem in problems if is_problem]


def _check_supported(config: Config) -> None:
    """Raise InputError if no class can hold the model or the tokenizers."""
    if problems := unsupported(config):
        found = ", or ".join(problem.found for problem in problems)
        raise InputError(f"--format huggingface: no class of transformers has {found}; use --format bundle")


def _write_config(transformers: Any, run: TrainedRun, layout: _Layout, folder: Path) -> None:
    """All keys of `config.json`, so that it does not depend on the defaults of a version."""
    config, is_pre = run.config.model, run.config.model.norm_order == "pre"
    num_source, num_target = (len(rows) for rows in layout.rows)
    theirs, name, options = transformers.PegasusConfig, "PegasusForConditionalGeneration", {}
    if not is_pre:
        theirs, name = transformers.MarianConfig, "MarianMTModel"
        is_shared = config.tie_embeddings == "all"
        options = {"share_encoder_decoder_embeddings": is_shared, "decoder_vocab_size": num_target}
    description = theirs(
        architectures=[name],
        vocab_size=num_source,
        d_model=config.d_model,
        encoder_layers=config.num_encoder_layers,
        decoder_layers=config.num_decoder_layers,
        encoder_attention_heads=config.num_heads,
        decoder_attention_heads=config.num_heads,
        encoder_ffn_dim=config.d_ff,
        decoder_ffn_dim=config.d_ff,
        activation_function=_ACTIVATIONS[config.activation],
        dropout=config.dropout,
        attention_dropout=config.attention_dropout,
        activation_dropout=config.feed_forward_dropout,
        scale_embedding=True,
        static_position_embeddings=True,
        max_position_embeddings=_num_positions(run),
        tie_word_embeddings=config.tie_embeddings != "none",
        pad_token_id=layout.pad,
        eos_token_id=layout.eos,
        bos_token_id=None,
        decoder_start_token_id=layout.start,
        forced_eos_token_id=None,
        dtype="float32",
        **options,
    )
    description.to_json_file(folder / "config.json", use_diff=False)


def _num_positions(run: TrainedRun) -> int:
    longest = run.config.corpus.max_tokens * max(1.0, run.config.decoding.max_length_ratio)
    return min(max(512, int(longest) + 12), 2**14)


def _generation(decoding: DecodingConfig, layout: _Layout) -> dict[str, Any]:
    never = {PAD_ID, SOS_ID} | ({UNK_ID} if decoding.unk == "avoid" else set())
    theirs = {ours: index for index, ours in enumerate(layout.rows[1])}
    return {
        **{"pad_token_id": layout.pad, "eos_token_id": layout.eos, "decoder_start_token_id": layout.start},
        **{"num_beams": decoding.beam_size, "length_penalty": decoding.length_penalty, "max_length": MAX_LENGTH},
        "no_repeat_ngram_size": decoding.no_repeat_ngram or 0,
        "suppress_tokens": sorted(theirs[index] for index in never if index in theirs),
    }


def _weights(run: TrainedRun, layout: _Layout) -> dict[str, Tensor]:
    """Our weights by their names, with sines in the first half of the dimensions."""
    ours = {name: weight.detach().float() for name, weight in run.model.state_dict().items()}
    config = run.config.model
    order = interleaved(config.d_model).argsort()
    found: dict[str, Tensor] = {}
    for name, weight in ours.items():
        if name.startswith(("encoder", "decoder")):
            found[their_name(name)] = reordered(weight, name, order)
    if not config.qkv_bias:
        found |= {
            name.replace("weight", "bias"): torch.zeros(config.d_model)
            for name in list(found)
            if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
        }
    tables = {
        side: ours[f"{side}_embedding.table.weight"][rows][:, order]
        for side, rows in zip(("source", "target"), layout.rows, strict=True)
    }
    if config.tie_embeddings == "all":
        found["model.shared.weight"] = tables["source"]
    else:
        found["model.encoder.embed_tokens.weight"] = tables["source"]
        found["model.decoder.embed_tokens.weight"] = tables["target"]
        if config.tie_embeddings == "none":
            found["lm_head.weight"] = ours["projection.weight"][layout.rows[1]][:, order]
    bias = ours["projection.bias"] if config.output_bias else torch.zeros(len(layout.rows[1]) + 1)
    found["final_logits_bias"] = bias[layout.rows[1]][None]
    if config.norm_order == "pre":
        positions = sinusoids(_num_positions(run), config.d_model)[:, order]
        found |= {f"model.{stack}.embed_positions.weight": positions.clone() for stack in ("encoder", "decoder")}
    return {name: weight.contiguous().clone() for name, weight in found.items()}


def _write_fast_tokenizer(run: TrainedRun, folder: Path) -> None:
    """The tokenizer of both sides, which adds [EOS]; tags are recognised anywhere in a text."""
    tokenizer = tokenizers.Tokenizer.from_str(run.tokenizers[0].to_json())
    special = {"pad_token": PAD, "unk_token": UNK, "bos_token": SOS, "eos_token": EOS}
    tokenizer.add_special_tokens(list(special.values()))
    tokenizer.add_tokens([tokenizers.AddedToken(tag, rstrip=True, normalized=False) for tag in run.config.corpus.tags])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A $B {EOS}", special_tokens=[(EOS, EOS_ID)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    # Versions 4 of transformers do not know the class that `save_pretrained` of versions 5 names.
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **special}
    languages = {"source_lang": run.config.corpus.source, "target_lang": run.config.corpus.target}
    _write_json(folder / "tokenizer_config.json", settings | languages | {"model_max_length": run.max_tokens})


def _write_sentencepiece(run: TrainedRun, folder: Path) -> None:
    """The files of MarianTokenizer."""
    is_shared = run.config.tokenizer.shared
    names = [{"</s>": 0, "<unk>": 1, "<pad>": 2} for _ in run.tokenizers]
    for side, tokenizer, vocabulary in zip(("source", "target"), run.tokenizers, names, strict=True):
        (folder / f"{side}.spm").write_bytes(model_file(tokenizer))
        vocabulary |= {name: 3 + number for number, name in enumerate(entry_names(tokenizer))}
    _write_json(folder / "vocab.json", names[0])
    if not is_shared:
        _write_json(folder / "target_vocab.json", names[1])
    corpus = run.config.corpus
    settings = {
        "tokenizer_class": "MarianTokenizer",
        **{"source_lang": corpus.source, "target_lang": corpus.target, "separate_vocabs": not is_shared},
        **{"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>", "model_max_length": run.max_tokens},
    }
    _write_json(folder / "tokenizer_config.json", settings)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


class _Engine:
    """The exported folder as `transformers` uses it; ids are ours."""

    def __init__(self, transformers: Any, folder: Path, layout: _Layout) -> None:
        self._layout = layout
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")  # Not used here.
            self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._theirs = [{ours: index for index, ours in enumerate(rows)} for rows in layout.rows]

    def source_ids(self, text: str) -> list[int]:
        """Our ids of a text by their tokenizer, without the end."""
        return [self._layout.rows[0][index] for index in self.tokenizer(text)["input_ids"][:-1]]

    @torch.inference_mode()
    def search(
        self, sources: Sequence[Ids], decoding: DecodingConfig, num_best: int = 1, prefixes: Sequence[Ids] = ()
    ) -> list[list[Hypothesis]]:
        """Greedy search."""
        found = []
        never = _generation(decoding, self._layout)["suppress_tokens"]
        for source in sources:
            longest = max_length(len(source), decoding)
            limits = {"max_length": None, "max_new_tokens": longest, "suppress_tokens": never}
            limits["no_repeat_ngram_size"] = 0  # Ours, with which it is compared, has no such option, either.
            (output,) = self._model.generate(self._source(source), num_beams=1, do_sample=False, **limits)
            ids = [int(index) for index in output[1:] if int(index) not in (self._layout.eos, self._layout.pad)]
            found.append([Hypothesis([self._layout.rows[1][index] for index in ids], 0.0, None)])
        return found

    @torch.inference_mode()
    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        """See `Engine`; the readings have no attention."""
        found = []
        for source, target in pairs:
            ids = [self._theirs[1][index] for index in target]
            decoder = torch.tensor([[self._layout.start, *ids]])
            logits = self._model(input_ids=self._source(source), decoder_input_ids=decoder).logits[0].float()
            log_probs = logits.log_softmax(dim=-1)[range(len(ids) + 1), [*ids, self._layout.eos]]
            found.append(ForcedDecoding(log_probs.tolist(), None))
        return found

    def _source(self, ids: Ids) -> Tensor:
        return torch.tensor([[*(self._theirs[0][index] for index in ids), self._layout.eos]])


def _check_ids(run: TrainedRun, engine: _Engine, sentences: Sequence[str], output: Path) -> None:
    for sentence, ids in zip(sentences, run.tokenizers[0].encode(sentences), strict=True):
        if engine.source_ids(sentence) != list(ids):
            raise MtError(
                f"{output}: the exported tokenizer splits {sentence[:60]!r} differently; nothing was exported"
            )
