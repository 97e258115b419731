"""Problems of the corpora of a run, from the cache if they were examined before.

These are slipped lines and lines in another language, text that other programs have processed or that is damaged, and
sources with several different targets, which a model cannot all learn. Nothing is changed here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mt_cli.batching.encoded import SIDES
from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import Config
from mt_cli.corpus import cleaning, languages, misalignment
from mt_cli.corpus.cache import Cache, digest_of_file, fingerprint
from mt_cli.corpus.cleaning import KEPT
from mt_cli.corpus.corpus import Corpus
from mt_cli.corpus.rows import Languages
from mt_cli.errors import CorpusError, InputError
from mt_cli.features.data_check.findings import Finding, Kind, Sentences, Tally, sentences_of
from mt_cli.features.data_check.marks import DAMAGED, IN_MARKUP, PROCESSED
from mt_cli.features.data_check.stretches import find_stretches
from mt_cli.features.data_check.usage import Usage, count_usage, notes_on_usage

_CODE = [
    *Path(__file__).parent.glob("*.py"),
    *(Path(str(module.__file__)) for module in (cleaning, languages, misalignment)),
]
"""Files of the code that decides what is a problem."""
_MANY_PAIRS, _MANY_TARGETS = 0.35, 20
"""Tatoeba, whose sentences have alternatives on purpose, has up to 22 % of the pairs and 15 targets of one source."""
_ACCEPT = "set corpus.accept_processed to true"
_RAW_TEXT = "give the raw text (join subwords, detokenise, and remove tags, which the option `tag` of a corpus adds)"


def find_problems(corpora: Mapping[str, Corpus], config: Config, cache: Cache) -> list[Finding]:
    """Problems and notes on the text of corpora; a held-out share is in the text of `train`.

    Text that another program has processed is a problem only in `train`, and not if the config accepts it. Segmented
    text is what a word-level tokenizer needs.
    """

    def examine(folder: Path) -> None:
        stored = {name: corpus for name, corpus in corpora.items() if corpus.code == KEPT}
        findings = [finding for name in stored for finding in find_stretches(name, stored[name], config.corpus)]
        findings += find_damage(stored, config.corpus)
        (folder / "problems.json").write_text(json.dumps([asdict(finding) for finding in findings]), encoding="utf-8")

    def load(folder: Path) -> list[Finding]:
        return [Finding(**tree) for tree in json.loads((folder / "problems.json").read_text(encoding="utf-8"))]

    def is_accepted(finding: Finding) -> bool:
        is_needed = finding.kind == "segmented" and config.tokenizer.algorithm == "word_level"
        return finding.kind != "stretch" and (config.corpus.accept_processed or finding.corpus != "train" or is_needed)

    digests = [digest_of_file(path) for path in [*sorted(_CODE), languages.TABLE]]
    key = fingerprint(next(iter(corpora.values())).fingerprint, digests)
    findings = cache.entry(f"problems-{key}", examine, load)
    return [replace(finding, is_note=finding.is_note or is_accepted(finding)) for finding in findings]


def refuse_problems(problems: Sequence[Finding]) -> None:
    """Raise InputError if training on the corpora would go wrong; the problems themselves have been reported."""
    reasons = []
    if any(problem.kind == "stretch" for problem in problems):
        reasons.append("the corpora have problems, see above; check these lines before training on them")
    if any(problem.is_refused for problem in problems):
        reasons.append(f"corpus.train: the text is processed already, see above; {_RAW_TEXT}, or {_ACCEPT}")
    if reasons:
        raise InputError("\n".join(reasons))


def refuse_processed(problems: Sequence[Finding], way_out: str = _ACCEPT) -> None:
    """Raise CorpusError if another program has processed the text, with counts, places, and advice."""
    if lines := [problem.message for problem in problems if problem.is_refused]:
        raise CorpusError(
            "\n  ".join(["corpus.train: the text is processed already:", *lines])
            + f"\nPlease {_RAW_TEXT}, or {way_out}: the model then reads and writes text in this form."
        )


def find_damage(corpora: Mapping[str, Corpus], config: CorpusConfig) -> Iterator[Finding]:
    """Find processed and damaged text in the kept sentences of corpora."""
    usages = defaultdict[tuple[str, str], Usage](Usage)
    for name, corpus in corpora.items():
        for number in config.once(name):
            part, pair = corpus.parts[number], config.languages_of(name)[number]
            blocks = list(sentences_of(corpus, part, config.tags))
            yield from _find_marks(name, part.name, blocks, pair, config)
            for side, language in enumerate(pair):
                for block in blocks:
                    count_usage(usages[name, language], language, part.name, block.numbers, block.sides[side])
    yield from notes_on_usage(usages, config)
    if "train" in corpora:
        yield from _notes_on_contradictions(corpora["train"], config)


def _find_marks(
    name: str, part: str, blocks: Sequence[Sentences], pair: Languages, config: CorpusConfig
) -> Iterator[Finding]:
    """Find each kind of mark on each side; markup, on any side of a pair."""
    kinds = [(detector, (side,)) for detector in (*PROCESSED, *DAMAGED) for side in (0, 1)]
    for detector, sides in [*kinds, *((detector, (0, 1)) for detector in IN_MARKUP)]:
        tally, num_relevant, is_relevant = Tally(), 0, detector.is_relevant
        for block in blocks:
            texts = [block.sides[side] for side in sides]
            masks = [detector.mark(text, pair[side]) for text, side in zip(texts, sides, strict=True)]
            num_relevant += len(texts[0]) if is_relevant is None else int(is_relevant(texts[0], pair[sides[0]]).sum())
            marked_texts = pc.if_else(pa.array(masks[0]), texts[0], texts[-1])
            tally.add(part, block.numbers, marked_texts, np.logical_or.reduce(masks))
        level = detector.level(tally.num, num_relevant, sum(len(block.numbers) for block in blocks))
        if level is not None:
            noun = "pairs" if len(sides) > 1 else f"{SIDES[sides[0]]} sentences"
            counts = f"{tally.num:,} of {num_relevant:,} {noun} ({tally.num / num_relevant:.1%})"
            text = f"{counts} have {detector.name}, {tally.shown(name, config)}"
            kind: Kind = "segmented" if detector.is_segmentation else "processed" if detector in PROCESSED else "text"
            yield Finding(name, part, tally.rows[0][1], tally.last, text, kind, is_note=level == "note")


@dataclass(frozen=True)
class Contradictions:
    """Counts of the sources of `train`, with tags, and of their targets. Case and punctuation make no difference."""

    num_sources: int = 0
    num_contradictory: int = 0
    """Number of sources with several different targets."""
    share_of_pairs: float = 0.0
    """Share of the different pairs that such a source is in, 0 to 1."""
    most_targets: int = 0
    """Largest number of different targets of one source."""
    example: str = ""
    """Source with the most different targets."""


def contradictions_in(train: Corpus, config: CorpusConfig) -> Contradictions:
    """Count sources of `train`, with the tags that tell them apart, that have several different targets."""
    sides = [
        (block.sides[0], pc.replace_substring_regex(pc.utf8_lower(block.sides[1]), r"[^\pL\pM\pN]+", ""))
        for number in config.once("train")
        for block in sentences_of(train, train.parts[number], ())
    ]
    if not sides:
        return Contradictions()
    sources, targets = map(pa.chunked_array, zip(*sides, strict=True))
    groups = pa.table({"source": sources, "target": targets}).group_by("source", use_threads=False)
    counted = groups.aggregate([("target", "count_distinct")])
    numbers = counted["target_count_distinct"].to_numpy()
    several, row = numbers > 1, int(numbers.argmax())
    share = float(numbers[several].sum() / max(1, numbers.sum()))
    return Contradictions(len(numbers), int(several.sum()), share, int(numbers[row]), counted["source"][row].as_py())


def _notes_on_contradictions(train: Corpus, config: CorpusConfig) -> Iterator[Finding]:
    """Note far more contradictions in `train` than text with alternative translations has, with their first places."""
    counts = contradictions_in(train, config)
    if counts.share_of_pairs < _MANY_PAIRS and counts.most_targets < _MANY_TARGETS:
        return
    tally = Tally()
    for part in (train.parts[number] for number in config.once("train")):
        for block in sentences_of(train, part, ()):
            mask = pc.equal(block.sides[0], counts.example).to_numpy(zero_copy_only=False)
            tally.add(part.name, block.numbers, block.sides[0], mask)
    text = (
        f"{counts.num_contradictory:,} of {counts.num_sources:,} sources have several different targets "
        f"({counts.share_of_pairs:.0%} of the pairs), up to {counts.most_targets:,}, {tally.shown('train', config)}; "
        "keep one target of each source"
    )
    yield Finding("train", "", 0, 0, text, "text", is_note=True)
