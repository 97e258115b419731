"""Models that a server has loaded: their directions, and how a request chooses one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.tags import Tagging, direction_of
from mt_cli.corpus.columns import is_header
from mt_cli.corpus.formats.table import names_in
from mt_cli.corpus.glossary import Glossary
from mt_cli.corpus.languages import language_in, language_name, primary, scripts_of
from mt_cli.errors import InputError
from mt_cli.evaluation.evaluate import SplitScores
from mt_cli.evaluation.results import RunSummary
from mt_cli.runtime.devices import keep_memory
from mt_cli.runtime.files import real_path
from mt_cli.serving.errors import RequestError
from mt_cli.translation.exported import DESCRIPTION
from mt_cli.translation.quality import read_quality
from mt_cli.translation.translator import Translator

_RIGHT_TO_LEFT = frozenset({"Adlam", "Arabic", "Hebrew", "Mandaic", "Nko", "Samaritan", "Syriac", "Thaana"})
AUTO = "auto"
"""Code of a source that is to be detected."""
CERTAIN = 0.5
"""Probability from which a detected language is believed, although it is perhaps not served."""
_PIVOT = "en"
"""Language that is preferred between two models."""


class Direction(NamedTuple):
    """Source and target language, by the codes that clients use."""

    source: str
    target: str


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model."""

    name: str
    engine: str
    translator: Translator
    directions: tuple[Direction, ...]
    """With the codes of the run."""
    tests: Sequence[SplitScores]
    """Scores on the test sets of the run; none before it is finished, and of an export."""
    updated_at: datetime
    """Time at which the weights were written."""


def _loaded(name: str, path: Path, engine: str, checkpoint: str | None, **options: Any) -> ServedModel:
    """Load a model; see `Translator.load`.

    OpenMP gives each thread that computes helpers of its own. If there are more helpers than cores, they sleep between
    operations, and a search takes three times as long. So only the thread of the scheduler may keep some, and models
    are loaded in threads that end.
    """
    with ThreadPoolExecutor(1) as loading:
        load = partial(Translator.load, path, engine=engine, checkpoint=checkpoint, **options)
        translator = loading.submit(load).result()
    translator = replace(translator, quality=read_quality(path, engine, checkpoint))
    keep_memory()
    run = RunSummary.read(path) if engine == "mt" else None
    pairs = _directions(translator, run.config.corpus if run else None)
    weights = RunDirectory(path).path_of(checkpoint) if run else path / DESCRIPTION
    updated_at = datetime.fromtimestamp(weights.stat().st_mtime, UTC)
    return ServedModel(name, engine, translator, pairs, run.report.tests if run and run.report else (), updated_at)


def tag_of_direction(tagging: Tagging, direction: Direction) -> str | None:
    """Tag that asks for a direction: one with both languages, or with the target; else the default tag."""
    for tag in tagging.tags:
        if direction_of(tag) == direction:
            return tag
    by_target = (tag for tag in tagging.tags if not direction_of(tag) and tagging.target_of(tag) == direction.target)
    return next(by_target, tagging.default)


def _directions(translator: Translator, corpus: CorpusConfig | None) -> tuple[Direction, ...]:
    """Directions that a model was trained in; of an export, which says less, those that its tags name."""
    tagging, (source, target) = translator.tagging, translator.languages
    if tagging.is_one_way:
        return (Direction(source, target),)
    pairs = [pair for tag in tagging.tags if (pair := direction_of(tag))]
    if corpus is not None:
        pairs += corpus.languages_of("train")
    elif not pairs:
        targets = tagging.targets or [target]
        pairs = [(source, language) if language != source else (target, language) for language in targets]
    return tuple(dict.fromkeys(Direction(*pair) for pair in pairs or [(source, target)]))


class Choice(NamedTuple):
    """A model and the direction that a request asks for, with the codes of the model."""

    model: ServedModel
    direction: Direction


class Route(NamedTuple):
    """Models that translate a text one after the other: one, two by way of a third language, or none."""

    direction: Direction
    """With codes for clients."""
    choices: tuple[Choice, ...]
    """Empty if the text is in the target language already."""
    pivot: str | None = None
    """Code for clients of the language between two models."""
    detected_share: float | None = None
    """Probability of the source language; None if it was not detected."""


