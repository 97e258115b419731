"""Problems of the corpora of a run, from the cache if they were examined before."""

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
from mt_cli.features.data_check.damage import find_damage
from mt_cli.features.data_check.findings import Finding
from mt_cli.features.data_check.stretches import find_stretches

_CODE = [*Path(__file__).parent.glob("*.py"), *(Path(str(module.__file__)) for module in (cleaning, languages, slips))]
"""Files of the code that decides what is a problem."""
ACCEPT = "set corpus.accept_processed to true"
RAW_TEXT = "give the raw text (join subwords, detokenise, and remove tags, which the option `tag` of a corpus adds)"


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

    digests = [digest_of_file(path) for path in [*sorted(_CODE), languages.TABLE]]
    key = fingerprint(next(iter(corpora.values())).fingerprint, digests)
    return [_as_note(finding, config) for finding in cache.entry(f"problems-{key}", examine, load)]


def refuse_problems(problems: Sequence[Finding]) -> None:
    """Raise InputError if training on the corpora would go wrong; the problems themselves have been reported."""
    reasons = []
    if any(problem.kind == "stretch" for problem in problems):
        reasons.append("the corpora have problems, see above; check these lines before training on them")
    if any(problem.is_refused for problem in problems):
        reasons.append(f"corpus.train: the text is processed already, see above; {RAW_TEXT}, or {ACCEPT}")
    if reasons:
        raise InputError("\n".join(reasons))


def refuse_processed(problems: Sequence[Finding], way_out: str = ACCEPT) -> None:
    """Raise CorpusError if another program has processed the text, with counts, places, and advice."""
    if lines := [problem.message for problem in problems if problem.is_refused]:
        raise CorpusError(
            "\n  ".join(["corpus.train: the text is processed already:", *lines])
            + f"\nPlease {RAW_TEXT}, or {way_out}: the model then reads and writes text in this form."
        )


def _as_note(finding: Finding, config: Config) -> Finding:
    """Make a note of a finding that is no problem for this config."""
    is_accepted = config.corpus.accept_processed or finding.corpus != "train"
    is_needed = finding.kind == "segmented" and config.tokenizer.algorithm == "word_level"
    if finding.kind == "stretch" or not (is_accepted or is_needed):
        return finding
    return replace(finding, is_note=True)
