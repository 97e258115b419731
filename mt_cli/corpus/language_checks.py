"""Check the languages of a config against its corpora. Reads no text."""

from __future__ import annotations

from collections.abc import Iterator

from mt_cli.config.corpora import CorpusConfig
from mt_cli.config.sources import BuiltinSource
from mt_cli.corpus.languages import primary
from mt_cli.corpus.rows import Languages
from mt_cli.corpus.varieties import is_same_variety
from mt_cli.errors import CorpusError

_LANGUAGES_OF_BUILTINS = {"phrasebook-en-it": ("en", "it")}
"""First and second language of the built-in corpora whose text is in natural languages."""


def key_of(name: str) -> str:
    """The key of a corpus in the config."""
    return f"corpus.{name}" if name in ("train", "valid", "test") else f"corpus.extra_tests.{name}"


def check_languages(config: CorpusConfig) -> None:
    """Raise CorpusError if both sides are one language, or a built-in corpus is in other languages."""
    keys: dict[str, list[str]] = {}
    for key, problem in _problems(config):
        keys.setdefault(problem, []).append(key)
    if keys:
        raise CorpusError("; ".join(f"{', '.join(dict.fromkeys(keys[problem]))}: {problem}" for problem in keys))


def _problems(config: CorpusConfig) -> Iterator[tuple[str, str]]:
    """Wrong keys, each with the problem of its value."""
    for name, sources in config.groups.items():
        for number in config.once(name):
            source = sources[number]
            key = key_of(name) + (f"[{number}]" if len(sources) > 1 else "")
            languages = source.languages or config.languages
            if is_same_variety(*languages):
                yield (
                    f"{key}.languages" if source.languages else "corpus.source, corpus.target",
                    f"{languages[0]} and {languages[1]} are one language; a model translates between two, which may be "
                    "varieties: for a task within a language, give one side a code such as en-x-plain",
                )
            elif isinstance(source, BuiltinSource) and (problem := _problem_of_builtin(source, languages)):
                yield key, problem


def _problem_of_builtin(source: BuiltinSource, languages: Languages) -> str:
    """Problem if a built-in corpus is in other languages; otherwise an empty string."""
    expected = _LANGUAGES_OF_BUILTINS.get(source.builtin)
    if expected is None:
        return ""
    expected = expected[::-1] if source.reverse else expected
    requested = primary(languages[0]), primary(languages[1])
    if requested == expected:
        return ""
    advice = f"set corpus.source to {expected[0]} and corpus.target to {expected[1]}"
    if requested == expected[::-1]:
        advice = f"set `reverse: {str(not source.reverse).lower()}`"
    direction = f"from {expected[0]} to {expected[1]}{' (reversed)' * source.reverse}"
    return f"{source.builtin} is {direction}, not from {languages[0]} to {languages[1]}; {advice}"
