"""Parts that benchmarks share: options, rounds in turn, child processes, training text, random pairs and tables."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from mt_cli.config.training import TrainingConfig
from mt_cli.data.batch import pad
from mt_cli.data.batches import MixedPairs, TrainingPairs, epoch_batches
from mt_cli.data.encode import EncodedPairs
from mt_cli.model.loss import Objective
from mt_cli.model.transformer import Transformer
from mt_cli.tokenizer.special_tokens import EOS_ID, SOS_ID
from mt_cli.training.optimizer import build_optimizer
from mt_cli.training.plan import Position
from mt_cli.training.steps import StepReport, optimization_steps
from mt_cli.training.update import build_update

ROOT = Path(__file__).absolute().parents[2]
SHARED = ROOT.parent / "shared"
CAPTIONS = SHARED / "data" / "multi30k"
WORK = Path(tempfile.gettempdir()) / "mt-benchmarks"
MT = [sys.executable, "-m", "mt_cli"]

Key = TypeVar("Key")
Result = TypeVar("Result")


FIXED_LENGTH = """
import sys
from mt_cli.decoding import ctranslate2, engine
from mt_cli.tokenizer import special_tokens

for module in engine, special_tokens, ctranslate2, sys.modules.get("mt_cli.decoding.constraints"):  # It imports torch.
    if hasattr(module, "NEVER_PRODUCED"):
        module.NEVER_PRODUCED += (special_tokens.EOS_ID,)
    if hasattr(module, "max_length"):
        module.max_length = lambda *_: {length}
call = ctranslate2.CTranslate2Engine._call
ctranslate2.CTranslate2Engine._call = lambda *arguments, **options: call(
    *arguments, **options | {{"min_decoding_length": {length}}}
)
"""
"""Program after which all translations of a process have a length, so that models that have learned little can be
timed."""


def read_options(description: str, **options: Any) -> argparse.Namespace:
    """Options of the command line, given by their defaults.

    A type stands for an option that is required, None for a text that is optional, False for a flag, and a list for
    several values.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in options.items():
        flag, text = f"--{name.replace('_', '-')}", f"default: {default}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(flag, type=default, required=True)
        elif default == []:
            parser.add_argument(flag, nargs="+", action="extend", default=[])
        elif isinstance(default, list):
            parser.add_argument(flag, nargs="+", type=type(default[0]), default=default, help=text)
        else:
            parser.add_argument(flag, type=str if default is None else type(default), default=default, help=text)
    return parser.parse_args()


def measure_in_turn(measurements: Mapping[Key, Callable[[], Result]], rounds: int) -> dict[Key, list[Result]]:
    """Results of each measurement in several rounds."""
    results: dict[Key, list[Result]] = {key: [] for key in measurements}
    for number in range(rounds):
        for key, measure in measurements.items():
            results[key].append(measure())
            print(f"round {number + 1}: {key}: {results[key][-1]}", file=sys.stderr, flush=True)
    return results


