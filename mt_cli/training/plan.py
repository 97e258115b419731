"""Position of a run, and its plan with `max_minutes`, by which the first updates measure the machine.

The schedule follows from the time left. After each quarter of the updates left, until two thirds are made, the plan
gets more if the machine has become faster. It is saved with the state, so a resumed run follows the same schedule. With
350 updates from English to Hausa (one seed), chrF is 18.4; with a warm-up of 400 updates, 17.1; with a schedule of
5,450 updates that is cut, 16.7.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from mt_cli.config.training import TrainingConfig
from mt_cli.runtime.console import clock
from mt_cli.training.optimizer import learning_rate

_FIRST_STEP, _NUM_STEPS = 10, 10
"""The update after which the measurement begins, because the first ones are slow, and the updates that it takes."""
_SHARE_OF_WARMUP, _SHARE_OF_VALIDATIONS, _SHARE_OF_TUNING = 0.1, 0.15, 0.1
_SHARE_TO_SPARE = 0.05
"""Share of the time that is left over, so that a machine that is a little slower still does all updates."""
_COST_OF_GREEDY, _COST_OF_SEARCH = 4.0, 8.0
"""Time per target token of a reference, in tokens of training: greedy search in validations, the search at the end."""
_MIN_VALIDATIONS = 4
_LAST_CHECK = 2 / 3
"""Share of the updates after which a plan stays as it is, because the learning rate is low."""
_WORTH_REVISING, _WORTH_USING = 0.1, 0.2
"""Share of the updates by which more must fit before a plan gets more; share of the minutes that should not be left."""
SHARE_OF_ROUNDS = 0.2
"""Time for translating text of one language in rounds, by the time of the updates until the next round."""
FIRST_ROUND = 0.4
"""Share of the updates of a run before the first round, if their number is known."""
COST_OF_SAMPLING = 1.5
"""Time to translate a line by sampling, by the time of an update per pair with targets of the same length: 1.1 to 1.5
in CPU time, with the recipe of `mt init` for 6,000 pairs of Spanish and Aymara, in blocks of 512 lines."""
_MOST_EPOCHS, _FEWEST_ROUNDS = 20, 6
"""Rounds follow each other after at most so many epochs, and a run whose length is known has about so many."""
_LITTLE, _FEW = 0.3, 600
"""Share of the updates, and number of updates, below both of which little can be expected. Captions have BLEU 38
with 926 of 8,700 updates (41 with all), texts of few pairs chrF 13 to 19 with 350 of 2,800 to 4,400."""


@dataclass
class Position:
    """Position of a run in its data, which checkpoints save."""

    num_processes: int = 1  # At the first start. With another number, a run keeps the size of its steps.
    step: int = 0  # Optimizer updates done.
    epoch: int = 0  # Epochs completed.
    pool: int = 0  # The current pool of batches of the epoch.
    num_batches: int = 0  # Micro-batches of this pool done.
    num_target_tokens: int = 0  # Target tokens seen, [EOS] counted.
    num_pairs: list[int] = field(default_factory=list)  # Pairs seen of each part of the corpus, with repetitions.


class Pace(NamedTuple):
    """When rounds are made, and how large they are."""

    every_steps: int
    """Fewest updates between two rounds, and before the first one."""
    num_lines: Mapping[str, int]
    """Lines of a round, by side of the text."""


def pace_of(weights: Mapping[str, float], lines_per_step: float, num_steps: int | None, epoch: int) -> Pace:
    """Pace of rounds over texts with these numbers of lines, of which `lines_per_step` can be translated per update.

    A round has all lines if there is time for that in 20 epochs and in a sixth of the updates, otherwise fewer.
    `num_steps` is the length of the run in updates, None if it is not known, and `epoch` that of an epoch.
    """
    num_lines = sum(weights.values())
    limits = num_lines / lines_per_step, _MOST_EPOCHS * epoch, (num_steps or math.inf) / _FEWEST_ROUNDS
    every = max(1, math.ceil(min(limits)))
    share = min(1.0, every * lines_per_step / num_lines)
    return Pace(every, {side: max(1, round(share * number)) for side, number in weights.items()})


@dataclass(frozen=True)
class Length:
    """Length of a run in updates, and its work besides them."""

    num_steps: int | None
    """Largest number of updates; None if only time or patience ends the run."""
    steps_per_epoch: int | None
    """None for a stream."""
    step_tokens: int
    """Largest number of tokens of an update."""
    num_valid_tokens: int
    num_test_tokens: int
    """Target tokens that are scored at the end."""
    share_of_rounds: float = 0.0
    """Time for translating text in rounds, by the time of the updates."""


@dataclass(frozen=True)
class Plan:
    """Number of updates that fit into `minutes`, and what follows from it; 0 updates while the machine is measured.

    Epochs and steps of the config may end the run earlier.
    """

    minutes: float
    """`max_minutes` that the plan is for."""
    from_step: int
    from_seconds: float
    """Step and time at which the newest measurement began."""
    num_steps: int = 0
    warmup_steps: int = 0
    validate_every_steps: int | None = None
    """Updates between validations; None: as the config says."""
    training_seconds: float = 0.0
    """Time for updates and validations, but for the last validation."""
    closing_seconds: float = 0.0
    """Time for the last validation and the scores at the end; the tuning of the search has the rest of the minutes."""
    seconds_per_step: float = 0.0
    seconds_per_searched_token: float = 0.0
    """Time of the search at the end, by target tokens of the references."""
    largest_rate: float | None = None
    """Learning rate at which the plan got more updates: it does not rise again."""

    @property
    def is_complete(self) -> bool:
        """True if the machine has been measured."""
        return self.num_steps > 0

    def last_step(self, length: Length) -> int:
        """Last update that the time or the config allows."""
        return min(self.num_steps, length.num_steps or self.num_steps)

    def is_checked_at(self, step: int) -> bool:
        """True if the machine is measured again after this update, to see whether many more updates fit."""
        interval = max(_NUM_STEPS, (self.num_steps - self.from_step) // 4)
        return step >= self.from_step + interval and step <= _LAST_CHECK * self.num_steps

    def is_unused(self, seconds: float) -> bool:
        """True if a large part of the minutes would be left if training ended after so many seconds."""
        return self.training_seconds - seconds >= _WORTH_USING * 60 * self.minutes

    def paused(self, seconds: float) -> Plan:
        """The plan after a pause of the updates, which does not count when the machine is measured again."""
        return replace(self, from_seconds=self.from_seconds + seconds)

    def describe(self, length: Length) -> str:
        """Time and updates of the plan in one line, for people."""
        scores = self.closing_seconds
        tuning = 60 * self.minutes - self.training_seconds - scores  # Negative if the scores end after the minutes.
        time = f"{clock(self.training_seconds)} for updates and validations, {clock(scores)} for scores"
        time += f", {clock(tuning)} for tuning the search" if tuning > 1 else ""
        time = f"{self.minutes:g} minutes{f' and {clock(-tuning)} more' if tuning < -1 else ''}: {time}."
        if scores + max(0.0, tuning) > 60 * self.minutes / 3:
            time += " Fewer pairs in valid and test leave more for updates."
        return f"{time} {self.describe_updates(length)}"

    def describe_updates(self, length: Length) -> str:
        """Number of updates in one sentence, for people."""
        if length.num_steps and self.num_steps >= length.num_steps:
            return f"Enough for all {length.num_steps:,} updates."
        of_all = f" of {length.num_steps:,}" if length.num_steps else ""
        every = f", a validation every {self.validate_every_steps:,}" if self.validate_every_steps else ""
        updates = f"About {self.num_steps:,}{of_all} updates{every}"
        if not length.num_steps:
            return f"{updates}."
        little = "expect little; " if self.num_steps < min(_FEW, _LITTLE * length.num_steps) else ""
        return f"{updates}: {little}all take about {self.minutes_for(length.num_steps):,} minutes."

    def minutes_for(self, num_steps: int, seconds_per_step: float | None = None) -> int:
        """Minutes with which a plan has so many updates; the time per update is measured with its validations."""
        per_step = seconds_per_step or self.seconds_per_step / (1 - _SHARE_OF_VALIDATIONS)
        end = num_steps * per_step / (1 - _SHARE_TO_SPARE)
        return math.ceil(min((end + self.closing_seconds) / (1 - _SHARE_OF_TUNING), 2 * end) / 60)


def advanced(
    plan: Plan | None, config: TrainingConfig, length: Length, position: tuple[int, int], seconds: float
) -> Plan | None:
    """Plan after an update; `position` has the number of updates and of target tokens so far, `seconds` the time used.

    It gets more updates where it is checked, if the machine is faster. None without `max_minutes` and during the first
    updates. If `max_minutes` has changed, the machine is measured anew.
    """
    step, _ = position
    if config.max_minutes is None:
        return None
    if plan is None or plan.minutes != config.max_minutes:
        return Plan(config.max_minutes, step, seconds) if step >= _FIRST_STEP else None
    if not plan.is_complete:
        return _complete(plan, config, length, position, seconds) if step >= plan.from_step + _NUM_STEPS else plan
    if not plan.is_checked_at(step):
        return plan
    longer = _complete(plan, config, length, position, seconds)
    is_enough = length.num_steps is not None and plan.num_steps >= length.num_steps
    if is_enough or longer.num_steps < (1 + _WORTH_REVISING) * plan.num_steps:
        return replace(plan, from_step=step, from_seconds=seconds)
    rate = planned_rate(config, step, length, plan, seconds)
    return replace(longer, warmup_steps=plan.warmup_steps, largest_rate=rate)


def _complete(plan: Plan, config: TrainingConfig, length: Length, position: tuple[int, int], seconds: float) -> Plan:
    step, num_tokens = position
    per_step = max(1e-9, (seconds - plan.from_seconds) / (step - plan.from_step))
    per_token = per_step * step / max(1, num_tokens)
    per_step *= 1 + length.share_of_rounds
    per_validation = _COST_OF_GREEDY * per_token * length.num_valid_tokens
    closing = per_validation + _COST_OF_SEARCH * per_token * length.num_test_tokens
    end = 60 * plan.minutes * (1 - _SHARE_OF_TUNING * config.tune_decoding) - closing
    end = max(end, 30 * plan.minutes)  # If scores take longer than half of the minutes, they end after them.
    left = max(0.0, (1 - _SHARE_TO_SPARE) * end - seconds)
    every = config.validate_every_steps or length.steps_per_epoch
    affordable = max(1.0, _SHARE_OF_VALIDATIONS * left / max(1e-9, per_validation))
    planned = left / per_step / every if every else _MIN_VALIDATIONS
    number = min(max(planned, _MIN_VALIDATIONS), affordable)
    num_steps = step + max(1, int((left - (number - 1) * per_validation) / per_step))
    return replace(
        plan,
        from_step=step,
        from_seconds=seconds,
        num_steps=num_steps,
        warmup_steps=min(config.warmup_steps, int(_SHARE_OF_WARMUP * num_steps)),
        validate_every_steps=None if every and number == planned else math.ceil(num_steps / number),
        training_seconds=end,
        closing_seconds=closing,
        seconds_per_step=per_step,
        seconds_per_searched_token=_COST_OF_SEARCH * per_token,
    )


def planned_rate(config: TrainingConfig, step: int, length: Length, plan: Plan | None, elapsed_seconds: float) -> float:
    """Learning rate of a step, by the plan if there is one.

    If the machine becomes slower than measured, `linear` and `cosine` fall to zero in the last tenth of the time.
    """
    if plan is None or not plan.is_complete:
        return learning_rate(config, step, length.num_steps)
    warmed_up = config.model_copy(update={"warmup_steps": plan.warmup_steps})
    rate = min(learning_rate(warmed_up, step, plan.last_step(length)), plan.largest_rate or math.inf)
    if not config.has_falling_rate:
        return rate
    left = (plan.training_seconds - elapsed_seconds) / (0.1 * plan.training_seconds)
    return min(rate, config.learning_rate * min(1.0, max(0.0, left)))
