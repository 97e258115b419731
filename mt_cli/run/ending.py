"""The end of a run: the parts of it that are done, so that an interrupted end does not begin again."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from pydantic import BaseModel

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.state import RunState
from mt_cli.config.sections import Config
from mt_cli.errors import InputError
from mt_cli.evaluation.evaluate import SplitScores
from mt_cli.evaluation.learning import Learning
from mt_cli.runtime.files import json_text, read_model, write_text
from mt_cli.training.plan import Length


class Ending(BaseModel):
    """Results of a training, and of the parts of its end that are done; kept in a file until the report is written."""

    state: RunState
    """State after the last validation, which no checkpoint has: a run that goes on would not have this validation."""
    stopped_because: str
    num_parameters: int
    length: Length
    pair_counts: list[Counter[str]] = []
    """Numbers of rows by status, of each stream, since the last start of the training."""
    means: list[tuple[int, ...]] = []
    """Steps of the means of checkpoints that were validated."""
    is_tuned: bool = False
    options: dict[str, Any] = {}
    """Options of the config that the scores depend on."""
    scores: dict[str, SplitScores] = {}
    learning: Learning | None = None

    def save(self, directory: RunDirectory) -> None:
        write_text(directory.ending_path, json_text(self.model_dump(mode="json", exclude_unset=True)))

    def for_config(self, config: Config) -> Ending:
        """Copy without the scores that were made with other options."""
        options = config.model_dump(mode="json", include={"decoding", "evaluation"})
        return self if options == self.options else self.model_copy(update={"options": options, "scores": {}})


def read_ending(directory: RunDirectory) -> Ending | None:
    """End of a run that was interrupted in it; None if the file is missing or damaged."""
    with suppress(InputError):
        return read_model(directory.ending_path, Ending)
    return None


def usable_ending(directory: RunDirectory, config: Config, state: RunState, metric_id: str) -> Ending | None:
    """End, as far as it is done, of a run whose newest saved state is `state`.

    None if training goes on, or if the best checkpoint is another one, or was chosen by another metric.
    """
    ending, best = read_ending(directory), directory.best_state()
    if ending is None or best is None or state.reason_to_stop(config.training) is None:
        return None
    chosen = ending.state.best_step, ending.state.best_value, metric_id
    is_current = ending.state.position == state.position and ending.state.validated_step == state.position.step
    return ending if is_current and (best.best_step, best.best_value, best.best_metric) == chosen else None
