"""Clean copies of the corpora of a config: bad lines dropped, slipped lines moved beside their partners."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mt_cli.advice.problems import Finding, spans_in
from mt_cli.config.loading import parse_config
from mt_cli.config.sections import Config
from mt_cli.config.sources import TextSource
from mt_cli.config.writing import to_yaml
from mt_cli.corpus.cleaning import HELD_OUT, KEPT, STATUS_NAMES
from mt_cli.corpus.corpus import ROWS_PER_BLOCK
from mt_cli.corpus.rows import Languages, Pair, Row, untagged
from mt_cli.data.prepare import Data
from mt_cli.errors import InputError
from mt_cli.runtime.files import refusal, writing

_ROUNDS_OF_REPAIR, _MAX_ROUNDS = 2, 6
_MOVED, _EXCHANGED = "moved beside their partners", "with their sides exchanged"
_ALONE, _UNCLEAR, _BLANK = "without a partner", "in spans that do not fit", "with a blank side"
_OPTIONS = {*TextSource.model_fields} - {"reverse", "streaming"}
"""Options that a copy has in common with its source."""
Check = Callable[[Config], tuple[Data, Sequence[Finding]]]
"""Function that reads the corpora of a config and finds their problems."""


@dataclass
class CleanCopy:
    """Clean copy of one source of a corpus."""

    corpus: str
    index: int
    """Index of the source in its corpus."""
    files: tuple[Path, Path]
    """Source and target sentences."""
    name: str = ""
    num_read: int = 0
    num_written: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Number of lines by what was done to them."""

    def describe(self) -> Iterator[str]:
        first, second = self.files
        yield f"{self.corpus}: {self.name}: {self.num_written:,} of {self.num_read:,} pairs are in {first} and {second}"
        for change in (_MOVED, _EXCHANGED):
            if number := self.counts[change]:
                yield f"  {number:,} pairs {change}"
        dropped = (f"{count:,} {name}" for name, count in self.counts.items() if name not in (_MOVED, _EXCHANGED))
        yield f"  dropped: {', '.join(dropped) or 'none'}"


def write_clean(
    config: Config, data: Data, problems: Sequence[Finding], check: Check, folder: Path
) -> tuple[list[CleanCopy], Path, Sequence[Finding]]:
    """Write two files for each source of `train` and of corpora with spans of bad lines, and a config with these files.

    Line N of one file translates line N of the other. The files are checked again until nothing is left to drop or to
    move. Returns the copies, the config and the remaining problems. Raises InputError if `train` is a stream, a source
    has no good line, or the folder cannot be made.
    """
    if config.corpus.is_streaming:
        raise InputError("--write-clean: a stream is never read as a whole; set `streaming: false`")
    names = {"train", *(problem.corpus for problem in problems if problem.kind == "stretch")}
    copies = [copy for name in data.corpora if name in names for copy in _copies_of(name, config, folder)]
    with ExitStack() as removal:
        try:
            folder.mkdir()
        except OSError as error:
            raise refusal(folder, error) from None
        removal.callback(shutil.rmtree, folder)
        for number in range(_MAX_ROUNDS):
            can_move = number < _ROUNDS_OF_REPAIR
            changes = [_write(copy, data, config, problems, can_move) for copy in copies]
            if number and not any(changes):
                break
            config = _config_of(copies, config)
            data, problems = check(config)
        path = folder / f"{config.name}.yaml"
        path.write_text(to_yaml(config.model_dump(mode="json", exclude_unset=True)), encoding="utf-8")
        removal.pop_all()
    return copies, path, problems


def _copies_of(name: str, config: Config, folder: Path) -> Iterator[CleanCopy]:
    indices, languages = config.corpus.once(name), config.corpus.languages_of(name)
    for index in indices:
        codes = [re.sub(r"[^\w-]+", "_", code) for code in languages[index]]
        ends = codes if codes[0] != codes[1] else ["source", "target"]
        stem = f"{name}.{index + 1}" if len(indices) > 1 else name
        yield CleanCopy(name, index, (folder / f"{stem}.{ends[0]}", folder / f"{stem}.{ends[1]}"))


def _config_of(copies: Sequence[CleanCopy], config: Config) -> Config:
    """Config with the copies in place of their sources, also of sources that repeat one with its sides exchanged."""
    tree = config.model_dump(mode="json", exclude_unset=True)
    for name in {copy.corpus for copy in copies}:
        sources, of_corpus = config.corpus.groups[name], [copy for copy in copies if copy.corpus == name]
        texts = [source.model_dump(exclude={*TextSource.model_fields}) for source in sources]
        trees = []
        for index, (source, text) in enumerate(zip(sources, texts, strict=True)):
            equal = [copy for copy in of_corpus if texts[copy.index] == text]
            copy = next((copy for copy in equal if copy.index == index), equal[0])
            is_exchanged = source.reverse != sources[copy.index].reverse
            options = source.model_dump(mode="json", exclude_unset=True, include=_OPTIONS)
            reverse = {"reverse": True} if is_exchanged else {}
            trees.append({"files": [*map(str, copy.files)], **options, **reverse})
        (tree["corpus"]["extra_tests"] if name in config.corpus.extra_tests else tree["corpus"])[name] = trees
    return parse_config(tree, "--write-clean")


