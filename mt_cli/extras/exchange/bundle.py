"""Export of a trained run, as a model for CTranslate2 or as a plain bundle.

A CTranslate2 export succeeds only if both engines agree about the probabilities of the same translations.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Engine, Ids, TransformerEngine
from mt_cli.errors import InputError, MtError
from mt_cli.extras.exchange.ctranslate2 import DESCRIPTION, CTranslate2Engine, import_ctranslate2
from mt_cli.extras.exchange.specification import specification
from mt_cli.machine.storage import new_folder, read_regular
from mt_cli.tokenizer.tokenizer import SPECIAL_TOKENS

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")
TOLERANCES = {"float32": 1e-3, "float16": 0.02, "bfloat16": 0.1}
_TOLERANCE_OF_INTEGERS = 0.25
_MAX_SAMPLES_BYTES = 2**26
_MAX_POSITIONS = 2**16


@dataclass(frozen=True)
class Agreement:
    """The result of comparing two engines."""

    num_sentences: int
    num_equal: int
    """Greedy translations that are equal."""
    difference: float
    """Mean absolute difference of the log-probabilities of tokens, in nats."""


def export_ctranslate2(run: TrainedRun, output: Path, quantization: str, sentences: Sequence[str]) -> Agreement:
    """Write a CTranslate2 model into the new folder `output` and compare it with the run on the sentences.

    Raises InputError if ctranslate2 is not installed, or the folder exists or cannot be made. Raises MtError if the
    engines disagree or the folder cannot be written; nothing of it remains.
    """
    ctranslate2 = import_ctranslate2()
    if quantization not in QUANTIZATIONS:
        raise InputError(f"--quantization {quantization}: use one of {', '.join(QUANTIZATIONS)}")
    decoding, max_tokens = run.config.decoding, run.config.corpus.max_tokens
    num_positions = int(min(max_tokens * max(1.0, decoding.max_length_ratio), _MAX_POSITIONS)) + 12
    spec = specification(ctranslate2.specs, run.model, run.tokenizers, num_positions)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    with new_folder(output) as folder:
        spec.save(str(folder))
        _describe(run, folder)
        sources = [ids[: run.max_tokens] for ids in run.tokenizers[0].encode(sentences) if ids]
        engine = CTranslate2Engine(ctranslate2, folder, run.tokenizers, "cpu")
        agreement = compare(TransformerEngine(run.model), engine, sources, decoding)
        tolerance = TOLERANCES.get(quantization, _TOLERANCE_OF_INTEGERS)
        if not agreement.difference <= tolerance:
            raise MtError(
                f"{output}: the exported model disagrees with ours: log-probabilities differ by "
                f"{agreement.difference:.4f} nats per token, more than {tolerance}; nothing was exported"
            )
    return agreement


def export_bundle(run: TrainedRun, output: Path) -> None:
    """Write weights (safetensors), tokenizers (of the `tokenizers` library) and `model.json` into a new folder.

    Raises InputError if the folder exists or cannot be made. Raises MtError if it cannot be written; nothing of it
    remains.
    """
    weights = {name: weight.detach().float().contiguous() for name, weight in run.model.named_parameters()}
    with new_folder(output) as folder:
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        _describe(run, folder)


def _describe(run: TrainedRun, output: Path) -> None:
    """Write the tokenizers and the description that programs read; it has no paths or names of corpora."""
    config, (source, target) = run.config, run.tokenizers
    for name, tokenizer in (("source", source), ("target", target)):
        (output / f"tokenizer.{name}.json").write_text(tokenizer.to_json(), encoding="utf-8")
    description = {
        "architecture": "encoder-decoder Transformer; names of weights as in mt_cli/model/transformer.py",
        "model": config.model.model_dump(mode="json"),
        "tokenizer": config.tokenizer.model_dump(mode="json"),
        "decoding": config.decoding.model_dump(mode="json"),
        "source_language": config.corpus.source,
        "target_language": config.corpus.target,
        "tags": list(config.corpus.tags),
        "max_tokens": run.max_tokens,
        "source_vocab_size": source.vocab_size,
        "target_vocab_size": target.vocab_size,
        "special_tokens": {token: index for index, token in enumerate(SPECIAL_TOKENS)},
        "source": "tokens followed by [EOS]",
        "target": "[SOS] followed by tokens; a translation ends with [EOS]",
    }
    text = json.dumps(description, indent=2, ensure_ascii=False) + "\n"
    (output / DESCRIPTION).write_text(text, encoding="utf-8")


def sample_sentences(run: Path) -> list[str]:
    """Some sources from the `samples.txt` of a run directory."""
    try:
        lines = read_regular(run / "samples.txt", _MAX_SAMPLES_BYTES).decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        lines = []
    sources = [line.removeprefix("source").strip() for line in lines if line.startswith("source ")]
    return list(dict.fromkeys(sources))[:20] or ["a b c", "1 2 3"]


def compare(ours: Engine, theirs: Engine, sources: Sequence[Ids], decoding: DecodingConfig) -> Agreement:
    """Compare greedy translations of two engines, and the log-probabilities that both give to ours."""
    greedy = DecodingConfig(beam_size=1, unk="avoid", max_length_ratio=decoding.max_length_ratio)
    expected, found = ([best.ids for (best,) in engine.search(sources, greedy)] for engine in (ours, theirs))
    pairs = list(zip(sources, expected, strict=True))
    differences = [
        abs(log_prob - other)
        for reading, their_reading in zip(ours.read(pairs), theirs.read(pairs), strict=True)
        for log_prob, other in zip(reading.log_probs, their_reading.log_probs, strict=True)
    ]
    num_equal = sum(one == other for one, other in zip(expected, found, strict=True))
    return Agreement(len(sources), num_equal, sum(differences) / max(1, len(differences)))
