"""Folders that Hugging Face `transformers` loads, whatever class their models have: weights, search, check."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig, ModelConfig
from mt_cli.decoding.engine import Attention, ForcedDecoding, Hypothesis, Ids, NBest, Sentence, max_length
from mt_cli.errors import InputError, MtError, one_line
from mt_cli.exchange.comparison import Agreement, check_export, with_tags
from mt_cli.model.transformer import Transformer, outline
from mt_cli.tokenizer.special_tokens import PAD_ID, SOS_ID, UNK_ID

MAX_LENGTH = 512
"""Default maximum length for `generate`, including the token that a translation begins with."""

PICKLE_ADVICE = (
    "the weights are in Python's pickle format (pytorch_model.bin), which can run code when it is read; if you trust "
    "the source, add --allow-pickle, which reads tensors alone (weights_only of torch.load)"
)


def import_transformers() -> Any:
    """The library, without its messages; raises InputError if it is not installed."""
    try:
        import transformers
    except ImportError:
        raise InputError("transformers is not installed; pip install 'transformers>=5'") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def read_weights(folder: Path, allow_pickle: bool) -> dict[str, Tensor]:
    """Weights of a folder of `transformers` in fp32; a tied weight has all of its names.

    Raises InputError if `transformers` is not installed or cannot read them, if they do not fit their config, or if
    they are pickled and `allow_pickle` is false.
    """
    has_safetensors = any((folder / name).exists() for name in ("model.safetensors", "model.safetensors.index.json"))
    if not has_safetensors and not allow_pickle and any(folder.glob("*.bin*")):
        raise InputError(f"{folder}: {PICKLE_ADVICE}")
    load = import_transformers().AutoModelForSeq2SeqLM.from_pretrained
    options = {"dtype": torch.float32, "trust_remote_code": False, "local_files_only": True}
    try:
        with warnings.catch_warnings(action="ignore"):
            model, report = load(folder, use_safetensors=has_safetensors, output_loading_info=True, **options)
    except Exception as error:  # The library fails in many ways.
        raise InputError(f"{folder}: transformers cannot read its weights: {one_line(error)}") from None
    if wrong := sorted({*report["missing_keys"], *report["unexpected_keys"]}):
        raise InputError(f"{folder}: its weights do not fit its config: {wrong[0]}")
    return {name: weight.detach() for name, weight in model.state_dict().items()}


def load_model(
    folder: Path,
    config: ModelConfig,
    vocab_sizes: tuple[int, int],
    rename: Callable[[Transformer], Mapping[str, Tensor]],
) -> Transformer:
    """Model with the weights that `rename` returns for a model on the device `meta`.

    Raises InputError, before memory is allocated, if the weights do not fit.
    """
    model = outline(config, *vocab_sizes)
    try:
        renamed = rename(model)
        for name, weight in model.state_dict().items():
            if renamed[name].shape != weight.shape:
                raise ValueError(f"{name} has another shape")
    except (LookupError, ValueError) as error:
        raise InputError(f"{folder}: its weights do not fit its config: {one_line(error)}") from None
    for name, weight in model.named_parameters():  # A tied weight, which has several names, stays one.
        torch.utils.swap_tensors(weight, nn.Parameter(renamed[name].clone(), weight.requires_grad))
    return model


@dataclass(frozen=True)
class Layout:
    """Numbers of the entries in the exported folder."""

    rows: tuple[list[int], list[int]]
    """Our id for each exported id, for the source and for the target."""
    pad: int
    eos: int
    start: int

    def special_ids(self) -> dict[str, int]:
        return {"pad_token_id": self.pad, "eos_token_id": self.eos, "decoder_start_token_id": self.start}

    def generation(self, decoding: DecodingConfig) -> dict[str, Any]:
        never = {PAD_ID, SOS_ID} | ({UNK_ID} if decoding.unk == "avoid" else set())
        return self.special_ids() | {
            **{"num_beams": decoding.beam_size, "length_penalty": decoding.length_penalty, "max_length": MAX_LENGTH},
            "no_repeat_ngram_size": decoding.no_repeat_ngram or 0,
            "suppress_tokens": [index for index, ours in enumerate(self.rows[1]) if ours in never],
        }


Parts = tuple[Layout, Any, dict[str, Any], dict[str, Tensor]]
"""A run in the form of a class of `transformers`: layout, config, options of generation, weights."""


class TransformersEngine:
    """An exported folder as `transformers` uses it; ids are ours."""

    def __init__(self, transformers: Any, folder: Path, layout: Layout) -> None:
        self._layout = layout
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Recommended: pip install sacremoses")  # Not used here.
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._exported_ids = [{ours: index for index, ours in enumerate(rows)} for rows in layout.rows]

    def source_ids(self, text: str) -> list[int]:
        return [self._layout.rows[0][index] for index in self._tokenizer(text)["input_ids"][:-1]]

    @torch.inference_mode()
    def search(self, sentences: Sequence[Sentence], decoding: DecodingConfig, num_best: int = 1) -> list[NBest]:
        """Search greedily, without `no_repeat_ngram`, like the search that the result is compared with.

        A prefix is the language of the target.
        """
        hypotheses = []
        options = {"suppress_tokens": self._layout.generation(decoding)["suppress_tokens"], "no_repeat_ngram_size": 0}
        for source, prefix, _ in sentences:
            (output,) = self._model.generate(
                self._source(source),
                forced_bos_token_id=self._exported_ids[1][prefix[0]] if prefix else None,
                **{"max_length": None, "max_new_tokens": max_length(len(source), decoding)},
                **{"num_beams": 1, "do_sample": False},
                **options,
            )
            ids = [index for index in output[1:].tolist() if index not in (self._layout.eos, self._layout.pad)]
            hypotheses.append([Hypothesis([self._layout.rows[1][index] for index in ids], 0.0)])
        return hypotheses

    @torch.inference_mode()
    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        readings = []
        for source, target in pairs:
            ids = [self._exported_ids[1][index] for index in target]
            decoder_ids = torch.tensor([[self._layout.start, *ids]])
            logits = self._model(input_ids=self._source(source), decoder_input_ids=decoder_ids).logits[0].float()
            log_probs = logits.log_softmax(dim=-1)[range(len(ids) + 1), [*ids, self._layout.eos]]
            readings.append(ForcedDecoding(log_probs.tolist(), None))
        return readings

    def attend(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[Attention]:
        """See `Engine`; not implemented, because comparisons need no attention."""
        raise NotImplementedError

    def _source(self, ids: Ids) -> Tensor:
        return torch.tensor([[*(self._exported_ids[0][index] for index in ids), self._layout.eos]])


def check_folder(run: TrainedRun, engine: TransformersEngine, sentences: Sequence[str], output: Path) -> Agreement:
    """Compare the tokenizer and the model of an exported folder with the run on the sentences.

    Raises MtError if they disagree; `output` is the name of the folder in messages.
    """
    texts = with_tags(run, sentences)
    for text, ids in zip(texts, run.tokenizers[0].encode(texts), strict=True):
        if engine.source_ids(text) != list(ids):
            problem = f"the exported tokenizer splits {text[:60]!r} differently"
            raise MtError(f"{output}: {problem}; nothing was exported")
    return check_export(run, engine, sentences, output)
