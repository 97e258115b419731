"""From a config to pairs to train on: corpora, tokenizers and ids, made once and found again in the cache."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mt_cli.batching.batches import MixedPairs, TrainingPairs, shares_by_temperature
from mt_cli.batching.encoded import EncodedPairs, Statistics, encode_corpus
from mt_cli.batching.streamed import StreamedPairs, first_pairs
from mt_cli.config.corpora import TextSource
from mt_cli.config.sections import Config
from mt_cli.console import Progress, say
from mt_cli.corpus import alignment, cleaning, languages, suspicion
from mt_cli.corpus.cache import Cache, digest_of_file, fingerprint
from mt_cli.corpus.cleaning import HELD_OUT, KEPT, STATUS_CODES, Hashes, Mask, hashes_of
from mt_cli.corpus.formats import Languages
from mt_cli.corpus.languages import marks_words
from mt_cli.corpus.reading import Corpus, Part, corpora_of, key_of, read_corpora
from mt_cli.corpus.sources import names_of, read_rows
from mt_cli.corpus.suspicion import Problem, find_problems
from mt_cli.errors import CorpusError
from mt_cli.evaluation.texts import Scorer
from mt_cli.hardware import release_memory
from mt_cli.storage import check_free_disk
from mt_cli.tokenizer import Tokenizer, TokenizerPair, load_tokenizers, save_tokenizers, untagged

_MANY_DROPPED = 0.1
_ROWS_LOOKED_AT = 1_000


@dataclass(frozen=True)
class Data:
    """What a run is trained, validated and tested on."""

    corpora: Mapping[str, Corpus]
    """Text of `train` (but not of a stream), `valid`, `test` and the extra tests."""
    tokenizers: TokenizerPair
    encoded: Mapping[str, EncodedPairs]
    """Ids of the same."""
    statistics: Mapping[str, Statistics]
    """What encoding showed of the same."""
    is_short_enough: Mapping[str, NDArray[np.bool_]]
    """Whether each pair of a corpus has at most `max_tokens` on both sides."""
    problems: Sequence[Problem]
    """Stretches of lines that look wrong."""

    def statuses(self, name: str) -> NDArray[np.uint8]:
        """What became of each row of a corpus, as a code of `STATUS_NAMES`, `max_tokens` included."""
        corpus = self.corpora[name]
        statuses = corpus.statuses.copy()
        statuses[np.flatnonzero(statuses == corpus.code)[~self.is_short_enough[name]]] = STATUS_CODES["max_tokens"]
        return statuses


def prepare(
    config: Config, cache_path: Path, tokenizers: TokenizerPair | None = None, stream_rows: int | None = None
) -> Data:
    """Read, clean and encode all corpora but streams, or find them in the cache; train the tokenizers unless given.

    With `stream_rows`, so many rows of each stream are taken as if they were all.

    Raises:
        CorpusError: if a corpus cannot be read, or no pair of it is left.
        MtError: if there is no room on the disk.
    """
    for note in notes_on_words(config) if tokenizers is None else []:
        say(f"note: {note}")
    cache = Cache(cache_path, say)
    with _bar("reading", None) as advance:
        corpora = read_corpora(config.corpus, config.training.seed, cache, advance, stream_rows)
    tokenizers = tokenizers or _trained_tokenizers(corpora, config, cache)
    any_corpus = next(iter(corpora.values()))
    key = fingerprint(
        any_corpus.key,
        [each.to_json() for each in tokenizers],
        config.corpus.max_tokens,
        config.corpus.tags,
    )

    def encode(folder: Path) -> None:
        check_free_disk(
            folder, sum({corpus.file: corpus.file.size() for corpus in corpora.values()}.values()), "the encoded corpus"
        )
        for name, corpus in corpora.items():
            with _bar(f"encoding {name}", len(corpus)) as advance:
                path = folder / f"{name}.arrow"
                statistics = encode_corpus(corpus, tokenizers, config.corpus.max_tokens, path, advance)
            statistics.save(path.with_suffix(".json"))

    def load(folder: Path) -> tuple[dict[str, EncodedPairs], dict[str, Statistics], dict[str, NDArray[np.bool_]]]:
        statistics = {name: Statistics.load(folder / f"{name}.json") for name in corpora}
        encoded = {name: EncodedPairs.open(folder / f"{name}.arrow", statistics[name].num_pairs) for name in corpora}
        return encoded, statistics, {name: np.load(folder / f"{name}.npy") for name in corpora}

    encoded, statistics, is_short_enough = cache.entry(f"ids-{key}", encode, load)
    for name, pairs in encoded.items():
        if not len(pairs) and name in ("train", "valid"):
            raise CorpusError(f"{key_of(name)}: every pair has more than corpus.max_tokens {config.corpus.max_tokens}")
    problems = _problems(corpora, config, cache)
    release_memory()
    return Data(corpora, tokenizers, encoded, statistics, is_short_enough, problems)


def notes_on_words(config: Config) -> list[str]:
    """Which languages of a config have no words that a word-level vocabulary could hold."""
    both = [(config.corpus.source, config.corpus.target), *languages_of(config, "train")]
    languages = dict.fromkeys(language for pair in both for language in pair if not marks_words(language))
    return [
        f"{language} is written without spaces between words, and tokenizer.algorithm word_level cuts at spaces: "
        "unless its words are parted already, almost every sentence will be one unknown word. Use bpe, unigram or char."
        for language in (languages if config.tokenizer.algorithm == "word_level" else ())
    ]


def _problems(corpora: Mapping[str, Corpus], config: Config, cache: Cache) -> list[Problem]:
    """What looks wrong with the corpora, from the cache if they were examined before."""

    def examine(folder: Path) -> None:
        own = {name: corpus for name, corpus in corpora.items() if corpus.code == KEPT}
        found = [
            each for name, corpus in own.items() for each in find_problems(name, corpus, languages_of(config, name))
        ]
        (folder / "problems.json").write_text(json.dumps([asdict(each) for each in found]), encoding="utf-8")

    modules = (alignment, cleaning, languages, suspicion)  # What they find may change with them.
    paths = [*(Path(str(each.__file__)) for each in modules), languages.TABLE]
    key = fingerprint(next(iter(corpora.values())).key, [digest_of_file(path) for path in paths])

    def load(folder: Path) -> list[Problem]:
        return [Problem(**each) for each in json.loads((folder / "problems.json").read_text(encoding="utf-8"))]

    return cache.entry(f"problems-{key}", examine, load)


def languages_of(config: Config, name: str) -> list[Languages]:
    """The languages of each part of a corpus."""
    both = (config.corpus.source, config.corpus.target)
    sources: Sequence[TextSource] = corpora_of(config.corpus)[name]
    return [source.languages or both for source in sources]


def scorer_of(config: Config, name: str) -> Scorer:
    """What scores translations of a corpus: by the language of its targets, if they are all in one.

    Raises:
        InputError: if its BLEU tokenizer cannot be had here.
    """
    groups = corpora_of(config.corpus)
    targets = {target for _, target in languages_of(config, name)} if name in groups else set()
    language = targets.pop() if len(targets) == 1 else config.corpus.target
    return Scorer.of(language, config.evaluation.bleu_tokenizer)


def _bar(description: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
    return Progress(description, total, "pair").counting()


def _trained_tokenizers(corpora: Mapping[str, Corpus], config: Config, cache: Cache) -> TokenizerPair:
    """Source and target tokenizer of the training pairs, or of a seeded sample of them; from the cache if there."""
    if "train" not in corpora:
        pairs = first_pairs(config.corpus, config.tokenizer.sample_pairs or 0)
        return _train_tokenizers(lambda: iter(pairs), config)
    train = corpora["train"]
    settings = config.tokenizer.model_dump(mode="json")
    key = fingerprint(train.key, settings, config.training.seed, config.corpus.tags)

    def make(folder: Path) -> None:
        mask = _sample(train, config.tokenizer.sample_pairs, config.training.seed)
        save_tokenizers(folder, _train_tokenizers(lambda: (row[1:] for row in train.rows(mask)), config))
        release_memory()

    return cache.entry(f"tokenizers-{key}", make, lambda folder: load_tokenizers(folder, config))


def _sample(corpus: Corpus, number: int | None, seed: int) -> Mask:
    """A mask of the corpus' rows with `number` of them, or all if there are fewer."""
    mask: Mask = corpus.statuses == corpus.code
    rows = np.flatnonzero(mask)
    if number is not None and number < len(rows):
        mask[:] = False
        mask[rows[np.random.default_rng(seed).choice(len(rows), number, replace=False, shuffle=False)]] = True
    return mask


