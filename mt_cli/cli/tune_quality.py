"""The command `tune-quality`."""

from __future__ import annotations

from mt_cli.cli import options
from mt_cli.cli.options import RUNS, load_translator, run_path
from mt_cli.cli.streams import show


def tune_quality(
    run: options.RunOption = None,
    device: options.DeviceOption = "auto",
    threads: options.ThreadsOption = None,
    precision: options.PrecisionOption = "auto",
    progress: options.ProgressOption = "auto",
) -> None:
    """Learn which translations are likely good.

    Writes quality.json into the run, for mt translate --review and --json. mt train does so at its end.

    Examples:
        mt tune-quality --run runs/my_run

    More: docs/localisation.md
    """
    path = run_path(run)
    from mt_cli.checkpoint.directory import RunDirectory
    from mt_cli.corpus.cache import Cache
    from mt_cli.evaluation.compare import read_split
    from mt_cli.evaluation.quality import fit_quality

    directory = RunDirectory(path)
    config = directory.config()  # Raises an error if this is not a run, before the lock makes the directory.
    with directory.locked():
        translator = load_translator(path, device, precision, num_threads=threads)
        valid = read_split(directory, config, "valid", Cache(RUNS / ".cache"))
        model = fit_quality(directory, config, translator, valid.pairs, valid.languages)
    show(f"{path}: {model.describe_error()} ({model.num_sentences:,} sentences, correlation {model.correlation:.2f})")
