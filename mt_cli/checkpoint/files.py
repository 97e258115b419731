"""Checkpoint files: written atomically with a checksum, and verified before their content is used.

Weights, optimizer state and random states are tensors in a safetensors file, everything else is JSON in its header.
Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mt_cli.checkpoint.state import RunState
from mt_cli.checkpoint.untrusted_weights import FLOATS
from mt_cli.errors import DamagedFileError, RunError, reason
from mt_cli.machine.storage import check_regular, write_atomically
from mt_cli.model.trainable_weights import saved_weights

FORMAT = 2
"""Version of the checkpoint format; increase it when older checkpoints can no longer be read."""
_MAX_HEADER_BYTES = 2**25
_CHUNK_BYTES = 2**22
_NUM_NUMPY_KEYS = 624
"""Numbers in the state of numpy's Mersenne twister, which does not check its position among them."""
_CHECKSUM = re.compile(rb'"sha256":"([0-9a-f]{64})"')
_NO_CHECKSUM = "0" * 64
_TYPES = FLOATS | {"U8": torch.uint8}
_CHANGED = "it was changed while it was read"
_WRONG_CONTENT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


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
    metadata = {"format": str(FORMAT), "sha256": _NO_CHECKSUM, "state": json.dumps(dict(state))}
    if optimizer is not None:
        for index, values in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in values.items()}
        tensors["random.cpu"] = torch.get_rng_state()
        device = next(model.parameters()).device
        if device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(device)
        numpy_state: Any = np.random.get_state(legacy=False)
        numpy_state["state"]["key"] = numpy_state["state"]["key"].tolist()
        metadata["random"] = json.dumps({"python": random.getstate(), "numpy": numpy_state})
    tensors = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}

    def write(temporary: str) -> None:
        save_file(tensors, temporary, metadata)
        _write_checksum(temporary)

    write_atomically(path, write)


@contextmanager
def open_checkpoint(path: Path, is_verified: bool = False) -> Iterator[Checkpoint]:
    """Context manager that opens the checkpoint in a file and verifies it, unless `is_verified`.

    Raises RunError if the file is missing, of another format, or in a folder whose name is not UTF-8, and
    DamagedFileError if it is damaged; some damage is noticed only inside the context.
    """
    try:
        str(path).encode("utf-8")
        check_regular(path)
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            if not is_verified:
                _verify(path, file)
            yield Checkpoint(path, file)
            after = os.fstat(file.fileno())
            if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
                raise ValueError(_CHANGED)
    except UnicodeEncodeError:
        raise RunError(f"{path}: the path is not UTF-8, and such a checkpoint cannot be opened; rename it") from None
    except FileNotFoundError:
        raise RunError(f"{path}: no such file; the run has not saved a model yet") from None
    except (SafetensorError, OSError, *_WRONG_CONTENT) as error:
        raise DamagedFileError(f"{path}: damaged checkpoint: {reason(error)}") from None


