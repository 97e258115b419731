"""What is known to be wrong with the corpora of a run, from the cache if they were examined before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from mt_cli.config.sections import Config
from mt_cli.corpus import cleaning, languages, slips
from mt_cli.corpus.cache import Cache, digest_of_file, fingerprint
from mt_cli.corpus.cleaning import KEPT
from mt_cli.corpus.corpus import Corpus
from mt_cli.errors import CorpusError, InputError
from mt_cli.features.data_check import contradictions, damage, marks, problems, scripts, sentences, usage
from mt_cli.features.data_check.problems import Problem

_MODULES = (slips, cleaning, languages, problems, contradictions, damage, marks, scripts, sentences, usage)
"""The code that decides what is a problem."""
ACCEPT = "set corpus.accept_processed to true"
RAW_TEXT = "give the raw text (join subwords, detokenise, and remove tags, which the option `tag` of a corpus adds)"


def known_problems(corpora: Mapping[str, Corpus], config: Config, cache: Cache) -> list[Problem]:
    """Problems and notes on the text of corpora; a held-out share is in the text of `train`.

    Text that is processed already is a problem only in `train`, and not if the config accepts it. Segmented text is
    what a word-level tokenizer needs.
    """

    def examine(folder: Path) -> None:
        read = {name: corpus for name, corpus in corpora.items() if corpus.code == KEPT}
        found = [problem for name in read for problem in problems.find_problems(name, read[name], config.corpus)]
        found += damage.find_damage(read, config.corpus)
        (folder / "problems.json").write_text(json.dumps([asdict(each) for each in found]), encoding="utf-8")

    def load(folder: Path) -> list[Problem]:
        return [Problem(**each) for each in json.loads((folder / "problems.json").read_text(encoding="utf-8"))]

    paths = [*(Path(str(module.__file__)) for module in _MODULES), languages.TABLE]
    key = fingerprint(next(iter(corpora.values())).fingerprint, [digest_of_file(path) for path in paths])
    return [_as_note(each, config) for each in cache.entry(f"problems-{key}", examine, load)]


def refuse_problems(problems: Sequence[Problem]) -> None:
    """Raise InputError if training on the corpora would go wrong; the problems themselves have been reported."""
    reasons = []
    if any(problem.kind == "stretch" for problem in problems):
        reasons.append("the corpora have problems, see above; check these lines before training on them")
    if any(problem.is_refused for problem in problems):
        reasons.append(f"corpus.train: the text is processed already, see above; {RAW_TEXT}, or {ACCEPT}")
    if reasons:
        raise InputError("\n".join(reasons))


def refuse_processed(known: Sequence[Problem], way_out: str = ACCEPT) -> None:
    """Raise CorpusError if some of the problems are text that is processed already, with counts, places, and advice."""
    if lines := [problem.message for problem in known if problem.is_refused]:
        raise CorpusError(
            "\n  ".join(["corpus.train: the text is processed already:", *lines])
            + f"\nPlease {RAW_TEXT}, or {way_out}: the model then reads and writes text in this form."
        )


def _as_note(problem: Problem, config: Config) -> Problem:
    is_accepted = config.corpus.accept_processed or problem.corpus != "train"
    is_needed = problem.kind == "segmented" and config.tokenizer.algorithm == "word_level"
    if problem.kind == "stretch" or not (is_accepted or is_needed):
        return problem
    return replace(problem, is_note=True)
