"""A whole run: corpora, tokenizers, model, training with validation, and the final test. Wires the other rooms."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from mt_cli.batching.batches import MixedPairs, count_batches
from mt_cli.batching.streamed import StreamedPairs
from mt_cli.checkpoint import RunDirectory, load_checkpoint, save_checkpoint, write_text
from mt_cli.config.sections import Config, TrainingConfig
from mt_cli.corpus.reading import Pair
from mt_cli.errors import RunInterruptedError
from mt_cli.evaluation import TokenScores, score_texts, score_tokens
from mt_cli.experiment.data import Data, describe_data, names_of_parts, prepare, report_on_data, training_pairs
from mt_cli.hardware import describe_hardware, describe_versions, keep_memory, pick_device, pick_precision
from mt_cli.model.transformer import Transformer
from mt_cli.objective import Objective
from mt_cli.optimizer import build_optimizer, learning_rate
from mt_cli.tracking import Progress, Tracker, say
from mt_cli.training import Position, StepReport, fits_memory, largest_batch, optimization_steps
from mt_cli.translator import Translator


def train(config: Config, runs: Path, fresh: bool = False) -> dict[str, Any]:
    """Train, or go on with, the run that a config describes; return its report, which is also in the directory.

    Nothing is written before the corpora have been read and the device has been found.

    Raises:
        InputError: if the data, the device or an older run in the directory does not fit.
        RunInterruptedError: after SIGINT or SIGTERM, with the state saved.
    """
    directory = RunDirectory(runs / config.name)
    device = pick_device(config.training.device)
    if config.training.num_threads is not None:
        torch.set_num_threads(config.training.num_threads)
    resuming = directory.last_path.exists() and not fresh
    if resuming:
        if config.training.batch_tokens == "auto":
            config = _with_batch_tokens(config, directory.config().training.tokens_per_batch)
        directory.check_resumable(config)
    data = prepare(config, runs / ".cache", directory.tokenizers(config) if resuming else None)
    keep_memory()
    torch.manual_seed(config.training.seed)
    model = Transformer(config.model, *(tokenizer.vocab_size for tokenizer in data.tokenizers)).to(device)
    config = _resolve_batch_tokens(config, model, data)
    run = _Run(directory, config, model, data)
    run.print_plan()
    if resuming:
        run.resume()
    else:
        if fresh and directory.path.exists():
            say(f"The old run was moved to {directory.move_aside()}.")
        directory.create(config, data.tokenizers)
    stopped_because = run.optimize()
    report = run.report(stopped_because)
    _print_summary(report, directory.path)
    return report


def _resolve_batch_tokens(config: Config, model: Transformer, data: Data) -> Config:
    """The config with a number for `batch_tokens: auto`, found by trying the longest pairs on a GPU."""
    if config.training.batch_tokens != "auto":
        return config
    device = next(model.parameters()).device
    size = _SMALLEST_BATCH
    if device.type == "cuda":
        objective = Objective(model, config.training.label_smoothing)
        dtype = pick_precision(config.training.precision, device)
        if config.corpus.is_streaming:
            source, target, largest = config.corpus.max_tokens, config.corpus.max_tokens, _LARGEST_BATCH
        else:
            lengths = data.encoded["train"].lengths()
            source, target = (int(side.max()) for side in lengths)
            largest = min(_LARGEST_BATCH, int(lengths.max(axis=0).sum()) // _BATCHES_PER_EPOCH)
        size = largest_batch(
            lambda size: fits_memory(objective, dtype, source + 1, target + 1, size), _SMALLEST_BATCH, largest
        )
        torch.cuda.empty_cache()
    say(f"training.batch_tokens: auto is {size:,} here")
    return _with_batch_tokens(config, size)


def _with_batch_tokens(config: Config, size: int) -> Config:
    return config.model_copy(update={"training": config.training.model_copy(update={"batch_tokens": size})})


_SMALLEST_BATCH, _LARGEST_BATCH, _BATCHES_PER_EPOCH = 4_096, 131_072, 100


@dataclass
class Progression:
    """What a run remembers beside weights: where it is and what was best. Saved with every checkpoint."""

    position: Position = field(default_factory=Position)
    elapsed_seconds: float = 0.0
    best_step: int = 0
    best_value: float | None = None
    """Of `training.best_metric`; higher is better, a loss is negated."""
    num_validations_without_better: int = 0
    validated_step: int = 0

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Progression:
        """The inverse of `asdict`."""
        return cls(position=Position(**state["position"]), **{k: v for k, v in state.items() if k != "position"})

    def reason_to_stop(self, config: TrainingConfig) -> str | None:
        """The option of the config that ends the run here, with its value."""
        reached = {
            "max_steps": config.max_steps is not None and self.position.step >= config.max_steps,
            "max_epochs": config.max_epochs is not None and self.position.epoch >= config.max_epochs,
            "max_minutes": config.max_minutes is not None and self.elapsed_seconds >= 60 * config.max_minutes,
            "patience": config.patience is not None and self.num_validations_without_better >= config.patience,
        }
        return next((f"{name} {getattr(config, name)}" for name, is_reached in reached.items() if is_reached), None)


def follow(
    reports: Iterable[StepReport],
    *,
    log: Callable[[StepReport], None],
    is_time_to_validate: Callable[[StepReport], bool],
    validate: Callable[[], None],
    save: Callable[[], None],
    reason_to_stop: Callable[[], str | None],
    is_interrupted: Callable[[], bool],
) -> str:
    """The policy around the optimisation: take its reports until there is a reason to stop, and return that.

    Raises:
        RunInterruptedError: after saving, if a signal came.
    """
    for report in reports:
        log(report)
        if is_interrupted():
            save()
            raise RunInterruptedError(f"interrupted at step {report.step}; the same command goes on from there")
        reason = reason_to_stop()
        if reason or is_time_to_validate(report):
            validate()
            save()
        if reason := reason or reason_to_stop():
            return reason
    raise AssertionError("the optimisation never ends by itself")


class _Run:
    """One training run in its directory."""

    def __init__(self, directory: RunDirectory, config: Config, model: Transformer, data: Data) -> None:
        self.directory, self.config, self.model, self.data = directory, config, model, data
        self.device = next(model.parameters()).device
        self.dtype = pick_precision(config.training.precision, self.device)
        self.precision = "bf16" if self.dtype == torch.bfloat16 else "fp32"
        self.objective = Objective(model, config.training.label_smoothing)
        self.optimizer = build_optimizer(model, config.training)
        self.progression = Progression()
        self.pairs = training_pairs(data, config)
        self.steps_per_epoch = None
        if isinstance(self.pairs, MixedPairs):
            num_batches = count_batches(self.pairs, config.training.tokens_per_batch)
            self.steps_per_epoch = -(-num_batches // config.training.micro_batches_per_step)
        limits = (config.training.max_steps, (config.training.max_epochs or 0) * (self.steps_per_epoch or 0))
        self.num_steps = min((limit for limit in limits if limit), default=None)

    def print_plan(self) -> None:
        """Say what will be trained on what, before the first step."""
        corpus, training = self.config.corpus, self.config.training
        say(f"{self.config.name}: {corpus.source} to {corpus.target}, into {self.directory.path}")
        for line in describe_data(self.data, self.config):
            say(f"  {line}")
        source, target = (tokenizer.vocab_size for tokenizer in self.data.tokenizers)
        shared = f"{source:,} entries, shared" if self.config.tokenizer.shared else f"{source:,} and {target:,} entries"
        sample = self.config.tokenizer.sample_pairs
        is_sample = sample is not None and len(self.data.corpora.get("train", ())) > sample
        learned = f", learned from {sample:,} of the pairs" if is_sample else ""
        say(f"  vocabulary  {shared} ({self.config.tokenizer.algorithm}{learned})")
        say(f"  model       {sum(weight.numel() for weight in self.model.parameters()):,} parameters")
        steps = f"{self.steps_per_epoch:,} an epoch" if self.steps_per_epoch else "unknown number"
        steps += f", at most {self.num_steps:,}" if self.num_steps else ""
        say(f"  steps       {steps}, of {training.tokens_per_batch * training.micro_batches_per_step:,} tokens")
        threads = f", {torch.get_num_threads()} threads" if self.device.type == "cpu" else ""
        say(f"  device      {describe_hardware(self.device)['device']}, {self.precision}{threads}")

    def resume(self) -> None:
        """Take up the state of the last checkpoint."""
        state = load_checkpoint(self.directory.last_path, self.model, self.optimizer)
        self.progression = Progression.from_state(state)
        write_text(self.directory.config_path, self.config.to_yaml())
        say(f"Going on from step {self.progression.position.step}.")

    def optimize(self) -> str:
        """Train until there is a reason to stop; return that."""
        training, progression = self.config.training, self.progression
        if reason := progression.reason_to_stop(training):
            return reason
        reports = optimization_steps(
            self.objective,
            self.optimizer,
            self.pairs,
            training,
            lambda step: learning_rate(training, step, self.num_steps),
            progression.position,
            self.dtype,
        )
        every = training.validate_every_steps
        with (
            Tracker(self.directory.path, progression.position.step) as self.tracker,
            Progress("train", self.num_steps, "step", progression.position.step) as bar,
            _signals_noted() as received,
        ):
            self.log = _TrainingLog(self.tracker, bar, training.log_every_steps, names_of_parts(self.config))
            return follow(
                self._timed(reports),
                log=lambda report: self.log.add(report, progression),
                is_time_to_validate=lambda report: report.step % every == 0 if every else report.ends_epoch,
                validate=self.validate,
                save=self.save,
                reason_to_stop=lambda: progression.reason_to_stop(training),
                is_interrupted=lambda: bool(received),
            )

    def _timed(self, reports: Iterable[StepReport]) -> Iterator[StepReport]:
        """The same reports, with the time that goes by added to the progression."""
        before, started_at = self.progression.elapsed_seconds, time.monotonic()
        for report in reports:
            self.progression.elapsed_seconds = before + time.monotonic() - started_at
            yield report
            self.progression.elapsed_seconds = before + time.monotonic() - started_at

    def validate(self) -> None:
        """Score the whole validation set, note it, and keep the weights if they are the best so far."""
        progression, step = self.progression, self.progression.position.step
        if progression.validated_step == step:
            return
        tokens, texts, hypotheses = self._score_validation_set()
        values = {"bleu": texts["bleu"]["score"], "chrf": texts["chrf"]["score"], "loss": -tokens.loss}
        value = values[self.config.training.best_metric]
        is_best = progression.best_value is None or value > progression.best_value
        progression.validated_step = step
        if is_best:
            progression.best_step, progression.best_value = step, value
            progression.num_validations_without_better = 0
            save_checkpoint(self.directory.best_path, self.model, asdict(progression))
        else:
            progression.num_validations_without_better += 1
        metrics = {
            "valid/loss": tokens.loss,
            "valid/perplexity": tokens.perplexity,
            "valid/token_accuracy": tokens.token_accuracy,
            "valid/bleu": values["bleu"],
            "valid/chrf": values["chrf"],
        }
        self.tracker.write_metrics(step, progression.elapsed_seconds, metrics)
        pairs = self.data.corpora["valid"].pairs[: self.config.training.num_samples]
        samples = [(*pair, hypothesis) for pair, hypothesis in zip(pairs, hypotheses, strict=False)]
        self.tracker.write_samples(step, samples)
        say(
            f"step {step:>6,}  epoch {self._epoch():5.1f}  {_clock(progression.elapsed_seconds)}"
            f"  train loss {self.log.recent_loss:.3f}  valid loss {tokens.loss:.3f}  accuracy "
            f"{tokens.token_accuracy:.1%}  BLEU {values['bleu']:.2f}  chrF {values['chrf']:.2f}"
            + ("  best" if is_best else "")
        )

    def _report_on_data(self) -> list[dict[str, Any]]:
        streamed = self.pairs.counts if isinstance(self.pairs, StreamedPairs) else ()
        return report_on_data(self.data, self.config, self.progression.position.num_pairs, streamed)

    def _epoch(self) -> float:
        """How many epochs are done, as far as that is known of the current one."""
        position = self.progression.position
        return position.step / self.steps_per_epoch if self.steps_per_epoch else float(position.epoch)

    def _score_validation_set(self) -> tuple[TokenScores, dict[str, Any], list[str]]:
        tokens = score_tokens(self.objective, self.data.encoded["valid"], self.config.training.tokens_per_batch)
        sources, references = zip(*self.data.corpora["valid"].pairs, strict=True)
        hypotheses = Translator(self.model, self.data.tokenizers, self.config).translate(sources, beam_size=1)
        return tokens, score_texts(hypotheses, references, with_ter=False), hypotheses

    def save(self) -> None:
        """Write all that going on needs."""
        save_checkpoint(self.directory.last_path, self.model, asdict(self.progression), self.optimizer)

    def report(self, stopped_because: str) -> dict[str, Any]:
        """Score the best checkpoint on the test sets, and write and return how the run ended."""
        if self.directory.report_path.exists():
            old: dict[str, Any] = json.loads(self.directory.report_path.read_text(encoding="utf-8"))
            if old["num_steps"] == self.progression.position.step:
                say(f"This run is finished ({old['stopped_because']}); nothing is left to do.")
                return old
        tests = [name for name in self.data.corpora if name not in ("train", "valid")]
        translator = Translator.load(self.directory.path, str(self.device))
        scores = {name: evaluate(translator, self.data.corpora[name].pairs, name) for name in tests or ["valid"]}
        first, *others = scores.values()
        report = {
            "run": self.config.name,
            **first,
            "extra_tests": {scored["split"]: scored for scored in others},
            "stopped_because": stopped_because,
            "best_step": self.progression.best_step,
            "num_steps": self.progression.position.step,
            "num_epochs": self.progression.position.epoch,
            "num_target_tokens": self.progression.position.num_target_tokens,
            "corpora": self._report_on_data(),
            "elapsed_seconds": round(self.progression.elapsed_seconds, 3),
            "num_parameters": sum(weight.numel() for weight in self.model.parameters()),
            "precision": self.precision,
            "hardware": describe_hardware(self.device),
            "versions": describe_versions(),
        }
        write_text(self.directory.report_path, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
        return report


class _TrainingLog:
    """Averages of the step reports since the last row, and the row when it is due; only then a GPU is waited for."""

    def __init__(self, tracker: Tracker, bar: Progress, every_steps: int, parts: Sequence[str]) -> None:
        self._tracker, self._bar, self._every_steps, self._parts = tracker, bar, every_steps, parts
        self._reports: list[StepReport] = []
        self._last_loss = float("nan")
        self._num_splits = 0

    @property
    def recent_loss(self) -> float:
        """Mean loss of the steps since the last row, or of those in it if there are none."""
        if not self._reports:
            return self._last_loss
        cross_entropy = float(torch.stack([each.cross_entropy for each in self._reports]).sum())
        return cross_entropy / sum(each.num_target_tokens for each in self._reports)

    def add(self, report: StepReport, progression: Progression) -> None:
        self._reports.append(report)
        self._bar.advance()
        if report.num_splits and not self._num_splits:
            say("A batch was too large for the memory and was cut in two, as others will be; the gradient is the same.")
        self._num_splits = report.num_splits
        if report.step % self._every_steps == 0:
            self._write_row(report, progression)

    def _write_row(self, report: StepReport, progression: Progression) -> None:
        started_at = time.perf_counter()
        self._last_loss, grad_norm = self.recent_loss, float(report.grad_norm)
        waited = time.perf_counter() - started_at
        num_tokens = sum(each.num_target_tokens for each in self._reports)
        tokens_per_second = num_tokens / (waited + sum(each.elapsed_seconds for each in self._reports))
        self._bar.show(loss=f"{self._last_loss:.3f}", tokens=f"{tokens_per_second:,.0f}/s")
        metrics = {
            "train/loss": self._last_loss,
            "train/learning_rate": report.learning_rate,
            "train/tokens_per_second": round(tokens_per_second, 1),
            "train/grad_norm": grad_norm,
        }
        if len(self._parts) > 1:
            seen = zip(self._parts, progression.position.num_pairs, strict=False)
            metrics |= {f"train/num_pairs/{name}": number for name, number in seen}
        self._tracker.write_metrics(report.step, progression.elapsed_seconds, metrics)
        self._reports = []


def evaluate(translator: Translator, pairs: Sequence[Pair], split: str, beam_size: int | None = None) -> dict[str, Any]:
    """`{"split", "num_sentences", "bleu", "chrf", "ter", "exact_match"}` of a translator on pairs.

    `exact_match` is the share of translations, 0-100, that equal their reference.
    """
    hypotheses = translator.translate([source for source, _ in pairs], beam_size)
    references = [target for _, target in pairs]
    num_equal = sum(hypothesis == reference for hypothesis, reference in zip(hypotheses, references, strict=True))
    return {
        "split": split,
        "num_sentences": len(pairs),
        **score_texts(hypotheses, references),
        "exact_match": round(100 * num_equal / len(pairs), 4),
    }


def format_scores(scores: Mapping[str, Any]) -> str:
    """The scores of one test set for people, several lines."""
    lines = [f"{scores['split']} ({scores['num_sentences']:,} sentences)"]
    for name, label in (("bleu", "BLEU"), ("chrf", "chrF"), ("ter", "TER")):
        lines.append(f"  {label:<6}{scores[name]['score']:6.2f}  {scores[name]['signature']}")
    return "\n".join([*lines, f"  exact {scores['exact_match']:6.2f}  % of sentences equal to their reference"])


def _print_summary(report: dict[str, Any], path: Path) -> None:
    say(
        f"\nStopped by {report['stopped_because']} after {report['num_steps']:,} steps, "
        f"{report['num_target_tokens']:,} target tokens and {_clock(report['elapsed_seconds'])}; "
        f"best step {report['best_step']:,}."
    )
    for scores in (report, *report["extra_tests"].values()):
        say(format_scores(scores))
    say(f'\nTranslate with it:  mt translate --run {path} "..."')
    say(f"See it learn:       tensorboard --logdir {path.parent}")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def _signals_noted() -> Iterator[list[int]]:
    """Inside, SIGINT and SIGTERM are put on a list; a second one ends the program at once."""
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        say("Stopping after this step, saving ... (once more: stop at once)")

    try:
        former = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # Not the main thread: signals stay as they are.
        former = {}
    try:
        yield received
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
