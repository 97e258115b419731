"""The end of a run: averaging, tuning of the search, scores of the best checkpoint, and the report."""

from __future__ import annotations

from mt_cli.checkpoint.state import RunState
from mt_cli.errors import RunInterruptedError
from mt_cli.reporting.report import Report
from mt_cli.run.averaging import average_at_end
from mt_cli.run.report import write_report
from mt_cli.run.setup import TrainingContext


def finish(context: TrainingContext, state: RunState, stopped_because: str) -> Report:
    """Average checkpoints and tune the search if the config says so; score the best checkpoint; return the report."""
    try:
        average_at_end(context, state)
        if context.config.training.tune_decoding:
            from mt_cli.features.tuning.at_end import tune_at_end

            device, seconds = str(context.device), state.elapsed_seconds
            tune_at_end(context.directory, context.config, context.data, device, context.precision, seconds)
        return write_report(context, state, stopped_because)
    except KeyboardInterrupt:
        message = "interrupted after the last step; the model is saved, and the same command does the rest"
        raise RunInterruptedError(message) from None
