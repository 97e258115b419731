"""Time, memory and disk that corpora of very different sizes take, and the speed of preparing them. Linux only.

    python tests/benchmarks/data_speed.py --pairs 100000 10000000

Each size is trained once without a cache, for the time to the first step, and then several times from the cache, in
turn. After that, reading, checking and encoding of `--encoded` pairs take turns with `encode_batch` of the library
`tokenizers`, which only encodes, on the same cores and with the same tokenizers.
"""

import json
import shutil
import statistics
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import common
import yaml

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.reading import read_corpora
from mt_cli.data.encode import encode_corpus
from mt_cli.runtime.files import size_of
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.vocabulary_training import train_tokenizer


def corpora(folder: Path, num_pairs: int) -> dict[str, Any]:
    """Corpora of numbered pairs; those for validation are not among the others."""
    valid = [folder / f"valid.{side}" for side in ("source", "target")]
    train = common.numbered_files(folder, num_pairs)
    for side, path in enumerate(valid):
        path.write_text("".join(f"{pair[side]} valid\n" for pair in common.practice_pairs()[:200]), encoding="utf-8")
    return {"source": "en", "target": "de", "train": train, "valid": {"files": [str(path) for path in valid]}}


def start(folder: Path, num_pairs: int, steps: int, is_first: bool) -> dict[str, float]:
    """Seconds to the first step, memory and speed of `mt train`, stopped after some steps."""
    run, cache = folder / "runs" / "speed", folder / "runs" / ".cache"
    if is_first:
        shutil.rmtree(cache, ignore_errors=True)
    shutil.rmtree(run, ignore_errors=True)
    training = {"max_steps": 10 * steps, "batch_tokens": 2560, "log_every_steps": 1, "validate_every_steps": 1_000_000}
    tree = common.config_tree(
        run.name,
        corpus=corpora(folder, num_pairs),
        tokenizer={"vocab_size": 8_000},
        model={"d_model": 256, "d_ff": 1024, "num_encoder_layers": 3, "num_decoder_layers": 3},
        training=training,
    )
    (folder / "config.yaml").write_text(yaml.safe_dump(tree), encoding="utf-8")
    metrics, started_at = run / "metrics.jsonl", time.monotonic()
    first, later = list[tuple[float, int]](), list[int]()

    def is_done(log: str, pid: int) -> bool:
        memory = common.memory_of_process(pid)
        num_rows = metrics.read_text(encoding="utf-8").count("\n") if metrics.exists() else 0
        if memory and num_rows:
            first.append((time.monotonic() - started_at, memory["VmHWM"]))
            later.append(memory["VmRSS"])
        return num_rows >= steps

    log = common.run_until(is_done, [*common.MT, "train", "--config", "config.yaml"], folder)
    if not first:
        raise SystemExit(log)
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    return {
        "seconds_to_first_step": round(first[0][0], 1),
        "peak_mb_to_first_step": round(first[0][1] / 1e6),
        "median_mb_while_training": round(statistics.median(later) / 1e6),
        "target_tokens_per_second": round(statistics.median(row["train/tokens_per_second"] for row in rows[5:])),
        "cache_mb": round(size_of([cache]) / 1e6),
    }


def encode_batch_seconds(tokenizers: list[Tokenizer], paths: list[str]) -> float:
    """Seconds in `encode_batch` for all lines of both files, without the time to read them."""
    seconds = 0.0
    for tokenizer, path in zip(tokenizers, paths, strict=True):
        with open(path, encoding="utf-8", newline="\n") as lines:
            while texts := [line.rstrip("\n") for line in islice(lines, 10_000)]:
                started_at = time.perf_counter()
                tokenizer._backend.encode_batch(texts)
                seconds += time.perf_counter() - started_at
    return seconds


def mt_seconds(tokenizers: list[Tokenizer], config: CorpusConfig, folder: Path) -> float:
    """Seconds of reading, checking and encoding, from the text files to the files of ids."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    started_at = time.perf_counter()
    corpus = read_corpora(config, Cache(folder / "cache"))["train"]
    encode_corpus(corpus, tokenizers, 256, folder / "ids.arrow")
    return time.perf_counter() - started_at


def compare_encoding(folder: Path, num_pairs: int, rounds: int) -> None:
    tree = corpora(folder, num_pairs)
    options = TokenizerConfig(algorithm="bpe", vocab_size=8_000)
    tokenizers = [
        train_tokenizer((f"{text} {index:08}" for index, text in enumerate(side)), options)
        for side in zip(*common.practice_pairs(), strict=True)
    ]
    measurements = {
        "encode_batch": partial(encode_batch_seconds, tokenizers, tree["train"]["files"]),
        "mt": partial(mt_seconds, tokenizers, CorpusConfig.model_validate(tree, strict=False), folder),
    }
    for name, seconds in common.measure_in_turn(measurements, rounds).items():
        print(
            json.dumps({"pairs": num_pairs, f"{name}_pairs_per_second": round(num_pairs / statistics.median(seconds))})
        )


def main() -> None:
    sizes = {"pairs": [100_000, 10_000_000], "encoded": 400_000}
    options = common.read_options(__doc__, **sizes, steps=60, rounds=3, work=common.WORK)
    # A folder for each size, so that each has its own cache.
    starts = {number: partial(start, options.work / str(number), number, options.steps) for number in options.pairs}
    first = {number: run(True) for number, run in starts.items()}
    later = common.measure_in_turn({number: partial(run, False) for number, run in starts.items()}, options.rounds)
    for number in options.pairs:
        print(json.dumps({"pairs": number, "start": "first"} | first[number]))
        print(json.dumps({"pairs": number, "start": "from the cache"} | common.medians(later[number])), flush=True)
    compare_encoding(options.work, options.encoded, options.rounds)


if __name__ == "__main__":
    main()