def _train_tokenizers(pairs: Callable[[], Iterator[tuple[str, str]]], config: Config) -> TokenizerPair:
    """Both tokenizers, one and the same if the config shares it; `pairs` gives the text anew each time."""

    def learn(description: str, texts: Callable[[], Iterator[str]], tags: tuple[str, ...]) -> Tokenizer:
        with Progress(description, None, "sentence") as bar:
            return Tokenizer.train(_Anew(lambda: bar.over(texts())), config.tokenizer, tags)

    tags = config.corpus.tags
    if config.tokenizer.shared:
        shared = learn("learning the vocabulary", lambda: (text for pair in pairs() for text in pair), tags)
        return shared, shared
    return (
        learn("learning the source vocabulary", lambda: (source for source, _ in pairs()), tags),
        learn("learning the target vocabulary", lambda: (target for _, target in pairs()), ()),
    )


class _Anew:
    """Texts that can be gone through several times, without being kept."""

    def __init__(self, texts: Callable[[], Iterator[str]]) -> None:
        self._texts = texts

    def __iter__(self) -> Iterator[str]:
        return self._texts()


def training_pairs(data: Data, config: Config) -> TrainingPairs:
    """The pairs of `train` in the proportions of the config, or its stream."""
    corpus, training = config.corpus, config.training
    if corpus.is_streaming:
        return StreamedPairs(corpus, data.tokenizers, scored_hashes(data, config), training.seed)
    return MixedPairs(data.encoded["train"], times_per_epoch(data, config), training.tokens_per_batch, training.seed)


