"""Programs that a run can be exported to, and the options of a config that keep it from one of them.

Knows configs only: the exporters, `mt init`, the start of a run, reports and model cards all ask here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from mt_cli.config.base import Section
from mt_cli.config.sections import MOST_NAMED, WITHOUT_SUBWORDS, Config
from mt_cli.config.tags import direction_of
from mt_cli.config.writing import on_one_line
from mt_cli.errors import InputError
from mt_cli.exchange.names import ACTIVATIONS

_OF_OTHER_TOKENIZERS = ("normalize", "letters")
"""Options of `tokenizer` that have their defaults with `spacing: sentencepiece`."""

_WORD = re.compile(r"\w+|.")
"""A tag that could be a piece of a word; others have letters and marks, as no piece does."""


class Obstacle(NamedTuple):
    """Option whose value a program cannot hold."""

    key: str
    value: str
    instead: Any
    """Value that the program can hold."""

    @property
    def setting(self) -> str:
        return f"{self.key}: {self.value}"

    @property
    def advice(self) -> str:
        return f"{self.key}: {on_one_line(self.instead)}"


def _unless_default(section: Section, name: str, key: str) -> Iterator[Obstacle]:
    value, default = getattr(section, key), type(section).model_fields[key].get_default(call_default_factory=True)
    if value != default:
        shown, instead = (list(value) if isinstance(value, tuple) else value for value in (value, default))
        is_long = isinstance(value, dict) and len(value) > MOST_NAMED
        yield Obstacle(f"{name}.{key}", f"{len(value)} letters" if is_long else on_one_line(shown), instead)


def _obstacles_to_transformers(config: Config) -> Iterator[Obstacle]:
    """Options that neither MarianMT (post-norm) nor Pegasus (pre-norm, one embedding table) has.

    An imported M2M100 or NLLB has a class of its own.
    """
    model, is_pre = config.model, config.model.norm_order == "pre"
    if config.tokenizer.algorithm == "sentencepiece" and model.positions == "fairseq":
        return
    if model.activation not in ACTIVATIONS:
        yield Obstacle("model.activation", model.activation, "relu")
    if model.positions != "sinusoidal":
        yield Obstacle("model.positions", model.positions, "sinusoidal")
    if is_pre and model.tie_embeddings != "all":
        yield Obstacle("model.tie_embeddings", f"{model.tie_embeddings} with norm_order: pre", "all")
    if not (config.tokenizer.shared or config.tokenizer.algorithm == "sentencepiece"):
        yield Obstacle("tokenizer.shared", "false (two vocabularies)", True)


def _obstacles_to_argos(config: Config) -> Iterator[Obstacle]:
    """Options of tokenizers that no SentencePiece model holds, and translations that begin with a language."""
    tokenizer = config.tokenizer
    if directions := {*filter(None, map(direction_of, config.corpus.tags))}:
        # A model for one direction needs no tag; for several, it can have one that names the target.
        yield Obstacle("corpus.tag", "direction", "to_target" if len(directions) > 1 else None)
    for tag in filter(_WORD.fullmatch, config.corpus.tags):
        yield Obstacle("tag", f"{tag}, which is also a word", f"<{tag}>")
    if tokenizer.algorithm in WITHOUT_SUBWORDS:
        yield Obstacle("tokenizer.algorithm", tokenizer.algorithm, "bpe")
    if tokenizer.algorithm != "sentencepiece" and tokenizer.spacing != "sentencepiece":
        yield Obstacle("tokenizer.spacing", tokenizer.spacing, "sentencepiece")
        for key in _OF_OTHER_TOKENIZERS:
            yield from _unless_default(tokenizer, "tokenizer", key)
    yield from _unless_default(config.corpus, "corpus", "protect")


_CHECKS: Mapping[str, tuple[str, Callable[[Config], Iterator[Obstacle]]]] = {
    "huggingface": ("no class of transformers has", _obstacles_to_transformers),
    "argos": ("Argos Translate cannot hold", _obstacles_to_argos),
}
"""Beginning of the message on obstacles, and the obstacles, of programs that hold not all models."""
DESTINATIONS = ("ctranslate2", "huggingface", "argos", "bundle")
"""Programs that a run can be exported to: the values of `mt export --format`."""


def obstacles(config: Config, program: str) -> list[Obstacle]:
    return list(_CHECKS[program][1](config)) if program in _CHECKS else []


def check_destination(config: Config, program: str) -> None:
    """Raise InputError with all options that keep a run from a program, and with what to do."""
    if problems := obstacles(config, program):
        settings = ", or ".join(problem.setting for problem in problems)
        possible = " or ".join(name for name in DESTINATIONS if not obstacles(config, name))
        raise InputError(
            f"--format {program}: {_CHECKS[program][0]} {settings}; use --format {possible}, or train a new "
            f"model with {', '.join(problem.advice for problem in problems)} (mt init --for {program})"
        )


def describe_destinations(config: Config) -> str:
    """Programs that a run can be exported to, and the options that keep it from others, in one line."""
    problems = {name: obstacles(config, name) for name in DESTINATIONS}
    excluded = (
        f"; not {name}: {', '.join(problem.setting for problem in settings)}"
        for name, settings in problems.items()
        if settings
    )
    return ", ".join(name for name, settings in problems.items() if not settings) + "".join(excluded)


def protects_spans(program: str) -> bool:
    """True if `mt` runs the exported model, so that `corpus.protect` keeps spans as they are."""
    return program not in _CHECKS


def note_on_protection(config: Config, program: str) -> str | None:
    """Note that a program gives the model spans that `mt` would protect; None if it does not, or there are none."""
    if protects_spans(program) or not config.corpus.has_protection:
        return None
    return (
        f"{program} does not keep the spans of corpus.protect as they are, and this model cannot copy them itself; mt "
        f"init --for {program} writes a config without this option"
    )
