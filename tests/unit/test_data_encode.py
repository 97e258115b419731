import json
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock, Semaphore

import numpy as np
import pytest

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import TokenizerConfig
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.reading import clean_rows, read_corpora
from mt_cli.corpus.text_hashes import hashes_of
from mt_cli.data import streams
from mt_cli.data.batches import PlacedBatch
from mt_cli.data.encode import EncodedPairs, encode_corpora, encode_corpus
from mt_cli.data.streams import StreamedPairs
from mt_cli.runtime.group import Group
from mt_cli.tokenizer.special_tokens import UNK_ID
from mt_cli.tokenizer.vocabulary_training import train_tokenizer

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def write(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return {"file": str(path)}


def some_pairs(number, first=0):
    return [
        (f"{WORDS[n % 10]} " * (1 + n % 9) + str(n), f"{WORDS[n % 7]} " * (1 + n % 5) + f"x{n}")
        for n in range(first, first + number)
    ]


def corpus_config(tmp_path, train, **options):
    valid = write(tmp_path / "valid.tsv", [("a valid", "b valid"), ("c valid", "d valid")])
    tree = {"source": "xx", "target": "yy", "train": train, "valid": valid, **options}
    return CorpusConfig.model_validate(tree, strict=False)


def tokenizers_for(pairs, tags=(), **options):
    config = TokenizerConfig(**options)
    return tuple(train_tokenizer((pair[side] for pair in pairs), config, () if side else tags) for side in (0, 1))


def encode(tmp_path, config, tokenizers, max_tokens=100):
    corpus = read_corpora(config, Cache(tmp_path / "cache"))["train"]
    statistics = encode_corpus(corpus, tokenizers, max_tokens, tmp_path / "ids.arrow")
    return corpus, statistics, EncodedPairs.open(tmp_path / "ids.arrow", statistics.num_pairs)


def test_ids_on_disk_are_the_ids_of_the_tokenizers(tmp_path, monkeypatch):
    for module in ("corpus", "reading"):
        monkeypatch.setattr(f"mt_cli.corpus.{module}.ROWS_PER_BLOCK", 7)
    pairs = some_pairs(50)
    config = corpus_config(tmp_path, write(tmp_path / "a.tsv", pairs))
    tokenizers = tokenizers_for(pairs[:30])
    corpus, statistics, encoded = encode(tmp_path, config, tokenizers)
    (tmp_path / "ids.arrow").unlink()  # A file that is deleted can still be read.
    expected = [tokenizers[side].encode([pair[side] for pair in pairs]) for side in (0, 1)]
    assert [[ids.tolist() for ids in encoded[index]] for index in range(50)] == [
        list(ids) for ids in zip(*expected, strict=True)
    ]
    indices = np.array([3, 49, 0, 3, 20])
    assert encoded.lengths(indices).tolist() == [[len(side[index]) for index in indices] for side in expected]
    for side, ids in zip((statistics.source, statistics.target), expected, strict=True):
        assert side.num_tokens == sum(map(len, ids))
        assert side.num_unknown == sum(sequence.count(UNK_ID) for sequence in ids) > 0
    cache = Cache(tmp_path / "cache")
    assert encode_corpora({"train": corpus}, tokenizers, config, cache)[1] == {"train": statistics}
    (stored,) = cache.path.glob("ids-*/train.json")
    assert json.loads(stored.read_text(encoding="utf-8"))["num_pairs"] == [50]


def test_pairs_that_are_too_long_are_counted_by_part(tmp_path):
    first, second = [("a b c d", "x"), ("a", "y"), ("a", "x y z w")], [("b", "x y"), ("c", "v v v v v")]
    config = corpus_config(tmp_path, [write(tmp_path / "a.tsv", first), write(tmp_path / "b.tsv", second)])
    _, statistics, encoded = encode(tmp_path, config, tokenizers_for(first + second), max_tokens=3)
    assert (statistics.num_pairs, statistics.num_too_long) == ((1, 1), (2, 1))
    assert len(encoded) == 2
    assert PlacedBatch(encoded, np.array([0, 1]), 0, 1).num_pairs == (1, 1)
    assert statistics.source.num_sentences == 5
    assert statistics.longest_source == 1


def test_lines_of_several_sentences_are_counted(tmp_path):
    pairs = [("One here. Two there.", "x"), ("One? Two.", "y"), ("One.", "z"), ("One Two.", "w")]
    config = corpus_config(tmp_path, [write(tmp_path / "a.tsv", pairs)])
    _, statistics, _ = encode(tmp_path, config, tokenizers_for(pairs))
    assert statistics.sentences == (0.25, 0.25)


@pytest.mark.parametrize("algorithm", ["word_level", "char", "bpe"])
def test_flat_ids_are_the_ids_tags_included(algorithm):
    tokenizer, _ = tokenizers_for(some_pairs(40), tags=("<bt>", "<2it>"), algorithm=algorithm)
    texts = ["<bt> one two", "one <bt> two", "<2it>", "<bt>one", "", "<2it> <bt> one", "three"]
    ids, lengths = tokenizer.encode_flat(texts)
    assert [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])] == tokenizer.encode(texts)


@pytest.fixture(autouse=True)
def usual_buffer(monkeypatch):
    monkeypatch.setattr(streams, "SHUFFLE_BUFFER", streams.SHUFFLE_BUFFER)


def streamed(tmp_path, train, buffer=16, evaluated=(), **options):
    streams.SHUFFLE_BUFFER = buffer
    config = corpus_config(tmp_path, train, **options)
    tokenizers = tokenizers_for(some_pairs(100), config.tags)
    return StreamedPairs(config, tokenizers, hashes_of(evaluated, config.source), seed=1), tokenizers