@dataclass
class Models:
    """All models of a server."""

    models: tuple[ServedModel, ...]
    codes: dict[str, str] = field(init=False)
    """Code for clients by the code of a run: `en` for `eng_Latn`, unless two languages would have the same."""

    def __post_init__(self) -> None:
        self.codes = _client_codes(code for model in self.models for pair in model.directions for code in pair)

    @classmethod
    def load(cls, paths: Sequence[Path], engine: str = "mt", checkpoint: str | None = None, **options: Any) -> Models:
        """Load all models with options of `Translator.load`; a second one with the same name gets a number."""
        models: list[ServedModel] = []
        for path in paths:
            base, taken = real_path(path).name, {model.name for model in models}
            names = (base if number == 1 else f"{base}-{number}" for number in count(1))
            name = next(name for name in names if name not in taken)
            models.append(_loaded(name, path, engine, checkpoint, **options))
        return cls(tuple(models))

    def read_glossaries(self, paths: Sequence[Path]) -> dict[Direction, Glossary]:
        """Glossary of each direction, with the codes of runs, from the files that have its languages.

        Raises InputError if a file has no direction, or does not name its languages and there are several directions,
        or no model takes terms.
        """
        takers = [model for model in self.models if model.translator.takes_terms]
        directions = list(dict.fromkeys(pair for model in takers for pair in model.directions))
        if paths and not directions:
            raise InputError("--terms: no model has learned to use terms; train one with corpus.terms: true")
        by_direction: dict[Direction, list[Path]] = {}
        for path in paths:
            of_file = [pair for pair in directions if _has(path, pair)] if len(directions) > 1 else directions
            if not of_file:
                raise InputError(f"{path}: does not name two languages of a direction of this server in its first row")
            for pair in of_file:
                by_direction.setdefault(pair, []).append(path)
        return {pair: Glossary.read(of_pair, pair) for pair, of_pair in by_direction.items()}

    @property
    def directions(self) -> list[Direction]:
        return list(dict.fromkeys(pair for model in self.models for pair in self.directions_of(model)))

    @property
    def targets(self) -> dict[str, list[str]]:
        """Targets of each language, also those by way of a third language, with the codes for clients."""
        direct: dict[str, list[str]] = {code: [] for code in self.languages()}
        for source, target in self.directions:
            direct[source].append(target)
        reached = {code: chain(targets, *(direct[pivot] for pivot in targets)) for code, targets in direct.items()}
        return {code: [target for target in dict.fromkeys(reached[code]) if target != code] for code in direct}

    def for_clients(self, direction: Direction) -> Direction:
        return Direction(*(self.codes[code] for code in direction))

    def directions_of(self, model: ServedModel) -> list[Direction]:
        return list(dict.fromkeys(map(self.for_clients, model.directions)))

    def languages(self) -> list[str]:
        """Codes for clients, sorted by the names of the languages."""
        codes = dict.fromkeys(code for pair in self.directions for code in pair)
        return sorted(codes, key=lambda code: (language_name(code), code))

    def choose(self, source: str | None, target: str | None, name: str | None = None) -> list[Choice]:
        """Models and directions that a request can mean, the best match first; `source` may be None for any.

        Codes match exactly, or else by their language alone: `pt-BR` finds `pt`. Without `source`, the best target of
        each source is kept. Raises RequestError if none match.
        """
        if name is not None and name not in {model.name for model in self.models}:
            raise RequestError(f"model {name!r:.60} is not served; there are {', '.join(m.name for m in self.models)}")
        choices = [
            Choice(model, pair) for model in self.models if name in (None, model.name) for pair in model.directions
        ]
        by_source: dict[str, list[tuple[int, int, Choice]]] = {}
        for choice in choices:
            matches = [
                _matches(code, known, self.codes)
                for code, known in zip((source, target), choice.direction, strict=True)
            ]
            if all(matches):
                key = choice.direction.source if source is None else ""
                by_source.setdefault(key, []).append((sum(matches), matches[1], choice))
        if not by_source:
            raise RequestError(self._refusal(choices, source, target))
        best = {key: max(row[:2] for row in rows) for key, rows in by_source.items()}
        return [row[2] for key, rows in by_source.items() for row in rows if row[:2] == best[key]]

    def routes(self, source: str, target: str | None, name: str | None = None) -> list[Route]:
        """Ways from a language to a target, the best match first; one by way of a third language if no model has both.

        Raises RequestError if there is none.
        """
        try:
            choices = self.choose(source, target, name)
            return [Route(self.for_clients(choice.direction), (choice,)) for choice in choices]
        except RequestError:
            if target is None or name is not None or primary(source) == primary(target):
                raise
            for pivot in sorted(self.languages(), key=lambda code: code != _PIVOT):
                with suppress(RequestError):
                    hops = self.choose(source, pivot)[0], self.choose(pivot, target)[0]
                    ends = Direction(hops[0].direction.source, hops[1].direction.target)
                    return [Route(self.for_clients(ends), hops, pivot)]
            raise

    def _refusal(self, choices: Sequence[Choice], source: str | None, target: str | None) -> str:
        has_target = any(_matches(target, choice.direction.target, self.codes) for choice in choices)
        code = (source if has_target else target) or ""
        if source and target and any(_matches(code, known, {known: known}) for known in self.languages()):
            return f"{source:.40} to {target:.40} is not supported"
        return f"{code:.40} is not supported"


def _has(path: Path, direction: Direction) -> bool:
    """True if a glossary names the languages of a direction; a catalogue names only the target."""
    names = names_in(path)
    has_names = names.are_languages or is_header(names.names, direction)
    codes = {primary(code) for name in names.names if has_names and (code := language_in(name))}
    return primary(direction.target) in codes and (len(codes) == 1 or primary(direction.source) in codes)


def _matches(code: str | None, language: str, codes: dict[str, str]) -> int:
    """How well a code of a request fits a language of a run: 0 not at all, 1 the language, 2 exactly or any."""
    if code is None:
        return 2
    if _plain(code) in (_plain(language), _plain(codes[language])):
        return 2
    return int(primary(code) == primary(language))


def _plain(code: str) -> str:
    return code.replace("_", "-").lower()


def _client_codes(codes: Iterator[str]) -> dict[str, str]:
    """Short code of each code, if it has one that no other language has."""
    known = list(dict.fromkeys(codes))
    short = {code: primary(code) for code in known}
    client_codes = {}
    for code in known:
        language = _plain(code).partition("-")[0]
        is_unique = [primary(other) for other in known].count(short[code]) == 1
        client_codes[code] = short[code] if language != short[code] and is_unique else code
    return client_codes


def detection(code: str, share: float) -> dict[str, str | float | bool]:
    """Description of a detected language for clients, with its probability in percent."""
    return {"language": code, "confidence": round(100 * share, 1), "is_reliable": share >= CERTAIN}


def is_right_to_left(code: str) -> bool:
    scripts = scripts_of(code) or ()
    return bool(scripts) and scripts[0] in _RIGHT_TO_LEFT
