"""Checkpoints of a run: states to resume from, the best, validated weights for averages, frozen weights of adapters.

`Checkpoints` is the base class of `RunDirectory`, which adds the other files of a run (`directory.py`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mt_cli.checkpoint.checkpoint import Checkpoint, save_checkpoint
from mt_cli.checkpoint.state import RunState
from mt_cli.errors import DamagedFileError, RunError
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.files import first_free, remove


class Checkpoints:
    """Folder `checkpoints` of a run directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        checkpoints = path / "checkpoints"
        self.base_path = checkpoints / "base.safetensors"
        self.last_path = checkpoints / "last.safetensors"
        self.best_path = checkpoints / "best.safetensors"
        self.former_best_path = checkpoints / "former_best.safetensors"
        self._step_of_good_last: int | None = None

    def load_frozen_weights(self, model: Transformer) -> None:
        """Fill a model with the weights below adapters; raises RunError if they are missing, damaged or do not fit."""
        if not self.base_path.exists():
            raise RunError(f"{self.base_path}: missing; it has the weights that this run adapts; restore it")
        self.frozen_weights().load_weights_into(model)

    def frozen_weights(self) -> Checkpoint:
        """Frozen weights below adapters, which training cannot recreate; raises RunError if they are damaged."""
        try:
            return Checkpoint(self.base_path)
        except DamagedFileError as error:
            raise RunError(f"{error}; restore it, or train again with --fresh") from None

    def state_paths(self) -> list[Path]:
        """Files from which training can resume: `last`, then older ones, newest first."""
        return [path for path in (self.last_path, *self._older_states().values()) if path.is_file()]

    def newest_state(self) -> RunState:
        """State of the newest intact checkpoint; an empty state if there is none."""
        for path in self.state_paths():
            with suppress(DamagedFileError):
                return Checkpoint(path).state
        return RunState()

    def path_of(self, name: str | None = None) -> Path:
        """File of the checkpoint with this name; None: `best`, or `last` if no `best` exists.

        A name is `best`, `last`, `step-N` or `validated-N`. Raises RunError if it is missing.
        """
        if name is None:
            return self.best_path if self.best_path.exists() else self.last_path
        candidates = (self.best_path, *self.state_paths(), *self.validated().values())
        paths = {path.stem: path for path in candidates if path.is_file()}
        if name not in paths:
            raise RunError(f"{self.path}: no checkpoint {name}; there are {', '.join(paths) or 'none yet'}")
        return paths[name]

    def _older_states(self) -> dict[int, Path]:
        """Step and path of the states before `last`, newest first."""
        return dict(reversed(self._numbered("step").items()))

    def validated(self) -> dict[int, Path]:
        """Step and path of the validated checkpoints that are kept, oldest first."""
        return self._numbered("validated")

    def _numbered(self, kind: str) -> dict[int, Path]:
        paths = self.last_path.parent.glob(f"{kind}-*.safetensors")
        matches = [(re.fullmatch(rf"{kind}-(\d{{1,15}})\.safetensors", path.name), path) for path in paths]
        return dict(sorted((int(match[1]), path) for match, path in matches if match and path.is_file()))

    def save_validated(self, model: nn.Module, state: Mapping[str, Any], step: int) -> None:
        """Write the weights that were validated at a step; raises MtError if they cannot be written."""
        save_checkpoint(self.last_path.with_name(f"validated-{step}.safetensors"), model, state)

    def prune_validated(self, steps: Collection[int]) -> None:
        """Remove all validated checkpoints except those of the given steps."""
        for step, path in self.validated().items():
            if step not in steps:
                remove(path)

    def save_state(
        self,
        model: nn.Module,
        state: Mapping[str, Any],
        optimizer: torch.optim.Optimizer,
        step: int,
        keep_last: int,
        is_good: bool = True,
        average: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write everything that resuming needs as `last`; the `keep_last` good states before it stay as `step-N`.

        A state is good unless training is diverging. Then the last good state is kept, whatever `keep_last` is.
        The state before the first step is `step-0`, never `last`, because it holds no trained model. Raises MtError
        if the state cannot be written; the previous states then stay unchanged.
        """
        if self._step_of_good_last is not None and self._step_of_good_last != step:
            _keep_as(self.last_path, self._path_of_step(self._step_of_good_last))
        save_checkpoint(self.last_path if step else self._path_of_step(0), model, state, optimizer, average)
        self._step_of_good_last = step if step and is_good else None
        remove(self.former_best_path)
        num_kept = keep_last if step and is_good else max(keep_last, 1)
        for path in list(self._older_states().values())[num_kept:]:
            remove(path)

    def set_aside(self, path: Path) -> Path:
        """Rename a checkpoint that cannot be used to the first free `NAME.damaged-N`; return the new path."""
        aside = first_free(path, "damaged")
        path.rename(aside)
        return aside

    def discard_states_after(self, path: Path, step: int, is_good: bool = True) -> None:
        """Record the state that training resumes from, and remove all later ones."""
        self._step_of_good_last = step if path == self.last_path and is_good else None
        if path != self.last_path:
            remove(self.last_path)
        for later, older_path in self._older_states().items():
            if later > step:
                remove(older_path)

    def save_best(self, model: nn.Module, state: Mapping[str, Any]) -> None:
        """Write the weights of the best step; the previous best is kept until the next state is saved.

        Raises MtError if the weights cannot be written; the previous best then stays unchanged.
        """
        if self.best_path.exists() and not self.former_best_path.exists():
            _keep_as(self.best_path, self.former_best_path)
        save_checkpoint(self.best_path, model, state)

    def best_state(self) -> RunState | None:
        """State that was saved with the best checkpoint; None if the checkpoint is missing or damaged."""
        with suppress(RunError):
            return Checkpoint(self.best_path).state
        return None

    def restore_best(self, step: int) -> None:
        """Restore the previous best checkpoint if it belongs to this step.

        A previous best exists only if a run was stopped between a validation and the next save.
        """
        with suppress(RunError):
            if Checkpoint(self.former_best_path).state.best_step == step:
                os.replace(self.former_best_path, self.best_path)

    def _path_of_step(self, step: int) -> Path:
        return self.last_path.with_name(f"step-{step}.safetensors")


def _keep_as(path: Path, copy: Path) -> None:
    """Link a file under a second name, or rename it if the file system has no hard links."""
    remove(copy)
    try:
        os.link(path, copy)
    except FileNotFoundError:
        return
    except OSError:
        with suppress(OSError):  # If the name is taken, only this older file is lost.
            path.rename(copy)
