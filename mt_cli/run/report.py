"""What a run tells people and writes at its end: its data and model, its scores in `report.json`, a bad batch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from mt_cli.checkpoint.state import RunState
from mt_cli.config.loading import flat
from mt_cli.config.sections import Config
from mt_cli.config.training import TrainingConfig
from mt_cli.data.describe import describe_data, report_on_data
from mt_cli.evaluation.evaluate import SplitScores, evaluate, write_hypotheses
from mt_cli.evaluation.texts import scorer_of
from mt_cli.features.data_check.findings import Finding
from mt_cli.machine.console import say
from mt_cli.machine.devices import describe_hardware, describe_versions
from mt_cli.machine.storage import write_text
from mt_cli.reporting.records import write_hparams
from mt_cli.reporting.report import BestValidation, DataRow, ParentRecord, Report
from mt_cli.training.steps import StepReport
from mt_cli.translation.translator import Translator

if TYPE_CHECKING:
    from mt_cli.run.setup import TrainingContext


def describe_training(context: TrainingContext, problems: Sequence[Finding]) -> list[str]:
    """Data, model, length and device of a run, for people, several lines."""
    config, training = context.config, context.config.training
    num_trained = sum(weight.numel() for weight in context.model.parameters() if weight.requires_grad)
    source, target = (tokenizer.vocab_size for tokenizer in context.data.tokenizers)
    entries = f"{source:,} entries, shared" if config.tokenizer.shared else f"{source:,} and {target:,} entries"
    sample = config.tokenizer.sample_pairs
    is_sample = sample is not None and len(context.data.corpora.get("train", ())) > sample
    learned = f", trained on {sample:,} of the pairs" if is_sample else ""
    is_growing = training.micro_batches_growth_steps is not None
    unknown = "of growing size" if is_growing else "as many an epoch as the stream gives"
    steps = f"{context.length.steps_per_epoch:,} an epoch" if context.length.steps_per_epoch else unknown
    steps += f", at most {context.length.num_steps:,} in all" if context.length.num_steps else ""
    frozen = f", {num_trained:,} trained" if num_trained < context.num_parameters else ""
    num_threads, number = torch.get_num_threads(), context.group.size
    together = f"; {number} processes" if number > 1 else ""
    if (num_micro_batches := context.length.step_tokens // training.tokens_per_batch) % number:
        together += f", some of which wait: a step has {num_micro_batches} micro-batches"
    threads = f", {num_threads} thread{'s' * (num_threads > 1)}" if context.device.type == "cpu" else ""
    together += ", sharded" if context.is_sharded else ""
    directions = dict.fromkeys(f"{one} to {other}" for one, other in config.corpus.languages_of("train"))
    return [
        f"{config.name}: {', '.join(directions)}, into {context.directory.path}",
        *(f"  {line}" for line in [*describe_data(context.data, config), *map(str, problems)]),
        f"  vocabulary  {entries} ({config.tokenizer.algorithm}{learned})",
        f"  model       {context.num_parameters:,} parameters{frozen}",
        f"  steps       {steps}; {context.length.step_tokens:,} tokens each at most",
        f"  watch       tensorboard --logdir {context.directory.path.parent}",
        f"  device      {describe_hardware(context.device)['device']}, {context.precision}{threads}{together}",
        *notes_on_device(config, context.device),
    ]


def notes_on_device(config: Config, device: torch.device) -> list[str]:
    """A note if the config was written for a CPU, with a smaller model than a GPU could train."""
    if config.training.planned_for != "cpu" or device.type == "cpu":
        return []
    return [
        "note: mt init wrote this config on a CPU, for a smaller model than these pairs allow (training.planned_for); "
        "mt init on this machine writes one for the GPU"
    ]


def note_on_patience(training: TrainingConfig, steps_per_epoch: int | None, num_steps: int | None) -> str | None:
    """A note if `training.patience` cannot end a run of so many steps, or if it waits for a long warm-up."""
    every = training.validate_every_steps or steps_per_epoch
    if training.patience is None or every is None:
        return None
    # The first validation is the best one so far, and those of the warm-up do not count.
    first = max(2, training.warmup_steps // every + 1)
    earliest = every * (first + training.patience - 1)
    if num_steps is not None and earliest >= num_steps:
        return (
            f"training.patience {training.patience} cannot end this run: the earliest step for that is {earliest:,} (a "
            f"validation every {every:,} steps; those of the {training.warmup_steps:,} warm-up steps do not count), "
            f"and the run ends at step {num_steps:,}, by training.max_steps or max_epochs"
        )
    if training.warmup_steps >= every * training.patience:
        return (
            f"training.patience {training.patience} cannot end this run before step {earliest:,}: validations during "
            f"the {training.warmup_steps:,} steps of training.warmup_steps do not count"
        )
    return None


def write_report(context: TrainingContext, state: RunState, stopped_because: str) -> Report:
    """Score the best checkpoint on the test sets; write and return the report.

    Translations are made in the precision of training, which the report names.
    """
    directory, data, position = context.directory, context.data, state.position
    translator = Translator.load(directory.path, str(context.device), context.precision)
    scores = {}
    for name in [name for name in data.corpora if name not in ("train", "valid")] or ["valid"]:
        scorer = scorer_of(context.config, name)
        corpus = data.corpora[name]
        languages = corpus.languages(context.config.corpus.languages_of(name))
        say(f"Scoring {name}: {len(corpus):,} sentences (training.max_minutes does not count this)")
        scores[name], hypotheses = evaluate(translator, corpus.pairs, name, scorer, languages, corpus.blank_rows())
        write_hypotheses(directory.path, name, hypotheses)
    first, *others = scores.values()
    best = directory.best_state()
    report = Report(
        **first.model_dump(exclude_unset=True),
        run=context.config.name,
        extra_tests={each.split: each for each in others},
        parents=[ParentRecord(**asdict(parent)) for parent in state.parents],
        validation=_validation(state),
        stopped_because=stopped_because,
        best_step=state.best_step,
        averaged_steps=best.averaged_steps if best else None,
        num_steps=position.step,
        num_epochs=position.epoch,
        num_target_tokens=position.num_target_tokens,
        num_bad_steps=state.num_bad_steps,
        num_restarts=state.num_restarts,
        corpora=[
            DataRow(**row) for row in report_on_data(data, context.config, position.num_pairs, context.pairs.counts)
        ],
        elapsed_seconds=round(state.elapsed_seconds, 3),
        num_parameters=context.num_parameters,
        precision=context.precision,
        num_processes=position.num_processes,
        hardware=describe_hardware(context.device),
        versions=describe_versions(),
    )
    _write_hparams(context, position.step + 1, scores)  # At the next step: a resumed run drops these values.
    tree = report.model_dump(mode="json", exclude_unset=True)
    write_text(directory.report_path, json.dumps(tree, indent=2, ensure_ascii=False) + "\n")
    return report


def _validation(state: RunState) -> BestValidation:
    is_loss = state.best_metric == "loss"  # The state has it negated.
    best, parent = (
        None if value is None else round(-value if is_loss else value, 4)
        for value in (state.best_value, state.parent_value if state.parent_metric == state.best_metric else None)
    )
    is_below = state.is_below_parent(state.best_value, state.best_metric)
    return BestValidation(metric=state.best_metric, best=best, parent=parent, is_below_parent=is_below)


def _write_hparams(context: TrainingContext, step: int, scores: Mapping[str, SplitScores]) -> None:
    """Write options and final scores for TensorBoard's table of runs, which shows the first few by alphabet."""
    sections = ("tokenizer", "model", "training")
    options = {key: value for name in sections for key, value in flat(getattr(context.config, name), name).items()}
    values = {
        f"final/{name}_{metric}": each.scores[metric].score
        for name, each in scores.items()
        for metric in ("bleu", "chrf")
    }
    write_hparams(context.directory.path, step, options, values | {"final/parameters": float(context.num_parameters)})


def write_bad_batch(context: TrainingContext, skipped: StepReport) -> None:
    """Write the pairs of a skipped step to `bad_batch.jsonl`."""
    pairs = (batch.pairs[int(index)] for batch in skipped.placed for index in batch.indices)
    sides = [
        tokenizer.decode([ids.tolist() for ids in side])
        for tokenizer, side in zip(context.data.tokenizers, zip(*pairs, strict=True), strict=True)
    ]
    rows = ({"source": source, "target": target} for source, target in zip(*sides, strict=True))
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_text(context.directory.bad_batch_path, text)
