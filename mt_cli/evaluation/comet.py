"""COMET, a learned metric (Rei et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mt_cli.corpus.rows import Pair
from mt_cli.errors import InputError
from mt_cli.evaluation.scores import Score


def load_comet(name: str) -> Any:
    """A COMET model (Rei et al. 2020), by its name on the Hugging Face hub or its checkpoint file.

    Raises InputError if the package is not installed or the model is not available.
    """
    try:
        import comet
    except ImportError:
        raise InputError(
            "--comet: COMET is not installed; in the folder of mt, run pip install -e '.[comet]'"
        ) from None
    try:
        return comet.load_from_checkpoint(name if Path(name).is_file() else comet.download_model(name))
    except Exception as error:  # Libraries for downloads and checkpoints raise errors of many types.
        raise InputError(
            f"--comet {name}: this model is not available ({type(error).__name__}); use a name on the Hugging Face "
            "hub, from which it is downloaded once, or the path of a checkpoint file"
        ) from None


def comet_score(model: Any, pairs: Sequence[Pair], hypotheses: Sequence[str]) -> Score:
    both = zip(pairs, hypotheses, strict=True)
    rows = [{"src": source, "mt": hypothesis, "ref": target} for (source, target), hypothesis in both]
    found = model.predict(rows, batch_size=16, gpus=int(torch.cuda.is_available()))
    return Score(score=round(float(found.system_score), 4))
