"""Checkpoint files: written atomically, read with `safetensors`.

Weights and optimizer state are tensors in a safetensors file, everything else is JSON in its header.
Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mt_cli.checkpoint.state import RunState
from mt_cli.errors import DamagedFileError, RunError, reason
from mt_cli.model.adapters import saved_weights
from mt_cli.runtime.files import check_regular, write_atomically

FORMAT = 3
"""Version of the checkpoint format; increase it when older checkpoints can no longer be read."""


def save_checkpoint(
    path: Path,
    model: nn.Module,
    state: Mapping[str, Any],
    optimizer: torch.optim.Optimizer | None = None,
    average: Mapping[str, Tensor] | None = None,
) -> None:
    """Write weights, `asdict` of a state and, with an optimizer, everything that exact resumption needs.

    `average` has the moving average of each weight, which `load_weights_into` prefers. Raises MtError if the file
    cannot be written; the previous file then stays unchanged.
    """
    tensors = {f"model.{name}": weight.detach() for name, weight in saved_weights(model).items()}
    tensors |= {f"average.{name}": weight for name, weight in (average or {}).items()}
    tensors = {name: weight.cpu().contiguous() for name, weight in tensors.items()}
    metadata = {"format": str(FORMAT), "state": json.dumps(dict(state))}
    for index, values in optimizer.state_dict()["state"].items() if optimizer else ():
        tensors |= {f"optimizer.{index}.{name}": value.cpu().contiguous() for name, value in values.items()}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def digest_of(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, dtypes and values, in hexadecimal digits."""
    sha256 = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        sha256.update(f"{name} {weight.dtype}".encode())
        sha256.update(weight.detach().cpu().flatten().view(torch.uint8).numpy().data)
    return sha256.hexdigest()


class Checkpoint:
    """Checkpoint file whose header has been read; tensors are read when they are needed.

    The file is mapped into memory: it may be replaced, as `write_atomically` does, but not changed in place.
    """

    state: RunState

    def __init__(self, path: Path) -> None:
        """Raises RunError if the file cannot be read or is of another format, DamagedFileError if it is damaged."""
        self.path = path
        try:
            check_regular(path)
            self._file = safe_open(path, framework="pt")
            metadata = self._file.metadata() or {}
        except FileNotFoundError:
            raise RunError(f"{path}: no such file; the run has not saved a model yet") from None
        except (OSError, UnicodeEncodeError) as error:
            raise RunError(f"{path}: cannot be read: {reason(error)}") from None
        except SafetensorError as error:
            raise _damaged(path, error) from None
        if metadata.get("format") != str(FORMAT):
            raise RunError(f"{path}: not a checkpoint of this version of mt (format {FORMAT}); train it again")
        try:
            self.state = RunState.from_state(json.loads(metadata["state"]))
        except (ValueError, KeyError) as error:
            raise _damaged(path, error) from None
        self._shapes = {name: self._file.get_slice(name).get_shape() for name in self._file.keys()}  # noqa: SIM118
        self._kind = "average" if any(name.startswith("average.") for name in self._shapes) else "model"

    @cached_property
    def digest(self) -> str:
        """Digest of the weights, whatever optimizer and state are."""
        names = [name for name in self._shapes if name.startswith(("model.", "average."))]
        return digest_of({name: self._file.get_tensor(name) for name in names})

    def check_fits(self, model: nn.Module) -> None:
        """Raise RunError unless the file has all `saved_weights` in their shapes; the model may be on `meta`."""
        for kind in dict.fromkeys(("model", self._kind)):
            for name, weight in saved_weights(model).items():
                saved, expected = self._shapes.get(f"{kind}.{name}"), list(weight.shape)
                if saved is None:
                    raise RunError(f"{self.path}: no weight {name} in it; the config next to it is of another model")
                if saved != expected:
                    raise RunError(f"{self.path}: {name} is {saved}, but config and tokenizers require {expected}")

    @torch.no_grad()
    def load_weights_into(self, model: nn.Module) -> None:
        """Fill a model for translation, with the average if the file has one. Raises RunError as `check_fits` does.

        Weights on `meta` become weights on the CPU, so that no memory is filled twice.
        """
        self.check_fits(model)
        for name, weight in saved_weights(model).items():
            saved = self._file.get_tensor(f"{self._kind}.{name}")
            if weight.is_meta:  # A copy in memory: the file may be on a disk that is removed.
                torch.utils.swap_tensors(weight, nn.Parameter(saved.clone(), weight.requires_grad))
            else:
                weight.copy_(saved)

    @torch.no_grad()
    def restore(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, average: Mapping[str, Tensor] | None = None
    ) -> None:
        """Fill model, optimizer and the average, if there is one, to resume training; raises RunError as `check_fits`.

        Random numbers need no state: they follow from the seed, the step and the place of a batch in it.
        """
        self.check_fits(model)
        self._copy("model", saved_weights(model))
        self._copy("average", average or {})
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": self._optimizer_state(), "param_groups": groups})

    def weights(self) -> dict[str, Tensor]:
        """Weights of the model by name, on the CPU, not averaged."""
        names = [name for name in self._shapes if name.startswith("model.")]
        return {name.removeprefix("model."): self._file.get_tensor(name) for name in names}

    def _copy(self, kind: str, weights: Mapping[str, Tensor]) -> None:
        for name, weight in weights.items():
            weight.copy_(self._file.get_tensor(f"{kind}.{name}"))

    def _optimizer_state(self) -> dict[int, dict[str, Tensor]]:
        """State of each parameter by its index; empty before the first step."""
        state = defaultdict[int, dict[str, Tensor]](dict)
        for name in self._shapes:
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                state[int(index)][key] = self._file.get_tensor(name)
        return state


def _damaged(path: Path, error: Exception) -> DamagedFileError:
    return DamagedFileError(f"{path}: damaged checkpoint: {reason(error)}")
