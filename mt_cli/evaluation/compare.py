"""Test sets, and scores of a finished run on them, alone or against a baseline."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from mt_cli.checkpoint.directory import RunDirectory, is_imported
from mt_cli.config.sections import Config, TokenizerConfig
from mt_cli.config.tags import Tagging
from mt_cli.corpus.cache import Cache
from mt_cli.corpus.plain_text import input_lines
from mt_cli.corpus.reading import read_corpora
from mt_cli.corpus.rows import BlankRow, Languages, Pair, tagged_text, untagged
from mt_cli.data.prepare import fingerprints_of, read
from mt_cli.errors import InputError
from mt_cli.evaluation.evaluate import Baseline, SplitScores, compare, evaluate, write_hypotheses
from mt_cli.evaluation.results import read_report
from mt_cli.evaluation.scores import Score, Scorer, TermScores, score_directions, scorer_of
from mt_cli.runtime.console import say
from mt_cli.runtime.files import real_path
from mt_cli.translation.translator import Translator

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


def read_split(directory: RunDirectory, config: Config, split: str | None, cache: Cache) -> EvaluationSet:
    """Read the corpus of a run and its config with the name `split`; None means `test`, or `valid` without a `test`.

    Prints a note if the pairs are held out from a text that has changed since the run was trained.
    """
    if is_imported(config):
        raise InputError(f"{config.name} was imported, so its corpora are not known; mt evaluate --source --reference")
    corpus = config.corpus
    sets = {"valid": corpus.valid, "test": corpus.test, **corpus.extra_tests}
    split = split or ("valid" if corpus.test is None else "test")
    if sets.get(split) is None:
        names = ", ".join(name for name, value in sets.items() if value is not None)
        raise InputError(f"--split {split}: this run's config has no such corpus, only {names}")
    if split == "valid" and corpus.held_out:
        corpora, state = read(config, cache), directory.best_state()
        pairs, known = corpora[split], state.fingerprints if state else {}
        if any(known.get(key, digest) != digest for key, digest in fingerprints_of(corpora, config).items()):
            say(
                "note: corpus.train has changed since this run was trained, so other pairs may be held out for valid; "
                "for scores that can be compared, name a test set with --source and --reference"
            )
    else:
        with TemporaryDirectory(prefix="mt-") as folder:  # The files stay open.
            pairs = read_corpora(corpus, Cache(Path(folder)), only=split)[split]
        for note in dict.fromkeys(note for part in pairs.parts for note in part.notes):
            say(f"note: {note}")
    return EvaluationSet(split, pairs.pairs, pairs.languages, pairs.blank_rows())


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


@dataclass(frozen=True)
class System:
    """Translator and its origin."""

    paths: Sequence[Path]
    """Run directories (several for an ensemble), or the folder of an exported model."""
    translator: Translator
    config: Config | None
    """Config of the first run; None for an exported model."""
    checkpoint: str | None
    search: Mapping[str, Any]
    """Options of the search, and the option `tag`."""
    languages: Languages
    """Default direction, for pairs without languages."""

    @property
    def name(self) -> str:
        return " + ".join(real_path(path).name for path in self.paths)


def evaluate_system(
    system: System,
    test_set: EvaluationSet,
    scorer: Scorer,
    against: Path | None,
    load: Callable[[Path], Translator],
    comet: Callable[[Sequence[Pair], Sequence[str]], Score] | None,
) -> SplitScores:
    """Score the translations of a test set; print notes and, for a single run, write the translations into it.

    `against` is the baseline: a run, which `load` loads, or a file of translations. `comet` computes one more score.
    """
    pairs, languages, skipped = test_set.pairs, test_set.languages, test_set.skipped
    scores, hypotheses = evaluate(system.translator, pairs, test_set.name, scorer, languages, skipped, **system.search)
    scores.run = system.name
    if system.checkpoint:
        scores.checkpoint = system.checkpoint
    if comet is not None:
        scores.comet = comet(pairs, hypotheses)
    if against is not None:
        sources, references = map(list, zip(*pairs, strict=True))
        if against.is_dir():
            baseline = _translate(against, load(against), sources, languages or [system.languages] * len(pairs), system)
        else:
            baseline = _read_translations(against, len(pairs), skipped)
        scores.against = compare(str(against), scorer, hypotheses, baseline, references, languages)
        if terms := system.search.get("terms"):
            scores.against.terms = TermScores.of(terms, pairs, baseline, system.translator.protection)
    if system.config is not None and len(system.paths) == 1:
        name = f"{test_set.name}.{system.checkpoint}" if system.checkpoint else test_set.name
        written = system.paths[0] / "hypotheses" / f"{name}.txt"
        if against is not None and real_path(against) == real_path(written):
            say(f"note: the new translations are not kept, because {written} is the baseline")
        else:
            write_hypotheses(written, hypotheses)
    return scores


def compare_finished(run: Path, other: Path, cache: Cache) -> Baseline:
    """Scores of another run, with the p-values of the differences, from the stored translations of both.

    Raises InputError if a run has not finished, the test sets differ, or the translations are not those of its report.
    """
    directory = RunDirectory(run)
    config = directory.config()
    test_set = read_split(directory, config, None, cache)
    scorer, stored = scorer_of(config, test_set.name), partial(Scorer.score, names=["chrf"])
    references = [target for _, target in test_set.pairs]
    systems = []
    for path in (run, other):
        report = read_report(RunDirectory(path))
        if report is None or report.split != test_set.name:
            raise InputError(f"{path}: has no scores on {test_set.name} of {run}")
        file = path / "hypotheses" / f"{test_set.name}.txt"
        systems.append(_read_translations(file, len(references), test_set.skipped))
        scores, _ = score_directions(scorer, test_set.languages, (systems[-1], references), stored)
        if "chrf" in report.scores and abs(scores["chrf"].score - report.scores["chrf"].score) > 0.01:
            raise InputError(f"{file}: is not what report.json has the scores of")
    return compare(str(other), scorer, systems[0], systems[1], references, test_set.languages)


def _read_translations(path: Path, num_pairs: int, skipped: Sequence[BlankRow]) -> list[str]:
    """Read the translations in a file; if the file has lines for rows that are not scored, skip these lines."""
    lines = list(input_lines(path, as_lines=True))
    if len(lines) == num_pairs + len(skipped):
        blank = {row.num_before + place for place, row in enumerate(skipped)}
        lines = [line for place, line in enumerate(lines) if place not in blank]
    if len(lines) != num_pairs:
        raise InputError(f"{path}: has {len(lines):,} lines for {num_pairs:,} sentences")
    return lines


def _translate(
    path: Path, baseline: Translator, sources: Sequence[str], languages: Sequence[Languages], system: System
) -> list[str]:
    """Translate with a baseline run; `languages` has the direction of each source.

    A source keeps its tag if the baseline knows it, too; terms are left out if the baseline does not take any. Raises
    InputError if the baseline does not translate in a direction.
    """
    has_targets = bool(baseline.tagging.targets)
    search = {key: value for key, value in system.search.items() if key != "terms" or baseline.takes_terms}
    unknown_tags = [tag for tag in system.translator.tags if tag not in baseline.tags]
    translations = [""] * len(sources)
    for direction in dict.fromkeys(languages):
        if not has_targets and direction != baseline.languages:
            names = [" to ".join(pair) for pair in (baseline.languages, direction)]
            raise InputError(
                f"--against {path}: translates {names[0]}, and this run {names[1]}; the languages must agree"
            )
        rows = [row for row, pair in enumerate(languages) if pair == direction]
        texts = [untagged(sources[row], unknown_tags) for row in rows]
        try:
            tag = baseline.target_tag(direction[1]) if has_targets else None
            translated = baseline.translate(texts, **{**search, "tag": tag})
        except InputError as error:
            raise InputError(f"--against {path}: {error}; --to compares one direction of this run") from None
        for row, text in zip(rows, translated, strict=True):
            translations[row] = text
    return translations


def scorer_for(
    config: Config | TokenizerConfig, name: str, language: str, is_chosen: bool, bleu_tokenizer: str | None
) -> Scorer:
    """Scorer for a corpus of a config; for `language` instead if `is_chosen`, or with the tokenizer of an export."""
    if isinstance(config, TokenizerConfig):
        scorer = Scorer.of(language, bleu_tokenizer or "auto")
        return replace(scorer, spelling=config.changes_of_spelling, cleans=True)
    scorer = scorer_of(config, name, bleu_tokenizer)
    return scorer.for_language(language) if is_chosen else scorer


def load_comet(name: str) -> Callable[[Sequence[Pair], Sequence[str]], Score]:
    """Score of a COMET model (Rei et al. 2020), by its name on the Hugging Face hub or its checkpoint file.

    Raises InputError if the package is not installed or the model is not available.
    """
    try:
        import comet
    except ImportError:
        raise InputError(
            "--comet: COMET is not installed; in the folder of mt, run pip install -e '.[comet]'"
        ) from None
    try:
        model = comet.load_from_checkpoint(name if Path(name).is_file() else comet.download_model(name))
    except Exception as error:  # Libraries for downloads and checkpoints raise errors of many types.
        raise InputError(
            f"--comet {name}: this model is not available ({type(error).__name__}); use a name on the Hugging Face "
            "hub, from which it is downloaded once, or the path of a checkpoint file"
        ) from None

    def score(pairs: Sequence[Pair], hypotheses: Sequence[str]) -> Score:
        both = zip(pairs, hypotheses, strict=True)
        rows = [{"src": source, "mt": hypothesis, "ref": target} for (source, target), hypothesis in both]
        prediction = model.predict(rows, batch_size=16, gpus=int(torch.cuda.is_available()))
        return Score(score=round(float(prediction.system_score), 4))

    return score
