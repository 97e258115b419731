"""Completion of a config: the one place for values of a parent, of an earlier start, and of `batch_tokens: auto`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from mt_cli.checkpoint.parent import ParentRun, adopt, inherited
from mt_cli.config.sections import TUNED, Config
from mt_cli.config.training import TrainingConfig
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.source_rows import with_commits
from mt_cli.data.batch import collate
from mt_cli.data.encode import EncodedPairs
from mt_cli.data.prepare import Data, prepare
from mt_cli.errors import DeviceMemoryError
from mt_cli.model.adapters import freeze
from mt_cli.model.loss import Objective
from mt_cli.model.transformer import Transformer, outline
from mt_cli.runtime.console import say
from mt_cli.runtime.devices import limited_memory, memory_of, pick_precision
from mt_cli.runtime.files import format_bytes
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.tokenizer import TokenizerPair
from mt_cli.training.update import build_gradients

_SMALLEST_BATCH, _BATCHES_PER_EPOCH = 4_096, 100
_LARGEST_BATCH = 32_768
"""Largest micro-batch in tokens. Above it, an H100 is not faster, and a model learns more from more steps."""
_BYTES_PER_PARAMETER = 16


def prepare_new(
    config: Config,
    cache: Cache,
    path: Path | None = None,
    stream_rows: int | None = None,
) -> tuple[Config, Data, ParentRun | None]:
    """Complete the config of a new run except for `batch_tokens`, and prepare its data; also return its parent.

    `path` is the directory of the new run; see `prepare` for `stream_rows`. Raises the errors of `prepare`. Raises
    RunError if the parent cannot be loaded or lacks a tag of the config. Raises ConfigError with every option that must
    equal the parent's and differs, or if `init.freeze` does not fit.
    """
    tokenizers, parent = None, None
    if config.init.run is not None:
        config, tokenizers, parent = adopt(config, cache, path, stream_rows)
    return config, prepare(config, cache, tokenizers, stream_rows), parent


def resumed_config(config: Config, previous: Config, path: Path, is_tuned: bool) -> tuple[Config, list[str]]:
    """Config of a run that resumes, completed with the values that the run chose when it began, and notes.

    `is_tuned` says that the updates have ended before, so that `tune_decoding` may have chosen values, too.
    """
    config = config.model_copy(update={"corpus": with_commits(config.corpus, previous.corpus)})
    if config.init.run is not None:
        config = inherited(config, previous, f"{path}: this run began with another config")
    if config.training.batch_tokens == "auto":
        config = with_batch_tokens(config, previous.training.tokens_per_batch)
    if not (config.training.tune_decoding and is_tuned):
        return config, []
    if not previous.training.tune_decoding:
        return config, [f"the search is tuned when training ends; now: mt tune-decoding --run {path}"]
    tuned = {name: getattr(previous.decoding, name) for name in TUNED}
    notes = [
        f"decoding.{name} is {value}, as training.tune_decoding chose, and not {given} as in the config; set "
        "training.tune_decoding to false to change it"
        for name, value in tuned.items()
        if (given := getattr(config.decoding, name)) != value and name in config.decoding.model_fields_set
    ]
    return config.model_copy(update={"decoding": config.decoding.model_copy(update=tuned)}), notes


def with_batch_tokens(config: Config, size: int) -> Config:
    """Config with this number of tokens a micro-batch."""
    return config.model_copy(update={"training": config.training.model_copy(update={"batch_tokens": size})})


def new_model(config: Config, tokenizers: TokenizerPair) -> Transformer:
    """Model of a config on the CPU, with frozen parts and random weights that depend only on the seed."""
    torch.manual_seed(config.training.seed)
    model = Transformer(config.model, *(tokenizer.vocab_size for tokenizer in tokenizers))
    freeze(model, config.init.freeze)
    return model


def with_fitting_batches(config: Config, data: Data, device: torch.device) -> Config:
    """Config with a number for `batch_tokens: auto`; raises DeviceMemoryError if the device cannot hold the model."""
    sizes = [tokenizer.vocab_size for tokenizer in data.tokenizers]
    num_parameters = sum(weight.numel() for weight in outline(config.model, *sizes).parameters())
    needed, available = num_parameters * _BYTES_PER_PARAMETER, memory_of(device)
    if needed > available:
        raise DeviceMemoryError(
            f"a model of {num_parameters:,} parameters takes {format_bytes(needed)} to train (weights, gradients and "
            f"two moments of each) and {device} has {format_bytes(available)}; use smaller sizes in `model`"
        )
    if config.training.batch_tokens != "auto":
        return config
    size = _SMALLEST_BATCH
    if device.type == "cuda":
        size = _largest_that_fits(config, data, device)
        torch.cuda.empty_cache()
    say(f"training.batch_tokens: auto is {size:,} here")
    return with_batch_tokens(config, size)


def _largest_that_fits(config: Config, data: Data, device: torch.device) -> int:
    """Number of tokens of the largest batch of the longest pairs that a GPU has memory for, found by trying."""
    objective = Objective(new_model(config, data.tokenizers).to(device), config.training)
    dtype = pick_precision(config.training.precision, device)
    source = target = config.corpus.max_tokens
    largest = _LARGEST_BATCH
    if not config.corpus.is_streaming:
        lengths = data.encoded["train"].lengths()
        most = config.training.most_concatenated
        source, target = (min(config.corpus.max_tokens, most * int(side.max())) for side in lengths)
        largest = min(_LARGEST_BATCH, int(lengths.max(axis=0).sum()) // _BATCHES_PER_EPOCH)
    with limited_memory(device):
        return largest_batch(
            lambda size: fits_memory(objective, config.training, dtype, source + 1, target + 1, size),
            _SMALLEST_BATCH,
            largest,
        )


def largest_batch(fits: Callable[[int], bool], smallest: int, largest: int) -> int:
    """Search for the largest number that fits, to within an eighth; `smallest` is not tried."""
    size = smallest
    while 2 * size <= largest and fits(2 * size):
        size *= 2
    candidates = (size + size * eighth // 8 for eighth in range(7, 0, -1))
    return next((candidate for candidate in candidates if candidate <= largest and fits(candidate)), size)


def fits_memory(
    objective: Objective,
    config: TrainingConfig,
    compute_dtype: torch.dtype,
    source_length: int,
    target_length: int,
    batch_tokens: int,
) -> bool:
    """True if an update by AdamW from a batch of pairs of these lengths, [EOS] counted, fits in memory."""
    num_pairs = max(1, batch_tokens // max(source_length, target_length))
    sides = [[[UNK_ID] * (length - 1)] * num_pairs for length in (source_length, target_length)]
    gradients = build_gradients(objective.train(), config, compute_dtype)
    shaped_for = batch_tokens if gradients.captures else None
    batch = collate(EncodedPairs.from_ids(*sides), range(num_pairs), shaped_for)
    try:
        return gradients.fits(batch, num_moments=2)
    finally:
        objective.zero_grad()
