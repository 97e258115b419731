"""Pairs to score, from a corpus of a config or from two files."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mt_cli.checkpoint.directory import RunDirectory, is_imported
from mt_cli.config.sections import Config
from mt_cli.config.tags import Tagging
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.plain_text import input_lines
from mt_cli.corpus.reading import read_corpora
from mt_cli.corpus.rows import BlankRow, Languages, Pair, tagged_text
from mt_cli.data.prepare import fingerprints_of, read
from mt_cli.errors import InputError
from mt_cli.runtime.console import say

_FILES_KEY = "--source and --reference"


@dataclass(frozen=True)
class EvaluationSet:
    """Pairs to score, with their languages."""

    name: str
    pairs: Sequence[Pair]
    languages: Sequence[Languages] = ()
    """Direction of each pair; empty for pairs in files."""
    skipped: Sequence[BlankRow] = ()
    """Rows that are not scored, because a side is blank."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints of all corpora of the run, if the pairs are held out from `train`."""

    def into(self, target: str) -> EvaluationSet:
        """Only the pairs into a target language, with the language in the name; pairs from files stay as they are."""
        if not self.languages:
            return self
        rows = [row for row, languages in enumerate(self.languages) if languages[1] == target]
        if not rows:
            targets = ", ".join(dict.fromkeys(target for _, target in self.languages))
            raise InputError(f"--to {target}: {self.name} has no pairs into this language, only into {targets}")
        skipped = [
            replace(row, num_before=bisect_left(rows, row.num_before))
            for row in self.skipped
            if row.languages is None or row.languages[1] == target
        ]
        pairs, languages = ([values[row] for row in rows] for values in (self.pairs, self.languages))
        return replace(self, name=f"{self.name}.{target}", pairs=pairs, languages=languages, skipped=skipped)

    def tagged(self, tagging: Tagging, tag: str | None) -> EvaluationSet:
        """Copy with a tag before the sources; raises InputError if the model needs a tag and none is chosen."""
        return replace(self, pairs=[(tagged_text(source, tagging, tag), target) for source, target in self.pairs])

    def note_on_changed_text(self, run: Path) -> str | None:
        """Note if the pairs are held out from a text that has changed since the run was trained."""
        state = RunDirectory(run).best_state() if self.fingerprints else None
        before = {
            key: value for key, value in (state.fingerprints if state else {}).items() if key.startswith("corpus.")
        }
        if not before or before == self.fingerprints:
            return None
        return (
            "corpus.train has changed since this run was trained, so other pairs may be held out for valid; for scores "
            "that can be compared, name a test set with --source and --reference"
        )


def read_split(config: Config, split: str | None, cache: Cache) -> EvaluationSet:
    """Read the corpus of a config with the name `split`; None means `test`, or `valid` if there is no `test`."""
    if is_imported(config):
        raise InputError(f"{config.name} was imported, so its corpora are not known; mt evaluate --source --reference")
    corpus = config.corpus
    sets = {"valid": corpus.valid, "test": corpus.test, **corpus.extra_tests}
    split = split or ("valid" if corpus.test is None else "test")
    if sets.get(split) is None:
        names = ", ".join(name for name, value in sets.items() if value is not None)
        raise InputError(f"--split {split}: this run's config has no such corpus, only {names}")
    fingerprints = dict[str, str]()
    if split == "valid" and corpus.held_out(config.training.seed):
        corpora = read(config, cache)
        pairs, fingerprints = corpora[split], fingerprints_of(corpora, config)
    else:
        with TemporaryDirectory(prefix="mt-") as folder:  # The files stay open.
            pairs = read_corpora(corpus, config.training.seed, Cache(Path(folder)), only=split)[split]
        for note in dict.fromkeys(note for part in pairs.parts for note in part.notes):
            say(f"note: {note}")
    return EvaluationSet(split, pairs.pairs, pairs.languages, pairs.blank_rows(), fingerprints)


def read_files(source: Path, reference: Path, as_lines: bool) -> EvaluationSet:
    """Pairs of two files or pipes, of which line N of one translates line N of the other."""
    sides = [list(input_lines(path, as_lines)) for path in (source, reference)]  # A pipe can be read only once.
    if len(sides[0]) != len(sides[1]):
        raise InputError(
            f"{_FILES_KEY}: {len(sides[0]):,} lines and {len(sides[1]):,}; line N of one translates line N of the other"
        )
    pairs, skipped = list[Pair](), list[BlankRow]()
    for number, texts in enumerate(zip(*sides, strict=True), start=1):
        first, second = (" ".join(text.split()) for text in texts)
        if first and second:
            pairs.append((first, second))
        else:
            status = "blank_target" if first else "blank_source" if second else "blank_pair"
            skipped.append(BlankRow(len(pairs), number, status))
    if not pairs:
        raise InputError(f"{_FILES_KEY}: no line has text on both sides")
    return EvaluationSet("files", pairs, (), skipped)