def medians(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Median of each value of several rows with the same keys."""
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def seconds_of(work: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    work()
    return time.perf_counter() - started_at


def median_speed(work: Callable[[], int], device: torch.device, rounds: int) -> float:
    """Median tokens per second of some rounds, after one that warms up; `work` returns its number of tokens."""
    num_tokens = 0

    def work_and_wait() -> None:
        nonlocal num_tokens
        num_tokens = work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    speeds = []
    for _ in range(rounds + 1):
        seconds = seconds_of(work_and_wait)
        speeds.append(num_tokens / seconds)
    return statistics.median(speeds[1:])


def in_new_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Result of a function of a module in a process of its own, which has not used a GPU."""
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as pool:
        return pool.submit(function, *arguments).result()


def run_until(
    is_done: Callable[[str, int], bool], command: Iterable[object], folder: Path, seconds_between: float = 0.1
) -> str:
    """Run a command in a folder until `is_done` of its log and its process; return the log, which is kept there."""
    path = folder / "log.txt"
    python_path = {"PYTHONPATH": str(ROOT)} if MT[0] in command else {}
    with open(path, "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [*map(str, command)], cwd=folder, stdout=log, stderr=log, env=os.environ | python_path
        )
    is_running = True
    while process.poll() is None:
        if is_running and is_done(path.read_text(encoding="utf-8", errors="replace"), process.pid):
            process.terminate()
            is_running = False
        time.sleep(seconds_between)
    return path.read_text(encoding="utf-8", errors="replace")


def run_mt(folder: Path, *arguments: object) -> None:
    """Run a command of `mt` in a folder; exit with its output if it fails."""
    ran = subprocess.run(
        [*MT, *map(str, arguments)], cwd=folder, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True
    )
    if ran.returncode:
        sys.exit(ran.stderr.decode())


def settings(values: Mapping[str, Any]) -> list[str]:
    """Arguments of `mt train` that set options."""
    return [part for key, value in values.items() for part in ("--set", f"{key}={json.dumps(value)}")]


def memory_of_process(pid: int | str) -> dict[str, int]:
    """Bytes of a process by the keys of /proc, such as VmHWM (the peak) and RssFile; empty if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return {}
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {key.rstrip(":"): 1024 * int(number) for key, number, _ in fields}


def read_lines(path: Path) -> list[str]:
    """Lines of a file, each of which ends with a line feed."""
    return path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]


def caption_files(name: str) -> dict[str, list[str]]:
    """Captions in English and German as a corpus source."""
    if not CAPTIONS.is_dir():
        sys.exit(f"{CAPTIONS}: this benchmark needs the captions")
    return {"files": [str(CAPTIONS / f"{name}.{language}") for language in ("en", "de")]}


def config_tree(name: str, **sections: Mapping[str, Any]) -> dict[str, Any]:
    """Config of a model of the captions with 10,000 shared subwords and other values of options, by section."""
    tree: dict[str, Any] = {
        "name": name,
        "corpus": {"source": "en", "target": "de"},
        "tokenizer": {"algorithm": "bpe", "vocab_size": 10_000, "shared": True},
        "model": {"tie_embeddings": "all"},
    }
    if "corpus" not in sections:
        tree["corpus"] |= {"train": caption_files("train"), "valid": caption_files("val")}
    return tree | {section: tree.get(section, {}) | dict(values) for section, values in sections.items()}


def practice_pairs() -> list[tuple[str, str]]:
    """29,000 captions in English and German."""
    return list(zip(*(read_lines(Path(path)) for path in caption_files("train")["files"]), strict=True))


def numbered_files(folder: Path, number: int) -> dict[str, list[str]]:
    """Corpus source of line-aligned files with `number` different pairs, written unless they exist."""
    paths = folder / f"{number}.source", folder / f"{number}.target"
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        pairs = practice_pairs()
        for side, path in enumerate(paths):
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(f"{pair[side]} {index:08}\n" for index, pair in enumerate(islice(cycle(pairs), number)))
    return {"files": [str(path) for path in paths]}


def random_pairs(number: int, shortest: int, longest: int, vocab_size: int) -> EncodedPairs:
    generator = np.random.default_rng(1)
    sides = (
        [generator.integers(4, vocab_size, length).tolist() for length in lengths]
        for lengths in generator.integers(shortest, longest + 1, (2, number))
    )
    return EncodedPairs.from_ids(*sides)


def padded_batches(pairs: TrainingPairs, batch_tokens: int, seed: int) -> Iterator[tuple[dict[str, torch.Tensor], int]]:
    """Batches of an epoch of `mt`, padded as other programs want them, and their target tokens."""
    for placed in epoch_batches(pairs, batch_tokens, seed, 0):
        sources, targets = zip(*(placed.pairs[int(index)] for index in placed.indices), strict=True)
        batch = {"src": pad(sources, end=EOS_ID), "tgt": pad(targets, SOS_ID), "label": pad(targets, end=EOS_ID)}
        yield batch, placed.num_target_tokens


def training_steps(
    model: Transformer, pairs: EncodedPairs | TrainingPairs, config: TrainingConfig, dtype: torch.dtype
) -> Iterator[StepReport]:
    """Optimizer steps of a model without end."""
    if isinstance(pairs, EncodedPairs):
        pairs = MixedPairs(pairs, [1.0], config.tokens_per_batch, config.seed)
    update = build_update(
        Objective(model, config), build_optimizer(model, config), config, dtype, compiles_layers=config.compile is True
    )
    return optimization_steps(update, pairs, config, lambda _: 1e-5, Position())


def print_row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_titles(*titles: object) -> None:
    print_row(*titles)
    print("|---" * len(titles) + "|", flush=True)
