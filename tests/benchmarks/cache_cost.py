"""Time to verify the prepared corpora of the cache at each start.

Corpora are prepared once and then loaded from the cache several times, with verified checksums and without.

    python tests/benchmarks/cache_cost.py --pairs 100000 10000000
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from figures import add_option, record
from numbered_pairs import write_files, write_validation_files

from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.corpus import cache
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import prepare
from mt_cli.machine.console import show_progress
from mt_cli.machine.storage import size_of


def config_of(folder: Path, num_pairs: int) -> Config:
    """A corpus of `num_pairs` pairs, with a shared subword vocabulary."""
    files = [
        [str(path) for path in paths] for paths in (write_files(folder, num_pairs), write_validation_files(folder))
    ]
    tree = {
        "name": "cache",
        "corpus": {"source": "en", "target": "de", "train": {"files": files[0]}, "valid": {"files": files[1]}},
        "tokenizer": {"algorithm": "bpe", "vocab_size": 8_000, "shared": True},
    }
    return parse_config(tree, "benchmark")


def seconds_of(work: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    started_at = time.perf_counter()
    work()
    return time.perf_counter() - started_at


def main() -> None:
    """Print one line per number of pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mt-benchmarks")
    add_option(parser)
    options = parser.parse_args()
    show_progress("none")
    verify = cache._damage_of
    for num_pairs in options.pairs:
        folder = options.work / f"cache-{num_pairs}"
        config = config_of(options.work, num_pairs)
        prepare(config, Cache(folder))
        seconds: dict[str, list[float]] = {"verified": [], "trusted": []}
        for _ in range(options.rounds):
            for name, found in seconds.items():
                cache._damage_of = verify if name == "verified" else lambda folder: ""
                found.append(seconds_of(lambda config=config, folder=folder: prepare(config, Cache(folder))))
        cache._damage_of = verify
        medians = {f"seconds_{name}": round(statistics.median(found), 3) for name, found in seconds.items()}
        print(json.dumps({"pairs": num_pairs, "cache_mb": round(size_of([folder]) / 1e6), **medians}), flush=True)
        if options.record and num_pairs == max(options.pairs):
            record("cache_gb_per_million", size_of([folder]) / 1e3 / num_pairs)


if __name__ == "__main__":
    main()
