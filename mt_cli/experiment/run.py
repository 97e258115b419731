"""A whole run: corpora, tokenizers, model, training with validation, and the final test. Wires the other rooms."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from mt_cli.batching.batches import MixedPairs, count_batches
from mt_cli.batching.streamed import StreamedPairs
from mt_cli.checkpoint.directory import RunDirectory, list_differences, remove
from mt_cli.checkpoint.files import Checkpoint, open_checkpoint
from mt_cli.config.loading import flat
from mt_cli.config.sections import Config
from mt_cli.console import Progress, clock, say
from mt_cli.errors import DamagedFileError, DivergenceError, InputError, RunError, RunInterruptedError
from mt_cli.experiment import validation
from mt_cli.experiment.data import (
    Data,
    describe_data,
    fingerprints_of,
    longest_source,
    names_of_parts,
    prepare,
    report_on_data,
    scorer_of,
    training_pairs,
)
from mt_cli.experiment.scoring import evaluate, format_summary, write_hypotheses
from mt_cli.experiment.sizing import new_model, resolve_batch_tokens, with_batch_tokens
from mt_cli.experiment.state import RunState, Signals, follow
from mt_cli.experiment.training_log import TrainingLog
from mt_cli.hardware import (
    describe_hardware,
    describe_versions,
    keep_memory,
    pick_device,
    pick_precision,
    seed_everything,
)
from mt_cli.model.transformer import Transformer
from mt_cli.objective import Objective
from mt_cli.optimizer import build_optimizer, learning_rate
from mt_cli.storage import write_text
from mt_cli.tracking import Tracker, write_hparams
from mt_cli.training import StepReport, optimization_steps
from mt_cli.translator import Translator

T = TypeVar("T")


def train(config: Config, runs: Path, fresh: bool = False) -> dict[str, Any]:
    """Train, or go on with, the run that a config describes; return its report, which is also in the directory.

    Nothing is written before the corpora have been read and the device has been found.

    Raises:
        InputError: if the data, the device or an older run in the directory does not fit.
        RunInterruptedError: after SIGINT or SIGTERM, with the state saved.
    """
    directory = RunDirectory(runs / config.name)
    device = pick_device(config.training.device)
    scorer_of(config, "valid")  # One that cannot be had is named before anything is done.
    if config.training.num_threads is not None:
        torch.set_num_threads(config.training.num_threads)
    with directory.locked():
        run = _prepared(config, directory, device, fresh)
        report = run.finished_report()
        if report is None:
            stopped_because = run.optimize()
            try:
                report = run.report(stopped_because)
            except KeyboardInterrupt:
                message = (
                    "interrupted while the test sets were scored; the model is saved, the same command goes on there"
                )
                raise RunInterruptedError(message) from None
        else:
            say(f"This run is finished ({report['stopped_because']}); nothing is left to do.")
    say(format_summary(report, directory.path))
    return report


def _prepared(config: Config, directory: RunDirectory, device: torch.device, fresh: bool) -> _Run:
    """The run of a config in its directory, ready to begin or to go on."""
    resuming = bool(directory.states()) and not fresh
    if not resuming and not fresh and directory.holds_work():
        raise RunError(
            f"{directory.path}: there is a run in it, but no saved state to go on from; begin again with --fresh (the "
            "old run is moved aside), or give the config another name"
        )
    changed: Mapping[str, tuple[Any, Any]] = {}
    tokenizers = None
    if resuming:
        former = _readable(directory.config)
        if config.training.batch_tokens == "auto":
            config = with_batch_tokens(config, former.training.tokens_per_batch)
        changed = directory.check_resumable(former, config)
        tokenizers = _readable(lambda: directory.tokenizers(config))
    data = prepare(config, directory.path.parent / ".cache", tokenizers)
    keep_memory()
    seed_everything(config.training.seed)
    model = new_model(config, data, device)
    config = resolve_batch_tokens(config, model, data)
    if fresh and not directory.is_empty():
        say(f"The old run was moved to {directory.move_aside()}.")
    if not resuming:
        directory.create(config, data.tokenizers)
    run = _Run(directory, config, model, data)
    run.print_plan()
    if resuming:
        run.resume()
        if changed:
            say(f"The config has changed:{list_differences(changed)}")
    return run


def _readable(read: Callable[[], T]) -> T:
    """What `read` gives; if a file of the run cannot be read, the message says how to go on."""
    try:
        return read()
    except InputError as error:
        raise RunError(
            f"{error}\nRestore the file, or begin again with --fresh (the old run is moved aside)."
        ) from None


class _Run:
    """One training run in its directory."""

    def __init__(self, directory: RunDirectory, config: Config, model: Transformer, data: Data) -> None:
        self.directory, self.config, self.model, self.data = directory, config, model, data
        self.device = next(model.parameters()).device
        self.dtype = pick_precision(config.training.precision, self.device)
        self.precision = "bf16" if self.dtype == torch.bfloat16 else "fp32"
        self.objective = Objective(model, config.training.label_smoothing)
        self.optimizer = build_optimizer(model, config.training)
        self.state = RunState()
        self.scorer = scorer_of(config, "valid")
        metric = config.training.best_metric
        self.best_metric = self.scorer.default_metric if metric == "auto" else metric
        # What a best value is a value of: one that something else has measured cannot be compared.
        self.measure = f"bleu/{self.scorer.bleu_tokenizer}" if self.best_metric == "bleu" else self.best_metric
        self.fingerprints = fingerprints_of(data, config) | directory.tokenizer_digests()
        self._saved: tuple[int, int] | None = None
        self._saved_at = time.monotonic()
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
        say(f"  watch       tensorboard --logdir {self.directory.path.parent}")
        say(f"  device      {describe_hardware(self.device)['device']}, {self.precision}{threads}")

    def resume(self) -> None:
        """Take up the last state that is whole.

        Raises:
            RunError: if there is none, or corpora or tokenizers are not those the run began with.
        """
        self.state = self._load_state()
        write_text(self.directory.config_path, self.config.to_yaml())
        say(f"Going on from step {self.state.position.step}.")

    def _find_best(self) -> None:
        """Have the best checkpoint be the one that the state knows, or else the state know the one that is there."""
        state, best = self.state, None
        with suppress(DamagedFileError):
            saved = self.directory.best_state(state.best_step)
            best = None if saved is None else RunState.from_state(saved)
        if best is not None and best.best_step == state.position.step != state.best_step:
            # From a validation that only the end of the run brought; had it not ended, there would be none.
            remove(self.directory.best_path)
            best = None
        if best is not None:
            for name in ("best_step", "best_value", "best_loss", "best_metric"):
                setattr(state, name, getattr(best, name))
        elif state.best_step:
            say("The best checkpoint is missing or damaged; the weights of the last one take its place.")
            state.best_step, state.best_value = state.position.step, None
            self.directory.save_best(self.model, asdict(state))
        if state.best_step and state.best_metric != self.measure:
            self._choose_best_anew()

    def _choose_best_anew(self) -> None:
        """Have the best checkpoint be the best by another metric than before, of the weights that are kept."""
        state, directory = self.state, self.directory
        weights = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        state.best_value = state.best_loss = None
        say(f"The best checkpoint is chosen anew, by {self.measure}, among the weights that are kept:")
        candidates: dict[int, Path] = {state.best_step: directory.best_path}
        for path in directory.states():
            try:
                with open_checkpoint(path) as checkpoint:
                    candidates.setdefault(RunState.from_state(checkpoint.state).position.step, path)
            except DamagedFileError as error:
                say(f"  {error}; it is passed over")
        best_weights = weights
        for step, path in sorted(candidates.items()):
            if step:
                with open_checkpoint(path) as checkpoint:
                    checkpoint.fill(self.model)
                value, loss = self._value_of(validation.validate(self.objective, self.data, self.config, self.scorer))
                measured = "" if self.best_metric == "loss" else f"{self.best_metric} {value:.2f}  "
                say(f"  step {step:>6,}  {measured}valid loss {loss:.3f}")
                if state.is_better(value, loss):
                    state.best_step, state.best_value, state.best_loss = step, value, loss
                    best_weights = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        state.best_metric, state.num_validations_without_better = self.measure, 0
        self.model.load_state_dict(best_weights)
        directory.save_best(self.model, asdict(state))
        self.model.load_state_dict(weights)

    def _value_of(self, found: validation.Validation) -> tuple[float, float]:
        """What the best validation has the most of, and the loss that decides between equals."""
        loss = found.tokens.loss
        return -loss if self.best_metric == "loss" else found.texts[self.best_metric]["score"], loss

    def _load_state(self, is_usable: Callable[[RunState, Checkpoint], bool] = lambda *state: True) -> RunState:
        """Fill model and optimizer from the newest state that is whole and usable; return what else was in it."""
        passed_over: list[str] = []
        for path in self.directory.states():
            try:
                with open_checkpoint(path) as checkpoint:
                    state = RunState.from_state(checkpoint.state)
                    self._check_unchanged(state.fingerprints)
                    if not is_usable(state, checkpoint):
                        continue
                    checkpoint.fill(self.model, self.optimizer)
            except DamagedFileError as error:
                passed_over.append(str(error))
                continue
            for message in passed_over:
                say(f"{message}; it is passed over for {path.name}")
            self.directory.go_on_from(path, state.position.step, self._is_good(state))
            return state
        whole = "\n".join([*passed_over, f"{self.directory.path}: no saved state of this run can be used"])
        raise RunError(f"{whole}; begin again with --fresh (the old run is moved aside)")

    def _is_good(self, state: RunState) -> bool:
        """Whether the last step was not skipped, and all weights are finite numbers."""
        return not state.num_bad_steps_in_row and all(bool(w.isfinite().all()) for w in self.model.parameters())

    def _check_unchanged(self, fingerprints: Mapping[str, str]) -> None:
        """Raise RunError unless corpora and tokenizers are what they were when a state was saved."""
        self.directory.check_tokenizers(fingerprints)
        names = dict.fromkeys([*self.fingerprints, *fingerprints])
        changed = [name for name in names if fingerprints.get(name) != self.fingerprints.get(name)]
        if changed:
            raise RunError(
                f"{', '.join(changed)}: source or target text has changed since {self.directory.path} began; restore "
                "it, or begin again with --fresh (the old run is moved aside)"
            )

    def optimize(self) -> str:
        """Train until there is a reason to stop; return that. A run that diverges goes back, twice at most."""
        self._find_best()
        while True:
            try:
                return self._optimize()
            except DivergenceError as error:
                self._go_back(error)

    def _optimize(self) -> str:
        training, state = self.config.training, self.state
        with (
            Tracker(self.directory.path, state.position.step, state.tracked_bytes) as self.tracker,
            Progress("train", self.num_steps, "step", state.position.step, max_seconds=self._seconds_left()) as bar,
            Signals().noted() as signals,
        ):
            self.log = TrainingLog(training, state, self.tracker, bar, self.optimizer, names_of_parts(self.config))
            self.save()
            if state.is_due(training) and state.validated_step != state.position.step:
                self.validate()  # It was cut off.
                self.save()
            if reason := state.reason_to_stop(training):
                self.validate()
                return reason
            remove(self.directory.report_path)  # It would tell of an end that is none.
            return follow(
                self._timed(self._reports()),
                log=self.log.add,
                is_time_to_validate=lambda: state.is_due(training),
                validate=self.validate,
                is_time_to_save=lambda: signals.take_save_wanted() or self._is_save_overdue(),
                save=self.save,
                reason_to_stop=lambda: state.reason_to_stop(training),
                is_interrupted=lambda: signals.is_stop_wanted,
            )

    def _seconds_left(self) -> float | None:
        minutes = self.config.training.max_minutes
        return None if minutes is None else 60 * minutes - self.state.elapsed_seconds

    def _reports(self) -> Iterator[StepReport]:
        training, factor = self.config.training, 0.5**self.state.num_restarts
        return optimization_steps(
            self.objective,
            self.optimizer,
            self.pairs,
            training,
            lambda step: factor * learning_rate(training, step, self.num_steps),
            self.state.position,
            self.dtype,
        )

    def _go_back(self, error: DivergenceError) -> None:
        """Take up the last good state with half the learning rate.

        Raises:
            DivergenceError: if that has not helped twice.
        """
        diverged = self.state
        if diverged.num_restarts >= _MAX_RESTARTS:
            self._write_bad_batch()
            raise DivergenceError(
                f"{self.directory.path}: training diverged: in {error} the loss or the gradient was not finite, also "
                f"with {0.5**_MAX_RESTARTS:g} of the learning rate. The last batch is in "
                f"{self.directory.bad_batch_path.name}. Lower training.learning_rate, raise training.warmup_steps, or "
                "mend these pairs, and begin again with --fresh."
            ) from None
        try:
            self.state = self._load_state(
                lambda state, checkpoint: not state.num_bad_steps_in_row and checkpoint.is_finite()
            )
        except RunError:
            self._write_bad_batch()
            raise
        kept = ("elapsed_seconds", "best_step", "best_value", "best_loss", "best_metric", "num_bad_steps")
        self.state = replace(self.state, **{name: getattr(diverged, name) for name in kept})
        self.state.num_bad_steps_in_row, self.state.num_restarts = 0, diverged.num_restarts + 1
        self._saved = None
        say(
            f"The loss or the gradient was not finite in {error}: going back to step "
            f"{self.state.position.step:,}, on with {0.5**self.state.num_restarts:g} of the learning rate."
        )

    def _write_bad_batch(self) -> None:
        """Write the pairs of the last step that was skipped, one object a line."""
        assert self.log.last_bad is not None
        pairs = (batch.pairs[int(index)] for batch in self.log.last_bad.placed for index in batch.indices)
        sides = [
            tokenizer.decode([ids.tolist() for ids in side])
            for tokenizer, side in zip(self.data.tokenizers, zip(*pairs, strict=True), strict=True)
        ]
        rows = ({"source": source, "target": target} for source, target in zip(*sides, strict=True))
        write_text(self.directory.bad_batch_path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))

    def _timed(self, reports: Iterable[StepReport]) -> Iterator[StepReport]:
        """The same reports, with the time that goes by added to the state."""
        before, started_at = self.state.elapsed_seconds, time.monotonic()
        for report in reports:
            self.state.elapsed_seconds = before + time.monotonic() - started_at
            yield report
            self.state.elapsed_seconds = before + time.monotonic() - started_at

    def validate(self) -> None:
        """Score the whole validation set, note it, and keep the weights if they are the best so far."""
        state, step = self.state, self.state.position.step
        if state.validated_step == step:
            return
        self.log.read()
        found = validation.validate(self.objective, self.data, self.config, self.scorer)
        tokens, bleu, chrf = found.tokens, found.texts["bleu"]["score"], found.texts["chrf"]["score"]
        value, loss = self._value_of(found)
        # A run that went back may come by its best step again.
        is_best = state.is_better(value, loss) or (step == state.best_step and math.isfinite(value + loss))
        state.validated_step = step
        if is_best:
            state.best_step, state.best_value, state.best_loss = step, value, loss
            state.best_metric = self.measure
            state.num_validations_without_better = 0
            self.directory.save_best(self.model, asdict(state))
        elif step > self.config.training.warmup_steps:  # Before, scores near zero rise and fall by chance.
            state.num_validations_without_better += 1
        self.tracker.write_metrics(step, state.elapsed_seconds, found.metrics)
        self.tracker.write_samples(step, found.samples)
        self.tracker.write_pictures(step, found.pictures)
        say(
            f"step {step:>6,}  epoch {self._epoch():5.1f}  {clock(state.elapsed_seconds)}"
            f"  train loss {self.log.recent_loss:.3f}  valid loss {tokens.loss:.3f}  accuracy "
            f"{tokens.token_accuracy:.1%}  BLEU {bleu:.2f}  chrF {chrf:.2f}" + ("  best" if is_best else "")
        )
        for line in validation.sample_lines(found.samples, max(80, shutil.get_terminal_size().columns)):
            say(line)

    def _report_on_data(self) -> list[dict[str, Any]]:
        streamed = self.pairs.counts if isinstance(self.pairs, StreamedPairs) else ()
        return report_on_data(self.data, self.config, self.state.position.num_pairs, streamed)

    def _epoch(self) -> float:
        """How many epochs are done, as far as that is known of the current one."""
        position = self.state.position
        return position.step / self.steps_per_epoch if self.steps_per_epoch else float(position.epoch)

    def save(self) -> None:
        """Write all that going on needs, unless that has been done at this step already."""
        state = self.state
        self.log.read()
        now = (state.position.step, state.validated_step)
        if self._saved == now:
            return
        state.tracked_bytes = self.tracker.flush()
        state.fingerprints, state.longest_source = self.fingerprints, longest_source(self.data, self.config)
        step, keep_last = state.position.step, self.config.training.keep_last
        is_good = self._is_good(state)
        self.directory.save_state(self.model, asdict(state), self.optimizer, step, keep_last, is_good)
        self._saved, self._saved_at = now, time.monotonic()

    def _is_save_overdue(self) -> bool:
        minutes = self.config.training.save_every_minutes
        return minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes

    def finished_report(self) -> dict[str, Any] | None:
        """The report of a run that has ended for a reason that still holds; None if there is more to do."""
        if self.state.reason_to_stop(self.config.training):
            # One that cannot be read is written anew.
            with suppress(OSError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
                report: dict[str, Any] = json.loads(self.directory.report_path.read_text(encoding="utf-8"))
                format_summary(report, self.directory.path)
                best = self.directory.best_state(report["best_step"]) or {}
                is_of_this_step = report["num_steps"] == self.state.position.step
                scorer = scorer_of(self.config, report["split"])
                is_scored_so = f"|tok:{scorer.bleu_tokenizer}" in report["bleu"]["signature"]
                if is_of_this_step and is_scored_so and best["best_metric"] == self.measure:
                    return report
        return None

    def report(self, stopped_because: str) -> dict[str, Any]:
        """Score the best checkpoint on the test sets, and write and return how the run ended."""
        tests = [name for name in self.data.corpora if name not in ("train", "valid")]
        translator = Translator.load(self.directory.path, str(self.device), self.precision)
        scores = {}
        for name in tests or ["valid"]:
            scorer = scorer_of(self.config, name)
            scores[name], hypotheses = evaluate(translator, self.data.corpora[name].pairs, name, scorer)
            write_hypotheses(self.directory.path, name, hypotheses)
        first, *others = scores.values()
        report = {
            "run": self.config.name,
            **first,
            "extra_tests": {scored["split"]: scored for scored in others},
            "stopped_because": stopped_because,
            "best_step": self.state.best_step,
            "num_steps": self.state.position.step,
            "num_epochs": self.state.position.epoch,
            "num_target_tokens": self.state.position.num_target_tokens,
            "num_bad_steps": self.state.num_bad_steps,
            "num_restarts": self.state.num_restarts,
            "corpora": self._report_on_data(),
            "elapsed_seconds": round(self.state.elapsed_seconds, 3),
            "num_parameters": sum(weight.numel() for weight in self.model.parameters()),
            "precision": self.precision,
            "hardware": describe_hardware(self.device),
            "versions": describe_versions(),
        }
        self._write_hparams(scores)
        write_text(self.directory.report_path, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
        return report

    def _write_hparams(self, scores: Mapping[str, Mapping[str, Any]]) -> None:
        """Options and final scores, for TensorBoard's table of runs; it shows the first few by alphabet."""
        sections = ("tokenizer", "model", "training")
        options = {key: value for name in sections for key, value in flat(getattr(self.config, name), name).items()}
        values = {
            f"final/{name}_{metric}": scored[metric]["score"]
            for name, scored in scores.items()
            for metric in ("bleu", "chrf")
        }
        values["final/parameters"] = float(sum(weight.numel() for weight in self.model.parameters()))
        # After the last step, so that a run which goes on from there forgets them.
        write_hparams(self.directory.path, self.state.position.step + 1, options, values)


_MAX_RESTARTS = 2
