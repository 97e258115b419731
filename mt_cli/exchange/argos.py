"""Packages of Argos Translate, which LibreTranslate serves, too: a CTranslate2 model, a SentencePiece model, metadata.

Argos Translate encodes the source and decodes the target with one SentencePiece model. The one of the source does both,
because pieces that a SentencePiece model lacks are decoded as they are written.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mt_cli.checkpoint.trained import TrainedRun
from mt_cli.config.corpora import CorpusConfig
from mt_cli.corpus.languages import language_name, parsed, primary, script_of
from mt_cli.corpus.rows import Languages, untagged
from mt_cli.corpus.varieties import is_same_variety, is_variety_of
from mt_cli.errors import InputError, MtError
from mt_cli.evaluation.results import RunSummary
from mt_cli.evaluation.scores import METRICS
from mt_cli.exchange.card import render
from mt_cli.exchange.comparison import Agreement
from mt_cli.exchange.ctranslate2 import write_model
from mt_cli.exchange.sentence_splitter import sentence_splitter
from mt_cli.exchange.sentencepiece import model_file, splits_alike
from mt_cli.runtime.files import json_text, write_atomically, write_text
from mt_cli.tokenizer.special_tokens import ABSENT

SUFFIX = ".argosmodel"
INSTALL = "python -c \"from argostranslate import package; package.install_from_path('{path}')\""
"""Command that installs a package from a file: `argospm install` knows only names of the index of Argos Translate."""
_CODES = {"zh-Hant": "zt", "pt-BR": "pb", "no": "nb"}
"""Codes of Argos Translate that differ from the language alone."""


@dataclass(frozen=True)
class Direction:
    """A direction in which a model translates."""

    languages: Languages
    tag: str | None

    def __str__(self) -> str:
        return "-".join(self.languages) + (f" ({self.tag})" if self.tag else "")


@dataclass(frozen=True)
class Package:
    """Choices of the user for a package."""

    direction: Direction
    version: str = "1.0"
    license_name: str | None = None

    @property
    def codes(self) -> tuple[str, str]:
        source, target = map(_argos_code, self.direction.languages)
        return source, target

    @property
    def name(self) -> str:
        return f"translate-{'_'.join(self.codes)}-{self.version.replace('.', '_')}"

    def metadata(self) -> dict[str, object]:
        names = map(language_name, self.direction.languages)
        return {
            "package_version": self.version,
            **dict(zip(("from_code", "to_code"), self.codes, strict=True)),
            **dict(zip(("from_name", "to_name"), names, strict=True)),
            "license": self.license_name or "unknown",
        }


def _argos_code(language: str) -> str:
    tag, code = parsed(language), primary(language)
    names = (f"{code}-{script_of(language)}", f"{code}-{tag.territory}" if tag else code, code)
    return next((_CODES[name] for name in names if name in _CODES), code)


def _is_exact(wanted: str | None, language: str) -> bool:
    return wanted is None or is_same_variety(wanted, language)


def _is_meant(wanted: str | None, language: str) -> bool:
    """True if a code stands for a language: `zh` for `zh-Hans`, but no variety for another one."""
    return wanted is None or wanted == primary(language) or is_variety_of(language, wanted)


def choose_direction(corpus: CorpusConfig, source: str | None, target: str | None) -> Direction:
    """Direction of a model, by its languages, or by its tag as the `target`.

    Raises InputError unless exactly one is meant. Without any, it is the direction of the default tag.
    """
    tagging = corpus.tagging
    tag, target = (target, None) if target in tagging.tags else (None, target)
    directions: dict[Direction, None] = {}
    for part in corpus.train:
        languages = part.languages or (corpus.source, tagging.target_of(part.tag or "") or corpus.target)
        directions[Direction(languages, part.tag)] = None
    wanted = source, target
    matches = [
        direction
        for direction in directions
        if all(map(_is_meant, wanted, direction.languages)) and tag in (None, direction.tag)
    ]
    matches = [match for match in matches if all(map(_is_exact, wanted, match.languages))] or matches
    if len(matches) > 1 and not any((source, target, tag)):
        matches = [match for match in matches if match.tag == tagging.default] or matches
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(map(str, matches or directions))
    problem = "this model has several" if matches else "this model does not have it"
    raise InputError(f"--format argos: a package has one direction, and {problem}: {listed}; use --from or --to")


def export_argos(
    run: TrainedRun, summary: RunSummary, output: Path, package: Package, quantization: str, sentences: Sequence[str]
) -> Agreement:
    """Write a package as the new file `output`, and compare its model with the run on the sentences.

    Raises InputError if `output` exists or has another suffix, or a library is missing. Raises MtError if the model
    disagrees or the file cannot be written. Nothing is left then.
    """
    if output.suffix != SUFFIX:
        raise InputError(f"{output}: give a file that ends in {SUFFIX}")
    if output.exists() or output.is_symlink():
        raise InputError(f"{output}: exists already; give a new file")
    tokenizer = run.tokenizers[0]  # SentencePiece gets the text as it is, with accents apart and soft hyphens.
    if not splits_alike(tokenizer, [tokenizer.cleaned(untagged(text, run.config.corpus.tags)) for text in sentences]):
        raise MtError(f"{output}: the exported tokenizer splits text differently; nothing was exported")
    agreements = []

    def write(path: str) -> None:
        with TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
            root = Path(folder)
            (root / "model").mkdir()
            agreements.append(write_model(run, root / "model", quantization, sentences, output))
            _adapt(root / "model", package.direction.tag)
            (root / "sentencepiece.model").write_bytes(model_file(tokenizer))
            (root / "minisbd").mkdir()
            (root / "minisbd" / "rules.onnx").write_bytes(sentence_splitter())
            write_text(root / "metadata.json", json_text(package.metadata()))
            (root / "README.md").write_text(_readme(summary, package), encoding="utf-8")
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in sorted(root.rglob("*")):
                    archive.write(file, Path(package.name) / file.relative_to(root))

    write_atomically(output, write)
    return agreements[0]


def _adapt(folder: Path, tag: str | None) -> None:
    """Change a CTranslate2 model for other programs: pieces by their own names, and the tag before each source."""
    for path in folder.glob("*_vocabulary.json"):
        entries = json.loads(path.read_text(encoding="utf-8"))
        write_text(path, json_text([entry.removeprefix(ABSENT) for entry in entries]))
    if tag is not None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        write_text(folder / "config.json", json_text(config | {"add_source_bos": True, "bos_token": tag}))


def _readme(summary: RunSummary, package: Package) -> str:
    names = [language_name(language) for language in package.direction.languages]
    report = summary.report
    return render(
        "argos.md",
        run=summary,
        package=package,
        install=INSTALL.format(path=f"{package.name}{SUFFIX}"),
        names=names,
        report=report,
        tests=[report, *report.extra_tests.values()] if report else [],
        metrics=METRICS,
    )