def times_per_epoch(data: Data, config: Config) -> list[float]:
    """How often each pair of each training corpus is seen per epoch."""
    if config.corpus.temperature is not None:
        return shares_by_temperature(data.statistics["train"].num_pairs, config.corpus.temperature)
    return [source.weight or 1.0 for source in config.corpus.train]


def fingerprints_of(data: Data, config: Config) -> dict[str, str]:
    """What tells whether a run's corpora are those it began with; of a stream, its beginning is looked at."""
    found = {
        f"{key_of(name)} ({part.name})": fingerprint(part.digest, hashlib.sha256(_fates(corpus, part)).hexdigest())
        for name, corpus in data.corpora.items()
        if corpus.code == KEPT  # A held-out share is in the rows of `train`.
        for part in corpus.parts
    }
    if config.corpus.is_streaming:
        languages = (config.corpus.source, config.corpus.target)
        for name, source in zip(names_of_parts(config), config.corpus.train, strict=True):
            found[f"corpus.train ({name})"] = fingerprint(list(islice(read_rows(source, languages), _ROWS_LOOKED_AT)))
    return found


def _fates(corpus: Corpus, part: Part) -> bytes:
    return corpus.statuses[part.first_row : part.first_row + part.num_rows].tobytes()


def longest_source(data: Data, config: Config) -> int | None:
    """Tokens of the longest source sentence that is trained on; None if that is not known before."""
    if "train" not in data.statistics:
        return None
    counts = data.statistics["train"].source.length_counts
    return min(config.corpus.max_tokens, max(length for length, count in enumerate(counts) if count))


def names_of_parts(config: Config) -> list[str]:
    """What reports call the training corpora."""
    return names_of(config.corpus.train)


def scored_hashes(data: Data, config: Config) -> list[Hashes]:
    """Hashes of all sources, without tags, and of all targets of validation and test sets."""
    pairs = [pair for name, corpus in data.corpora.items() if name != "train" for pair in corpus.pairs]
    tags = config.corpus.tags
    return [hashes_of(untagged(source, tags) for source, _ in pairs), hashes_of(target for _, target in pairs)]


