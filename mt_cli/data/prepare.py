"""Data of a run: corpora, tokenizers and token ids, prepared once; training pairs and fingerprints."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mt_cli.config.sections import Config
from mt_cli.corpus import languages
from mt_cli.corpus.augmented_text import TextAugmentation
from mt_cli.corpus.cache import Cache, fingerprint
from mt_cli.corpus.cleaning import KEPT, STATUS_CODES, Mask
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.monolingual import Lines, read_monolingual
from mt_cli.corpus.protected_text import Protection
from mt_cli.corpus.reading import key_of, read_corpora
from mt_cli.corpus.rows import Languages, Pair, untagged
from mt_cli.corpus.sentences import SentencesSeen
from mt_cli.corpus.source_rows import content_of, names_of
from mt_cli.corpus.text_hashes import Hashes, PairHashes, hashes_of, pair_hashes, seed_of
from mt_cli.data.batches import MixedPairs, TrainingPairs, count_batches, shares_by_temperature
from mt_cli.data.encode import EncodedPairs, Statistics, encode_corpora
from mt_cli.data.lexicon import MOST_PAIRS, Lexicon, lexicons_of, load_lexicons, save_lexicons
from mt_cli.data.streams import StreamedPairs, first_pairs
from mt_cli.errors import CorpusError
from mt_cli.runtime.console import Progress, say
from mt_cli.runtime.devices import release_memory
from mt_cli.runtime.group import Group
from mt_cli.tokenizer.tokenizer import TokenizerPair, load_tokenizers, save_tokenizers
from mt_cli.tokenizer.vocabulary_training import train_tokenizers

_PAIRS_OF_TOKENIZERS = 1_000_000
"""Maximum number of pairs that tokenizers are trained on: a random sample or, of a stream, the first ones."""


@dataclass(frozen=True)
class Data:
    """Corpora for training, validation and tests, by name, with tokenizers and token ids."""

    corpora: Mapping[str, Corpus]
    """Text of `train` (unless it is a stream), `valid`, `test` and the extra tests."""
    tokenizers: TokenizerPair
    encoded: Mapping[str, EncodedPairs]
    statistics: Mapping[str, Statistics]
    is_short_enough: Mapping[str, Mask]
    """Mask over the pairs of every corpus: at most `max_tokens` on both sides."""
    monolingual: Mapping[str, Lines] = field(default_factory=dict)
    """Texts of one language by side: `target`, `source`."""
    lexicons: Mapping[Languages, Lexicon] = field(default_factory=dict)
    """Lexicons by direction, for `corpus.terms`."""

    def fingerprints(self, config: Config) -> dict[str, str]:
        """Fingerprints that change when a corpus or a text changes."""
        texts = {f"corpus.monolingual.{side}": lines.fingerprint for side, lines in self.monolingual.items()}
        return fingerprints_of(self.corpora, config) | texts

    def statuses(self, name: str) -> NDArray[np.uint8]:
        """Status of every row of a corpus as an index of `STATUS_NAMES`, `max_tokens` included."""
        corpus = self.corpora[name]
        statuses = corpus.statuses.copy()
        statuses[np.flatnonzero(statuses == corpus.code)[~self.is_short_enough[name]]] = STATUS_CODES["max_tokens"]
        return statuses


def prepare(
    config: Config, cache: Cache, tokenizers: TokenizerPair | None = None, stream_rows: int | None = None
) -> Data:
    """Read, clean and encode all corpora except streams, and train the tokenizers unless they are given.

    With `stream_rows`, the first `stream_rows` rows of a stream stand for it. The cache keeps every result. Raises
    CorpusError if a corpus cannot be read or has no pair left, and MtError if the disk is full or cannot be written.
    """
    for note in [*notes_on_tags(config), *(notes_on_words(config) if tokenizers is None else [])]:
        say(f"note: {note}")
    corpora = read(config, cache, stream_rows)
    tokenizers = tokenizers or _trained_tokenizers(corpora, config, cache)
    encoded, statistics, is_short_enough = encode_corpora(corpora, tokenizers, config.corpus, cache)
    for name, pairs in encoded.items():
        if not len(pairs) and name in ("train", "valid"):
            limit = f"corpus.max_tokens {config.corpus.max_tokens}"
            raise CorpusError(f"{key_of(name)}: every pair is longer than {limit}; split texts, or set a larger one")
    monolingual = read_monolingual(config.corpus, evaluation_hashes(corpora), cache)
    lexicons = _lexicons(corpora, config, cache) if config.corpus.terms else {}
    release_memory()
    return Data(corpora, tokenizers, encoded, statistics, is_short_enough, monolingual, lexicons)


def read(config: Config, cache: Cache, stream_rows: int | None = None) -> dict[str, Corpus]:
    """Read and clean all corpora except streams, with progress; takes them from the cache if it has them."""
    with Progress("reading", None, "pair") as bar:
        return read_corpora(config.corpus, cache, bar.advance, stream_rows)


def _trained_tokenizers(corpora: Mapping[str, Corpus], config: Config, cache: Cache) -> TokenizerPair:
    """Tokenizers trained on the training pairs or a seeded sample, or taken from the cache."""
    if "train" not in corpora:
        return train_tokenizers(tokenizer_pairs(corpora, config), config)
    corpus, settings = config.corpus, config.tokenizer.model_dump(mode="json", exclude={"bpe_dropout"})
    changes = (
        corpus.temperature,
        Protection.of(corpus.protect).key,
        corpus.terms,
        corpus.augment.model_dump(mode="json"),
    )
    directions = corpus.languages_of("train")
    key = fingerprint(corpora["train"].fingerprint, settings, config.training.seed, corpus.tags, directions, *changes)

    def make(folder: Path) -> None:
        save_tokenizers(folder, train_tokenizers(tokenizer_pairs(corpora, config), config))
        release_memory()

    return cache.entry(f"tokenizers-{key}", make, lambda folder: load_tokenizers(folder, config))


def _lexicons(corpora: Mapping[str, Corpus], config: Config, cache: Cache) -> dict[Languages, Lexicon]:
    """Lexicons of a seeded sample of the training pairs, for each direction; taken from the cache, if it has them."""
    read_pairs, protection = _sampled_pairs(corpora, config, MOST_PAIRS), Protection.of(config.corpus.protect)
    languages, first_times = config.corpus.languages_of("train"), {*config.corpus.once("train")}

    def make() -> dict[Languages, Lexicon]:
        with Progress("learning terms", None, "pair") as bar:
            return lexicons_of(
                (languages[part], protection.protect_pair(untagged(source, config.corpus.tags), target))
                for part, (source, target) in bar.over(read_pairs())
                if part in first_times
            )

    if "train" not in corpora:
        return make()
    key = fingerprint(
        corpora["train"].fingerprint, languages, config.training.seed, config.corpus.temperature, *protection.key
    )
    return cache.entry(
        f"lexicons-{key}",
        lambda folder: save_lexicons(folder / "lexicons.json", make()),
        lambda folder: load_lexicons(folder / "lexicons.json"),
    )


def tokenizer_pairs(corpora: Mapping[str, Corpus], config: Config) -> Callable[[], Iterable[Pair]]:
    """Function that reads the pairs for training tokenizers; for a stream, the first pairs.

    `corpus.temperature` also sets the proportions of these pairs, so that small languages get subwords. Protected
    spans are replaced. Some pairs have other capitals if `corpus.augment` asks for them.
    """
    read_pairs = _sampled_pairs(corpora, config, _PAIRS_OF_TOKENIZERS)
    augmentation, protection = TextAugmentation(config.corpus.augment), Protection.of(config.corpus.protect)
    languages_of_parts = config.corpus.languages_of("train")
    if not config.corpus.has_protection and not config.corpus.augment.changes_case:
        return lambda: (pair for _, pair in read_pairs())

    def changed() -> Iterator[Pair]:
        random = np.random.default_rng(config.training.seed)
        for part, (source, target) in read_pairs():
            pair = protection.protect_pair(untagged(source, config.corpus.tags), target)
            yield augmentation.capitalised(pair, random.random(), languages_of_parts[part])

    return changed


def _sampled_pairs(
    corpora: Mapping[str, Corpus], config: Config, number: int
) -> Callable[[], Iterable[tuple[int, Pair]]]:
    """Reader of a seeded sample of the pairs as they are written, each with the number of its corpus."""
    if "train" not in corpora:
        pairs = first_pairs(config.corpus, number)
        return lambda: pairs
    train = corpora["train"]
    mask = sample(train, number, config.training.seed)
    sizes = [part.num_rows for part in train.parts]
    parts = np.repeat(np.arange(len(sizes)), sizes)[mask].tolist()
    repeats = [1] * len(parts)
    if config.corpus.temperature is not None:
        times = np.repeat(_times_by_temperature(list(map(train.num_kept, train.parts)), config), sizes)[mask]
        repeats = np.floor(times + np.random.default_rng(config.training.seed).random(len(times))).astype(int).tolist()
    return lambda: (
        (part, row[1:])
        for part, row, number in zip(parts, train.rows(mask), repeats, strict=True)
        for _ in range(number)
    )


def sample(corpus: Corpus, number: int | None, seed: int) -> Mask:
    """Mask of a seeded sample: at most `number` of the rows that belong to the corpus."""
    mask: Mask = corpus.statuses == corpus.code
    rows = np.flatnonzero(mask)
    if number is not None and number < len(rows):
        mask[:] = False
        mask[rows[np.random.default_rng(seed).choice(len(rows), number, replace=False, shuffle=False)]] = True
    return mask


def corpus_pairs(data: Data, config: Config, group: Group, synthetic: SyntheticPairs | None) -> TrainingPairs:
    """Pairs of `train`, perhaps mixed with synthetic pairs; an epoch has the same number of pairs with and without."""
    corpus, training = config.corpus, config.training
    if corpus.is_streaming:
        return StreamedPairs(corpus, data.tokenizers, evaluation_hashes(data.corpora), training.seed, group)
    pairs, times, seed = data.encoded["train"], times_per_epoch(data, config), training.seed
    if synthetic is not None:
        num_real, sizes = pairs_per_epoch(data, config), {side: len(part) for side, part in synthetic.pairs.items()}
        shares = synthetic_shares(num_real, sizes)
        times = [(1 - sum(shares.values())) * repeats for repeats in times]
        times += [num_real * shares[side] / max(1, size) for side, size in sizes.items()]
        pairs, seed = EncodedPairs.joined([pairs, *synthetic.pairs.values()]), seed + (synthetic.number << 32)
    return MixedPairs(pairs, times, training.tokens_per_batch, seed)


def pairs_per_epoch(data: Data, config: Config) -> float:
    """Number of pairs of `train` in an epoch, without synthetic ones."""
    sizes = data.encoded["train"].part_sizes
    return sum(repeats * size for repeats, size in zip(times_per_epoch(data, config), sizes, strict=True))


@dataclass(frozen=True)
class SyntheticPairs:
    """Pairs with synthetic sources by side of the text that their targets are from, and the number of their round."""

    number: int
    pairs: Mapping[str, EncodedPairs]


_LARGEST_WEIGHTS = {"target": 1.0, "source": 0.5}


def synthetic_shares(num_real: float, num_lines: Mapping[str, int]) -> dict[str, float]:
    """Shares of an epoch, 0 to 1, that are synthetic pairs with targets from texts of these sizes, by side.

    A text weighs as much as its lines, but at most as much as the real pairs of both directions (one to one, as in
    Sennrich et al. 2016, "Improving Neural Machine Translation Models with Monolingual Data", section 4.2), and half as
    much if it is in the source language, since its pairs only serve the reverse direction.
    """
    weights = {side: min(_LARGEST_WEIGHTS[side], number / num_real) for side, number in num_lines.items()}
    return {side: weight / (1 + sum(weights.values())) for side, weight in weights.items()}


def estimate_epoch(pairs: TrainingPairs, config: Config) -> int | None:
    """Estimated number of micro-batches of the first epoch, from its first pools; None for a stream."""
    num_counted = (
        1 if config.tokenizer.bpe_dropout or config.changes_texts else 20
    )  # Changes take longer than counting.
    return count_batches(pairs, config.training.tokens_per_batch, num_counted)


def times_per_epoch(data: Data, config: Config) -> list[float]:
    """Number of times per epoch that a pair is seen, by training corpus."""
    if config.corpus.temperature is not None:
        return _times_by_temperature(data.statistics["train"].num_pairs, config)
    return config.corpus.weights


def _times_by_temperature(part_sizes: Sequence[int], config: Config) -> list[float]:
    """Times per epoch with `corpus.temperature`: by direction if there are several, otherwise by corpus."""
    assert config.corpus.temperature is not None
    directions = config.corpus.languages_of("train")
    return shares_by_temperature(
        part_sizes, config.corpus.temperature, directions if len(set(directions)) > 1 else None
    )


def evaluation_hashes(corpora: Mapping[str, Corpus]) -> Hashes:
    """Hashes of all sentences of validation and test sets, without tags, in their languages."""
    hashes = [
        hashes_of(texts, language)
        for name, corpus in corpora.items()
        if name != "train"
        for languages, *sides in corpus.untagged_blocks()
        for language, texts in zip(languages, sides, strict=True)
    ]
    return np.concatenate([np.empty(0, np.int64), *hashes])


def training_pair_hashes(data: Data) -> PairHashes | None:
    """Hashes of the pairs of `train` without tags, in their languages; None for a stream."""
    if "train" not in data.corpora:
        return None
    kept = data.statuses("train") == KEPT
    blocks = data.corpora["train"].untagged_blocks(kept)
    hashes = [pair_hashes(sources, targets, seed_of(languages)) for languages, sources, targets in blocks]
    return np.concatenate([np.empty(0, np.uint64), *hashes])


def fingerprints_of(corpora: Mapping[str, Corpus], config: Config) -> dict[str, str]:
    """Fingerprints that change when a corpus changes; for a stream, only when the first rows change."""
    fingerprints: dict[str, str] = {}
    for name, corpus in corpora.items():
        for part in corpus.parts if corpus.code == KEPT else ():  # A held-out share is in the rows of `train`.
            statuses = corpus.statuses[part.first_row : part.first_row + part.num_rows]
            digest = hashlib.sha256(statuses.tobytes()).hexdigest()
            fingerprints[f"{key_of(name)} ({part.name})"] = fingerprint(part.digest, digest)
    if config.corpus.is_streaming:
        train = config.corpus.train
        parts = zip(names_of(train), train, config.corpus.languages_of("train"), strict=True)
        for name, source, direction in parts:
            fingerprints[f"corpus.train ({name})"] = fingerprint(content_of(source, direction))
    return fingerprints


def longest_source(data: Data, config: Config, before: int | None) -> int | None:
    """Number of tokens of the longest training source; None for a stream.

    `before` is the number for earlier training of the same weights; the larger number counts. Concatenation of pairs
    doubles the number, and so do capitals, which have about twice the tokens.
    """
    if "train" not in data.statistics:
        return None
    longest = data.statistics["train"].longest_source
    longest *= config.training.most_concatenated * (2 if config.corpus.augment.upper_case else 1)
    return min(config.corpus.max_tokens, max(longest, before or 0))


def sentences_seen(data: Data, config: Config, before: SentencesSeen | None) -> SentencesSeen:
    """Fractions of training sources with several sentences; for a stream, those of the validation set.

    `before` has the fractions in earlier training of the same weights; the larger ones count.
    """
    statistics = data.statistics.get("train") or data.statistics["valid"]
    concatenated = SentencesSeen(config.training.concatenated_pairs, config.training.concatenated_pairs)
    return statistics.sentences.with_other(concatenated).with_other(before or SentencesSeen())


def notes_on_tags(config: Config) -> list[str]:
    """Notes on evaluation sets without tags, if every corpus of `train` has a tag."""
    groups = config.corpus.groups.items() if config.corpus.tagging.is_required else ()
    return [
        f"{key_of(name)} has no tag, and each corpus of train has one; set {key_of(name)}.tag, or corpus.tag: to_target"
        for name, sources in groups
        if not all(source.tag for source in sources)
    ]


def notes_on_words(config: Config) -> list[str]:
    """Notes on languages without spaces between words, if the tokenizer is word-level."""
    pairs = [config.corpus.languages, *config.corpus.languages_of("train")]
    spaceless = dict.fromkeys(code for pair in pairs for code in pair if not languages.marks_words(code))
    return [
        f"{language} has no spaces between words, at which word_level splits; set tokenizer.algorithm to bpe or char"
        for language in (spaceless if config.tokenizer.algorithm == "word_level" else ())
    ]
