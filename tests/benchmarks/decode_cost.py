"""Cost of a translated token by beam size, batch size and length, as a table and a picture.

    python tests/benchmarks/decode_cost.py --run runs/multi30k [--rounds 3] [--picture docs/decoding_cost.svg]

`min_length` and `max_length` fix the length of translations; sources have random tokens. One value varies at a time.
The others are 16 sentences of 20 source tokens, beam 5 and 50 target tokens. Settings take turns; medians of rounds.
"""

import statistics
from functools import partial

import common
import torch

from mt_cli.config.sections import DecodingConfig
from mt_cli.decoding.engine import Sentence, TransformerEngine
from mt_cli.machine.devices import keep_memory
from mt_cli.translation.translator import Translator

USUAL = {"beam_size": 5, "sentences": 16, "length": 50}
VARIED = {
    "beam_size": [1, 2, 3, 5, 8, 12, 20],
    "sentences": [1, 2, 4, 8, 16, 32, 64, 128],
    "length": [32, 63, 125, 250, 375, 500],
}
TITLES = {"beam_size": "beam size", "sentences": "sentences at once", "length": "target tokens"}


def milliseconds(engine: TransformerEngine, beam_size: int, sentences: int, length: int) -> float:
    """Milliseconds for one target position of the whole batch."""
    sources = [source.tolist() for source, _ in common.random_pairs(sentences, 20, 20, 1000)]
    limits = {"min_length": length, "max_length": length, "max_length_ratio": 100.0, "batch_tokens": 2**20}
    decoding = DecodingConfig(beam_size=beam_size, **limits)
    return 1e3 * common.seconds_of(lambda: engine.search([*map(Sentence, sources)], decoding)) / length


def main() -> None:
    """Print a table for each varied value."""
    options = common.read_options(__doc__, run=str, rounds=3, threads=2, longest=500, picture=None)
    torch.set_num_threads(options.threads)
    engines = {name: Translator.load(options.run, "cpu", name).engine for name in ("fp32", "bf16")}
    keep_memory()
    varied = VARIED | {"length": [length for length in VARIED["length"] if length <= options.longest]}
    measurements = {
        (key, value, name): partial(milliseconds, engine, **USUAL | {key: value})
        for key, values in varied.items()
        for value in values
        for name, engine in engines.items()
    }
    results = common.measure_in_turn(measurements, options.rounds, num_ignored=1)
    curves = {
        key: {name: [statistics.median(results[key, value, name]) for value in values] for name in engines}
        for key, values in varied.items()
    }
    for key, values in varied.items():
        print()
        common.print_titles(TITLES[key], *values)
        for name, costs in curves[key].items():
            common.print_row(name, *(f"{cost:.1f}" for cost in costs))
    if options.picture:
        panels = {
            TITLES[key]: {name: (varied[key], costs) for name, costs in by_name.items()}
            for key, by_name in curves.items()
        }
        common.draw_curves(options.picture, "ms a position", panels)


if __name__ == "__main__":
    main()
