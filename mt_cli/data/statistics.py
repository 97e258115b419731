"""Corpora and tokenizers of a run: rows for `report.json`, and lines of text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from mt_cli.config.sections import Config
from mt_cli.config.sources import TextSource
from mt_cli.config.tags import targets_of
from mt_cli.corpus.cleaning import HELD_OUT
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.dataset import commit_of
from mt_cli.corpus.monolingual import FEWEST_KNOWN, Lines, known_shares
from mt_cli.corpus.rows import by_language
from mt_cli.corpus.source_rows import names_of
from mt_cli.data.prepare import Data, sample, times_per_epoch

_MANY_DROPPED, _KEPT = 0.1, ("kept", "held_out")
_LINES_EXAMINED, _PAIRS_EXAMINED = 1_000, 20_000


def report_on_data(
    data: Data,
    config: Config,
    num_seen: Sequence[int] = (),
    streamed: Sequence[Mapping[str, int]] = (),
    num_likely: Sequence[int] = (),
) -> list[dict[str, Any]]:
    """One row per part of a corpus: its name, and the number of pairs read, kept, held out and dropped; also for texts.

    Rows of `train` also have `times_per_epoch`, the reason if no pair is held out from them, with `num_seen`
    `num_pairs_seen`, and with `num_likely` the number of pairs that `keep_likely` has kept. For streams, `streamed`
    counts rows by status since the last start of the run, and rows that are read twice count twice.
    """
    rows = [_part_row(data, name, index) for name, corpus in data.corpora.items() for index in range(len(corpus.parts))]
    rows += [_text_row(side, lines) for side, lines in data.monolingual.items()]
    training = [row for row in rows if row["corpus"] == "train"]
    for row, times in zip(training, times_per_epoch(data, config) if training else (), strict=True):
        row["times_per_epoch"] = round(times, 4)
    if training and config.corpus.held_out:
        for row, source, is_natural in zip(training, config.corpus.train, config.corpus.natural(), strict=True):
            if not is_natural and (source.weight or 1) > 1:
                row["not_held_out"] = f"weight {source.weight:g}"
            elif not is_natural and not targets_of([source.tag or ""]):  # Unlike the reverse of a source.
                row["not_held_out"] = f"tag {source.tag}"
    if not training:
        sources = config.corpus.train
        training = [_stream_row(*stream) for stream in zip_longest(names_of(sources), sources, streamed)]
        rows = [*training, *rows]
    for row, seen in zip(training, num_seen, strict=False):
        row["num_pairs_seen"] = seen
    for row, number in zip(training, num_likely, strict=False):
        row["num_likely"] = number
    return rows


def _part_row(data: Data, name: str, index: int) -> dict[str, Any]:
    corpus, statistics = data.corpora[name], data.statistics[name]
    part, is_share = corpus.parts[index], corpus.code == HELD_OUT
    skipped = [] if is_share else [*part.skipped]  # The rows of `train` have them.
    counts = corpus.counts(part)
    # Filters ran before this share was held out; the rows of `train` count the pairs that they dropped.
    dropped = {} if is_share else {key: count for key, count in counts.items() if key not in _KEPT}
    if statistics.num_too_long[index]:
        dropped["max_tokens"] = statistics.num_too_long[index]
    return {
        "corpus": name,
        "name": part.name,
        **({} if part.commit is None else {"commit": part.commit}),
        "num_read": corpus.num_kept(part) if is_share else part.num_rows,
        "num_kept": statistics.num_pairs[index],
        "num_held_out": 0 if is_share else counts.get("held_out", 0),
        "dropped": dropped,
        **({"num_skipped_files": len(skipped), "skipped": skipped} if skipped else {}),
    }


def _text_row(side: str, lines: Lines) -> dict[str, Any]:
    return {"corpus": f"monolingual.{side}", "name": lines.name, "num_held_out": 0, **_numbers(lines.counts)}


def _numbers(counts: Mapping[str, int]) -> dict[str, Any]:
    dropped = {status: count for status, count in counts.items() if count and status != "kept"}
    return {"num_read": sum(counts.values()), "num_kept": counts.get("kept", 0), "dropped": dropped}


def notes_on_reading(corpora: Mapping[str, Corpus]) -> list[str]:
    """Notes on what the readers skipped, dropped or chose, without repetitions."""
    parts = [part for corpus in corpora.values() if corpus.code != HELD_OUT for part in corpus.parts]
    return list(dict.fromkeys(note for part in parts for note in part.notes))


def notes_on_dropped(num_read: int, counts: Mapping[str, int]) -> list[str]:
    """A note if many of the training pairs that were read are dropped, by their counts by status."""
    dropped = Counter({status: count for status, count in counts.items() if status not in _KEPT})
    if dropped.total() <= _MANY_DROPPED * num_read:
        return []
    ((reason, count),) = dropped.most_common(1)
    share = f"{dropped.total() / num_read:.0%} of {num_read:,} training pairs"
    return [f"{share} are dropped, {count:,} of them as {reason}; mt data check has all reasons"]


def _stream_row(name: str, source: TextSource, counts: Mapping[str, int] | None) -> dict[str, Any]:
    commit = commit_of(source)
    row: dict[str, Any] = {"corpus": "train", "name": name, **({} if commit is None else {"commit": commit})}
    return row if counts is None else row | _numbers(counts)


def describe_data(data: Data, config: Config) -> list[str]:
    """Sizes of all corpora, and notes, as lines of text."""
    lines: list[str] = []
    rows = report_on_data(data, config)
    for name in dict.fromkeys(row["corpus"] for row in rows):
        parts = [row for row in rows if row["corpus"] == name]
        if "num_kept" not in parts[0]:
            lines.append(f"{name:<18}{'streaming':>10} {', '.join(row['name'] for row in parts)}")
            lines.append("note: a stream is not searched for slips and wrong languages; see `mt data check`")
            continue
        counts = sum((Counter(row["dropped"]) for row in parts), Counter[str]())
        dropped = ", dropped " + ", ".join(f"{count:,} {status}" for status, count in counts.items()) if counts else ""
        unit = "lines" if name.startswith("monolingual.") else "pairs"
        lines.append(f"{name:<18}{sum(row['num_kept'] for row in parts):>10,} {unit}{dropped}")
        for row in [row for row in parts if row["num_read"]] if len(parts) > 1 else ():
            times = row.get("times_per_epoch", 1)
            weight = f", each {times:.3g} times an epoch" if times != 1 else ""
            why_none = f", none held out: {row['not_held_out']}" if "not_held_out" in row else ""
            lines.append(f"  {row['name']:<24}{row['num_kept']:>10,} pairs{weight}{why_none}")
    notes = [*notes_on_reading(data.corpora), *notes_on_overlap(rows), *notes_on_monolingual(data, config)]
    lines.extend(f"note: {note}" for note in notes)
    training = [row for row in rows if row["corpus"] == "train" and "dropped" in row]
    num_read = sum(row["num_read"] for row in training)
    dropped_from_train = sum((Counter(row["dropped"]) for row in training), Counter[str]())
    return [*lines, *(f"note: {note}" for note in notes_on_dropped(num_read, dropped_from_train))]


def notes_on_overlap(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    training = [row for row in rows if row["corpus"] == "train" and "dropped" in row]
    if overlap := sum(row["dropped"].get("overlap", 0) for row in training):
        pairs = f"{overlap:,} pairs of train contain" if overlap > 1 else "1 pair of train contains"
        contents = "a sentence of valid, test or extra_tests"
        return [f"{pairs} {contents} and {'are' if overlap > 1 else 'is'} dropped (corpus.filters.overlap)"]
    return []


def notes_on_monolingual(data: Data, config: Config) -> Iterator[str]:
    """Notes on texts of one language that are in another language, or that train has already, from samples."""
    if not data.monolingual:
        return
    train = data.corpora["train"]
    texts = by_language(train.untagged_pairs(sample(train, _PAIRS_EXAMINED, config.training.seed)))
    for side, lines in data.monolingual.items():
        into, language = config.corpus.synthetic_directions[side]
        some = lines.sample(_LINES_EXAMINED)
        own, other = known_shares(some, [texts[language], texts[into]])
        if own < max(other, FEWEST_KNOWN):
            shares = f"only {own:.0%} of its words are in the {language} of train ({other:.0%} in the {into})"
            yield f"{lines.name} (corpus.monolingual.{side}): {shares}; is it in {language}?"
        num_known = len({*some} & {*texts[language]})
        if 2 * num_known > len(some):
            yield f"{lines.name}: {num_known / len(some):.0%} of its lines are in train, and teach nothing new"
