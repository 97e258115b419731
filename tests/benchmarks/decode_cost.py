"""Cost of a translated token by beam size, batch size and length, as a table and a picture.

    python tests/benchmarks/decode_cost.py --run runs/multi30k [--rounds 3] [--picture docs/decoding_cost.svg]

`min_length` and `max_length` fix the length of translations; sources have random tokens. One value varies at a time.
The others are 16 sentences of 20 source tokens, beam 5 and 50 target tokens. Settings take turns; medians of rounds.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

from mt_cli.config.sections import DecodingConfig
from mt_cli.machine.devices import keep_memory
from mt_cli.translation.translator import Translator

USUAL = {"beam_size": 5, "sentences": 16, "length": 50}
VARIED = {
    "beam_size": (1, 2, 3, 5, 8, 12, 20),
    "sentences": (1, 2, 4, 8, 16, 32, 64, 128),
    "length": (32, 63, 125, 250, 375, 500),
}
TITLES = {"beam_size": "beam size", "sentences": "sentences at once", "length": "target tokens"}


def milliseconds(engine, beam_size, sentences, length):
    """Milliseconds for one target position of the whole batch."""
    generator = torch.Generator().manual_seed(1)
    sources = torch.randint(4, 8000, (sentences, 20), generator=generator).tolist()
    decoding = DecodingConfig(beam_size=beam_size, min_length=length, max_length=length, max_length_ratio=100.0)
    started_at = time.perf_counter()
    found = engine.search(sources, decoding.model_copy(update={"batch_tokens": 2**20}))
    assert all(len(best.ids) == length for best, *_ in found)
    return 1e3 * (time.perf_counter() - started_at) / length


def draw(results, path):
    """Draw one panel per varied value."""
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(VARIED), figsize=(10, 3), layout="constrained")
    for axes, (varied, values) in zip(panels, VARIED.items(), strict=True):
        for precision in ("fp32", "bf16"):
            axes.plot(values, [results[varied, value, precision] for value in values], marker=".", label=precision)
        axes.set_xlabel(TITLES[varied])
        axes.set_ylabel("ms a position")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})


def main():
    """Print a table per varied value."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    engines = {name: Translator.load(arguments.run, "cpu", name).engine for name in ("fp32", "bf16")}
    keep_memory()
    times = {}
    for _ in range(arguments.rounds + 1):  # The first round warms up.
        for varied, values in VARIED.items():
            for value in values:
                for name, engine in engines.items():
                    taken = milliseconds(engine, **USUAL | {varied: value})
                    times.setdefault((varied, value, name), []).append(taken)
    results = {key: statistics.median(taken[1:]) for key, taken in times.items()}
    for varied, values in VARIED.items():
        print(f"\n| {TITLES[varied]} | {' | '.join(map(str, values))} |\n|---|{'---|' * len(values)}")
        for name in engines:
            print(f"| {name} | {' | '.join(f'{results[varied, value, name]:.1f}' for value in values)} |")
    if arguments.picture:
        draw(results, arguments.picture)


if __name__ == "__main__":
    main()
