"""Description of a training run before its first step: data, model, length, device, and notes."""

from __future__ import annotations

import torch

from mt_cli.advice.problems import find_problems
from mt_cli.corpus.cache import Cache
from mt_cli.data.statistics import describe_data
from mt_cli.exchange.destinations import describe_destinations
from mt_cli.model.packed_attention import has_row_kernels
from mt_cli.run.setup import Setup
from mt_cli.runtime.devices import describe_hardware
from mt_cli.training.plan import Length


def describe_training(setup: Setup, cache: Cache) -> list[str]:
    """Data, model, length and device of a run, and notes, as lines of text."""
    config, data = setup.run.config, setup.run.data
    num_trained = sum(weight.numel() for weight in setup.model.parameters() if weight.requires_grad)
    source, target = (tokenizer.vocab_size for tokenizer in data.tokenizers)
    entries = f"{source:,} entries, shared" if config.tokenizer.shared else f"{source:,} and {target:,} entries"
    frozen = f", {num_trained:,} trained" if num_trained < setup.num_parameters else ""
    directions = dict.fromkeys(f"{source} to {target}" for source, target in config.corpus.languages_of("train"))
    # `mt data check` reports the problems of the kind `text`.
    problems = [problem for problem in find_problems(data.corpora, config, cache) if problem.kind != "text"]
    return [
        f"{config.name}: {', '.join(directions)}, into {setup.run.directory.path}",
        *(f"  {line}" for line in [*describe_data(data, config), *map(str, problems)]),
        *(setup.rounds.describe() if setup.rounds else []),
        f"  vocabulary  {entries} ({config.tokenizer.algorithm})",
        f"  model       {setup.num_parameters:,} parameters{frozen}",
        f"  exports to  {describe_destinations(config)}",
        f"  steps       {_describe_steps(setup.length)}",
        f"  watch       tensorboard --logdir {setup.run.directory.path.parent}",
        f"  device      {_describe_device(setup)}",
        *([f"  computes    {describe_computing(setup)}"] if setup.run.device.type == "cuda" else []),
    ]


def _describe_steps(length: Length) -> str:
    steps = f"{length.steps_per_epoch:,} an epoch" if length.steps_per_epoch else "as many an epoch as the stream gives"
    limit = f", about {length.num_steps:,} in all" if length.num_steps else ""
    return f"{steps}{limit}; {length.step_tokens:,} tokens each at most"


def _describe_device(setup: Setup) -> str:
    num_threads, number = torch.get_num_threads(), setup.run.group.size
    description = f"{describe_hardware(setup.run.device)['device']}, {setup.run.precision}"
    if setup.run.device.type == "cpu":
        description += f", {num_threads} thread{'s' * (num_threads > 1)}"
    if number > 1:
        description += f"; {number} processes"
    return description


def describe_computing(setup: Setup) -> str:
    """Dtype, attention kernel, CUDA graphs and compilation on a GPU, in one line."""
    model, reason = setup.run.config.model, setup.reason_against_graphs
    is_packed = has_row_kernels(setup.run.device, setup.run.dtype, model.d_head) and not model.attention_dropout
    kernel = "attention without padding" if is_packed else "attention over a grid of padded sentences"
    graphs = "CUDA graphs" if reason is None else f"no CUDA graphs ({reason})"
    return ", ".join([setup.run.precision, kernel, graphs, *(["compiled layers"] if setup.compiles_layers else [])])