class Checkpoint:
    """Open checkpoint file.

    Tensors are read, not mapped into memory: the system kills a process that reads a map of a file that was cut off.
    """

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        self._shapes: dict[str, list[int]] = {}
        self._types: dict[str, torch.dtype] = {}
        with safe_open(path, framework="pt") as opened:  # It checks the header.
            for name in opened.keys():  # noqa: SIM118
                tensor = opened.get_slice(name)
                self._shapes[name] = list(tensor.get_shape())
                if tensor.get_dtype() not in FLOATS and not name.startswith("random."):
                    raise ValueError(f"{name} has values of type {tensor.get_dtype()}, not floating-point numbers")
                self._types[name] = _TYPES[tensor.get_dtype()]
            self._metadata: dict[str, str] = opened.metadata()
        file.seek(0)
        content = _header(file)
        header = json.loads(content)
        if header["__metadata__"] != self._metadata:
            raise ValueError(_CHANGED)
        self._start = 8 + len(content)
        self._offsets = {name: header[name]["data_offsets"] for name in self._shapes}
        self.state = RunState.from_state(json.loads(self._metadata["state"]))

    @property
    def digest(self) -> str:
        """SHA-256 of the file, from its header."""
        return self._metadata["sha256"]

    def _read(self, name: str) -> Tensor:
        """A tensor on the CPU; raises LookupError if it is missing, and ValueError if the file ends before it does."""
        start, end = self._offsets[name]
        content = bytearray(end - start)
        self._file.seek(self._start + start)
        if self._file.readinto(content) != len(content):  # type: ignore[attr-defined]
            raise ValueError(_CHANGED)
        if not content:
            return torch.empty(self._shapes[name], dtype=self._types[name])
        return torch.frombuffer(content, dtype=self._types[name]).reshape(self._shapes[name])

    def check_fits(self, model: nn.Module) -> None:
        """Raise RunError unless the file has all `saved_weights` in their shapes; the model may be on `meta`."""
        for kind in ("model", "average") if self._has_average else ("model",):
            for name, weight in saved_weights(model).items():
                saved, expected = self._shapes.get(f"{kind}.{name}"), list(weight.shape)
                if saved is None:
                    raise RunError(f"{self.path}: no weight {name} in it; the config next to it is of another model")
                if saved != expected:
                    raise RunError(f"{self.path}: {name} is {saved}, but config and tokenizers require {expected}")

    def load_weights_into(self, model: nn.Module) -> None:
        """Fill a model for translation, with the average if the file has one. Raises RunError as `check_fits` does."""
        self.check_fits(model)
        self._copy("average" if self._has_average else "model", saved_weights(model))

    def restore(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, average: Mapping[str, Tensor] | None = None
    ) -> None:
        """Fill model, optimizer, random generators and the average, if there is one, to resume training.

        Raises RunError as `check_fits` does.
        """
        self.check_fits(model)
        self._copy("model", saved_weights(model))
        self._copy("average", average or {})
        self._fill_optimizer(optimizer)
        self._set_random_states(next(model.parameters()).device)

    def weights(self) -> dict[str, Tensor]:
        """Weights of the model by name, on the CPU, not averaged."""
        names = [name for name in self._shapes if name.startswith("model.")]
        return {name.removeprefix("model."): self._read(name) for name in names}

    def fingerprint(self) -> str:
        """SHA-256 of the names and the weights; unlike `digest`, it is independent of everything else in the file."""
        sha256 = hashlib.sha256()
        for name, weight in sorted(self.weights().items()):
            sha256.update(name.encode())
            sha256.update(weight.contiguous().numpy().tobytes())
        return sha256.hexdigest()

    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        names = [name for name in self._shapes if name.startswith(("model.", "average."))]
        return all(bool(self._read(name).isfinite().all()) for name in names)

    @property
    def _has_average(self) -> bool:
        return any(name.startswith("average.") for name in self._shapes)

    @torch.no_grad()
    def _copy(self, kind: str, weights: Mapping[str, Tensor]) -> None:
        for name, weight in weights.items():
            weight.copy_(self._read(f"{kind}.{name}"))

    def _fill_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        parameters = [(group, weight) for group in optimizer.param_groups for weight in group["params"]]
        has_state = any(name.startswith("optimizer.") for name in self._shapes)  # No state before the first step.
        state: dict[int, dict[str, Tensor]] = {}
        for index, (group, weight) in enumerate(parameters if has_state else ()):
            shapes = {"step": [], "exp_avg": list(weight.shape), "exp_avg_sq": list(weight.shape)}
            if "momentum" in group:  # Muon.
                shapes = {"momentum_buffer": list(weight.shape)}
            if any(self._shapes[f"optimizer.{index}.{key}"] != shape for key, shape in shapes.items()):
                raise ValueError(f"the optimizer's state of parameter {index} has another shape")
            state[index] = {key: self._read(f"optimizer.{index}.{key}") for key in shapes}
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})

    def _set_random_states(self, device: torch.device) -> None:
        saved = json.loads(self._metadata["random"])
        version, numbers, gauss = saved["python"]
        random.setstate((version, tuple(numbers), gauss))
        state = saved["numpy"]["state"]
        state["key"] = np.array(state["key"], np.uint32)
        if state["key"].shape != (_NUM_NUMPY_KEYS,) or not 0 <= state["pos"] <= _NUM_NUMPY_KEYS:
            raise ValueError("random state: not one of numpy")
        np.random.set_state(saved["numpy"])
        try:
            torch.set_rng_state(self._read("random.cpu"))
            if device.type == "cuda" and "random.cuda" in self._shapes:
                torch.cuda.set_rng_state(self._read("random.cuda"), device)
        except RuntimeError as error:
            raise ValueError(f"random state: {error}") from None


def _write_checksum(path: str) -> None:
    with open(path, "r+b") as file:
        checksum = _CHECKSUM.search(_header(file))
        assert checksum is not None
        digest = _digest(file, checksum)
        file.seek(8 + checksum.start(1))
        file.write(digest)


def _verify(path: Path, file: BinaryIO) -> None:
    """Raise ValueError if any bit of the file has changed since it was written, RunError if it has another format."""
    header = _header(file)
    checksum, version = _CHECKSUM.search(header), re.search(rb'"format":"(\d{1,9})"', header)
    is_intact = checksum is not None and _digest(file, checksum) == checksum[1]
    if version and int(version[1]) != FORMAT and (is_intact or checksum is None):
        raise RunError(f"{path}: checkpoint format {int(version[1])}, this version reads {FORMAT}; train it again")
    if not is_intact:
        raise ValueError("its checksum is wrong or missing, the file has changed since it was written")


def _header(file: BinaryIO) -> bytes:
    num_bytes = os.fstat(file.fileno()).st_size
    header_bytes = int.from_bytes(file.read(8), "little")
    if not 2 <= header_bytes <= min(_MAX_HEADER_BYTES, num_bytes - 8):
        raise ValueError("it does not begin as a safetensors file")
    return file.read(header_bytes)


def _digest(file: BinaryIO, checksum: re.Match[bytes]) -> bytes:
    """SHA-256, in hexadecimal digits, of a file with zeros in place of the checksum in its header."""
    file.seek(0)
    digest = hashlib.sha256(file.read(8 + checksum.start(1)) + _NO_CHECKSUM.encode())
    file.seek(len(_NO_CHECKSUM), os.SEEK_CUR)
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest().encode()
