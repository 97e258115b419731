"""The command `score`."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated

from mt_cli.cli import options
from mt_cli.cli.options import File, argument, check_no_files, file_option, load_translator, run_paths
from mt_cli.cli.streams import Output
from mt_cli.corpus.plain_text import input_lines
from mt_cli.errors import InputError

if TYPE_CHECKING:
    from mt_cli.translation.token_details import PairScore

_PAIRS_AT_ONCE = 512
_file = partial(file_option, "Pairs")


def score(
    texts: Annotated[list[str] | None, argument("SOURCE TARGET", "A sentence and its translation.")] = None,
    run: options.RunsOption = None,
    checkpoint: options.CheckpointOption = None,
    engine: options.EngineOption = "mt",
    to: options.ToOption = None,
    source: Annotated[File, _file("Sentences, one per line.")] = None,
    target: Annotated[File, _file("Their translations, one per line.")] = None,
    as_lines: options.AsLinesOption = False,
    as_json: options.JsonOption = False,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "auto",
    threads: options.ThreadsOption = None,
) -> None:
    """Print how likely given translations are.

    Prints the natural logarithm of the probability of each pair, and with --json also that of every token.

    Examples:
        mt score "The house is red." "La casa è rossa."
        mt score --source test.en --target test.it --json

    More: docs/translating.md
    """
    if (source is None) != (target is None) or len(texts or ()) != (2 if source is None else 0):
        raise InputError("give a sentence and its translation, in quotation marks, or --source and --target")
    if texts:
        check_no_files(texts, f"score its lines with --source {texts[0]} --target {texts[1]}")
    files = [path for path in (source, target) if path]
    sources, targets = [[text] for text in texts] if texts else [list(input_lines(path, as_lines)) for path in files]
    if len(sources) != len(targets):
        raise InputError(f"{source} has {len(sources):,} lines and {target} {len(targets):,}; give a target for each")
    translator = load_translator(run_paths(run), device, precision, engine, checkpoint, threads)
    tag = translator.target_tag(to)
    with Output(None) as output:
        for start in range(0, len(sources), _PAIRS_AT_ONCE):
            block = sources[start : start + _PAIRS_AT_ONCE], targets[start : start + _PAIRS_AT_ONCE]
            for pair in zip(*block, translator.score(*block, tag), strict=True):
                output.write(_json_line(*pair) if as_json else f"{pair[2].log_prob:.4f}")


def _json_line(source: str, target: str, score: PairScore) -> str:
    row = {
        "source": source,
        "target": target,
        "log_prob": round(score.log_prob, 4),
        "log_prob_per_token": round(score.log_prob / len(score.tokens), 4),
        "tokens": score.tokens,
        "token_scores": [round(value, 4) for value in score.token_scores],
    }
    return json.dumps(row, ensure_ascii=False)
