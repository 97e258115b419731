"""The run directory: what is in it, written atomically and read with suspicion.

Weights, optimizer state and random states are tensors in safetensors files, everything else is JSON or YAML. Nothing
is ever unpickled.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mt_cli.config.loading import differences, load_config
from mt_cli.config.sections import Config
from mt_cli.errors import MtError, RunError
from mt_cli.tokenizer import TokenizerPair, load_tokenizers, save_tokenizers

FORMAT = 1
"""Of checkpoints; raised when older ones can no longer be read."""

_MAY_CHANGE = {
    *("training.max_steps", "training.max_epochs", "training.max_minutes", "training.patience"),
    *("training.validate_every_steps", "training.log_every_steps", "training.num_samples"),
    *("training.device", "training.num_threads"),
}
_MAY_CHANGE_PREFIXES = ("decoding.",)


class RunDirectory:
    """A directory that holds one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.yaml"
        self.metrics_path = path / "metrics.jsonl"
        self.samples_path = path / "samples.txt"
        self.report_path = path / "report.json"
        self.last_path = path / "checkpoints" / "last.safetensors"
        self.best_path = path / "checkpoints" / "best.safetensors"

    def create(self, config: Config, tokenizers: TokenizerPair) -> None:
        """Make the directory, with the complete config and the tokenizers."""
        try:
            (self.path / "checkpoints").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{self.path}: cannot be made: {(error.strerror or str(error)).lower()}") from None
        save_tokenizers(self.path, tokenizers, write_text)
        write_text(self.config_path, config.to_yaml())

    def config(self) -> Config:
        """The config of the run; raises RunError if this is no run directory."""
        if not self.path.is_dir():
            raise RunError(f"{self.path}: no such run directory")
        if not self.config_path.is_file():
            raise RunError(f"{self.path}: not a run directory, there is no config.yaml in it")
        return load_config(self.config_path)

    def tokenizers(self, config: Config) -> TokenizerPair:
        """Source and target tokenizer, one and the same if it is shared."""
        return load_tokenizers(self.path, config)

    def check_resumable(self, config: Config) -> None:
        """Raise RunError, with the differences, if the run began with a config that gives another model."""
        changed = {
            key: values
            for key, values in differences(self.config(), config).items()
            if key not in _MAY_CHANGE and not key.startswith(_MAY_CHANGE_PREFIXES)
        }
        if changed:
            lines = [f"\n  {key}: {_short(old)} there, {_short(new)} now" for key, (old, new) in changed.items()]
            raise RunError(
                f"{self.path}: this run began with another config:{''.join(lines)}\n"
                "Use --fresh to begin again (the old run is moved aside), or give the config another name."
            )

    def move_aside(self) -> Path:
        """Rename the directory to the first free `NAME.old-N`; return the new path."""
        number = 1
        while (aside := self.path.with_name(f"{self.path.name}.old-{number}")).exists():
            number += 1
        self.path.rename(aside)
        return aside


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def newest_run(root: Path = Path("runs")) -> Path:
    """The run below `root` whose weights were written last; raises RunError if there is none."""
    weights = [path for name in ("best", "last") for path in root.glob(f"*/checkpoints/{name}.safetensors")]
    if not weights:
        raise RunError(f"{root}: no trained run below it; train one with `mt train --config FILE`, or give --run DIR")
    return max(weights, key=lambda path: path.stat().st_mtime).parent.parent


def save_checkpoint(
    path: Path, model: nn.Module, state: Mapping[str, Any], optimizer: torch.optim.Optimizer | None = None
) -> None:
    """Write weights, JSON-like `state` and, with an optimizer, all that exact resumption needs; atomically."""
    tensors = {f"model.{name}": weight.detach() for name, weight in model.named_parameters()}
    if optimizer is not None:
        for index, values in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in values.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors["random.cuda"] = torch.cuda.get_rng_state()
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": str(FORMAT), "state": json.dumps(dict(state))}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata))


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> dict[str, Any]:
    """Fill a model and, if given, its optimizer and the random generators; return the `state` that was saved.

    Raises:
        RunError: if the file is missing or damaged, or belongs to a model of another shape.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != str(FORMAT):
                raise RunError(f"{path}: checkpoint format {metadata.get('format')}, this version reads {FORMAT}")
            _load_weights(path, model, file.get_tensor, set(file.keys()))
            if optimizer is not None:
                _load_optimizer(optimizer, file.get_tensor, list(file.keys()))
                torch.set_rng_state(file.get_tensor("random.cpu"))
                if torch.cuda.is_available() and "random.cuda" in file.keys():  # noqa: SIM118
                    torch.cuda.set_rng_state(file.get_tensor("random.cuda"))
            state: dict[str, Any] = json.loads(metadata["state"])
            return state
    except FileNotFoundError:
        raise RunError(f"{path}: no such file; the run has not saved a model yet") from None
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise RunError(f"{path}: damaged checkpoint: {str(error)[:200]}") from None


@torch.no_grad()
def _load_weights(path: Path, model: nn.Module, read: Callable[[str], Tensor], names: set[str]) -> None:
    for name, weight in model.named_parameters():
        if f"model.{name}" not in names:
            raise RunError(f"{path}: no weight {name} in it; the config beside it describes another model")
        saved = read(f"model.{name}")
        if saved.shape != weight.shape:
            raise RunError(
                f"{path}: {name} is {list(saved.shape)}, the config and tokenizers beside it make {list(weight.shape)}"
            )
        weight.copy_(saved)


def _load_optimizer(optimizer: torch.optim.Optimizer, read: Callable[[str], Tensor], names: list[str]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name in names:
        if name.startswith("optimizer."):
            _, index, key = name.split(".")
            state.setdefault(int(index), {})[key] = read(name)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file atomically."""
    write_atomically(path, lambda temporary: Path(temporary).write_text(text, encoding="utf-8"))


def write_atomically(path: Path, write: Callable[[str], object]) -> None:
    """Let `write` fill a temporary file, flush it to disk and rename it: a crash leaves the old file or the new one.

    Raises:
        MtError: if the disk is full or cannot be written; the old file is untouched.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(str(temporary))
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise MtError(f"{path}: cannot be written: {error}; what was there before is untouched") from error
