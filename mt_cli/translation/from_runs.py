"""Translators of run directories, which our own engine computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mt_cli.checkpoint.checkpoint import digest_of
from mt_cli.checkpoint.trained import load_together
from mt_cli.corpus.protected_text import Protection
from mt_cli.decoding.constraints import ReservedIds
from mt_cli.decoding.transformer_engine import TransformerEngine
from mt_cli.model.ensemble import Ensemble
from mt_cli.runtime.devices import pick_device, pick_precision, use_threads
from mt_cli.runtime.group import Group
from mt_cli.translation.translator import Translator


def load_runs(
    paths: Sequence[str | Path], device: str, precision: str, checkpoint: str | None, threads: int | None, group: Group
) -> Translator:
    """Load a run, or an ensemble of several; see `Translator.load`."""
    use_threads(threads)
    runs = load_together(paths, "an ensemble", checkpoint)
    first, corpus, torch_device = runs[0], runs[0].config.corpus, pick_device(device, group)
    model = Ensemble([run.model for run in runs]) if len(runs) > 1 else first.model
    model = model.to(torch_device, pick_precision(precision, torch_device)).eval()
    return Translator(
        TransformerEngine(model, reserved=ReservedIds.of(first.tokenizers)),
        first.tokenizers,
        first.config.decoding,
        min(run.max_tokens for run in runs),
        corpus.tagging,
        corpus.languages,
        min(run.config.corpus.max_tokens for run in runs),
        Protection.of(corpus.protect),
        lambda: digest_of(model.state_dict()),
        first.state.sentences_seen,
        torch_device.type != "cpu",
    )
