"""The run directory: its files, the lock on it, and whether a config may resume the run."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mt_cli.checkpoint.files import Checkpoint, open_checkpoint, save_checkpoint
from mt_cli.checkpoint.lock import LOCK, RunLock
from mt_cli.checkpoint.state import RunState
from mt_cli.config.loading import differences, load_config
from mt_cli.config.sections import Config, may_change
from mt_cli.errors import DamagedFileError, RunError
from mt_cli.machine.group import ALONE, Group
from mt_cli.machine.storage import (
    check_regular,
    is_folder,
    read_regular,
    reading,
    refusal,
    remove,
    remove_empty,
    write_atomically,
    write_text,
)
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.tokenizer import MAX_FILE_BYTES, TokenizerPair, load_tokenizers, save_tokenizers

_MAX_REPORT_BYTES = 2**24


class RunDirectory:
    """A directory that holds one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.yaml"
        self.metrics_path = path / "metrics.jsonl"
        self.samples_path = path / "samples.txt"
        self.report_path = path / "report.json"
        self.bad_batch_path = path / "bad_batch.jsonl"
        checkpoints = path / "checkpoints"
        self.base_path = checkpoints / "base.safetensors"
        self.last_path = checkpoints / "last.safetensors"
        self.best_path = checkpoints / "best.safetensors"
        self.former_best_path = checkpoints / "former_best.safetensors"
        self.before_average_path = checkpoints / "before_average.safetensors"
        self._lock = RunLock(path)
        self._step_of_good_last: int | None = None

    def create(self, config: Config, tokenizers: TokenizerPair) -> None:
        """Make the directory, with the complete config and the tokenizers."""
        try:
            self.last_path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise refusal(self.last_path.parent, error) from None
        save_tokenizers(self.path, tokenizers, write_text)
        write_text(self.config_path, config.to_yaml())

    def config(self) -> Config:
        """The config of the run; raises RunError if this is no run directory."""
        if not is_folder(self.path):
            near = difflib.get_close_matches(self.path.name, [path.name for path in Path("runs").glob("[!.]*")], n=1)
            hint = f", did you mean {Path('runs') / near[0]}?" if near else ""
            raise RunError(f"{self.path}: no such run directory{hint}")
        if not os.path.lexists(self.config_path):
            is_export = (self.path / "model.json").is_file() or (self.path / "config.json").is_file()
            hint = "; it may be an exported or published model, which `mt import` makes a run" if is_export else ""
            raise RunError(f"{self.path}: not a run directory, there is no config.yaml in it{hint}")
        with reading(self.config_path, RunError):
            check_regular(self.config_path)
        return load_config(self.config_path)

    def report(self) -> Any:
        """The JSON of `report.json`, of any content; raises OSError or ValueError if it cannot be read."""
        return json.loads(read_regular(self.report_path, _MAX_REPORT_BYTES))

    def tokenizers(self, config: Config) -> TokenizerPair:
        """Source and target tokenizer; the same object twice if it is shared."""
        return load_tokenizers(self.path, config)

    def fixed_digests(self) -> dict[str, str]:
        """The SHA-256 of what training does not change: tokenizer files, and the weights below adapters.

        Raises RunError if one cannot be read.
        """
        digests = {}
        for path in sorted(self.path.glob("tokenizer*.json")):
            with reading(path, RunError):
                digests[path.name] = hashlib.sha256(read_regular(path, MAX_FILE_BYTES)).hexdigest()
        if self.base_path.exists():
            with self._opened_base() as checkpoint:
                digests[self.base_path.name] = checkpoint.fingerprint()
        return digests

    def check_fixed(self, fingerprints: Mapping[str, str]) -> None:
        """Raise RunError unless these files are those that a checkpoint with these fingerprints was trained with."""
        digests = self.fixed_digests()
        for name, digest in fingerprints.items():
            is_base = name == self.base_path.name
            if (is_base or name.startswith("tokenizer")) and digests.get(name) != digest:
                effect = "so that its adapters fit other weights" if is_base else "so that its ids mean other words"
                path = self.base_path if is_base else self.path / name
                raise RunError(
                    f"{path}: not the file that this model was trained with, {effect}; restore it, or train again with "
                    "--fresh"
                )

    def save_base(self, model: Transformer) -> None:
        """Write the weights that adapters are added to; raises MtError if they cannot be written."""
        save_checkpoint(self.base_path, model, {})

    def fill_base(self, model: Transformer) -> None:
        """Fill a model with the weights that `save_base` wrote.

        Raises RunError if the weights are missing or damaged, or do not fit.
        """
        if not self.base_path.exists():
            raise RunError(f"{self.base_path}: missing; it has the weights that this run adapts; restore it")
        with self._opened_base() as checkpoint:
            checkpoint.fill(model)

    @contextmanager
    def _opened_base(self) -> Iterator[Checkpoint]:
        """Context manager that opens the weights below adapters, which no later training can make again."""
        try:
            with open_checkpoint(self.base_path) as checkpoint:
                yield checkpoint
        except DamagedFileError as error:
            raise RunError(f"{error}; restore it, or train again with --fresh") from None

    def can_resume(self) -> bool:
        """Whether there is a saved state; raises RunError if there is a run without one."""
        if self.states():
            return True
        made_by_training = (self.best_path, self.report_path, self.metrics_path, self.samples_path)
        if any(path.is_file() and path.stat().st_size for path in made_by_training):
            raise RunError(
                f"{self.path}: contains a run, but no saved state to resume from; use --fresh to start over (the old "
                "run is moved aside), or give the config another name"
            )
        return False

    def check_resumable(self, previous: Config, config: Config) -> list[str]:
        """A line for each option that changed; raises RunError if some of them would give another model."""
        changed = {
            key: f"{key}: was {_short(old)}, now {_short(new)}"
            for key, (old, new) in differences(previous, config).items()
        }
        if refused := [line for key, line in changed.items() if not may_change(key)]:
            advice = "Use --fresh to start over (the old run is moved aside), or give the config another name."
            message = "\n  ".join([f"{self.path}: this run began with another config:", *refused])
            raise RunError(f"{message}\n{advice}")
        return list(changed.values())

    def is_empty(self) -> bool:
        """Whether there is nothing in it except the lock."""
        return all(path.name == LOCK for path in self.path.iterdir())

    def states(self) -> list[Path]:
        """The files from which training can resume: `last`, then older ones, newest first."""
        return [path for path in (self.last_path, *self._older_states().values()) if path.is_file()]

    def newest_state(self) -> RunState | None:
        """The state in the newest file that is not damaged; None if there is no such file."""
        for path in self.states():
            with suppress(DamagedFileError), open_checkpoint(path) as checkpoint:
                return checkpoint.state
        return None

    def checkpoint(self, name: str | None = None) -> Path:
        """The file of the checkpoint with this name; None: `best`, or `last` if no `best` exists.

        A name is `best`, `before_average`, `last`, `step-N` or `validated-N`. Raises RunError if it is missing.
        """
        if name is None:
            return self.best_path if self.best_path.exists() else self.last_path
        found = (self.best_path, self.before_average_path, *self.states(), *self.validated().values())
        paths = {path.stem: path for path in found if path.is_file()}
        if name not in paths:
            raise RunError(f"{self.path}: no checkpoint {name}; there are {', '.join(paths) or 'none yet'}")
        return paths[name]

    def _older_states(self) -> dict[int, Path]:
        """Step and path of the states before the last one, newest first."""
        return dict(sorted(self._numbered("step"), reverse=True))

    def _numbered(self, kind: str) -> Iterator[tuple[int, Path]]:
        for path in self.last_path.parent.glob(f"{kind}-*.safetensors"):
            if match := re.fullmatch(rf"{kind}-(\d{{1,15}})\.safetensors", path.name):
                yield int(match[1]), path

    def validated(self) -> dict[int, Path]:
        """Step and path of the validated checkpoints that are kept, oldest first."""
        return {step: path for step, path in sorted(self._numbered("validated")) if path.is_file()}

    def save_validated(self, model: nn.Module, state: Mapping[str, Any], step: int) -> None:
        """Write the weights that were validated at a step; raises MtError if they cannot be written."""
        save_checkpoint(self.last_path.with_name(f"validated-{step}.safetensors"), model, state)

    def keep_validated(self, steps: Collection[int]) -> None:
        """Remove all validated checkpoints but those of these steps."""
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

        A state is good unless training is diverging; then the last good one stays, whatever `keep_last` is. The state
        before the first step is `step-0`, never `last`, because it holds no trained model. Raises MtError if it cannot
        be written; the previous states are then untouched.
        """
        if self._step_of_good_last is not None and self._step_of_good_last != step:
            _keep_as(self.last_path, self._path_of_step(self._step_of_good_last))
        save_checkpoint(self.last_path if step else self._path_of_step(0), model, state, optimizer, average)
        self._step_of_good_last = step if step and is_good else None
        for path in (self.former_best_path, self.before_average_path):
            remove(path)
        num_kept = keep_last if step and is_good else max(keep_last, 1)
        for path in list(self._older_states().values())[num_kept:]:
            remove(path)

    def resume_from(self, path: Path, step: int, is_good: bool = True) -> None:
        """Record the state that training resumes from, and remove all later ones."""
        self._step_of_good_last = step if path == self.last_path and is_good else None
        if path != self.last_path:
            remove(self.last_path)
        for later, older_path in self._older_states().items():
            if later > step:
                remove(older_path)

    def save_best(self, model: nn.Module, state: Mapping[str, Any]) -> None:
        """Write the weights of the best step; the previous ones are kept until a state that knows the new is saved.

        Raises MtError if they cannot be written; the previous ones are then untouched.
        """
        if self.best_path.exists() and not self.former_best_path.exists():
            _keep_as(self.best_path, self.former_best_path)
        save_checkpoint(self.best_path, model, state)

    def save_average(self, model: nn.Module, state: Mapping[str, Any], steps: Sequence[int]) -> None:
        """Write a mean of checkpoints as `best`; the best one that is no mean stays as `before_average`.

        As any `best` that no saved state knows, it is replaced by the one before it when the run resumes. Raises
        MtError if it cannot be written; `best` is then untouched.
        """
        best = self.best_state()
        if best is not None and not best.averaged_steps:
            write_atomically(self.before_average_path, lambda temporary: shutil.copyfile(self.best_path, temporary))
        self.save_best(model, {**state, "averaged_steps": list(steps)})

    def best_state(self) -> RunState | None:
        """The state that was saved with the best checkpoint; None if that is missing or damaged."""
        with suppress(RunError), open_checkpoint(self.best_path) as checkpoint:
            return checkpoint.state
        return None

    def restore_best(self, step: int) -> None:
        """Put the previous best checkpoint back if it is of this step.

        Both are there if a run was stopped between a validation and the next save.
        """
        with suppress(RunError), open_checkpoint(self.former_best_path) as checkpoint:
            if checkpoint.state.best_step == step:
                os.replace(self.former_best_path, self.best_path)

    def _path_of_step(self, step: int) -> Path:
        return self.last_path.with_name(f"step-{step}.safetensors")

    def locked(self, group: Group = ALONE) -> AbstractContextManager[None]:
        """Context manager that keeps other programs out; it makes the directory, and removes it if it stays empty.

        The main process of a group does that for all.

        Raises RunError if another process trains this run, or the directory cannot be made or has a link in it.
        """
        return group.on_main(self._locked) or nullcontext()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        made = [path for path in (self.path, self.path.parent) if not path.exists()]
        try:
            self._lock.take()
            yield
        finally:
            self._lock.release()
            if made and self.path.is_dir() and self.is_empty():
                (self.path / LOCK).unlink(missing_ok=True)
                remove_empty(*made)

    def move_aside(self) -> Path:
        """Rename the directory to the first free `NAME.old-N`, return that, and lock a new one if it was locked."""
        number = 1
        while os.path.lexists(aside := self.path.with_name(f"{self.path.name}.old-{number}")):
            number += 1
        self.path.rename(aside)
        if self._lock.is_taken:
            self._lock.release()
            (aside / LOCK).unlink(missing_ok=True)
            self._lock.take()
        return aside


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _keep_as(path: Path, kept: Path) -> None:
    """Give a file a second name, or where the file system has no hard links, another name."""
    remove(kept)
    try:
        os.link(path, kept)
    except FileNotFoundError:
        return
    except OSError:
        with suppress(OSError):  # If something is in the way, only this older file is not kept.
            path.rename(kept)


def newest_run(root: Path = Path("runs")) -> Path:
    """The run below `root` whose weights were written last; raises RunError if there is none."""
    paths = (path for name in ("best", "last") for path in root.glob(f"*/checkpoints/{name}.safetensors"))
    weights = [path for path in paths if path.is_file()]
    if not weights:
        raise RunError(f"{root}: no trained run below it; train one with `mt train --config FILE`, or give --run DIR")
    return max(weights, key=lambda path: path.stat().st_mtime).parent.parent


UNKNOWN_CORPUS = "corpus of an imported model (unknown).tsv"
"""Stands in the config of an imported run for the corpus that it was trained on."""


def is_imported(config: Config) -> bool:
    """Whether the config is that of an imported run, whose corpora are not known."""
    return any(getattr(source, "file", None) == UNKNOWN_CORPUS for source in config.corpus.train)