def report_on_data(
    data: Data, config: Config, num_seen: Sequence[int] = (), streamed: Sequence[Mapping[str, int]] = ()
) -> list[dict[str, Any]]:
    """For every source of every corpus: its name, how many pairs were read, kept, dropped for which reason.

    Those of `train` also have `times_per_epoch` and, where `num_seen` says so, `num_pairs_seen`. Of streams only
    `streamed` tells what became of their rows, since the last start of the run and repetitions counted.
    """
    rows: list[dict[str, Any]] = []
    for name, corpus in data.corpora.items():
        statistics = data.statistics[name]
        for index, part in enumerate(corpus.parts):
            counts = corpus.counts(part)
            dropped = {reason: count for reason, count in counts.items() if reason not in ("kept", "held_out")}
            if statistics.num_too_long[index]:
                dropped["max_tokens"] = statistics.num_too_long[index]
            is_share = corpus.code == HELD_OUT
            rows.append(
                {
                    "corpus": name,
                    "name": part.name,
                    "num_read": corpus.num_kept(part) if is_share else part.num_rows,
                    "num_kept": statistics.num_pairs[index],
                    "num_held_out": 0 if is_share else counts.get("held_out", 0),
                    "dropped": {} if is_share else dropped,
                }
            )
    training = [row for row in rows if row["corpus"] == "train"]
    if not training:
        training = [{"corpus": "train", "name": name} for name in names_of_parts(config)]
        for row, counts in zip(training, map(dict, streamed), strict=False):
            row |= {"num_read": sum(counts.values()), "num_kept": counts.pop("kept", 0)}
            row["dropped"] = {reason: count for reason, count in counts.items() if count}
        rows = [*training, *rows]
    else:
        for row, times in zip(training, times_per_epoch(data, config), strict=True):
            row["times_per_epoch"] = round(times, 4)
    for row, seen in zip(training, num_seen, strict=False):
        row["num_pairs_seen"] = seen
    return rows


def describe_data(data: Data, config: Config) -> list[str]:
    """What is trained, validated and tested on, for people, several lines."""
    lines: list[str] = []
    rows = report_on_data(data, config)
    for name in dict.fromkeys(row["corpus"] for row in rows):
        parts = [row for row in rows if row["corpus"] == name]
        if "num_kept" not in parts[0]:
            lines.append(f"{name:<18}{'streaming':>10} {', '.join(row['name'] for row in parts)}")
            continue
        dropped = sum((Counter(row["dropped"]) for row in parts), Counter())
        lines.append(f"{name:<18}{sum(row['num_kept'] for row in parts):>10,} pairs{_dropped(dropped)}")
        if len(parts) > 1:
            lines.extend(
                f"  {row['name']:<24}{row['num_kept']:>10,} pairs"
                + (f", each {row['times_per_epoch']:.3g} times an epoch" if row.get("times_per_epoch", 1) != 1 else "")
                for row in parts
            )
    lines.extend(f"note: {note}" for note in note_on_overlap(rows))
    training = [row for row in rows if row["corpus"] == "train" and "dropped" in row]
    num_read = sum(row["num_read"] for row in training)
    num_dropped = sum(sum(row["dropped"].values()) for row in training)
    if num_dropped > _MANY_DROPPED * num_read:
        lines.append(f"note: {num_dropped / num_read:.0%} of train was left out; `mt data check` shows what and why")
    return [*lines, *map(str, data.problems)]


def note_on_overlap(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What should not be overlooked: how many pairs of `report_on_data` were left out for fairness of the scores."""
    if overlap := sum(row["dropped"].get("overlap", 0) for row in rows if "dropped" in row):
        found = f"{overlap:,} pairs of train have" if overlap > 1 else "1 pair of train has"
        return [f"{found} a sentence of valid or test and will not be trained on (corpus.filters.overlap)"]
    return []


def _dropped(counts: Mapping[str, int]) -> str:
    return ", dropped " + ", ".join(f"{count:,} {reason}" for reason, count in counts.items()) if counts else ""
