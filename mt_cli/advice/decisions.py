"""Choice of options for a corpus, or for a run that begins with another one, with reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mt_cli.advice.choices import Choice, Choices, Epoch, choose, values_of
from mt_cli.advice.facts import Facts, find_facts
from mt_cli.advice.sides import Tree
from mt_cli.checkpoint.directory import RunDirectory
from mt_cli.checkpoint.parent import adopt, inherited
from mt_cli.config.loading import parse_config, with_values
from mt_cli.config.sections import Config
from mt_cli.config.tags import DIRECTION, TO_TARGET, Tagging, direction_of
from mt_cli.corpus.cache import Cache
from mt_cli.data.prepare import estimate_epoch, prepare, read
from mt_cli.data.training_pairs import training_pairs
from mt_cli.errors import InputError, RunError
from mt_cli.exchange.destinations import obstacles
from mt_cli.tokenizer.tokenizer import TokenizerPair


@dataclass(frozen=True)
class Decision:
    """Options for a corpus."""

    facts: Facts
    choices: Choices
    config: Config
    """Config with the chosen values, except for options that it sets itself."""


def decide(
    config: Config, cache: Cache, tokenizers: TokenizerPair | None = None, destination: str | None = None
) -> Decision:
    """Choose options for the corpus of a config.

    Tokenizer and model follow from the text. The tokenizer is then trained, unless `tokenizers` of a parent are given,
    and the length of the run follows from the tokens. The model fits `destination`, a program of `DESTINATIONS`.
    Raises the errors of `prepare`, and ConfigError if the values contradict others.
    """
    facts = find_facts(config, read(config, cache))
    if config.init.run is not None:
        facts = replace(facts, d_model=config.model.d_model)
    choices = choose(facts)
    resolved = with_values(config, values_of(choices))
    if destination:
        facts = for_destination(facts, resolved, destination)
        choices = choose(facts)
        resolved = with_values(config, values_of(choices))
    data = prepare(resolved, cache, tokenizers)
    num_batches = estimate_epoch(training_pairs(data, resolved), resolved)
    assert num_batches is not None
    choices = choose(facts, Epoch(num_batches, resolved.training, data.statistics["valid"].target.num_tokens))
    return Decision(facts, choices, with_values(config, values_of(choices)))


def for_destination(facts: Facts, resolved: Config, destination: str) -> Facts:
    """Facts with the values of a config that a program cannot hold."""
    return replace(facts, destination=destination, obstacles=tuple(obstacles(resolved, destination)))


def begun_with(
    run: Path, tree: Tree, cache: Cache, runs: Path, destination: str | None = None
) -> tuple[Tree, Decision]:
    """Complete the tree of a config that begins with a run; also return the options for it.

    Only the choices for training and decoding are used. The tree gets `init`, a tag if the parent uses tags for target
    languages, and spellings to normalize that the parent does not normalize. Raises RunError if there is no such run,
    InputError if its model does not fit the program `destination`, and the errors of `adopt` and `decide`.
    """
    try:
        parent = RunDirectory(run).config()
    except RunError as error:
        raise RunError(f"--begin-with: {error}") from None
    if destination and (problems := obstacles(parent, destination)):
        settings = ", ".join(problem.setting for problem in problems)
        raise InputError(
            f"--for {destination}: {run} has {settings}, and a run that begins with it keeps that; begin with another "
            "run, or leave out --begin-with"
        )
    corpus = dict(tree["corpus"])
    if parent.corpus.has_target_tags:
        corpus["tag"] = TO_TARGET
    elif any(map(direction_of, parent.corpus.tags)):
        corpus["tag"] = DIRECTION
    elif parent.corpus.tagging.is_required:
        corpus |= _tagged(corpus, parent.corpus.tagging, run)
    init = {"run": str(run), "vocabulary": "extend"}
    tree = {"name": tree["name"], "init": init, "corpus": corpus}
    complete = inherited(parse_config(tree, "mt init"), parent, "mt init")
    if "sentencepiece" not in (parent.tokenizer.algorithm, parent.tokenizer.spacing):  # Its spellings are fixed.
        facts, tokenizer = find_facts(complete, read(complete, cache)), complete.tokenizer
        normalize = list(dict.fromkeys([*tokenizer.normalize, *facts.spellings]))
        values = {"normalize": normalize, "letters": merge_letters(tokenizer.letters, facts.letters)}
        before = tokenizer.model_dump(mode="json")
        if spelling := {key: value for key, value in values.items() if value != before[key]}:
            tree["tokenizer"] = spelling
    config, tokenizers, _ = adopt(parse_config(tree, "mt init"), cache, runs / tree["name"], None)
    decision = decide(config, cache, tokenizers, destination)
    spellings = {
        key: Choice(value, (f"of {run}, and " if getattr(parent.tokenizer, key) else "") + why)
        for key, (_, why) in decision.choices["tokenizer"].items()
        if (value := tree.get("tokenizer", {}).get(key))
    }
    choices = {"tokenizer": spellings} if spellings else {}
    of_child = {key: decision.choices[key] for key in ("training", "decoding") if key in decision.choices}
    return tree, replace(decision, choices={**choices, **of_child})


def _tagged(corpus: Mapping[str, Any], tagging: Tagging, run: Path) -> dict[str, Any]:
    """Corpora with the parent's tag for their target language; raises InputError if the tag is not clear."""
    tag = tagging.into(corpus["target"]) or tagging.default
    if tag is None:
        raise InputError(
            f"--begin-with: {run} has a tag before every sentence, one of {', '.join(tagging.tags)}; write a config "
            "with `init: {run: ...}` and a `tag` for each corpus"
        )
    groups = {name: corpus[name] for name in ("train", "valid", "test") if name in corpus}
    return {name: tree if "fraction" in tree else {**tree, "tag": tag} for name, tree in groups.items()}


def merge_letters(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    """Merge `tokenizer.letters` of a parent and of the text; the text comes first, so no letter is replaced twice."""
    kept = {letter: new.get(other, other) for letter, other in old.items() if letter not in {*new, *new.values()}}
    return {**kept, **new}
