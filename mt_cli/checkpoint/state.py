"""State of a run: its position, best step and lineage, and the rules by which it validates and stops.

A saved state is untrusted; only `RunState.from_state` reads one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import Field, TypeAdapter

from mt_cli.config.training import TrainingConfig
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.training.plan import Plan, Position

Count = Annotated[int, Field(ge=0, lt=10**15)]
PLAN_USED_UP = "the plan for max_minutes"
"""Reason to stop if all planned updates are made long before the minutes are over."""


class UnloggedStep(NamedTuple):
    """Contribution of a step to the next row of `metrics.jsonl`; a skipped step has no tokens."""

    cross_entropy: float
    """Sum over the target tokens, in nats."""
    num_target_tokens: int
    seconds: float
    num_correct: int
    """Target tokens for which the reference had the highest score."""


class ValidatedStep(NamedTuple):
    """Validation whose weights are kept."""

    step: int
    value: float
    """Value of the metric `best_metric` of the state; higher is better."""
    loss: float


class SelectedPairs(NamedTuple):
    """Selection of training pairs by `keep_likely`."""

    epoch: int
    pool: int
    """Place from which only these pairs are drawn."""
    num_kept: list[int]
    """Number of pairs that stay, by part of `train`."""


def last_of(validations: Sequence[ValidatedStep], number: int) -> list[ValidatedStep]:
    return sorted(validations)[max(0, len(validations) - number) :]


def best_of(validations: Sequence[ValidatedStep], number: int) -> list[ValidatedStep]:
    """Best `number` validations, the best first; ties go to the lower loss, then to the later step."""
    return sorted(validations, key=lambda step: (step.value, -step.loss, step.step), reverse=True)[:number]


@dataclass(frozen=True)
class Round:
    """Newest round of translations of texts of one language that a run trains on; number 0 before the first one."""

    number: Count = 0
    oldest: Count = 0
    """Number of the oldest round whose pairs the run trains on, too."""
    step: Count = 0
    """Step at which training on the round began."""
    num_lines: dict[str, Count] = field(default_factory=dict)
    """Lines translated in all rounds, by side of the text."""
    tried_step: Count = 0
    """Step at which the model was too poor for another round."""


@dataclass
class Ancestor:
    """Run whose weights another run, or an average of runs, began with."""

    run: str
    languages: tuple[str, str]
    step: int
    weights: str
    """SHA-256 of the checkpoint."""
    parents: list[Ancestor] = field(default_factory=list)
    license: str | None = None
    """Licence of an imported model, by its model card."""


@dataclass
class RunState:
    """State of a run, without weights, saved with every checkpoint.

    `optimization_steps` advances the position, `TrainingLog` counts steps, and the loop changes everything else.
    """

    position: Position = field(default_factory=Position)
    elapsed_seconds: Annotated[float, Field(ge=0, lt=10**15)] = 0.0
    round: Round = field(default_factory=Round)
    plan: Plan | None = None
    """With `max_minutes`, the updates that fit into them."""
    best_step: Count = 0
    best_value: float | None = None
    """Value of `best_metric` at the best step; higher is better, a loss is negated."""
    best_loss: float | None = None
    """Validation loss at the best step, which decides between equal values."""
    best_metric: str = ""
    """Metric of `best_value`, with BLEU's tokenizer: `bleu/13a`, `chrf`, `loss`."""
    parent_value: float | None = None
    """Value of `parent_metric` for the first weights; None if they are random, or not validated."""
    parent_metric: str = ""
    num_validations_without_better: Count = 0
    validated_step: Count = 0
    validations: list[ValidatedStep] = field(default_factory=list)
    """Validations whose weights are kept, oldest first."""
    unlogged: list[UnloggedStep] = field(default_factory=list)
    """Steps since the last row of `metrics.jsonl`."""
    recent_loss: float | None = None
    """Mean loss of the steps in the last row."""
    num_bad_steps: Count = 0
    """Number of steps skipped because their loss or gradient was not finite."""
    num_bad_steps_in_row: Count = 0
    tracked_bytes: dict[str, int] = field(default_factory=dict)
    """Sizes, when this state was saved, of the files that grow during training."""
    loss_scale: dict[str, int | float] = field(default_factory=dict)
    """With fp16, the scale of the loss and how it changes (`torch.amp.GradScaler.state_dict`)."""
    longest_source: int | None = None
    """Number of tokens of the longest training source; None if unknown, as for streams."""
    sentences_seen: SentencesSeen | None = None
    """Fractions of training sources with several sentences; None if unknown, as for imported models."""
    fingerprints: dict[str, str] = field(default_factory=dict)
    """Fingerprints of corpora and tokenizers at the start of the run."""
    parents: list[Ancestor] = field(default_factory=list)
    """Parent whose weights this run began with; for an average of runs, all averaged runs."""
    selected: SelectedPairs | None = None
    """Selection of training pairs; None before it is made."""
    averaged_steps: list[int] | None = None
    """Steps of the averaged checkpoints, if the weights that were saved with this state are an average."""

    @classmethod
    def from_state(cls, state: Any) -> RunState:
        """Validate a value that `asdict` made; raises ValueError for any other value."""
        return _READER.validate_python(state)

    def is_better(self, value: float, loss: float) -> bool:
        """True if a validation beats the best one so far; values that are not finite never do."""
        if not math.isfinite(value) or not math.isfinite(loss):
            return False
        best_loss = math.inf if self.best_loss is None else self.best_loss
        return self.best_value is None or (value, -loss) > (self.best_value, -best_loss)

    def is_below_parent(self, value: float | None, metric: str) -> bool:
        """True if a validation is worse than the score of the parent by the same metric."""
        if value is None or self.parent_value is None or metric != self.parent_metric:
            return False
        return value < self.parent_value

    def add_validation(self, value: float, loss: float, metric: str, warmup_steps: int) -> bool:
        """Record a validation at the current step; return whether it is the best so far."""
        step = self.validated_step = self.position.step
        # A run that resumed from an older state may reach its best step again.
        is_best = self.is_better(value, loss) or (step == self.best_step and math.isfinite(value + loss))
        if is_best:
            self.set_best(step, value, loss, metric)
            self.num_validations_without_better = 0
        elif step > warmup_steps:  # During the warm-up, scores near zero rise and fall by chance.
            self.num_validations_without_better += 1
        return is_best

    def keep_validation(self, step: int, value: float, loss: float, number: int) -> bool:
        """Record a validation; keep only the last and the best `number`. Return whether to keep its weights."""
        validations = [validation for validation in self.validations if validation.step != step]
        validations += [ValidatedStep(step, value, loss)] if math.isfinite(value + loss) else []
        self.validations = sorted({*last_of(validations, number), *best_of(validations, number)})
        return step in [validation.step for validation in self.validations]

    def set_best(self, step: int, value: float | None, loss: float | None, metric: str) -> None:
        self.best_step, self.best_value, self.best_loss, self.best_metric = step, value, loss, metric

    def reset_best(self, metric: str) -> None:
        """Forget all validations, because the metric has changed to `metric`; the best step stays for now."""
        self.set_best(self.best_step, None, None, metric)
        self.num_validations_without_better, self.validations, self.validated_step = 0, [], 0

    def plan_for(self, config: TrainingConfig) -> Plan | None:
        """Plan for the minutes of a config; None if there are none, or the machine is not measured yet."""
        plan = self.plan
        return plan if plan is not None and plan.is_complete and plan.minutes == config.max_minutes else None

    def warmup_steps(self, config: TrainingConfig) -> int:
        """Number of warm-up steps, by the plan if there is one."""
        return (self.plan_for(config) or config).warmup_steps

    def is_validation_due(self, config: TrainingConfig) -> bool:
        """True if the config schedules a validation at this step."""
        plan = self.plan_for(config)
        position, every = self.position, (plan and plan.validate_every_steps) or config.validate_every_steps
        ends_epoch = position.pool == position.num_batches == 0
        return position.step > 0 and (position.step % every == 0 if every else ends_epoch)

    def reason_to_stop(self, config: TrainingConfig) -> str | None:
        """Option of the config that ends the run here, with its value; None if the run continues."""
        plan = self.plan_for(config)
        seconds = 60 * (config.max_minutes or math.inf) if plan is None else plan.training_seconds
        is_late = self.elapsed_seconds >= seconds or (plan is not None and self.position.step >= plan.num_steps)
        reached = {
            "max_steps": config.max_steps is not None and self.position.step >= config.max_steps,
            "max_epochs": config.max_epochs is not None and self.position.epoch >= config.max_epochs,
            "max_minutes": is_late,
            "patience": config.patience is not None and self.num_validations_without_better >= config.patience,
        }
        name = next((name for name, is_reached in reached.items() if is_reached), None)
        if name is None:
            return None
        is_early = name == "max_minutes" and plan is not None and plan.is_unused(self.elapsed_seconds)
        return f"{PLAN_USED_UP if is_early else name} {getattr(config, name)}"


_READER = TypeAdapter(RunState)


def describe_lineage(parents: Sequence[Ancestor], depth: int = 0) -> Iterator[str]:
    """Describe each ancestor of a run in a line, the nearest first, indented by generation."""
    for parent in parents:
        source, target = parent.languages
        indent = "  " * depth
        licence = f", licence {parent.license}" if parent.license else ""
        yield f"{indent}from {parent.run}, {source} to {target}, step {parent.step:,} ({parent.weights[:12]}){licence}"
        yield from describe_lineage(parent.parents, depth + 1)


def licences_of(parents: Sequence[Ancestor]) -> dict[str, str]:
    """Licences of imported models among the ancestors of a run, by their names."""
    licences = {parent.run: parent.license for parent in parents if parent.license}
    for parent in parents:
        licences |= licences_of(parent.parents)
    return licences
