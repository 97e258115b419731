"""Scores of a finished run on a test set, alone or against a baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.sections import Config
from mt_cli.corpus.rows import Languages, untagged
from mt_cli.data.evaluation_set import EvaluationSet
from mt_cli.evaluation import evaluate as scoring
from mt_cli.evaluation.baseline import notes_on_seen_pairs, read_translations, translate_as_baseline
from mt_cli.evaluation.results import notes_on_comparison, read_report
from mt_cli.evaluation.scores import Scorer, scorer_of
from mt_cli.features.comet import comet_score, load_comet
from mt_cli.machine.console import say
from mt_cli.machine.storage import real_path
from mt_cli.translation.translator import Translator


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
        """Display name."""
        return " + ".join(real_path(path).name for path in self.paths)

    def hypotheses_path(self, test_set: EvaluationSet) -> Path | None:
        """File in the run directory for the translations of a test set; None if there is not one run."""
        if self.config is None or len(self.paths) > 1:
            return None
        name = f"{test_set.name}.{self.checkpoint}" if self.checkpoint else test_set.name
        return self.paths[0] / "hypotheses" / f"{name}.txt"


def evaluate_system(
    system: System,
    test_set: EvaluationSet,
    scorer: Scorer,
    against: Path | None,
    load: Callable[[Path], Translator],
    comet: str | None,
) -> scoring.SplitScores:
    """Score the translations of a test set; print notes and, for a single run, write the translations into it.

    `against` is the baseline: a run, which `load` loads, or a file of translations. `comet` is the name of a model.
    """
    path, translator, pairs = system.paths[0], system.translator, test_set.pairs
    baseline_run = against if against and against.is_dir() else None
    plain = [(untagged(source, translator.tags), target) for source, target in pairs]
    notes = [*notes_on_seen_pairs(system.paths, baseline_run, plain), test_set.note_on_changed_text(path)]
    if system.config is not None:
        notes.append(scoring.note_on_spelling(system.config.tokenizer, [target for _, target in pairs]))
    for note in filter(None, notes):
        say(f"note: {note}")
    model = load_comet(comet) if comet else None
    languages, skipped = test_set.languages, test_set.skipped
    scores, hypotheses = scoring.evaluate(translator, pairs, test_set.name, scorer, languages, skipped, **system.search)
    scores.run = system.name
    if system.checkpoint:
        scores.checkpoint = system.checkpoint
    if model is not None:
        scores.comet = comet_score(model, pairs, hypotheses)
    if against is not None:
        scores.against = _compare(system, test_set, scorer, hypotheses, against, load)
    written = system.hypotheses_path(test_set)
    if written is not None and against is not None and real_path(against) == real_path(written):
        say(f"note: the new translations are not kept, because {written} is the baseline")
    elif written is not None:
        scoring.write_hypotheses(written, hypotheses)
    return scores


def _compare(
    system: System,
    test_set: EvaluationSet,
    scorer: Scorer,
    hypotheses: Sequence[str],
    against: Path,
    load: Callable[[Path], Translator],
) -> scoring.Baseline:
    """Scores of the baseline, with p-values of the differences."""
    sources, references = map(list, zip(*test_set.pairs, strict=True))
    reports = []
    if against.is_dir():
        languages = test_set.languages or [system.languages] * len(sources)
        texts = translate_as_baseline(against, load, sources, languages, system.translator.tags, system.search)
        reports = [read_report(RunDirectory(path)) for path in (*system.paths, against)]
    else:
        texts = read_translations(against, len(sources), test_set.skipped)
    scores = scoring.compare(str(against), scorer, hypotheses, texts, references, test_set.languages)
    scores.notes += notes_on_comparison(reports)
    return scores


def scorer_for(config: Config | None, name: str, language: str, is_chosen: bool, bleu_tokenizer: str | None) -> Scorer:
    """Scorer for a corpus of a config; for `language` instead if `is_chosen`, or without a config."""
    if config is None:
        return Scorer.of(language, bleu_tokenizer or "auto")
    scorer = scorer_of(config, name, bleu_tokenizer)
    return scorer.for_language(language) if is_chosen else scorer
