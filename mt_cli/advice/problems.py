"""Problems of the corpora of a run, from the cache if they were examined before.

These are slipped lines, lines in another language, and text that other programs have processed or that is damaged.
Nothing is changed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mt_cli.advice.findings import Finding, Kind, shorten, spread_blocks
from mt_cli.advice.marks import DAMAGED, PROCESSED, Detector
from mt_cli.advice.stretches import find_stretches
from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sections import Config
from mt_cli.corpus import cleaning, languages, misalignment
from mt_cli.corpus.cache import Cache, digest_of_file, fingerprint
from mt_cli.corpus.cleaning import HELD_OUT, KEPT
from mt_cli.corpus.corpus import Corpus, SourceRows
from mt_cli.corpus.sources import places_in
from mt_cli.data.encode import SIDES
from mt_cli.errors import CorpusError, InputError

_CODE = [
    *Path(__file__).parent.glob("*.py"),
    *(Path(str(module.__file__)) for module in (cleaning, languages, misalignment)),
]
"""Files with the code that finds problems; cached results depend on them."""
_MAX_BLOCKS, _NUM_PLACES = 20, 3
_Block = tuple[pa.Int64Array, pa.StringArray, pa.StringArray]
"""Numbers of lines, sources and targets."""
_ACCEPT = "set corpus.accept_processed to true"
_RAW_TEXT = "give the raw text (join subwords, detokenise, and remove tags, which the option `tag` of a corpus adds)"


def find_problems(corpora: Mapping[str, Corpus], config: Config, cache: Cache) -> list[Finding]:
    """Problems and notes on the text of corpora; a held-out share is in the text of `train`.

    Text that another program has processed is a problem only in `train`, and only if the config does not accept it.
    Segmented text is not a problem for a word-level tokenizer.
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
    """Raise InputError if problems forbid training; the problems themselves must have been printed before."""
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


class _Side(NamedTuple):
    """Sentences of one side of a source of a corpus, in blocks with the numbers of their lines."""

    corpus: str
    part: str
    side: str
    language: str
    blocks: Sequence[tuple[pa.Int64Array, pa.StringArray]]


def find_damage(corpora: Mapping[str, Corpus], config: CorpusConfig) -> Iterator[Finding]:
    """Find processed and damaged text in the kept sentences of corpora."""
    for name, corpus in corpora.items():
        for number in config.once(name):
            part = corpus.parts[number]
            blocks = list(_blocks(corpus, part, config.tags))
            for index, language in enumerate(config.languages_of(name)[number]):
                sentences = [(numbers, sides[index]) for numbers, *sides in blocks]
                side = _Side(name, part.name, SIDES[index], language, sentences)
                findings = (_find_marks(detector, side, config) for detector in (*PROCESSED, *DAMAGED))
                yield from filter(None, findings)


def _blocks(corpus: Corpus, part: SourceRows, tags: Sequence[str]) -> Iterator[_Block]:
    """Kept and held-out pairs of a source without these tags, in at most 20 blocks evenly spread over it."""
    mask = np.zeros(len(corpus.statuses), dtype=bool)
    for rows in spread_blocks(part, _MAX_BLOCKS):
        mask[rows] = True
    mask &= np.isin(corpus.statuses, (KEPT, HELD_OUT))
    for block in corpus.blocks(mask) if mask.any() else ():
        numbers, source, target = block.columns
        if tags:
            source = pc.replace_substring_regex(source, rf"^(?:(?:{'|'.join(map(re.escape, tags))}) )+", "")
        yield numbers, source, target


def _find_marks(detector: Detector, side: _Side, config: CorpusConfig) -> Finding | None:
    """Finding with counts, an example and the first places of a kind of mark; None if it is too rare."""
    masks = [detector.mark(texts, side.language) for _, texts in side.blocks]
    blocks = [(*block, mask) for block, mask in zip(side.blocks, masks, strict=True) if mask.any()]
    numbers = [number for block, _, mask in blocks for number in block.filter(pa.array(mask)).to_pylist()]
    num_all = num_relevant = sum(map(len, masks))
    if detector.is_relevant is not None:
        num_relevant = sum(int(detector.is_relevant(texts, side.language).sum()) for _, texts in side.blocks)
    level = detector.level(len(numbers), num_relevant, num_all)
    if level is None:
        return None
    _, texts, mask = blocks[0]
    example = shorten(texts[int(mask.argmax())].as_py(), 80)
    rows = [(side.part, number) for number in numbers[:_NUM_PLACES]]
    places = places_in(config, side.corpus, rows)
    text = (
        f"{len(numbers):,} of {num_relevant:,} {side.side} sentences ({len(numbers) / num_relevant:.1%}) have "
        f"{detector.name}, as in `{example}` ({', '.join(places[row] for row in rows)})"
    )
    kind: Kind = "segmented" if detector.is_segmentation else "processed" if detector in PROCESSED else "text"
    return Finding(side.corpus, side.part, numbers[0], numbers[-1], text, kind, is_note=level == "note")
