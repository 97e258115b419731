"""Draft of a report: the parts of the end of a run that are done, so that an interrupted end does not begin again."""

from __future__ import annotations

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


class Draft(BaseModel):
    """Parts of the end of a run that are done; it is kept from the last validation until the report is written."""

    state: RunState
    """State after the last validation, which no checkpoint has: a run that goes on would not have this validation."""
    stopped_because: str
    means: list[tuple[int, ...]] = []
    """Steps of the means of checkpoints that were validated."""
    is_tuned: bool = False
    options: dict[str, Any] = {}
    """Options of the config that the scores depend on."""
    scores: dict[str, SplitScores] = {}
    learning: Learning | None = None

    def save(self, directory: RunDirectory) -> None:
        write_text(directory.draft_path, json_text(self.model_dump(mode="json", exclude_unset=True)))

    def for_config(self, config: Config) -> Draft:
        """Draft without the scores that were made with other options."""
        options = config.model_dump(mode="json", include={"decoding", "evaluation"})
        return self if options == self.options else self.model_copy(update={"options": options, "scores": {}})


def read_draft(directory: RunDirectory) -> Draft | None:
    """Draft of a run; None if it is missing or damaged."""
    with suppress(InputError):
        return read_model(directory.draft_path, Draft)
    return None


def usable_draft(directory: RunDirectory, config: Config, state: RunState, metric_id: str) -> Draft | None:
    """Draft of a run whose newest saved state is `state`.

    None if the run goes on, or if the best checkpoint is not that of the draft, chosen by this metric.
    """
    draft, best = read_draft(directory), directory.best_state()
    if draft is None or best is None or state.reason_to_stop(config.training) is None:
        return None
    chosen = draft.state.best_step, draft.state.best_value, metric_id
    is_current = draft.state.position == state.position and draft.state.validated_step == state.position.step
    return draft if is_current and (best.best_step, best.best_value, best.best_metric) == chosen else None
