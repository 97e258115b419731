"""Speed of reading, filtering and encoding text, compared with `encode_batch` of the `tokenizers` library.

Both use the same tokenizers, texts and cores, in turn, in several rounds.

    python tests/benchmarks/data_speed.py
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

from numbered_pairs import numbered_pairs, write_files, write_validation_files

from mt_cli.batching.encoded import encode_corpus
from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.reading import read_corpora
from mt_cli.tokenizer.tokenizer import Tokenizer
from mt_cli.tokenizer.training import train_tokenizer


def encode_batch_seconds(tokenizers: list[Tokenizer], paths: tuple[Path, Path], block: int = 10_000) -> float:
    """Seconds in `encode_batch` for all lines of both files, without the time to read them."""
    seconds = 0.0
    for tokenizer, path in zip(tokenizers, paths, strict=True):
        with open(path, encoding="utf-8", newline="\n") as lines:
            while texts := [line.rstrip("\n") for line in islice(lines, block)]:
                started_at = time.perf_counter()
                tokenizer._backend.encode_batch(texts)
                seconds += time.perf_counter() - started_at
    return seconds


def our_seconds(tokenizers: list[Tokenizer], paths: tuple[Path, Path], folder: Path) -> tuple[float, float]:
    """Seconds for reading and filtering, and for encoding, from the text files to the files of ids."""
    tree = {
        "source": "en",
        "target": "de",
        "train": {"files": [str(path) for path in paths]},
        "valid": {"files": [str(path) for path in write_validation_files(paths[0].parent)]},
    }
    config = CorpusConfig.model_validate(tree, strict=False)
    shutil.rmtree(folder / "cache", ignore_errors=True)
    started_at = time.perf_counter()
    corpus = read_corpora(config, 1, Cache(folder / "cache"))["train"]
    read_at = time.perf_counter()
    encode_corpus(corpus, tokenizers, 256, folder / "ids.arrow")
    return read_at - started_at, time.perf_counter() - read_at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "mt-benchmarks")
    options = parser.parse_args()
    paths = write_files(options.work, options.pairs)
    sample = list(numbered_pairs(29_000))
    for algorithm, settings in (("bpe", {"vocab_size": 8_000}), ("word_level", {"vocab_size": 10_000})):
        config = TokenizerConfig(algorithm=algorithm, **settings)
        tokenizers = [train_tokenizer((pair[side] for pair in sample), config) for side in (0, 1)]
        theirs, ours = [], []
        for _ in range(options.rounds):
            theirs.append(encode_batch_seconds(tokenizers, paths))
            ours.append(our_seconds(tokenizers, paths, options.work))
        their_rate = options.pairs / statistics.median(theirs)
        our_rate = options.pairs / statistics.median(map(sum, ours))
        row = {
            "tokenizer": algorithm,
            "pairs": options.pairs,
            "encode_batch_pairs_per_second": round(their_rate),
            "mt_pairs_per_second": round(our_rate),
            "ratio": round(our_rate / their_rate, 3),
            "mt_read_and_check_pairs_per_second": round(options.pairs / statistics.median(each[0] for each in ours)),
            "mt_encode_pairs_per_second": round(options.pairs / statistics.median(each[1] for each in ours)),
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
