"""Export to CTranslate2, checked: both engines must agree about the probabilities of the same translations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.decoding.ctranslate2 import CTranslate2Engine, import_ctranslate2
from mt_cli.decoding.engine import TransformerEngine
from mt_cli.errors import InputError
from mt_cli.features.exchange.agreement import Agreement, compare
from mt_cli.features.exchange.specification import specification
from mt_cli.machine.storage import new_folder
from mt_cli.translation.exported import describe

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")
_MAX_POSITIONS = 2**16


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
        describe(run, folder)
        sources = [ids[: run.max_tokens] for ids in run.tokenizers[0].encode(sentences) if ids]
        engine = CTranslate2Engine(ctranslate2, folder, run.tokenizers, "cpu", is_strict=True)
        agreement = compare(TransformerEngine(run.model), engine, sources, decoding)
        agreement.check(output, quantization)
    return agreement