def stream(source, **options):
    return {**source, "streaming": True, **options}


def texts_of(pools, tokenizer):
    return [[" ".join(tokenizer.tokens(pairs[int(i)][0])) for i in order] for pairs, order in pools]


def test_a_stream_gives_every_pair_once_and_resumes_anywhere(tmp_path):
    pairs, (tokenizer, _) = streamed(tmp_path, stream(write(tmp_path / "a.tsv", some_pairs(100))))
    pools = texts_of(pairs.pools(1, 0), tokenizer)
    expected = [" ".join(tokenizer.tokens(ids)) for ids in tokenizer.encode([source for source, _ in some_pairs(100)])]
    assert sorted(text for pool in pools for text in pool) == sorted(expected)
    assert [len(pool) for pool in pools] == [16] * 6 + [4]
    assert pools[0] != expected[:16] and pairs.counts[0]["kept"] == 100
    assert texts_of(pairs.pools(1, 3), tokenizer) == pools[3:]
    assert texts_of(pairs.pools(2, 0), tokenizer) != pools, "each epoch has another order"


def test_a_stream_prepares_one_buffer_ahead(tmp_path, monkeypatch):
    begun, encode = Semaphore(0), StreamedPairs._encode
    monkeypatch.setattr(StreamedPairs, "_encode", lambda *arguments: begun.release() or encode(*arguments))
    pairs, _ = streamed(tmp_path, stream(write(tmp_path / "a.tsv", some_pairs(100))))
    next(pools := pairs.pools(0, 0))
    assert begun.acquire(timeout=60) and begun.acquire(timeout=60), "the caller waits for one, and has the other"
    assert pairs.counts[0]["kept"] == 16 and sum(len(order) for _, order in pools) == 84


def test_streams_are_mixed_by_weight_until_all_have_ended(tmp_path):
    sources = [
        stream(write(tmp_path / "a.tsv", some_pairs(40)), weight=3.0),
        stream(write(tmp_path / "b.tsv", some_pairs(40, 200)), weight=1.0, tag="<bt>"),
    ]
    pairs, (tokenizer, _) = streamed(tmp_path, sources)
    pools = list(pairs.pools(0, 0))
    assert [pairs.part_sizes for pairs, _ in pools[:3]] == [(12, 4)] * 3
    sizes = np.array([pairs.part_sizes for pairs, _ in pools])
    assert sizes.sum(axis=0)[0] >= 40 and sizes.sum(axis=0)[1] == 40, "the longest is read once"
    tagged = [text for pool in texts_of(pools, tokenizer) for text in pool if text.startswith("<bt> ")]
    assert len(tagged) == 40


def test_a_stream_drops_and_counts_like_a_prepared_corpus(tmp_path):
    rows = [*some_pairs(10), *some_pairs(3), ("", "x"), ("a valid", "new"), ("one " * 30, "x " * 30)]
    source = stream(write(tmp_path / "a.tsv", rows))
    pairs, _ = streamed(tmp_path, source, buffer=100, evaluated=["a valid"], max_tokens=20)
    assert sum(len(order) for _, order in pairs.pools(0, 0)) == 10
    assert +pairs.counts[0] == {"kept": 10, "duplicates": 3, "blank_source": 1, "overlap": 1, "max_tokens": 1}


def test_a_mixture_of_streams_keeps_its_weights_to_the_end(tmp_path):
    sources = [stream(write(tmp_path / f"{size}.tsv", some_pairs(size, size))) for size in (8, 75)]
    pairs, (tokenizer, _) = streamed(tmp_path, [*sources, stream(write(tmp_path / "none.tsv", []))], buffer=24)
    pools = list(pairs.pools(0, 0))
    assert [pairs.part_sizes for pairs, _ in pools] == [(8, 8, 0)] * 9 + [(3, 3, 0)]
    texts = [text for pool in texts_of(pools, tokenizer) for text in pool]
    assert len(set(texts)) == 83 and texts_of(pairs.pools(0, 8), tokenizer) == texts_of(pools[8:], tokenizer)


class _OneOfTwo(Group):
    """A process of two, which are threads of this one."""

    def __init__(self, rank, barrier, values):
        super().__init__(rank, 2)
        object.__setattr__(self, "parts", (barrier, values))

    def all_gather(self, value):
        barrier, values = self.parts
        values[self.rank] = value
        barrier.wait()
        gathered = pickle.loads(pickle.dumps([values[0], values[1]]))
        barrier.wait()
        return gathered


def test_processes_share_the_filtering_of_a_stream(tmp_path, monkeypatch):
    monkeypatch.setattr("mt_cli.data.streams.ROWS_PER_BLOCK", 4)
    rows, lock = Counter(), Lock()

    def counted(block, *arguments):
        with lock:
            rows.update(number for number, *_ in block)
        return clean_rows(block, *arguments)

    alone, (tokenizer, _) = streamed(tmp_path, stream(write(tmp_path / "a.tsv", [*some_pairs(50), *some_pairs(5)])))
    expected = texts_of(alone.pools(0, 0), tokenizer)
    monkeypatch.setattr("mt_cli.data.streams.clean_rows", counted)
    barrier, values = Barrier(2, timeout=60), {}

    def work(rank):
        pairs, _ = streamed(tmp_path, stream({"file": str(tmp_path / "a.tsv")}))
        pairs._group = _OneOfTwo(rank, barrier, values)
        return texts_of(pairs.pools(0, 0), tokenizer), pairs.counts

    with ThreadPoolExecutor(2) as threads:
        for texts, counts in threads.map(work, range(2)):
            assert texts == expected and counts == alone.counts
    assert set(rows.values()) == {1}
