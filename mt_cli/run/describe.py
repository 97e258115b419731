"""Description of a training run before its first step: data, model, length, device, and notes."""

from __future__ import annotations

import torch

from mt_cli.config.sections import Config
from mt_cli.config.training import TrainingConfig
from mt_cli.corpus.cache import Cache
from mt_cli.data.describe import describe_data
from mt_cli.data.prepare import Data
from mt_cli.evaluation.notes import note_on_short_references
from mt_cli.evaluation.scores import best_metric_of, scorer_of
from mt_cli.machine.devices import describe_hardware
from mt_cli.model.kernels import has_variable_length
from mt_cli.run.compose import describe_destinations, problems_to_show
from mt_cli.run.context import Length, TrainingContext
from mt_cli.run.create import LARGEST_BATCH

_SMALL_BATCH, _BATCH_OF_A_GPU = 8_192, 16_384
"""Tokens of a micro-batch below which a GPU takes longer per token, and tokens that keep it busy."""


def describe_training(context: TrainingContext, cache: Cache) -> list[str]:
    """Data, model, length and device of a run, and notes, as lines of text."""
    config, data = context.config, context.data
    num_trained = sum(weight.numel() for weight in context.model.parameters() if weight.requires_grad)
    source, target = (tokenizer.vocab_size for tokenizer in data.tokenizers)
    entries = f"{source:,} entries, shared" if config.tokenizer.shared else f"{source:,} and {target:,} entries"
    sample = config.tokenizer.sample_pairs
    is_sample = sample is not None and len(data.corpora.get("train", ())) > sample
    learned = f", trained on {sample:,} of the pairs" if is_sample else ""
    frozen = f", {num_trained:,} trained" if num_trained < context.num_parameters else ""
    directions = dict.fromkeys(f"{source} to {target}" for source, target in config.corpus.languages_of("train"))
    problems = problems_to_show(data, config, cache)
    note = note_on_patience(config.training, context.length.steps_per_epoch, context.length.num_steps)
    return [
        f"{config.name}: {', '.join(directions)}, into {context.directory.path}",
        *(f"  {line}" for line in [*describe_data(data, config), *_notes_on_metric(data, config), *map(str, problems)]),
        f"  vocabulary  {entries} ({config.tokenizer.algorithm}{learned})",
        f"  model       {context.num_parameters:,} parameters{frozen}",
        f"  exports to  {describe_destinations(config)}",
        f"  steps       {_describe_steps(context.length, config.training)}",
        f"  watch       tensorboard --logdir {context.directory.path.parent}",
        f"  device      {_describe_device(context)}",
        *([f"  computes    {describe_computing(context)}"] if context.device.type == "cuda" else []),
        *notes_on_device(config, context.device),
        *([f"note: {note}"] if note else []),
    ]


def _describe_steps(length: Length, training: TrainingConfig) -> str:
    is_growing = training.micro_batches_growth_steps is not None
    unknown = "of growing size" if is_growing else "as many an epoch as the stream gives"
    steps = f"{length.steps_per_epoch:,} an epoch" if length.steps_per_epoch else unknown
    limit = f", at most {length.num_steps:,} in all" if length.num_steps else ""
    return f"{steps}{limit}; {length.step_tokens:,} tokens each at most"


def _describe_device(context: TrainingContext) -> str:
    num_threads, number = torch.get_num_threads(), context.group.size
    description = f"{describe_hardware(context.device)['device']}, {context.precision}"
    if context.device.type == "cpu":
        description += f", {num_threads} thread{'s' * (num_threads > 1)}"
    if number > 1:
        description += f"; {number} processes"
    num_micro_batches = context.length.step_tokens // context.config.training.tokens_per_batch
    if num_micro_batches % number:
        description += f", some of which wait: a step has {num_micro_batches} micro-batches"
    return description


def describe_computing(context: TrainingContext) -> str:
    """Number format, attention kernel, CUDA graphs and compilation on a GPU, in one line."""
    model, reason = context.config.model, context.reason_against_graphs
    is_varlen = has_variable_length(context.device, context.dtype, model.d_head) and not model.attention_dropout
    kernel = "variable-length attention" if is_varlen else "attention over a grid of padded sentences"
    graphs = "CUDA graphs" if reason is None else f"no CUDA graphs ({reason})"
    return ", ".join([context.precision, kernel, graphs, *(["compiled layers"] if context.compiles_layers else [])])


def notes_on_device(config: Config, device: torch.device) -> list[str]:
    """Notes if a GPU could train a larger model, because the config was written for a CPU, or larger micro-batches."""
    notes = []
    if config.training.planned_for == "cpu" and device.type != "cpu":
        notes.append(
            "note: mt init wrote this config on a CPU, for a smaller model than these pairs allow "
            "(training.planned_for); mt init on this machine writes one for the GPU"
        )
    if device.type == "cuda" and (note := note_on_batches(config.training)):
        notes.append(f"note: {note}")
    return notes


def note_on_batches(training: TrainingConfig) -> str | None:
    """Note that a GPU computes larger micro-batches faster, in steps of the same size or larger; None if not."""
    size, number = training.tokens_per_batch, training.micro_batches_per_step
    divisors = (n for n in range(1, number) if number % n == 0)
    fewer = next((n for n in divisors if size * number // n <= LARGEST_BATCH), None)
    if fewer and training.micro_batches_growth_steps is None:
        return (
            "a GPU computes a step of this size faster in fewer micro-batches; for a new run, set "
            f"training.batch_tokens to {size * number // fewer} and training.micro_batches_per_step to {fewer}"
        )
    if size >= _SMALL_BATCH:
        return None
    return (
        f"training.batch_tokens is {size:,}, as the config says, so that the result is that of a CPU; "
        f"{_BATCH_OF_A_GPU} takes less time a token on a GPU, but makes fewer and larger steps"
    )


def note_on_patience(training: TrainingConfig, steps_per_epoch: int | None, num_steps: int | None) -> str | None:
    """Note that `training.patience` cannot end a run of `num_steps`, or waits for a long warm-up; None if neither."""
    every = training.validate_every_steps or steps_per_epoch
    if training.patience is None or every is None:
        return None
    # The first validation is always the best so far, and validations of the warm-up do not count.
    first = max(2, training.warmup_steps // every + 1)
    earliest = every * (first + training.patience - 1)
    is_too_late = num_steps is not None and earliest >= num_steps
    if not is_too_late and training.warmup_steps < every * training.patience:
        return None
    end = f", and training.max_steps or max_epochs ends it at step {num_steps:,}" if is_too_late else ""
    return (
        f"training.patience {training.patience} cannot end this run before step {earliest:,} (a validation every "
        f"{every:,} steps; those of the {training.warmup_steps:,} warm-up steps do not count){end}"
    )


def _notes_on_metric(data: Data, config: Config) -> list[str]:
    """Note that the references are too short for BLEU, if BLEU selects the best checkpoint."""
    scorer = scorer_of(config, "valid")
    is_bleu = best_metric_of(config, scorer) == "bleu"
    note = note_on_short_references(scorer, [target for _, target in data.corpora["valid"].pairs]) if is_bleu else None
    return [f"note: {note}"] if note else []
