"""Cost of a model that another program can hold: BLEU of the configs of `mt init --for`, against the one without it.

    python tests/benchmarks/destinations.py --data ../shared/data/multi30k --source en --target de \
        --output destinations --pairs 5000 --seeds 1 2 3 --test test_2016_flickr

`--data` has train.* and val.* in both languages, `--pairs` trains on a sample of that size (without it, on all pairs).
`--programs` are those of `--for`; `none` stands for `mt init` without it, and is the first. All runs of a program have
the config that `mt init` writes on this machine, with another seed, so a run takes as long as the config says, or
`--steps` or `--minutes`. Runs that are complete are not repeated. The first BLEU is lower-cased, the second one cased.
The last line is the list of options that differ from those of `none`.
"""

from argparse import Namespace
from pathlib import Path

import common
from recipes import print_scores, sample, train_and_score

from mt_cli.config.loading import differences, load_config
from mt_cli.config.writing import on_one_line

NONE = "none"


def main() -> None:
    """Print a row for each program."""
    limits = {"minutes": 0.0, "steps": 0, "pairs": 0}
    paths = dict.fromkeys(("data", "output"), Path)
    languages = dict.fromkeys(("source", "target"), str)
    programs = {"programs": ["huggingface", "argos"]}
    options = common.read_options(__doc__, **paths, **languages, **limits, **programs, seeds=[1], test=None)
    options.output.mkdir(parents=True, exist_ok=True)
    train = [options.data.resolve() / f"train.{language}" for language in (options.source, options.target)]
    if options.pairs:
        train = sample(train, options.pairs, options.output)
    scores = [title for split in ["val", options.test] if split for title in (f"BLEU lc on `{split}`", "cased")]
    common.print_titles("`--for`", *scores, "seeds", "steps", "target tokens", "tokens a second")
    configs = {}
    for program in [NONE, *options.programs]:
        options.config = configs[program] = write_config(options, train, program)
        title = f"{program}-{options.pairs or 'all'}"
        reports = [
            train_and_score(options, (options.source, options.target), train, title, [], seed) for seed in options.seeds
        ]
        print_scores(program, reports)
    before = load_config(configs.pop(NONE))
    for program, path in configs.items():
        changes = differences(load_config(path), before).items()
        shown = (f"{key} {on_one_line(first)}, not {on_one_line(second)}" for key, (first, second) in changes)
        print(f"{program}: {'; '.join(text for text in shown if not text.startswith('name '))}")


def write_config(options: Namespace, train: list[Path], program: str) -> Path:
    """Config that `mt init` writes for a program, unless it exists."""
    path = options.output.absolute() / f"{program}-{options.pairs or 'all'}.yaml"
    if not path.exists():
        held_out = [options.data.resolve() / f"val.{language}" for language in (options.source, options.target)]
        arguments: list[object] = ["--files", *train, *(part for file in held_out for part in ("--valid", file))]
        arguments += ["--source-language", options.source, "--target-language", options.target]
        arguments += [] if program == NONE else ["--for", program]
        common.run_mt(options.output, "init", *arguments, "--name", path.stem, "--output", path)
    return path


if __name__ == "__main__":
    main()