def _write(copy: CleanCopy, data: Data, config: Config, problems: Sequence[Finding], can_move: bool) -> bool:
    """Write the good pairs of a source, and count the others; True if the files differ from their source."""
    corpus = data.corpora[copy.corpus]
    part = corpus.parts[copy.index]
    if not copy.num_read:
        copy.name, copy.num_read = part.name, part.num_rows
    statuses = data.statuses("train") if copy.corpus == "train" else corpus.statuses
    is_wanted = np.zeros(len(statuses), dtype=bool)
    is_wanted[part.span] = True
    places = {(problem.corpus, problem.part) for problem in problems if problem.kind == "stretch"}
    has_spans = (copy.corpus, part.name) in places
    if not has_spans:
        is_wanted &= np.isin(statuses, (KEPT, HELD_OUT))
    tags = config.corpus.tags
    rows = ((number, untagged(source, tags), target) for number, source, target in corpus.rows(is_wanted))
    pairs: Iterable[Pair]
    if has_spans:
        pairs, counts = repaired(list(rows), config.corpus.languages_of(copy.corpus)[copy.index], can_move)
    else:
        pairs = (row[1:] for row in rows)
        excluded = statuses[part.span][~is_wanted[part.span]]
        counts = Counter(STATUS_NAMES[code] for code in excluded.tolist())
    copy.counts += counts
    with ExitStack() as files, writing(copy.files[0]):
        sides = [files.enter_context(path.open("w", encoding="utf-8", newline="\n")) for path in copy.files]
        copy.num_written = 0
        for copy.num_written, pair in enumerate(pairs, start=1):
            for file, text in zip(sides, pair, strict=True):
                file.write(f"{text}\n")
    if not copy.num_written:
        raise InputError(f"--write-clean: {copy.corpus}: {copy.name} has no good line")
    return bool(counts)


def repaired(rows: Sequence[Row], languages: Languages, can_move: bool = True) -> tuple[list[Pair], Counter[str]]:
    """Pairs of a source whose lines correspond, and the numbers of moved and of dropped lines.

    With `can_move`, lines of spans with a slip are moved, and swapped sides are exchanged. Other spans with a problem
    are dropped, and so are lines whose partner is missing or claimed twice.
    """
    texts = [row[1:] for row in rows]  # With blank lines, because a slip counts them.
    own = np.arange(len(texts))
    partners, (is_unclear, is_exchanged, is_alone) = own.copy(), np.zeros((3, len(texts)), bool)
    for start in range(0, len(texts), ROWS_PER_BLOCK):
        block = [(start + place, *row) for place, row in enumerate(texts[start : start + ROWS_PER_BLOCK])]
        for span in spans_in(block, languages):
            lines = slice(span.first, span.last + 1)
            is_alone[list(span.lines_alone)] = True
            if can_move and span.slip is not None:
                partners[lines] = own[lines] + span.slip
            elif can_move and span.is_swapped:
                is_exchanged[lines] = True
                texts[lines] = [(target, source) for source, target in texts[lines]]
            else:
                is_unclear[lines] = True
    has_text = [np.array([bool(row[side]) for row in texts], bool) for side in (0, 1)]
    is_moved = partners != own
    is_inside = ~is_unclear & ~is_alone & (partners >= 0) & (partners < len(texts))
    has_partner = is_inside & has_text[0] & has_text[1][partners % len(texts)]
    num_claims = np.bincount(partners[has_partner], minlength=len(texts))
    num_moved_claims = np.bincount(partners[has_partner & is_moved], minlength=len(texts))
    # A line of a span with a slip has better evidence than the straight line that claims the same partner.
    claims = np.where(is_moved, num_moved_claims[partners % len(texts)], num_claims[partners % len(texts)])
    is_kept = has_partner & (claims == 1)
    pairs = [(texts[line][0], texts[partners[line]][1]) for line in np.flatnonzero(is_kept).tolist()]
    kinds = {
        _UNCLEAR: is_unclear,
        _ALONE: has_partner & ~is_kept | ~is_unclear & ~is_inside,
        _BLANK: is_inside & ~has_partner,
        _MOVED: is_kept & is_moved,
        _EXCHANGED: is_kept & is_exchanged,
    }
    return pairs, +Counter({name: int(np.count_nonzero(lines)) for name, lines in kinds.items()})
