"""Writing a trained run as a model that CTranslate2 serves, and as a plain bundle.

An export is called good only after both engines have given the same sentences the same translations and probabilities.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import save_file

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config, DecodingConfig
from mt_cli.decoding.engine import Engine, Ids
from mt_cli.errors import InputError, MtError
from mt_cli.export.served import DESCRIPTION, CTranslate2Engine, import_ctranslate2
from mt_cli.export.specification import specification
from mt_cli.storage import new_folder, read_regular
from mt_cli.tokenizer import SPECIAL_TOKENS
from mt_cli.translator.translator import Translator

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")
_TOLERANCES = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
_TOLERANCE_OF_INTEGERS = 0.25
_MAX_SAMPLES_BYTES = 2**26
_MAX_POSITIONS = 2**16


class Run(NamedTuple):
    """What is exported: the model in fp32 on the CPU, and the config it was trained with."""

    translator: Translator
    config: Config

    @classmethod
    def load(cls, path: Path) -> Run:
        """That of a run directory; raises as `Translator.load` does."""
        return cls(Translator.load(path, "cpu", "fp32"), RunDirectory(path).config())


@dataclass(frozen=True)
class Agreement:
    """What comparing the two engines showed."""

    num_sentences: int
    num_equal: int
    """Greedy translations that are the same."""
    difference: float
    """Mean absolute difference of the log-probabilities of tokens, in nats."""


def export_ctranslate2(run: Run, output: Path, quantization: str, sentences: Sequence[str]) -> Agreement:
    """Write a CTranslate2 model into the new folder `output`, and translate some sentences with it and with ours.

    Raises:
        InputError: if ctranslate2 is not installed, or the folder is there already or cannot be made.
        MtError: if the engines disagree, or the folder cannot be written; nothing is left of it.
    """
    ctranslate2 = import_ctranslate2()
    if quantization not in QUANTIZATIONS:
        raise InputError(f"--quantization {quantization}: use one of {', '.join(QUANTIZATIONS)}")
    translator, config = run
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    num_positions = int(min(config.corpus.max_tokens * max(1.0, config.decoding.max_length_ratio), _MAX_POSITIONS)) + 12
    spec = specification(ctranslate2.specs, translator.model, tokenizers, num_positions)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    with new_folder(output) as folder:
        spec.save(str(folder))
        _describe(run, folder)
        sources = [ids[: translator.max_tokens] for ids in translator.source_tokenizer.encode(sentences) if ids]
        engine = CTranslate2Engine(ctranslate2, folder, tokenizers, "cpu")
        agreement = compare(translator.engine, engine, sources, config.decoding)
        tolerance = _TOLERANCES.get(quantization, _TOLERANCE_OF_INTEGERS)
        if not agreement.difference <= tolerance:
            raise MtError(
                f"{output}: the exported model disagrees with ours: log-probabilities differ by "
                f"{agreement.difference:.4f} nats a token, more than {tolerance}; nothing was exported"
            )
    return agreement


def export_bundle(run: Run, output: Path) -> None:
    """Write weights (safetensors), tokenizers (of the `tokenizers` library) and `model.json` into a new folder.

    Raises:
        InputError: if the folder is there already, or cannot be made.
        MtError: if it cannot be written; nothing is left of it.
    """
    weights = {name: weight.detach().float().contiguous() for name, weight in run.translator.model.named_parameters()}
    with new_folder(output) as folder:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        _describe(run, folder)


def _describe(run: Run, output: Path) -> None:
    """Write the tokenizers and what a program needs to know beside them. No path or name of a corpus is in it."""
    translator, config = run
    source, target = translator.source_tokenizer, translator.target_tokenizer
    for name, tokenizer in (("source", source), ("target", target)):
        (output / f"tokenizer.{name}.json").write_text(tokenizer.to_json(), encoding="utf-8")
    description = {
        "architecture": "encoder-decoder Transformer; names of weights as in mt_cli/model/transformer.py",
        "model": config.model.model_dump(mode="json"),
        "decoding": config.decoding.model_dump(mode="json"),
        "source_language": config.corpus.source,
        "target_language": config.corpus.target,
        "tags": list(config.corpus.tags),
        "max_tokens": translator.max_tokens,
        "source_vocab_size": source.vocab_size,
        "target_vocab_size": target.vocab_size,
        "special_tokens": {token: index for index, token in enumerate(SPECIAL_TOKENS)},
        "source": "tokens followed by [EOS]",
        "target": "[SOS] followed by tokens; a translation ends with [EOS]",
    }
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    (output / DESCRIPTION).write_text(text, encoding="utf-8")


def watched_sentences(run: Path, number: int = 20) -> list[str]:
    """Some sentences that a run was watched with, for comparing engines."""
    try:
        lines = read_regular(run / "samples.txt", _MAX_SAMPLES_BYTES).decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        lines = []
    sources = [line.removeprefix("source").strip() for line in lines if line.startswith("source ")]
    return list(dict.fromkeys(sources))[:number] or ["a b c", "1 2 3"]


def compare(ours: Engine, theirs: Engine, sources: Sequence[Ids], decoding: DecodingConfig) -> Agreement:
    """Translate greedily and score some sentences with two engines."""
    greedy = DecodingConfig(beam_size=1, unk="avoid", max_length_ratio=decoding.max_length_ratio)
    expected = [hypothesis.ids for (hypothesis,) in ours.search(sources, greedy)]
    found = [hypothesis.ids for (hypothesis,) in theirs.search(sources, greedy)]
    pairs = list(zip(sources, expected, strict=True))
    differences = [
        abs(log_prob - other)
        for reading, their_reading in zip(ours.read(pairs), theirs.read(pairs), strict=True)
        for log_prob, other in zip(reading.log_probs, their_reading.log_probs, strict=True)
    ]
    num_equal = sum(one == other for one, other in zip(expected, found, strict=True))
    return Agreement(len(sources), num_equal, sum(differences) / max(1, len(differences)))
