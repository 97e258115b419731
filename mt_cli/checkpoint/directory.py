"""Run directory: its files, its checkpoints, its lock, the newest run, and whether a config may resume a run."""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from mt_cli.checkpoint.checkpoint import Checkpoint, save_checkpoint
from mt_cli.checkpoint.state import RunState
from mt_cli.config.loading import differences, load_config
from mt_cli.config.sections import Config, may_change
from mt_cli.config.writing import on_one_line
from mt_cli.corpus.cache import digest_of_file
from mt_cli.errors import DamagedFileError, RunError, reason
from mt_cli.model.transformer import Transformer
from mt_cli.runtime.console import say
from mt_cli.runtime.files import first_free, refusal, remove, write_text, writing
from mt_cli.runtime.group import ALONE, Group
from mt_cli.tokenizer.tokenizer import TokenizerPair, load_tokenizers, save_tokenizers

LOCK = ".lock"
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP}


class RunDirectory:
    """Directory of one run.

    Checkpoints are states to resume from (`last` and `step-N`), the best, validated weights for averages, and frozen
    weights below adapters.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        checkpoints = path / "checkpoints"
        self.base_path = checkpoints / "base.safetensors"
        self.last_path = checkpoints / "last.safetensors"
        self.best_path = checkpoints / "best.safetensors"
        self.former_best_path = checkpoints / "former_best.safetensors"
        self._step_of_last: int | None = None
        self.rounds_path = path / "rounds"
        self.config_path = path / "config.yaml"
        self.metrics_path = path / "metrics.jsonl"
        self.samples_path = path / "samples.txt"
        self.report_path = path / "report.json"
        self.pair_scores_path = path / "pair_scores.npy"
        # The lock ends with its process. A mere file would outlive a killed process and prevent resuming.
        self._lock = FileLock(path / LOCK, blocking=False, thread_local=False, fallback_to_soft=False)

    def create(self, config: Config, tokenizers: TokenizerPair) -> None:
        with writing(self.path):
            self.last_path.parent.mkdir(parents=True, exist_ok=True)
        save_tokenizers(self.path, tokenizers)
        write_text(self.config_path, config.to_yaml())

    def config(self) -> Config:
        """Config of the run; raises RunError if this is no run directory."""
        if not os.path.isdir(self.path):
            near = difflib.get_close_matches(self.path.name, [path.name for path in Path("runs").glob("[!.]*")], n=1)
            hint = f", did you mean {Path('runs') / near[0]}?" if near else ""
            raise RunError(f"{self.path}: no such run directory{hint}")
        if not os.path.lexists(self.config_path):
            raise RunError(
                f"{self.path}: not a run directory, there is no config.yaml in it; `mt import` makes a run of an "
                "exported or published model, and a model of CTranslate2 needs --engine ctranslate2"
            )
        return load_config(self.config_path)

    def tokenizers(self, config: Config) -> TokenizerPair:
        return load_tokenizers(self.path, config)

    def tokenizer_digests(self) -> dict[str, str]:
        """SHA-256 of the files of the tokenizers."""
        return {path.name: digest_of_file(path) for path in sorted(self.path.glob("tokenizer*.json"))}

    def check_frozen_files(self, state: RunState) -> None:
        """Raise RunError if tokenizers, or frozen weights, are not the files with which a checkpoint was trained."""
        digests, before = self.tokenizer_digests(), state.fingerprints
        names = [name for name in before if name.startswith("tokenizer") and digests.get(name) != before[name]]
        changed = [self.path / name for name in names]
        if self.base_path.exists() and self.frozen_weights().state.parents != state.parents:
            changed.append(self.base_path)
        if changed:
            advice = "restore it, or train again with --fresh"
            raise RunError(f"{changed[0]}: not the file that this model was trained with; {advice}")

    def can_resume(self) -> bool:
        """True if there is a saved state; raises RunError if there is a run without one."""
        if self.state_paths():
            return True
        made_by_training = (self.best_path, self.report_path, self.metrics_path, self.samples_path)
        if any(path.is_file() and path.stat().st_size for path in made_by_training):
            raise RunError(
                f"{self.path}: contains a run, but no saved state to resume from; use --fresh to start over (the old "
                "run is moved aside), or give the config another name"
            )
        return False

    def check_resumable(self, previous: Config, config: Config) -> list[str]:
        """Lines with the options that changed; raises RunError if a changed option would give another model."""
        changed = {
            key: f"{key}: was {on_one_line(old)}, now {on_one_line(new)}"
            for key, (old, new) in differences(previous, config).items()
        }
        refused = {key: line for key, line in changed.items() if not may_change(key)}
        if not refused:
            return list(changed.values())
        advice = "To start over with random weights, use --fresh (the old run is moved aside)"
        if any(key.partition(".")[0] in ("model", "tokenizer", "init") for key in refused):
            advice += ", or give the config another name."
        else:
            advice = (
                "To train on from the weights of this run (init.run), write these lines into the config and leave out "
                "`tokenizer` and `model`, which are those of this run:\n"
                f"  name: {previous.name}-2\n"
                f"  init: {{run: {on_one_line(str(self.path))}}}\n"
                f"{advice}."
            )
        lines = "\n  ".join([f"{self.path}: this run began with another config:", *refused.values()])
        raise RunError(f"{lines}\n{advice}")

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
        return [path for path in (self.last_path, *reversed(self._numbered("step").values())) if path.is_file()]

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

    def validated(self) -> dict[int, Path]:
        return self._numbered("validated")

    def _numbered(self, kind: str) -> dict[int, Path]:
        """Step and path of the checkpoints of a kind, oldest first."""
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
        average: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write everything that resuming needs as `last`; the `keep_last` states before it stay as `step-N`.

        The state before the first step is `step-0`, never `last`, because it holds no trained model. Raises MtError
        if the state cannot be written; the previous states then stay unchanged.
        """
        if self._step_of_last not in (None, step):
            _keep_as(self.last_path, self._path_of_step(self._step_of_last))
        save_checkpoint(self.last_path if step else self._path_of_step(0), model, state, optimizer, average)
        self._step_of_last = step or None
        remove(self.former_best_path)
        for path in list(reversed(self._numbered("step").values()))[keep_last if step else 1 :]:
            remove(path)

    def set_aside(self, path: Path) -> Path:
        """Rename a checkpoint that cannot be used to the first free `NAME.damaged-N`; return the new path."""
        aside = first_free(path, "damaged")
        path.rename(aside)
        return aside

    def discard_states_after(self, path: Path, step: int) -> None:
        """Record the state that training resumes from, and remove all later ones."""
        self._step_of_last = step if path == self.last_path else None
        if path != self.last_path:
            remove(self.last_path)
        for later, later_path in self._numbered("step").items():
            if later > step:
                remove(later_path)

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

    def is_empty(self) -> bool:
        return all(path.name == LOCK for path in self.path.iterdir())

    @contextmanager
    def locked(self, group: Group = ALONE) -> Iterator[None]:
        """Context manager that makes the directory and locks it, and removes it if it stays empty.

        The main process of a group does this for all processes. Raises RunError if another process trains this run, and
        InputError or MtError if the directory cannot be made.
        """
        if group.rank > 0:
            yield
            return
        made = [path for path in (self.path, self.path.parent) if not path.exists()]
        try:
            self._take_lock()
            yield
        finally:
            self._lock.release()
            if made and self.path.is_dir() and self.is_empty():
                (self.path / LOCK).unlink(missing_ok=True)
                for folder in made:
                    with suppress(OSError):  # Another run may be in it.
                        folder.rmdir()

    def _take_lock(self) -> None:
        """Make the directory and lock it; if the file system has no locks, only print a note."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            advice = "wait for it, or give the config another name"
            raise RunError(f"{self.path}: another process trains this run; {advice}") from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise refusal(self.path, error) from None
            problem = f"this file system cannot lock files ({reason(error)})"
            say(f"mt: {self.path}: {problem}; make sure that no other process trains this run")

    def move_aside(self) -> Path:
        """Rename the directory to the first free `NAME.old-N`; return that path. Lock a new one if it was locked."""
        aside = first_free(self.path, "old")
        self.path.rename(aside)
        if self._lock.is_locked:
            self._lock.release()
            (aside / LOCK).unlink(missing_ok=True)
            self._take_lock()
        return aside


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


def newest_run(root: Path = Path("runs")) -> Path:
    """Run below `root` with the newest weights; raises RunError if there is none."""
    paths = (path for name in ("best", "last") for path in root.glob(f"*/checkpoints/{name}.safetensors"))
    weights = [path for path in paths if path.is_file()]
    if not weights:
        raise RunError(f"{root}: no trained run below it; train one with `mt train --config FILE`, or give --run DIR")
    return max(weights, key=lambda path: path.stat().st_mtime).parent.parent


UNKNOWN_CORPUS = "corpus of an imported model (unknown).tsv"
"""Name of the unknown training corpus in the config of an imported run."""


def is_imported(config: Config) -> bool:
    """True if a config belongs to an imported run, whose corpora are not known."""
    return any(getattr(source, "file", None) == UNKNOWN_CORPUS for source in config.corpus.train)
