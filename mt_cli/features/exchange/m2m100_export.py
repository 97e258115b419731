"""A run whose vocabulary has languages as a folder of `M2M100ForConditionalGeneration`: the inverse of `m2m100.py`.

With bpe the tokenizer is NllbTokenizer, which puts `src_lang` before a text. No class of `transformers` does that with
any languages for unigram; there the text begins with the language.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, normalizers, pre_tokenizers
from torch import Tensor

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.directions import direction_of
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import ForcedDecoding, Ids
from mt_cli.decoding.next_tokens import max_length
from mt_cli.decoding.search import Hypothesis
from mt_cli.errors import MtError, one_line
from mt_cli.features.exchange import names
from mt_cli.features.exchange.comparison import Agreement, check_export, with_tags
from mt_cli.features.exchange.m2m100_vocabulary import BOS, EOS, MASK, PAD, SPM, UNK
from mt_cli.features.exchange.sentencepiece import model_file, read_pieces
from mt_cli.machine.storage import new_folder
from mt_cli.tokenizer.special_tokens import ABSENT, EOS_ID, LANGUAGE_ENTRY, PAD_ID, SOS_ID, SPACE, UNK_ID
from mt_cli.tokenizer.tokenizer import Tokenizer

_FIRST = (SOS_ID, PAD_ID, EOS_ID, UNK_ID)
"""Our ids of the first entries of M2M100: <s>, <pad>, </s>, <unk>. All other entries have our ids."""
_EOS = 2
_IN_TEXT_SAFE = re.compile(r"[a-z]{2,3}_[A-Z][a-z]{3}")


def transformers_code(language: str) -> str:
    """Name of the token of a language: `eng_Latn`, or `__en__`, because a token may not be a part of a word."""
    return language if _IN_TEXT_SAFE.fullmatch(language) else f"__{language}__"


def export_m2m100(transformers: Any, run: TrainedRun, output: Path, sentences: Sequence[str], card: str) -> Agreement:
    """Write a folder for `AutoModelForSeq2SeqLM` and `AutoTokenizer`, and compare it with the run on the sentences.

    Raises InputError if the folder exists or cannot be made. Raises MtError if the exported model disagrees or the
    folder cannot be written; nothing is left in it then.
    """
    with new_folder(output) as folder:
        special = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": _EOS, "decoder_start_token_id": _EOS}
        config = run.config.model
        options = {key: getattr(config, ours) for ours, keys in names.OPTIONS.items() for key in keys}
        transformers.M2M100Config(
            architectures=["M2M100ForConditionalGeneration"],
            vocab_size=run.tokenizers[0].vocab_size,
            activation_function=names.ACTIVATIONS[config.activation],
            **{"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "dtype": "float32"},
            **special,
            **options,
        ).to_json_file(folder / "config.json", use_diff=False)
        generation = special | _generation(run)
        transformers.GenerationConfig(**generation).save_pretrained(folder)
        save_file(_weights(run), folder / "model.safetensors", {"format": "pt"})
        _write_tokenizer(run, folder)
        (folder / "README.md").write_text(card, encoding="utf-8")
        try:
            engine = _Engine(transformers, folder, run)
        except Exception as error:  # The library fails in many ways.
            raise MtError(f"{output}: transformers cannot load the export: {one_line(error)}") from error
        for sentence in with_tags(run, sentences):
            if engine.source_ids(sentence) != run.tokenizers[0].encode([sentence])[0]:
                problem = f"the exported tokenizer splits {sentence[:60]!r} differently"
                raise MtError(f"{output}: {problem}; nothing was exported")
        return check_export(run, engine, sentences, output)


def _generation(run: TrainedRun) -> dict[str, Any]:
    """Options of `generate`; the target language is that of the default tag, if there is one."""
    decoding, default = run.config.decoding, run.config.corpus.tagging.default
    never = [0, 1, *([3] if decoding.unk == "avoid" else [])]
    options: dict[str, Any] = {"num_beams": decoding.beam_size, "length_penalty": decoding.length_penalty}
    options |= {"max_length": 512, "no_repeat_ngram_size": decoding.no_repeat_ngram or 0, "suppress_tokens": never}
    if default is not None and (first := run.tokenizers[0].first_target_ids([default])[0]):
        options["forced_bos_token_id"] = first[0]
    return options


def _weights(run: TrainedRun) -> dict[str, Tensor]:
    """Our weights under the names of `transformers`."""
    ours = {name: weight.detach().float() for name, weight in run.model.state_dict().items()}
    table = ours["source_embedding.table.weight"]
    weights = {
        names.transformers_name(name): weight
        for name, weight in ours.items()
        if name.startswith(("encoder", "decoder"))
    }
    weights[names.SHARED_TABLE] = torch.cat([table[list(_FIRST)], table[len(_FIRST) :]])
    return {name: weight.contiguous().clone() for name, weight in weights.items()}


def _names(tokenizer: Tokenizer) -> list[str]:
    """Name of each entry in the exported order."""
    entries = tokenizer.tokens(range(len(_FIRST), tokenizer.vocab_size))
    renamed = [
        transformers_code(match[1]) if (match := LANGUAGE_ENTRY.fullmatch(entry)) else entry.removeprefix(ABSENT)
        for entry in entries
    ]
    return [BOS, PAD, EOS, UNK, *(MASK if name == "[mask]" else name for name in renamed)]


def _write_tokenizer(run: TrainedRun, folder: Path) -> None:
    """Write the tokenizer of both sides, which adds the end, and its settings."""
    source, languages = run.tokenizers[0], [transformers_code(language) for language in run.tokenizers[0].languages]
    entries, state = _names(source), json.loads(source.to_json())
    model = state["model"]
    is_bpe = model["type"] == "BPE"
    if is_bpe:
        model |= {"vocab": {name: index for index, name in enumerate(entries)}, "unk_token": UNK}
    else:
        scores = [score for _, score in model["vocab"]]
        order = [*_FIRST, *range(len(_FIRST), len(scores))]
        model |= {"vocab": [[name, scores[index]] for name, index in zip(entries, order, strict=True)], "unk_id": 3}
    state |= {"normalizer": None, "pre_tokenizer": None, "decoder": None}
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(state))
    _set_steps(tokenizer, source, folder / SPM)
    special = [name for name in (BOS, PAD, EOS, UNK, MASK) if name in entries]
    tokenizer.add_special_tokens([*special, *(tokenizers.AddedToken(name, rstrip=True) for name in languages)])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A $B {EOS}", special_tokens=[(EOS, _EOS)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    corpus = run.config.corpus
    settings: dict[str, Any] = {"bos_token": BOS, "pad_token": PAD, "eos_token": EOS, "unk_token": UNK}
    settings |= {"clean_up_tokenization_spaces": False, "model_max_length": run.max_tokens}
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast"}
    if is_bpe:
        settings |= {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": False, "sep_token": EOS, "cls_token": BOS}
        settings |= {"mask_token": MASK if MASK in entries else None, "extra_special_tokens": languages}
        settings |= {"src_lang": transformers_code(corpus.source), "tgt_lang": transformers_code(corpus.target)}
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _set_steps(tokenizer: tokenizers.Tokenizer, source: Tokenizer, path: Path) -> None:
    """Set the steps of NLLB's own `tokenizer.json`, with the options in the SentencePiece model of our tokenizer.

    The file of that model, at a free path, is not kept: `transformers` 4 would read other ids from the order in it.
    """
    path.write_bytes(model_file(source))
    pieces = read_pieces(path)
    path.unlink()
    steps: list[Any] = [normalizers.Precompiled(pieces.charsmap)] if pieces.charsmap else []
    steps += [normalizers.Strip()] * pieces.strips_spaces + [normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    scheme: Any = "always" if pieces.adds_prefix else "never"
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme)
    tokenizer.decoder = decoders.Metaspace(SPACE, scheme)


class _Engine:
    """The exported folder as `transformers` uses it; ids are ours."""

    def __init__(self, transformers: Any, folder: Path, run: TrainedRun) -> None:
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._run = run

    def source_ids(self, text: str) -> list[int]:
        """Our ids of a text with its tag by the exported tokenizer, without the end."""
        tag, _, rest = text.partition(" ")
        direction = direction_of(tag)
        if direction is None:
            return _ours(self._tokenizer(text)["input_ids"][:-1])
        name = transformers_code(direction[0])
        if hasattr(self._tokenizer, "src_lang"):
            self._tokenizer.src_lang = name
        else:
            rest = f"{name} {rest}"
        return _ours(self._tokenizer(rest)["input_ids"][:-1])

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
        for source, prefix in zip(sources, prefixes or [()] * len(sources), strict=True):
            (output,) = self._model.generate(
                _padded(source),
                forced_bos_token_id=_theirs(prefix)[0] if prefix else None,
                **{"max_length": None, "max_new_tokens": max_length(len(source), decoding)},
                **{"num_beams": 1, "do_sample": False, "no_repeat_ngram_size": 0, "suppress_tokens": [0, 1, 3]},
            )
            ids = [index for index in output[1:].tolist() if index not in (_EOS, 1)]
            hypotheses.append([Hypothesis(_ours(ids), 0.0, None)])
        return hypotheses

    @torch.inference_mode()
    def force_decode(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[ForcedDecoding]:
        """See `Engine`; the readings have no attention."""
        readings = []
        for source, target in pairs:
            ids = _theirs(target)
            decoder_ids = torch.tensor([[_EOS, *ids]])
            logits = self._model(input_ids=_padded(source), decoder_input_ids=decoder_ids).logits[0].float()
            log_probs = logits.log_softmax(dim=-1)[range(len(ids) + 1), [*ids, _EOS]]
            readings.append(ForcedDecoding(log_probs.tolist(), None))
        return readings


_THEIRS = {ours: theirs for theirs, ours in enumerate(_FIRST)}


def _ours(ids: Ids) -> list[int]:
    """Our ids for those of the export."""
    return [_FIRST[index] if index < len(_FIRST) else index for index in ids]


def _theirs(ids: Ids) -> list[int]:
    """Ids of the export for ours."""
    return [_THEIRS.get(index, index) for index in ids]


def _padded(source: Ids) -> Tensor:
    return torch.tensor([[*_theirs(source), _EOS]])
